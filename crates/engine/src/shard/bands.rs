//! The bands in use, and the operations that wait for them.
//!
//! One task at a time works on a band. Other operations on the band wait in order of arrival. One shard owns each band,
//! so this table is the complete lock of a stripe, and needs no atomics.

use std::cell::Cell;
use std::collections::VecDeque;

use arrayvec::ArrayVec;
use strake_block::{Buf, Durability, Sg, SgMut};
use strake_raid::{Band, Geometry, Segment, SegmentList, Window};
use strake_units::{BlockSize, Lba, LbaRange, Nanos, PositionSet, StripSet};

use super::small::Head;
use crate::limits::MERGE_MAX;
use crate::message::{Fill, Origin, Span, Work};
use crate::scrub::ScrubOrder;
use crate::slab::Slab;
use crate::trace::{Arrival, Stage, Trail};

/// Hash buckets.
const BUCKETS: usize = 2048;

/// No entry.
const NONE: u32 = u32::MAX;

/// A band with work.
struct Entry {
    band: Band,
    /// First and last waiting item, as slab numbers.
    first: Option<u32>,
    last: Option<u32>,
    /// Next entry of the same hash bucket, or [`NONE`].
    chain: u32,
    /// True if an operation that was put back needs a task.
    thorough: bool,
    /// Joined reads, linked like waiting items.
    joined: Option<u32>,
}

struct Item {
    work: Work,
    origin: Origin,
    arrival: Arrival,
    next: Option<u32>,
}

/// The next operation of the task of a band.
pub(crate) enum Batch {
    /// A read that could not be sent directly to its member.
    Read { span: Span, arrival: Arrival },
    /// A batch of writes for one plan.
    Write,
    /// A resync of the band.
    Resync { origin: Origin },
    /// A rebuild of the band.
    Rebuild { origin: Origin },
    /// A scrub of the band.
    Scrub { order: ScrubOrder, origin: Origin },
}

/// A read that waits for a band.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) range: LbaRange,
    pub(crate) unreadable: PositionSet,
    pub(crate) avoid: PositionSet,
}

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
pub(super) type Parts = ArrayVec<(usize, Buf), PARTS_MAX>;

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
    pub(super) fn parts(
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

pub(crate) struct Bands {
    /// First entries of the chains. The table is small enough for the CPU cache, so chains are long if there are many
    /// entries.
    buckets: Box<[u32; BUCKETS]>,
    entries: Slab<Entry>,
    items: Slab<Item>,
    /// Items reserved for operations that hold bands without a task.
    held: usize,
    /// Entries with work and without a task.
    ready: VecDeque<u32>,
}

impl Bands {
    /// Creates a table for `items` waiting items, `held` bands without a task, and the bands of `tasks` tasks.
    pub(crate) fn new(items: usize, held: usize, tasks: usize) -> Self {
        let items = items + held;
        // A band in use has an entry even if nothing waits for the band.
        let entries = items + tasks + held;
        Self {
            held,
            buckets: Box::new([NONE; BUCKETS]),
            entries: Slab::new(entries),
            items: Slab::new(items),
            ready: VecDeque::with_capacity(entries),
        }
    }

    /// Number of further items that can be accepted. Operations that hold a band without a task may be put back, so
    /// their items are reserved.
    pub(crate) fn room(&self) -> usize {
        self.items.room().saturating_sub(self.held)
    }

    /// True if no operation waits or is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.entries.live() == 0
    }

    /// Appends `span` to the queue of its band at `now`.
    #[inline]
    pub(crate) fn enqueue(&mut self, span: Span, now: Nanos) {
        let Span { work, origin, .. } = span;
        let item = self.items.insert(Item { work, origin, arrival: Arrival::at(now), next: None });
        let bucket = self.bucket(span.band);
        if let Some(at) = self.find(bucket, span.band) {
            let entry = self.entries.get_mut(at).expect("found just now");
            match entry.last.replace(item) {
                Some(last) => {
                    self.items.get_mut(last).expect("a queue is linked").next = Some(item)
                }
                None => entry.first = Some(item),
            }
            return;
        }
        let entry = Entry {
            band: span.band,
            first: Some(item),
            last: Some(item),
            chain: self.buckets[bucket],
            thorough: false,
            joined: None,
        };
        let at = self.entries.insert(entry);
        self.buckets[bucket] = at;
        self.ready.push_back(at);
    }

    /// Takes a band that has no task and no waiting work. The caller must release the band with
    /// [`let_go`](Self::let_go).
    #[inline(always)]
    pub(crate) fn hold(&mut self, band: Band) -> Option<u32> {
        let bucket = self.bucket(band);
        if self.find(bucket, band).is_some() {
            return None;
        }
        let chain = self.buckets[bucket];
        let at = self.entries.insert(Entry {
            band,
            first: None,
            last: None,
            joined: None,
            chain,
            thorough: false,
        });
        self.buckets[bucket] = at;
        Some(at)
    }

    /// Returns an entry that needs a task.
    pub(crate) fn next_ready(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    pub(crate) fn band(&self, entry: u32) -> Band {
        self.entries.get(entry).expect("a task holds its entry").band
    }

    /// Returns the range and the band of the only waiting operation, if this operation is a write of data that may be a
    /// small write.
    pub(crate) fn sole_write(&self, entry: u32) -> Option<(LbaRange, Band)> {
        let entry = self.entries.get(entry).expect("it is ready");
        let item = self.items.get(entry.first?).expect("a queue is linked");
        match &item.work {
            Work::Write { range, fill: Fill::Data(_), .. }
                if item.next.is_none() && !entry.thorough =>
            {
                Some((*range, entry.band))
            }
            Work::Write { .. }
            | Work::Read { .. }
            | Work::Resync
            | Work::Rebuild
            | Work::Scrub { .. } => None,
        }
    }

    /// Removes and returns this write.
    #[inline]
    pub(crate) fn take_write(&mut self, entry: u32) -> Head {
        let item = self.pop(entry).expect("there is a write");
        let Item {
            work: Work::Write { range, fill: Fill::Data(data), durability },
            origin,
            arrival,
            ..
        } = item
        else {
            unreachable!("it was a write of data")
        };
        Head { range, data, durability, origin, queued: arrival.queued }
    }

    /// Returns the range, the slow positions and the band of the only waiting operation, if this operation is a read
    /// that may be a degraded read.
    pub(crate) fn sole_read(&self, entry: u32) -> Option<(LbaRange, PositionSet, Band)> {
        let entry = self.entries.get(entry).expect("it is ready");
        let item = self.items.get(entry.first?).expect("a queue is linked");
        match item.work {
            Work::Read { range, unreadable: PositionSet::EMPTY, avoid, .. }
                if item.next.is_none() && !entry.thorough =>
            {
                Some((range, avoid, entry.band))
            }
            Work::Read { .. }
            | Work::Write { .. }
            | Work::Resync
            | Work::Rebuild
            | Work::Scrub { .. } => None,
        }
    }

    /// Removes this read, and returns its buffer, its origin and the time at which it was queued.
    pub(crate) fn take_read(&mut self, entry: u32) -> (SgMut, Origin, Nanos) {
        let item = self.pop(entry).expect("there is a read");
        let Item { work: Work::Read { data, .. }, origin, arrival, .. } = item else {
            unreachable!("it was a read")
        };
        (data, origin, arrival.queued)
    }

    /// Puts an operation that started without a task back to the head of its band, for a task.
    pub(crate) fn put_back(&mut self, at: u32, work: Work, origin: Origin, arrival: Arrival) {
        let entry = self.entries.get_mut(at).expect("whatever has started holds it");
        entry.thorough = true;
        let item = self.items.insert(Item { work, origin, arrival, next: entry.first });
        entry.first = Some(item);
        entry.last.get_or_insert(item);
        self.ready.push_back(at);
    }

    /// Releases the band. The band gets a task if an operation waits for it.
    #[inline(always)]
    pub(crate) fn let_go(&mut self, at: u32) {
        if self.entries.get(at).expect("whatever has started holds it").first.is_some() {
            self.ready.push_back(at);
        } else {
            self.retire(at);
        }
    }

    /// Removes the next operation from the queue of the entry. With an empty queue, removes the entry and returns
    /// `None`. A batch of writes is stored in `writes`, because it is too large to be moved often.
    ///
    /// # Panics
    /// If a write in `writes` was not answered.
    pub(crate) fn next_batch(
        &mut self,
        entry: u32,
        geometry: &Geometry,
        merge: bool,
        writes: &mut WriteBatch,
    ) -> Option<Batch> {
        let Some(item) = self.pop(entry) else {
            self.retire(entry);
            return None;
        };
        let band = self.band(entry);
        let Item { work, origin, arrival, .. } = item;
        Some(match work {
            work @ Work::Read { .. } => Batch::Read { span: Span { band, work, origin }, arrival },
            Work::Resync => Batch::Resync { origin },
            Work::Rebuild => Batch::Rebuild { origin },
            Work::Scrub { order } => Batch::Scrub { order, origin },
            Work::Write { range, fill, durability } => {
                assert!(writes.items.is_empty(), "every write of the last batch was answered");
                writes.items.push(WriteItem { range, fill, origin, arrival });
                geometry.segments_into(band, range, &mut writes.segments);
                (writes.durability, writes.zeroed) = (durability, StripSet::EMPTY);
                if merge {
                    self.merge(entry, geometry, writes);
                }
                Batch::Write
            }
        })
    }

    /// Returns the range and the positions of the next waiting operation, if it is a read.
    pub(crate) fn waiting_read(&self, entry: u32) -> Option<Waiting> {
        let first = self.entries.get(entry).expect("a task holds its entry").first?;
        match self.items.get(first).expect("a queue is linked").work {
            Work::Read { range, unreadable, avoid, .. } => {
                Some(Waiting { range, unreadable, avoid })
            }
            Work::Write { .. } | Work::Resync | Work::Rebuild | Work::Scrub { .. } => None,
        }
    }

    /// Puts the next waiting operation aside, for a joint read.
    pub(crate) fn join_waiting(&mut self, entry: u32) {
        if let Some(Item { work, origin, arrival, .. }) = self.pop(entry) {
            self.join(entry, (work, origin, arrival));
        }
    }

    /// Puts an operation that was removed from the queue aside.
    pub(crate) fn join(&mut self, at: u32, (work, origin, arrival): (Work, Origin, Arrival)) {
        let entry = self.entries.get_mut(at).expect("a task holds its entry");
        entry.joined = Some(self.items.insert(Item { work, origin, arrival, next: entry.joined }));
    }

    /// Calls `show` with the ranges and buffers of the joined reads, in the order in which they are taken. A read with
    /// an empty buffer has lent its buffer to the task.
    pub(crate) fn each_joined(&mut self, at: u32, mut show: impl FnMut(LbaRange, &mut SgMut)) {
        let mut next = self.entries.get(at).expect("a task holds its entry").joined;
        while let Some(item) = next.and_then(|item| self.items.get_mut(item)) {
            if let Work::Read { range, data, .. } = &mut item.work {
                show(*range, data);
            }
            next = item.next;
        }
    }

    /// Removes and returns one of the joined reads.
    pub(crate) fn take_joined(&mut self, at: u32) -> Option<(Span, Arrival)> {
        let entry = self.entries.get_mut(at).expect("a task holds its entry");
        let Item { work, origin, arrival, next } = self.items.remove(entry.joined?);
        entry.joined = next;
        Some((Span { band: entry.band, work, origin }, arrival))
    }

    /// Adds waiting writes to `batch` as long as each write is adjacent to the batch.
    fn merge(&mut self, entry: u32, geometry: &Geometry, batch: &mut WriteBatch) {
        let band = self.band(entry);
        while batch.items.len() < MERGE_MAX {
            let Some(first) = self.entries.get(entry).and_then(|e| e.first) else { return };
            let item = self.items.get(first).expect("a queue is linked");
            let Work::Write { range, durability, fill } = &item.work else { return };
            if std::mem::discriminant(fill) != std::mem::discriminant(&batch.items[0].fill) {
                return;
            }
            let Some(union) = join(&batch.segments, &geometry.segments(band, *range)) else {
                return;
            };
            batch.segments = union;
            if *durability == Durability::Fua {
                batch.durability = Durability::Fua;
            }
            let Some(Item { work: Work::Write { range, fill, .. }, origin, arrival, .. }) =
                self.pop(entry)
            else {
                return;
            };
            batch.items.push(WriteItem { range, fill, origin, arrival });
        }
    }

    #[inline]
    fn pop(&mut self, entry: u32) -> Option<Item> {
        let entry = self.entries.get_mut(entry).expect("a task holds its entry");
        let item = self.items.remove(entry.first?);
        entry.first = item.next;
        if item.next.is_none() {
            entry.last = None;
        }
        Some(item)
    }

    #[inline]
    fn retire(&mut self, entry: u32) {
        let Entry { band, chain, .. } = *self.entries.get(entry).expect("a task holds its entry");
        self.entries.release(entry);
        let bucket = self.bucket(band);
        if self.buckets[bucket] == entry {
            self.buckets[bucket] = chain;
            return;
        }
        let mut at = self.buckets[bucket];
        loop {
            let place = self.entries.get_mut(at).expect("an entry is in its bucket's chain");
            if place.chain == entry {
                place.chain = chain;
                return;
            }
            at = place.chain;
        }
    }

    fn bucket(&self, band: Band) -> usize {
        // Fibonacci hashing (Knuth, TAOCP vol. 3, 6.4): it distributes consecutive stripes widely.
        let key = band.stripe.0.wrapping_mul(64).wrapping_add(u64::from(band.index));
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize % BUCKETS
    }

    #[inline]
    fn find(&self, bucket: usize, band: Band) -> Option<u32> {
        let mut at = self.buckets[bucket];
        while at != NONE {
            let place = self.entries.get(at).expect("a chain is linked");
            if place.band == band {
                return Some(at);
            }
            at = place.chain;
        }
        None
    }
}

/// Returns the data of the request from block `from` on, `blocks` blocks.
fn slice(fill_range: LbaRange, data: &Sg, from: Lba, blocks: u64, block_size: BlockSize) -> Sg {
    let offset = (from.0 - fill_range.start.0) << block_size.shift();
    data.slice(offset as usize, (blocks << block_size.shift()) as usize)
}

/// Returns the union of the segments of two writes, if it is one run of blocks on every strip and no block is in both
/// writes.
fn join(a: &SegmentList, b: &SegmentList) -> Option<SegmentList> {
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
