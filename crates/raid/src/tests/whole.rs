//! Tests of writes of whole stripes: such a write must be allowed exactly under its rules, and must then write what the
//! plan of the same request writes.

use strake_units::{Lba, LbaRange, MemberIndex, StripeIndex};

use super::single::{Fault, Known, WELL, every_known};
use super::{SMALL, geometry};
use crate::{
    Geometry, Level, Place, Purpose, Query, Strategy, StripeHealth, WholeStripe, plan, whole_stripe,
};

/// Checks the answer for `range`, and returns it.
fn check(geometry: &Geometry, range: LbaRange, known: &Known) -> Option<WholeStripe> {
    let answer = whole_stripe(geometry, range, &known.sets(geometry));
    let wanted = expected(geometry, range, known);
    assert_eq!(answer.map(|whole| whole.band().stripe), wanted, "{geometry:?} {range:?} {known:?}");
    if let Some(whole) = answer {
        check_parts(geometry, range, whole);
    }
    answer
}

/// The rule, written with the functions that tasks use.
fn expected(geometry: &Geometry, range: LbaRange, known: &Known) -> Option<StripeIndex> {
    let mut bands = geometry.bands(range);
    let (band, other) = (bands.next()?, bands.next());
    let is_inside = range.end().0 <= geometry.capacity_blocks();
    let covered: u64 = geometry.pieces(range).map(|piece| u64::from(piece.segment.blocks)).sum();
    let is_stripe = other.is_none() && covered == geometry.stripe_data_blocks();
    let members = (0..geometry.width()).map(|position| geometry.member(band.stripe, position));
    let takes_part = |member: MemberIndex| known.takes_part(geometry, member);
    let may = is_inside
        && is_stripe
        && (1..=4).contains(&geometry.parity_strips())
        && geometry.tolerates(known.with(Fault::Absent))
        && known.trusts()
        && !known.impaired
        && members.into_iter().all(takes_part);
    may.then_some(band.stripe)
}

/// Checks that the parts are the writes of the plan, in the order of the strips.
fn check_parts(geometry: &Geometry, range: LbaRange, whole: WholeStripe) {
    let band = whole.band();
    assert_eq!(whole.place(), Place { stripe: band.stripe, strip: 0, offset: 0 });
    assert_eq!(geometry.place(range.start), whole.place());
    assert_eq!(whole.data_strips(), geometry.data_strips());
    assert_eq!(whole.parts(), geometry.width());
    assert_eq!(whole.member_lba(), geometry.member_lba(band.stripe, 0));
    let health = StripeHealth { parity_trusted: true, ..StripeHealth::default() };
    let segments = &geometry.segments(band, range);
    let query = Query { band, health, segments, purpose: Purpose::Write, copy_hint: 0 };
    let plan = plan(geometry, &query).expect("nothing is missing");
    assert_eq!(plan.strategy, Strategy::FullStripe);
    assert!(plan.reads.is_empty());
    assert_eq!(plan.window.blocks, geometry.strip_blocks());
    let mut writes: Vec<(u8, MemberIndex)> = plan
        .writes
        .iter()
        .map(|write| (write.strip, geometry.member(band.stripe, write.position)))
        .collect();
    writes.sort_unstable();
    let parts: Vec<(u8, MemberIndex)> =
        (0..whole.parts()).map(|part| (part, whole.member(part))).collect();
    assert_eq!(parts, writes, "{geometry:?}");
}

fn stripe_of(geometry: &Geometry, stripe: u64) -> LbaRange {
    let blocks = geometry.stripe_data_blocks();
    LbaRange::new(Lba(stripe * blocks), blocks)
}

#[test]
fn exhaustive_faults_of_members_allow_whole_stripes_as_the_rules_say() {
    let mut allowed = 0;
    for (level, members, group_size) in SMALL {
        let width = group_size.unwrap_or(members as u8);
        let geometry = geometry(level, members, group_size, 8, width.into());
        for (at, known) in every_known(members.min(6) as u8).enumerate() {
            let range = stripe_of(&geometry, at as u64 % geometry.stripes());
            allowed += usize::from(check(&geometry, range, &known).is_some());
        }
    }
    assert!(allowed > 1000, "{allowed}");
}

#[test]
fn exhaustive_ranges_are_whole_stripes_if_they_are_nothing_else() {
    for (level, members, group_size) in SMALL {
        let width = group_size.unwrap_or(members as u8);
        let geometry = geometry(level, members, group_size, 4, width.into());
        let (capacity, blocks) = (geometry.capacity_blocks(), geometry.stripe_data_blocks());
        for start in 0..capacity + 2 {
            for blocks in [0, 1, blocks - 1, blocks, blocks + 1, 2 * blocks] {
                check(&geometry, LbaRange::new(Lba(start), blocks), &WELL);
            }
        }
        let far = LbaRange::new(Lba(u64::MAX - 1), blocks);
        assert_eq!(whole_stripe(&geometry, far, &WELL.sets(&geometry)), None);
    }
}

/// A stripe with several bands needs several tasks.
#[test]
fn a_stripe_of_two_bands_is_none() {
    for (strip_blocks, is_whole) in [(32, true), (64, false)] {
        let geometry = geometry(Level::Raid6, 8, None, strip_blocks, 8);
        let whole = whole_stripe(&geometry, stripe_of(&geometry, 1), &WELL.sets(&geometry));
        assert_eq!(whole.is_some(), is_whole);
    }
}

#[test]
fn wide_stripes_are_whole_too() {
    for (level, members, group_size) in [
        (Level::Raid6, 64, None),
        (Level::Raid73, 63, None),
        (Level::Parity(4), 12, None),
        (Level::Parity(5), 12, None),
        (Level::Raid60, 32, Some(16)),
    ] {
        let geometry = geometry(level, members, group_size, 8, 40);
        for stripe in 0..geometry.stripes().min(80) {
            check(&geometry, stripe_of(&geometry, stripe), &WELL);
        }
    }
}
