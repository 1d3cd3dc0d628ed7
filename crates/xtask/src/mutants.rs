//! Seeded bugs: each is applied to a copy of the checkout, and at least one tier of tests has to detect it.
//!
//! A mutant is a file in the folder `mutants`: why it would lose data, the file it is in, the tiers that are tried in
//! order, and the text before and after, between the marks of a merge conflict. The copy lies in `target/mutants` and
//! has a target folder of its own: to cargo two copies of a crate in one target folder are the same crate, and it would
//! run what was built of the other.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::run::{self, Outcome};
use crate::sim;

/// Seconds that a tier may take on a mutant, which may hang.
const TIER_SECONDS: &str = "300";

/// A bug to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mutant {
    name: String,
    story: String,
    file: String,
    tiers: Vec<String>,
    before: String,
    after: String,
}

/// The outcome of one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    /// This tier failed.
    Killed(String),
    /// Every tier passed.
    Survived,
    /// It could not be tried.
    Stale(String),
}

impl Mutant {
    /// Reads a mutant's text.
    fn parse(name: &str, text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("mutant {name}: {what}");
        let (head, rest) =
            text.split_once("<<<<<<<\n").ok_or_else(|| wrong("there is no line <<<<<<<"))?;
        let (before, rest) =
            rest.split_once("=======\n").ok_or_else(|| wrong("there is no line ======="))?;
        let (after, _) =
            rest.split_once(">>>>>>>").ok_or_else(|| wrong("there is no line >>>>>>>"))?;
        let (mut story, mut file, mut tiers) = (Vec::new(), None, Vec::new());
        for line in head.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.split_once(' ') {
                Some(("file", path)) => file = Some(path.to_owned()),
                Some(("tier", words)) => tiers.push(words.to_owned()),
                _ => story.push(line),
            }
        }
        let file = file.ok_or_else(|| wrong("no line says in which file it is"))?;
        if tiers.is_empty() || story.is_empty() || before == after {
            return Err(wrong("it needs a story, a tier and a change"));
        }
        tiers.iter().try_for_each(|tier| words_of(tier).map(|_| ())).map_err(|e| wrong(&e))?;
        let (name, story) = (name.to_owned(), story.join(" "));
        Ok(Self { name, story, file, tiers, before: before.to_owned(), after: after.to_owned() })
    }

    /// The text of its file with the bug in it.
    fn applied(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.before).count() {
            1 => Ok(text.replacen(&self.before, &self.after, 1)),
            found => Err(format!("{} has the text before {found} times, not once", self.file)),
        }
    }
}

/// The command of a tier: `unit CRATE [FILTER]`, `test CRATE NAME [FILTER]`, `crash STATES`, `corrupt RUNS` or
/// `sim SEEDS`.
fn words_of(tier: &str) -> Result<Vec<String>, String> {
    const TESTS: &str = "cargo test -q -p";
    // As it is built for tests: to build the engine once more with every optimization takes longer than that saves.
    const SIMULATOR: &str = "cargo run -q -p strake-sim --";
    let command = match tier.split(' ').collect::<Vec<_>>()[..] {
        ["unit", package] => format!("{TESTS} {package} --lib"),
        ["unit", package, filter] => format!("{TESTS} {package} --lib {filter}"),
        ["bins", package, filter] => format!("{TESTS} {package} --bins {filter}"),
        ["test", package, name] => format!("{TESTS} {package} --test {name}"),
        ["test", package, name, filter] => format!("{TESTS} {package} --test {name} {filter}"),
        ["crash", states] => format!("{SIMULATOR} --crash {states} --seed 1"),
        ["corrupt", runs] => format!("{SIMULATOR} --corrupt {runs} --seed 1"),
        ["sim", seeds] => format!("{SIMULATOR} --seeds {seeds} --seed 1"),
        _ => return Err(format!("{tier:?} is no tier")),
    };
    let words = format!("timeout --kill-after=5 {TIER_SECONDS} {command}");
    Ok(words.split(' ').map(str::to_owned).collect())
}

/// `cargo xtask mutants [TEXT]`: all of them, or those with TEXT in their name. The last line is JSON.
pub fn run(root: &Path, filter: Option<&str>) -> ExitCode {
    match try_all(root, filter) {
        Ok(outcome) if outcome.tally.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::from(3)
        }
    }
}

/// The step of the nightly run.
pub fn step(root: &Path) -> Outcome {
    try_all(root, None).unwrap_or_else(Outcome::failed)
}

/// As many of them as are begun before `until`, from all over the code. Returns the counts, and whether all that were
/// tried are killed.
pub fn until(root: &Path, until: Instant) -> (Value, bool) {
    let tried = load(&root.join("mutants"))
        .and_then(|mutants| try_each(root, &spread(mutants, sim::fresh_seed()), Some(until)));
    match tried {
        Ok(tried) => (tried.counts(), tried.left.is_empty()),
        Err(why) => (json!({ "error": why }), false),
    }
}

/// The same mutants in an order whose beginning, wherever it is cut, is spread evenly over all of them: each is placed
/// the golden ratio of the way around further on than the one before it. The first of all is drawn.
fn spread(mutants: Vec<Mutant>, seed: u64) -> Vec<Mutant> {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let place = |at: usize| GOLDEN.wrapping_mul(seed.wrapping_add(at as u64));
    let mut placed: Vec<_> = mutants.into_iter().enumerate().collect();
    placed.sort_by_key(|(at, _)| place(*at));
    placed.into_iter().map(|(_, mutant)| mutant).collect()
}

fn try_all(root: &Path, filter: Option<&str>) -> Result<Outcome, String> {
    let mut mutants = load(&root.join("mutants"))?;
    mutants.retain(|mutant| filter.is_none_or(|text| mutant.name.contains(text)));
    let tried = try_each(root, &mutants, None)?;
    println!("{}", tried.counts());
    let note = format!("{} of {} mutants killed", tried.killed(), tried.mutants);
    Ok(if tried.left.is_empty() { Outcome::passed(note) } else { Outcome::failed(note) })
}

/// What came of many.
#[derive(Debug, Default)]
struct Tried {
    mutants: usize,
    tried: usize,
    /// By kind of tier.
    killers: BTreeMap<String, usize>,
    /// Names of those that no tier found.
    left: Vec<String>,
}

impl Tried {
    fn killed(&self) -> usize {
        self.tried - self.left.len()
    }

    fn counts(&self) -> Value {
        let Self { mutants, tried, killers, left } = self;
        json!({ "mutants": mutants, "tried": tried, "killed": self.killed(), "tiers": killers, "left": left })
    }
}

fn try_each(root: &Path, mutants: &[Mutant], until: Option<Instant>) -> Result<Tried, String> {
    let tree = root.join("target/mutants/tree");
    copy(root, &tree)?;
    let mut sum = Tried { mutants: mutants.len(), ..Tried::default() };
    for mutant in mutants {
        let began = Instant::now();
        if until.is_some_and(|until| began >= until) {
            break;
        }
        sum.tried += 1;
        let fate = try_one(&tree, mutant)?;
        let seconds = began.elapsed().as_secs();
        match &fate {
            Fate::Killed(tier) => {
                println!("killed    {} by {tier} in {seconds} s", mutant.name);
                let kind = tier.split(' ').next().unwrap_or_default();
                *sum.killers.entry(kind.to_owned()).or_default() += 1;
            }
            Fate::Survived => println!("SURVIVED  {}: {}", mutant.name, mutant.story),
            Fate::Stale(why) => println!("STALE     {}: {why}", mutant.name),
        }
        if !matches!(fate, Fate::Killed(_)) {
            sum.left.push(mutant.name.clone());
        }
    }
    Ok(sum)
}

fn load(folder: &Path) -> Result<Vec<Mutant>, String> {
    let io = |e: std::io::Error| format!("cannot read {}: {e}", folder.display());
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        paths.push(entry.map_err(io)?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let text = fs::read_to_string(path).map_err(io)?;
        Mutant::parse(name, &text)
    };
    let mut mutants = paths.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    // What a change of one crate has rebuilt serves for the next change of it.
    mutants.sort_by(|one, other| one.file.cmp(&other.file));
    Ok(mutants)
}

/// Copies what git knows of, as it is now; files that are the same stay as old as they are.
fn copy(root: &Path, tree: &Path) -> Result<(), String> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let listed = listed.map_err(|e| format!("cannot ask git for the files: {e}"))?;
    for name in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| !name.is_empty())
    {
        let (from, to) = (root.join(name), tree.join(name));
        let Ok(new) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|old| old == new) {
            continue;
        }
        let put = || {
            fs::create_dir_all(to.parent().unwrap_or(tree))?;
            fs::write(&to, &new)
        };
        put().map_err(|e| format!("cannot write {}: {e}", to.display()))?;
    }
    Ok(())
}

fn try_one(tree: &Path, mutant: &Mutant) -> Result<Fate, String> {
    let path = tree.join(&mutant.file);
    let Ok(sound) = fs::read_to_string(&path) else {
        return Ok(Fate::Stale(format!("there is no file {}", mutant.file)));
    };
    let bad = match mutant.applied(&sound) {
        Ok(bad) => bad,
        Err(why) => return Ok(Fate::Stale(why)),
    };
    let write = |text: &str| {
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
    };
    write(&bad)?;
    let fate = tiers(tree, mutant);
    write(&sound)?;
    fate
}

fn tiers(tree: &Path, mutant: &Mutant) -> Result<Fate, String> {
    for tier in &mutant.tiers {
        let words = words_of(tier)?;
        let mut tried = run_tier(tree, &unoptimized(&words))?;
        if tried == Ended::Hung {
            // Without optimization, the tests themselves may take that long.
            tried = run_tier(tree, &words)?;
        }
        match tried {
            Ended::Passed => {}
            Ended::NotBuilt(why) => return Ok(Fate::Stale(why)),
            Ended::Found => return Ok(Fate::Killed(tier.clone())),
            // On a machine that is busy with something else this may be the machine.
            Ended::Hung => return Ok(Fate::Killed(format!("{tier} (hung)"))),
            Ended::Broken(why) => return Ok(Fate::Stale(format!("{tier} tells nothing: {why}"))),
        }
    }
    Ok(Fate::Survived)
}

/// The same command with tests that are built without optimization: most mutants then take a sixth of the time.
fn unoptimized(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    if let Some(at) = words.iter().position(|word| word == "test") {
        words.splice(at + 1..at + 1, ["--config", "mutants/profile.toml"].map(str::to_owned));
    }
    words
}

fn run_tier(tree: &Path, words: &[String]) -> Result<Ended, String> {
    builds(tree, words).map_or_else(|| ended(tree, words), |why| Ok(Ended::NotBuilt(why)))
}

/// Why what the tier runs is not built, if so: a mutant that does not compile shows nothing.
fn builds(tree: &Path, words: &[String]) -> Option<String> {
    let mut words: Vec<&str> = words.iter().skip(3).map(String::as_str).collect();
    if words[1] == "run" {
        words.truncate(words.iter().position(|word| *word == "--").unwrap_or(words.len()));
        words[1] = "build";
    } else {
        words.push("--no-run");
    }
    run::probe(&mut cargo(tree, &words)).err()
}

/// How a tier ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ended {
    /// It found nothing.
    Passed,
    /// A test of it failed.
    Found,
    /// It was still running when its time was over.
    Hung,
    /// What it runs cannot be built.
    NotBuilt(String),
    /// It did not do what it is for: that it failed shows nothing.
    Broken(String),
}

fn ended(tree: &Path, words: &[String]) -> Result<Ended, String> {
    let mut command = cargo(tree, words);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(|e| format!("cannot run {}: {e}", words[0]))?;
    Ok(verdict(output.status.code(), &String::from_utf8_lossy(&output.stdout)))
}

/// What a tier found, from its exit code and what it printed.
fn verdict(code: Option<i32>, reported: &str) -> Ended {
    let last = reported.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default();
    let violations =
        last.split("\"violations\":").nth(1).is_some_and(|rest| !rest.starts_with('0'));
    let ran = reported.lines().filter_map(|line| line.strip_prefix("running "));
    let tests = ran.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum::<u64>();
    match code {
        Some(0) if tests > 0 || !last.is_empty() => Ended::Passed,
        Some(0) => Ended::Broken("it ran nothing".to_owned()),
        Some(TIMED_OUT | KILLED) => Ended::Hung,
        Some(ABORTED) => Ended::Found,
        // A panic on a data core ends the whole program, and tests along with it.
        Some(_) if tests > 0 || violations => Ended::Found,
        code => Ended::Broken(format!("it ended with {code:?} without a failure")),
    }
}

/// Of the threads of tests.
const STACK_BYTES: &str = "33554432";

/// Exit codes of `timeout` for what it had to end, and for what ended itself.
const TIMED_OUT: i32 = 124;
const KILLED: i32 = 137;
const ABORTED: i32 = 134;

fn cargo<S: AsRef<std::ffi::OsStr>>(tree: &Path, words: &[S]) -> Command {
    let mut command = run::command(tree, words);
    // Backtraces of a mutant are not read.
    command
        .env("CARGO_TARGET_DIR", tree.with_file_name("target"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        // Frames are larger without optimization, and a test that overflows its stack has found nothing.
        .env("RUST_MIN_STACK", STACK_BYTES)
        .env("CARGO_PROFILE_DEV_INCREMENTAL", "true");
    command
}

#[cfg(test)]
mod tests;
