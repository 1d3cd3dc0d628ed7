use strake_units::{MemberIndex, MemberSet, RegionIndex};

use super::RebuildTable;

/// Rebuilds all regions in `lacking`, and returns them in the order of the rebuild. The level tolerates two failures.
fn order(lacking: &[u64], rebuilding: u64) -> Vec<u32> {
    let lacking: Vec<MemberSet> = lacking.iter().copied().map(MemberSet::from_bits).collect();
    let rebuilding = MemberSet::from_bits(rebuilding);
    let mut table = RebuildTable::new(0, 1, &lacking);
    let mut order = Vec::new();
    while let Some((region, lacked)) =
        table.next(rebuilding, |lost| 2u8.checked_sub(lost.len() as u8))
    {
        order.push(region.0);
        lacked.iter().for_each(|member| table.complete(member, region));
        assert!(order.len() <= lacking.len(), "a region comes twice: {order:?}");
    }
    order
}

/// While two members are rebuilt, one more failure loses data only in regions that both members lack. These regions are
/// rebuilt first, regardless of their position.
#[test]
fn the_most_endangered_regions_are_rebuilt_first() {
    assert_eq!(order(&[0b01, 0b01, 0b11, 0b10, 0b11], 0b11), [2, 4, 0, 1, 3]);
    assert_eq!(order(&[0b10, 0b01, 0, 0b01], 0b11), [0, 1, 3], "the same danger: from the start");
    assert_eq!(
        order(&[0b111, 0b011, 0b111], 0b111),
        [0, 2, 1],
        "one too many comes before none left"
    );
    assert_eq!(
        order(&[0b01, 0b11], 0b01),
        [0, 1],
        "members that are not being rebuilt do not count"
    );
}

/// A second member fails during the rebuild of the first member: regions that both lack now are rebuilt before the
/// others.
#[test]
fn what_becomes_endangered_in_the_middle_overtakes_the_rest() {
    let mut table = RebuildTable::new(0, 1, &[MemberSet::of(0); 6]);
    let left = |lost: MemberSet| 2u8.checked_sub(lost.len() as u8);
    for region in 0..2 {
        let first = MemberSet::of(0);
        assert_eq!(table.next(first, left), Some((RegionIndex(region), first)));
        table.complete(MemberIndex(0), RegionIndex(region));
    }
    table.start(MemberIndex(1));
    let mut bitmap = strake_ondisk::Bits::new(6);
    [0, 4].into_iter().for_each(|region| bitmap.set(region));
    table.keep_only(MemberIndex(1), &bitmap);
    let both = MemberSet::first_n(2);
    assert_eq!(table.next(both, left), Some((RegionIndex(4), both)), "both lack it");
}
