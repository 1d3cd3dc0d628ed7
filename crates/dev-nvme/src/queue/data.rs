//! The description of the data of a command: in place if the controller reaches the memory, by a list if the data are
//! in several pieces, and by a copy if the memory is not mapped or violates the rules of PRPs (Base, section 4.1.1).

use crate::limits::{BOUNCE_BYTES, PAGE};
use crate::queue::NvmeQueue;
use crate::queue::piece::{Data, Piece};
use crate::queue::slot::{Loan, SlotIndex};
use crate::shared::BouncePool;
use crate::window::{Prps, View};
use std::sync::atomic::{AtomicU64, Ordering};
use strake_block::Op;
use strake_block::buf::SEGMENTS_MAX;
use strake_units::FixedList;

/// The data of a command, as described in the command.
pub(super) struct Described {
    pub(super) prps: (u64, u64),
    /// The piece, which may be shorter than requested.
    pub(super) piece: Piece,
    pub(super) loan: Loan,
}

/// Consecutive bytes in memory of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Segment {
    address: usize,
    bytes: usize,
}

type Segments = FixedList<Segment, SEGMENTS_MAX>;

/// Returns the parts of `op` from `offset` on, at most `bytes` bytes.
fn segments(op: &Op, mut offset: usize, mut bytes: usize) -> Segments {
    let mut list = Segments::new();
    let mut add = |address: usize, length: usize| {
        let skipped = offset.min(length);
        let taken = bytes.min(length - skipped);
        (offset, bytes) = (offset - skipped, bytes - taken);
        if taken > 0 {
            list.push(Segment { address: address + skipped, bytes: taken });
        }
    };
    match op {
        Op::Read { data, .. } => {
            data.parts().iter().for_each(|part| add(part.address(), part.len()))
        }
        Op::Write { data, .. } => {
            data.parts().iter().for_each(|part| add(part.address(), part.len()))
        }
        Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
    }
    list
}

/// Returns the number of bytes at the start of the segments that PRPs can describe and that controllers reach.
fn describable(segments: &Segments, view: &mut View) -> usize {
    let mut total = 0;
    for (at, segment) in segments.iter().enumerate() {
        let begins = if at == 0 { segment.address % 4 == 0 } else { segment.address % PAGE == 0 };
        if !begins || view.prps(segment.address, segment.bytes).is_none() {
            break;
        }
        total += segment.bytes;
        if (segment.address + segment.bytes) % PAGE != 0 {
            break;
        }
    }
    total
}

impl NvmeQueue {
    /// Describes the data of a piece, or as much of it as one command can have. `None` if there is no memory for this
    /// now: a completion returns memory.
    pub(super) fn describe(&mut self, index: SlotIndex, piece: Piece) -> Option<Described> {
        let none = |prps| Some(Described { prps, piece, loan: Loan::None });
        match piece.data {
            Data::None => none((0, 0)),
            Data::Zeroes => {
                let bytes = (piece.blocks as usize) << self.ability.block.shift();
                none(self.shared.zeroes.prps(0, bytes))
            }
            Data::Ranges => {
                let list = self.lists.pop()?;
                let (words, iova) = self.rings.list(list);
                // A range (NVM, Figure 41): no attributes, the number of blocks, and the first block.
                words[0].store((u64::from(piece.blocks) << 32).to_le(), Ordering::Relaxed);
                words[1].store(piece.start.to_le(), Ordering::Relaxed);
                Some(Described { prps: (iova, 0), piece, loan: Loan::List(list) })
            }
            Data::Request { offset } => self.describe_request(index, piece, offset),
        }
    }

    fn describe_request(
        &mut self,
        index: SlotIndex,
        piece: Piece,
        offset: usize,
    ) -> Option<Described> {
        let shift = self.ability.block.shift();
        let op = self.slots[usize::from(index)].op();
        let segments = segments(op, offset, (piece.blocks as usize) << shift);
        let blocks = describable(&segments, &mut self.view) >> shift;
        if blocks == 0 {
            return self.bounce(index, piece, offset);
        }
        let piece = Piece { blocks: blocks as u32, ..piece };
        let mut pages = Pages::default();
        let mut left = blocks << shift;
        for segment in segments.iter() {
            let bytes = segment.bytes.min(left);
            if bytes > 0 {
                pages.add(self.view.prps(segment.address, bytes)?, bytes);
                left -= bytes;
            }
        }
        if let Some(prps) = pages.short() {
            return Some(Described { prps, piece, loan: Loan::None });
        }
        let list = self.lists.pop()?;
        let (words, iova) = self.rings.list(list);
        pages.fill(words);
        let prps = (pages.first().unwrap_or_default(), iova);
        Some(Described { prps, piece, loan: Loan::List(list) })
    }

    /// Uses a chunk of the device instead of the memory of the request.
    fn bounce(&mut self, index: SlotIndex, piece: Piece, offset: usize) -> Option<Described> {
        let shift = self.ability.block.shift();
        let blocks = piece.blocks.min((BOUNCE_BYTES >> shift) as u32);
        let bytes = (blocks as usize) << shift;
        let chunk = self.shared.bounces.take()?;
        let at = BouncePool::offset(chunk);
        // The counter is informative; no memory depends on its order.
        self.shared.counters.bounces.fetch_add(1, Ordering::Relaxed);
        if let Op::Write { data, .. } = self.slots[usize::from(index)].op() {
            let mut to = at;
            for part in data.slice(offset, bytes).parts() {
                self.shared.bounces.memory.put(to, part.as_slice());
                to += part.len();
            }
        }
        let prps = self.shared.bounces.memory.prps(at, bytes);
        Some(Described { prps, piece: Piece { blocks, ..piece }, loan: Loan::Bounce(chunk) })
    }

    /// Returns the memory that was lent to a finished command. After success, data that it read into a chunk are copied
    /// to the request, whose `left` no longer includes the blocks of the command.
    pub(super) fn settle_loan(&mut self, index: SlotIndex, is_success: bool) {
        let shift = self.ability.block.shift();
        let block = self.ability.block;
        let slot = &mut self.slots[usize::from(index)];
        match std::mem::replace(&mut slot.loan, Loan::None) {
            Loan::None => {}
            Loan::List(list) => self.lists.push(list),
            Loan::Bounce(chunk) => {
                let done = slot.op().range(block).blocks - slot.left;
                let blocks = u64::from(slot.blocks);
                if let (true, Op::Read { data, .. }) = (is_success, slot.op_mut()) {
                    let offset = ((done - blocks) << shift) as usize;
                    let mut from = BouncePool::offset(chunk);
                    for slice in data.slices_mut(offset, (blocks as usize) << shift) {
                        self.shared.bounces.memory.get(from, slice);
                        from += slice.len();
                    }
                }
                self.shared.bounces.give_back(chunk);
            }
        }
    }
}

/// The pages of a transfer as runs: the address of the first byte, and the number of pages.
#[derive(Default)]
struct Pages {
    runs: FixedList<(u64, usize), SEGMENTS_MAX>,
    /// The PRPs of a single segment.
    alone: Option<(u64, u64)>,
}

impl Pages {
    fn add(&mut self, prps: Prps, bytes: usize) {
        let first = match prps {
            Prps::Two(first, _) | Prps::List(first, ..) => first,
        };
        self.alone = match prps {
            Prps::Two(first, second) if self.runs.is_empty() => Some((first, second)),
            Prps::Two(..) | Prps::List(..) => None,
        };
        let pages = (first as usize % PAGE + bytes).div_ceil(PAGE);
        self.runs.push((first, pages));
    }

    fn first(&self) -> Option<u64> {
        self.runs.iter().next().map(|(first, _)| *first)
    }

    /// The addresses of all pages.
    fn all(&self) -> impl Iterator<Item = u64> + '_ {
        let page = PAGE as u64;
        let run = move |(first, pages): &(u64, usize)| {
            let (first, pages) = (*first, *pages as u64);
            (0..pages).map(move |at| if at == 0 { first } else { first / page * page + at * page })
        };
        self.runs.iter().flat_map(run)
    }

    /// Returns both PRPs, if they need no list that must be built.
    fn short(&self) -> Option<(u64, u64)> {
        if self.alone.is_some() {
            return self.alone;
        }
        let mut all = self.all();
        match (all.next(), all.next(), all.next()) {
            (Some(first), second, None) => Some((first, second.unwrap_or(0))),
            _ => None,
        }
    }

    /// Writes the list of the second and all later pages. A page of a list has space for twice the largest transfer.
    fn fill(&self, words: &[AtomicU64]) {
        for (word, page) in words.iter().zip(self.all().skip(1)) {
            word.store(page.to_le(), Ordering::Relaxed);
        }
    }
}
