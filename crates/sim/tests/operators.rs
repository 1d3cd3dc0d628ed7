//! Random operators: kept seeds, a fixed set, random seeds, replay.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use strake_sim::stage::operate;
use strake_sim::{Settings, kept};

/// The events that the fixed seeds must have to be valid.
const EVENTS: [&str; 7] = ["destroy", "fail", "medium", "readd", "replace", "split", "vanish"];

/// Runs every seed and reports failures. Returns the counts of events.
fn check(seeds: impl IntoIterator<Item = u64>) -> BTreeMap<&'static str, u64> {
    let mut events = BTreeMap::new();
    let mut complaints = Vec::new();
    for seed in seeds {
        let report = operate(seed, Settings::default());
        for (kind, count) in report.trace.faults() {
            *events.entry(kind).or_insert(0) += count;
        }
        complaints.extend(report.violation.map(|violation| {
            format!(
                "seed {seed}: {}\n  {violation}\n  replay: cargo run -p strake-sim -- --seed {seed} --operators 1 \
                 --print",
                report.shape
            )
        }));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    events
}

#[test]
fn kept_operators_lose_nothing() {
    check(kept::seeds("seeds-operators").expect("the folder is part of the crate"));
}

#[test]
fn fixed_operators_do_everything_and_lose_nothing() {
    let events = check(1..50);
    for kind in EVENTS {
        assert!(events.contains_key(kind), "no {kind} in the fixed seeds");
    }
}

#[test]
fn fresh_operators_lose_nothing() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let first = since.as_nanos() as u64 & 0xffff_ffff_ffff;
    println!("fresh operators from {first}");
    check(first..first + 15);
}

#[test]
fn an_operator_replays_to_the_last_event() {
    for seed in 1..6 {
        let (a, b) = (operate(seed, Settings::default()), operate(seed, Settings::default()));
        let last = |report: &strake_sim::Report| (report.trace.hash(), report.trace.events());
        assert_eq!(last(&a), last(&b), "seed {seed}");
    }
}
