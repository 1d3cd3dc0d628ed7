//! `strake bench` starts `strake-bench`: the one next to it, or else the one in the search path.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder that contains `strake` and what a test adds, and a folder that is the whole search path.
struct Installed {
    folder: PathBuf,
    searched: PathBuf,
}

impl Installed {
    /// In a new folder for the test `name`, on the file system of the program: links of it cost nothing there.
    fn new(name: &str) -> Self {
        let name = format!("bench-{name}-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let searched = folder.join("searched");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&searched).expect("the folder of the target is writable");
        std::fs::hard_link(env!("CARGO_BIN_EXE_strake"), folder.join("strake")).expect("a link");
        Self { folder, searched }
    }

    /// Makes a `strake-bench` in `folder` that prints `word` and its arguments, and ends with `code`.
    fn add(folder: &Path, word: &str, code: u8) {
        let path = folder.join("strake-bench");
        let text = format!("#!/bin/sh\necho {word} \"$#\" \"$@\"\necho failed >&2\nexit {code}\n");
        std::fs::write(&path, text).expect("the folder is writable");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).expect("the file is ours");
    }

    /// Runs `strake` and compares exit code, standard output and the start of standard error.
    fn check(&self, arguments: &[&str], code: i32, stdout: &str, stderr: &str) {
        let output = Command::new(self.folder.join("strake"))
            .args(arguments)
            .env("PATH", &self.searched)
            .stdin(Stdio::null())
            .output()
            .expect("strake runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert_eq!(printed, stdout, "{arguments:?}");
        assert!(said.starts_with(stderr), "{arguments:?}: {said}");
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn without_the_program_the_message_says_how_to_get_it() {
    let installed = Installed::new("missing");
    let missing = "strake: strake-bench is not installed: it is neither next to strake nor in PATH\n  \
                   in the source tree, `make bench` builds it";
    for arguments in [["bench", "list"], ["bench", "--help"], ["bench", "-h"]] {
        installed.check(&arguments, 3, "", missing);
    }
    installed.check(&["bench"], 3, "", missing);
}

#[test]
fn arguments_answers_and_the_exit_code_pass_through() {
    let installed = Installed::new("found");
    Installed::add(&installed.searched, "searched", 7);
    installed.check(&["bench", "list"], 7, "searched 1 list\n", "failed\n");
    Installed::add(&installed.folder, "beside", 2);
    for (arguments, printed) in [
        (&["bench"][..], "beside 0\n"),
        (&["bench", "--help"], "beside 1 --help\n"),
        (&["bench", "--version"], "beside 1 --version\n"),
        (&["bench", "run", "a b", "--save", "-"], "beside 4 run a b --save -\n"),
        (&["bench", "run", "G1", "--output", "json"], "beside 4 run G1 --output json\n"),
        (&["--output", "json", "bench", "list"], "beside 3 --output json list\n"),
        (&["bench", "--output", "json", "list"], "beside 3 --output json list\n"),
    ] {
        installed.check(arguments, 2, printed, "failed\n");
    }
}
