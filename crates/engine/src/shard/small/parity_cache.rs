//! Old data and parities that small writes leave in memory for the next small write of the same blocks, which need not
//! read them.
//!
//! The cache keeps only columns that were written twice recently, and data only of strips that were written twice.
//! Evenly distributed writes would otherwise fill the table with entries that are never used, and the buffers would
//! displace other data from the CPU cache. A table of fingerprints detects the second write of a column (the first
//! queue of Johnson and Shasha's 2Q, VLDB 1994, without its order).
//!
//! The entries equal the content of the members. A writer removes an entry before it writes, and returns the entry
//! after every member has completed the write. Every other operation that writes a band, such as a rebuild, first drops
//! the entries of the band. Both operations have exclusive access to the band. A member that goes out of use or comes
//! into use does not invalidate entries: without the member, writes of its stripes are not small writes, and tasks
//! write all data of the member before it serves again.

use arrayvec::ArrayVec;
use strake_block::BufMut;
use strake_raid::{Band, PARTS_MAX};

use crate::limits::{PARITY_CACHE_LARGE_MAX, PARITY_CACHE_MAX, SMALL_BYTES};

/// Number of entries in which a column may be.
const WAYS: usize = 4;

/// Number of columns whose last write and strip are recorded.
const TOUCHED: usize = 1024;

/// Number of counters of cached columns, indexed by band. Few bands share a counter, so most writes of uncached bands
/// need no search.
const BANDS: usize = 1024;

/// The same blocks of every strip of a stripe, within one band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) band: Band,
    /// Offset in blocks from the start of the strips.
    pub(super) offset: u32,
    pub(super) blocks: u32,
}

impl Column {
    /// The column that a write of `blocks` blocks at `place` changes.
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

    /// Fibonacci hashing, as in the table of bands. Only the highest bits depend on the whole key.
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

/// The part of a column that is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// Nothing, because the column was not written recently.
    Nothing,
    /// Only the parities, because the last write was to another strip, as in a sequential load.
    Parities,
    /// Parities and data, because the last write was to the same blocks.
    Everything,
}

/// The cached content of a column.
pub(super) struct Left {
    /// The parities in order.
    pub(super) parities: ArrayVec<BufMut, PARTS_MAX>,
    /// A data strip and its content.
    pub(super) data: Option<(u8, BufMut)>,
}

struct Place {
    column: Column,
    left: Left,
}

/// The table.
pub(crate) struct ParityCache {
    /// `PARITY_CACHE_MAX / WAYS` sets of `WAYS` entries.
    places: Box<[Option<Place>]>,
    touched: Box<[u32]>,
    in_band: Box<[u8]>,
    /// Number of columns in the cache, and number of columns in large buffers.
    live: usize,
    large: usize,
    /// Buffers in the cache.
    bufs: usize,
    /// Index in a set of the entry to replace next.
    hand: usize,
    /// Index of the last evicted column in large buffers.
    large_hand: usize,
}

impl ParityCache {
    /// Creates an empty cache. The cache stays empty if `on` is false.
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

    /// Number of buffers in the cache.
    pub(crate) fn bufs(&self) -> usize {
        self.bufs
    }

    /// Records the start of a write of `column` in data strip `strip`. Returns the part of the column to cache.
    #[inline]
    pub(super) fn touch(&mut self, column: &Column, strip: u8) -> Worth {
        if self.touched.is_empty() {
            return Worth::Nothing;
        }
        let hash = column.hash();
        // There are fewer than 64 strips.
        let mark = (hash >> 20) as u32 | 0x3f;
        let place = &mut self.touched[(hash >> 52) as usize % TOUCHED];
        let last = std::mem::replace(place, mark ^ u32::from(strip));
        match last ^ mark {
            same if same == u32::from(strip) => Worth::Everything,
            other if other < 0x40 => Worth::Parities,
            _ => Worth::Nothing,
        }
    }

    /// Removes and returns the cached content of `column`, and drops cached columns that overlap it. The writer of a
    /// column has its band, and calls this function first.
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
            // No other cached column overlaps this column, because the last write of this column dropped such columns.
            return Some(place.left);
        }
        self.drop_those(|place| place.overlaps(column), released);
        None
    }

    /// Caches the content of `column` after a write has completed on every member.
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

    /// Drops the cached content of `band`, because another operation is about to write the band.
    #[inline]
    pub(crate) fn forget(&mut self, band: Band, released: impl FnMut(BufMut)) {
        if self.live > 0 && self.in_band[bucket(band)] > 0 {
            self.drop_those(|column| column.band == band, released);
        }
    }

    /// Evicts a column in large buffers. Columns are evicted in the order of their entries.
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
