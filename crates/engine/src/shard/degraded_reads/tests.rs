use super::survivors;
use strake_raid::{
    Band, Geometry, GeometrySpec, Level, Purpose, Query, Strategy, StripeHealth, plan,
};
use strake_units::{BlockSize, Lba, LbaRange, PositionSet};

fn geometry(level: Level, members: usize, group_size: Option<u8>) -> Geometry {
    let block_size = BlockSize::B4096;
    let (strip_bytes, member_blocks) = (64 << 10, 1 << 12);
    let spec = GeometrySpec { level, members, group_size, strip_bytes, block_size, member_blocks };
    Geometry::new(&spec).expect("a geometry")
}

/// What the planner reads for one block with these positions out of reach, and what degraded reads do.
fn check(geometry: &Geometry, absent: PositionSet, unreadable: PositionSet) {
    for at in (0..geometry.capacity_blocks()).step_by(77).take(200) {
        let place = geometry.place(Lba(at));
        let index = (place.offset / geometry.band_blocks()) as u16;
        let band = Band { stripe: place.stripe, index };
        let segments = geometry.segments(band, LbaRange::new(Lba(at), 1));
        let health = StripeHealth { absent, unreadable, parity_trusted: true };
        let query =
            Query { band, health, segments: &segments, purpose: Purpose::Read, copy_hint: 0 };
        let hidden = geometry.strips_of_positions(place.stripe, absent | unreadable);
        let found = survivors(geometry, place.strip, hidden);
        let what = format!("{geometry:?} {place:?} without {absent:?} and {unreadable:?}");
        let Ok(plan) = plan(geometry, &query) else {
            assert_eq!(found, None, "{what}");
            continue;
        };
        if plan.strategy == Strategy::Direct {
            assert_eq!(found, None, "{what}");
            continue;
        }
        let found = found.expect(&what);
        assert!(plan.reads.iter().map(|read| read.strip).eq(found), "{what}");
        let position = |strip| geometry.position_of_strip(place.stripe, strip);
        assert!(plan.reads.iter().all(|read| read.position == position(read.strip)), "{what}");
        let columns = |blocks, offset| (blocks, offset) == (1, place.offset);
        assert!(plan.reads.iter().all(|read| columns(read.blocks, read.offset)), "{what}");
        assert_eq!(plan.recover.as_slice(), [place.strip], "{what}");
        assert!(plan.writes.is_empty(), "{what}");
    }
}

#[test]
fn a_degraded_read_is_what_the_planner_would_do() {
    let shapes = [
        geometry(Level::Raid5, 3, None),
        geometry(Level::Raid5, 8, None),
        geometry(Level::Raid6, 4, None),
        geometry(Level::Raid6, 8, None),
        geometry(Level::Raid73, 9, None),
        geometry(Level::Raid60, 16, Some(8)),
    ];
    for geometry in &shapes {
        let width = geometry.width();
        for first in 0..width {
            for second in 0..width {
                let one = PositionSet::of(first);
                check(geometry, one, PositionSet::EMPTY);
                check(geometry, one, PositionSet::of(second) - one);
                check(geometry, one.with(second), PositionSet::EMPTY);
                check(geometry, one.with(second), PositionSet::of((second + 1) % width));
            }
        }
    }
}
