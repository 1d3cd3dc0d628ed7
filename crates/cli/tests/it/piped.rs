//! Answers that go to a pipe, and commands in answers.

use crate::fake::{Script, Served, array};
use crate::terminal::Terminal;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use strake_api::v1::{Array, Daemon, SystemStatus};

/// Name of an array with the longest name that is possible.
fn long_name() -> String {
    "n".repeat(63)
}

fn named(name: &str) -> Script {
    let array = Array { name: name.into(), ..array(&["online"], &["in_sync"; 4]) };
    Script { arrays: vec![array.clone()], status: status(&[array]), ..Script::default() }
}

fn status(arrays: &[Array]) -> SystemStatus {
    SystemStatus { health: "ok".into(), arrays: arrays.to_vec(), ..SystemStatus::default() }
}

fn printed(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("strake runs");
    String::from_utf8(output.stdout).expect("text")
}

/// The history: output to a pipe had 80 columns, so that scripts read `ee9aba05-08cb-4998-9d2c-b...`.
#[test]
fn names_are_whole_in_a_pipe_unless_it_has_columns() {
    let served = Served::new("piped", named(&long_name()));
    let run = |columns: Option<&str>| {
        let mut command = served.command(&["status"]);
        command.env_remove("COLUMNS");
        command.envs(columns.map(|value| ("COLUMNS", value)));
        printed(command)
    };
    for columns in [None, Some("200"), Some("0"), Some("wide")] {
        let text = run(columns);
        assert!(text.contains(&long_name()), "{columns:?}: {text}");
    }
    let narrow = run(Some("60"));
    assert!(!narrow.contains(&long_name()), "{narrow}");
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
}

/// The history: `strake` stood at the end of a line, and the rest of the command in the next line.
#[test]
fn commands_are_whole_in_a_pipe_and_on_a_terminal() {
    let served = Served::new("whole", named(&"n".repeat(20)));
    // The daemon is scripted: this is its advice after every change.
    let advice = "strake array undelete tank";
    let line = ["array", "destroy", "tank", "--yes"];
    for columns in 40..70 {
        let mut piped = served.command(&line);
        piped.env("COLUMNS", columns.to_string());
        let text = printed(piped);
        assert!(text.lines().any(|line| line.contains(advice)), "{columns}: {text}");
    }
    let (_, text) = Terminal::start(served.command(&line)).end();
    assert!(text.lines().any(|line| line.contains(advice)), "{text}");
}

/// The history: `strake event list | head -1` printed "Broken pipe" and ended with 4.
#[test]
fn a_reader_that_goes_is_no_failure() {
    let served = Served::new("gone", named("tank"));
    for line in [
        "status",
        "status --output json",
        "status --watch",
        "array show tank",
        "array show tank --watch",
        "event follow",
        "completions bash",
        "config backup -",
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe opens");
        drop(reader);
        let mut command = served.command(&line.split(' ').collect::<Vec<_>>());
        let command = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
        let ended = command.spawn().and_then(std::process::Child::wait_with_output);
        let ended = ended.expect("strake runs");
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), errors.as_ref()), (Some(0), ""), "{line}");
    }
}

/// The history: `strake status --watch` in a pipe printed everything again each second, because the uptime had changed.
#[test]
fn a_watch_in_a_pipe_prints_only_news() {
    let up = |seconds: u64, health: &str| SystemStatus {
        health: health.into(),
        daemon: Some(Daemon { uptime_us: seconds * 1_000_000, ..Daemon::default() }),
        ..SystemStatus::default()
    };
    let script = Script {
        status: up(1, "ok"),
        later: vec![up(2, "ok"), up(3, "degraded")],
        ..Script::default()
    };
    let served = Served::new("news", script);
    let mut command = served.command(&["status", "--watch"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("strake runs");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let health = || lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("health"));
    let seen: Vec<String> = std::iter::from_fn(health).take(2).collect();
    child.kill().and_then(|()| child.wait()).expect("it is our child");
    assert_eq!(seen, ["health: ok", "health: degraded"]);
}
