//! Carrying out again what the redo log says, before anything else is done with the members.
//!
//! A record shows that all older ones of the same band are done, since a band has one write at a time: of each band
//! only the newest can be about something that is not, and only that is looked at. What an older one would put back
//! may have been written over since by a write that only told its intent: lists of intents have no contents, and what
//! they tell of is made to agree ([`super::intents`]).
//!
//! A record with contents counts when it may be the last word about its blocks: it is of the last activation, not
//! below the floor that any record of its ring tells, and was written while everything that changes its stripe was
//! logged, which the label says. It was acted upon only if it is whole on every member that was one then and is one
//! now; then all of it is written in its place, but for members that were out in between and have been given newer
//! contents in another way. Nothing is changed in the log, so a crash in the middle of this is one more of the same.

use std::collections::BTreeMap;

use strake_ondisk::redo::restore;
use strake_ondisk::{
    BadList, Bits, Consistency, HEAD_BYTES, Intent, Plane, REDO_HEADER_BYTES, RecordedState,
    RedoHeader, RedoPart, RedoRecord, Superblock, decode_redo,
};
use strake_raid::{Geometry, Regions};
use strake_units::{MemberIndex, RegionIndex, StripeIndex};

use super::intents::{Remedy, Site};
use super::recovery::Recovery;
use crate::create::Drive;
use crate::error::ArrayError;
use crate::member_io::{MemberIo, Wait};
use crate::planes::Planes;

/// True when the label says that every write is in the log.
fn logs_all(label: &Superblock) -> bool {
    let everybody = u64::MAX >> (64 - label.members.len());
    label.consistency == Consistency::Strict && label.logged == everybody
}

/// The members to whose stripes every write is in the log, as a mask.
pub(super) fn covered(label: &Superblock, geometry: &Geometry) -> u64 {
    if geometry.parity_strips() == 0 {
        return 0;
    }
    if logs_all(label) {
        geometry.groups_with(u64::MAX)
    } else {
        geometry.groups_with(label.logged)
    }
}

/// What the label says of the log at the start of an activation, when nothing is under way: `absent` members are not in
/// sync, there is `doubt` about parity somewhere, but not in the stripes of the members in `replayed`.
pub(crate) fn note_start(
    label: &mut Superblock,
    geometry: &Geometry,
    absent: u64,
    doubt: bool,
    replayed: u64,
) {
    let everybody = geometry.groups_with(u64::MAX);
    let sure = if doubt { absent & replayed } else { absent };
    let logged = match label.consistency {
        Consistency::Strict if geometry.parity_strips() > 0 && !doubt => everybody,
        Consistency::Strict | Consistency::Safe if geometry.parity_strips() > 0 => sure,
        Consistency::None | Consistency::Resync | Consistency::Safe | Consistency::Strict => 0,
    };
    let since = if logged != 0 { label.generation } else { 0 };
    label.note_logged(logged, since);
}

/// A record, and the members that have it with the part that is theirs.
struct Found {
    record: RedoRecord,
    parts: Vec<(MemberIndex, Vec<u8>)>,
}

/// Which record: its ring, and its number there.
type Name = (u16, u64);

/// A part of a stripe that one write has to itself.
type BandName = (StripeIndex, u32);

/// The band that block `offset` of every strip of a stripe is in.
fn band(geometry: &Geometry, stripe: StripeIndex, offset: u32) -> BandName {
    (stripe, offset / geometry.band_blocks())
}

/// What the log of the last activation says, and what is to be done about it.
pub(super) struct Log {
    /// Records to be carried out, in order.
    redo: Vec<Found>,
    /// How many records would be, if every member had its part of them.
    never_begun: u64,
    /// What intents come to, and the regions that they are about.
    remedies: Vec<(RegionIndex, Remedy)>,
    /// Some of it cannot be read, and may have been about writes of which nothing else tells.
    in_part: bool,
}

/// What is on the members.
#[derive(Default)]
struct Records {
    /// What concerns the same blocks is in one ring.
    redo: BTreeMap<Name, Found>,
    intents: BTreeMap<Name, (RedoHeader, Vec<Intent>)>,
    /// By ring: older records are done.
    floors: BTreeMap<u16, u64>,
    /// Members whose log cannot be read everywhere.
    unreadable: BTreeMap<MemberIndex, ArrayError>,
}

impl Records {
    fn is_current(&self, (ring, sequence): &Name) -> bool {
        *sequence >= self.floors.get(ring).copied().unwrap_or(0)
    }

    /// The newest record of each band that any is about.
    fn newest(&self, label: &Superblock, geometry: &Geometry) -> BTreeMap<BandName, Name> {
        let mut newest = BTreeMap::<BandName, Name>::new();
        let mut note = |band: BandName, name: &Name| {
            let known = newest.entry(band).or_insert(*name);
            *known = (*known).max(*name);
        };
        for (name, found) in self.redo.iter().filter(|(name, _)| self.is_current(name)) {
            let record = &found.record;
            let bands =
                record.parts.iter().map(|part| band(geometry, record.header.stripe, part.offset));
            bands.for_each(|band| note(band, name));
        }
        for (name, (header, intents)) in &self.intents {
            if self.is_current(name) && tells(label, header) {
                intents.iter().for_each(|i| note(band(geometry, i.stripe, i.offset), name));
            }
        }
        newest
    }
}

/// Reads the log on all of `drives` that have it, and what intents are about. Changes nothing.
///
/// A block that cannot be read is one without a record, as long as that can be told: who has a part of a record is in
/// its header on others. Where nobody else may have it, or it is a part that is missing, the array goes on without the
/// member, or, if the loss is accepted, with what there is.
///
/// # Errors
/// When a member cannot be read: it is the one named.
pub(super) fn read(
    label: &Superblock,
    (geometry, regions): (&Geometry, &Regions),
    (drives, bad): (&[Option<Drive>], &BadList),
    accept_loss: bool,
    wait: Wait<'_>,
) -> Result<Log, (MemberIndex, ArrayError)> {
    let records = records(label, (geometry, regions), drives, &mut *wait)?;
    let newest = records.newest(label, geometry);
    let is_newest =
        |stripe, offset, name: &Name| newest.get(&band(geometry, stripe, offset)) == Some(name);
    let mut log = Log { redo: Vec::new(), never_begun: 0, remedies: Vec::new(), in_part: false };
    for (name, (_, intents)) in &records.intents {
        // Only arrays with parity have a log.
        let site = Site::new(label, geometry, drives, bad).map_err(|e| (MemberIndex(0), e))?;
        for intent in intents.iter().filter(|intent| site.has(intent)) {
            if is_newest(intent.stripe, intent.offset, name) {
                let remedy = site.remedy(intent, &mut *wait)?;
                log.remedies.push((regions.region_of(intent.stripe), remedy));
            }
        }
    }
    // Whatever is older is done, and may have been written over since by a write that only told its intent.
    let is_last = |(name, found): &(&Name, &Found)| {
        let record = &found.record;
        record.parts.iter().all(|part| is_newest(record.header.stripe, part.offset, name))
    };
    let counting = |(name, found): &(&Name, &Found)| {
        records.is_current(name) && counts(label, geometry, &found.record)
    };
    let last = records.redo.iter().filter(is_last);
    let (acted, never_begun): (Vec<_>, Vec<_>) =
        last.filter(counting).partition(|(_, found)| is_whole(label, drives, found));
    log.never_begun = never_begun.len() as u64;
    let mut rows = label.members.iter().zip(drives);
    let whole = rows.all(|(row, drive)| row.state == RecordedState::InSync && drive.is_some());
    let lacks = |member: &MemberIndex| {
        let has = |found: &Found| found.parts.iter().any(|(has, _)| has == member);
        let part = |found: &Found| found.record.parts.iter().any(|part| part.slot == *member);
        never_begun.iter().any(|(_, found)| part(found) && !has(found))
    };
    let blamed = records.unreadable.iter().find(|(member, _)| !whole || lacks(member));
    if let Some((member, error)) = blamed {
        if !accept_loss {
            return Err((*member, ArrayError::new(error.kind, error.what.clone())));
        }
        log.in_part = true;
    }
    let kept: Vec<Name> = acted.into_iter().map(|(name, _)| *name).collect();
    let mut redo = records.redo;
    redo.retain(|name, _| kept.contains(name));
    log.redo = redo.into_values().collect();
    Ok(log)
}

fn records(
    label: &Superblock,
    (geometry, regions): (&Geometry, &Regions),
    drives: &[Option<Drive>],
    wait: Wait<'_>,
) -> Result<Records, (MemberIndex, ArrayError)> {
    let mut records = Records::default();
    let here = drives.iter().enumerate();
    let here = here.filter_map(|(at, d)| d.as_ref().map(|d| (MemberIndex(at as u8), d)));
    for (member, drive) in here.clone() {
        let mut io = MemberIo::open(drive, &mut *wait).map_err(|error| (member, error))?;
        let (found, unreadable) = headers(label, &mut io).map_err(|error| (member, error))?;
        records.unreadable.extend(unreadable.map(|error| (member, error)));
        for (offset, record) in found {
            let header = record.header;
            let name = (header.ring, header.sequence);
            let floor = records.floors.entry(header.ring).or_default();
            *floor = header.floor.max(*floor);
            if !record.intents.is_empty() {
                if header.sequence >= *floor {
                    records.intents.entry(name).or_insert((header, record.intents));
                }
                continue;
            }
            let own = record.parts.iter().find(|part| part.slot == member).copied();
            let Some(own) = own else { continue };
            let inside = |part: &RedoPart| within(geometry, regions, header.stripe.0, part);
            if !record.parts.iter().all(inside) {
                continue;
            }
            let payload = match payload(&own, geometry, &mut io, offset) {
                Ok(payload) => payload,
                Err(error) => {
                    records.unreadable.entry(member).or_insert(error);
                    None
                }
            };
            // Without its payload a header still tells that older records of its band are done.
            let found = Found { record: record.clone(), parts: Vec::new() };
            let entry = records.redo.entry(name).or_insert(found);
            if entry.record == record {
                entry.parts.extend(payload.map(|payload| (member, payload)));
            }
        }
        let Records { intents, floors, .. } = &mut records;
        let floor = |ring: &u16| floors.get(ring).copied().unwrap_or(0);
        intents.retain(|(ring, sequence), _| *sequence >= floor(ring));
    }
    Ok(records)
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
        self.remedies.iter().for_each(|(_, remedy)| remedy.tell(&mut recovery.intents));
    }

    fn marked(&self, count: u32, which: impl Fn(&Remedy) -> bool) -> Bits {
        let mut bits = Bits::new(count);
        let hit = self.remedies.iter().filter(|(_, remedy)| which(remedy));
        hit.for_each(|(region, _)| bits.set(region.0));
        bits
    }

    /// Writes what it says once more, and clears the marks of regions when that leaves none in doubt. Returns how many
    /// writes.
    ///
    /// # Errors
    /// When a member cannot be written: it is the one named.
    pub(super) fn carry_out(
        &self,
        label: &Superblock,
        (geometry, regions): (&Geometry, &Regions),
        drives: &[Option<Drive>],
        planes: &mut Planes,
        wait: Wait<'_>,
    ) -> Result<u64, (MemberIndex, ArrayError)> {
        let drive = |member: MemberIndex| drives[member.at()].as_ref().expect("just read from it");
        for entry in &self.redo {
            for (member, payload) in &entry.parts {
                let part = entry.record.parts.iter().find(|part| part.slot == *member);
                if !part.is_some_and(|part| takes(label, &entry.record, part)) {
                    continue;
                }
                write_part(geometry, drive(*member), *member, entry, payload, &mut *wait)
                    .map_err(|error| (*member, error))?;
            }
        }
        let mended = self.remedies.iter().filter(|(_, remedy)| !remedy.writes.is_empty());
        for (member, offset, bytes) in mended.clone().flat_map(|(_, remedy)| &remedy.writes) {
            MemberIo::open(drive(*member), &mut *wait)
                .and_then(|mut io| io.write(*offset, bytes, "making parity fit after a crash"))
                .map_err(|error| (*member, error))?;
        }
        if !self.in_part && covered(label, geometry) == geometry.groups_with(u64::MAX) {
            // There is no other doubt about these regions than the writes that have been done again.
            let left = self.marked(regions.count(), |remedy| remedy.left);
            planes.change(Plane::Intent, |intent| *intent = left.clone());
        }
        Ok(self.redo.len() as u64 + mended.count() as u64)
    }
}

/// What is being done while the log is read, for messages.
const READING: &str = "reading its redo log";

/// Headers, by byte offset on the member.
type Headers = BTreeMap<u64, RedoRecord>;

/// The headers of the label's activation in a member's log; and why not all of it can be read, if so.
fn headers(
    label: &Superblock,
    io: &mut MemberIo<'_>,
) -> Result<(Headers, Option<ArrayError>), ArrayError> {
    let (start, bytes) = strake_ondisk::redo_ring(0, 1);
    let mut found = Headers::new();
    let mut look = |piece_offset: u64, piece: &[u8]| {
        for (at, block) in piece.chunks_exact(REDO_HEADER_BYTES).enumerate() {
            let offset = piece_offset + (at * REDO_HEADER_BYTES) as u64;
            let record = decode_redo(block, offset);
            found.extend(record.filter(|r| is_ours(label, &r.header)).map(|r| (offset, r)));
        }
    };
    // A piece at a time: next to nothing of the log is ever a header of this activation.
    let Err(error) = io.read_pieces(start, bytes, READING, &mut look) else {
        return Ok((found, None));
    };
    let (readable, _) = io.read_around(start, bytes, READING)?;
    look(start, &readable);
    Ok((found, Some(error)))
}

fn is_ours(label: &Superblock, header: &RedoHeader) -> bool {
    header.array == label.array && header.epoch == label.epoch
}

/// What a member was to get, as the log has it behind the header at `offset`; `None` when that is not whole.
fn payload(
    part: &RedoPart,
    geometry: &Geometry,
    io: &mut MemberIo<'_>,
    offset: u64,
) -> Result<Option<Vec<u8>>, ArrayError> {
    let (log, log_bytes) = strake_ondisk::redo_ring(0, 1);
    let bytes = u64::from(part.blocks) << geometry.block_size().shift();
    let start = offset + REDO_HEADER_BYTES as u64;
    if start + bytes > log + log_bytes {
        return Ok(None);
    }
    let whole = bytes.next_multiple_of(REDO_HEADER_BYTES as u64);
    let mut payload = io.read(start, whole, READING)?;
    payload.truncate(bytes as usize);
    Ok(restore(part, &mut payload).then_some(payload))
}

/// True when a part lies where the array has a strip.
fn within(geometry: &Geometry, regions: &Regions, stripe: u64, part: &RedoPart) -> bool {
    let end = u64::from(part.offset) + u64::from(part.blocks);
    stripe < geometry.stripes()
        && regions.count() > 0
        && part.blocks > 0
        && end <= geometry.strip_blocks().into()
}

/// True when every write to the record's stripe was logged since it was written: somebody who has a part of that very
/// stripe was out then, and is, or the label that calls him in sync may not have reached everybody.
fn counts(label: &Superblock, geometry: &Geometry, record: &RedoRecord) -> bool {
    let RedoHeader { generation, out, stripe, .. } = record.header;
    let concerned = geometry.groups_with(1 << geometry.member(stripe, 0).0);
    generation >= label.logged_since && (logs_all(label) || out & label.logged & concerned != 0)
}

/// True when what a list of intents tells is true: every write since is on record, in full or as an intent.
fn tells(label: &Superblock, header: &RedoHeader) -> bool {
    header.generation >= label.logged_since && logs_all(label)
}

/// True when a member may be given its part: it, or the drive that has taken its place, has got every write since. One
/// that was out in between got those that it missed by being rebuilt.
fn takes(label: &Superblock, record: &RedoRecord, part: &RedoPart) -> bool {
    let Some(row) = label.members.get(part.slot.at()) else { return false };
    let twin = record.header.twin == Some((part.slot, row.uuid));
    let stayed = match row.state {
        RecordedState::Rebuilding => record.header.generation > row.held_generation,
        // Before it was called in sync, everything older than its coming back was done and no longer counts.
        RecordedState::InSync | RecordedState::Faulty | RecordedState::Missing => true,
    };
    (row.uuid == part.uuid || twin) && stayed
}

/// True when every member that has to has its part: one that was in its place when the record was written, or was
/// written along with it, and is here.
fn is_whole(label: &Superblock, drives: &[Option<Drive>], found: &Found) -> bool {
    let Found { record, parts } = found;
    record.parts.iter().all(|part| {
        let here = drives.get(part.slot.at()).is_some_and(Option::is_some);
        let has = parts.iter().any(|(member, _)| *member == part.slot);
        has || !here || !takes(label, record, part)
    })
}

fn write_part(
    geometry: &Geometry,
    drive: &Drive,
    member: MemberIndex,
    found: &Found,
    payload: &[u8],
    wait: Wait<'_>,
) -> Result<(), ArrayError> {
    let part = found.record.parts.iter().find(|part| part.slot == member);
    let part = part.expect("the payload is that of a part");
    let at = geometry.member_lba(found.record.header.stripe, part.offset);
    let offset = HEAD_BYTES + at.bytes(geometry.block_size());
    MemberIo::open(drive, wait)?.write(offset, payload, "carrying out its redo log")
}
