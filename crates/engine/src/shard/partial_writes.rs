//! Partial-write records: in mode `strict` a small write is on record before anything is written in its place.
//!
//! A record holds a word of each block that is about to be written ([`strake_ondisk::partial_write`]), of many writes
//! at a time: those that become ready while other records are on their way share the next one. It lies in the ring of
//! the redo log, so that it is in order with the records of other writes of the same bands, on as many members as any
//! record has.
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

/// Partial writes in one record: more of the smallest ones do not fit.
const LISTED_MAX: usize = 160;

/// Which record a partial write is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordIndex(u32);

/// A record of which not all writes are done.
struct Open {
    entry: Entry,
    /// Writes that are not.
    left: usize,
}

pub(crate) struct PartialWrites {
    /// Small writes that are not in a record yet, the oldest first.
    waiting: VecDeque<u32>,
    open: Slab<Open>,
    /// Memory for records, one for each recorder that is not at work.
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
    /// Puts a small write on record, and then continues it.
    pub(super) fn intend(&self, write: u32) {
        let mut partial_writes = self.partial_writes.borrow_mut();
        partial_writes.waiting.push_back(write);
        let recorders = self.recorders.get();
        if recorders < RECORDERS_MAX {
            self.recorders.set(recorders + 1);
            self.urgent.borrow_mut().push_back(Job::Record);
        }
    }

    /// A small write is done, or is not going to be done, that is in `record`.
    pub(super) fn leave_record(&self, record: Option<RecordIndex>) {
        let Some(RecordIndex(at)) = record else { return };
        let mut partial_writes = self.partial_writes.borrow_mut();
        let open = partial_writes.open.get_mut(at).expect("a record outlives its writes");
        open.left -= 1;
        if open.left == 0 {
            let entry = partial_writes.open.remove(at).entry;
            self.redo.borrow_mut().done(entry);
        }
    }

    /// Where a record about the oldest write that waits is written: that write's own members, of which one is left as
    /// long as the array is. `None` when none waits.
    fn record_place(&self) -> Option<(StripeIndex, Positions)> {
        let write = *self.partial_writes.borrow().waiting.front()?;
        let mut smalls = self.smalls.borrow_mut();
        let small = smalls.get(write);
        let stripe = small.place.stripe;
        let position = |member| self.geometry.position_of_member(stripe, member);
        let positions = small.written_on().iter().filter_map(|member| position(*member));
        Some((stripe, positions.collect()))
    }

    /// Lists as many partial writes in `page` as there are and as there is room for.
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

    /// What tells the blocks that a small write is about to write from those that are there.
    fn witnesses<'a>(&self, small: &'a Small) -> impl Iterator<Item = Witness> + 'a {
        let size = self.geometry.block_size().bytes() as usize;
        let old = small.old_data().chunks_exact(size).enumerate();
        old.map(move |(nth, old)| {
            witness(small.data.parts(), small.new_parities(), nth * size, old)
        })
    }

    /// Continues with the writes of a record that is stable: as they are, if nothing has changed meanwhile.
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

    /// Has the writes of a record that was not written done in another way, or answers them where none is left.
    async fn turn_back(&self, listed: Listed, failed: Option<Failed>) {
        // Tasks that repeat them wait for other members that failed; a failed replacement is known only here.
        let replacement = failed.and_then(|failed| failed.replacement);
        let lost = self.expel_replacement(replacement).await.is_err() || self.shared.is_lost();
        let leave = if lost { Self::lose_small } else { Self::hand_back };
        listed.into_iter().for_each(|write| leave(self, write));
    }
}

/// What tells the block at byte `start` of what is in `parts`, one after the other, from `old`, which it replaces.
/// `parities` are the new ones, as long as all parts.
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

/// The word at byte `start` of `parts`, which are one after the other.
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

/// Puts partial writes on record until none waits.
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

/// Puts as many partial writes on record as one record holds, on the members at `positions` of `stripe`.
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
    // Another recorder may have had the last of them; then this one records nothing, in its place.
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
