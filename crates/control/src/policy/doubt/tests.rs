use strake_engine::{ScrubFinding, ScrubVerdict};
use strake_raid::{Geometry, GeometrySpec, Level};
use strake_units::{BlockSize, Lba, LbaRange, MemberIndex, MemberSet, StripeIndex};

use super::{holds, joined, suspect_without, words};
use crate::limits::SUSPECT_RANGES_MAX;

fn geometry(level: Level, members: usize, group_size: Option<u8>) -> Geometry {
    let spec = GeometrySpec {
        level,
        members,
        group_size,
        strip_bytes: 64 << 10,
        block_size: BlockSize::B4096,
        member_blocks: 1 << 18,
    };
    Geometry::new(&spec).expect("sound")
}

/// Returns a finding in two blocks of each strip of a stripe; the array has 32 blocks of it.
fn finding(verdict: ScrubVerdict, member: Option<u8>, stripe: u64, row: u64) -> ScrubFinding {
    ScrubFinding {
        verdict,
        member: member.map(MemberIndex),
        stripe: StripeIndex(stripe),
        rows: LbaRange::new(Lba(row * 16 + 3), 2),
        array: LbaRange::new(Lba(stripe * 32), 32),
        repaired: false,
    }
}

fn out(members: &[u8]) -> MemberSet {
    members.iter().fold(MemberSet::EMPTY, |set, member| set.with(MemberIndex(*member)))
}

/// Returns the ranges that `members` hold in the rows of a finding.
fn held(geometry: &Geometry, members: &[u8], finding: &ScrubFinding) -> Vec<(u64, u64)> {
    let data = members.iter().filter_map(|m| geometry.data_at(MemberIndex(*m), finding.rows.start));
    let mut ranges: Vec<_> = data.map(|at| (at.0 * 4096, 8192)).collect();
    ranges.sort_unstable();
    ranges
}

#[test]
fn a_member_is_suspect_where_stripes_are_inconsistent() {
    let five = geometry(Level::Raid5, 3, None);
    let differs = finding(ScrubVerdict::ParityDiffers, None, 4, 4);
    let without = |members: &[u8], finding| suspect_without(out(members), &[finding], false, &five);
    let mut sizes: Vec<usize> = (0..3).map(|m| without(&[m], differs).len()).collect();
    for member in 0..3 {
        assert_eq!(without(&[member], differs), held(&five, &[member], &differs));
    }
    sizes.sort_unstable();
    assert_eq!(sizes, [0, 1, 1], "two have data there, and one has parity");
    assert_eq!(without(&[], differs), [], "all serve");
    let repaired = ScrubFinding { repaired: true, ..differs };
    assert_eq!(without(&[0], repaired), []);
    let unreadable = finding(ScrubVerdict::Unreadable, Some(1), 4, 4);
    assert_eq!(without(&[0], unreadable), [], "these are listed as lost");
    let all = five.capacity_blocks() * 4096;
    assert_eq!(suspect_without(out(&[0]), &[differs], true, &five), [(0, all)], "anywhere");
    let long = ScrubFinding { rows: LbaRange::new(Lba(0), 1 << 17), ..differs };
    assert_eq!(without(&[0], long), [(4 * 32 * 4096, 32 * 4096)], "from the first to the last");
    let zero = geometry(Level::Raid0, 3, None);
    assert_eq!(suspect_without(out(&[0]), &[differs], false, &zero), [], "nothing is computed");
}

/// Wrong blocks of a member are not used when the member is out.
#[test]
fn a_member_that_is_wrong_may_go() {
    let six = geometry(Level::Raid6, 4, None);
    let wrong = finding(ScrubVerdict::DataWrong, Some(2), 4, 4);
    let without = |members: &[u8]| suspect_without(out(members), &[wrong], false, &six);
    assert_eq!(without(&[2]), []);
    assert_eq!(without(&[1, 2]), []);
    for member in [0, 1, 3] {
        assert_eq!(without(&[member]), held(&six, &[member], &wrong));
    }
}

#[test]
fn only_the_group_of_a_member_is_suspect() {
    let fifty = geometry(Level::Raid50, 6, Some(3));
    let findings = [0, 1].map(|stripe| finding(ScrubVerdict::ParityDiffers, None, stripe, 0));
    let without = |members: &[u8]| suspect_without(out(members), &findings, false, &fifty);
    assert_eq!(without(&[0, 1, 2]), held(&fifty, &[0, 1, 2], &findings[0]));
    assert_eq!(without(&[3, 4, 5]), held(&fifty, &[3, 4, 5], &findings[1]));
    assert_eq!(without(&[0, 1, 2, 3, 4, 5]).len(), 4);
}

/// The copies of one strip differ; other members hold other strips in the same rows.
#[test]
fn of_copies_only_those_that_differ_are_suspect() {
    let ten = geometry(Level::Raid10, 4, None);
    let strip = LbaRange::new(Lba(16), 16);
    let differ = ScrubFinding { array: strip, ..finding(ScrubVerdict::CopiesDiffer, None, 0, 0) };
    let without = |member: u8| suspect_without(out(&[member]), &[differ], false, &ten);
    let counts: Vec<usize> = (0..4).map(|member| without(member).len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 2, "{counts:?}");
    assert!((0..4).flat_map(without).all(|range| range == (19 * 4096, 8192)));
}

#[test]
fn ranges_are_joined_and_bounded() {
    assert_eq!(joined(vec![(8, 4), (0, 4), (4, 4), (20, 1), (21, 2), (8, 2)]), [(0, 12), (20, 3)]);
    let many: Vec<_> = (0..2 * SUSPECT_RANGES_MAX as u64).map(|at| (10 * at, 5)).collect();
    let few = joined(many.clone());
    assert_eq!(few.len(), SUSPECT_RANGES_MAX);
    for range in many {
        assert!(few.iter().any(|known| holds(*known, range)), "{range:?}");
    }
    assert_eq!(
        words(&[(0, 4096), (8192, 4096)]),
        "8 KiB (at byte offset+length 0+4096, 8192+4096)"
    );
}
