use super::{PARTS_MAX, has_small_writes};
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

/// What the planner makes of a write of one block, and what small writes do.
fn check(geometry: &Geometry) {
    let parts = usize::from(geometry.copies().max(1 + geometry.parity_strips()));
    for at in (0..geometry.capacity_blocks()).step_by(77).take(200) {
        let place = geometry.place(Lba(at));
        let index = (place.offset / geometry.band_blocks()) as u16;
        let band = Band { stripe: place.stripe, index };
        let segments = geometry.segments(band, LbaRange::new(Lba(at), 1));
        let health = StripeHealth { parity_trusted: true, ..StripeHealth::default() };
        let query =
            Query { band, health, segments: &segments, purpose: Purpose::Write, copy_hint: 0 };
        let plan = plan(geometry, &query).expect("nothing is hidden");
        let small = match plan.strategy {
            Strategy::Direct => plan.reads.is_empty(),
            Strategy::ReadModifyWrite => true,
            Strategy::FullStripe | Strategy::ReconstructWrite | Strategy::Degraded => false,
        };
        assert_eq!(has_small_writes(geometry), small && parts <= PARTS_MAX, "{geometry:?}");
        if !has_small_writes(geometry) {
            continue;
        }
        assert_eq!(plan.writes.len(), parts, "{plan:?}");
        // The same when a member is missing that it does not need.
        let written: PositionSet = plan.writes.iter().map(|write| write.position).collect();
        for position in geometry.all_positions() - written {
            let health = StripeHealth { absent: PositionSet::of(position), ..health };
            let without = strake_raid::plan(geometry, &Query { health, ..query });
            let without = without.expect("one may be missing");
            assert_eq!(without.strategy, plan.strategy, "{geometry:?} without {position}");
            assert_eq!(without.reads, plan.reads, "{geometry:?} without {position}");
            assert_eq!(without.writes, plan.writes, "{geometry:?} without {position}");
        }
    }
}

#[test]
fn a_small_write_is_what_the_planner_would_do() {
    for members in 2..=12 {
        check(&geometry(Level::Raid0, members, None));
        if members <= 8 {
            check(&geometry(Level::Raid1, members, None));
        }
        for (level, parities) in [(Level::Raid5, 1), (Level::Raid6, 2), (Level::Raid73, 3)] {
            if members > parities + 1 {
                check(&geometry(level, members, None));
            }
        }
    }
    check(&geometry(Level::Raid10, 8, None));
    check(&geometry(Level::Raid60, 16, Some(8)));
}
