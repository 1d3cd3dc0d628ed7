//! Scripts as steps, on scripts written for the purpose.

use std::path::Path;

use strake_testkit::Folder;

use super::run;
use crate::run::Tally;

/// A made-up repository with these end-to-end scripts.
fn repository(scripts: &[(&str, &str)]) -> Folder {
    let root = Folder::new("strake-xtask-e2e");
    std::fs::create_dir_all(root.join("tests/e2e")).expect("it was just made");
    for (file, text) in scripts {
        std::fs::write(root.join("tests/e2e").join(file), text).expect("the folder was just made");
    }
    root
}

#[test]
fn each_script_counts_by_its_exit_code() {
    let scripts = [
        ("a-fine.sh", "test -d tests/e2e && test -n \"$STRAKE_BIN_DIR\""),
        ("b-bad.sh", "echo begins; echo FAILED: it is red; echo the log; exit 1"),
        ("c-not-here.sh", "exit 77"),
        ("d-ends.sh", "echo begins; echo the last; echo; exit 2"),
        ("e-silent.sh", "exit 1"),
        ("_library.sh", "exit 1"),
        ("notes.txt", "exit 1"),
    ];
    let outcome = run(&repository(&scripts));
    assert_eq!(outcome.tally, Tally { passed: 1, failed: 3, skipped: 1 });
    let note = "b-bad.sh (exit code 1: FAILED: it is red) d-ends.sh (exit code 2: the last) e-silent.sh (exit code 1)";
    assert_eq!(outcome.note, note);
}

#[test]
fn no_scripts_are_skipped_and_not_passed() {
    let skipped = Tally { passed: 0, failed: 0, skipped: 1 };
    assert_eq!(run(&repository(&[])).tally, skipped);
    assert_eq!(run(Path::new("/no/such/folder")).tally, skipped);
}

/// Both ends of a pipe with a name wait for each other; the third script sees that they are through.
#[test]
fn two_run_side_by_side_and_some_alone() {
    let end = |redirect: &str, word: &str| {
        format!("mkfifo f 2>/dev/null; timeout 60 sh -c '{redirect}' && echo {word} >>over")
    };
    let (first, second) = (end("echo met >f", "first"), end("read -r met <f", "second"));
    let alone = "# Runs alone: it looks at the others\n[ \"$(wc -l <over)\" -eq 2 ]";
    let scripts = [("a.sh", first.as_str()), ("b.sh", &second), ("0-alone.sh", alone)];
    let outcome = run(&repository(&scripts));
    assert_eq!(outcome.tally, Tally { passed: 3, failed: 0, skipped: 0 });
}
