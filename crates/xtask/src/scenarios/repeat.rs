//! Running what the catalogue claims, again and again: a test that shows something shows it every time.

use std::collections::BTreeMap;
use std::path::Path;

use super::catalogue::Scenario;
use crate::run::{self, Outcome, Tally};
use crate::tidy::repo::Repo;

/// One test binary: the words that make cargo choose it.
type Target = Vec<String>;

/// Runs every claimed Rust test of the scenarios `times` times, binary by binary. Scripts are named and left out.
pub fn run(root: &Path, repo: &Repo, scenarios: &[Scenario], times: u32) -> Outcome {
    let mut targets: BTreeMap<Target, Vec<String>> = BTreeMap::new();
    for claim in scenarios.iter().flat_map(Scenario::claims) {
        match place(claim, repo) {
            Some((target, test)) => targets.entry(target).or_default().push(test),
            None => println!("-- {claim} is no Rust test and is not repeated"),
        }
    }
    let mut total = Tally::default();
    for (target, tests) in &mut targets {
        tests.sort();
        tests.dedup();
        for round in 1..=times {
            let tally = once(root, target, tests);
            total.add(tally);
            if tally.failed > 0 {
                let note = format!("round {round} of {} failed", target.join(" "));
                return Outcome { tally: total, note, ..Outcome::default() };
            }
        }
        println!("-- {} test(s) of {} held {times} times", tests.len(), target.join(" "));
    }
    if total == Tally::default() {
        return Outcome::failed("no claimed Rust test was chosen");
    }
    Outcome { tally: total, note: format!("{times} round(s)"), ..Outcome::default() }
}

/// Runs the tests of one binary once. A test that was not found counts as failed.
fn once(root: &Path, target: &[String], tests: &[String]) -> Tally {
    let mut words: Vec<&str> = vec!["cargo", "test", "--quiet"];
    words.extend(target.iter().map(String::as_str));
    words.extend(["--", "--exact"]);
    words.extend(tests.iter().map(String::as_str));
    let mut tally = run::test_run(&mut run::command(root, &words)).tally;
    let ran = tally.passed + tally.failed;
    tally.failed += (tests.len() as u64).saturating_sub(ran);
    tally
}

/// The binary in which a claimed test is, and its full name there; `None` for a script.
///
/// Where sources lie says which binary they belong to (The Cargo Book, "Cargo Targets"): `src` is the library, or the
/// program where there is none, `tests/NAME.rs` and `tests/NAME/main.rs` are binaries of their own.
pub fn place(claim: &str, repo: &Repo) -> Option<(Target, String)> {
    let (path, function) = claim.split_once(".rs::")?;
    let mut parts = path.strip_prefix("crates/")?.split('/');
    let (folder, area) = (parts.next()?, parts.next()?);
    let mut modules: Vec<&str> = parts.collect();
    let mut target = vec!["-p".to_string(), format!("strake-{folder}")];
    if area == "tests" {
        target.extend(["--test".to_string(), modules.remove(0).to_string()]);
    } else if repo.source(&format!("crates/{folder}/src/lib.rs")).is_some() {
        target.push("--lib".to_string());
    } else {
        target.push("--bins".to_string());
    }
    modules.retain(|module| !["lib", "main", "mod"].contains(module));
    modules.push(function);
    Some((target, modules.join("::")))
}
