//! Carrying out again what the redo log says, before anything else is done with the members.
//!
//! A record shows that all older ones of the same band are done, since a band has one write at a time: of each band
//! only the newest can be about something that is not, and only that is looked at. What an older one would put back may
//! have been overwritten since by a write of which only a partial-write record exists: lists of partial writes have no
//! contents, and the strips that they name are made to agree ([`super::partial_writes`]).
//!
//! A record with contents counts when it may be the last word about its blocks: it is of the last activation, not
//! below the floor that any record of its ring tells, and was written while everything that changes its stripe was
//! logged, which the label says. It was acted upon only if it is whole on every member that was one then and is one
//! now; then all of it is written in its place, but for members that were out in between and have been given newer
//! contents in another way. Nothing is changed in the log, so a crash in the middle of this is one more of the same.

use std::collections::{BTreeMap, BTreeSet};

use strake_block::IoError;
use strake_ondisk::redo::restore;
use strake_ondisk::ring::{Floors, RecordId};
use strake_ondisk::{
    BadList, Bitmap, Bits, Consistency, HEAD_BYTES, PartialWrite, REDO_HEADER_BYTES, RecordedState,
    RedoHeader, RedoPart, RedoPayload, RedoRecord, Superblock, decode_redo,
};
use strake_raid::{Geometry, Regions};
use strake_units::{MemberIndex, MemberSet, RegionIndex, StripeIndex, Uuid};

use super::LostPages;
use super::partial_writes::{Remedy, Site};
use super::recovery::Recovery;
use crate::bitmaps::Bitmaps;
use crate::create::Drive;
use crate::error::ArrayError;
use crate::fleet::{Failed, Fleet, Reading, Writing};

/// True when the label says that every write is in the log.
fn logs_all(label: &Superblock) -> bool {
    let every_member = MemberSet::first_n(label.members.len());
    label.consistency == Consistency::Strict && label.logged == every_member
}

/// The members to whose stripes every write is in the log.
pub(super) fn covered(label: &Superblock, geometry: &Geometry) -> MemberSet {
    if geometry.parity_strips() == 0 {
        MemberSet::EMPTY
    } else if logs_all(label) {
        geometry.all_members()
    } else {
        geometry.groups_with(label.logged)
    }
}

/// What the label says of the log at the start of an activation, when nothing is under way: `absent` members are not in
/// sync, there is `doubt` about parity somewhere, but not in the stripes of the members in `replayed`.
pub(crate) fn note_start(
    label: &mut Superblock,
    geometry: &Geometry,
    absent: MemberSet,
    doubt: bool,
    replayed: MemberSet,
) {
    let sure = if doubt { absent & replayed } else { absent };
    let logged = match label.consistency {
        Consistency::Strict if geometry.parity_strips() > 0 && !doubt => geometry.all_members(),
        Consistency::Strict | Consistency::Safe if geometry.parity_strips() > 0 => sure,
        Consistency::None | Consistency::Resync | Consistency::Safe | Consistency::Strict => {
            MemberSet::EMPTY
        }
    };
    let since = if logged.is_empty() { 0 } else { label.generation };
    label.note_logged(logged, since);
}

/// A record, and the members that have it.
struct Found {
    record: RedoRecord,
    /// Byte offsets of its header.
    homes: Vec<(MemberIndex, u64)>,
    /// The part that is theirs, of those that were read.
    parts: Vec<(MemberIndex, Vec<u8>)>,
}

/// What a start that has to begin again because a member failed takes along. Nothing on the members says so, so that a
/// crash ends it.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// What has been executed, by the path of the drive, the activation, and the record. It is not written twice.
    records: BTreeSet<(String, Uuid, RecordId)>,
    /// By array, the regions whose loss the operator has accepted.
    pub(super) accepted: BTreeMap<Uuid, Bits>,
    /// What members could not show of bitmaps before a start wrote these pages, by array and member.
    lost_pages: BTreeMap<(Uuid, MemberIndex), LostPages>,
}

impl Carried {
    /// Adds pages that members of `array` cannot show. Returns all of them.
    pub(super) fn join_lost_pages(&mut self, array: Uuid, found: &[LostPages]) -> Vec<LostPages> {
        for lost in found {
            let known = self.lost_pages.entry((array, lost.member)).or_insert(*lost);
            known.pages = known.pages.max(lost.pages);
            known.everywhere = known.everywhere.max(lost.everywhere);
        }
        let of_array = self.lost_pages.iter().filter(|((of, _), _)| *of == array);
        of_array.map(|(_, lost)| *lost).collect()
    }
}

/// A part of a stripe that one write has to itself.
type BandName = (StripeIndex, u32);

/// The band that block `offset` of every strip of a stripe is in.
fn band(geometry: &Geometry, stripe: StripeIndex, offset: u32) -> BandName {
    (stripe, offset / geometry.band_blocks())
}

/// What the log of the last activation says, and what is to be done about it.
pub(super) struct Log {
    /// Records to be replayed, in order.
    redo: Vec<Found>,
    /// How many records would be, if every member had its part of them.
    never_begun: u64,
    /// What partial writes come to, and the regions that they are about.
    remedies: Vec<(RegionIndex, Remedy)>,
    /// Some of it cannot be read, and may have been about writes of which nothing else tells.
    in_part: bool,
}

/// What is on the members.
#[derive(Default)]
struct Records {
    /// What concerns the same blocks is in one ring.
    redo: BTreeMap<RecordId, Found>,
    partial_writes: BTreeMap<RecordId, (RedoHeader, Vec<PartialWrite>)>,
    floors: Floors,
    /// Members whose log cannot be read everywhere.
    unreadable: BTreeMap<MemberIndex, ArrayError>,
}

impl Records {
    /// The newest record of each band that any is about.
    fn newest(&self, label: &Superblock, geometry: &Geometry) -> BTreeMap<BandName, RecordId> {
        let mut newest = BTreeMap::<BandName, RecordId>::new();
        let mut note = |band: BandName, name: &RecordId| {
            let known = newest.entry(band).or_insert(*name);
            *known = (*known).max(*name);
        };
        for (name, found) in self.redo.iter().filter(|(name, _)| self.floors.is_current(**name)) {
            let record = &found.record;
            let bands =
                record.parts().iter().map(|part| band(geometry, record.header.stripe, part.offset));
            bands.for_each(|band| note(band, name));
        }
        for (name, (header, partial_writes)) in &self.partial_writes {
            if self.floors.is_current(*name) && tells(label, header) {
                partial_writes.iter().for_each(|i| note(band(geometry, i.stripe, i.offset), name));
            }
        }
        newest
    }
}

/// Reads the log on all of `drives` that have it, and what partial writes are about. Changes nothing.
///
/// Headers are read first, of all members at once. They tell which records are the last word about their bands, and
/// only of these the contents are read.
///
/// A block that cannot be read counts as one without a record where other members can show that: the header of a record
/// names every member that has a part. Where no other member may have the record, or the block may hold a part that is
/// missing, the array continues without the member, or, if the loss is accepted, with what there is.
///
/// # Errors
/// When members cannot be read: they are named.
pub(super) fn read(
    label: &Superblock,
    (geometry, regions): (&Geometry, &Regions),
    (drives, bad): (&[Option<Drive>], &BadList),
    accept_loss: bool,
    fleet: &mut Fleet<'_>,
) -> Result<Log, Failed> {
    let mut records = records(label, (geometry, regions), drives, fleet)?;
    let newest = records.newest(label, geometry);
    let is_newest =
        |stripe, offset, name: &RecordId| newest.get(&band(geometry, stripe, offset)) == Some(name);
    let mut log = Log { redo: Vec::new(), never_begun: 0, remedies: Vec::new(), in_part: false };
    // Only arrays with parity have a log.
    let site = Site::new(label, geometry, drives, bad)?;
    let last = |(name, (_, partial_writes)): (&RecordId, &(RedoHeader, Vec<PartialWrite>))| {
        let name = *name;
        let last = move |partial_write: &PartialWrite| {
            is_newest(partial_write.stripe, partial_write.offset, &name)
        };
        partial_writes.iter().filter(|i| site.has(i) && last(i)).cloned().collect::<Vec<_>>()
    };
    let partial_writes: Vec<PartialWrite> = records.partial_writes.iter().flat_map(last).collect();
    for some in partial_writes.chunks(PARTIAL_WRITES_AT_ONCE) {
        let remedies = site.remedies(some, fleet)?;
        let region = |partial_write: &PartialWrite| regions.region_of(partial_write.stripe);
        log.remedies.extend(some.iter().map(region).zip(remedies));
    }
    // Whatever is older is done, and may have been overwritten since by a write of which only a partial-write record
    // exists.
    let is_last = |name: &RecordId, found: &Found| {
        let record = &found.record;
        record.parts().iter().all(|part| is_newest(record.header.stripe, part.offset, name))
    };
    let mut redo = std::mem::take(&mut records.redo);
    redo.retain(|name, found| {
        is_last(name, found)
            && records.floors.is_current(*name)
            && counts(label, geometry, &found.record)
    });
    payloads(geometry, &mut redo, &mut records.unreadable, fleet)?;
    let (acted, never_begun): (Vec<Found>, Vec<Found>) =
        redo.into_values().partition(|found| is_whole(label, drives, found));
    log.never_begun = never_begun.len() as u64;
    let mut rows = label.members.iter().zip(drives);
    let whole = rows.all(|(row, drive)| row.state == RecordedState::InSync && drive.is_some());
    let lacks = |member: &MemberIndex| {
        let has = |found: &Found| found.parts.iter().any(|(has, _)| has == member);
        let part = |found: &Found| found.record.parts().iter().any(|part| part.slot == *member);
        never_begun.iter().any(|found| part(found) && !has(found))
    };
    let blamed = std::mem::take(&mut records.unreadable);
    let mut blamed = blamed.into_iter().filter(|(member, _)| !whole || lacks(member));
    if let Some((member, error)) = blamed.next() {
        if !accept_loss {
            return Err(Failed::Members(vec![(member, error)]));
        }
        log.in_part = true;
    }
    log.redo = acted;
    Ok(log)
}

/// True when the log holds a record of the label's activation, so that the array served under it.
///
/// # Errors
/// When members cannot be read: they are named.
pub(super) fn has_records(
    label: &Superblock,
    drives: &[Option<Drive>],
    fleet: &mut Fleet<'_>,
) -> Result<bool, Failed> {
    let found = headers(label, drives, &mut BTreeMap::new(), fleet)?;
    Ok(found.values().any(|headers| !headers.is_empty()))
}

/// What the headers on the members say.
fn records(
    label: &Superblock,
    (geometry, regions): (&Geometry, &Regions),
    drives: &[Option<Drive>],
    fleet: &mut Fleet<'_>,
) -> Result<Records, Failed> {
    let mut records = Records::default();
    for (member, found) in headers(label, drives, &mut records.unreadable, fleet)? {
        for (offset, record) in found {
            let header = record.header;
            let name = header.id();
            records.floors.add(header.ring, header.floor);
            if let RedoPayload::PartialWrites(partial_writes) = record.payload {
                if records.floors.is_current(name) {
                    records.partial_writes.entry(name).or_insert((header, partial_writes));
                }
                continue;
            }
            if record.parts().iter().all(|part| part.slot != member) {
                continue;
            }
            let inside = |part: &RedoPart| within(geometry, regions, header.stripe.0, part);
            if !record.parts().iter().all(inside) {
                continue;
            }
            // Without its payload a header still tells that older records of its band are done.
            let found = Found { record: record.clone(), homes: Vec::new(), parts: Vec::new() };
            let entry = records.redo.entry(name).or_insert(found);
            if entry.record == record {
                entry.homes.push((member, offset));
            }
        }
        let Records { partial_writes, floors, .. } = &mut records;
        partial_writes.retain(|name, _| floors.is_current(*name));
    }
    Ok(records)
}

/// Reads what members were to get by the records in `redo`, from all of them at once.
fn payloads(
    geometry: &Geometry,
    redo: &mut BTreeMap<RecordId, Found>,
    unreadable: &mut BTreeMap<MemberIndex, ArrayError>,
    fleet: &mut Fleet<'_>,
) -> Result<(), Failed> {
    let mut readings = Vec::new();
    let mut owners = Vec::new();
    for (name, found) in redo.iter() {
        for (member, offset) in &found.homes {
            let part = found.record.parts().iter().find(|part| part.slot == *member);
            let reading = part.and_then(|part| payload_at(part, geometry, *member, *offset));
            owners.extend(reading.map(|_| (*name, *member)));
            readings.extend(reading);
        }
    }
    let read = fleet.read(&readings, READING)?;
    for ((name, member), read) in owners.into_iter().zip(read) {
        let Some(found) = redo.get_mut(&name) else { continue };
        if let Some(error) = read.why {
            unreadable.entry(member).or_insert(error);
            continue;
        }
        let part = found.record.parts().iter().find(|part| part.slot == member);
        let Some(part) = part else { continue };
        let mut payload = read.bytes;
        payload.truncate((u64::from(part.blocks) << geometry.block_size().shift()) as usize);
        if restore(part, &mut payload) {
            found.parts.push((member, payload));
        }
    }
    Ok(())
}

impl Log {
    /// The regions, of `count`, in which what is lost may not be what it was.
    pub(super) fn unsure(&self, count: u32) -> Bits {
        self.marked(count, |remedy| !remedy.sure)
    }

    /// True when parity is left somewhere that may not fit.
    pub(super) fn leaves_doubt(&self) -> bool {
        self.in_part || self.remedies.iter().any(|(_, remedy)| remedy.left)
    }

    /// True when what is lost of a write that was under way may not be known of.
    pub(super) fn is_in_part(&self) -> bool {
        self.in_part
    }

    /// Says what is found here.
    pub(super) fn tell(&self, recovery: &mut Recovery) {
        (recovery.redone, recovery.never_begun) = (self.redo.len() as u64, self.never_begun);
        self.remedies.iter().for_each(|(_, remedy)| remedy.tell(&mut recovery.partial_writes));
    }

    fn marked(&self, count: u32, which: impl Fn(&Remedy) -> bool) -> Bits {
        let mut bits = Bits::new(count);
        let hit = self.remedies.iter().filter(|(_, remedy)| which(remedy));
        hit.for_each(|(region, _)| bits.set(region.0));
        bits
    }

    /// Writes what it says once more, on all members at once, and clears the marks of regions when that leaves none in
    /// doubt. Returns how many writes.
    ///
    /// # Errors
    /// When members cannot be written: they are named. What the others have got is in `carried`.
    pub(super) fn carry_out(
        self,
        label: &Superblock,
        (geometry, regions): (&Geometry, &Regions),
        (drives, bitmaps): (&[Option<Drive>], &mut Bitmaps),
        carried: &mut Carried,
        fleet: &mut Fleet<'_>,
    ) -> Result<u64, Failed> {
        let left = self.marked(regions.count(), |remedy| remedy.left);
        let redone = self.redo.len() as u64;
        // Of each band there is one record, so that no two of these writes meet.
        let (mut writings, mut keys) = (Vec::new(), Vec::new());
        for Found { record, parts, .. } in self.redo {
            for (member, bytes) in parts {
                let part = record.parts().iter().find(|part| part.slot == member);
                let Some(part) = part.filter(|part| takes(label, &record, part)) else { continue };
                let path = drives[member.at()].as_ref().map(|drive| drive.path.clone());
                let key = (path.unwrap_or_default(), record.header.epoch, record.header.id());
                if carried.records.contains(&key) {
                    continue;
                }
                let at = geometry.member_lba(record.header.stripe, part.offset);
                let offset = HEAD_BYTES + at.bytes(geometry.block_size());
                writings.push(Writing { member, offset, bytes });
                keys.push(key);
            }
        }
        let mut stable = |nth: usize| {
            carried.records.insert(keys[nth].clone());
        };
        fleet.write_noting(&writings, "replaying its redo log", &mut stable)?;
        drop(writings);
        let repaired = self.remedies.iter().filter(|(_, remedy)| !remedy.writes.is_empty());
        let writes: Vec<Writing> =
            repaired.clone().flat_map(|(_, remedy)| remedy.writes.iter().cloned()).collect();
        fleet.write(&writes, "resynchronizing parity after a crash")?;
        if !self.in_part && covered(label, geometry) == geometry.all_members() {
            // There is no other doubt about these regions than the writes that have been done again.
            bitmaps.change(Bitmap::WriteIntent, |write_intent| *write_intent = left.clone());
        }
        Ok(redone + repaired.count() as u64)
    }
}

/// What is being done while the log is read, for messages.
const READING: &str = "reading its redo log";

/// Partial writes whose strips are in memory at a time.
const PARTIAL_WRITES_AT_ONCE: usize = 256;

/// Headers, by byte offset on the member.
type Headers = BTreeMap<u64, RedoRecord>;

/// The headers of the label's activation in the logs of all members; those whose logs cannot be read everywhere get
/// into `unreadable`.
fn headers(
    label: &Superblock,
    drives: &[Option<Drive>],
    unreadable: &mut BTreeMap<MemberIndex, ArrayError>,
    fleet: &mut Fleet<'_>,
) -> Result<BTreeMap<MemberIndex, Headers>, Failed> {
    let (offset, bytes) = strake_ondisk::redo_ring(0, 1);
    let readings: Vec<Reading> =
        fleet.here().map(|member| Reading { member, offset, bytes }).collect();
    let mut found = BTreeMap::<MemberIndex, Headers>::new();
    // A piece at a time: next to nothing of the log is ever a header of this activation.
    let mut look = |of: usize, piece_offset: u64, piece: Result<&[u8], IoError>| {
        let member = readings[of].member;
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                let path = drives[member.at()].as_ref().map_or("?", |drive| drive.path.as_str());
                unreadable.entry(member).or_insert_with(|| ArrayError::io(path, READING, error));
                return;
            }
        };
        let own = found.entry(member).or_default();
        for (at, block) in piece.chunks_exact(REDO_HEADER_BYTES).enumerate() {
            let offset = piece_offset + (at * REDO_HEADER_BYTES) as u64;
            let record = decode_redo(block, offset);
            own.extend(record.filter(|r| is_ours(label, &r.header)).map(|r| (offset, r)));
        }
    };
    fleet.read_pieces(&readings, READING, &mut look)?;
    Ok(found)
}

fn is_ours(label: &Superblock, header: &RedoHeader) -> bool {
    header.array == label.array && header.epoch == label.epoch
}

/// Where the log has what a member was to get, behind the header at `offset`; `None` when that is beyond its end.
fn payload_at(
    part: &RedoPart,
    geometry: &Geometry,
    member: MemberIndex,
    offset: u64,
) -> Option<Reading> {
    let (log, log_bytes) = strake_ondisk::redo_ring(0, 1);
    let bytes = u64::from(part.blocks) << geometry.block_size().shift();
    let start = offset + REDO_HEADER_BYTES as u64;
    let whole = bytes.next_multiple_of(REDO_HEADER_BYTES as u64);
    (start + bytes <= log + log_bytes).then_some(Reading { member, offset: start, bytes: whole })
}

/// True when a part lies where the array has a strip.
fn within(geometry: &Geometry, regions: &Regions, stripe: u64, part: &RedoPart) -> bool {
    let end = u64::from(part.offset) + u64::from(part.blocks);
    stripe < geometry.stripes()
        && regions.count() > 0
        && part.blocks > 0
        && end <= geometry.strip_blocks().into()
}

/// True when every write to the record's stripe was logged since it was written: all writes are, or a member with a
/// part of that stripe was out then, and still is, or the label that calls it in sync may not have reached all.
fn counts(label: &Superblock, geometry: &Geometry, record: &RedoRecord) -> bool {
    let RedoHeader { generation, out, stripe, .. } = record.header;
    let concerned = geometry.groups_with(MemberSet::of(geometry.member(stripe, 0)));
    generation >= label.logged_since
        && (logs_all(label) || (out & label.logged).intersects(concerned))
}

/// True when a list of partial writes is complete: every write since is on record, in full or as a partial write.
fn tells(label: &Superblock, header: &RedoHeader) -> bool {
    header.generation >= label.logged_since && logs_all(label)
}

/// True when a member may be given its part: it, or the drive that has taken its place, has got every write since. One
/// that was out in between got those that it missed by being rebuilt.
fn takes(label: &Superblock, record: &RedoRecord, part: &RedoPart) -> bool {
    let Some(row) = label.members.get(part.slot.at()) else { return false };
    let replacement = record.header.replacement == Some((part.slot, row.uuid));
    let stayed = match row.state {
        RecordedState::Rebuilding => record.header.generation > row.held_generation,
        // Before it was called in sync, everything older than its coming back was done and no longer counts.
        RecordedState::InSync | RecordedState::Faulty | RecordedState::Missing => true,
    };
    (row.uuid == part.uuid || replacement) && stayed
}

/// True when every member that has to has its part: one that was in its place when the record was written, or was
/// written along with it, and is here.
fn is_whole(label: &Superblock, drives: &[Option<Drive>], found: &Found) -> bool {
    let Found { record, parts, .. } = found;
    record.parts().iter().all(|part| {
        let here = drives.get(part.slot.at()).is_some_and(Option::is_some);
        let has = parts.iter().any(|(member, _)| *member == part.slot);
        has || !here || !takes(label, record, part)
    })
}
