//! `--corrupt RUNS` and `--corrupt-replay WOUND`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use strake_sim::crash::corrupt;
use strake_sim::kept;

use crate::crash;

/// Runs the requested command.
///
/// Returns an error if the arguments are invalid, or if the kept damages cannot be read.
pub fn run(words: &[String]) -> Result<ExitCode, String> {
    // A panic of the engine is reported as a violation with its damage.
    std::panic::set_hook(Box::new(|_| {}));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match &words[..] {
        ["--corrupt-replay", key] => crash::tell(corrupt::replay(key)),
        ["--corrupt", runs, rest @ ..] => {
            let runs = runs.parse().map_err(|_| format!("{runs} is no number of runs"))?;
            corrupt_arrays(runs, crash::seed(rest)?)
        }
        _ => Err("these words make no sense together".to_owned()),
    }
}

fn corrupt_arrays(runs: u64, seed: u64) -> Result<ExitCode, String> {
    println!("seed {seed}");
    let kept = kept::lines("seeds-corrupt")?;
    let failed = kept.iter().filter_map(|key| corrupt::replay(key).err());
    let failed: Vec<String> = failed.map(|what| what.to_string()).collect();
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = corrupt::run(seed, runs, threads);
    let took = started.elapsed().as_secs_f64();
    failed.iter().chain(&report.violations).for_each(|what| eprintln!("{what}"));
    let violations = failed.len() + report.violations.len();
    println!("{} kept wounds; {:.0} wounds a second", kept.len(), report.runs as f64 / took);
    println!(
        "{{\"runs\":{},\"violations\":{violations},\"assembled\":{},\"explained\":{},\"healed\":{},\"found\":{},\
         \"areas\":{},\"kinds\":{},\"seed\":{seed},\"seconds\":{took:.1}}}",
        report.runs,
        report.assembled,
        report.explained,
        report.healed,
        report.found,
        json(&report.areas),
        json(&report.kinds)
    );
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Counts as a JSON object.
pub fn json(counts: &BTreeMap<&'static str, u64>) -> String {
    let counts: Vec<String> =
        counts.iter().map(|(what, count)| format!("\"{what}\":{count}")).collect();
    format!("{{{}}}", counts.join(","))
}
