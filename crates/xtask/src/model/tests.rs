//! What TLC prints, and what is made of it.

use serde_json::{Value, json};

use super::{agrees, seen};

const PASSED: &str = "\
Model checking completed. No error has been found.
Progress(60) at 2026-11-25: 1,360 states generated (1 s/min), 1,212 distinct states found (1 ds/min), 9 left.
23360 states generated, 19212 distinct states found, 0 states left on queue.
The depth of the complete state graph search is 60.
";

const VIOLATED: &str = "\
Error: Invariant NoSilentDoubt is violated.
State 1: <Initial predicate>
13000 states generated, 11645 distinct states found, 1402 states left on queue.
The depth of the complete state graph search is 22.
";

fn check(said: &str, states: u64, diameter: u64, violated: Option<&str>) {
    let expected =
        json!({ "config": "c", "states": states, "diameter": diameter, "violated": violated });
    assert_eq!(seen("c", said), Ok(expected));
}

#[test]
fn states_diameter_and_violation_are_read() {
    check(PASSED, 19_212, 60, None);
    check(VIOLATED, 11_645, 22, Some("NoSilentDoubt"));
    assert!(seen("c", "Error: Parsing or semantic analysis failed.").is_err());
    assert!(seen("c", &PASSED.replace("No error has been found", "")).is_err());
}

fn entry(states: u64, diameter: u64, violated: Option<&str>) -> Value {
    json!({ "config": "c", "states": states, "diameter": diameter, "violated": violated })
}

#[test]
fn another_count_is_not_what_is_recorded() {
    assert!(agrees(&entry(5, 3, None), &entry(5, 3, None)));
    assert!(!agrees(&entry(5, 3, None), &entry(6, 3, None)));
    assert!(!agrees(&entry(5, 3, None), &entry(5, 4, None)));
    assert!(!agrees(&entry(5, 3, None), &entry(5, 3, Some("a"))));
    assert!(agrees(&entry(5, 3, Some("a")), &entry(6, 3, Some("a"))));
    assert!(!agrees(&entry(5, 3, Some("a")), &entry(6, 3, Some("b"))));
}
