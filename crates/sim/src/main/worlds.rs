//! Worlds by seed, on every core of the host.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use strake_sim::shrink::shrink;
use strake_sim::stage::operate;
use strake_sim::{Limits, Mutant, Report, Settings, kept, run};

/// The selection of worlds.
pub struct Worlds {
    /// The number of worlds, without the kept ones.
    pub seeds: u64,
    /// Whether an operator executes random commands.
    pub operators: bool,
    /// Whether the seeds that failed once run first.
    pub kept: bool,
    /// The first seed.
    pub first: u64,
    /// Time in seconds after which no world is started.
    pub seconds: Option<u64>,
    /// Whether every event is printed to standard error.
    pub print: bool,
    /// The limits of each world.
    pub limits: Limits,
    /// Whether only the first world runs, and is reduced if it fails.
    pub shrink: bool,
    /// The injected error.
    pub mutant: Mutant,
}

/// A world to run.
#[derive(Clone, Copy)]
struct World {
    seed: u64,
    operators: bool,
}

impl World {
    fn run(self, settings: Settings) -> Report {
        if self.operators { operate(self.seed, settings) } else { run(self.seed, settings) }
    }

    /// The command line that runs the world again, and prints its events.
    fn replay(self, limits: &Limits) -> String {
        let kind = if self.operators { "operators" } else { "seeds" };
        let number = |name: &str, number: Option<u64>| {
            number.map_or(String::new(), |number| format!(" --{name} {number}"))
        };
        let without = limits.without.to_string();
        let without = if without.is_empty() { without } else { format!(" --without {without}") };
        format!(
            "cargo run -p strake-sim -- --seed {} --{kind} 1{without}{}{}{} --print",
            self.seed,
            number("requests", limits.requests),
            number("clients", limits.clients.map(|clients| clients as u64)),
            number("cores", limits.cores.map(u64::from))
        )
    }

    /// Prints the violation, if there is one.
    fn complain(self, report: &Report, limits: &Limits) -> bool {
        let Some(violation) = &report.violation else { return false };
        eprintln!("seed {}: {}\n  {violation}", report.seed, report.shape);
        eprintln!("  replay: {}", self.replay(limits));
        true
    }
}

#[derive(Default)]
struct Sum {
    runs: u64,
    violations: u64,
    requests: u64,
    faults: BTreeMap<&'static str, u64>,
    hashes: BTreeMap<usize, u64>,
}

impl Worlds {
    /// Runs all worlds and prints a summary line.
    ///
    /// Returns an error if the kept seeds cannot be read.
    pub fn run(&self) -> Result<ExitCode, String> {
        // A panic of the engine is reported below as a violation.
        std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
        if self.shrink {
            return Ok(self.make_small());
        }
        let list = self.list()?;
        let sum = self.run_all(&list);
        let kinds: Vec<String> =
            sum.faults.iter().map(|(kind, count)| format!("\"{kind}\":{count}")).collect();
        let hash = sum.hashes.values().fold(0u64, |all, hash| all.rotate_left(1) ^ hash);
        println!(
            "{{\"runs\":{},\"violations\":{},\"requests\":{},\"faults\":{{{}}},\"seed\":{},\
             \"trace_hash\":\"{hash:016x}\"}}",
            sum.runs,
            sum.violations,
            sum.requests,
            kinds.join(","),
            self.first
        );
        Ok(if sum.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Reduces the first world, if it fails, and prints the command for the reduced one.
    fn make_small(&self) -> ExitCode {
        let world = World { seed: self.first, operators: self.operators };
        let settings = Settings { limits: self.limits, mutant: self.mutant, ..Settings::default() };
        let Some(small) =
            shrink(world.seed, settings, |seed, settings| World { seed, ..world }.run(settings))
        else {
            println!("{{\"runs\":1,\"violations\":0,\"seed\":{}}}", world.seed);
            return ExitCode::SUCCESS;
        };
        world.complain(&small.report, &small.limits);
        println!(
            "{{\"runs\":{},\"violations\":1,\"requests\":{},\"seed\":{}}}",
            small.runs, small.report.requests, world.seed
        );
        ExitCode::FAILURE
    }

    fn list(&self) -> Result<Vec<World>, String> {
        let mut list = Vec::new();
        if self.kept {
            for (folder, operators) in [("seeds", false), ("seeds-operators", true)] {
                let seeds = kept::seeds(folder)?.into_iter();
                list.extend(seeds.map(|seed| World { seed, operators }));
            }
        }
        let fresh = (0..self.seeds).map(|offset| self.first.wrapping_add(offset));
        list.extend(fresh.map(|seed| World { seed, operators: self.operators }));
        Ok(list)
    }

    fn run_all(&self, list: &[World]) -> Sum {
        let started = Instant::now();
        let limit = self.seconds.map(Duration::from_secs);
        let next = AtomicUsize::new(0);
        let sum = Mutex::new(Sum::default());
        let settings = Settings {
            print: self.print,
            limits: self.limits,
            mutant: self.mutant,
            ..Settings::default()
        };
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let late = limit.is_some_and(|limit| started.elapsed() >= limit);
                let Some(world) = list.get(at).filter(|_| !late) else { return };
                let report = world.run(settings);
                let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                sum.runs += 1;
                sum.requests += report.requests;
                sum.hashes.insert(at, report.trace.hash());
                for (kind, count) in report.trace.faults() {
                    *sum.faults.entry(kind).or_insert(0) += count;
                }
                sum.violations += u64::from(world.complain(&report, &self.limits));
            }
        };
        // Mixed events of several worlds would be useless.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.print { 1 } else { cores };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        sum.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
