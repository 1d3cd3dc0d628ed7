//! The steps of continuous integration, each a function from the repository to an outcome.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::{self, Outcome, Part, Tally};
use crate::sim::{self, Draw};
use crate::{e2e, flamegraph, instructions, model, mutants, suite, tidy};

#[cfg(test)]
mod tests;

/// One step and its name.
#[derive(Clone, Copy)]
pub struct Step {
    name: &'static str,
    run: fn(&Path) -> Outcome,
}

pub const API: Step = Step { name: "api", run: api };
pub const MONITORING: Step = Step { name: "monitoring", run: monitoring };
pub const TIDY: Step = Step { name: "tidy", run: tidy };
pub const FORMAT: Step = Step { name: "fmt", run: |root| cargo(root, &["fmt", "--all"]) };
pub const FORMAT_CHECK: Step =
    Step { name: "fmt", run: |root| cargo(root, &["fmt", "--all", "--check"]) };
pub const CLIPPY: Step = Step { name: "clippy", run: clippy };
pub const DOC: Step = Step { name: "doc", run: doc };
pub const DENY: Step = Step { name: "deny", run: deny };
pub const ADVISORIES: Step = Step { name: "advisories", run: advisories };
pub const TEST: Step = Step { name: "test", run: suite::run };
pub const CRASH: Step = Step { name: "crash", run: |root| sim::crash(root, &CRASH_STATES) };
pub const CORRUPT: Step = Step { name: "corrupt", run: |root| sim::corrupt(root, &CORRUPTIONS) };
pub const SIM: Step = Step { name: "sim", run: |root| sim::worlds(root, &SIM_SEEDS) };
pub const BINARIES: Step = Step { name: "build", run: binaries };
pub const END_TO_END: Step = Step { name: "e2e", run: e2e::run };
pub const INSTRUCTIONS: Step = Step { name: "instructions", run: instructions::check };
pub const KEEP_INSTRUCTIONS: Step = Step { name: "instructions", run: instructions::update };
pub const FLAMEGRAPH: Step = Step { name: "flamegraph", run: flamegraph::make };
pub const MIRI_BUFFERS: Step = Step { name: "miri units and buffers", run: miri_buffers };
pub const MIRI_PURE: Step = Step { name: "miri pure crates", run: miri_pure };
pub const MIRI_PARITY: Step = Step { name: "miri portable parity", run: miri_parity };

/// What is too long for every change, once a day.
pub const NIGHTLY: [Step; 28] = [
    Step { name: "crash states", run: |root| sim::crash_and_cover(root, NIGHTLY_CRASH_STATES) },
    Step { name: "pairs of events", run: sim::pairs },
    Step { name: "corruptions", run: |root| sim::corrupt(root, &NIGHTLY_CORRUPTIONS) },
    Step { name: "simulator", run: |root| sim::worlds(root, &NIGHTLY_SIM_SEEDS) },
    Step { name: "starts after a kill", run: |root| sim::starts(root, NIGHTLY_STARTS) },
    Step { name: "mutants", run: mutants::step },
    Step { name: "model", run: model::step },
    Step { name: "model, larger arrays", run: model::larger },
    Step { name: "model, traces", run: sim::traces },
    Step { name: "threads without locks", run: loom },
    Step { name: "parity properties", run: parity_properties },
    Step { name: "parity fuzz", run: parity_fuzz },
    Step { name: "protocol fuzz", run: protocol_fuzz },
    Step { name: "conversations with targets and hosts", run: conversations },
    Step { name: "miri all of parity", run: |root| miri(root, &["-p", "strake-parity", "--lib"]) },
    Step { name: "parity on aarch64", run: parity_aarch64 },
    Step { name: "parity of md", run: |root| nightly_script(root, "md-parity") },
    Step { name: "kill -9 in a guest", run: |root| nightly_script(root, "kill9-guest") },
    Step { name: "power cuts in a guest", run: |root| nightly_script(root, "power-cuts") },
    Step { name: "NVMe/TCP host in a guest", run: |root| nightly_script(root, "nvme-tcp-guest") },
    Step { name: "host with TLS in a guest", run: |root| nightly_script(root, "nvme-tls-guest") },
    Step { name: "NVMe/TCP target in a guest", run: |root| nightly_script(root, "nvmet-guest") },
    Step { name: "taken drives in a guest", run: |root| nightly_script(root, "nvme-take-guest") },
    Step { name: "volumes in a guest", run: |root| nightly_script(root, "volumes-guest") },
    Step { name: "Debian package", run: |root| release_script(root, "package") },
    Step {
        name: "p99 beside drives that hang",
        run: |root| release_script(root, "hang-neighbour"),
    },
    Step { name: "faults without what can be turned off", run: engine_switched_off },
    Step { name: "bench G9", run: bench_g9 },
];

/// Starts of each shape every night.
const NIGHTLY_STARTS: u64 = 3;

/// Random stripes per property and kernel every night.
const NIGHTLY_CASES: &str = "100000";
/// Random programs every night.
const NIGHTLY_FUZZ_RUNS: &str = "3000000";
/// Random PDUs every night.
const NIGHTLY_PDUS: &str = "10000000";
/// Random conversations every night, with a target and as many with a host: about ten minutes.
const NIGHTLY_CONVERSATIONS: &str = "50000";
/// Crash states every night.
const NIGHTLY_CRASH_STATES: u64 = 3_000_000;
/// Members written over every night.
const NIGHTLY_CORRUPTIONS: Draw = Draw { same: 0, fresh: 300_000 };
/// Members written over with every change: 20 seconds on two cores.
const CORRUPTIONS: Draw = Draw { same: 9_000, fresh: 1_000 };
/// Worlds of the simulator every night.
const NIGHTLY_SIM_SEEDS: Draw = Draw { same: 0, fresh: 200_000 };
/// Crash states with every change: five minutes on two cores that others used as well, at 1.3 ms each. All checks
/// together are to have 25 minutes.
const CRASH_STATES: Draw = Draw { same: 240_000, fresh: 10_000 };
/// Worlds with every change beside those of the tests: under five minutes on two cores that others used as well.
const SIM_SEEDS: Draw = Draw { same: 9_000, fresh: 1_000 };

/// What continuous integration runs first, cheapest answers before others.
const FIRST: [Step; 10] =
    [FORMAT_CHECK, TIDY, CLIPPY, DENY, ADVISORIES, TEST, CRASH, CORRUPT, SIM, BINARIES];
/// What it runs beside the end-to-end scripts, which mostly wait.
const BESIDE_SCRIPTS: [Step; 4] = [INSTRUCTIONS, DOC, MIRI_BUFFERS, MIRI_PARITY];

/// Runs all of continuous integration, every step even when one fails, and prints the summary.
pub fn all(root: &Path) -> ExitCode {
    let mut report = Report::of(root, &FIRST);
    let (scripts, beside) = thread::scope(|scope| {
        let scripts = scope.spawn(|| Report::of(root, &[END_TO_END]));
        let beside = Report::of(root, &BESIDE_SCRIPTS);
        (scripts.join(), beside)
    });
    report.add(scripts.unwrap_or_else(|_| Report::panicked(END_TO_END)));
    report.add(beside);
    report.close()
}

/// Runs the steps in order, all of them even when one fails, and prints the summary.
pub fn run(root: &Path, steps: &[Step]) -> ExitCode {
    Report::of(root, steps).close()
}

/// What came of steps.
#[derive(Debug, Default)]
struct Report {
    total: Tally,
    /// A line for each step.
    lines: Vec<String>,
    parts: Vec<Part>,
}

impl Report {
    /// Runs the steps in order.
    fn of(root: &Path, steps: &[Step]) -> Self {
        let mut report = Self::default();
        for step in steps {
            println!("== {}", step.name);
            let started = Instant::now();
            let outcome = (step.run)(root);
            report.note(step.name, started.elapsed(), outcome);
        }
        report
    }

    /// Of a step that did not return.
    fn panicked(step: Step) -> Self {
        let mut report = Self::default();
        report.note(step.name, Duration::ZERO, Outcome::failed("it panicked"));
        report
    }

    fn note(&mut self, name: &str, took: Duration, outcome: Outcome) {
        let line = step_line(name, took, &outcome);
        println!("== {line}\n");
        self.lines.push(line);
        self.total.add(outcome.tally);
        self.parts.extend(parts_of(name, took, outcome.parts));
    }

    fn add(&mut self, other: Self) {
        self.total.add(other.total);
        self.lines.extend(other.lines);
        self.parts.extend(other.parts);
    }

    /// Prints the summary.
    fn close(self) -> ExitCode {
        if let Some(longest) = longest(self.parts) {
            println!("{longest}\n");
        }
        println!("summary");
        for line in &self.lines {
            println!("  {line}");
        }
        println!();
        let Tally { passed, failed, skipped } = self.total;
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The parts of a step, named after it; a step that runs one thing is a part of its own.
fn parts_of(step: &str, took: Duration, parts: Vec<Part>) -> Vec<Part> {
    if parts.is_empty() {
        return vec![Part { name: step.into(), took }];
    }
    let name = |part: Part| Part { name: format!("{step}: {}", part.name), ..part };
    parts.into_iter().map(name).collect()
}

/// What took longest, so that the next minutes of tests can be paid for; nothing when a single thing ran. Parts of a
/// step run side by side, so their times do not add up to the time of the step.
fn longest(mut parts: Vec<Part>) -> Option<String> {
    if parts.len() < 2 {
        return None;
    }
    parts.sort_by_key(|part| Reverse(part.took));
    let line = |part: &Part| format!("\n  {:6.1} s  {}", part.took.as_secs_f64(), part.name);
    let lines: String = parts.iter().take(LONGEST).map(line).collect();
    Some(format!("longest{lines}"))
}

/// How many of the longest parts are printed.
const LONGEST: usize = 15;

pub fn step_line(name: &str, took: Duration, outcome: &Outcome) -> String {
    let Tally { passed, failed, skipped } = outcome.tally;
    let mut line = format!("{:7} {name} in {:.1} s", outcome.word(), took.as_secs_f64());
    if passed + failed + skipped > 1 {
        line += &format!(" ({passed} passed, {failed} failed, {skipped} skipped)");
    }
    if !outcome.note.is_empty() {
        line += &format!(": {}", outcome.note);
    }
    line
}

fn cargo(root: &Path, arguments: &[&str]) -> Outcome {
    run::check(&mut run::command(root, &[&["cargo"], arguments].concat()))
}

fn tidy(root: &Path) -> Outcome {
    let repo = match tidy::repo::Repo::load(root) {
        Ok(repo) => repo,
        Err(error) => return Outcome::failed(format!("cannot read the repository: {error}")),
    };
    print!("{}", tidy::sizes::report(&repo));
    print!("{}", tidy::structure::report(&repo));
    for arrow in tidy::layers::development_arrows(&repo) {
        println!("development dependencies: {arrow}");
    }
    let findings = tidy::check(&repo);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Outcome::passed(format!("{} rules", tidy::RULES.len())),
        n => Outcome::failed(format!("{n} findings")),
    }
}

/// Writes what the proto file gives; the same test compares it in every run of the suite.
fn api(root: &Path) -> Outcome {
    let words = ["cargo", "test", "-p", "strake-api", "--test", "generated"];
    run::test_run(run::command(root, &words).env("STRAKE_WRITE_API", "1"))
}

fn monitoring(root: &Path) -> Outcome {
    let words = ["cargo", "test", "-p", "strake-daemon", "--bin", "straked", "monitoring"];
    run::test_run(run::command(root, &words).env("STRAKE_WRITE_MONITORING", "1"))
}

fn clippy(root: &Path) -> Outcome {
    cargo(root, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
}

fn doc(root: &Path) -> Outcome {
    let words = ["cargo", "doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"];
    run::check(run::command(root, &words).env("RUSTDOCFLAGS", "-D warnings"))
}

fn deny(root: &Path) -> Outcome {
    if let Err(why) = run::probe(&mut run::command(root, &["cargo", "deny", "--version"])) {
        return Outcome::skipped(format!(
            "cargo-deny is not installed ({why}); scripts/setup.sh test installs it"
        ));
    }
    // It looks at what any system needs, and a build fetches what this one does.
    if let Err(why) = run::probe(&mut run::command(root, &["cargo", "fetch", "--locked"])) {
        return Outcome::skipped(format!("crates of other systems cannot be fetched: {why}"));
    }
    cargo(
        root,
        &["deny", "--offline", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"],
    )
}

/// The advisory database lives in a git repository, which not every machine can reach.
fn advisories(root: &Path) -> Outcome {
    let fetch = ["timeout", "--kill-after=5", "60", "cargo", "deny", "fetch", "db"];
    if let Err(why) = run::probe(&mut run::command(root, &fetch)) {
        return Outcome::skipped(format!("the advisory database cannot be fetched: {why}"));
    }
    cargo(root, &["deny", "check", "--disable-fetch", "--hide-inclusion-graph", "advisories"])
}

/// The programs for the end-to-end tests. With the tests beside them they have the same features of their dependencies,
/// so that what `test` built need not be built again.
fn binaries(root: &Path) -> Outcome {
    cargo(root, &["build", "--quiet", "--workspace", "--bins", "--tests"])
}

/// Where cargo puts what it builds.
pub fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The value types, and the one L1 crate with unsafe code.
fn miri_buffers(root: &Path) -> Outcome {
    miri(root, &["-p", "strake-units", "-p", "strake-block", "--lib"])
}

/// The other pure crates. They forbid unsafe code, and their tests take longer under Miri than a change can wait.
fn miri_pure(root: &Path) -> Outcome {
    miri(root, &["-p", "strake-raid", "-p", "strake-ondisk"])
}

fn miri_parity(root: &Path) -> Outcome {
    miri(root, &["-p", "strake-parity", "--lib", "portable"])
}

/// The stories of faults without merging, steering and caching.
fn engine_switched_off(root: &Path) -> Outcome {
    let words = ["cargo", "test", "--quiet", "-p", "strake-engine", "--test", "faults"];
    run::test_run(run::command(root, &words).env("STRAKE_OFF", "merge,steer,cache"))
}

fn parity_properties(root: &Path) -> Outcome {
    let words =
        ["cargo", "test", "--release", "--quiet", "-p", "strake-parity", "--lib", "properties"];
    run::test_run(run::command(root, &words).env("STRAKE_PARITY_CASES", NIGHTLY_CASES))
}

fn parity_fuzz(root: &Path) -> Outcome {
    let words = ["cargo", "test", "--release", "--quiet", "-p", "strake-parity", "--test", "fuzz"];
    run::test_run(run::command(root, &words).env("STRAKE_FUZZ_RUNS", NIGHTLY_FUZZ_RUNS))
}

/// Bytes into everything that reads NVMe/TCP.
fn protocol_fuzz(root: &Path) -> Outcome {
    let crates = ["-p", "strake-nvme-tcp", "-p", "strake-nvme-wire", "--test", "fuzz"];
    let words = [&["cargo", "test", "--release", "--quiet"], &crates[..]].concat();
    run::test_run(run::command(root, &words).env("STRAKE_FUZZ_RUNS", NIGHTLY_PDUS))
}

/// Hostile hosts, and hostile targets.
fn conversations(root: &Path) -> Outcome {
    let crates = ["-p", "strake-export-nvmet", "-p", "strake-dev-fabrics"];
    let words =
        [&["cargo", "test", "--release", "--quiet"], &crates[..], &["conversations"]].concat();
    run::test_run(run::command(root, &words).env("STRAKE_FUZZ_RUNS", NIGHTLY_CONVERSATIONS))
}

/// The tests of the parity crate under user-mode emulation.
fn parity_aarch64(root: &Path) -> Outcome {
    for probe in [["qemu-aarch64", "--version"], ["aarch64-linux-gnu-gcc", "--version"]] {
        if let Err(why) = run::probe(&mut run::command(root, &probe)) {
            return Outcome::skipped(format!(
                "no emulation of aarch64 ({why}): apt-get install qemu-user gcc-aarch64-linux-gnu, \
                 rustup target add {AARCH64}"
            ));
        }
    }
    let words = ["cargo", "test", "--quiet", "-p", "strake-parity", "--target", AARCH64];
    run::test_run(
        run::command(root, &words)
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
                "qemu-aarch64 -L /usr/aarch64-linux-gnu",
            ),
    )
}

const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// Runs `tests/nightly/NAME.sh`, which says itself what it lacks.
fn nightly_script(root: &Path, name: &str) -> Outcome {
    script(&mut run::command(root, &[&format!("tests/nightly/{name}.sh")]))
}

/// The same with release builds. Numbers are for people to look at, only a failure to measure fails.
fn release_script(root: &Path, name: &str) -> Outcome {
    let build =
        ["cargo", "build", "--release", "--quiet", "-p", "strake-cli", "-p", "strake-daemon"];
    let built = run::check(&mut run::command(root, &build));
    if built.tally.failed > 0 {
        return built;
    }
    let mut command = run::command(root, &[&format!("tests/nightly/{name}.sh")]);
    script(command.env("STRAKE_BIN_DIR", target_folder(root).join("release")))
}

fn script(command: &mut Command) -> Outcome {
    match command.status().map(|s| s.code()) {
        Ok(Some(0)) => Outcome::passed(""),
        Ok(Some(e2e::SKIPPED)) => Outcome::skipped("the script says why above"),
        Ok(code) => Outcome::failed(format!("ended with {code:?}")),
        Err(error) => Outcome::failed(format!("cannot run the script: {error}")),
    }
}

/// The models of what threads share without locks, with more interruptions than with every change.
fn loom(root: &Path) -> Outcome {
    let mut command = run::command(root, &["cargo", "test", "--quiet", "--test", "loom"]);
    run::test_run(command.args(LOOM_CRATES).env("LOOM_MAX_PREEMPTIONS", NIGHTLY_PREEMPTIONS))
}

/// The crates that have such models.
const LOOM_CRATES: [&str; 6] =
    ["-p", "strake-reactor", "-p", "strake-dev-fabrics", "-p", "strake-volume"];
/// How often a thread is interrupted where it need not wait, every night: minutes.
const NIGHTLY_PREEMPTIONS: &str = "3";

/// Numbers are for people to look at: only a failure to measure fails.
fn bench_g9(root: &Path) -> Outcome {
    let words = ["cargo", "run", "--release", "--quiet", "-p", "strake-bench", "--", "run", "G9"];
    run::check(&mut run::command(root, &words))
}

/// Miri interprets every instruction, so tests that enumerate or draw thousands of cases are left to `test`.
fn miri(root: &Path, arguments: &[&str]) -> Outcome {
    for words in [
        ["cargo", "+nightly", "miri", "--version"].as_slice(),
        &["cargo", "+nightly", "miri", "setup"],
    ] {
        if let Err(why) = run::probe(&mut run::command(root, words)) {
            return Outcome::skipped(format!("Miri cannot run here: {why}"));
        }
    }
    let words =
        [&["cargo", "+nightly", "miri", "test", "--quiet"], arguments, &MIRI_SKIPS].concat();
    run::test_run(run::command(root, &words).env("MIRIFLAGS", "-Zmiri-disable-isolation"))
}

const MIRI_SKIPS: [&str; 5] = ["--", "--skip", "exhaustive", "--skip", "random"];
