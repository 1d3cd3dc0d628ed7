//! The enumerator of crashes, random corruptions and the simulator, as release builds, with a fresh seed unless one is
//! given.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::run::{self, Outcome};

/// Looks at this many crash states.
pub fn crash(root: &Path, states: u64) -> Outcome {
    check(root, &["--crash", &states.to_string(), "--seed", &fresh_seed().to_string()])
}

/// How many of something are drawn.
pub struct Draw {
    /// From the seed that is always the same: what a change breaks is told from what nobody had met before.
    pub same: u64,
    /// From a seed that is new every time.
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
        same.filter(|outcome| outcome.tally.failed != 0)
            .unwrap_or_else(|| draw(self.fresh, &fresh_seed().to_string()))
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

/// The simulator with `words`.
pub fn command(root: &Path, words: &[&str]) -> Command {
    let tool = ["cargo", "run", "--release", "--quiet", "-p", "strake-sim", "--"];
    run::command(root, &[&tool[..], words].concat())
}

fn check(root: &Path, words: &[&str]) -> Outcome {
    let outcome = run::check(&mut command(root, words));
    // The tool has printed how to replay what failed; the summary names the run.
    if outcome.tally.failed == 0 { Outcome::passed(words.join(" ")) } else { outcome }
}

/// A seed that is new every time.
pub fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64 & 0xffff_ffff_ffff
}

/// `cargo xtask crash --states N [--seed S]`, `cargo xtask corrupt --runs N [--seed S]` and `cargo xtask sim --seeds N
/// [--seed S]`: the last line is JSON.
pub fn run(root: &Path, command: &str, words: &[String]) -> ExitCode {
    let (count, seed) = match numbers(command, words) {
        Ok(numbers) => numbers,
        Err(what) => {
            eprintln!("xtask: {what}");
            return ExitCode::from(3);
        }
    };
    let seed = seed.unwrap_or_else(|| fresh_seed().to_string());
    println!("seed {seed}");
    let outcome = match command {
        "crash" => check(root, &["--crash", &count, "--seed", &seed]),
        "corrupt" => check(root, &["--corrupt", &count, "--seed", &seed]),
        _ => check(root, &["--kept", "--seeds", &count, "--seed", &seed]),
    };
    if outcome.tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How many, and from which seed on.
fn numbers(command: &str, words: &[String]) -> Result<(String, Option<String>), String> {
    let counted = match command {
        "crash" => "--states",
        "corrupt" => "--runs",
        _ => "--seeds",
    };
    let wrong = || format!("usage: cargo xtask {command} {counted} N [--seed S]");
    let number = |word: &String| word.parse::<u64>().map(|n| n.to_string()).map_err(|_| wrong());
    match words {
        [what, count] if what == counted => Ok((number(count)?, None)),
        [what, count, from, seed] if what == counted && from == "--seed" => {
            Ok((number(count)?, Some(number(seed)?)))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests;
