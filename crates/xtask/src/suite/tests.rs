//! Programs of tests, which scripts stand for.

use std::path::{Path, PathBuf};

use strake_testkit::Folder;

use super::{Program, Ran, SECONDS_MAX, program, run_all};
use crate::run::{Tally, quiet_test_run};

fn script(folder: &Path, name: &str, text: &str) -> Program {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("the folder was just made");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("the file was just made");
    Program { name: name.into(), path, folder: folder.to_path_buf() }
}

#[test]
fn each_program_counts_its_tests_and_none_hides_a_failure() {
    let folder = Folder::new("strake-xtask-counts");
    let line = |passed, failed| {
        format!("echo 'test result: ok. {passed} passed; {failed} failed; 0 ignored; 0 measured'")
    };
    let programs = vec![
        script(&folder, "fine", &format!("test \"$RUST_TEST_THREADS\" && {}", line(3, 0))),
        script(&folder, "bad", &format!("{}; exit 101", line(1, 2))),
        script(&folder, "crash", &format!("{}; exit 1", line(5, 0))),
        script(&folder, "empty", &line(0, 0)),
        script(&folder, "nothing", "exit 0"),
        Program { path: "/no/such/program".into(), ..script(&folder, "gone", "exit 0") },
    ];
    let Ran { tally, mut failed, parts } = run_all(programs, SECONDS_MAX);
    failed.sort();
    assert_eq!(tally, Tally { passed: 9, failed: 5, skipped: 0 });
    assert_eq!(failed, ["bad", "crash", "gone", "nothing"]);
    assert_eq!(parts.len(), 6, "{parts:?}");
}

/// A program that hung kept the whole run waiting without a word, and one that a signal ended was not distinguished
/// from others.
#[test]
fn a_program_that_hangs_or_that_a_signal_ends_is_reported() {
    let folder = Folder::new("strake-xtask-ends");
    let cases = [
        ("hung", "cat $0.fifo", 1, "still running after 1 s, killed"),
        ("left", "cat $0.fifo & exit 3", SECONDS_MAX, "exit code 3"),
        ("signal", "kill -SEGV $$", SECONDS_MAX, "ended by signal 11"),
        ("killed", "kill -KILL $$", SECONDS_MAX, "ended by signal 9"),
    ];
    for (name, text, seconds_max, reported) in cases {
        let text = format!("mkfifo $0.fifo; {text}");
        let program = script(&folder, name, &text);
        let (outcome, said) =
            quiet_test_run(&std::process::Command::new(&program.path), seconds_max);
        assert_eq!(
            (outcome.tally, outcome.note.as_str()),
            (Tally::of(false), reported),
            "{name}: {said}"
        );
    }
    // The process that was left behind ends once its FIFO has been written to.
    std::fs::write(folder.join("left.fifo"), "").expect("it reads");
}

#[test]
fn of_the_messages_of_cargo_only_programs_of_tests_count() {
    let artifact = |test: bool, executable: &str| {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/raid/Cargo.toml",
            "target":{{"name":"level"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
        )
    };
    let found = program(&artifact(true, "\"/t/level-1\"")).expect("a program of tests");
    assert_eq!((found.name.as_str(), found.path), ("raid level", PathBuf::from("/t/level-1")));
    assert_eq!(found.folder, Path::new("/w/crates/raid"));
    assert_eq!(program(&artifact(true, "null")), None, "a library");
    assert_eq!(program(&artifact(false, "\"/t/straked\"")), None, "a program of the product");
    assert_eq!(program(r#"{"reason":"build-finished","success":true}"#), None);
    assert_eq!(program("error"), None);
}
