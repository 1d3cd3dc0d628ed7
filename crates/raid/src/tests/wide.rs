//! Tests of wide arrays and large strips, with many cases from a fixed sequence, because an enumeration is not
//! possible.

use strake_units::{BlockSize, Lba, LbaRange, MemberSet, PositionSet};

use super::interpret::run;
use super::oracle::{World, mix};
use crate::{Geometry, GeometrySpec, Level, Purpose, Query, StripeHealth, plan};

/// A fixed sequence of numbers (xorshift64, Marsaglia 2003), the same on every run.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Returns `count` different members.
    fn members(&mut self, count: u64, of: usize) -> MemberSet {
        let mut members = MemberSet::EMPTY;
        while (members.len() as u64) < count {
            members.insert(self.below(of as u64) as usize);
        }
        members
    }
}

fn new(lba: u64) -> u8 {
    mix(lba ^ 0xcafe << 40)
}

/// Writes, reads and rebuilds `count` random ranges, with the maximum number of absent members that the array survives.
fn check(level: Level, members: usize, group_size: Option<u8>, count: u64) {
    let strip_bytes = 256 * 1024;
    let geometry = Geometry::new(&GeometrySpec {
        level,
        members,
        group_size,
        strip_bytes,
        block_size: BlockSize::B4096,
        member_blocks: 3 * 64,
    })
    .unwrap_or_else(|error| panic!("{error}"));
    let before = World::consistent(geometry);
    let mut sequence = Sequence(0x5eed ^ members as u64);
    for _ in 0..count {
        let faults =
            sequence.below(u64::from(geometry.parity_strips().max(geometry.copies() - 1)) + 1);
        let absent = sequence.members(faults, members);
        if !geometry.tolerates(absent) {
            continue;
        }
        let start = sequence.below(geometry.capacity_blocks());
        let blocks = 1 + sequence.below((geometry.capacity_blocks() - start).min(90));
        let range = LbaRange::new(Lba(start), blocks);
        let trusted = sequence.below(2) == 0;
        check_range(&before, absent, range, trusted);
    }
}

fn check_range(before: &World, absent: MemberSet, range: LbaRange, parity_trusted: bool) {
    let geometry = before.geometry;
    let mut world = before.clone();
    for band in geometry.bands(range) {
        let absent = geometry.positions_of_members(band.stripe, absent);
        let unreadable = PositionSet::EMPTY;
        let health = StripeHealth { absent, unreadable, parity_trusted };
        let segments = geometry.segments(band, range);
        for (purpose, health) in [
            (Purpose::Write, health),
            (Purpose::Read, health),
            (Purpose::Rebuild { targets: absent }, health),
            (Purpose::Read, StripeHealth { parity_trusted: true, ..StripeHealth::default() }),
        ] {
            let query = Query { band, health, segments: &segments, purpose, copy_hint: 3 };
            let plan = plan(&geometry, &query).unwrap_or_else(|lost| panic!("{lost}: {query:?}"));
            let answer = run(&mut world, &query, &plan, new);
            if purpose == Purpose::Read {
                let want: Vec<u8> = segments
                    .iter()
                    .flat_map(|s| (0..u64::from(s.blocks)).map(|block| new(s.lba.0 + block)))
                    .collect();
                assert_eq!(answer, want, "{query:?}\n{plan:?}");
            }
        }
    }
}

#[test]
fn wide_arrays_of_every_scheme() {
    check(Level::Raid0, 64, None, 100);
    check(Level::Raid1, 8, None, 100);
    check(Level::Raid10, 64, None, 100);
    check(Level::Raid5, 64, None, 40);
    check(Level::Raid6, 24, None, 40);
    check(Level::Raid73, 16, None, 40);
    check(Level::Raid60, 60, Some(10), 60);
}

#[test]
fn the_widest_parity() {
    check(Level::Parity(4), 12, None, 40);
    check(Level::Parity(32), 64, None, 4);
}
