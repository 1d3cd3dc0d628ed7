//! Programs of tests, which scripts stand for.

use std::path::{Path, PathBuf};

use super::{Program, program, run_all};
use crate::run::Tally;

fn script(folder: &Path, name: &str, text: &str) -> Program {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("the folder was just made");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("the file was just made");
    Program { name: name.into(), path, folder: folder.to_path_buf() }
}

#[test]
fn each_program_counts_its_tests_and_none_hides_a_failure() {
    let folder = std::env::temp_dir().join(format!("strake-xtask-suite-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let line = |passed, failed| {
        format!("echo 'test result: ok. {passed} passed; {failed} failed; 0 ignored; 0 measured'")
    };
    let programs = vec![
        script(&folder, "fine", &line(3, 0)),
        script(&folder, "bad", &format!("{}; exit 101", line(1, 2))),
        script(&folder, "crash", &format!("{}; exit 1", line(5, 0))),
        script(&folder, "empty", &line(0, 0)),
        script(&folder, "nothing", "exit 0"),
        Program { path: "/no/such/program".into(), ..script(&folder, "gone", "exit 0") },
    ];
    let (tally, mut failed) = run_all(programs);
    std::fs::remove_dir_all(&folder).expect("it was made above");
    failed.sort();
    assert_eq!(tally, Tally { passed: 9, failed: 5, skipped: 0 });
    assert_eq!(failed, ["bad", "crash", "gone", "nothing"]);
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
