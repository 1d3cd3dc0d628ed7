//! What a step says of itself.

use std::time::Duration;

use super::{longest, parts_of, step_line};
use crate::run::{Outcome, Part, Tally};

#[test]
fn a_step_is_one_line() {
    let second = Duration::from_millis(1230);
    let tally = Tally { passed: 2, failed: 1, skipped: 0 };
    let counted = Outcome { tally, note: "b.sh".into(), ..Outcome::default() };
    let cases = [
        (Outcome::passed(""), "passed  x in 1.2 s"),
        (Outcome::skipped("no tool"), "skipped x in 1.2 s: no tool"),
        (counted, "FAILED  x in 1.2 s (2 passed, 1 failed, 0 skipped): b.sh"),
    ];
    for (outcome, line) in cases {
        assert_eq!(step_line("x", second, &outcome), line);
    }
}

#[test]
fn what_took_longest_comes_first() {
    let part = |name: &str, seconds| Part { name: name.into(), took: Duration::from_secs(seconds) };
    let scripts = vec![part("a.sh", 2), part("b.sh", 30)];
    let mut parts = parts_of("e2e", Duration::from_secs(31), scripts);
    parts.extend(parts_of("doc", Duration::from_secs(7), vec![]));
    let lines = "longest\n    30.0 s  e2e: b.sh\n     7.0 s  doc\n     2.0 s  e2e: a.sh";
    assert_eq!(longest(parts).as_deref(), Some(lines));
    assert_eq!(longest(vec![part("tidy", 1)]), None);
}
