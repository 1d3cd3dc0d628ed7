//! Tests the written regions for both sizes of an array that grows, and the ranges that are zeroed.

use strake_ondisk::{Bits, Consistency, Format, HEAD_BYTES};
use strake_raid::{Geometry, GeometrySpec, Level, Regions};
use strake_units::{BlockSize, MemberIndex, RegionIndex, StripeIndex};

use super::{Change, GrowPlan};

const GIB: u64 = 1 << 30;

fn plan(before: u64, after: u64) -> GrowPlan {
    let before = Geometry::new(&GeometrySpec {
        level: Level::Raid6,
        members: 6,
        group_size: None,
        strip_bytes: 128 << 10,
        block_size: BlockSize::B4096,
        member_blocks: before >> 12,
    });
    let before = before.expect("sound");
    let after = before.resized(after >> 12).expect("sound");
    let formats = (Format::One, Format::One);
    let limit = MemberIndex(0);
    GrowPlan { change: Change::Grow, before, after, formats, limit, sizes: Vec::new() }
}

/// From about 1 TiB on, regions grow with the array, so a bit then covers other stripes.
#[test]
fn no_region_that_holds_data_is_called_unwritten_under_either_size() {
    let mut changed = 0;
    for (before, after) in
        [(10, 20), (200, 254), (200, 300), (254, 255), (300, 301), (300, 4000), (4000, 16_000)]
    {
        let plan = plan(before * GIB, after * GIB + (5 << 20));
        let (old, new) = (Regions::new(&plan.before), Regions::new(&plan.after));
        changed += u32::from(old.stripes_per_region() != new.stripes_per_region());
        let mut state = before * 7919 + after;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for density in [2, 50, 5000] {
            let mut written = Bits::new(old.count());
            (0..old.count()).filter(|_| random() % density == 0).for_each(|r| written.set(r));
            written.set(old.count() - 1);
            let both = plan.written(&written, Consistency::Safe);
            let [first, second] = [0, 1].map(|page| Some(both.page_bytes(page).to_vec()));
            // A start reads the pages with the number of regions of either size.
            let under_old = Bits::from_pages(old.count(), &[first.clone(), second.clone()]);
            let under_new = Bits::from_pages(new.count(), &[first, second]);
            for region in written.iter_ones() {
                assert!(under_old.get(region), "{before} to {after} GiB: {region}");
                let stripes = old.stripes(RegionIndex(region));
                for stripe in stripes.clone().step_by(1 + stripes.count() / 9) {
                    let region = new.region_of(StripeIndex(stripe));
                    assert!(under_new.get(region.0), "{before} to {after} GiB: stripe {stripe}");
                }
                let last = old.stripes(RegionIndex(region)).end - 1;
                assert!(under_new.get(new.region_of(StripeIndex(last)).0), "stripe {last}");
            }
            if old.stripes_per_region() == new.stripes_per_region() {
                assert_eq!(under_old, written, "nothing is called written for no reason");
                assert_eq!(under_new.count_ones(), written.count_ones());
            }
        }
        let all = plan.written(&Bits::new(old.count()), Consistency::None);
        let pages = [0, 1].map(|page| Some(all.page_bytes(page).to_vec()));
        for regions in [old.count(), new.count()] {
            assert_eq!(Bits::from_pages(regions, &pages).count_ones(), regions, "nobody notes it");
        }
    }
    assert!(changed >= 4, "regions of {changed} became larger");
}

#[test]
fn every_byte_of_the_new_area_is_made_zeroes_before_or_after_the_stop() {
    let plan = plan(10 * GIB, 12 * GIB);
    let (start, bytes) = plan.new_area();
    assert_eq!((start, bytes), (HEAD_BYTES + 10 * GIB, 2 * GIB));
    let mib = 1 << 20;
    for tails in [
        vec![],
        vec![(start - 4 * mib, 4 * mib)],
        vec![(start - 2 * mib, 4 * mib), (start + GIB, 4 * mib)],
        vec![(start + GIB, 4 * mib), (start + GIB + mib, 4 * mib)],
        vec![(start + bytes - mib, 4 * mib), (start, 4 * mib), (start + bytes, 4 * mib)],
    ] {
        let mut all = [plan.new_area_without(&tails), plan.within_new_area(&tails)].concat();
        all.sort_unstable();
        let mut next = start;
        for (at, bytes) in all {
            assert!(at <= next, "{tails:?} leave {next} to {at} as it is");
            next = next.max(at + bytes);
        }
        assert_eq!(next, start + bytes, "{tails:?}");
        for (at, bytes) in plan.new_area_without(&tails) {
            let apart = |(from, length): &(u64, u64)| at + bytes <= *from || from + length <= at;
            assert!(tails.iter().all(apart), "labels are written there: {tails:?}");
        }
    }
}
