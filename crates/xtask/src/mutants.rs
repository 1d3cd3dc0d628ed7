//! Seeded bugs: each is patched into a copy of the checkout, and some tier of tests has to find it.
//!
//! A mutant is a file in the folder `mutants`: why it would lose data, the file it is in, the tiers that are tried in
//! order, and the text before and after, between the marks of a merge conflict. The copy lies in `target/mutants` and
//! has a target folder of its own, so only what a mutant changes is built again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use crate::run::{self, Outcome};

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

/// What became of one.
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
    const SIMULATOR: &str = "cargo run --release -q -p strake-sim --";
    let command = match tier.split(' ').collect::<Vec<_>>()[..] {
        ["unit", package] => format!("{TESTS} {package} --lib"),
        ["unit", package, filter] => format!("{TESTS} {package} --lib {filter}"),
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

fn try_all(root: &Path, filter: Option<&str>) -> Result<Outcome, String> {
    let mut mutants = load(&root.join("mutants"))?;
    mutants.retain(|mutant| filter.is_none_or(|text| mutant.name.contains(text)));
    let tree = root.join("target/mutants/tree");
    copy(root, &tree)?;
    let mut killers: BTreeMap<String, usize> = BTreeMap::new();
    let mut left = Vec::new();
    for mutant in &mutants {
        let began = Instant::now();
        let fate = try_one(&tree, mutant)?;
        let seconds = began.elapsed().as_secs();
        match &fate {
            Fate::Killed(tier) => {
                println!("killed    {} by {tier} in {seconds} s", mutant.name);
                *killers
                    .entry(tier.split(' ').take(3).collect::<Vec<_>>().join(" "))
                    .or_default() += 1;
            }
            Fate::Survived => println!("SURVIVED  {}: {}", mutant.name, mutant.story),
            Fate::Stale(why) => println!("STALE     {}: {why}", mutant.name),
        }
        if !matches!(fate, Fate::Killed(_)) {
            left.push(mutant.name.as_str());
        }
    }
    let killed = mutants.len() - left.len();
    println!("{}", closing_line(mutants.len(), killed, &killers, &left));
    let note = format!("{killed} of {} mutants killed", mutants.len());
    Ok(if left.is_empty() { Outcome::passed(note) } else { Outcome::failed(note) })
}

fn closing_line(
    mutants: usize,
    killed: usize,
    killers: &BTreeMap<String, usize>,
    left: &[&str],
) -> String {
    let by: Vec<String> = killers.iter().map(|(tier, count)| format!("{tier:?}:{count}")).collect();
    let left: Vec<String> = left.iter().map(|name| format!("{name:?}")).collect();
    format!(
        "{{\"mutants\":{mutants},\"killed\":{killed},\"tiers\":{{{}}},\"left\":[{}]}}",
        by.join(","),
        left.join(",")
    )
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
    paths.iter().map(read).collect()
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
        if let Some(why) = builds(tree, &words) {
            return Ok(Fate::Stale(why));
        }
        if !succeeds(tree, &words)? {
            return Ok(Fate::Killed(tier.clone()));
        }
    }
    Ok(Fate::Survived)
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

fn succeeds(tree: &Path, words: &[String]) -> Result<bool, String> {
    let mut command = cargo(tree, words);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    Ok(status.map_err(|e| format!("cannot run {}: {e}", words[0]))?.success())
}

fn cargo<S: AsRef<std::ffi::OsStr>>(tree: &Path, words: &[S]) -> Command {
    let mut command = run::command(tree, words);
    // Warnings are no matter in a mutant.
    command.env("CARGO_TARGET_DIR", tree.with_file_name("target")).env("RUSTFLAGS", "-Awarnings");
    command
}

#[cfg(test)]
mod tests;
