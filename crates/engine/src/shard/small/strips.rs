//! Memory for the strips that a small write reads: new, or with what the last write of them has left there.

use arrayvec::ArrayVec;
use strake_block::BufMut;
use strake_raid::{Band, PARTS_MAX, Scheme, Spot};

use super::parity_cache::{Column, Left, Worth};
use super::table::Small;
use super::{Shard, Target};
use crate::limits::PARITY_CACHE_BYTES_MAX;
use crate::shard::parts::PartSet;
use crate::shard::scratch;

/// Memory for the strips that are read, in the order of parts.
pub(super) struct Strips {
    /// The first part's is the last.
    pub(super) bufs: ArrayVec<BufMut, PARTS_MAX>,
    /// Parts whose bytes are there already.
    pub(super) known: PartSet,
    /// What of the column is worth keeping.
    pub(super) worth: Worth,
}

impl Shard {
    /// Enters the region and takes buffers for the strips that are read, or what the cache holds of them; `None` when
    /// one or the other cannot be now.
    #[inline]
    pub(super) fn small_bufs(&self, target: &Target) -> Option<Strips> {
        let Scheme::Parity(parities) = self.geometry.scheme() else {
            let none =
                Strips { bufs: ArrayVec::new(), known: PartSet::EMPTY, worth: Worth::Nothing };
            return self.region_table.borrow_mut().enter_now(target.region).then_some(none);
        };
        let Spot { place, blocks, .. } = target.spot;
        let bytes = (blocks as usize) << self.geometry.block_size().shift();
        let column = Column { band: target.spot.band(), offset: place.offset, blocks };
        let mut strips = match self.take_cached(&column) {
            Some(left) => self.strips_of(left, target, bytes)?,
            None => Strips {
                bufs: scratch::take_now(&self.scratch, 1 + usize::from(parities), bytes)?,
                known: PartSet::EMPTY,
                worth: Worth::Nothing,
            },
        };
        if !self.region_table.borrow_mut().enter_now(target.region) {
            scratch::give_back(&self.scratch, strips.bufs);
            return None;
        }
        // Now it begins for certain, once.
        if bytes <= PARITY_CACHE_BYTES_MAX {
            let worth = self.parity_cache.borrow_mut().touch(&column, place.strip);
            strips.worth = strips.worth.max(worth);
        }
        Some(strips)
    }

    /// Takes what the cache holds of a column, and forgets what a write of it makes stale.
    #[inline]
    fn take_cached(&self, column: &Column) -> Option<Left> {
        let mut parity_cache = self.parity_cache.borrow_mut();
        parity_cache.take(column, |buf| scratch::give_back(&self.scratch, [buf]))
    }

    /// What is left of a column, and a buffer for the old data if those are not among it.
    fn strips_of(&self, left: Left, target: &Target, bytes: usize) -> Option<Strips> {
        let Left { parities, data } = left;
        let mut known = PartSet::first_n(target.parts.count().into()).without(0);
        let mut bufs: ArrayVec<BufMut, PARTS_MAX> = parities.into_iter().rev().collect();
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
            scratch::give_back(&self.scratch, bufs);
            return None;
        };
        bufs.push(own);
        Some(Strips { bufs, known, worth: Worth::Parities })
    }

    /// Forgets what the cache holds of a band, because a task is going to write there.
    pub(crate) fn forget_cached(&self, band: Band) {
        self.parity_cache.borrow_mut().forget(band, |buf| scratch::give_back(&self.scratch, [buf]));
    }

    /// Keeps what a small write leaves behind, unless parts of it failed: then its parities are given back already.
    pub(super) fn keep_small(&self, small: &mut Small) {
        let count = usize::from(small.parts.count()) - 1;
        let mut left = Left { parities: ArrayVec::new(), data: None };
        let bytes = (small.range.blocks as usize) << self.geometry.block_size().shift();
        for mut parity in small.bufs[1..].iter_mut().filter_map(Option::take) {
            // What returns from a write is as large as it once was.
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
