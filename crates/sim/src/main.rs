//! Runs seeds and crashes, and prints replay commands for failures.

#![forbid(unsafe_code)]

use std::process::ExitCode;

// The library has modules with some of these names at the default paths.
#[path = "main/corrupt.rs"]
mod corrupt;
#[path = "main/crash.rs"]
mod crash;
#[path = "main/load.rs"]
mod load;
#[path = "main/model.rs"]
mod model;
#[path = "main/restart.rs"]
mod restart;
#[path = "main/traces.rs"]
mod traces;
#[path = "main/worlds.rs"]
mod worlds;

use strake_sim::{Limits, Mutant};
use worlds::Worlds;

const USAGE: &str = "usage: strake-sim [--seeds N | --operators N] [--seed FIRST] [--seconds T] [--kept] [--print]
                  [--shrink] [--without KIND,...] [--requests N] [--clients N] [--cores N] [--hasty]
       strake-sim --crash STATES [--seed S] [--cover]
       strake-sim --crash-pairs [HISTORIES] [--seed S] [--cover]
       strake-sim --crash-replay STATE
       strake-sim --corrupt RUNS [--seed S]
       strake-sim --corrupt-replay WOUND
       strake-sim --load LEVEL [NAME=NUMBER ...]
       strake-sim --restart RUNS [--seed S]
       strake-sim --model FILE.cfg ...
       strake-sim --traces N [--seed S]
  runs N worlds (default 100) from seed FIRST on (default 1), beginning none after T seconds;
  --operators makes them worlds of an operator who does anything, and not only what makes sense;
  --kept runs those that failed once before them;
  --shrink runs the first seed alone, and if it fails, what is left of it when whatever it can do without is left out
  --without leaves out kinds of faults, by the names of the closing line; the others are limits
  --hasty starts arrays before the requests of a killed daemon are over: worlds must fail then
  --print writes every event of every world to standard error
  --crash cuts short histories at every write and looks at about STATES of the states that come of it
  --crash-pairs looks at every cut of small histories with every member that may be lost in it, in mode strict; when
  no number says how many, at all of them, and at every cut of some recoveries
  --cover fails when no recovery did something that some should have done
  --crash-replay looks at one of them again
  --corrupt writes over any 4 KiB of any one member of RUNS arrays that are not in use, and starts them
  --corrupt-replay does one of these again
  --load measures clients beside a rebuild on modelled drives, in simulated time; numbers: drives=8 slower=1
  cores=1 depth=16 strip-kib=64 member-gib=16 millis=500 turn-ns=500 seed=1
  --restart measures the time from a start after a kill to the first answers, on modelled drives of 7.68 TB: fast and
  slow ones, 8 and 64, and with a drive that hangs on the way
  --model goes through every state of the model of docs/model with the constants of each file
  --traces follows in the model what N worlds do to the labels of their drives";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match words.first().map_or("", String::as_str) {
        "--model" => model::run(words.into_iter().skip(1)).map(|()| ExitCode::SUCCESS),
        "--traces" => traces::run(&words).map(|all| ExitCode::from(u8::from(!all))),
        "--load" => load::run(words.into_iter().skip(1)).map(|report| {
            println!("{report}");
            ExitCode::SUCCESS
        }),
        "--restart" => restart::run(&words),
        word if word.starts_with("--corrupt") => corrupt::run(&words),
        word if word.starts_with("--crash") => crash::run(&words),
        _ => worlds(words.into_iter()).and_then(|worlds| worlds.run()),
    };
    ended.unwrap_or_else(|problem| {
        eprintln!("strake-sim: {problem}\n{USAGE}");
        ExitCode::from(2)
    })
}

fn worlds(mut words: impl Iterator<Item = String>) -> Result<Worlds, String> {
    let mut worlds = Worlds {
        seeds: 100,
        operators: false,
        kept: false,
        first: 1,
        seconds: None,
        print: false,
        limits: Limits::default(),
        shrink: false,
        mutant: Mutant::None,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs something to follow"));
        let mut number = || -> Result<u64, String> {
            let value = value()?;
            value.parse().map_err(|_| format!("{word} needs a number, not {value}"))
        };
        match word.as_str() {
            "--seeds" => worlds.seeds = number()?,
            "--operators" => {
                worlds.seeds = number()?;
                worlds.operators = true;
            }
            "--seed" => worlds.first = number()?,
            "--seconds" => worlds.seconds = Some(number()?),
            "--kept" => worlds.kept = true,
            "--print" => worlds.print = true,
            "--shrink" => worlds.shrink = true,
            "--hasty" => worlds.mutant = Mutant::Hasty,
            "--requests" => worlds.limits.requests = Some(number()?),
            "--clients" => worlds.limits.clients = Some(number()? as usize),
            "--cores" => worlds.limits.cores = Some(number()? as u16),
            "--without" => worlds.limits.without = value()?.parse()?,
            other => return Err(format!("{other} is not an option")),
        }
    }
    Ok(worlds)
}
