//! Running one step and counting what it showed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, thread};

#[cfg(test)]
mod tests;

/// Exit code of timeout(1) when it had to end the command.
const TIMED_OUT: i32 = 124;
/// The signal that no process can ignore (signal(7)).
const SIGKILL: i32 = 9;

/// How many checks passed, failed and were skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Checks that ran and were fine.
    pub passed: u64,
    /// Checks that ran and were not.
    pub failed: u64,
    /// Checks that did not run.
    pub skipped: u64,
}

impl Tally {
    /// One check that passed or failed.
    pub fn of(passed: bool) -> Tally {
        Tally { passed: u64::from(passed), failed: u64::from(!passed), skipped: 0 }
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// What a step came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Its checks; a step without finer grain counts as one.
    pub tally: Tally,
    /// One line for the summary: why it failed or was skipped, or what it covered.
    pub note: String,
    /// The programs or scripts that the step ran, and the time each took; empty for a step that runs one thing.
    pub parts: Vec<Part>,
}

/// A program or a script that a step ran, and the time it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name, as printed.
    pub name: String,
    /// From its start to its end.
    pub took: Duration,
}

impl Outcome {
    /// One check, passed.
    pub fn passed(note: impl Into<String>) -> Outcome {
        Outcome { tally: Tally::of(true), note: note.into(), ..Outcome::default() }
    }

    /// One check, failed because of `why`.
    pub fn failed(why: impl Into<String>) -> Outcome {
        Outcome { tally: Tally::of(false), note: why.into(), ..Outcome::default() }
    }

    /// One check that could not run because of `why`.
    pub fn skipped(why: impl Into<String>) -> Outcome {
        let tally = Tally { skipped: 1, ..Tally::default() };
        Outcome { tally, note: why.into(), ..Outcome::default() }
    }

    /// The word printed for this outcome.
    pub fn word(&self) -> &'static str {
        match self.tally {
            Tally { failed: 1.., .. } => "FAILED",
            Tally { passed: 0, skipped: 1.., .. } => "skipped",
            Tally { .. } => "passed",
        }
    }
}

/// A command that runs in `root`, given as words.
pub fn command<S: AsRef<OsStr>>(root: &Path, words: &[S]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(root);
    // Cargo passes its own settings to what it runs; `cargo +nightly` must not inherit the stable ones.
    for name in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC", "RUSTDOC"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command whose exit code is the answer, its output going straight to the terminal.
pub fn check(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Outcome::passed(""),
        Ok(status) => Outcome::failed(format!("{} ended with {status}", name(command))),
        Err(error) => Outcome::failed(format!("cannot run {}: {error}", name(command))),
    }
}

/// Does `work` with every item, `at_once` of them at a time, beginning with the first.
pub fn side_by_side<T: Send>(at_once: usize, items: Vec<T>, work: impl Fn(T) + Sync) {
    let next = Mutex::new(items.into_iter());
    let taken = || next.lock().ok()?.next();
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(item) = taken() {
                    work(item);
                }
            });
        }
    });
}

/// How a command ended that had only so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exit(i32),
    /// By a signal of this number.
    Signal(i32),
    /// It was still running after this many seconds, and was killed with all that it had started.
    Hung(u32),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exit(code) => write!(f, "exit code {code}"),
            Ending::Signal(signal) => write!(f, "ended by signal {signal}"),
            Ending::Hung(seconds) => write!(f, "still running after {seconds} s, killed"),
        }
    }
}

/// Runs a command for at most `seconds_max`, and returns how it ended and what it printed, errors in their places.
pub fn heard(command: &Command, seconds_max: u32) -> io::Result<(Ending, String)> {
    // No pipe: a process that the command leaves behind would hold it open, and the end would never be seen.
    let mut file = nameless_file()?;
    let started = Instant::now();
    let mut timed = limited(command, seconds_max);
    timed.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
    let status = timed.status()?;
    let out_of_time = started.elapsed().as_secs() >= u64::from(seconds_max);
    let ending = match (status.code(), status.signal()) {
        (Some(TIMED_OUT), _) => Ending::Hung(seconds_max),
        // Who does not end when asked takes timeout(1) along.
        (None, Some(SIGKILL)) if out_of_time => Ending::Hung(seconds_max),
        (Some(code), _) => Ending::Exit(code),
        (None, signal) => Ending::Signal(signal.unwrap_or_default()),
    };
    let mut said = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut said)?;
    Ok((ending, String::from_utf8_lossy(&said).into_owned()))
}

/// The same command under timeout(1), which also ends what the command started.
fn limited(command: &Command, seconds_max: u32) -> Command {
    let mut timed = Command::new("timeout");
    timed.arg("--kill-after=20").arg(seconds_max.to_string());
    timed.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        timed.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => timed.env(name, value),
            None => timed.env_remove(name),
        };
    }
    timed
}

/// A temporary file that is gone once it is closed.
fn nameless_file() -> io::Result<File> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("strake-xtask-{}.{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Runs a command for its exit code only and returns the last line it wrote to standard error on failure.
pub fn probe(command: &mut Command) -> Result<(), String> {
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return Err(format!("cannot run {}: {error}", name(command))),
    };
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(format!("{} ended with {}: {}", name(command), output.status, said.trim()))
}

/// Runs `cargo test` or a command that prints the same result lines, echoes its output and counts the tests.
pub fn test_run(command: &mut Command) -> Outcome {
    let child = command.stdout(Stdio::piped()).spawn();
    let ended = child.and_then(|mut child| {
        let tally = match child.stdout.take() {
            Some(stdout) => count(BufReader::new(stdout), &mut io::stdout())?,
            None => Tally::default(),
        };
        Ok((tally, child.wait()?))
    });
    match ended {
        Ok((tally, status)) => judge(tally, status.success(), &name(command)),
        Err(error) => Outcome::failed(format!("cannot run {}: {error}", name(command))),
    }
}

/// Runs a command whose exit code is the answer, echoes what it prints and returns that as well.
pub fn reported(command: &mut Command) -> (Outcome, String) {
    let child = command.stdout(Stdio::piped()).spawn();
    let ended = child.and_then(|mut child| {
        let mut reported = String::new();
        for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
            let line = line?;
            println!("{line}");
            reported += &line;
            reported.push('\n');
        }
        Ok((reported, child.wait()?))
    });
    match ended {
        Ok((reported, status)) if status.success() => (Outcome::passed(""), reported),
        Ok((reported, status)) => {
            (Outcome::failed(format!("{} ended with {status}", name(command))), reported)
        }
        Err(error) => {
            (Outcome::failed(format!("cannot run {}: {error}", name(command))), String::new())
        }
    }
}

/// Runs a program of tests, which prints result lines, for at most `seconds_max`. Returns its outcome and its output,
/// for callers that run several at once.
pub fn quiet_test_run(command: &Command, seconds_max: u32) -> (Outcome, String) {
    match heard(command, seconds_max) {
        Ok((ending, said)) => {
            let results = said.lines().filter_map(result_line);
            let sum = results.reduce(|mut sum, one| {
                sum.add(one);
                sum
            });
            let outcome = match (sum, ending) {
                // Of the programs of a workspace some have no test.
                (Some(tally), Ending::Exit(0)) => Outcome { tally, ..Outcome::default() },
                (None, Ending::Exit(0)) => Outcome::failed("told of no test"),
                (sum, ending) => {
                    let mut tally = sum.unwrap_or_default();
                    tally.failed = tally.failed.max(1);
                    Outcome { tally, note: ending.to_string(), ..Outcome::default() }
                }
            };
            (outcome, said)
        }
        Err(error) => (Outcome::failed(format!("cannot run timeout: {error}")), String::new()),
    }
}

/// Copies every line and adds up those that are result lines.
fn count(from: impl BufRead, to: &mut impl Write) -> io::Result<Tally> {
    let mut tally = Tally::default();
    for line in from.lines() {
        let line = line?;
        tally.add(result_line(&line).unwrap_or_default());
        writeln!(to, "{line}")?;
    }
    Ok(tally)
}

/// A build error or a crash fails without any failed test being counted, and a run of no test shows nothing.
fn judge(mut tally: Tally, success: bool, what: &str) -> Outcome {
    if !success {
        tally.failed = tally.failed.max(1);
        return Outcome { tally, note: format!("{what} failed"), ..Outcome::default() };
    }
    if tally == Tally::default() {
        return Outcome::failed(format!("{what} ran no test"));
    }
    Outcome { tally, ..Outcome::default() }
}

/// Counts of a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; ...` (libtest's output).
pub fn result_line(line: &str) -> Option<Tally> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut tally = Tally::default();
    for part in counts.split(';') {
        let (number, what) = part.trim().split_once(' ')?;
        match what {
            "passed" => tally.passed = number.parse().ok()?,
            "failed" => tally.failed = number.parse().ok()?,
            "ignored" => tally.skipped = number.parse().ok()?,
            _ => {}
        }
    }
    Some(tally)
}

fn name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
