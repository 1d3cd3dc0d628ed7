//! Scripts as steps, on scripts written for the purpose.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{end_to_end, step_line};
use crate::run::{Outcome, Tally};

/// A made-up repository below the temporary folder, removed when dropped.
struct Repository(PathBuf);

impl Repository {
    /// A repository with these end-to-end scripts; `name` keeps tests apart.
    fn new(name: &str, scripts: &[(&str, &str)]) -> Repository {
        let root = std::env::temp_dir().join(format!("strake-xtask-{name}-{}", std::process::id()));
        std::fs::create_dir_all(root.join("tests/e2e")).expect("the temporary folder is writable");
        for (file, text) in scripts {
            std::fs::write(root.join("tests/e2e").join(file), text)
                .expect("the folder was just made");
        }
        Repository(root)
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        // A folder left behind in the temporary folder harms nothing, and a test must not fail because of it.
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

#[test]
fn each_script_counts_by_its_exit_code() {
    let scripts = [
        ("a-fine.sh", "test -d tests/e2e && test -n \"$STRAKE_BIN_DIR\""),
        ("b-bad.sh", "exit 1"),
        ("c-not-here.sh", "exit 77"),
        ("_library.sh", "exit 1"),
        ("notes.txt", "exit 1"),
    ];
    let outcome = end_to_end(&Repository::new("codes", &scripts).0);
    assert_eq!(outcome.tally, Tally { passed: 1, failed: 1, skipped: 1 });
    assert_eq!(outcome.note, "b-bad.sh");
}

#[test]
fn no_scripts_are_skipped_and_not_passed() {
    let skipped = Tally { passed: 0, failed: 0, skipped: 1 };
    assert_eq!(end_to_end(&Repository::new("none", &[]).0).tally, skipped);
    assert_eq!(end_to_end(Path::new("/no/such/folder")).tally, skipped);
}

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
