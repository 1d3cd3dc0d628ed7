//! The gate on instructions per request: what a read and a write execute, counted and compared with the recorded
//! counts.
//!
//! Times vary with the machine and its neighbours; instructions do not. They are counted by valgrind, which is slow and
//! exact: each case runs twice, with few and with many requests, and the difference belongs to the requests alone.
//! Valgrind knows no AVX-512, so the parity kernel is the AVX2 one; where there is another, nothing can be compared.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use serde::{Deserialize, Serialize};

use crate::run::{self, Outcome, Tally};

#[cfg(test)]
mod tests;

/// Where the numbers are kept.
const FILE: &str = "docs/benchmarks/instructions.json";
/// More than this above the kept number fails; less than this below asks for an update.
const ALLOWED: f64 = 0.05;
/// Requests of the two runs of a case.
const REQUESTS: [u64; 2] = [1000, 4000];
/// Seconds after which valgrind is taken for hung.
const SECONDS_MAX: &str = "120";

/// What is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    /// The parity kernel that was counted.
    kernel: String,
    /// Instructions per request, the load's own among them.
    per_request: BTreeMap<String, f64>,
}

/// What the cases are: the name for the example program, and for people.
const CASES: [(&str, &str); 4] = [
    ("read", "raid6 6+2 randread 4KiB, clean"),
    ("write", "raid6 6+2 randwrite 4KiB, read-modify-write"),
    ("mirror", "raid1 x2 randwrite 4KiB"),
    ("degraded", "raid6 6+2 randread 4KiB, two members missing"),
];

/// Counts, and compares with what is kept.
pub fn check(root: &Path) -> Outcome {
    let text = match std::fs::read_to_string(root.join(FILE)) {
        Ok(text) => text,
        Err(error) => return Outcome::failed(format!("cannot read {FILE}: {error}")),
    };
    let kept: Kept = match serde_json::from_str(&text) {
        Ok(kept) => kept,
        Err(error) => return Outcome::failed(format!("{FILE} is damaged: {error}")),
    };
    match count(root) {
        Ok(counted) => compare(&kept, &counted),
        Err(outcome) => outcome,
    }
}

/// Counts, and keeps the result.
pub fn update(root: &Path) -> Outcome {
    let counted = match count(root) {
        Ok(counted) => counted,
        Err(outcome) => return outcome,
    };
    let text = match serde_json::to_string_pretty(&counted) {
        Ok(text) => text + "\n",
        Err(error) => return Outcome::failed(format!("cannot write {FILE}: {error}")),
    };
    match std::fs::write(root.join(FILE), text) {
        Ok(()) => Outcome::passed(format!("{FILE} is up to date; commit it with the reason")),
        Err(error) => Outcome::failed(format!("cannot write {FILE}: {error}")),
    }
}

/// Instructions per request of every case, or why they cannot be counted.
fn count(root: &Path) -> Result<Kept, Outcome> {
    if let Err(why) = run::probe(&mut run::command(root, &["valgrind", "--version"])) {
        let how = "apt-get install valgrind; instructions are counted by nothing else, so that numbers compare";
        return Err(Outcome::skipped(format!("no valgrind ({why}): {how}")));
    }
    let words = [
        "cargo",
        "build",
        "--release",
        "--quiet",
        "-p",
        "strake-bench",
        "--example",
        "instructions",
    ];
    let built = run::check(&mut run::command(root, &words));
    if built.tally.failed > 0 {
        return Err(built);
    }
    let program = crate::ci::target_folder(root).join("release/examples/instructions");
    let mut kept = Kept::default();
    for (case, name) in CASES {
        let [few, many] = both(root, &program, case)?;
        let each = many.0.saturating_sub(few.0) as f64 / (REQUESTS[1] - REQUESTS[0]) as f64;
        println!("{name}: {each:.0} instructions per request (kernel {})", many.1);
        kept.kernel = many.1;
        kept.per_request.insert(name.to_owned(), (each * 10.0).round() / 10.0);
    }
    Ok(kept)
}

/// Both runs of a case, side by side: counts do not mind company.
fn both(root: &Path, program: &Path, case: &str) -> Result<[(u64, String); 2], Outcome> {
    let run = |requests| one(root, program, case, requests);
    let (few, many) = std::thread::scope(|scope| {
        let few = scope.spawn(|| run(REQUESTS[0]));
        let many = run(REQUESTS[1]);
        (few.join(), many)
    });
    let few = few.unwrap_or_else(|_| Err(Outcome::failed("counting panicked")));
    Ok([few?, many?])
}

/// Instructions of one run, and the parity kernel in use.
fn one(root: &Path, program: &Path, case: &str, requests: u64) -> Result<(u64, String), Outcome> {
    let words = ["timeout", "--kill-after=5", SECONDS_MAX, "valgrind", "--tool=callgrind"];
    let mut command = run::command(root, &words);
    command.arg("--callgrind-out-file=/dev/null").arg(program).arg(case).arg(requests.to_string());
    let output = command.env_remove("STRAKE_KERNEL").stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| Outcome::failed(format!("cannot run valgrind: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let kernel = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match collected(&said) {
        Some(count) if output.status.success() => Ok((count, kernel)),
        _ => {
            Err(Outcome::failed(format!("valgrind ended with {}: {}", output.status, said.trim())))
        }
    }
}

/// The number in callgrind's line "==123== Collected : 456".
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().rev().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// A check for each case.
fn compare(kept: &Kept, counted: &Kept) -> Outcome {
    if kept.kernel != counted.kernel {
        let (then, now) = (&kept.kernel, &counted.kernel);
        return Outcome::skipped(format!(
            "{FILE} is of kernel {then}, and valgrind runs {now} on this CPU"
        ));
    }
    let mut outcome = Outcome::default();
    let mut say = |text: String| {
        if !outcome.note.is_empty() {
            outcome.note.push_str("; ");
        }
        outcome.note.push_str(&text);
    };
    for (name, now) in &counted.per_request {
        let Some(then) = kept.per_request.get(name) else {
            outcome.tally.add(Tally::of(false));
            say(format!("{name}: not in {FILE}: cargo xtask instructions --update"));
            continue;
        };
        // Rounded, so that the limit itself is allowed.
        let change = ((now / then - 1.0) * 1e6).round() / 1e6;
        outcome.tally.add(Tally::of(change <= ALLOWED));
        let percent = 100.0 * change;
        if change > ALLOWED {
            say(format!("{name}: {now:.0} instructions instead of {then:.0}, {percent:+.1} %"));
        } else if change < -ALLOWED {
            say(format!(
                "{name}: {percent:+.1} %: keep that with cargo xtask instructions --update"
            ));
        }
    }
    outcome
}
