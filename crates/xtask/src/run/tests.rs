//! Counting and judging of steps, on the commands `true`, `false` and `sh`.

use std::path::Path;

use super::{Outcome, Tally, check, command, count, judge, probe, result_line};

fn sh(script: &str) -> std::process::Command {
    command(Path::new("/"), &["sh", "-c", script])
}

#[test]
fn result_lines_of_libtest_are_counted_and_nothing_else_is() {
    let cases = [
        (
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.10s",
            Some((3, 0, 1)),
        ),
        (
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
            Some((1, 2, 0)),
        ),
        ("running 3 tests", None),
        ("test result: unreadable", None),
        ("test result: ok. x passed; 0 failed", None),
        ("the test result: ok. 3 passed", None),
    ];
    for (line, expected) in cases {
        let found = result_line(line).map(|t| (t.passed, t.failed, t.skipped));
        assert_eq!(found, expected, "{line}");
    }
}

#[test]
fn result_lines_are_added_up_and_every_line_is_shown() {
    let text = "noise\ntest result: ok. 3 passed; 0 failed; 1 ignored\ntest result: ok. 4 passed; 0 failed\n";
    let mut shown = Vec::new();
    let tally = count(text.as_bytes(), &mut shown).expect("memory can be read and written");
    assert_eq!(tally, Tally { passed: 7, failed: 0, skipped: 1 });
    assert_eq!(shown, text.as_bytes());
}

#[test]
fn a_test_run_is_judged_by_its_counts_and_its_exit_code() {
    let cases = [
        // A build that breaks before any test counts as a failure, and failed tests are not counted twice.
        ((3, 0), true, "passed", (3, 0)),
        ((3, 0), false, "FAILED", (3, 1)),
        ((0, 0), false, "FAILED", (0, 1)),
        ((3, 2), false, "FAILED", (3, 2)),
        // A filter that matches nothing must not look like success.
        ((0, 0), true, "FAILED", (0, 1)),
    ];
    for (counts, success, word, expected) in cases {
        let tally = Tally { passed: counts.0, failed: counts.1, skipped: 0 };
        let outcome = judge(tally, success, "a run");
        let found = (outcome.tally.passed, outcome.tally.failed);
        assert_eq!((outcome.word(), found), (word, expected), "{counts:?} {success}");
    }
}

#[test]
fn a_step_is_its_exit_code() {
    assert_eq!(check(&mut sh("exit 0")), Outcome::passed(""));
    assert_eq!(check(&mut sh("exit 3")).tally, Tally::of(false));
    assert_eq!(check(&mut command(Path::new("/"), &["/no/such/program"])).tally, Tally::of(false));
}

#[test]
fn a_probe_gives_the_last_line_it_read() {
    assert_eq!(probe(&mut sh("exit 0")), Ok(()));
    let why = probe(&mut sh("echo first >&2; echo 'no route' >&2; echo >&2; exit 1")).unwrap_err();
    assert!(why.ends_with("no route"), "{why}");
}

#[test]
fn a_skipped_step_is_neither_passed_nor_failed() {
    let outcome = Outcome::skipped("no tool");
    assert_eq!(
        (outcome.tally, outcome.word()),
        (Tally { passed: 0, failed: 0, skipped: 1 }, "skipped")
    );
}
