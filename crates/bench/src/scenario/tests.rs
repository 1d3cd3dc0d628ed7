use std::collections::BTreeSet;

use strake_block::BlockDevice as _;
use strake_dev_mem::NullDevice;
use strake_raid::{Geometry, GeometrySpec, Level, Regions};
use strake_units::{BlockSize, CoreIndex, StripeIndex};

use super::{Aim, Case};
use strake_load::Pattern;

/// The stripes that each core's requests go to.
fn check(aim: Aim) -> (Vec<BTreeSet<u64>>, Geometry) {
    let spec = GeometrySpec {
        level: Level::Raid6,
        members: 8,
        group_size: None,
        strip_bytes: 128 << 10,
        block_size: BlockSize::B4096,
        member_blocks: 1 << 14,
    };
    let geometry = Geometry::new(&spec).expect("a sound array");
    let info = NullDevice::new(geometry.capacity_blocks(), BlockSize::B4096).info();
    let case = Case { aim, cores: 2, ..Case::array(Level::Raid6, 8) };
    let stripe = |pattern: &Pattern, nth: u64| {
        let place = pattern.stride.map_or(nth, |stride| stride.place(nth));
        let block = pattern.first + place * u64::from(pattern.blocks);
        assert!(block < geometry.capacity_blocks(), "{aim:?}: {block} is behind the end");
        block / geometry.stripe_data_blocks()
    };
    let stripes = |pattern: &Pattern| (0..pattern.places).map(|nth| stripe(pattern, nth)).collect();
    (case.patterns(&info, Some(&geometry)).iter().map(stripes).collect(), geometry)
}

#[test]
fn cores_use_what_they_are_aimed_at() {
    let all = |geometry: &Geometry| (0..geometry.stripes()).collect::<BTreeSet<u64>>();
    let first = || BTreeSet::from([0]);
    let (used, geometry) = check(Aim::Everywhere);
    assert_eq!(used, [all(&geometry), all(&geometry)]);
    assert_eq!(check(Aim::OneStripe).0, [first(), first()]);
    assert_eq!(check(Aim::FirstAlone).0, [all(&geometry)]);
    assert_eq!(check(Aim::OthersOnOneStripe).0, [all(&geometry), first()]);
}

#[test]
fn the_rows_of_one_core_are_those_it_owns() {
    let (used, geometry) = check(Aim::OneCore);
    let regions = Regions::new(&geometry);
    let is_owned = |stripe: &u64| {
        let region = regions.region_of(StripeIndex(*stripe));
        let is_whole = regions.stripes(region).count() as u64 == regions.stripes_per_region();
        is_whole && regions.owner(region, 2) == CoreIndex(0)
    };
    let owned: BTreeSet<u64> = (0..geometry.stripes()).filter(is_owned).collect();
    assert!(owned.len() > 20, "{}", owned.len());
    assert_eq!(used, [owned.clone(), owned]);
}
