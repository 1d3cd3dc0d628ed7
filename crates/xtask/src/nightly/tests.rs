//! Counts of rounds are added up.

use super::{TIERS, add};
use serde_json::json;

#[test]
fn counts_add_up_and_what_is_of_a_round_alone_is_left_out() {
    let mut sum = json!({ "rounds": 0 });
    add(&mut sum, &json!({ "runs": 5, "seconds": 1.5, "faults": { "torn": 2 }, "seed": 7 }));
    add(
        &mut sum,
        &json!({ "runs": 6, "seconds": 2, "faults": { "torn": 1, "kill": 3 }, "exhaustive": true }),
    );
    let wanted = json!({
        "rounds": 0, "runs": 11, "seconds": 3.5, "faults": { "torn": 3, "kill": 3 }, "exhaustive": true
    });
    assert_eq!(sum, wanted);
}

#[test]
fn a_share_is_left_for_mutants() {
    let drawn: u32 = TIERS.iter().map(|tier| tier.share).sum();
    assert!((1..=60).contains(&drawn), "{drawn} %");
}
