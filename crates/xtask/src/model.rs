//! `cargo xtask model`: TLC on the specification in docs/model, compared with what is recorded of it.
//!
//! The Rust counterpart of the specification (`strake_sim::model`) is compared with the same record by
//! `crates/sim/tests/model.rs`, so that a machine without Java checks the model too.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use serde_json::{Value, json};

use crate::run::{self, Ending, Outcome};
use crate::sim;

#[cfg(test)]
mod tests;

/// Where the specification, its configurations and the record are.
const FOLDER: &str = "docs/model";
/// Distinct states, diameter and the violated invariant of each configuration, as TLC saw them.
const RECORD: &str = "docs/model/states.json";
/// The variable that says where TLC is.
const JAR: &str = "TLA2TOOLS_JAR";
/// TLC on one configuration, at most.
const SECONDS_MAX: u32 = 3600;

/// Runs TLC on every recorded configuration, or on those whose names contain `word`; a line of JSON for each.
pub fn run(root: &Path, word: Option<&str>) -> ExitCode {
    let outcome = check(root, word.unwrap_or_default());
    println!("{}: {}", outcome.word(), outcome.note);
    if outcome.tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The same for a night: TLC where there is one.
pub fn step(root: &Path) -> Outcome {
    check(root, "")
}

/// The larger configurations, which the Rust counterpart alone goes through.
pub fn larger(root: &Path) -> Outcome {
    let folder = root.join(FOLDER);
    let names = fs::read_dir(&folder).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("nightly-")).collect();
    names.sort();
    let paths: Vec<String> = names.iter().map(|name| format!("{FOLDER}/{name}")).collect();
    let words: Vec<&str> =
        ["--model"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    let (outcome, printed) = run::reported(&mut sim::command(root, &words));
    if outcome.tally.failed > 0 {
        return outcome;
    }
    let lines: Vec<Value> =
        printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let wrong = |line: &&Value| {
        let broken = line["config"].as_str().is_some_and(|name| name.contains("broken"));
        broken == line["violated"].is_null()
    };
    match lines.iter().find(wrong) {
        _ if lines.len() != names.len() => Outcome::failed("not every configuration was searched"),
        Some(line) => Outcome::failed(line.to_string()),
        None => Outcome::passed(lines.iter().map(Value::to_string).collect::<Vec<_>>().join(" ")),
    }
}

fn check(root: &Path, word: &str) -> Outcome {
    let jar = match jar(root) {
        Ok(jar) => jar,
        Err(why) => return Outcome::skipped(why),
    };
    let record = match fs::read_to_string(root.join(RECORD)).map(|text| serde_json::from_str(&text))
    {
        Ok(Ok(Value::Array(record))) => record,
        other => return Outcome::failed(format!("{RECORD}: {other:?}")),
    };
    let mut checked = 0;
    for entry in record {
        let name = entry["config"].as_str().unwrap_or_default();
        if !name.contains(word) {
            continue;
        }
        let seen = match tlc(root, &jar, name) {
            Ok(seen) => seen,
            Err(why) => return Outcome::failed(format!("{name}: {why}")),
        };
        println!("{seen}");
        if !agrees(&entry, &seen) {
            return Outcome::failed(format!("recorded: {entry}, seen: {seen}"));
        }
        checked += 1;
    }
    if checked == 0 {
        Outcome::failed("no such configuration")
    } else {
        Outcome::passed(format!("{checked} configurations"))
    }
}

/// Whether TLC saw what is recorded. Where an invariant fails, the number of states depends on the order of a level.
fn agrees(recorded: &Value, seen: &Value) -> bool {
    let same = |field: &str| recorded[field] == seen[field];
    same("violated") && same("diameter") && (!seen["violated"].is_null() || same("states"))
}

/// The jar of TLC, or how to get it.
fn jar(root: &Path) -> Result<PathBuf, String> {
    let named = env::var_os(JAR).map(PathBuf::from);
    let jar = named.unwrap_or_else(|| root.join("target/tla2tools.jar"));
    if !jar.is_file() {
        return Err(format!(
            "{} does not exist: set {JAR} to tla2tools.jar from the releases of github.com/tlaplus/tlaplus, or build \
             it from that source (docs/model/README.md says how)",
            jar.display()
        ));
    }
    run::probe(&mut run::command(root, &["java", "-version"]))
        .map_err(|why| format!("no Java: {why}"))?;
    Ok(jar)
}

fn tlc(root: &Path, jar: &Path, name: &str) -> Result<Value, String> {
    let states = env::temp_dir().join(format!("strake-tlc-{}", std::process::id()));
    let (jar, meta) = (jar.to_string_lossy(), states.to_string_lossy());
    let config = format!("{name}.cfg");
    // One worker: with more, the diameter is an estimate.
    let words = [
        "java",
        "-XX:+UseParallelGC",
        "-jar",
        &jar,
        "-workers",
        "1",
        "-noGenerateSpecTE",
        "-metadir",
        &meta,
        "-config",
        &config,
        "Strake",
    ];
    let heard = run::heard(&run::command(&root.join(FOLDER), &words), SECONDS_MAX);
    let _ = fs::remove_dir_all(&states);
    match heard {
        Ok((Ending::Exit(_), said)) => seen(name, &said),
        Ok((ending, _)) => Err(ending.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// What TLC printed, as it is recorded.
fn seen(name: &str, said: &str) -> Result<Value, String> {
    let between = |before: &str, after: &str| {
        let line = said.lines().rev().find(|line| line.contains(before) && line.contains(after))?;
        Some(line.split_once(before)?.1.split_once(after)?.0.replace(',', ""))
    };
    let number = |before: &str, after: &str| {
        let digits = between(before, after).and_then(|digits| digits.trim().parse::<u64>().ok());
        digits.ok_or_else(|| said.lines().rev().take(5).collect::<Vec<_>>().join("; "))
    };
    let violated = between("Error: Invariant ", " is violated");
    if violated.is_none() && !said.contains("No error has been found") {
        return Err(said.lines().rev().take(5).collect::<Vec<_>>().join("; "));
    }
    Ok(json!({
        "config": name,
        "states": number("states generated, ", " distinct states found")?,
        "diameter": number("complete state graph search is ", ".")?,
        "violated": violated,
    }))
}
