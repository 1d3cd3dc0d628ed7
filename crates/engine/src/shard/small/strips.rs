//! Buffers for the strips that a small write reads: new buffers, or buffers with cached content.

use arrayvec::ArrayVec;
use strake_block::BufMut;
use strake_raid::{Band, PARTS_MAX, Scheme, Spot};

use super::parity_cache::{Column, Left, Worth};
use super::table::Small;
use super::{Shard, Target};
use crate::limits::PARITY_CACHE_BYTES_MAX;
use crate::shard::members::PartSet;
use crate::shard::scratch;

/// The buffers of the parts of a small write, in order.
pub(super) type PartBufs = [Option<BufMut>; PARTS_MAX];

/// The state of the cache for a small write that starts.
pub(super) struct Cached {
    /// Parts whose content is cached. Their buffers contain it.
    pub(super) known: PartSet,
    /// The part of the column to cache.
    pub(super) worth: Worth,
}

impl Shard {
    /// Enters the region and puts buffers for the strips to read into `bufs`, with cached content if any. Returns
    /// `None` and no buffers if the region or the memory is not available now.
    #[inline(always)]
    pub(super) fn small_bufs(&self, target: &Target, bufs: &mut PartBufs) -> Option<Cached> {
        let Scheme::Parity(_) = self.geometry.scheme() else {
            let none = Cached { known: PartSet::EMPTY, worth: Worth::Nothing };
            return self.region_table.borrow_mut().enter_now(target.region).then_some(none);
        };
        let Spot { place, blocks, .. } = target.spot;
        let bytes = (blocks as usize) << self.geometry.block_size().shift();
        let column = Column { band: target.spot.band(), offset: place.offset, blocks };
        let left = if target.logged {
            // A write without space for its record would read its strips in vain, and again in a task.
            if !self.redo.borrow().has_room(bytes) {
                return None;
            }
            self.forget_cached(column.band);
            None
        } else {
            self.take_cached(&column)
        };
        let mut cached = match left {
            Some(left) => self.put_cached(left, target, bytes, bufs)?,
            None => {
                let bufs = &mut bufs[..usize::from(target.parts.count())];
                if !scratch::fill_now(&self.scratch, bufs, bytes) {
                    return None;
                }
                Cached { known: PartSet::EMPTY, worth: Worth::Nothing }
            }
        };
        if !self.region_table.borrow_mut().enter_now(target.region) {
            scratch::give_back(&self.scratch, bufs.iter_mut().filter_map(Option::take));
            return None;
        }
        // From here on, the write will start.
        if bytes <= PARITY_CACHE_BYTES_MAX && !target.logged {
            let worth = self.parity_cache.borrow_mut().touch(&column, place.strip);
            cached.worth = cached.worth.max(worth);
        }
        Some(cached)
    }

    /// Takes the cached content of a column, and drops content that a write of the column makes stale.
    #[inline]
    fn take_cached(&self, column: &Column) -> Option<Left> {
        let mut parity_cache = self.parity_cache.borrow_mut();
        parity_cache.take(column, |buf| scratch::give_back(&self.scratch, [buf]))
    }

    /// Puts the cached content of a column into `bufs`, and a buffer for the old data if the data are not cached.
    #[inline(never)]
    fn put_cached(
        &self,
        left: Left,
        target: &Target,
        bytes: usize,
        bufs: &mut PartBufs,
    ) -> Option<Cached> {
        let Left { parities, data } = left;
        let mut known = PartSet::first_n(target.parts.count().into()).without(0);
        let own = match data {
            Some((strip, buf)) => {
                if strip == target.spot.place.strip {
                    known.insert(0);
                }
                Some(buf)
            }
            None => scratch::take_now::<1>(&self.scratch, 1, bytes).and_then(|mut one| one.pop()),
        };
        let Some(own) = own else {
            scratch::give_back(&self.scratch, parities);
            return None;
        };
        let all = std::iter::once(own).chain(parities);
        bufs.iter_mut().zip(all).for_each(|(place, buf)| *place = Some(buf));
        Some(Cached { known, worth: Worth::Parities })
    }

    /// Drops the cached content of a band, because a task or a whole stripe is about to write the band.
    pub(crate) fn forget_cached(&self, band: Band) {
        self.parity_cache.borrow_mut().forget(band, |buf| scratch::give_back(&self.scratch, [buf]));
    }

    /// Caches the content of a completed small write. If parts of the write failed, its parities were already released.
    pub(super) fn keep_small(&self, small: &mut Small) {
        let count = usize::from(small.parts.count()) - 1;
        let mut left = Left { parities: ArrayVec::new(), data: None };
        let bytes = (small.range.blocks as usize) << self.geometry.block_size().shift();
        for mut parity in small.bufs[1..].iter_mut().filter_map(Option::take) {
            // The buffer of a completed write has its original size.
            parity.truncate(bytes);
            left.parities.push(parity);
        }
        if small.worth == Worth::Everything
            && left.parities.len() == count
            && let Some(mut one) = scratch::take_now::<1>(&self.scratch, 1, bytes)
            && let Some(mut copy) = one.pop()
        {
            small.data.copy_to(copy.as_mut_slice());
            left.data = Some((small.place.strip, copy));
        }
        let column = Column::of(small.place, self.geometry.band_blocks(), small.range.blocks);
        let mut parity_cache = self.parity_cache.borrow_mut();
        let released = |buf| scratch::give_back(&self.scratch, [buf]);
        if left.parities.len() == count {
            parity_cache.keep(column, left, released);
        } else {
            left.parities.into_iter().for_each(released);
        }
    }
}
