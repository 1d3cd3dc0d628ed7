//! What small writes leave behind for the next one of the same blocks: the parities, and the data if they are
//! overwritten again. Who finds them need not read them.
//!
//! Only columns that were written twice lately are cached, and data of those that were written in the same strip:
//! writes that are spread evenly would fill the table with what is not asked for again, and buffers that pass through
//! it leave the core's own cache. A table of fingerprints recognizes a column's second write (the first queue of
//! Johnson and Shasha's 2Q, VLDB 1994, without its order).
//!
//! What it holds equals what the members hold. Taking it takes it out, so that a writer puts it back only
//! when every member has it; and everything else that writes a band, be it a rebuild, has the band forgotten first.
//! Both have the band to themselves. A member that goes out of use or comes into use changes nothing by that: without
//! it such writes take a task, and what it gets before it serves again is written by tasks.

use arrayvec::ArrayVec;
use strake_block::BufMut;
use strake_raid::{Band, PARTS_MAX};

use crate::limits::{PARITY_CACHE_LARGE_MAX, PARITY_CACHE_MAX, SMALL_BYTES};

/// Places that one column may be in.
const WAYS: usize = 4;

/// Columns whose last write is remembered, with its strip.
const TOUCHED: usize = 1024;

/// Counters of columns by band: few columns share one, so that most writes see that nothing of their band is cached.
const BANDS: usize = 1024;

/// The same blocks of every strip of a stripe, within one band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) band: Band,
    /// In blocks from the beginning of the strips.
    pub(super) offset: u32,
    pub(super) blocks: u32,
}

impl Column {
    /// What a write of `blocks` blocks at `place` changes in every strip.
    pub(super) fn of(place: strake_raid::Place, band_blocks: u32, blocks: u64) -> Self {
        let index = (place.offset / band_blocks) as u16;
        let band = Band { stripe: place.stripe, index };
        Self { band, offset: place.offset, blocks: blocks as u32 }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.band == other.band
            && self.offset < other.offset + other.blocks
            && other.offset < self.offset + self.blocks
    }

    /// Fibonacci hashing, as the table of bands does it: only its highest bits depend on all of the key.
    #[inline]
    fn hash(&self) -> u64 {
        let band = self.band.stripe.0.wrapping_mul(64).wrapping_add(u64::from(self.band.index));
        let key = band.rotate_left(24) ^ u64::from(self.offset) ^ u64::from(self.blocks) << 48;
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[inline]
    fn band_bucket(&self) -> usize {
        bucket(self.band)
    }
}

fn bucket(band: Band) -> usize {
    let key = band.stripe.0.wrapping_mul(64).wrapping_add(u64::from(band.index));
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % BANDS
}

/// What of a column is worth keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// It was not written lately.
    Nothing,
    /// Another strip of it was written last, as when writes go on through a stripe.
    Parities,
    /// The same blocks were.
    Everything,
}

/// What is known of a column.
pub(super) struct Left {
    /// In order.
    pub(super) parities: ArrayVec<BufMut, PARTS_MAX>,
    /// A data strip, and what it holds.
    pub(super) data: Option<(u8, BufMut)>,
}

struct Place {
    column: Column,
    left: Left,
}

/// The table.
pub(crate) struct ParityCache {
    /// `PARITY_CACHE_MAX / WAYS` sets of `WAYS` places.
    places: Box<[Option<Place>]>,
    touched: Box<[u32]>,
    in_band: Box<[u8]>,
    /// Columns in the cache, and those of them that are in large buffers.
    live: usize,
    large: usize,
    /// Buffers in the cache.
    bufs: usize,
    /// The place of its set that is used next.
    hand: usize,
    /// Where the last column in large buffers was that had to make room.
    large_hand: usize,
}

impl ParityCache {
    /// An empty one. Nothing is ever cached in one that is not `on`.
    pub(crate) fn new(on: bool) -> Self {
        let size = |count: usize| if on { count } else { 0 };
        Self {
            places: (0..size(PARITY_CACHE_MAX)).map(|_| None).collect(),
            touched: vec![0; size(TOUCHED)].into(),
            in_band: vec![0; size(BANDS)].into(),
            live: 0,
            large: 0,
            bufs: 0,
            hand: 0,
            large_hand: 0,
        }
    }

    /// Buffers that it has.
    pub(crate) fn bufs(&self) -> usize {
        self.bufs
    }

    /// A write of `column` begins, in data strip `strip`. Says what of it is worth keeping.
    #[inline]
    pub(super) fn touch(&mut self, column: &Column, strip: u8) -> Worth {
        if self.touched.is_empty() {
            return Worth::Nothing;
        }
        let hash = column.hash();
        // Strips are fewer than 64.
        let mark = (hash >> 20) as u32 | 0x3f;
        let place = &mut self.touched[(hash >> 52) as usize % TOUCHED];
        let last = std::mem::replace(place, mark ^ u32::from(strip));
        match last ^ mark {
            same if same == u32::from(strip) => Worth::Everything,
            other if other < 0x40 => Worth::Parities,
            _ => Worth::Nothing,
        }
    }

    /// Takes what is known of `column`, and drops what is known of others that overlap it: the writer of a column has
    /// its band, and calls this first.
    #[inline]
    pub(super) fn take(&mut self, column: &Column, released: impl FnMut(BufMut)) -> Option<Left> {
        if self.live == 0 || self.in_band[column.band_bucket()] == 0 {
            return None;
        }
        self.take_known(column, released)
    }

    fn take_known(&mut self, column: &Column, released: impl FnMut(BufMut)) -> Option<Left> {
        let set = self.set(column);
        let is_it = |place: &Option<Place>| place.as_ref().is_some_and(|p| p.column == *column);
        if let Some(way) = self.places[set..set + WAYS].iter().position(is_it)
            && let Some(place) = self.remove(set + way)
        {
            // No other one overlaps it: it would have been dropped when this one was written.
            return Some(place.left);
        }
        self.drop_those(|place| place.overlaps(column), released);
        None
    }

    /// Keeps what a write of `column` has left behind, now that all of it is written.
    pub(super) fn keep(&mut self, column: Column, left: Left, mut released: impl FnMut(BufMut)) {
        let large = is_large(&left);
        if self.places.is_empty() {
            release(left, released);
            return;
        }
        if large && self.large == PARITY_CACHE_LARGE_MAX {
            self.drop_a_large_one(&mut released);
        }
        let set = self.set(&column);
        let empty = self.places[set..set + WAYS].iter().position(Option::is_none);
        let way = empty.unwrap_or_else(|| {
            self.hand += 1;
            self.hand % WAYS
        });
        if let Some(former) = self.remove(set + way) {
            release(former.left, &mut released);
        }
        self.live += 1;
        self.large += usize::from(large);
        self.bufs += count(&left);
        self.in_band[column.band_bucket()] += 1;
        self.places[set + way] = Some(Place { column, left });
    }

    /// Drops what is known of `band`: another writer is going to write in it.
    #[inline]
    pub(crate) fn forget(&mut self, band: Band, released: impl FnMut(BufMut)) {
        if self.live > 0 && self.in_band[bucket(band)] > 0 {
            self.drop_those(|column| column.band == band, released);
        }
    }

    /// Makes room for another column in large buffers: they go in the order of their places.
    fn drop_a_large_one(&mut self, released: impl FnMut(BufMut)) {
        let count = self.places.len();
        let is_large =
            |place: &Option<Place>| place.as_ref().is_some_and(|place| is_large(&place.left));
        let mut order = (1..=count).map(|step| (self.large_hand + step) % count);
        if let Some(at) = order.find(|at| is_large(&self.places[*at])) {
            self.large_hand = at;
            if let Some(place) = self.remove(at) {
                release(place.left, released);
            }
        }
    }

    fn drop_those(&mut self, is_one: impl Fn(&Column) -> bool, mut released: impl FnMut(BufMut)) {
        for at in 0..self.places.len() {
            if self.places[at].as_ref().is_some_and(|place| is_one(&place.column))
                && let Some(place) = self.remove(at)
            {
                release(place.left, &mut released);
            }
        }
    }

    fn remove(&mut self, at: usize) -> Option<Place> {
        let place = self.places[at].take()?;
        self.live -= 1;
        self.large -= usize::from(is_large(&place.left));
        self.bufs -= count(&place.left);
        self.in_band[place.column.band_bucket()] -= 1;
        Some(place)
    }

    fn set(&self, column: &Column) -> usize {
        (column.hash() >> 57) as usize % (PARITY_CACHE_MAX / WAYS) * WAYS
    }
}

fn count(left: &Left) -> usize {
    left.parities.len() + usize::from(left.data.is_some())
}

fn is_large(left: &Left) -> bool {
    left.parities.first().is_some_and(|parity| parity.len() > SMALL_BYTES)
}

fn release(left: Left, released: impl FnMut(BufMut)) {
    left.parities.into_iter().chain(left.data.map(|(_, buf)| buf)).for_each(released);
}

#[cfg(test)]
mod tests;
