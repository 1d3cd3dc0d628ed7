//! Tests the combination of events of several pollers.

use super::Sleep;
use strake_block::Readiness;
use strake_units::Nanos;

/// Adds `wishes` in order, and checks the number of descriptors, the deadline, and the need to poll.
fn check(wishes: &[Readiness], fds: usize, deadline: Option<u64>, never: bool) {
    let mut sleep = Sleep::new();
    for wish in wishes {
        sleep.readiness(*wish);
    }
    let got = (sleep.fds(), sleep.deadline(), sleep.is_never());
    assert_eq!(got, (fds, deadline.map(Nanos), never), "{wishes:?}");
    sleep.clear();
    assert_eq!((sleep.fds(), sleep.deadline(), sleep.is_never()), (0, None, false));
}

#[test]
fn wishes_combine() {
    let at = |ns| Readiness::At(Nanos(ns));
    check(&[], 0, None, false);
    check(&[Readiness::Idle], 0, None, false);
    check(&[at(9), at(5), at(7)], 0, Some(5), false);
    check(&[Readiness::Fd(0), at(5), Readiness::Fd(1)], 2, Some(5), false);
    check(&[at(5), Readiness::Poll, at(3)], 0, None, true);
    check(&[Readiness::Fd(-1)], 0, None, false);
}

#[test]
fn a_passed_deadline_and_a_need_to_poll_do_not_wait() {
    // Both calls return. Without the comparison of times, the first call would wait 584 years.
    let mut sleep = Sleep::new();
    sleep.until(Nanos(10));
    sleep.wait(Nanos(10));
    sleep.wait(Nanos(11));
    sleep.clear();
    sleep.never();
    sleep.wait(Nanos(0));
}

#[test]
fn spans_split_into_seconds_and_nanoseconds() {
    for (ns, want) in [
        (0, (0, 0)),
        (999_999_999, (0, 999_999_999)),
        (3_000_000_001, (3, 1)),
        (u64::MAX, (18_446_744_073, 709_551_615)),
    ] {
        let got = super::timespec(Nanos(ns));
        assert_eq!((got.tv_sec, got.tv_nsec), want, "{ns} ns");
    }
}
