//! Counts of rounds are added up.

use super::{Night, TIERS, add};
use serde_json::json;

#[test]
fn counts_add_up_and_what_is_of_a_round_alone_is_left_out() {
    let mut sum = json!({ "rounds": 0 });
    add(&mut sum, &json!({ "runs": 5, "seconds": 1.5, "faults": { "torn": 2 }, "seed": 7 }));
    add(
        &mut sum,
        &json!({ "runs": 6, "seconds": 2, "faults": { "torn": 1, "kill": 3 }, "exhaustive": false }),
    );
    add(&mut sum, &json!({ "exhaustive": true }));
    let wanted = json!({
        "rounds": 0, "runs": 11, "seconds": 3.5, "faults": { "torn": 3, "kill": 3 }, "exhaustive": false
    });
    assert_eq!(sum, wanted);
}

#[test]
fn of_what_is_a_most_the_largest_counts() {
    let mut sum = json!({});
    for millis in [260.5, 280.0, 275.0] {
        add(&mut sum, &json!({ "runs": 8, "starts": { "64 x 10 ms": { "ms_max": millis } } }));
    }
    assert_eq!(sum, json!({ "runs": 24, "starts": { "64 x 10 ms": { "ms_max": 280.0 } } }));
}

fn night(crash: u64, pairs: u64, mutants_killed: bool) -> Night {
    let mut night = Night::default();
    let crash = json!({ "runs": 5, "violations": 0, "faults": { "torn": 2 },
                        "branches": { "redone": 1, "resynced": crash } });
    let pairs = json!({ "runs": 3, "violations": 0, "faults": { "torn": 1, "kill": 1 },
                        "branches": { "redone": 0, "resynced": pairs } });
    night.take("crash", (crash, true));
    night.take("pairs", (pairs, true));
    night.take("mutants", (json!({ "mutants": 2, "tried": 2 }), mutants_killed));
    night
}

#[test]
fn a_night_ends_with_the_sums_of_its_tiers() {
    let closing = night(0, 4, true).closing(10, 601);
    assert_eq!(closing["runs"], 8);
    assert_eq!(closing["faults"], json!({ "torn": 3, "kill": 1 }));
    assert_eq!(closing["branches"], json!({ "redone": 1, "resynced": 4 }));
    assert_eq!(closing["never_done"], json!([]));
    assert_eq!(closing["mutants"], json!({ "mutants": 2, "tried": 2 }));
    assert_eq!(closing["tiers"]["pairs"]["runs"], 3);
    assert_eq!(closing["passed"], true);
}

#[test]
fn a_night_fails_for_a_mutant_left_and_for_a_recovery_not_seen() {
    assert_eq!(night(1, 0, false).closing(10, 601)["passed"], false);
    let blind = night(0, 0, true).closing(10, 601);
    assert_eq!((&blind["passed"], &blind["never_done"]), (&json!(false), &json!(["resynced"])));
}

#[test]
fn a_share_is_left_for_mutants() {
    let drawn: u32 = TIERS.iter().map(|tier| tier.share).sum();
    assert!((1..=60).contains(&drawn), "{drawn} %");
}
