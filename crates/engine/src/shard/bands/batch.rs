//! Writes of one band that a task merges into one plan.

use std::cell::Cell;

use arrayvec::ArrayVec;
use strake_block::{Buf, Durability, Sg};
use strake_raid::{Segment, SegmentList, Window};
use strake_units::{BlockSize, Lba, LbaRange, Nanos, PositionSet, StripSet};

use crate::limits::MERGE_MAX;
use crate::message::{Fill, Origin};
use crate::trace::{Arrival, Stage, Trail};

/// One of the writes merged into a plan.
pub(crate) struct WriteItem {
    pub(crate) range: LbaRange,
    pub(crate) fill: Fill,
    pub(crate) origin: Origin,
    pub(crate) arrival: Arrival,
}

/// Maximum number of memory pieces that contain the new data of a segment.
const PARTS_MAX: usize = MERGE_MAX * strake_block::buf::SEGMENTS_MAX;

/// New data of one segment: byte offset in the segment, and the bytes. The pieces are sorted and have no gaps.
pub(crate) type Parts = ArrayVec<(usize, Buf), PARTS_MAX>;

/// Adjacent writes of one band.
pub(crate) struct WriteBatch {
    pub(crate) items: ArrayVec<WriteItem, MERGE_MAX>,
    /// The union of the written blocks in the band, at most one run of blocks per strip.
    pub(crate) segments: SegmentList,
    pub(crate) durability: Durability,
    /// Strips whose segment consists of zeroes that replace lost data. No client wrote these zeroes.
    pub(crate) zeroed: StripSet,
    /// The stages since a task took the batch.
    pub(crate) trail: Cell<Trail>,
}

impl WriteBatch {
    /// Returns a batch without writes, for the plans of maintenance.
    pub(crate) fn empty() -> Self {
        Self {
            items: ArrayVec::new(),
            segments: SegmentList::new(),
            durability: Durability::Normal,
            zeroed: StripSet::EMPTY,
            trail: Cell::new(Trail::begin(Stage::Intent, Nanos(0))),
        }
    }

    /// Returns the part of the batch in the columns of `window`. Positions with `bad` blocks get a stable write,
    /// because the blocks leave the list afterwards, and zeroes are written instead of deallocated.
    pub(crate) fn narrowed(&self, window: Window, bad: PositionSet) -> Self {
        let trail = self.trail.clone();
        let mut part = Self { durability: self.durability, trail, ..Self::empty() };
        if !bad.is_empty() {
            part.durability = Durability::Fua;
        }
        for segment in self.segments.iter() {
            let from = segment.offset.max(window.offset);
            let to = (segment.offset + segment.blocks).min(window.offset + window.blocks);
            if from < to {
                let lba = segment.lba.plus(u64::from(from - segment.offset));
                let strip = segment.strip;
                part.segments.push(Segment { strip, offset: from, blocks: to - from, lba });
            }
        }
        for item in &self.items {
            let fill = match &item.fill {
                Fill::Deallocate if !bad.is_empty() => Fill::Zeroes,
                fill @ (Fill::Data(_) | Fill::Zeroes | Fill::Deallocate) => fill.clone(),
            };
            let (range, origin, arrival) = (item.range, item.origin, item.arrival);
            part.items.push(WriteItem { range, fill, origin, arrival });
        }
        part
    }

    /// Returns the batch with zeroes in the columns of `window` of the data strips in `strips`, which have no segment.
    /// `address` returns the start of such a strip's part in the array.
    pub(crate) fn with_zeroes(
        mut self,
        strips: StripSet,
        window: Window,
        address: impl Fn(u8) -> Lba,
    ) -> Self {
        let given = std::mem::take(&mut self.segments);
        self.zeroed = strips;
        for strip in 0..64u8 {
            let (offset, blocks) = (window.offset, window.blocks);
            match given.iter().find(|segment| segment.strip == strip) {
                Some(segment) => self.segments.push(*segment),
                None if strips.contains(strip) => {
                    let lba = address(strip);
                    self.segments.push(Segment { strip, offset, blocks, lba });
                }
                None => {}
            }
        }
        self
    }

    /// Collects the new data of `segment` from all items in `parts`, in order. `zeroes` is a band of zeroes.
    pub(crate) fn parts(
        &self,
        segment: &Segment,
        (size, zeroes): (BlockSize, &Buf),
        parts: &mut Parts,
    ) {
        parts.clear();
        let shift = size.shift();
        if self.zeroed.contains(segment.strip) {
            parts.push((0, zeroes.slice(0, (segment.blocks as usize) << shift)));
            return;
        }
        let end = segment.lba.0 + u64::from(segment.blocks);
        for item in &self.items {
            let from = item.range.start.max(segment.lba);
            let to = item.range.end().0.min(end);
            if from.0 >= to {
                continue;
            }
            let mut offset = ((from.0 - segment.lba.0) << shift) as usize;
            let list = match &item.fill {
                Fill::Data(data) => slice(item.range, data, from, to - from.0, size),
                Fill::Zeroes | Fill::Deallocate => {
                    Sg::from(zeroes.slice(0, ((to - from.0) << shift) as usize))
                }
            };
            for part in list.into_parts() {
                let bytes = part.len();
                parts.push((offset, part));
                offset += bytes;
            }
        }
        parts.sort_unstable_by_key(|(offset, _)| *offset);
    }
}

/// Returns the data of the request from block `from` on, `blocks` blocks.
fn slice(fill_range: LbaRange, data: &Sg, from: Lba, blocks: u64, block_size: BlockSize) -> Sg {
    let offset = (from.0 - fill_range.start.0) << block_size.shift();
    data.slice(offset as usize, (blocks << block_size.shift()) as usize)
}

/// Returns the union of the segments of two writes, if it is one run of blocks on every strip and no block is in both
/// writes.
pub(super) fn join(a: &SegmentList, b: &SegmentList) -> Option<SegmentList> {
    let mut union = SegmentList::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let (x, y) = (a.get(i), b.get(j));
        match (x, y) {
            (Some(x), Some(y)) if x.strip == y.strip => {
                let (low, high) = if x.offset < y.offset { (x, y) } else { (y, x) };
                if low.offset + low.blocks != high.offset {
                    return None;
                }
                let mut joined = *low;
                joined.blocks += high.blocks;
                union.push(joined);
                i += 1;
                j += 1;
            }
            (Some(x), Some(y)) if x.strip < y.strip => {
                union.push(*x);
                i += 1;
            }
            (Some(_) | None, Some(y)) => {
                union.push(*y);
                j += 1;
            }
            (Some(x), None) => {
                union.push(*x);
                i += 1;
            }
            (None, None) => break,
        }
    }
    Some(union)
}
