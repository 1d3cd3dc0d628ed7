//! Runs seeds and says how to replay those that fail.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use strake_sim::stage::operate;
use strake_sim::{Report, Settings, run};

// The library has a module of this name, at the place where this one would be looked for.
#[path = "main/load.rs"]
mod load;

const USAGE: &str = "usage: strake-sim [--seeds N | --operators N] [--seed FIRST] [--seconds T] [--print]
       strake-sim --load LEVEL [NAME=NUMBER ...]
  runs N worlds (default 100) from seed FIRST on (default 1), stopping after T seconds;
  --operators makes them worlds of an operator who does anything, and not only what makes sense;
  --print writes every event of every world to standard error
  --load measures clients beside a rebuild on modelled drives, in simulated time; numbers: drives=8 slower=1
  cores=1 depth=16 strip-kib=64 member-gib=16 millis=500 turn-ns=500 seed=1";

struct Arguments {
    seeds: u64,
    operators: bool,
    first: u64,
    seconds: Option<u64>,
    print: bool,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|word| word == "--load") {
        return match load::run(std::env::args().skip(2)) {
            Ok(report) => {
                println!("{report}");
                ExitCode::SUCCESS
            }
            Err(problem) => {
                eprintln!("strake-sim: {problem}\n{USAGE}");
                ExitCode::from(2)
            }
        };
    }
    match arguments(std::env::args().skip(1)) {
        Ok(arguments) => run_all(&arguments),
        Err(problem) => {
            eprintln!("strake-sim: {problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments =
        Arguments { seeds: 100, operators: false, first: 1, seconds: None, print: false };
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64, String> {
            let value = words.next().ok_or(format!("{word} needs a number"))?;
            value.parse().map_err(|_| format!("{word} needs a number, not {value}"))
        };
        match word.as_str() {
            "--seeds" => arguments.seeds = number()?,
            "--operators" => {
                arguments.seeds = number()?;
                arguments.operators = true;
            }
            "--seed" => arguments.first = number()?,
            "--seconds" => arguments.seconds = Some(number()?),
            "--print" => arguments.print = true,
            other => return Err(format!("{other} is not an option")),
        }
    }
    Ok(arguments)
}

fn run_all(arguments: &Arguments) -> ExitCode {
    // A panic of the engine is a violation that is reported below.
    std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
    let started = Instant::now();
    let limit = arguments.seconds.map(Duration::from_secs);
    let (mut runs, mut violations, mut requests, mut hash) = (0u64, 0u64, 0u64, 0u64);
    let mut faults: BTreeMap<&'static str, u64> = BTreeMap::new();
    for offset in 0..arguments.seeds {
        if limit.is_some_and(|limit| started.elapsed() >= limit) {
            break;
        }
        let seed = arguments.first.wrapping_add(offset);
        let settings = Settings { print: arguments.print, ..Settings::default() };
        let play = if arguments.operators { operate } else { run };
        let report = play(seed, settings);
        runs += 1;
        requests += report.requests;
        hash = hash.rotate_left(1) ^ report.trace.hash();
        for (kind, count) in report.trace.faults() {
            *faults.entry(kind).or_insert(0) += count;
        }
        violations += u64::from(complain(&report, arguments));
    }
    let kinds: Vec<String> =
        faults.iter().map(|(kind, count)| format!("\"{kind}\":{count}")).collect();
    println!(
        "{{\"runs\":{runs},\"violations\":{violations},\"requests\":{requests},\"faults\":{{{}}},\"seed\":{},\
         \"trace_hash\":\"{hash:016x}\"}}",
        kinds.join(","),
        arguments.first
    );
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what went wrong, if anything did.
fn complain(report: &Report, arguments: &Arguments) -> bool {
    let Some(violation) = &report.violation else { return false };
    eprintln!("seed {}: {}\n  {violation}", report.seed, report.shape);
    let kind = if arguments.operators { "operators" } else { "seeds" };
    eprintln!("  replay: cargo run -p strake-sim -- --seed {} --{kind} 1 --print", report.seed);
    true
}
