//! Reads of the list of bad blocks at a start, and its distribution to every member.

use std::sync::Arc;

use strake_ondisk::{
    AreaLayout, BAD_SLOT_BYTES, INCOMPAT_BAD_BLOCKS, SEQUENCE_MAX, Superblock, newer,
    newest_bad_list,
};
use strake_raid::MemberState;
use strake_units::{MemberIndex, Uuid};

use super::AssemblePolicy;
use crate::bad_blocks::BadBlocks;
use crate::drive::Drive;
use crate::error::{ArrayError, ArrayRemedy};
use crate::fleet::{Failed, Fleet, Read, Reading, Writing};

/// Returns the newest list on the members in sync, as the next copy to write, and the writes for members that have an
/// older list.
///
/// # Errors
/// If the label says that a list exists but no member has a readable copy, unless the policy accepts the loss: bad
/// blocks would be served as if they were good. Also if members fail.
pub(super) fn read(
    superblock: &Superblock,
    states: &[MemberState],
    drives: &[Option<Drive>],
    policy: AssemblePolicy,
    fleet: &mut Fleet<'_>,
) -> Result<(BadBlocks, Vec<Writing>), Failed> {
    let mut places = Vec::new();
    for (at, (state, drive)) in states.iter().zip(drives).enumerate() {
        let (MemberState::InSync, Some(drive)) = (state, drive) else { continue };
        let layout = AreaLayout::of(drive.device.info().bytes());
        places.extend(layout.map(|layout| (MemberIndex(at as u8), layout)));
    }
    let slots = |(member, layout): &(MemberIndex, AreaLayout)| {
        [0, 1].map(|parity| Reading {
            member: *member,
            offset: layout.bad_blocks_offset(parity),
            bytes: BAD_SLOT_BYTES,
        })
    };
    let readings: Vec<Reading> = places.iter().flat_map(slots).collect();
    let read = fleet.read(&readings, "reading its list of bad blocks")?;
    // An unreadable slot is lost on this member, but other members have copies.
    let whole = |read: &Read| read.why.is_none();
    let (mut newest, mut unusable) = (None, None);
    let mut seen = Vec::new();
    for ((member, layout), slots) in places.iter().copied().zip(read.chunks_exact(2)) {
        let slot = |at: usize| if whole(&slots[at]) { &slots[at].bytes[..] } else { &[] };
        let found = newest_bad_list(slot(0), slot(1), superblock.array, states.len());
        let found = found.and_then(|list| {
            unusable = unusable.max(Some(list.sequence).filter(|last| *last > SEQUENCE_MAX));
            list.usable()
        });
        seen.extend(found.as_ref().map(|own| (member, layout, own.sequence)));
        newest = newer(newest, found, |list| list.sequence);
    }
    let expected = superblock.incompat & INCOMPAT_BAD_BLOCKS != 0;
    match newest {
        Some(newest) => {
            let pages = newest.record.encode(superblock.array, newest.sequence).concat();
            let lacking = seen.into_iter().filter(|(.., own)| *own < newest.sequence);
            let place = |(member, layout, _): (_, AreaLayout, u64)| Writing {
                member,
                offset: layout.bad_blocks_offset(newest.sequence),
                bytes: pages.clone(),
            };
            let behind = lacking.map(place).collect();
            let sequence = newest.next();
            Ok((BadBlocks { list: Arc::new(newest.record), sequence }, behind))
        }
        None if expected && !policy.accept_loss => {
            let name = superblock.name.clone();
            let sequence = unusable.map(|last| format!(" (one has sequence {last}, the last one)"));
            let error = ArrayError::refused(format!(
                "array {name} has bad blocks, and no member in sync has a readable list of them{}; their content would \
                 be served as data. Return another member, or start without the list",
                sequence.unwrap_or_default()
            ));
            let lossy = AssemblePolicy { allow_degraded: false, accept_loss: true };
            Err(Failed::from(error.with(ArrayRemedy::Start(name, lossy))))
        }
        // An absent member may still have the abandoned list, in either slot. The new sequence must be greater.
        None if expected || unusable.is_some() => {
            let sequence = super::sequence_above_all(superblock);
            let given_up = BadBlocks { sequence, ..BadBlocks::default() };
            let array = superblock.array;
            let replaced = places.iter().map(|(at, layout)| writing(&given_up, array, *at, layout));
            let replaced = replaced.flatten().collect();
            Ok((BadBlocks { sequence: sequence + 1, ..given_up }, replaced))
        }
        None => Ok((BadBlocks::default(), Vec::new())),
    }
}

/// Returns the write of the list to one member, if a list ever existed.
pub(super) fn writing(
    bad: &BadBlocks,
    array: Uuid,
    member: MemberIndex,
    layout: &AreaLayout,
) -> Option<Writing> {
    let offset = layout.bad_blocks_offset(bad.sequence);
    let bytes = || bad.list.encode(array, bad.sequence).concat();
    (bad.sequence > 0).then(|| Writing { member, offset, bytes: bytes() })
}
