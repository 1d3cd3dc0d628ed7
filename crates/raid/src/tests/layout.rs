//! Tests of the layout: comparison with manually written tables, its inverse functions, and its required properties.

use strake_units::{BlockSize, Lba, MemberIndex, MemberSet, PositionSet, StripSet, StripeIndex};

use super::{SMALL, every_set, geometry};
use crate::{Geometry, GeometrySpec, Level, Place, Role, Scheme};

/// Draws stripes of one group: array strips by number, parities as P, Q, R.
fn drawing(geometry: &Geometry, stripes: impl Iterator<Item = u64>) -> Vec<String> {
    stripes
        .map(StripeIndex)
        .map(|stripe| {
            let cells: Vec<String> = (0..geometry.width())
                .map(|position| match geometry.role(stripe, position) {
                    Role::Data { strip, copy: _ } => {
                        let lba = geometry.lba(Place { stripe, strip, offset: 0 });
                        (lba.0 / u64::from(geometry.strip_blocks())).to_string()
                    }
                    Role::Parity { index } => ["P", "Q", "R"][usize::from(index)].to_string(),
                })
                .collect();
            cells.join(" ")
        })
        .collect()
}

/// The tables are from the drawings of left-symmetric RAID 5 and RAID 6 in md(4) and `drivers/md/raid5.c`: data starts
/// after the last parity and wraps around, and parity moves left by one in each stripe.
#[test]
fn parity_layouts_are_those_of_md() {
    let check = |level: Level, members: usize, want: &[&str]| {
        let geometry = geometry(level, members, None, 2, want.len() as u64);
        assert_eq!(drawing(&geometry, 0..want.len() as u64), want, "RAID {level}");
    };
    check(
        Level::Raid5,
        5,
        &[
            "0 1 2 3 P",
            "5 6 7 P 4",
            "10 11 P 8 9",
            "15 P 12 13 14",
            "P 16 17 18 19",
            "20 21 22 23 P",
        ],
    );
    check(
        Level::Raid6,
        5,
        &["Q 0 1 2 P", "3 4 5 P Q", "7 8 P Q 6", "11 P Q 9 10", "P Q 12 13 14", "Q 15 16 17 P"],
    );
    check(Level::Raid73, 5, &["Q R 0 1 P", "R 2 3 P Q", "4 5 P Q R", "7 P Q R 6", "P Q R 8 9"]);
}

#[test]
fn copies_stand_side_by_side() {
    let check = |level: Level, members: usize, want: &[&str]| {
        let geometry = geometry(level, members, None, 2, want.len() as u64);
        assert_eq!(drawing(&geometry, 0..want.len() as u64), want, "RAID {level}");
    };
    check(Level::Raid0, 3, &["0 1 2", "3 4 5"]);
    check(Level::Raid1, 3, &["0 0 0", "1 1 1"]);
    check(Level::Raid10, 6, &["0 0 1 1 2 2", "3 3 4 4 5 5"]);
}

#[test]
fn groups_take_turns() {
    let geometry = geometry(Level::Raid50, 6, Some(3), 2, 3);
    assert_eq!(drawing(&geometry, (0..6).step_by(2)), ["0 1 P", "5 P 4", "P 8 9"]);
    assert_eq!(drawing(&geometry, (1..6).step_by(2)), ["2 3 P", "7 P 6", "P 10 11"]);
    assert_eq!(geometry.member(StripeIndex(0), 2), MemberIndex(2));
    assert_eq!(geometry.member(StripeIndex(1), 2), MemberIndex(5));
    assert_eq!(geometry.position_of_member(StripeIndex(1), MemberIndex(5)), Some(2));
    assert_eq!(geometry.position_of_member(StripeIndex(2), MemberIndex(5)), None);
    assert_eq!(geometry.member_lba(StripeIndex(4), 1), Lba(5));
    assert_eq!(geometry.member_lba(StripeIndex(5), 1), Lba(5));
    let members = MemberSet::of(0).with(4).with(5);
    let positions = |stripe| geometry.positions_of_members(StripeIndex(stripe), members);
    assert_eq!(positions(0), PositionSet::of(0));
    assert_eq!(positions(1), PositionSet::of(1).with(2));
}

/// Returns small arrays of every kind, and the widest arrays.
fn arrays() -> impl Iterator<Item = Geometry> {
    let wide = [
        (Level::Raid0, 64, None),
        (Level::Raid10, 64, None),
        (Level::Raid1, 8, None),
        (Level::Raid5, 64, None),
        (Level::Raid6, 64, None),
        (Level::Parity(32), 64, None),
        (Level::Raid60, 64, Some(16)),
    ];
    SMALL.into_iter().chain(wide).map(|(level, members, groups)| {
        let rows = groups.map_or(members as u64, u64::from) + 1;
        geometry(level, members, groups, 4, rows)
    })
}

#[test]
fn place_and_address_are_inverse_and_no_member_block_is_used_twice() {
    for geometry in arrays() {
        let mut used = vec![false; geometry.members() * geometry.member_blocks_used() as usize];
        for lba in (0..geometry.capacity_blocks()).map(Lba) {
            let place = geometry.place(lba);
            assert_eq!(geometry.lba(place), lba);
            assert!(place.strip < geometry.data_strips() && place.offset < geometry.strip_blocks());
            assert!(place.stripe.0 < geometry.stripes());
            for copy in 0..geometry.copies() {
                let role = Role::Data { strip: place.strip, copy };
                let position = geometry.position(place.stripe, role);
                let member = geometry.member(place.stripe, position).at();
                let at = geometry.member_lba(place.stripe, place.offset).0;
                let index = member * geometry.member_blocks_used() as usize + at as usize;
                assert!(!std::mem::replace(&mut used[index], true), "{geometry:?} {lba}");
                assert_eq!(geometry.data_at(MemberIndex(member as u8), Lba(at)), Some(lba));
            }
        }
        for (index, used) in used.iter().enumerate() {
            let blocks = geometry.member_blocks_used() as usize;
            let (member, at) = (MemberIndex((index / blocks) as u8), Lba((index % blocks) as u64));
            assert_eq!(geometry.data_at(member, at).is_some(), *used, "{member} {at}");
            assert_eq!(geometry.data_at(member, Lba(at.0 + blocks as u64)), None);
        }
        let blocks = geometry.capacity_blocks() as usize * usize::from(geometry.copies());
        assert_eq!(used.iter().filter(|used| **used).count(), blocks);
    }
}

#[test]
fn role_and_position_are_inverse() {
    for geometry in arrays() {
        for stripe in (0..geometry.stripes()).map(StripeIndex) {
            let mut roles = Vec::new();
            for position in 0..geometry.width() {
                let role = geometry.role(stripe, position);
                assert_eq!(geometry.position(stripe, role), position);
                assert!(!roles.contains(&role), "{geometry:?} {role:?}");
                roles.push(role);
                let member = geometry.member(stripe, position);
                assert!(member.at() < geometry.members());
                assert_eq!(geometry.position_of_member(stripe, member), Some(position));
            }
        }
    }
}

#[test]
fn sets_of_positions_turn_into_sets_of_strips() {
    for geometry in arrays() {
        let Scheme::Parity(_) = geometry.scheme() else {
            let first = Role::Data { strip: 0, copy: 0 };
            let last = Role::Data { strip: geometry.data_strips() - 1, copy: 0 };
            for (strip, role) in [(0, first), (geometry.data_strips() - 1, last)] {
                let want = geometry.position(StripeIndex(1), role);
                assert_eq!(geometry.position_of_strip(StripeIndex(1), strip), want);
            }
            continue;
        };
        for stripe in (0..geometry.stripes()).map(StripeIndex) {
            for strip in 0..geometry.width() {
                let position = geometry.position_of_strip(stripe, strip);
                assert_eq!(position, super::oracle::strip_position(&geometry, stripe, strip));
                let found = geometry.strips_of_positions(stripe, PositionSet::of(position));
                assert_eq!(found, StripSet::of(strip));
            }
            let all = StripSet::first_n(geometry.width().into());
            assert_eq!(geometry.strips_of_positions(stripe, PositionSet::ALL), all);
        }
    }
}

#[test]
fn capacities_and_sizes() {
    let check = |level, members, group_size, want: (u8, u8, u64)| {
        let geometry = Geometry::new(&GeometrySpec {
            level,
            members,
            group_size,
            strip_bytes: 256 * 1024,
            block_size: BlockSize::B512,
            // The member has one hundred strips and an unused remainder.
            member_blocks: 100 * 512 + 511,
        })
        .unwrap_or_else(|error| panic!("{error}"));
        let got = (geometry.width(), geometry.data_strips(), geometry.capacity_blocks() / 512);
        assert_eq!(got, want, "{level}");
        assert_eq!((geometry.strip_blocks(), geometry.band_blocks()), (512, 256));
        assert_eq!((geometry.bands_per_stripe(), geometry.member_blocks_used()), (2, 51_200));
        assert_eq!(geometry.stripes() * geometry.stripe_data_blocks(), geometry.capacity_blocks());
        assert_eq!(geometry.members(), members);
        assert_eq!(geometry.strip_bytes(), 256 * 1024);
    };
    check(Level::Raid0, 8, None, (8, 8, 800));
    check(Level::Raid1, 3, None, (3, 1, 100));
    check(Level::Raid10, 8, None, (8, 4, 400));
    check(Level::Raid5, 8, None, (8, 7, 700));
    check(Level::Raid6, 8, None, (8, 6, 600));
    check(Level::Raid73, 8, None, (8, 5, 500));
    check(Level::Parity(4), 8, None, (8, 4, 400));
    check(Level::Raid50, 8, Some(4), (4, 3, 600));
    check(Level::Raid60, 8, Some(4), (4, 2, 400));
    check(Level::Raid70, 10, Some(5), (5, 2, 400));
}

/// The redundancy is by definition the largest number for which the array survives every set of this many further
/// failures. An array survives failures if the remaining members determine every block.
#[test]
fn redundancy_is_the_worst_case() {
    for (level, members, group_size) in SMALL.into_iter().filter(|(_, members, _)| *members <= 8) {
        let geometry = geometry(level, members, group_size, 1, 1);
        let world = super::oracle::World::consistent(geometry);
        let readable = |absent: MemberSet| {
            (0..geometry.capacity_blocks()).map(Lba).all(|lba| {
                let stripe = geometry.place(lba).stripe;
                world.content(lba, geometry.positions_of_members(stripe, absent)).is_some()
            })
        };
        let all = || every_set(members as u8);
        let survived: Vec<bool> = all().map(readable).collect();
        let survived = |set: MemberSet| survived[set.bits() as usize];
        for absent in all() {
            assert_eq!(geometry.tolerates(absent), survived(absent), "{level} {absent:?}");
            let survives = |further: usize| {
                all()
                    .filter(|set| absent.is_subset(*set) && (*set - absent).len() == further)
                    .all(survived)
            };
            let want = (0..=members - absent.len()).take_while(|further| survives(*further)).last();
            assert_eq!(geometry.redundancy(absent).map(usize::from), want, "{level} {absent:?}");
        }
    }
}

#[test]
fn members_needed_to_read_everything_are_counted_exhaustive() {
    for (level, members, group_size) in SMALL.into_iter().filter(|(_, members, _)| *members <= 6) {
        let geometry = geometry(level, members, group_size, 1, 1);
        let all = || every_set(members as u8);
        for (absent, returning) in all().flat_map(|a| all().map(move |r| (a, r))) {
            let helps = |back: &MemberSet| geometry.tolerates(absent - (*back & returning));
            let want = all().filter(helps).map(|back| (back & returning & absent).len());
            let got = geometry.needed(absent, returning);
            assert_eq!(got, want.min(), "{level} {absent:?} {returning:?}");
        }
    }
}

/// The size of a member determines only the number of stripes. In a larger array, all existing blocks keep their
/// positions.
#[test]
fn a_larger_array_has_everything_where_it_was() {
    for small in arrays() {
        let strip = u64::from(small.strip_blocks());
        for more in [0, 1, strip - 1, strip, 7 * strip + 1] {
            let members = small.member_blocks_used() + more;
            let large = small.resized(members).expect("it is sound");
            assert_eq!(large.member_blocks_used(), members / strip * strip);
            assert_eq!(large.capacity_blocks() > small.capacity_blocks(), more >= strip);
            for lba in (0..small.capacity_blocks()).map(Lba) {
                let place = small.place(lba);
                assert_eq!(large.place(lba), place);
                assert_eq!(
                    large.member_lba(place.stripe, place.offset),
                    small.member_lba(place.stripe, place.offset)
                );
            }
            for stripe in (0..small.stripes()).map(StripeIndex) {
                for position in 0..small.width() {
                    assert_eq!(large.role(stripe, position), small.role(stripe, position));
                    assert_eq!(large.member(stripe, position), small.member(stripe, position));
                }
            }
        }
        assert!(small.resized(strip - 1).is_err(), "less than one row");
    }
}
