//! Every test of the workspace. Its programs run two at a time, since many of them mostly wait or have one long test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use crate::ci::step_line;
use crate::run::{self, Outcome, Part, Tally};

#[cfg(test)]
mod tests;

/// Programs that run side by side.
const AT_ONCE: usize = 2;
/// Tests that a program runs side by side: many of them wait for the time limit of a drive that does not answer.
const THREADS: &str = "4";
/// Seconds after which a program is taken for hung.
const SECONDS_MAX: u32 = 1800;

/// A program of tests, and the folder of its package, in which it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    name: String,
    path: PathBuf,
    folder: PathBuf,
}

/// Builds all programs of tests, runs them all, whatever some come to, and then the examples of the documentation.
pub fn run(root: &Path) -> Outcome {
    let programs = match built(root) {
        Ok(programs) => programs,
        Err(why) => return Outcome::failed(why),
    };
    let Ran { mut tally, mut failed, parts } = run_all(programs, SECONDS_MAX);
    let words = ["cargo", "test", "--workspace", "--doc", "--no-fail-fast", "--quiet"];
    let examples = run::test_run(&mut run::command(root, &words));
    tally.add(examples.tally);
    if examples.tally.failed > 0 {
        failed.push("examples".into());
    }
    failed.sort();
    Outcome { tally, note: failed.join(" "), parts }
}

/// What programs of tests came to.
#[derive(Debug, Default)]
struct Ran {
    tally: Tally,
    /// The names of those that failed.
    failed: Vec<String>,
    parts: Vec<Part>,
}

/// Runs all of them, [`AT_ONCE`] at a time.
fn run_all(programs: Vec<Program>, seconds_max: u32) -> Ran {
    let results = Mutex::new(Ran::default());
    run::side_by_side(AT_ONCE, programs, |program| {
        let started = Instant::now();
        println!("-- begins {}", program.name);
        let mut command = Command::new(&program.path);
        command.arg("--quiet").current_dir(&program.folder);
        command.env("CARGO_MANIFEST_DIR", &program.folder);
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", THREADS);
        }
        let (outcome, said) = run::quiet_test_run(&command, seconds_max);
        if let Ok(mut results) = results.lock() {
            print!("{said}");
            let took = started.elapsed();
            println!("-- {}", step_line(&program.name, took, &outcome));
            results.tally.add(outcome.tally);
            if outcome.tally.failed > 0 {
                results.failed.push(program.name.clone());
            }
            results.parts.push(Part { name: program.name, took });
        }
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Builds, with errors going straight to the terminal.
fn built(root: &Path) -> Result<Vec<Program>, String> {
    let words = ["cargo", "test", "--workspace", "--no-run", "--quiet"];
    let mut command = run::command(root, &words);
    command.arg("--message-format=json-render-diagnostics").stderr(std::process::Stdio::inherit());
    let output = command.output().map_err(|e| format!("cannot run cargo: {e}"))?;
    if !output.status.success() {
        return Err("cargo test --workspace --no-run failed".into());
    }
    let programs: Vec<_> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect();
    if programs.is_empty() { Err("the workspace has no tests".into()) } else { Ok(programs) }
}

/// The program of tests that a message of cargo names, if it names one (Cargo's reference: External tools, JSON
/// messages, artifact messages).
fn program(message: &str) -> Option<Program> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    if !message["profile"]["test"].as_bool()? {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let name = format!("{package} {}", message["target"]["name"].as_str()?);
    Some(Program { name, path, folder })
}
