//! `cargo xtask nightly --minutes N`: the part of the night that looks for lost data, in so many minutes.
//!
//! Crash states, pairs of events, corruptions and worlds are drawn in rounds of fresh seeds until the share of each is
//! over; mutants have the rest. The counts of all rounds are added up in one closing line.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::mutants;
use crate::run::{self, Outcome};
use crate::sim;

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

const TIERS: [Tier; 5] = [
    Tier { name: "crash", share: 20, round: &["--crash", "250000", "--cover"], seeds: 1 },
    Tier { name: "pairs", share: 5, round: &["--crash-pairs", "40"], seeds: 40 },
    Tier { name: "corrupt", share: 5, round: &["--corrupt", "20000"], seeds: 1 },
    Tier { name: "sim", share: 20, round: &["--kept", "--seeds", "2000"], seeds: 2_000 },
    Tier { name: "operators", share: 5, round: &["--operators", "500"], seeds: 500 },
];

/// Runs everything, and prints what came of it as one line of JSON.
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
    let mut sum = Map::new();
    let mut failed = false;
    for tier in TIERS {
        let until = Instant::now() + whole * tier.share / 100;
        let (counts, passed) = rounds(root, &tier, until);
        failed |= !passed;
        sum.insert(tier.name.to_owned(), counts);
    }
    let (counts, passed) = mutants::until(root, began + whole);
    failed |= !passed;
    sum.insert("mutants".to_owned(), counts);
    let seconds = began.elapsed().as_secs();
    println!(
        "{}",
        json!({ "minutes": minutes, "seconds": seconds, "passed": !failed, "tiers": sum })
    );
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Rounds of a tier until its time is over, one at least, or one fails.
fn rounds(root: &Path, tier: &Tier, until: Instant) -> (Value, bool) {
    let first = sim::fresh_seed();
    let mut counts = json!({ "rounds": 0, "first_seed": first });
    for round in 0.. {
        let seed = (first + round * tier.seeds).to_string();
        let words = [tier.round, &["--seed", &seed]].concat();
        println!("-- {}", words.join(" "));
        let (Outcome { tally, note }, told) = run::told(&mut sim::command(root, &words));
        let told = told.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let Some(Value::Object(told)) = told else {
            println!("{} told nothing: {note}", tier.name);
            return (counts, false);
        };
        add(&mut counts, &Value::Object(told));
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

/// Adds the counts of `other` to those of `sum`.
fn add(sum: &mut Value, other: &Value) {
    match (sum, other) {
        (Value::Object(sum), Value::Object(other)) => {
            let counts = other.iter().filter(|(name, _)| !OF_A_ROUND.contains(&name.as_str()));
            for (name, value) in counts {
                let nothing = if value.is_object() { json!({}) } else { json!(0) };
                add(sum.entry(name.clone()).or_insert(nothing), value);
            }
        }
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
