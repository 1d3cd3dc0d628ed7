//! `cargo xtask nightly --minutes N`: the part of the night that looks for lost data, in so many minutes.
//!
//! Crash states, pairs of events, corruptions and worlds are drawn in rounds of fresh seeds until the share of each is
//! over; mutants have the rest. The counts of all rounds are added up in one closing line.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::run::{self, Outcome};
use crate::{mutants, sim};

#[cfg(test)]
mod tests;

/// What is drawn, a round at a time.
struct Tier {
    name: &'static str,
    /// Of all the time, in percent.
    share: u32,
    /// Words of the simulator for a round.
    round: &'static [&'static str],
    /// Seeds that a round takes.
    seeds: u64,
}

/// Rounds are short, so that a short night keeps to its shares.
const TIERS: [Tier; 6] = [
    Tier { name: "crash", share: 15, round: &["--crash", "25000"], seeds: 1 },
    Tier { name: "pairs", share: 12, round: &["--crash-pairs", "4"], seeds: 4 },
    Tier { name: "corrupt", share: 5, round: &["--corrupt", "5000"], seeds: 1 },
    Tier { name: "sim", share: 18, round: &["--kept", "--seeds", "500"], seeds: 500 },
    Tier { name: "operators", share: 5, round: &["--operators", "200"], seeds: 200 },
    Tier { name: "starts", share: 3, round: &["--restart", "1"], seeds: 1 },
];

/// Runs everything, and prints the result as one line of JSON.
pub fn run(root: &Path, words: &[String]) -> ExitCode {
    let minutes = match words {
        [minutes, number] if minutes == "--minutes" => number.parse::<u32>().ok(),
        _ => None,
    };
    let Some(minutes) = minutes.filter(|minutes| *minutes > 0) else {
        eprintln!("xtask: usage: cargo xtask nightly [--minutes N]");
        return ExitCode::from(3);
    };
    let whole = Duration::from_secs(u64::from(minutes) * 60);
    let began = Instant::now();
    // The share of no tier goes into it.
    let built = sim::build(root);
    let mut night = Night { failed: built.tally.failed > 0, ..Night::default() };
    for tier in TIERS {
        night.take(tier.name, rounds(root, &tier, Instant::now() + whole * tier.share / 100));
    }
    night.take(MUTANTS, mutants::until(root, began + whole));
    let seconds = began.elapsed().as_secs();
    println!("{}", night.closing(minutes, seconds));
    if night.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Name of the tier that is not drawn in rounds.
const MUTANTS: &str = "mutants";

/// What came of a night.
#[derive(Default)]
struct Night {
    /// The counts of each tier, by its name.
    tiers: Map<String, Value>,
    failed: bool,
}

impl Night {
    fn take(&mut self, name: &str, (counts, passed): (Value, bool)) {
        self.failed |= !passed;
        self.tiers.insert(name.to_owned(), counts);
    }

    /// What all tiers count under this name, added up.
    fn sum(&self, name: &str) -> Value {
        let mut sum = json!({});
        for value in self.tiers.values().filter_map(|counts| counts.get(name)) {
            add(&mut sum, &json!({ name: value }));
        }
        sum[name].take()
    }

    /// What no recovery did that a tier looks out for.
    fn never_done(&self) -> Vec<String> {
        let Value::Object(branches) = self.sum(BRANCHES) else { return Vec::new() };
        let never = branches.into_iter().filter(|(_, times)| *times == 0);
        never.map(|(name, _)| name).collect()
    }

    /// A night that has not seen every way that a recovery takes shows less than it says.
    fn failed(&self) -> bool {
        self.failed || !self.never_done().is_empty()
    }

    fn closing(&self, minutes: u32, seconds: u64) -> Value {
        let mut tiers = self.tiers.clone();
        let mutants = tiers.remove(MUTANTS);
        json!({
            "minutes": minutes,
            "seconds": seconds,
            "passed": !self.failed(),
            "runs": self.sum("runs"),
            "violations": self.sum("violations"),
            "faults": self.sum("faults"),
            BRANCHES: self.sum(BRANCHES),
            "never_done": self.never_done(),
            MUTANTS: mutants,
            "tiers": tiers,
        })
    }
}

/// Under this name tiers count what recoveries did.
const BRANCHES: &str = "branches";

/// Rounds of a tier until its time has passed, one at least, or one fails.
fn rounds(root: &Path, tier: &Tier, until: Instant) -> (Value, bool) {
    let first = sim::fresh_seed();
    let mut counts = json!({ "rounds": 0, "first_seed": first });
    for round in 0.. {
        let seed = (first + round * tier.seeds).to_string();
        let words = [tier.round, &["--seed", &seed]].concat();
        println!("-- {}", words.join(" "));
        let (Outcome { tally, note, .. }, reported) =
            run::reported(&mut sim::command(root, &words));
        let reported = reported.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let Some(Value::Object(reported)) = reported else {
            println!("{} told nothing: {note}", tier.name);
            return (counts, false);
        };
        add(&mut counts, &Value::Object(reported));
        add(&mut counts, &json!({ "rounds": 1 }));
        if tally.failed > 0 {
            return (counts, false);
        }
        if Instant::now() >= until {
            break;
        }
    }
    (counts, true)
}

/// Of a round alone, and no count of anything.
const OF_A_ROUND: [&str; 2] = ["seed", "trace_hash"];

/// Ends the names of numbers of which the largest counts.
const MOST: &str = "_max";

/// Adds the counts of `other` to those of `sum`.
fn add(sum: &mut Value, other: &Value) {
    match (sum, other) {
        (Value::Object(sum), Value::Object(other)) => {
            let counts = other.iter().filter(|(name, _)| !OF_A_ROUND.contains(&name.as_str()));
            for (name, value) in counts {
                let nothing = match value {
                    Value::Object(_) => json!({}),
                    Value::Bool(_) => json!(true),
                    _ => json!(0),
                };
                let sum = sum.entry(name.clone()).or_insert(nothing);
                if name.ends_with(MOST) {
                    let larger = value.as_f64() > sum.as_f64();
                    *sum = if larger { value.clone() } else { sum.take() };
                } else {
                    add(sum, value);
                }
            }
        }
        (Value::Bool(sum), Value::Bool(other)) => *sum &= other,
        (sum, other) => {
            *sum = match (sum.as_u64(), other.as_u64()) {
                (Some(sum), Some(other)) => json!(sum + other),
                _ => match (sum.as_f64(), other.as_f64()) {
                    (Some(sum), Some(other)) => json!(sum + other),
                    _ => other.clone(),
                },
            };
        }
    }
}
