//! Tests which members reads avoid, and for how long.

use strake_units::{MemberIndex, MemberSet, Nanos};

use super::{Changed, PROBE_EVERY, SIT_OUT, SIT_OUT_MIN, SitOuts, outliers};

const NOTHING: Changed = Changed { began: MemberSet::EMPTY, ended: MemberSet::EMPTY };

fn millis(p99: &[u64]) -> Vec<Option<Nanos>> {
    // 0 means too few reads.
    p99.iter().map(|ms| (*ms > 0).then_some(Nanos(ms * Nanos::MILLI.0))).collect()
}

fn check(p99: &[u64], expected: u64) {
    assert_eq!(outliers(&millis(p99)), MemberSet::from_bits(expected), "{p99:?}");
}

#[test]
fn only_those_out_of_all_proportion_are_outliers() {
    check(&[1, 1, 1, 90], 0b1000);
    check(&[1, 90, 1, 1, 1, 80], 0b10_0010);
    check(&[1, 90], 0b10);
    // The member is only slightly slower, or fast nevertheless.
    check(&[1, 1, 1, 7], 0);
    check(&[1, 2, 3, 4, 5, 6, 7, 20], 0);
    // All members are slow at the same time.
    check(&[900, 950, 1000, 900], 0);
    // There are no peers, or there are no measurements.
    check(&[500], 0);
    check(&[0, 500, 0], 0);
    check(&[0, 1, 1, 500], 0b1000);
    check(&[], 0);
}

#[test]
fn a_peer_that_is_fast_enough_is_waited_for() {
    let micros = |us: u64| Some(Nanos(us * 1000));
    let p99 = [micros(80), micros(80), micros(80), micros(4000)];
    assert_eq!(outliers(&p99), MemberSet::EMPTY);
}

fn second(n: u64) -> Nanos {
    Nanos(n * Nanos::SECOND.0)
}

#[test]
fn an_outlier_sits_out_until_its_probes_are_good_again() {
    let mut sits = SitOuts::new();
    let slow = millis(&[1, 1, 200, 1]);
    assert_eq!(sits.judge(second(1), &slow, |_| true), NOTHING, "once is chance");
    let third = MemberSet::of(2);
    let (began, ended) = (Changed { began: third, ..NOTHING }, Changed { ended: third, ..NOTHING });
    assert_eq!(sits.judge(second(2), &slow, |_| true), began);
    assert_eq!(sits.members(), third);
    // Good probes count only after the minimum time, and missing probes never count.
    let good = millis(&[1, 1, 1, 1]);
    assert_eq!(sits.judge(second(3), &good, |_| true), NOTHING);
    let unknown = millis(&[1, 1, 0, 1]);
    let later = second(2).plus(SIT_OUT_MIN);
    assert_eq!(sits.judge(later, &unknown, |_| true), NOTHING);
    assert_eq!(sits.judge(later, &good, |_| true), ended);
    // Without probes, reads use the member again at the end of its time.
    let _ = sits.judge(second(100), &slow, |_| true);
    let _ = sits.judge(second(101), &slow, |_| true);
    let end = second(101).plus(SIT_OUT);
    assert_eq!(sits.judge(end, &unknown, |_| true), ended);
}

#[test]
fn no_member_is_left_out_when_the_stripes_need_it() {
    let mut sits = SitOuts::new();
    let two = millis(&[1, 300, 1, 300, 1, 1]);
    let one_at_most = |around: MemberSet| around.len() <= 1;
    for n in 1..5 {
        assert_eq!(sits.judge(second(n), &two, one_at_most), NOTHING);
    }
    // A member goes out while reads avoid another member: the other member is needed again immediately.
    let mut sits = SitOuts::new();
    let slow = millis(&[1, 300, 1, 1]);
    let _ = sits.judge(second(1), &slow, |_| true);
    let _ = sits.judge(second(2), &slow, |_| true);
    let changed = sits.judge(second(3), &slow, MemberSet::is_empty);
    assert_eq!(changed, Changed { ended: MemberSet::of(1), ..NOTHING });
}

#[test]
fn a_probe_goes_through_now_and_then() {
    let mut sits = SitOuts::new();
    let slow = millis(&[1, 300, 1, 1]);
    let _ = sits.judge(second(1), &slow, |_| true);
    let _ = sits.judge(second(2), &slow, |_| true);
    let around = (0..PROBE_EVERY * 10).filter(|_| sits.passes(MemberIndex(1))).count();
    assert_eq!(around, PROBE_EVERY as usize * 10 - 10);
    assert!(!sits.passes(MemberIndex(0)));
}
