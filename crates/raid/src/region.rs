//! Regions: how the array is cut up for the write-intent bitmap and among cores.
//!
//! A region is a run of whole stripes. One bit per region says "may have been written since parity was last
//! known to agree", and all stripes of a region belong to one core, so that nothing about a region is ever
//! shared.

use std::ops::Range;

use strake_units::{CoreIndex, RegionIndex, StripeIndex};

use crate::geometry::Geometry;

/// Smallest region in bytes of array space: smaller ones would set bits more often than they save resync.
pub const REGION_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// Most regions of an array: what the bitmap has bits for (two 4 KiB blocks less a header and a checksum).
pub const REGIONS_MAX: u64 = 65_024;

/// The regions of an array. Follows from its geometry alone, so it is computed and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    stripes_per_region: u64,
    stripes: u64,
}

impl Regions {
    /// The regions of an array of `geometry`: as small as [`REGION_BYTES_MIN`] and [`REGIONS_MAX`] allow,
    /// rounded up to whole stripes.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        let blocks_min = REGION_BYTES_MIN >> geometry.block_size().shift();
        let blocks = geometry.capacity_blocks().div_ceil(REGIONS_MAX).max(blocks_min);
        Self {
            stripes_per_region: blocks.div_ceil(geometry.stripe_data_blocks()),
            stripes: geometry.stripes(),
        }
    }

    /// Number of regions, at least 1 and at most [`REGIONS_MAX`].
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.stripes.div_ceil(self.stripes_per_region) as u32
    }

    /// Stripes in every region but perhaps the last, which may have fewer.
    #[must_use]
    pub const fn stripes_per_region(&self) -> u64 {
        self.stripes_per_region
    }

    /// The region that `stripe` belongs to.
    #[must_use]
    pub const fn region_of(&self, stripe: StripeIndex) -> RegionIndex {
        RegionIndex((stripe.0 / self.stripes_per_region) as u32)
    }

    /// The stripes of `region`; empty when there is no such region.
    #[must_use]
    pub fn stripes(&self, region: RegionIndex) -> Range<u64> {
        let start = u64::from(region.0).saturating_mul(self.stripes_per_region).min(self.stripes);
        let end = start.saturating_add(self.stripes_per_region).min(self.stripes);
        start..end
    }

    /// The regions that have stripes of `region` of `other`, which is the same array with another size.
    #[must_use]
    pub fn covering(&self, other: &Self, region: RegionIndex) -> Range<u32> {
        let stripes = other.stripes(region);
        let (start, end) = (stripes.start.min(self.stripes), stripes.end.min(self.stripes));
        if start == end {
            return 0..0;
        }
        self.region_of(StripeIndex(start)).0..self.region_of(StripeIndex(end - 1)).0 + 1
    }

    /// The core that owns `region` when there are `cores` of them (a daemon has at least one).
    ///
    /// Neighbouring regions go to different cores, so that a stream that walks the array uses all of them.
    #[must_use]
    pub const fn owner(&self, region: RegionIndex, cores: u16) -> CoreIndex {
        CoreIndex((region.0 % cores as u32) as u16)
    }
}
