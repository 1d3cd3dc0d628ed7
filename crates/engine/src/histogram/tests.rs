use super::*;

#[test]
fn every_time_has_one_place_and_is_reported_to_within_three_percent() {
    assert_eq!((place(0), bound(0)), (0, 0));
    for at in 1..PLACES {
        assert_eq!(place(bound(at)), at, "the last of place {at}");
        assert_eq!(place(bound(at - 1) + 1), at, "the first of place {at}");
        let (first, last) = (bound(at - 1) + 1, bound(at));
        assert!(last - first <= first / 31, "{first} to {last}");
    }
    assert_eq!(bound(PLACES - 1), (1 << BITS) - 1);
    assert_eq!(place(u64::MAX), PLACES - 1);
}

/// Returns the merged counts of several cores.
fn counted(times: &[&[(u64, u32)]]) -> LatencyCounts {
    let cores: Vec<CoreTimes> = times.iter().map(|_| CoreTimes::new(2)).collect();
    for (core, times) in cores.iter().zip(times) {
        for (nanos, count) in *times {
            core.request(Timed::Write, Nanos(*nanos), *count);
            core.member(1, Timed::Flush, Nanos(*nanos), *count);
        }
    }
    let all = put_together(cores.iter(), 2);
    assert_eq!(all.requests.read, LatencyCounts::default());
    assert_eq!(all.members[0].flush, LatencyCounts::default());
    assert_eq!(all.members[1].flush, all.requests.write);
    all.requests.write
}

#[test]
fn percentiles_are_those_of_all_cores_together() {
    let check = |times: &[&[(u64, u32)]], want: [u64; 4]| {
        let all = counted(times);
        let found = [500, 900, 990, 999].map(|p| all.percentile(p).expect("there are some").0);
        for (found, want) in found.into_iter().zip(want) {
            assert!((want..=want + want / 31).contains(&found), "{found}, not {want}");
        }
    };
    check(&[&[(70_000, 1)]], [70_000; 4]);
    check(&[&[(100, 899)], &[(5_000, 100), (9_000_000, 1)]], [100, 5_000, 5_000, 5_000]);
    check(&[&[(100, 500)], &[(200, 400), (3_000, 90), (4_000, 10)]], [100, 200, 3_000, 4_000]);
}

#[test]
fn the_longest_and_the_mean_are_exact() {
    let all = counted(&[&[(1001, 2)], &[(2002, 1), (77_777_777, 1)]]);
    assert_eq!(all.max(), Nanos(77_777_777));
    assert_eq!(all.percentile(1000), Some(Nanos(77_777_777)));
    assert_eq!(all.mean(), Some(Nanos((2002 + 2002 + 77_777_777) / 4)));
    assert_eq!(all.count(), 4);
    let none = LatencyCounts::default();
    assert_eq!((none.count(), none.mean(), none.percentile(500)), (0, None, None));
}

#[test]
fn operations_up_to_a_limit_are_counted_to_within_three_percent() {
    let all = counted(&[&[(1_000, 5)], &[(10_000, 7), (1_000_000, 11)]]);
    for (limit, count) in
        [(0, 0), (999, 0), (1_031, 5), (9_999, 5), (10_320, 12), (999_999, 12), (1_031_000, 23)]
    {
        assert_eq!(all.at_most(Nanos(limit)), count, "{limit} ns");
    }
    assert_eq!(all.at_most(Nanos(u64::MAX)), all.count());
    let mut added = LatencyCounts::default();
    for (took, count) in [(1_000, 5), (10_000, 7), (1_000_000, 11)] {
        added.add(Nanos(took), count);
    }
    assert_eq!(added, all);
    assert_eq!(added.sum(), Nanos(5 * 1_000 + 7 * 10_000 + 11 * 1_000_000));
}

#[test]
fn a_new_drive_begins_with_nothing() {
    let core = CoreTimes::new(3);
    (0..3).for_each(|at| core.member(at, Timed::Read, Nanos(5), 7));
    core.forget_member(1);
    let counts = put_together(std::iter::once(&core), 3).members;
    assert_eq!(counts.iter().map(|m| m.read.count()).collect::<Vec<_>>(), [7, 0, 7]);
    assert_eq!(counts[1].read, LatencyCounts::default());
}
