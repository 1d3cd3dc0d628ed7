//! The end-to-end scripts, three at a time: each has a daemon and a folder of its own, and mostly waits.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use crate::ci::{step_line, target_folder};
use crate::run::{self, Ending, Outcome, Part, Tally};

#[cfg(test)]
mod tests;

/// Seconds after which a script is taken for hung.
const SECONDS_MAX: u32 = 600;
/// Exit code by which a script says that it could not run here (the convention of Automake's test drivers).
pub const SKIPPED: i32 = 77;
/// Characters of a script's line that the summary repeats.
const LINE_MAX: usize = 300;
/// Scripts that run side by side.
const AT_ONCE: usize = 3;
/// Begins the line of a script that takes longer than others: it runs first, so that the run does not wait for it alone
/// at the end.
const LONG: &str = "# Takes long";
/// Begins the line of a script that changes what others would see of the machine: it runs when they are through.
const ALONE: &str = "# Runs alone";

/// Runs every `tests/e2e/*.sh` with the folder of the programs in `STRAKE_BIN_DIR`.
pub fn run(root: &Path) -> Outcome {
    let scripts = match scripts(&root.join("tests/e2e")) {
        Ok(scripts) if scripts.is_empty() => return Outcome::skipped("tests/e2e holds no scripts"),
        Ok(scripts) => scripts,
        Err(error) => return Outcome::skipped(format!("tests/e2e: {error}")),
    };
    let (alone, together): (Vec<_>, Vec<_>) = scripts.into_iter().partition(|s| says(s, ALONE));
    let (long, short): (Vec<_>, Vec<_>) = together.into_iter().partition(|s| says(s, LONG));
    let results = Mutex::new(Vec::new());
    run::side_by_side(AT_ONCE, [long, short].concat(), |script| note(&results, root, &script));
    alone.iter().for_each(|script| note(&results, root, script));
    let mut tally = Tally::default();
    let mut failed = Vec::new();
    let mut parts = Vec::new();
    for (part, outcome) in results.into_inner().unwrap_or_default() {
        tally.add(outcome.tally);
        if outcome.tally.failed > 0 {
            failed.push(format!("{} ({})", part.name, outcome.note));
        }
        parts.push(part);
    }
    failed.sort();
    Outcome { tally, note: failed.join(" "), parts }
}

/// Runs a script, prints all that it said at once, and adds the result.
fn note(results: &Mutex<Vec<(Part, Outcome)>>, root: &Path, script: &Path) {
    let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let started = Instant::now();
    let (outcome, said) = outcome(root, script);
    if let Ok(mut results) = results.lock() {
        print!("{said}");
        let took = started.elapsed();
        println!("-- {}", step_line(&name, took, &outcome));
        results.push((Part { name, took }, outcome));
    }
}

/// Whether a script has a line that begins like this.
fn says(script: &Path, beginning: &str) -> bool {
    let text = std::fs::read_to_string(script).unwrap_or_default();
    text.lines().any(|line| line.starts_with(beginning))
}

/// Scripts below `folder`, in order of name; those that start with `_` are libraries of the others.
fn scripts(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut scripts = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".sh") && !name.starts_with('_') {
            scripts.push(path);
        }
    }
    scripts.sort();
    Ok(scripts)
}

/// What came of a script, and what it said.
fn outcome(root: &Path, script: &Path) -> (Outcome, String) {
    let mut command = run::command(root, &["bash"]);
    command.arg(script).env("STRAKE_BIN_DIR", target_folder(root).join("debug"));
    match run::heard(&command, SECONDS_MAX) {
        Ok((Ending::Exit(0), said)) => (Outcome::passed(""), said),
        Ok((Ending::Exit(SKIPPED), said)) => (Outcome::skipped("the script says why above"), said),
        Ok((ending, said)) => (Outcome::failed(why(&ending, &said)), said),
        Err(error) => (Outcome::failed(format!("cannot run timeout: {error}")), String::new()),
    }
}

/// Why a script failed: how it ended and the check that failed, or its last line, for the summary of the run.
fn why(ending: &Ending, said: &str) -> String {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().find(|line| line.starts_with("FAILED")).or_else(|| lines().next_back());
    match line {
        Some(line) => format!("{ending}: {}", line.chars().take(LINE_MAX).collect::<String>()),
        None => ending.to_string(),
    }
}
