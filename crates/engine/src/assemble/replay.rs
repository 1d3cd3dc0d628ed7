//! Replay of the redo log, before any other write to the members.
//!
//! A band has one write at a time, so a record proves that all older writes of the same band are complete. In each
//! band, only the newest record can belong to an incomplete write, and only this record is evaluated. The content of an
//! older record may have been overwritten since by a write that has only a partial-write record. Such records have no
//! content, and the strips that they name are made consistent ([`super::partial_writes`]).
//!
//! A record with content counts if it may be the newest content of its blocks: it is from the last activation, not
//! below the floor in any record of its ring, and was written while all writes to its stripe were logged, according to
//! the label. Its write was executed only if the record is complete on every member that was a member then and is
//! present now. Then its content is written to the members, except members that were out in between and have received
//! newer content otherwise. The log does not change, so a crash during the replay leaves the same situation.

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
use crate::drive::Drive;
use crate::error::ArrayError;
use crate::fleet::{Failed, Fleet, Reading, Writing};

/// True if every write is in the log, according to the label.
fn logs_all(label: &Superblock) -> bool {
    let every_member = MemberSet::first_n(label.members.len());
    label.consistency == Consistency::Strict && label.logged == every_member
}

/// Returns the members for whose stripes the log contains every write.
pub(super) fn covered(label: &Superblock, geometry: &Geometry) -> MemberSet {
    if geometry.parity_strips() == 0 {
        MemberSet::EMPTY
    } else if logs_all(label) {
        geometry.all_members()
    } else {
        geometry.groups_with(label.logged)
    }
}

/// Sets the fields of the label about the log at the start of an activation, without writes in progress. `absent`
/// members are not in sync. With `doubt`, parity is doubtful somewhere, but not in the stripes of the members in
/// `replayed`.
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
    /// The parts of members whose content was read.
    parts: Vec<(MemberIndex, Vec<u8>)>,
}

/// State that a repeated start keeps after a member failed. The members do not contain this state, so it ends with a
/// crash.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Replayed records, by path of the drive, activation, and record. They are not written twice.
    records: BTreeSet<(String, Uuid, RecordId)>,
    /// For each array, the regions whose loss the operator has accepted.
    pub(super) accepted: BTreeMap<Uuid, Bits>,
    /// Lost pages of bitmaps before a start wrote these pages, by array and member.
    lost_pages: BTreeMap<(Uuid, MemberIndex), LostPages>,
}

impl Carried {
    /// Adds lost pages of members of `array`. Returns all lost pages.
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

/// A band, which only one write at a time uses.
type BandName = (StripeIndex, u32);

/// Returns the band that contains block `offset` of every strip of a stripe.
fn band(geometry: &Geometry, stripe: StripeIndex, offset: u32) -> BandName {
    (stripe, offset / geometry.band_blocks())
}

/// The evaluated log of the last activation.
pub(super) struct Log {
    /// Records to replay, in order.
    redo: Vec<Found>,
    /// Number of records that some member has incompletely.
    never_begun: u64,
    /// Recoveries of partial writes, with their regions.
    remedies: Vec<(RegionIndex, Remedy)>,
    /// True if parts of the log are unreadable and may contain the only records of some writes.
    in_part: bool,
}

/// The records on the members.
#[derive(Default)]
struct Records {
    /// Records of the same blocks are in one ring.
    redo: BTreeMap<RecordId, Found>,
    partial_writes: BTreeMap<RecordId, (RedoHeader, Vec<PartialWrite>)>,
    floors: Floors,
    /// Members whose log is partly unreadable.
    unreadable: BTreeMap<MemberIndex, ArrayError>,
}

impl Records {
    /// Returns the newest record of each band.
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

/// Reads the log on all of `drives` that have one, and the blocks of partial writes. Changes nothing.
///
/// First, the headers of all members are read concurrently. They determine the newest record of each band, and only the
/// content of these records is read.
///
/// An unreadable block counts as a block without a record, if other members can prove this: the header of a record
/// names every member with a part. If no other member may have the record, or if the block may contain a missing part,
/// the array continues without the member or, with an accepted loss, with the readable records.
///
/// # Errors
/// If members cannot be read. The error names the members.
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
    // Older writes are complete, and their content may have been overwritten since by a write that has only a
    // partial-write record.
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

/// True if the log contains a record of the label's activation, which proves that the array served under the label.
///
/// # Errors
/// If members cannot be read. The error names the members.
pub(super) fn has_records(
    label: &Superblock,
    drives: &[Option<Drive>],
    fleet: &mut Fleet<'_>,
) -> Result<bool, Failed> {
    let found = headers(label, drives, &mut BTreeMap::new(), fleet)?;
    Ok(found.values().any(|headers| !headers.is_empty()))
}

/// Reads the headers on the members.
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
            // A header without its payload still proves that older writes of its band are complete.
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

/// Reads the payloads of the records in `redo`, from all members concurrently.
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
    /// Returns the regions, of `count`, in which the content of lost strips is uncertain.
    pub(super) fn unsure(&self, count: u32) -> Bits {
        self.marked(count, |remedy| !remedy.sure)
    }

    /// True if the recovery leaves parity that may not match.
    pub(super) fn leaves_doubt(&self) -> bool {
        self.in_part || self.remedies.iter().any(|(_, remedy)| remedy.left)
    }

    /// True if the log may have lost the only record of an interrupted write.
    pub(super) fn is_in_part(&self) -> bool {
        self.in_part
    }

    /// Reports the findings.
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

    /// Writes the content of the records to all members concurrently, and clears the bits of regions if no region stays
    /// in doubt. Returns the number of writes.
    ///
    /// # Errors
    /// If members cannot be written. The error names the members. `carried` records the writes to the other members.
    pub(super) fn carry_out(
        self,
        label: &Superblock,
        (geometry, regions): (&Geometry, &Regions),
        (drives, bitmaps): (&[Option<Drive>], &mut Bitmaps),
        carried: &mut Carried,
        fleet: &mut Fleet<'_>,
    ) -> Result<u64, Failed> {
        if !self.remedies.is_empty() {
            // An interrupted write may be visible without being stable. The remedies take visible blocks for arrived,
            // and the next epoch invalidates the records, so a later power failure must not revert such a block.
            fleet.flush("making interrupted writes stable after a crash")?;
        }
        let left = self.marked(regions.count(), |remedy| remedy.left);
        let redone = self.redo.len() as u64;
        // Each band has one record, so these writes do not overlap.
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
            // Only the replayed writes made these regions doubtful.
            bitmaps.change(Bitmap::WriteIntent, |write_intent| *write_intent = left.clone());
        }
        Ok(redone + repaired.count() as u64)
    }
}

/// Text for messages about reads of the log.
const READING: &str = "reading its redo log";

/// Maximum number of partial writes whose strips are in memory at a time.
const PARTIAL_WRITES_AT_ONCE: usize = 256;

/// Headers, by byte offset on the member.
type Headers = BTreeMap<u64, RedoRecord>;

/// Returns the headers of the label's activation in the logs of all members. Members whose logs are partly unreadable
/// are added to `unreadable`.
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
    // The log is read in pieces, because only a small part of it consists of headers of this activation.
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

/// Returns the location of a payload after the header at `offset`; `None` if it is beyond the end of the log.
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

/// True if a part is within a strip of the array.
fn within(geometry: &Geometry, regions: &Regions, stripe: u64, part: &RedoPart) -> bool {
    let end = u64::from(part.offset) + u64::from(part.blocks);
    stripe < geometry.stripes()
        && regions.count() > 0
        && part.blocks > 0
        && end <= geometry.strip_blocks().into()
}

/// True if every write to the record's stripe since the record was logged: either all writes are logged, or a member of
/// this stripe was out then and still is, or the label that calls it in sync may not have reached all members.
fn counts(label: &Superblock, geometry: &Geometry, record: &RedoRecord) -> bool {
    let RedoHeader { generation, out, stripe, .. } = record.header;
    let concerned = geometry.groups_with(MemberSet::of(geometry.member(stripe, 0)));
    generation >= label.logged_since
        && (logs_all(label) || (out & label.logged).intersects(concerned))
}

/// True if a list of partial writes counts: every later write is recorded, completely or as a partial write.
fn tells(label: &Superblock, header: &RedoHeader) -> bool {
    header.generation >= label.logged_since && logs_all(label)
}

/// True if a member may receive its part: the member, or the drive that replaced it, has received every write since. A
/// member that was out in between received the missed writes by its rebuild.
fn takes(label: &Superblock, record: &RedoRecord, part: &RedoPart) -> bool {
    let Some(row) = label.members.get(part.slot.at()) else { return false };
    let replacement = record.header.replacement == Some((part.slot, row.uuid));
    let stayed = match row.state {
        RecordedState::Rebuilding => record.header.generation > row.held_generation,
        // Before the label called the member in sync, all records from before its return were complete, and no longer
        // count.
        RecordedState::InSync | RecordedState::Faulty | RecordedState::Missing => true,
    };
    (row.uuid == part.uuid || replacement) && stayed
}

/// True if every required member has its part: each present member that was in its slot when the record was written, or
/// was written together with it as a replacement.
fn is_whole(label: &Superblock, drives: &[Option<Drive>], found: &Found) -> bool {
    let Found { record, parts, .. } = found;
    record.parts().iter().all(|part| {
        let here = drives.get(part.slot.at()).is_some_and(Option::is_some);
        let has = parts.iter().any(|(member, _)| *member == part.slot);
        has || !here || !takes(label, record, part)
    })
}
