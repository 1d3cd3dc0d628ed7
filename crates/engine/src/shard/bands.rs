//! The bands in use, and the operations that wait for them.
//!
//! A task holds a whole band. Small writes hold only the columns that they change, so that they run side by side in one
//! band. An operation that cannot start waits, in order of arrival, and nothing overtakes it. One shard owns each band,
//! so this table is the complete lock of a stripe, and needs no atomics.
//!
//! ```text
//!  columns   0 1 2 3 4 5 6 7
//!  held      # # . . . # . .     two small writes hold columns 0-1 and 5
//!  arrives       # #             starts: its columns are free, and nothing waits
//!  arrives             # #       waits for column 5
//!  arrives   .       #           waits behind it, although its column is free
//! ```

use std::collections::VecDeque;

use strake_block::{Durability, SgMut};
use strake_raid::{Band, Geometry};
use strake_units::{LbaRange, Nanos, PositionSet, StripSet};

use super::small::Head;
use crate::limits::MERGE_MAX;
use crate::message::{Fill, Origin, Span, Work};
use crate::scrub::ScrubOrder;
use crate::slab::Slab;
use crate::trace::Arrival;

mod batch;
mod columns;
#[cfg(test)]
mod tests;

pub(super) use batch::Parts;
use batch::join;
pub(crate) use batch::{WriteBatch, WriteItem};
pub(crate) use columns::ColumnSet;

/// Hash buckets.
const BUCKETS: usize = 2048;

/// No entry.
const NONE: u32 = u32::MAX;

/// The operations without a task that hold a band or columns of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// No operation: a task has the band, or operations wait for it.
    None,
    /// One operation that needs the whole band.
    Whole,
    /// The small write with this number. Its columns are determined when another write arrives.
    Small(u32),
    /// Small writes with these columns.
    Columns(ColumnSet),
}

/// A band with work.
struct Entry {
    band: Band,
    holder: Holder,
    /// First and last waiting item, as slab numbers.
    first: Option<u32>,
    last: Option<u32>,
    /// Next entry of the same hash bucket, or [`NONE`].
    chain: u32,
    /// True if the entry is in [`Bands::ready`].
    listed: bool,
    /// Joined reads, linked like waiting items.
    joined: Option<u32>,
}

struct Item {
    work: Work,
    origin: Origin,
    arrival: Arrival,
    /// True if the operation was put back, and therefore needs a task.
    thorough: bool,
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

pub(crate) struct Bands {
    /// First entries of the chains. The table is small enough for the CPU cache, so chains are long if there are many
    /// entries.
    buckets: Box<[u32; BUCKETS]>,
    entries: Slab<Entry>,
    items: Slab<Item>,
    /// Items reserved for operations that hold bands without a task.
    held: usize,
    /// Entries with waiting operations and without a task, of which one may be able to start.
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
        let arrival = Arrival::at(now);
        let item = self.items.insert(Item { work, origin, arrival, thorough: false, next: None });
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
            holder: Holder::None,
            first: Some(item),
            last: Some(item),
            chain: self.buckets[bucket],
            listed: false,
            joined: None,
        };
        let at = self.entries.insert(entry);
        self.buckets[bucket] = at;
        self.make_ready(at);
    }

    /// Takes a band that has no task, no holder and no waiting work. The caller must release the band with
    /// [`let_go`](Self::let_go).
    #[inline(always)]
    pub(crate) fn hold(&mut self, band: Band, holder: Holder) -> Option<u32> {
        let bucket = self.bucket(band);
        if self.find(bucket, band).is_some() {
            return None;
        }
        let chain = self.buckets[bucket];
        let at = self.entries.insert(Entry {
            band,
            holder,
            first: None,
            last: None,
            joined: None,
            chain,
            listed: false,
        });
        self.buckets[bucket] = at;
        Some(at)
    }

    /// Takes `columns` of a band for a small write beside other small writes, if these columns are free and nothing
    /// waits for the band. `of` returns the columns of a small write.
    pub(crate) fn hold_beside(
        &mut self,
        band: Band,
        columns: ColumnSet,
        of: impl FnOnce(u32) -> ColumnSet,
    ) -> Option<u32> {
        let at = self.find(self.bucket(band), band)?;
        let entry = self.entries.get_mut(at).expect("found just now");
        if entry.holder == Holder::None || entry.first.is_some() {
            return None;
        }
        entry.holder = entry.holder.beside(columns, of)?;
        Some(at)
    }

    /// True if an operation without a task holds columns of the band.
    pub(crate) fn is_held(&self, entry: u32) -> bool {
        self.entries.get(entry).expect("it has work").holder != Holder::None
    }

    /// True if a small write with these columns is the only holder.
    pub(crate) fn has_one_holder(&self, entry: u32, columns: ColumnSet) -> bool {
        match self.entries.get(entry).expect("whatever has started holds it").holder {
            Holder::None => false,
            Holder::Whole | Holder::Small(_) => true,
            Holder::Columns(held) => held == columns,
        }
    }

    fn make_ready(&mut self, at: u32) {
        let entry = self.entries.get_mut(at).expect("it has work");
        if !std::mem::replace(&mut entry.listed, true) {
            self.ready.push_back(at);
        }
    }

    /// Returns an entry whose first waiting operation may be able to start.
    pub(crate) fn next_ready(&mut self) -> Option<u32> {
        let at = self.ready.pop_front()?;
        self.entries.get_mut(at).expect("it has work").listed = false;
        Some(at)
    }

    pub(crate) fn band(&self, entry: u32) -> Band {
        self.entries.get(entry).expect("a task holds its entry").band
    }

    /// Returns the band and the range of the first waiting operation, if this operation is a write of data that may be
    /// a small write. Returns also the range of the next operation if it is a write of data.
    pub(crate) fn first_writes(&self, entry: u32) -> Option<(Band, LbaRange, Option<LbaRange>)> {
        let entry = self.entries.get(entry).expect("it has work");
        let item = self.items.get(entry.first?).expect("a queue is linked");
        if item.thorough {
            return None;
        }
        let next = item.next.map(|next| self.items.get(next).expect("a queue is linked"));
        let next = next.and_then(|next| next.work.written_data());
        Some((entry.band, item.work.written_data()?, next))
    }

    /// Returns the holder of the band after the first waiting operation has become the small write `number` with
    /// `columns`, if these are free. `of` returns the columns of a small write.
    pub(crate) fn next_holder(
        &self,
        entry: u32,
        (number, columns): (u32, ColumnSet),
        of: impl FnOnce(u32) -> ColumnSet,
    ) -> Option<Holder> {
        match self.entries.get(entry).expect("it has work").holder {
            Holder::None => Some(Holder::Small(number)),
            holder => holder.beside(columns, of),
        }
    }

    /// Removes and returns this write. `holder` is the new holder of the band.
    #[inline]
    pub(crate) fn take_write(&mut self, at: u32, holder: Holder) -> Head {
        let item = self.pop(at).expect("there is a write");
        let Item {
            work: Work::Write { range, fill: Fill::Data(data), durability },
            origin,
            arrival,
            ..
        } = item
        else {
            unreachable!("it was a write of data")
        };
        self.set_holder(at, holder);
        Head { range, data, durability, origin, queued: arrival.queued }
    }

    /// Sets the holder. The next waiting operation may be able to start beside it.
    fn set_holder(&mut self, at: u32, holder: Holder) {
        let entry = self.entries.get_mut(at).expect("it has work");
        entry.holder = holder;
        if entry.first.is_some() {
            self.make_ready(at);
        }
    }

    /// Returns the range, the slow positions and the band of the only waiting operation, if this operation is a read
    /// that may be a degraded read.
    pub(crate) fn sole_read(&self, entry: u32) -> Option<(LbaRange, PositionSet, Band)> {
        let entry = self.entries.get(entry).expect("it is ready");
        let item = self.items.get(entry.first?).expect("a queue is linked");
        match item.work {
            Work::Read { range, unreadable: PositionSet::EMPTY, avoid, .. }
                if item.next.is_none() && !item.thorough && entry.holder == Holder::None =>
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

    /// Removes this read, which holds the band from now on. Returns its buffer, its origin and the time at which it was
    /// queued.
    pub(crate) fn take_read(&mut self, at: u32) -> (SgMut, Origin, Nanos) {
        let item = self.pop(at).expect("there is a read");
        let Item { work: Work::Read { data, .. }, origin, arrival, .. } = item else {
            unreachable!("it was a read")
        };
        self.set_holder(at, Holder::Whole);
        (data, origin, arrival.queued)
    }

    /// Puts an operation that started without a task back to the head of its band, for a task, and releases its columns
    /// like [`let_go`](Self::let_go).
    pub(crate) fn put_back(
        &mut self,
        at: u32,
        (work, origin, arrival): (Work, Origin, Arrival),
        columns: impl FnOnce() -> ColumnSet,
    ) {
        let entry = self.entries.get_mut(at).expect("whatever has started holds it");
        let next = entry.first;
        let item = self.items.insert(Item { work, origin, arrival, thorough: true, next });
        entry.first = Some(item);
        entry.last.get_or_insert(item);
        self.let_go(at, columns);
    }

    /// Releases the band, or the `columns` of one of several holders. A waiting operation may then start.
    #[inline(always)]
    pub(crate) fn let_go(&mut self, at: u32, columns: impl FnOnce() -> ColumnSet) {
        let entry = self.entries.get_mut(at).expect("whatever has started holds it");
        entry.holder = match entry.holder {
            Holder::Columns(held) => held.without(columns()).holder(),
            Holder::None | Holder::Whole | Holder::Small(_) => Holder::None,
        };
        if entry.first.is_some() {
            self.make_ready(at);
        } else if entry.holder == Holder::None {
            self.retire(at);
        }
    }

    /// Returns the band from its task to the waiting operations, which may start without a task.
    pub(crate) fn give_back(&mut self, at: u32) {
        self.make_ready(at);
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
        let next = entry.joined;
        let item = Item { work, origin, arrival, thorough: false, next };
        entry.joined = Some(self.items.insert(item));
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
        let Item { work, origin, arrival, next, .. } = self.items.remove(entry.joined?);
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
