//! The enumerator of crashes, random corruptions and the simulator, as release builds, with a fresh seed unless one is
//! given.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::run::{self, Outcome};

/// Checks this many crash states.
pub fn crash(root: &Path, states: &Draw) -> Outcome {
    states.of(root, &[], "--crash")
}

/// The same, and fails as well when recoveries did not do everything that they can do.
pub fn crash_and_cover(root: &Path, states: u64) -> Outcome {
    check(root, &["--crash", &states.to_string(), "--seed", &fresh_seed().to_string(), COVER])
}

/// Checks every pair of events on small geometries; the same holds.
pub fn pairs(root: &Path) -> Outcome {
    check(root, &[PAIRS, "--seed", &fresh_seed().to_string(), COVER])
}

/// What the simulator calls that.
const COVER: &str = "--cover";

/// What the simulator calls pairs.
const PAIRS: &str = "--crash-pairs";

/// How many of something are drawn.
pub struct Draw {
    /// From the seed that is always the same: it separates what a change breaks from what no run has met before.
    pub same: u64,
    /// With a new random seed in every run.
    pub fresh: u64,
}

/// The seed that is always the same.
const SAME_SEED: &str = "1";

impl Draw {
    fn of(&self, root: &Path, words: &[&str], count: &str) -> Outcome {
        let draw = |count_of: u64, seed: &str| {
            check(root, &[words, &[count, &count_of.to_string(), "--seed", seed]].concat())
        };
        let same = (self.same > 0).then(|| draw(self.same, SAME_SEED));
        match same {
            Some(same) if same.tally.failed != 0 || self.fresh == 0 => same,
            Some(_) | None => draw(self.fresh, &fresh_seed().to_string()),
        }
    }
}

/// Writes over a member of this many arrays.
pub fn corrupt(root: &Path, runs: &Draw) -> Outcome {
    runs.of(root, &[], "--corrupt")
}

/// Runs the worlds that failed once, and this many others.
pub fn worlds(root: &Path, seeds: &Draw) -> Outcome {
    seeds.of(root, &["--kept"], "--seeds")
}

/// Starts arrays of modelled drives, each shape this often, after their daemon was killed.
pub fn starts(root: &Path, runs: u64) -> Outcome {
    check(root, &["--restart", &runs.to_string(), "--seed", &fresh_seed().to_string()])
}

/// Follows in the model what worlds do to the labels of their drives.
pub fn traces(root: &Path) -> Outcome {
    check(root, &["--traces", NIGHTLY_TRACES, "--seed", &fresh_seed().to_string()])
}

/// Worlds whose labels are followed in the model every night.
const NIGHTLY_TRACES: &str = "3000";

/// Builds the simulator, so that no run of it has to.
pub fn build(root: &Path) -> Outcome {
    run::check(&mut run::command(root, &["cargo", "build", "--release", "-q", "-p", "strake-sim"]))
}

/// The simulator with `words`.
pub fn command(root: &Path, words: &[&str]) -> Command {
    let tool = ["cargo", "run", "--release", "--quiet", "-p", "strake-sim", "--"];
    run::command(root, &[&tool[..], words].concat())
}

fn check(root: &Path, words: &[&str]) -> Outcome {
    let (outcome, reported) = run::reported(&mut command(root, words));
    // The tool has printed how to replay what failed; the summary names the run and says what it covered.
    if outcome.tally.failed == 0 {
        Outcome::passed(format!("{}{}", words.join(" "), counts(&reported)))
    } else {
        outcome
    }
}

/// The counts of the closing line of a run, in words; nothing where there is no such line.
fn counts(reported: &str) -> String {
    let closing = reported.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    let Some(closing) = closing else { return String::new() };
    let parts = ["runs", "violations", "covered", "shapes", "starts"];
    let parts =
        parts.into_iter().filter_map(|part| Some(format!(" {part} {}", closing.get(part)?)));
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { String::new() } else { format!(":{}", parts.join(",")) }
}

/// A seed that is new every time.
pub fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64 & 0xffff_ffff_ffff
}

/// `cargo xtask crash --states N [--seed S]`, `cargo xtask crash --pairs [--seed S]`, `cargo xtask crash --restart N
/// [--seed S]`, `cargo xtask corrupt --runs N [--seed S]`, `cargo xtask sim --seeds N [--seed S]` and `cargo xtask sim
/// --shrink SEED`: the last line is JSON.
pub fn run(root: &Path, command: &str, words: &[String]) -> ExitCode {
    let (mut asked, seed) = match request(command, words) {
        Ok(request) => request,
        Err(what) => {
            eprintln!("xtask: {what}");
            return ExitCode::from(3);
        }
    };
    let seed = seed.unwrap_or_else(|| fresh_seed().to_string());
    println!("seed {seed}");
    asked.extend(["--seed".to_owned(), seed]);
    let words: Vec<&str> = asked.iter().map(String::as_str).collect();
    if check(root, &words).tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What the simulator is asked for, and from which seed on.
fn request(command: &str, words: &[String]) -> Result<(Vec<String>, Option<String>), String> {
    let (counted, options) = match command {
        "crash" => ("--states", &["--crash"][..]),
        "corrupt" => ("--runs", &["--corrupt"][..]),
        _ => ("--seeds", &["--kept", "--seeds"][..]),
    };
    let or = match command {
        "crash" => " | --pairs | --restart N",
        "sim" => " | --shrink SEED",
        _ => "",
    };
    let wrong = || format!("usage: cargo xtask {command} {counted} N{or} [--seed S]");
    let number = |word: &String| word.parse::<u64>().map(|n| n.to_string()).map_err(|_| wrong());
    let (asked, rest): (Vec<String>, &[String]) = match words {
        [what, seed] if command == "sim" && what == "--shrink" => {
            return Ok((vec![what.clone()], Some(number(seed)?)));
        }
        [what, rest @ ..] if command == "crash" && what == "--pairs" => {
            (vec![PAIRS.to_owned()], rest)
        }
        [what, count, rest @ ..] if command == "crash" && what == "--restart" => {
            (vec![what.clone(), number(count)?], rest)
        }
        [what, count, rest @ ..] if what == counted => {
            let mut asked: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
            asked.push(number(count)?);
            (asked, rest)
        }
        _ => return Err(wrong()),
    };
    match rest {
        [] => Ok((asked, None)),
        [from, seed] if from == "--seed" => Ok((asked, Some(number(seed)?))),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests;
