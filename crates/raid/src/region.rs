//! Regions: the division of the array for the write-intent bitmap and among cores.
//!
//! A region is a run of whole stripes. One bit per region records that the region may have been written since its
//! parity was last known to be consistent. All stripes of a region belong to one core, so that cores share no state of
//! a region.

use std::ops::Range;

use strake_units::{CoreIndex, RegionIndex, StripeIndex};

use crate::geometry::Geometry;

/// Minimum size of a region in bytes of array space. With smaller regions, the cost of setting bits would exceed the
/// saved resync.
pub const REGION_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// Maximum number of regions of an array, which is the number of bits of the bitmap (two 4 KiB blocks less a header and
/// a checksum).
pub const REGIONS_MAX: u64 = 65_024;

/// The regions of an array. They follow from its geometry alone and are therefore computed and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    stripes_per_region: u64,
    stripes: u64,
}

impl Regions {
    /// Returns the regions of an array of `geometry`. They are as small as [`REGION_BYTES_MIN`] and [`REGIONS_MAX`]
    /// allow, rounded up to whole stripes.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        let blocks_min = REGION_BYTES_MIN >> geometry.block_size().shift();
        let blocks = geometry.capacity_blocks().div_ceil(REGIONS_MAX).max(blocks_min);
        Self {
            stripes_per_region: blocks.div_ceil(geometry.stripe_data_blocks()),
            stripes: geometry.stripes(),
        }
    }

    /// Returns the number of regions, at least 1 and at most [`REGIONS_MAX`].
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.stripes.div_ceil(self.stripes_per_region) as u32
    }

    /// Returns the number of stripes in every region. Only the last region may have fewer.
    #[must_use]
    pub const fn stripes_per_region(&self) -> u64 {
        self.stripes_per_region
    }

    /// Returns the region of `stripe`.
    #[must_use]
    pub const fn region_of(&self, stripe: StripeIndex) -> RegionIndex {
        RegionIndex((stripe.0 / self.stripes_per_region) as u32)
    }

    /// Returns the stripes of `region`. The range is empty if the region does not exist.
    #[must_use]
    pub fn stripes(&self, region: RegionIndex) -> Range<u64> {
        let start = u64::from(region.0).saturating_mul(self.stripes_per_region).min(self.stripes);
        let end = start.saturating_add(self.stripes_per_region).min(self.stripes);
        start..end
    }

    /// Returns the regions that contain stripes of `region` of `other`, which is the same array with another size.
    #[must_use]
    pub fn covering(&self, other: &Self, region: RegionIndex) -> Range<u32> {
        let stripes = other.stripes(region);
        let (start, end) = (stripes.start.min(self.stripes), stripes.end.min(self.stripes));
        if start == end {
            return 0..0;
        }
        self.region_of(StripeIndex(start)).0..self.region_of(StripeIndex(end - 1)).0 + 1
    }

    /// Returns the core that owns `region` with `cores` cores (a daemon has at least one).
    ///
    /// Neighbouring regions belong to different cores, so that a sequential stream uses all cores.
    #[must_use]
    pub const fn owner(&self, region: RegionIndex, cores: u16) -> CoreIndex {
        CoreIndex((region.0 % cores as u32) as u16)
    }
}
