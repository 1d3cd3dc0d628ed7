//! Partial-write records. In mode `strict`, a small write is recorded before its blocks are written.
//!
//! A record contains a word of each block that is about to be written ([`strake_ondisk::partial_write`]), for many
//! writes: writes that become ready while other records are being written share the next record. The record is in the
//! ring of the redo log, so it is ordered with the records of other writes of the same bands. It is written to as many
//! members as any other record.
//!
//! ```text
//!  updated --> waiting --> in a record with others, stable --> written in place --> answered
//!                                    |                               (all of the record: its place is given up)
//!                                    v a member failed, or something changed
//!                          to the head of its band, for a task
//! ```

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use strake_block::{Buf, BufMut};
use strake_ondisk::{
    PartialWriteList, PartialWritePlace, REDO_HEADER_BYTES, WITNESS_BYTES, Witness,
};
use strake_parity::first_difference;
use strake_units::StripeIndex;

use super::execute::Failed;
use super::members::Group;
use super::redo::{Entry, Positions, Recorded};
use super::small::Small;
use super::{Job, Shard, scratch};
use crate::limits::{RECORDERS_MAX, SMALL_WRITES_MAX};
use crate::slab::Slab;

/// Maximum number of partial writes in a record. More of the smallest partial writes do not fit.
const LISTED_MAX: usize = 160;

/// Index of the record of a partial write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordIndex(u32);

/// A record with unfinished writes.
struct Open {
    entry: Entry,
    /// Number of unfinished writes.
    left: usize,
}

pub(crate) struct PartialWrites {
    /// Small writes that are not yet in a record, the oldest first.
    waiting: VecDeque<u32>,
    open: Slab<Open>,
    /// Buffers for records, one for each idle recorder.
    pages: ArrayVec<BufMut, RECORDERS_MAX>,
}

impl PartialWrites {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(SMALL_WRITES_MAX),
            open: Slab::new(SMALL_WRITES_MAX + RECORDERS_MAX),
            pages: (0..RECORDERS_MAX).map(|_| BufMut::alone(REDO_HEADER_BYTES)).collect(),
        }
    }
}

/// Writes that share a record.
type Listed = ArrayVec<u32, LISTED_MAX>;

impl Shard {
    /// Records a small write, and then continues it.
    pub(super) fn intend(&self, write: u32) {
        let mut partial_writes = self.partial_writes.borrow_mut();
        partial_writes.waiting.push_back(write);
        let recorders = self.recorders.get();
        if recorders < RECORDERS_MAX {
            self.recorders.set(recorders + 1);
            self.urgent.borrow_mut().push_back(Job::Record);
        }
    }

    /// Removes a small write from `record`, because the write is complete or will not be executed.
    pub(super) fn leave_record(&self, RecordIndex(at): RecordIndex) {
        let mut partial_writes = self.partial_writes.borrow_mut();
        let open = partial_writes.open.get_mut(at).expect("a record outlives its writes");
        open.left -= 1;
        if open.left == 0 {
            let entry = partial_writes.open.remove(at).entry;
            self.redo.borrow_mut().done(entry);
        }
    }

    /// Returns the members to which a record with the oldest waiting write is written: the members of this write. At
    /// least one of them remains as long as the array serves. Returns `None` if no write waits.
    fn record_place(&self) -> Option<(StripeIndex, Positions)> {
        let write = *self.partial_writes.borrow().waiting.front()?;
        let mut smalls = self.smalls.borrow_mut();
        let small = smalls.get(write);
        let stripe = small.place.stripe;
        let position = |member| self.geometry.position_of_member(stripe, member);
        let positions = small.written_on().iter().filter_map(|member| position(*member));
        Some((stripe, positions.collect()))
    }

    /// Lists waiting partial writes in `page`, as many as fit.
    fn list_partial_writes(&self, page: &mut [u8]) -> (PartialWriteList, Listed) {
        let mut partial_writes = self.partial_writes.borrow_mut();
        let mut smalls = self.smalls.borrow_mut();
        let (mut list, mut listed) = (PartialWriteList::default(), Listed::new());
        let parities = self.geometry.parity_strips();
        while let Some(write) = partial_writes.waiting.front().filter(|_| !listed.is_full()) {
            let small = smalls.get(*write);
            let (place, blocks) = (small.place, small.range.blocks as u32);
            if !list.has_room_for(blocks, parities) {
                break;
            }
            let (stripe, strip, offset) = (place.stripe, place.strip, place.offset);
            let place = PartialWritePlace { stripe, strip, offset, blocks, parities };
            list.push(page, place, self.witnesses(small));
            scratch::give_back(&self.scratch, small.take_old());
            listed.push(*write);
            partial_writes.waiting.pop_front();
        }
        (list, listed)
    }

    /// Returns words that distinguish the new blocks of a small write from the old blocks.
    fn witnesses<'a>(&self, small: &'a Small) -> impl Iterator<Item = Witness> + 'a {
        let size = self.geometry.block_size().bytes() as usize;
        let old = small.old_data().chunks_exact(size).enumerate();
        old.map(move |(nth, old)| {
            witness(small.data.parts(), small.new_parities(), nth * size, old)
        })
    }

    /// Continues the writes of a stable record, unless the members changed meanwhile.
    fn write_listed(&self, entry: Entry, listed: Listed) {
        let record = {
            let mut partial_writes = self.partial_writes.borrow_mut();
            RecordIndex(partial_writes.open.insert(Open { entry, left: listed.len() }))
        };
        for write in listed {
            self.smalls.borrow_mut().get(write).record = Some(record);
            self.write_recorded(write);
        }
    }

    /// Lets tasks repeat the writes of a record that was not written, or fails the writes if the array has failed.
    async fn turn_back(&self, listed: Listed, failed: Option<Failed>) {
        // The tasks wait until other failed members are out of use. Only this function knows about a failed
        // replacement.
        let replacement = failed.and_then(|failed| failed.replacement);
        let lost = self.expel_replacement(replacement).await.is_err() || self.shared.is_lost();
        let leave = if lost { Self::lose_small } else { Self::hand_back };
        listed.into_iter().for_each(|write| leave(self, write));
    }
}

/// Returns a word that distinguishes the new block at byte `start` of `parts`, which are consecutive, from `old`, the
/// block that it replaces. `parities` are the new parities, which have the length of all parts.
fn witness<'a>(
    parts: &[Buf],
    parities: impl Iterator<Item = &'a [u8]>,
    start: usize,
    old: &[u8],
) -> Witness {
    let mut witness = Witness { word: None, values: [0; _] };
    let mut at = 0;
    for part in parts {
        let (end, block_end) = (at + part.len(), start + old.len());
        let (from, until) = (start.max(at), block_end.min(end));
        if from < until
            && let Some(first) = first_difference(
                &part.as_slice()[from - at..until - at],
                &old[from - start..until - start],
            )
        {
            let word = (from - start + first) / WITNESS_BYTES;
            let byte = start + word * WITNESS_BYTES;
            witness.word = Some(word as u16);
            witness.values[0] = word_at(parts, byte);
            for (value, parity) in witness.values[1..].iter_mut().zip(parities) {
                let bytes = parity[byte..].first_chunk().expect("as long as the data");
                *value = u32::from_le_bytes(*bytes);
            }
            return witness;
        }
        at = end;
    }
    witness
}

/// Returns the word at byte `start` of `parts`, which are consecutive.
fn word_at(parts: &[Buf], mut start: usize) -> u32 {
    let mut word = [0; WITNESS_BYTES];
    let mut out = &mut word[..];
    for part in parts {
        let from = start.min(part.len());
        let count = out.len().min(part.len() - from);
        out[..count].copy_from_slice(&part.as_slice()[from..from + count]);
        (start, out) = (start - from, &mut out[count..]);
    }
    u32::from_le_bytes(word)
}

/// Records partial writes until none waits.
pub(super) async fn record(shard: &Shard) {
    let group = shard.open_group();
    let mut page = shard.partial_writes.borrow_mut().pages.pop().expect("one for each recorder");
    while let Some((stripe, positions)) = shard.record_place() {
        page = record_list(shard, group, (stripe, positions), page).await;
    }
    shard.partial_writes.borrow_mut().pages.push(page);
    shard.recorders.set(shard.recorders.get() - 1);
    shard.members.borrow_mut().groups.close(group);
}

/// Writes one record with as many partial writes as fit, to the members at `positions` of `stripe`.
async fn record_list(
    shard: &Shard,
    group: Group,
    (stripe, positions): (StripeIndex, Positions),
    page: BufMut,
) -> BufMut {
    let bytes = REDO_HEADER_BYTES as u64;
    let place = shard.place_record(group, stripe, positions.clone(), bytes, page).await;
    let (entry, mut page) = match place {
        Ok(placed) => placed,
        Err((recorded, mut page)) => {
            let (_, listed) = shard.list_partial_writes(page.as_mut_slice());
            let failed = match recorded {
                Recorded::Failed(failed) => Some(failed),
                Recorded::Entry(_) | Recorded::Lost => None,
            };
            shard.turn_back(listed, failed).await;
            return page;
        }
    };
    let (list, listed) = shard.list_partial_writes(page.as_mut_slice());
    // Another recorder may have taken the last write. Then this recorder writes an empty record.
    list.seal(&shard.header(StripeIndex(0), entry), entry.at, page.as_mut_slice());
    let (page, failed) = shard.write_header(group, stripe, &positions, entry, page).await;
    match shard.end_record(entry, failed) {
        Recorded::Entry(entry) if listed.is_empty() => shard.redo.borrow_mut().done(entry),
        Recorded::Entry(entry) => shard.write_listed(entry, listed),
        Recorded::Failed(failed) => shard.turn_back(listed, Some(failed)).await,
        Recorded::Lost => shard.turn_back(listed, None).await,
    }
    page
}

#[cfg(test)]
mod tests;
