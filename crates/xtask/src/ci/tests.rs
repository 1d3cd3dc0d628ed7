//! What a step says of itself.

use std::time::Duration;

use super::step_line;
use crate::run::{Outcome, Tally};

#[test]
fn a_step_is_one_line() {
    let second = Duration::from_millis(1230);
    let counted =
        Outcome { tally: Tally { passed: 2, failed: 1, skipped: 0 }, note: "b.sh".into() };
    let cases = [
        (Outcome::passed(""), "passed  x in 1.2 s"),
        (Outcome::skipped("no tool"), "skipped x in 1.2 s: no tool"),
        (counted, "FAILED  x in 1.2 s (2 passed, 1 failed, 0 skipped): b.sh"),
    ];
    for (outcome, line) in cases {
        assert_eq!(step_line("x", second, &outcome), line);
    }
}
