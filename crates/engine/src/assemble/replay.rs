//! Carrying out again what the redo log says, before anything else is done with the members.
//!
//! A record counts when it may be the last word about its blocks: it is of the last activation, not below the floor
//! that any record of its ring tells, and was written while everything that changes its stripe was logged, which the
//! label says. It was acted upon only if it is whole on every member that was one then and is one now; then all of it
//! is written in its place, but for members that were out in between and have been given newer contents in another way.
//! Nothing is changed in the log, so a crash in the middle of this is one more of the same.

use std::collections::BTreeMap;

use strake_ondisk::redo::restore;
use strake_ondisk::{
    Bits, Consistency, HEAD_BYTES, Plane, REDO_HEADER_BYTES, RecordedState, RedoHeader, RedoPart,
    RedoRecord, Superblock, decode_redo,
};
use strake_raid::{Geometry, Regions};
use strake_units::MemberIndex;

use crate::create::Drive;
use crate::error::ArrayError;
use crate::member_io::{MemberIo, Wait};
use crate::planes::Planes;

/// Members that the label calls out of sync although every write to their stripes is in the log, as a mask.
fn logged_out(label: &Superblock) -> u64 {
    let out = |(_, row): &(usize, &strake_ondisk::MemberRecord)| row.state != RecordedState::InSync;
    let out = label.members.iter().enumerate().filter(out).fold(0, |mask, (at, _)| mask | 1 << at);
    out & label.logged
}

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
        geometry.groups_with(logged_out(label))
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

/// Writes what the log of the last activation says once more, on all of `drives` that have it, and clears the marks of
/// regions when that leaves none in doubt. Returns how many writes.
///
/// # Errors
/// When a member cannot be read or written: it is the one named.
pub(super) fn carry_out(
    label: &Superblock,
    (geometry, regions): (&Geometry, &Regions),
    drives: &[Option<Drive>],
    planes: &mut Planes,
    wait: Wait<'_>,
) -> Result<u64, (MemberIndex, ArrayError)> {
    // By ring and number: what concerns the same blocks is in one ring.
    let mut found = BTreeMap::<(u16, u64), Found>::new();
    let mut floors = BTreeMap::<u16, u64>::new();
    let here = drives.iter().enumerate();
    let here = here.filter_map(|(at, d)| d.as_ref().map(|d| (MemberIndex(at as u8), d)));
    for (member, drive) in here.clone() {
        let mut io = MemberIo::open(drive, wait).map_err(|error| (member, error))?;
        for (offset, record) in headers(label, &mut io).map_err(|error| (member, error))? {
            let header = record.header;
            let floor = floors.entry(header.ring).or_default();
            *floor = header.floor.max(*floor);
            let own = record.parts.iter().find(|part| part.slot == member).copied();
            let Some(own) = own else { continue };
            let payload =
                payload(&own, geometry, &mut io, offset).map_err(|error| (member, error))?;
            let Some(payload) = payload else { continue };
            let entry = found
                .entry((header.ring, header.sequence))
                .or_insert(Found { record, parts: Vec::new() });
            if entry.record.header == header && within(geometry, regions, header.stripe.0, &own) {
                entry.parts.push((member, payload));
            }
        }
    }
    let logged_out = logged_out(label);
    let mut count = 0;
    for ((ring, sequence), entry) in &found {
        let current = *sequence >= floors.get(ring).copied().unwrap_or(0);
        if !current || !counts(label, logged_out, &entry.record) || !is_whole(label, drives, entry)
        {
            continue;
        }
        count += 1;
        for (member, payload) in &entry.parts {
            let part = entry.record.parts.iter().find(|part| part.slot == *member);
            if !part.is_some_and(|part| takes(label, &entry.record, part)) {
                continue;
            }
            let drive = drives[member.at()].as_ref().expect("read from it just now");
            write_part(geometry, drive, *member, entry, payload, wait)
                .map_err(|error| (*member, error))?;
        }
    }
    if covered(label, geometry) == geometry.groups_with(u64::MAX) {
        // There is no other doubt about these regions than the writes that have been done again.
        planes.change(Plane::Intent, |intent| *intent = Bits::new(regions.count()));
    }
    Ok(count)
}

/// What is being done while the log is read, for messages.
const READING: &str = "reading its redo log";

/// The headers of the label's activation in a member's log, each with its byte offset on the member.
fn headers(
    label: &Superblock,
    io: &mut MemberIo<'_>,
) -> Result<Vec<(u64, RedoRecord)>, ArrayError> {
    let (start, bytes) = strake_ondisk::redo_ring(0, 1);
    let mut found = Vec::new();
    // A piece at a time: next to nothing of the log is ever a header of this activation.
    io.read_pieces(start, bytes, READING, |piece_offset, piece| {
        for (at, block) in piece.chunks_exact(REDO_HEADER_BYTES).enumerate() {
            let offset = piece_offset + (at * REDO_HEADER_BYTES) as u64;
            let record = decode_redo(block, offset);
            found.extend(record.filter(|r| is_ours(label, &r.header)).map(|r| (offset, r)));
        }
    })?;
    Ok(found)
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

/// True when every write to the record's stripe was logged since it was written.
fn counts(label: &Superblock, logged_out: u64, record: &RedoRecord) -> bool {
    let RedoHeader { generation, out, .. } = record.header;
    generation >= label.logged_since && (logs_all(label) || out & logged_out != 0)
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
