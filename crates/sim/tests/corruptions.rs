//! Corruption of inactive arrays: kept damages, a fixed run and a random one.

use std::time::{SystemTime, UNIX_EPOCH};

use strake_sim::crash::corrupt::{Corrupted, replay, run};
use strake_sim::kept;

/// The areas that a run must damage to be valid.
const AREAS: [&str; 6] = ["label", "bitmap", "log", "bad_blocks", "config", "data"];

/// The kinds of damages that a run must have to be valid.
const KINDS: [&str; 7] = ["bit_flip", "elsewhere", "neighbour", "old", "ones", "random", "zeroes"];

fn check(seed: u64, runs: u64) -> Corrupted {
    let report = run(seed, runs, 1);
    assert!(report.violations.is_empty(), "seed {seed}:\n{}", report.violations.join("\n"));
    report
}

#[test]
fn kept_wounds_hold() {
    for key in kept::lines("seeds-corrupt").expect("the folder is part of the crate") {
        replay(&key).unwrap_or_else(|what| panic!("{key}: {what}"));
    }
}

#[test]
fn a_fixed_run_of_wounds_holds_and_sees_everything() {
    let report = check(1, 800);
    for area in AREAS {
        assert!(report.areas.contains_key(area), "no wound of the {area} in a fixed run");
    }
    for kind in KINDS {
        assert!(report.kinds.contains_key(kind), "no wound of {kind} in a fixed run");
    }
    assert!(report.explained > 0, "no array had anything to say");
    assert!(report.healed > 0 && report.found > 0, "no scrub found anything");
}

#[test]
fn a_fresh_run_of_wounds_holds() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let seed = since.as_nanos() as u64 & 0xffff_ffff_ffff;
    println!("fresh wounds of seed {seed}");
    check(seed, 400);
}

#[test]
fn a_run_of_wounds_replays_on_any_number_of_threads() {
    let (alone, together) = (run(3, 300, 1), run(3, 300, 2));
    assert_eq!((alone.runs, alone.areas), (together.runs, together.areas));
}
