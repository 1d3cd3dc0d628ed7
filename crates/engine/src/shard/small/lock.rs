//! The columns that small writes lock ([`crate::shard::bands`]). A write with a record locks the whole band, because
//! only the newest record of a band counts after a crash.

use strake_raid::{Band, Geometry, Spot};
use strake_units::LbaRange;

use super::table::{Small, Smalls};
use super::{Target, small_write_target};
use crate::shard::Shard;
use crate::shard::bands::{Bands, ColumnSet};

/// The part of a band that a new write needs. It fits into registers, which saves 30 instructions per write compared
/// with a reference to a [`Target`].
#[derive(Clone, Copy)]
pub(super) struct Lock {
    offset: u32,
    blocks: u32,
    /// True if the write needs the whole band.
    whole: bool,
}

impl Lock {
    #[inline(always)]
    pub(super) const fn of(target: &Target) -> Self {
        let Spot { place, blocks, .. } = target.spot;
        Self { offset: place.offset, blocks, whole: target.logged }
    }

    /// Takes the columns in a band that is held by other small writes, if they are free. A separate function, because
    /// most bands have no other holder.
    #[cold]
    pub(super) fn hold_beside(
        self,
        shard: &Shard,
        bands: &mut Bands,
        smalls: &mut Smalls,
        band: Band,
    ) -> Option<u32> {
        let of = |number| held(&shard.geometry, smalls.get(number));
        bands.hold_beside(band, self.columns(shard), of)
    }

    /// Releases a band for whose write there is no memory now.
    #[cold]
    pub(super) fn let_go(self, shard: &Shard, bands: &mut Bands, entry: u32) {
        bands.let_go(entry, || self.columns(shard));
    }

    fn columns(self, shard: &Shard) -> ColumnSet {
        match self.whole || shard.redo.borrow().intends() {
            true => ColumnSet::ALL,
            false => ColumnSet::of(self.offset, self.blocks, shard.geometry.band_blocks()),
        }
    }
}

/// Returns the first waiting operation of the band of `entry` and its columns, if it may be a small write. Returns
/// `None` if a task executes it together with the next one, which could not run beside it: a write of adjacent blocks,
/// or of the same columns.
pub(super) fn first_small(shard: &Shard, bands: &Bands, entry: u32) -> Option<(Target, ColumnSet)> {
    let (band, range, next) = bands.first_writes(entry)?;
    let target = small_write_target(shard, range)?;
    debug_assert_eq!(target.spot.band(), band, "a span lies in its band");
    let columns = Lock::of(&target).columns(shard);
    let merges = |next: LbaRange| {
        let band_blocks = shard.geometry.band_blocks();
        let of = |spot: Spot| ColumnSet::of(spot.place.offset, spot.blocks, band_blocks);
        let spot = shard.geometry.spot(next);
        let overlaps = spot.is_some_and(|spot| of(spot).overlaps(columns));
        overlaps || range.end() == next.start || next.end() == range.start
    };
    (!(shard.merge && next.is_some_and(merges))).then_some((target, columns))
}

/// True if the first waiting operation of the band of `entry` may be a small write, so that its task can end.
pub(crate) fn needs_no_task(shard: &Shard, entry: u32) -> bool {
    first_small(shard, &shard.bands.borrow(), entry).is_some()
}

/// Returns the columns that `small` needs, the only holder of its band.
pub(super) fn held(geometry: &Geometry, small: &Small) -> ColumnSet {
    match small.logged || small.record.is_some() {
        true => ColumnSet::ALL,
        false => changed(geometry, small),
    }
}

/// Returns the columns that `small` changes.
pub(super) fn changed(geometry: &Geometry, small: &Small) -> ColumnSet {
    match small.stripe {
        Some(_) => ColumnSet::ALL,
        None => {
            ColumnSet::of(small.place.offset, small.range.blocks as u32, geometry.band_blocks())
        }
    }
}

/// True unless the write needs a record and does not hold the whole band. Records are needed only after a change of
/// the membership epoch, and writes from before the change start again.
pub(super) fn may_record(shard: &Shard, small: &Small) -> bool {
    let columns = changed(&shard.geometry, small);
    !shard.redo.borrow().intends() || shard.bands.borrow().has_one_holder(small.entry, columns)
}
