use strake_raid::{Band, Geometry, GeometrySpec, Level};
use strake_units::{BlockSize, LbaRange, StripeIndex};

use super::{AgreedStrips, GROUP, PLACES};

/// Returns a geometry with stripes of two bands.
fn geometry(level: Level, members: usize) -> Geometry {
    let (strip_bytes, block_size) = (256 << 10, BlockSize::B4096);
    let member_blocks = 1 << 30;
    let spec =
        GeometrySpec { level, members, group_size: None, strip_bytes, block_size, member_blocks };
    Geometry::new(&spec).expect("sound")
}

fn band(stripe: u64, index: u16) -> Band {
    Band { stripe: StripeIndex(stripe), index }
}

#[test]
fn what_was_noted_agrees_and_nothing_else() {
    let geometry = geometry(Level::Raid10, 6);
    let mut table = AgreedStrips::new();
    table.note(&geometry, band(41, 1), 1..2);
    for (stripe, index) in (0..100).flat_map(|stripe| [(stripe, 0), (stripe, 1)]) {
        for strip in 0..3 {
            let noted = (stripe, index, strip) == (41, 1, 1);
            assert_eq!(table.contains(&geometry, band(stripe, index), strip), noted);
        }
    }
    table.note(&geometry, band(41, 1), 2..3);
    assert!(!table.contains_all(&geometry, band(41, 1)), "strip 0 was not noted");
    table.note(&geometry, band(41, 1), 0..3);
    assert!(table.contains_all(&geometry, band(41, 1)));
    assert!(!table.contains_all(&geometry, band(41, 0)));
}

/// A group that evicts another group has none of its strips.
#[test]
fn a_full_table_forgets_and_invents_nothing() {
    let geometry = geometry(Level::Raid1, 2);
    let mut table = AgreedStrips::new();
    let number = |group: u64, strip: u64| {
        let number = group * GROUP + strip % GROUP;
        band(number / 2, (number % 2) as u16)
    };
    let noted =
        |table: &AgreedStrips| table.places.iter().filter(|place| place.strips != 0).count();
    let groups = 2 * PLACES as u64;
    for group in 0..groups {
        let is_sampled = group.is_multiple_of(101);
        let had_place = table.part(&geometry, number(group, group), 0).is_some();
        let before = is_sampled.then(|| noted(&table));
        table.note(&geometry, number(group, group), 0..1);
        let displaced = before.map(|before| noted(&table) == before);
        assert!(displaced.is_none_or(|displaced| displaced != had_place), "{group}: {had_place}");
        assert!(table.contains(&geometry, number(group, group), 0), "it was noted last");
    }
    let mut left = 0;
    for group in 0..groups {
        left += u64::from(table.contains(&geometry, number(group, group), 0));
        let others = (1..GROUP).map(|strip| number(group, group + strip));
        assert!(others.into_iter().all(|other| !table.contains(&geometry, other, 0)));
    }
    assert!(left > groups / 3 && left <= PLACES as u64, "{left} of {groups} are left");
}

#[test]
fn a_part_is_all_of_the_band_in_the_strip() {
    let geometry = geometry(Level::Raid10, 6);
    let blocks = geometry.band_blocks();
    let part = AgreedStrips::new().part(&geometry, band(5, 1), 2).expect("the table is empty");
    assert_eq!((part.strip, part.offset, part.blocks), (2, blocks, blocks));
    assert_eq!(geometry.segments(band(5, 1), LbaRange::new(part.lba, blocks.into()))[..], [part]);
}

#[test]
fn an_array_whose_copies_agree_needs_no_table() {
    let geometry = geometry(Level::Raid1, 2);
    let mut table = AgreedStrips::none();
    table.note(&geometry, band(3, 0), 0..1);
    assert!(!table.contains(&geometry, band(3, 0), 0));
    assert!(!table.contains_all(&geometry, band(3, 0)));
    assert_eq!(table.part(&geometry, band(3, 0), 0), None);
}
