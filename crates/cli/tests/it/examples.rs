//! The examples in the help of every command: each parses, and each runs. `tests/e2e/70-examples.sh` runs them
//! against a real daemon.

use crate::fake::{Script, Served, array};
use crate::terminal::Terminal;
use clap::{Command, CommandFactory as _};
use std::os::unix::fs::PermissionsExt as _;
use strake_api::v1::{DoctorReport, SystemStatus};
use strake_cli::args::Cli;
use strake_cli::examples;

/// Those that need more than an answering daemon, and where they are run instead.
const ELSEWHERE: [&str; 10] = [
    "strake demo",
    "strake config check",
    "strake daemon start",
    "strake event follow",
    "strake export release",
    "strake export show",
    "strake bench",
    "strake daemon restart",
    "strake top",
    "strake trace tank --follow",
];

/// Calls `each` with every command below `command`, itself included, and the words that lead to it.
fn walk(command: &Command, words: &str, each: &mut impl FnMut(&str, &Command)) {
    each(words, command);
    for below in command.get_subcommands() {
        walk(below, &format!("{words} {}", below.get_name()), each);
    }
}

/// Every example, each once, with the command in whose help it is.
fn all() -> Vec<(String, String)> {
    let mut all = Vec::new();
    walk(&Cli::command(), "strake", &mut |words, command| {
        for example in examples::of(command) {
            if !all.iter().any(|(_, known)| *known == example) {
                all.push((words.to_owned(), example));
            }
        }
    });
    all
}

/// The words of `example` up to what belongs to the shell.
fn words(example: &str) -> Vec<&str> {
    example.split(' ').take_while(|w| !["&&", ">", "<", "|"].contains(w)).collect()
}

#[test]
fn every_command_has_an_example_of_itself() {
    walk(&Cli::command(), "strake", &mut |words, command| {
        let examples = examples::of(command);
        assert!(!examples.is_empty(), "the help of `{words}` has no example");
        for example in examples {
            assert!(example.starts_with(words), "{example:?} is no example of `{words}`");
            assert!(example.len() <= 78, "{example:?} is folded on a narrow screen");
        }
    });
}

#[test]
fn every_example_parses() {
    for (_, example) in all() {
        if let Err(error) = Cli::command().try_get_matches_from(words(&example)) {
            panic!("{example}: {error}");
        }
    }
}

#[test]
fn every_example_runs_for_a_person_at_a_terminal() {
    let mut run = 0;
    for (_, example) in all() {
        if ELSEWHERE.iter().any(|prefix| example.starts_with(prefix)) {
            continue;
        }
        let script = Script {
            arrays: vec![array(&["online"], &["in_sync"; 4])],
            status: SystemStatus { health: "ok".into(), ..SystemStatus::default() },
            doctor: DoctorReport { health: "ok".into(), ..DoctorReport::default() },
            ..Script::default()
        };
        let served = Served::new("examples", script);
        let folder = served.folder.display().to_string();
        if example.contains(" restore ") {
            let backup = served.folder.join("strake.json");
            std::fs::write(backup, "{}").expect("the folder is writable");
        }
        for file in ["chat.url", "mail.url", "host.key", "host.tls", "image.bin"] {
            let path = served.folder.join(file);
            std::fs::write(&path, "https://a.example/secret\n").expect("the folder is writable");
            let own = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, own).expect("the file is ours");
        }
        // What is written goes to the test's folder.
        let example = example.replace(" /usr/", &format!(" {folder}/"));
        let arguments = words(&example)[1..].to_vec();
        let arguments = match arguments.as_slice() {
            ["config", "restore", "-", ..] => vec!["config", "restore", "strake.json"],
            _ => arguments,
        };
        let mut terminal = Terminal::start(served.command(&arguments));
        if arguments.contains(&"--watch") {
            terminal.until(|text| text.contains("\x1b[J"));
            terminal.interrupt();
        }
        let (status, printed) = terminal.confirm_all();
        assert!(status.success(), "{example}: {status}\n{printed}");
        run += 1;
    }
    assert!(run > 60, "only {run} examples were run");
}
