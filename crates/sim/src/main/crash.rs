//! `--crash STATES`, `--crash-pairs` and `--crash-replay STATE`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use strake_sim::crash::{self, Lie, ReplayError, pairs};
use strake_sim::kept;

/// With this option, a branch that no recovery took counts as a failure.
const COVER: &str = "--cover";

/// Runs the requested command.
///
/// Returns an error if the arguments are invalid, or if the kept states cannot be read.
pub fn run(words: &[String]) -> Result<ExitCode, String> {
    // A panic of the engine is reported as a violation with its state.
    std::panic::set_hook(Box::new(|_| {}));
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let cover = words.contains(&COVER);
    words.retain(|word| *word != COVER);
    match &words[..] {
        ["--crash-replay", key] => tell(crash::replay(key)),
        ["--crash", states, rest @ ..] => {
            let states = states.parse().map_err(|_| format!("{states} is no number of states"))?;
            enumerate(states, seed(rest)?, cover)
        }
        ["--crash-pairs", count, rest @ ..] if !count.starts_with("--") => {
            let count = count.parse().map_err(|_| format!("{count} is no number of histories"))?;
            Ok(every_pair(seed(rest)?, count, cover))
        }
        ["--crash-pairs", rest @ ..] => Ok(every_pair(seed(rest)?, pairs::count(), cover)),
        _ => Err("these words make no sense together".to_owned()),
    }
}

/// The seed in the arguments, or a random one.
///
/// Returns an error for other arguments.
pub fn seed(words: &[&str]) -> Result<u64, String> {
    match words {
        [] => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Ok(since.as_nanos() as u64 & 0xffff_ffff_ffff)
        }
        ["--seed", seed] => seed.parse().map_err(|_| format!("{seed} is no seed")),
        _ => Err("only a seed may follow".to_owned()),
    }
}

/// Prints the result of a replay.
///
/// Returns an error if the state does not exist.
pub fn tell(result: Result<String, ReplayError>) -> Result<ExitCode, String> {
    let (words, code) = match result {
        Ok(words) => (words, ExitCode::SUCCESS),
        Err(ReplayError::Violation(words)) => (words, ExitCode::FAILURE),
        Err(ReplayError::NoState(words)) => return Err(words),
    };
    println!("{words}");
    Ok(code)
}

fn enumerate(states: u64, seed: u64, cover: bool) -> Result<ExitCode, String> {
    println!("seed {seed}");
    let mut violations = 0;
    let kept = kept::lines("seeds-crash")?;
    for (key, result) in kept.iter().zip(crash::replay_all(&kept, threads())) {
        if let Err(what) = result {
            eprintln!(
                "{what}\n  replay: cargo run --release -p strake-sim -- --crash-replay {key}"
            );
            violations += 1;
        }
    }
    let started = Instant::now();
    let report = crash::run(seed, states, threads(), Lie::None);
    let took = started.elapsed().as_secs_f64();
    report.violations.iter().for_each(|what| eprintln!("{what}"));
    violations += report.violations.len();
    let covers = covers(&report.branches_missed(false), cover);
    println!(
        "{} kept states; {} histories, of {} every state; {:.0} states a second",
        kept.len(),
        report.cases,
        report.exhausted,
        report.runs as f64 / took
    );
    println!(
        "{{\"runs\":{},\"violations\":{violations},\"faults\":{},\"branches\":{},\"covered\":{},\
         \"shapes\":{},\"seed\":{seed},\
         \"seconds\":{took:.1}}}",
        report.runs + kept.len() as u64,
        object(&report.faults),
        object(&report.branches_of_all()),
        object(&report.covered),
        object(&report.shapes)
    );
    Ok(if violations == 0 && covers { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The seed selects the first history, so that runs with consecutive seeds cover all histories. Such runs cut no
/// recovery, because all cuts of a single one may take minutes.
fn every_pair(seed: u64, count: u64, cover: bool) -> ExitCode {
    println!("seed {seed}");
    let started = Instant::now();
    let (first, recoveries) =
        if count < pairs::count() { (seed % pairs::count(), 0) } else { (0, pairs::RECOVERIES) };
    let report = pairs::run(seed, first..first + count, recoveries, threads());
    let took = started.elapsed().as_secs_f64();
    report.violations.iter().for_each(|what| eprintln!("{what}"));
    let covers = covers(&report.branches_missed(true), cover);
    println!(
        "{} histories, of {} every cut with every loss; {:.0} states a second",
        report.cases,
        report.exhausted,
        report.runs as f64 / took
    );
    println!(
        "{{\"runs\":{},\"violations\":{},\"pairs\":{},\"faults\":{},\"geometries\":{:?},\"exhaustive\":{},\
         \"branches\":{},\"covered\":{},\"shapes\":{},\"seed\":{seed},\"seconds\":{took:.1}}}",
        report.runs,
        report.violations.len(),
        object(&report.pairs),
        object(&report.faults),
        pairs::geometries(),
        report.exhausted == report.cases,
        object(&report.branches_of_all()),
        object(&report.covered),
        object(&report.shapes)
    );
    if report.violations.is_empty() && covers { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the branches that no recovery took. Returns false if this is a failure.
fn covers(missed: &[&str], cover: bool) -> bool {
    if !missed.is_empty() {
        println!("no recovery did this: {}", missed.join(", "));
    }
    missed.is_empty() || !cover
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Counts as a JSON object.
fn object(counts: &BTreeMap<&'static str, u64>) -> String {
    let members: Vec<String> =
        counts.iter().map(|(name, count)| format!("\"{name}\":{count}")).collect();
    format!("{{{}}}", members.join(","))
}
