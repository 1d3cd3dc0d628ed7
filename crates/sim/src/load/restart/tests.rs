//! Starts after kills of the daemon, on small drives, so that the tests are fast.

use super::{Restart, SLOW, Stand, percentile, restart};
use crate::load::Spec;
use crate::load::client::Work;
use strake_dev_mem::Profile;
use strake_engine::Consistency;
use strake_raid::Level;
use strake_units::Nanos;

fn check(consistency: Consistency, degraded: bool) -> Restart {
    let spec = Spec { member_bytes: 1 << 40, ..Spec::of(Level::Raid6, Profile::SN861) };
    let load = Nanos::MILLI.times(10);
    let stand = Stand { consistency, degraded, load, work: Work::Mixed, depth: 128, hang: false };
    let found = restart(&spec, stand, 5).expect("it comes up by itself");
    assert_eq!(found, restart(&spec, stand, 5).expect("again"), "a seed replays a run");
    // Labels, bad block list and bitmap are read in sequence, with 63 us each.
    assert!(found.took > Nanos::MICRO.times(180), "{found:?}: nothing was read");
    found
}

#[test]
fn an_array_comes_up_by_itself_and_answers() {
    let degraded = check(Consistency::Safe, true);
    assert!(degraded.redone > 0, "{degraded:?}: nothing was under way");
    let healthy = check(Consistency::Resync, false);
    assert!(healthy.regions > 100 && healthy.redone == 0, "{healthy:?}");
    assert!(
        healthy.took < degraded.took,
        "a log takes longer than none: {healthy:?}, {degraded:?}"
    );
}

/// A thousand outstanding writes on drives that take 10 ms for every request: with one request at a time a start took
/// more than 30 s, which was the whole time limit.
#[test]
fn d2_slow_drives_and_many_serve_within_five_seconds() {
    for drives in [8, 64] {
        let spec = Spec { member_bytes: 1 << 40, drives, ..Spec::of(Level::Raid6, SLOW) };
        let load = Nanos::MILLI.times(300);
        let (consistency, work) = (Consistency::Safe, Work::RandomWrite);
        let stand = Stand { consistency, degraded: true, load, work, depth: 1000, hang: false };
        let found = restart(&spec, stand, 7).expect("it comes up by itself");
        assert!(found.redone > 0, "{found:?}: nothing was under way");
        assert!(found.took < Nanos::SECOND.times(5), "{drives} drives: {found:?}");
    }
}

#[test]
fn who_hangs_on_the_way_up_is_left_out_alone() {
    let spec = Spec { member_bytes: 1 << 40, ..Spec::of(Level::Raid6, Profile::SN861) };
    let (load, work) = (Nanos::MILLI.times(10), Work::Mixed);
    let stand = Stand {
        consistency: Consistency::Safe,
        degraded: true,
        load,
        work,
        depth: 128,
        hang: true,
    };
    let found = (0..12).map(|seed| restart(&spec, stand, seed).expect("up without the one"));
    let hung = found.filter(|found| found.hung).inspect(|found| {
        assert!(found.took < Nanos::SECOND.times(20), "{found:?}");
    });
    assert!(hung.count() > 3);
}

#[test]
fn of_many_the_percentile_is_the_smallest_that_covers_them() {
    let sorted: Vec<Nanos> = (1..=200).map(Nanos).collect();
    let at = |percent| percentile(&sorted, percent).0;
    assert_eq!((at(50), at(99), at(100)), (100, 198, 200));
    assert_eq!(percentile(&[], 99), Nanos(0));
}
