//! Starts after kills, on drives that are small enough to be quick.

use super::{Restart, Stand, percentile, restart};
use crate::load::Spec;
use strake_dev_mem::Profile;
use strake_engine::Consistency;
use strake_raid::Level;
use strake_units::Nanos;

fn check(consistency: Consistency, degraded: bool) -> Restart {
    let spec = Spec { member_bytes: 1 << 40, ..Spec::of(Level::Raid6, Profile::SN861) };
    let stand = Stand { consistency, degraded, load: Nanos::MILLI.times(10) };
    let found = restart(&spec, stand, 5).expect("it comes up by itself");
    assert_eq!(found, restart(&spec, stand, 5).expect("again"), "a seed replays a run");
    assert!(found.took > Nanos::MILLI, "{found:?}: nothing was read");
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

#[test]
fn of_many_the_percentile_is_the_smallest_that_covers_them() {
    let sorted: Vec<Nanos> = (1..=200).map(Nanos).collect();
    let at = |percent| percentile(&sorted, percent).0;
    assert_eq!((at(50), at(99), at(100)), (100, 198, 200));
    assert_eq!(percentile(&[], 99), Nanos(0));
}
