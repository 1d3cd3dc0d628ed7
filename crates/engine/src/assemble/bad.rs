//! Reading the list of bad blocks when an array starts, and giving every member the same one.

use std::sync::Arc;

use strake_ondisk::{AreaLayout, BAD_SLOT_BYTES, INCOMPAT_BAD_BLOCKS, Superblock, newest_bad_list};
use strake_raid::MemberState;
use strake_units::{MemberIndex, Uuid};

use super::AssemblePolicy;
use super::bitmaps::Behind;
use crate::bad_blocks::BadBlocks;
use crate::create::Drive;
use crate::error::ArrayError;
use crate::member_io::{MemberIo, Wait};

/// The newest list on the members in sync, as the next copy to be written; and what of it members lack that show an
/// older one.
///
/// # Errors
/// When the label says that there is one and none of them can show it, unless the policy accepts the loss: what is bad
/// would be served as if it were good.
pub(super) fn read(
    superblock: &Superblock,
    states: &[MemberState],
    drives: &[Option<Drive>],
    policy: AssemblePolicy,
    wait: Wait<'_>,
) -> Result<(BadBlocks, Vec<Behind>), ArrayError> {
    let mut newest = None;
    let mut seen = Vec::new();
    for (at, (state, drive)) in states.iter().zip(drives).enumerate() {
        let (MemberState::InSync, Some(drive)) = (state, drive) else { continue };
        let Some(layout) = AreaLayout::of(drive.device.info().bytes()) else { continue };
        let mut io = MemberIo::open(drive, wait)?;
        // A slot that cannot be read is lost on this member, and others have it.
        let mut slot = |parity| {
            let offset = layout.bad_blocks_offset(parity);
            io.read(offset, BAD_SLOT_BYTES, "reading its list of bad blocks").unwrap_or_default()
        };
        let found = newest_bad_list(&slot(0), &slot(1), superblock.array, states.len());
        seen.extend(found.as_ref().map(|(own, _)| (MemberIndex(at as u8), layout, *own)));
        newest = found.into_iter().chain(newest).max_by_key(|(sequence, _)| *sequence);
    }
    let expected = superblock.incompat & INCOMPAT_BAD_BLOCKS != 0;
    match newest {
        // The next sequence, so that writing it leaves its newest slot alone.
        Some((sequence, list)) => {
            let pages = list.encode(superblock.array, sequence).concat();
            let lacking = seen.into_iter().filter(|(.., own)| *own < sequence);
            let place = |(member, layout, _): (_, AreaLayout, u64)| {
                (member, layout.bad_blocks_offset(sequence), pages.clone())
            };
            let behind = lacking.map(place).collect();
            Ok((BadBlocks { list: Arc::new(list), sequence: sequence + 1 }, behind))
        }
        None if expected && !policy.accept_loss => Err(ArrayError::refused(format!(
            "array {name} has bad blocks, and no member in sync can show the list of them; what they hold would be \
             served as data. Bring another member back, or start without the list: strake array import {name} \
             --accept-loss",
            name = superblock.name
        ))),
        // A member that is away may still have the list that was given up.
        None if expected => {
            let sequence = super::sequence_above_all(superblock);
            Ok((BadBlocks { sequence, ..BadBlocks::default() }, Vec::new()))
        }
        None => Ok((BadBlocks::default(), Vec::new())),
    }
}

/// Writes the list to one member, if there ever was one.
pub(super) fn write(
    bad: &BadBlocks,
    array: Uuid,
    drive: &Drive,
    wait: Wait<'_>,
) -> Result<(), ArrayError> {
    let layout = AreaLayout::of(drive.device.info().bytes()).filter(|_| bad.sequence > 0);
    let Some(layout) = layout else { return Ok(()) };
    let pages = bad.list.encode(array, bad.sequence).concat();
    let offset = layout.bad_blocks_offset(bad.sequence);
    MemberIo::open(drive, wait)?.write(offset, &pages, "writing its list of bad blocks")
}
