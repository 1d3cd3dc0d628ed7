//! Regions that were ever written. Other regions read as zeroes.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use strake_block::Extent;
use strake_raid::{Geometry, Regions};
use strake_units::{Lba, LbaRange, RegionIndex};

/// A bit for each region.
pub(crate) struct WrittenRegions {
    words: Vec<AtomicU64>,
    geometry: Geometry,
    regions: Regions,
}

impl WrittenRegions {
    pub(super) fn none(geometry: Geometry, regions: Regions) -> Self {
        let words = (0..regions.count().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words, geometry, regions }
    }

    pub(crate) fn mark(&self, region: RegionIndex) {
        self.words[region.at() / 64].fetch_or(1 << (region.0 % 64), Relaxed);
    }

    pub(crate) fn mark_all(&self) {
        (0..self.regions.count()).for_each(|region| self.mark(RegionIndex(region)));
    }

    #[inline]
    pub(crate) fn contains(&self, region: RegionIndex) -> bool {
        self.words[region.at() / 64].load(Relaxed) & 1 << (region.0 % 64) != 0
    }

    /// Returns the run of blocks from `at` with the same state, at most `blocks_max` blocks.
    pub(super) fn extent(&self, at: Lba, blocks_max: u64) -> Extent {
        let limit = at.0.saturating_add(blocks_max).min(self.geometry.capacity_blocks());
        let mut region = self.regions.region_of(self.geometry.place(at).stripe);
        let written = self.contains(region);
        let mut end = self.end(region);
        while end < limit {
            region = RegionIndex(region.0 + 1);
            if self.contains(region) != written {
                break;
            }
            end = self.end(region);
        }
        Extent { range: LbaRange::new(at, end.min(limit).saturating_sub(at.0)), written }
    }

    /// Returns the first block after `region`.
    fn end(&self, region: RegionIndex) -> u64 {
        let end = self.regions.stripes(region).end * self.geometry.stripe_data_blocks();
        end.min(self.geometry.capacity_blocks())
    }
}
