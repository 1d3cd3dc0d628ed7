//! Tests that the regions contain every stripe exactly once, and that their number does not exceed the bits of the
//! bitmap.

use strake_units::{BlockSize, CoreIndex, RegionIndex, StripeIndex};

use crate::region::{REGION_BYTES_MIN, REGIONS_MAX};
use crate::{Geometry, GeometrySpec, Level, Regions};

fn regions(members: usize, member_bytes: u64) -> (Geometry, Regions) {
    let geometry = Geometry::new(&GeometrySpec {
        level: Level::Raid6,
        members,
        group_size: None,
        strip_bytes: 64 * 1024,
        block_size: BlockSize::B4096,
        member_blocks: member_bytes / 4096,
    })
    .unwrap_or_else(|error| panic!("{error}"));
    (geometry, Regions::new(&geometry))
}

#[test]
fn regions_are_as_small_as_allowed() {
    let check = |members: usize, member_bytes: u64, stripes_per_region: u64, count: u32| {
        let (_, regions) = regions(members, member_bytes);
        assert_eq!(regions.stripes_per_region(), stripes_per_region);
        assert_eq!(regions.count(), count);
    };
    // With 4+2 and 64 KiB strips, 64 stripes are 16 MiB.
    check(6, 64 * 1024, 64, 1);
    check(6, 64 * 64 * 1024, 64, 1);
    check(6, 65 * 64 * 1024, 64, 2);
    check(6, 64 * 65_024 * 64 * 1024, 64, 65_024);
    check(6, (64 * 65_024 + 1) * 64 * 1024, 65, 64_024);
    // With 5+2, 16 MiB are 51.2 stripes.
    check(7, 520 * 64 * 1024, 52, 10);
    // This is 14+2 with drives of 61.44 TB.
    check(16, 61_440_000_000_000, 14_418, 65_023);
}

#[test]
fn every_stripe_is_in_its_region_and_no_other() {
    for (members, strips) in [(4, 1), (6, 1000), (7, 777), (6, 64 * 65_024 + 12_345)] {
        let (geometry, regions) = regions(members, strips * 64 * 1024);
        assert!(u64::from(regions.count()) <= REGIONS_MAX);
        let bytes = regions.stripes_per_region() * geometry.stripe_data_blocks() * 4096;
        assert!(bytes >= REGION_BYTES_MIN);
        let mut next = 0;
        for region in (0..regions.count()).map(RegionIndex) {
            let stripes = regions.stripes(region);
            assert_eq!(stripes.start, next);
            assert!(!stripes.is_empty());
            assert_eq!(regions.region_of(StripeIndex(stripes.start)), region);
            assert_eq!(regions.region_of(StripeIndex(stripes.end - 1)), region);
            next = stripes.end;
        }
        assert_eq!(next, geometry.stripes());
        assert!(regions.stripes(RegionIndex(regions.count())).is_empty());
        assert!(regions.stripes(RegionIndex(u32::MAX)).is_empty());
    }
}

#[test]
fn cores_share_the_regions_evenly() {
    let (_, regions) = regions(6, 64 * 65_024 * 64 * 1024);
    for cores in [1, 2, 3, 7] {
        let mut owned = vec![0u32; usize::from(cores)];
        for region in (0..regions.count()).map(RegionIndex) {
            let CoreIndex(core) = regions.owner(region, cores);
            owned[usize::from(core)] += 1;
        }
        let (least, most) = (owned.iter().min().copied(), owned.iter().max().copied());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{owned:?}");
    }
}
