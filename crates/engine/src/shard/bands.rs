//! Which bands are being worked on, and what waits for them.
//!
//! One task at a time works on a band; everything else for that band queues behind it in order of arrival.
//! Because one shard owns a band, this table is the whole stripe lock: there are no atomics in it.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use strake_block::{Buf, Durability, Sg, SgMut};
use strake_raid::{Band, Geometry, Segment, SegmentList, Window};
use strake_units::{BlockSize, Lba, LbaRange, PositionSet, StripSet};

use super::requests::slice;
use super::small::Head;
use crate::limits::MERGE_MAX;
use crate::message::{Fill, Origin, Span, Work};
use crate::scrub::ScrubOrder;
use crate::slab::Slab;

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
    /// What was put back needs a task.
    thorough: bool,
    /// Reads that are done together, linked like those that wait.
    joined: Option<u32>,
}

struct Item {
    work: Work,
    origin: Origin,
    next: Option<u32>,
}

/// What a band's task does next.
pub(crate) enum Batch {
    /// A read that could not go straight to its member.
    Read { span: Span },
    /// A batch of writes, to be done as one plan.
    Write,
    /// Maintenance.
    Resync { origin: Origin },
    /// Maintenance.
    Rebuild { origin: Origin },
    /// Maintenance.
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
}

/// Pieces of memory that one segment's new data may be in.
const PARTS_MAX: usize = MERGE_MAX * strake_block::buf::SEGMENTS_MAX;

/// New data of one segment: byte offset in the segment, and the bytes. Sorted, gapless.
pub(super) type Parts = ArrayVec<(usize, Buf), PARTS_MAX>;

/// Adjacent writes of one band.
pub(crate) struct WriteBatch {
    pub(crate) items: ArrayVec<WriteItem, MERGE_MAX>,
    /// The union of their parts in the band: at most one run of blocks per strip.
    pub(crate) segments: SegmentList,
    pub(crate) durability: Durability,
    /// Strips whose segment is zeroes that no client wrote, in place of data that are given up.
    pub(crate) zeroed: StripSet,
}

impl WriteBatch {
    /// A batch that writes nothing: what maintenance encodes.
    pub(crate) fn empty() -> Self {
        Self {
            items: ArrayVec::new(),
            segments: SegmentList::new(),
            durability: Durability::Normal,
            zeroed: StripSet::EMPTY,
        }
    }

    /// The part of the batch that is in the columns of `window`. Where positions have `bad` blocks it is written
    /// stably, because they come off the list when it is done, and zeroes are written rather than blocks deallocated.
    pub(crate) fn narrowed(&self, window: Window, bad: PositionSet) -> Self {
        let mut part = Self { durability: self.durability, ..Self::empty() };
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
            part.items.push(WriteItem { range: item.range, fill, origin: item.origin });
        }
        part
    }

    /// The same, and zeroes in the columns of `window` of the data strips in `strips`, which have no segment. `address`
    /// says where such a strip's part begins in the array.
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

    /// Makes `parts` the new data of `segment`: what each item brings to it, in order. `zeroes` is a band of them.
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
    /// First entries of the chains; few enough to stay near the core, so chains of many entries are long.
    buckets: Box<[u32; BUCKETS]>,
    entries: Slab<Entry>,
    items: Slab<Item>,
    /// Items kept for holders of bands without a task.
    held: usize,
    /// Entries that have work and no task yet.
    ready: VecDeque<u32>,
}

impl Bands {
    /// Room for `items` that wait, for `held` bands without a task and for those of `tasks`.
    pub(crate) fn new(items: usize, held: usize, tasks: usize) -> Self {
        let items = items + held;
        // A band that is worked on has its entry though nothing waits for it.
        let entries = items + tasks + held;
        Self {
            held,
            buckets: Box::new([NONE; BUCKETS]),
            entries: Slab::new(entries),
            items: Slab::new(items),
            ready: VecDeque::with_capacity(entries),
        }
    }

    /// Items that can still be taken in. Whatever holds a band without a task may be put back.
    pub(crate) fn room(&self) -> usize {
        self.items.room().saturating_sub(self.held)
    }

    /// True when nothing waits or is worked on.
    pub(crate) fn is_idle(&self) -> bool {
        self.entries.live() == 0
    }

    /// Queues `span` behind whatever its band is doing.
    #[inline]
    pub(crate) fn enqueue(&mut self, span: Span) {
        let item = self.items.insert(Item { work: span.work, origin: span.origin, next: None });
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

    /// Takes a band that has no task and no waiting work. The caller has to [`let_go`](Self::let_go) of it.
    #[inline]
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

    /// An entry that needs a task.
    pub(crate) fn next_ready(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    pub(crate) fn band(&self, entry: u32) -> Band {
        self.entries.get(entry).expect("a task holds its entry").band
    }

    /// The range and the band of the write that is all that waits for a band, if it is one of data and may be a small
    /// one.
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

    /// Takes that write.
    #[inline]
    pub(crate) fn take_write(&mut self, entry: u32) -> Head {
        let item = self.pop(entry).expect("there is a write");
        let Item {
            work: Work::Write { range, fill: Fill::Data(data), durability }, origin, ..
        } = item
        else {
            unreachable!("it was a write of data")
        };
        Head { range, data, durability, origin }
    }

    /// The range, the positions that take long, and the band of the read that is all that waits for a band, if it is
    /// one and may be a recovered one.
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

    /// Takes that read: its buffer and its origin.
    pub(crate) fn take_read(&mut self, entry: u32) -> (SgMut, Origin) {
        let item = self.pop(entry).expect("there is a read");
        let Item { work: Work::Read { data, .. }, origin, .. } = item else {
            unreachable!("it was a read")
        };
        (data, origin)
    }

    /// Puts what was begun without a task back to the head of its band, for a task.
    pub(crate) fn put_back(&mut self, at: u32, work: Work, origin: Origin) {
        let entry = self.entries.get_mut(at).expect("whatever has started holds it");
        entry.thorough = true;
        let item = self.items.insert(Item { work, origin, next: entry.first });
        entry.first = Some(item);
        entry.last.get_or_insert(item);
        self.ready.push_back(at);
    }

    /// The band no longer has a task, and gets one if something waits for it.
    pub(crate) fn let_go(&mut self, at: u32) {
        if self.entries.get(at).expect("whatever has started holds it").first.is_some() {
            self.ready.push_back(at);
        } else {
            self.retire(at);
        }
    }

    /// Takes the next thing to do off the entry's queue; `None` removes the entry. A batch of writes is stored in
    /// `writes`, because it is too large to be moved often.
    ///
    /// # Panics
    /// When a write in `writes` was not answered.
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
        let Item { work, origin, .. } = item;
        Some(match work {
            work @ Work::Read { .. } => Batch::Read { span: Span { band, work, origin } },
            Work::Resync => Batch::Resync { origin },
            Work::Rebuild => Batch::Rebuild { origin },
            Work::Scrub { order } => Batch::Scrub { order, origin },
            Work::Write { range, fill, durability } => {
                assert!(writes.items.is_empty(), "every write of the last batch was answered");
                writes.items.push(WriteItem { range, fill, origin });
                writes.segments = geometry.segments(band, range);
                (writes.durability, writes.zeroed) = (durability, StripSet::EMPTY);
                if merge {
                    self.merge(entry, geometry, writes);
                }
                Batch::Write
            }
        })
    }

    /// What is waiting next, if it is a read: its range, and what it says about positions.
    pub(crate) fn waiting_read(&self, entry: u32) -> Option<Waiting> {
        let first = self.entries.get(entry).expect("a task holds its entry").first?;
        match self.items.get(first).expect("a queue is linked").work {
            Work::Read { range, unreadable, avoid, .. } => {
                Some(Waiting { range, unreadable, avoid })
            }
            Work::Write { .. } | Work::Resync | Work::Rebuild | Work::Scrub { .. } => None,
        }
    }

    /// Puts what is waiting next aside, to be done together with others.
    pub(crate) fn join_waiting(&mut self, entry: u32) {
        if let Some(Item { work, origin, .. }) = self.pop(entry) {
            self.join(entry, work, origin);
        }
    }

    /// Puts work that was taken off the queue aside.
    pub(crate) fn join(&mut self, at: u32, work: Work, origin: Origin) {
        let entry = self.entries.get_mut(at).expect("a task holds its entry");
        entry.joined = Some(self.items.insert(Item { work, origin, next: entry.joined }));
    }

    /// Shows the ranges and buffers of the reads that were put aside, in the order in which they are taken. A read
    /// whose buffer is empty has lent it to the task.
    pub(crate) fn each_joined(&mut self, at: u32, mut show: impl FnMut(LbaRange, &mut SgMut)) {
        let mut next = self.entries.get(at).expect("a task holds its entry").joined;
        while let Some(item) = next.and_then(|item| self.items.get_mut(item)) {
            if let Work::Read { range, data, .. } = &mut item.work {
                show(*range, data);
            }
            next = item.next;
        }
    }

    /// Takes one of those that were put aside.
    pub(crate) fn take_joined(&mut self, at: u32) -> Option<Span> {
        let entry = self.entries.get_mut(at).expect("a task holds its entry");
        let Item { work, origin, next } = self.items.remove(entry.joined?);
        entry.joined = next;
        Some(Span { band: entry.band, work, origin })
    }

    /// Adds waiting writes to `batch` as long as each continues what is there.
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
            let Some(Item { work: Work::Write { range, fill, .. }, origin, .. }) = self.pop(entry)
            else {
                return;
            };
            batch.items.push(WriteItem { range, fill, origin });
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

    fn retire(&mut self, entry: u32) {
        let Entry { band, chain, .. } = self.entries.remove(entry);
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
        // Fibonacci hashing (Knuth, TAOCP vol. 3, 6.4): consecutive stripes fall far apart.
        let key = band.stripe.0.wrapping_mul(64).wrapping_add(u64::from(band.index));
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize % BUCKETS
    }

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

/// The union of two writes' segments, if on every strip it is one run of blocks and no block is in both.
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
