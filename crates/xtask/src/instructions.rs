//! The gate on instructions per request: what a read and a write execute, counted and compared with the recorded
//! counts. No request may allocate. The driver of NVMe controllers is counted alone, and has a limit besides.
//!
//! Times vary with the machine and its neighbours; instructions do not. They are counted by valgrind, which is slow and
//! exact: each case runs twice, with few and with many requests, and the difference belongs to the requests alone.
//! Valgrind knows no AVX-512, so the parity kernel is the AVX2 one. If the CPU has another kernel, counts are not
//! compared with the recorded counts, but limits and allocations are checked.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use serde::{Deserialize, Serialize};

use crate::run::{self, Outcome, Tally};

mod profile;
#[cfg(test)]
mod tests;

use profile::Profile;

/// Where the numbers are kept.
const FILE: &str = "docs/benchmarks/instructions.json";
/// More than this above the kept number fails; less than this below asks for an update.
const ALLOWED: f64 = 0.05;
/// Allocations of a request: less than one for each batch of requests. Null drives return what the memory held, which
/// may look like a header of the log; a logged block of this kind is copied into memory of its own.
const ALLOCATIONS_MAX: f64 = 0.02;
/// Seconds after which valgrind is taken for hung.
const SECONDS_MAX: &str = "120";

/// What is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    /// The parity kernel that was counted.
    kernel: String,
    /// By the case's name.
    per_request: BTreeMap<String, Each>,
}

/// Counts of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Each {
    /// All instructions, those of the load and the drives among them.
    instructions: f64,
    /// Those of the parity kernel.
    parity_kernel: f64,
    /// Allocations, exactly.
    allocations: f64,
    /// More instructions than this fail, whatever was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<f64>,
}

impl Each {
    /// What `requests` requests of `case` executed, by request and to a tenth.
    fn of(all: Profile, requests: u64, case: &Case) -> Self {
        let each = |count: u64| (count as f64 / requests as f64 * 10.0).round() / 10.0;
        Self {
            instructions: each(match case.counts {
                Counts::All => all.instructions,
                Counts::Driver => all.driver,
            }),
            parity_kernel: each(all.parity),
            // A rounded count would hide one allocation in many requests.
            allocations: all.allocations as f64 / requests as f64,
            limit: case.limit,
        }
    }
}

/// Which instructions of a run are those of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    /// All: of the load, the array and null drives.
    All,
    /// Those of the calls of the driver of NVMe controllers.
    Driver,
}

/// A program with cases: the example `example` of `package`.
struct Program {
    package: &'static str,
    example: &'static str,
}

const ARRAYS: Program = Program { package: "strake-load", example: "instructions" };
const DRIVES: Program = Program { package: "strake-dev-nvme", example: "drive_instructions" };

/// A load on an array of null drives, or on a model of an NVMe controller.
struct Case {
    program: Program,
    counts: Counts,
    /// See [`Each::limit`].
    limit: Option<f64>,
    /// For the example program.
    word: &'static str,
    /// For people.
    name: &'static str,
    /// Requests of its two runs.
    requests: [u64; 2],
}

const CASES: [Case; 14] = [
    case("read", "raid6 6+2 randread 4KiB, clean"),
    case("read-deep", "raid6 6+2 randread 4KiB, QD 128"),
    case("read-degraded", "raid6 6+2 randread 4KiB, two members missing"),
    case("write", "raid6 6+2 randwrite 4KiB, read-modify-write"),
    case("write-deep", "raid6 6+2 randwrite 4KiB, QD 128"),
    case("write-strict", "raid6 6+2 randwrite 4KiB, strict"),
    case("write-degraded", "raid6 6+2 randwrite 4KiB, one member missing"),
    case("write-remote", "raid6 6+2 randwrite 4KiB, two cores"),
    case("volume-read", "volume on raid6 6+2 randread 4KiB"),
    case("volume-write", "volume on raid6 6+2 randwrite 4KiB, in place"),
    case("mirror", "raid1 x2 randwrite 4KiB"),
    // Almost all of it is parity.
    Case { requests: [100, 200], ..case("stripe", "raid6 6+2 seqwrite 768KiB, whole stripes") },
    drive("drive-read", "driver on a model randread 4KiB, QD 128"),
    drive("drive-write", "driver on a model randwrite 4KiB, QD 128"),
];

/// The goal D1 of docs/benchmarks/goals.md.
const DRIVER_MAX: f64 = 160.0;

impl Case {
    /// Whether its requests compute parity.
    fn writes_parity(&self) -> bool {
        self.word.starts_with("write") || matches!(self.word, "stripe" | "volume-write")
    }
}

const fn case(word: &'static str, name: &'static str) -> Case {
    let requests = [1000, 4000];
    Case { program: ARRAYS, counts: Counts::All, limit: None, word, name, requests }
}

/// Whole rounds of 128 requests.
const fn drive(word: &'static str, name: &'static str) -> Case {
    let (counts, limit, requests) = (Counts::Driver, Some(DRIVER_MAX), [1024, 8192]);
    Case { program: DRIVES, counts, limit, word, name, requests }
}

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
    for Program { package, example } in [ARRAYS, DRIVES] {
        let words = ["cargo", "build", "--release", "--quiet", "-p", package, "--example", example];
        let built = run::check(&mut run::command(root, &words));
        if built.tally.failed > 0 {
            return Err(built);
        }
    }
    let examples = crate::ci::target_folder(root).join("release/examples");
    let mut kept = Kept::default();
    for case in CASES {
        let [few, many] = both(root, &examples.join(case.program.example), &case)?;
        few.0
            .check(case.writes_parity(), case.counts == Counts::Driver)
            .map_err(|why| Outcome::failed(format!("{}: {why}", case.name)))?;
        let each = Each::of(many.0 - few.0, case.requests[1] - case.requests[0], &case);
        let Each { instructions, parity_kernel, allocations, .. } = each;
        println!(
            "{}: {instructions:.0} instructions per request, {parity_kernel:.0} of them in parity kernel {}, \
             {allocations} allocations",
            case.name, many.1
        );
        if !many.1.is_empty() {
            // A driver computes no parity.
            kept.kernel = many.1;
        }
        kept.per_request.insert(case.name.to_owned(), each);
    }
    Ok(kept)
}

/// Both runs of a case, side by side: counts do not mind company.
fn both(root: &Path, program: &Path, case: &Case) -> Result<[(Profile, String); 2], Outcome> {
    let run = |requests| one(root, program, case.word, requests);
    let (few, many) = std::thread::scope(|scope| {
        let few = scope.spawn(|| run(case.requests[0]));
        let many = run(case.requests[1]);
        (few.join(), many)
    });
    let few = few.unwrap_or_else(|_| Err(Outcome::failed("counting panicked")));
    Ok([few?, many?])
}

/// Removes a file when it goes out of scope.
struct RemoveAtEnd<'a>(&'a Path);

impl Drop for RemoveAtEnd<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

/// Counts of one run, and the parity kernel in use.
fn one(
    root: &Path,
    program: &Path,
    case: &str,
    requests: u64,
) -> Result<(Profile, String), Outcome> {
    let id = std::process::id();
    let file = crate::ci::target_folder(root).join(format!("callgrind-{case}-{requests}-{id}"));
    let _remove = RemoveAtEnd(&file);
    let words = ["timeout", "--kill-after=5", SECONDS_MAX, "valgrind", "--tool=callgrind"];
    let mut command = run::command(root, &words);
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(program).arg(case).arg(requests.to_string());
    command.env_remove("STRAKE_KERNEL").env_remove("VALGRIND_OPTS").stdin(Stdio::null());
    let output = command.output();
    let output =
        output.map_err(|error| Outcome::failed(format!("cannot run valgrind: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Outcome::failed(format!(
            "valgrind ended with {}: {}",
            output.status,
            said.trim()
        )));
    }
    let kernel = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    match Profile::parse(&text) {
        Some(profile) => Ok((profile, kernel)),
        None => Err(Outcome::failed(format!("valgrind wrote no counts to {}", file.display()))),
    }
}

/// The checks of each case. Limits and allocations hold for every parity kernel; the recorded counts hold only for the
/// kernel that they were counted with.
fn compare(kept: &Kept, counted: &Kept) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, now) in &counted.per_request {
        check_bounds(&mut outcome, name, now);
    }
    if kept.kernel != counted.kernel {
        let (then, now) = (&kept.kernel, &counted.kernel);
        outcome.tally.skipped += 1;
        say(
            &mut outcome,
            &format!(
                "{FILE} is of kernel {then}, and valgrind runs {now} on this CPU: only limits and allocations are \
                 checked, and no counts are compared"
            ),
        );
        return outcome;
    }
    for (name, now) in &counted.per_request {
        compare_one(&mut outcome, name, kept.per_request.get(name), now);
    }
    outcome
}

/// Adds `text` to the note of `outcome`.
fn say(outcome: &mut Outcome, text: &str) {
    if !outcome.note.is_empty() {
        outcome.note.push_str("; ");
    }
    outcome.note.push_str(text);
}

/// Checks what does not depend on the recorded counts: allocations, and the limit of the case if it has one.
fn check_bounds(outcome: &mut Outcome, name: &str, now: &Each) {
    outcome.tally.add(Tally::of(now.allocations <= ALLOCATIONS_MAX));
    if now.allocations > ALLOCATIONS_MAX {
        say(outcome, &format!("{name}: {} allocations per request", now.allocations));
    }
    let Some(limit) = now.limit else { return };
    outcome.tally.add(Tally::of(now.instructions <= limit));
    if now.instructions > limit {
        let count = now.instructions;
        say(outcome, &format!("{name}: {count:.1} instructions, the limit is {limit}"));
    }
}

/// Compares the counts of a case with the recorded counts `then`.
fn compare_one(outcome: &mut Outcome, name: &str, then: Option<&Each>, now: &Each) {
    let Some(then) = then else {
        outcome.tally.add(Tally::of(false));
        say(outcome, &format!("{name}: not in {FILE}: cargo xtask instructions --update"));
        return;
    };
    // Rounded, so that the limit itself is allowed.
    let change = ((now.instructions / then.instructions - 1.0) * 1e6).round() / 1e6;
    let percent = 100.0 * change;
    outcome.tally.add(Tally::of(change <= ALLOWED));
    if change > ALLOWED {
        let (now, then) = (now.instructions, then.instructions);
        let text = format!("{name}: {now:.0} instructions instead of {then:.0}, {percent:+.1} %");
        say(outcome, &text);
    } else if change < -ALLOWED {
        let how = "keep that with cargo xtask instructions --update";
        say(outcome, &format!("{name}: {percent:+.1} %: {how}"));
    }
}
