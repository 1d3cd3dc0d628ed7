//! Crashes of short histories: kept cases, a fixed run, a random one, and false reports of drives that must be
//! detected.

use std::time::{SystemTime, UNIX_EPOCH};

use strake_sim::crash::{Lie, ReplayError, Report, pairs, replay, run};
use strake_sim::kept;

/// The events that a run must have to be valid.
const KINDS: [&str; 14] = [
    "degraded",
    "during_copy",
    "during_mode_change",
    "during_readd",
    "during_rebuild",
    "during_scrub",
    "kill",
    "lost_members",
    "power",
    "resync",
    "second_crash",
    "started",
    "third_crash",
    "torn",
];

fn check(seed: u64, states: u64) -> Report {
    let report = run(seed, states, 1, Lie::None);
    assert!(report.violations.is_empty(), "seed {seed}:\n{}", report.violations.join("\n"));
    report
}

#[test]
fn kept_crashes_hold() {
    for key in kept::lines("seeds-crash").expect("the folder is part of the crate") {
        replay(&key).unwrap_or_else(|what| panic!("{key}: {what}"));
    }
}

/// A kept state that does not fit its changed history, or that never was valid, is not a violation. Most of these
/// inputs caused an index out of bounds.
#[test]
fn a_state_that_does_not_fit_its_history_is_named() {
    replay("5:j155:110.p.204.t2048:0:3.k.0.w").expect("it fits");
    let misfits = [
        ("5:j155:999999.p.0.w:0", "cut 999999.p.0.w is behind the last of"),
        ("5:j155:110.p.8000000000000000.w:0", "cut 110.p.8000000000000000.w keeps others than"),
        ("5:j155:110.p.204.t2048:0:999999.k.0.w", "cut 999999.k.0.w is behind the last of"),
        ("5:j155:110.p.204.t2048:0:0.k.1.w", "cut 0.k.1.w keeps others than the 0 writes"),
        ("5:j155:110.p.204.t2048:0:3.k.0.w:0.p.1.w", "cut 0.p.1.w keeps others than the 0 writes"),
        ("5:j155:110.p.204.t2048:80000000", "drives 80000000 are lost, as a mask, and it has"),
    ];
    for (key, what) in misfits {
        let Err(ReplayError::NoState(words)) = replay(key) else { panic!("{key} fits") };
        let wanted = format!("{key} no longer fits the history of case 5:j155: {what}");
        assert!(words.starts_with(&wanted), "{words}");
    }
    for wrong in ["5", "5:x", "5:j155:110", "5:j155:110.p.204.t2048"] {
        assert!(matches!(replay(wrong), Err(ReplayError::NoState(_))), "{wrong}");
    }
}

#[test]
fn a_fixed_run_of_crashes_holds_and_sees_everything() {
    let report = check(1, 1_000);
    for kind in KINDS {
        assert!(report.faults.contains_key(kind), "no {kind} in a fixed run");
    }
}

#[test]
fn a_fresh_run_of_crashes_holds() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let seed = since.as_nanos() as u64 & 0xffff_ffff_ffff;
    println!("fresh crashes of seed {seed}");
    check(seed, 1_000);
}

#[test]
fn a_run_replays_on_any_number_of_threads() {
    let (alone, together) = (run(3, 600, 1, Lie::None), run(3, 600, 2, Lie::None));
    assert_eq!((alone.runs, alone.faults), (together.runs, together.faults));
}

/// A drive with false reports must be detected.
fn check_found_out(lie: Lie) {
    let report = run(1, 2_000, 1, lie);
    assert!(!report.violations.is_empty(), "{lie:?} was not found out in {} states", report.runs);
}

#[test]
fn an_idle_flush_is_found_out() {
    check_found_out(Lie::Flush);
}

#[test]
fn an_idle_fua_is_found_out() {
    check_found_out(Lie::Fua);
}

/// One block, on drives with a cache: on five geometries in a clean region, and on one geometry that uses partial-write
/// records, in a dirty region.
#[test]
fn two_events_at_once_on_small_arrays_are_survived_exhaustive() {
    for numbers in [0..5, 149..150] {
        let count = numbers.end - numbers.start;
        let report = pairs::run(1, numbers, 0, 1);
        assert!(report.violations.is_empty(), "{}", report.violations.join("\n"));
        assert_eq!(report.exhausted, count, "no cut was left out");
        for pair in ["crash", "crash+lost", "crash+lost+lost"] {
            assert!(report.pairs.contains_key(pair), "no {pair} among {:?}", report.pairs);
        }
    }
}
