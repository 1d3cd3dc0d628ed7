//! Tests that the list of findings is bounded, and that adjacent equal findings are merged.

use strake_raid::{Geometry, GeometrySpec, Level, Regions};
use strake_units::{BlockSize, Lba, LbaRange, MemberIndex, Nanos, RegionIndex, StripeIndex};

use super::*;
use crate::limits::SCRUB_FINDINGS_MAX;

fn geometry() -> Geometry {
    let spec = GeometrySpec {
        level: Level::Raid6,
        members: 4,
        group_size: None,
        strip_bytes: 64 << 10,
        block_size: BlockSize::B4096,
        member_blocks: 1 << 18,
    };
    Geometry::new(&spec).expect("sound")
}

fn finding(member: u8, row: u64, blocks: u64) -> ScrubFinding {
    ScrubFinding {
        verdict: ScrubVerdict::DataWrong,
        member: Some(MemberIndex(member)),
        stripe: StripeIndex(row / 16),
        rows: LbaRange::new(Lba(row), blocks),
        array: LbaRange::new(Lba(2 * row), blocks),
        repaired: false,
    }
}

fn reported(findings: &[ScrubFinding]) -> (Vec<ScrubFinding>, u64) {
    let mut shared = SharedScrub::new(geometry());
    assert!(shared.begin(ScrubMode::Check, ScrubState::Running, 1));
    for finding in findings {
        shared.report((0, 1), &ScrubReport { findings: vec![*finding] }, Nanos(0));
    }
    (shared.findings(), shared.status().expect("it was begun").unlisted)
}

#[test]
fn like_findings_that_adjoin_are_one() {
    let check = |findings: &[ScrubFinding], want: &[(u64, u64)]| {
        let rows: Vec<(u64, u64)> =
            reported(findings).0.iter().map(|f| (f.rows.start.0, f.rows.blocks)).collect();
        assert_eq!(rows, want, "{findings:?}");
    };
    check(&[finding(1, 0, 2), finding(1, 2, 3)], &[(0, 5)]);
    check(&[finding(1, 2, 3), finding(1, 0, 2)], &[(0, 5)]);
    check(&[finding(1, 0, 2), finding(1, 3, 1)], &[(0, 2), (3, 1)]);
    check(&[finding(1, 0, 2), finding(2, 2, 1)], &[(0, 2), (2, 1)]);
    check(
        &[finding(1, 0, 2), ScrubFinding { repaired: true, ..finding(1, 2, 1) }],
        &[(0, 2), (2, 1)],
    );
}

#[test]
fn what_does_not_fit_is_counted() {
    let many: Vec<ScrubFinding> =
        (0..SCRUB_FINDINGS_MAX as u64 + 7).map(|n| finding(1, 2 * n, 1)).collect();
    let (listed, unlisted) = reported(&many);
    assert_eq!((listed.len(), unlisted), (SCRUB_FINDINGS_MAX, 7));
}

#[test]
fn findings_are_reported_once_a_minute() {
    let mut shared = SharedScrub::new(geometry());
    assert!(shared.begin(ScrubMode::Check, ScrubState::Running, 1));
    let report = ScrubReport { findings: vec![finding(1, 0, 1)] };
    let mut check = |number, seconds: u64, want: Option<u64>| {
        let reported = shared.report((0, number), &report, Nanos(seconds * Nanos::SECOND.0));
        assert_eq!(reported.map(|counts| counts.wrong / 4096), want, "after {seconds} s");
    };
    check(1, 100, Some(1));
    check(1, 159, None);
    check(1, 160, Some(3));
    // Reports for a finished scrub are ignored.
    check(7, 300, None);
}

#[test]
fn one_scrub_at_a_time() {
    let mut shared = SharedScrub::new(geometry());
    assert!(!shared.change(ScrubState::Paused));
    assert!(shared.begin(ScrubMode::Check, ScrubState::Running, 2));
    assert!(!shared.begin(ScrubMode::Check, ScrubState::Running, 2));
    assert!(shared.change(ScrubState::Paused));
    assert!(!shared.change(ScrubState::Paused));
    assert!(!shared.begin(ScrubMode::Check, ScrubState::Running, 2));
    assert!(shared.change(ScrubState::Running));
    assert!(!shared.shard_done(1));
    assert!(shared.shard_done(1));
    assert!(!shared.change(ScrubState::Stopped), "it is over");
    assert!(shared.begin(ScrubMode::Repair, ScrubState::Running, 2));
    assert_eq!(shared.status().map(|s| (s.number, s.state)), Some((2, ScrubState::Running)));
}

/// Findings in an unfinished region will be found again, except repaired findings.
#[test]
fn a_position_holds_what_is_not_found_again() {
    let mut shared = SharedScrub::new(geometry());
    assert!(shared.begin(ScrubMode::Repair, ScrubState::Running, 2));
    let region = |row: u64| Regions::new(&geometry()).region_of(StripeIndex(row / 16));
    let late = 1 << 17;
    let report = |shared: &mut SharedScrub, core, finding| {
        shared.report((core, 1), &ScrubReport { findings: vec![finding] }, Nanos(0));
    };
    report(&mut shared, 0, finding(1, 0, 1));
    report(&mut shared, 1, finding(2, late, 1));
    report(&mut shared, 1, ScrubFinding { repaired: true, ..finding(2, late + 1, 1) });
    assert!(shared.region_done((0, 1), region(0), (100, 10)));
    assert_eq!(shared.status().map(|status| status.counts.wrong), Some(3 * 4096));
    let position = shared.position().expect("it was begun");
    let rows: Vec<u64> = position.findings.iter().map(|f| f.rows.start.0).collect();
    assert_eq!(rows, [0, late + 1]);
    assert!(matches!(position.done.as_slice(), [std::ops::Range { start: 0, end: 1 }]));
    let want = ScrubCounts {
        checked: 100,
        unchecked: 10,
        wrong: 2 * 4096,
        repaired: 4096,
        ..ScrubCounts::default()
    };
    assert_eq!(position.counts, want);
    let mut next = SharedScrub::new(geometry());
    assert!(next.take_up(&position, 3));
    assert_eq!(next.position(), Some(position));
    assert_eq!(next.next(RegionIndex(0), (0, 3)), Some(RegionIndex(3)), "the first is done");
    assert_eq!(next.next(RegionIndex(0), (1, 3)), Some(RegionIndex(1)));
    report(&mut next, 0, finding(2, late, 1));
    assert_eq!(next.findings().len(), 3, "what was put right is listed once");
}
