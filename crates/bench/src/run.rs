//! Runs a goal.

use std::path::PathBuf;

use strake_parity::Kernel;

use crate::machine::{Others, Steal, available_memory};
use crate::net::Peer;
use crate::report::{Drives, Report};
use crate::rig::Rig;
use crate::scenario::Options;
use crate::{ask, drive, fio, g9, goals, idle, latency, memory, net, observed, rebuild};

/// Everything a person may choose.
#[derive(Clone, Debug)]
pub struct Choice {
    /// What holds for every goal.
    pub options: Options,
    /// The file of ISA-L, for G9; the system's otherwise.
    pub isal: Option<PathBuf>,
    /// The kernel of ours to measure, for G9.
    pub kernel: Kernel,
    /// What stands beside ours in G14.
    pub compare: Compare,
    /// The target of others that stands beside ours in `net`.
    pub peer: Option<Peer>,
}

/// What stands beside ours where files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compare {
    /// fio on the same files.
    #[default]
    Fio,
    /// Nothing.
    Nothing,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// What was asked for.
    pub id: String,
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no benchmark {}: see strake bench list", self.id)
    }
}

impl std::error::Error for Unknown {}

/// What can be run: the goals, and the scenarios that show what the goals do not. G15 needs a
/// target to compare with: `net` measures ours, and one that it is given beside it.
pub const RUNS: [&str; 24] = [
    "G1",
    "G2",
    "G3",
    "G4",
    "G5",
    "G6",
    "G7",
    "G8",
    "G9",
    "G10",
    "G11",
    "G12",
    "G13",
    "G14",
    "D1",
    "D2",
    "D3",
    "cache",
    "contention",
    "latency",
    "modes",
    "net",
    "observed",
    "vendors",
];

/// Measures what the goal `id` asks for, calling `progress` before each step.
///
/// # Errors
/// When there is no such goal.
pub fn run(id: &str, choice: &Choice, mut progress: impl FnMut(&str)) -> Result<Report, Unknown> {
    let unknown = || Unknown { id: id.to_owned() };
    let goal = goals::find(id).ok_or_else(unknown)?;
    let steal = Steal::now();
    let others = Others::now();
    let mut report = match id {
        "G9" => g9::run(&parity(choice), &mut progress),
        _ => about_data_path(id, goal.work),
    };
    if let Some(asks) = goals::asks(id, &choice.options) {
        ask::answer(&mut report, &asks, &choice.options, &mut progress);
    }
    match id {
        "G11" => rebuild::answer(&mut report, &choice.options, &mut progress),
        "G12" => idle::answer(&mut report, &choice.options, &mut progress),
        "G13" => memory::answer(&mut report, &choice.options, &mut progress),
        "G14" => fio::answer(&mut report, &choice.options, choice.compare, &mut progress),
        "D1" | "D2" | "D3" => drive::answer(&mut report, &choice.options, &mut progress),
        "latency" => latency::answer(&mut report, &choice.options, &mut progress),
        "net" => {
            net::answer(&mut report, &choice.options, choice.peer.as_ref(), &mut progress);
        }
        "observed" => observed::answer(&mut report, &choice.options, &mut progress),
        _ if RUNS.contains(&id) => {}
        _ => return Err(unknown()),
    }
    report.notes.extend(about_drives(&report));
    report.notes.extend(steal.since());
    report.machine.others = others.since();
    Ok(report)
}

fn about_data_path(id: &str, work: &str) -> Report {
    let mut report = Report::new(id, work);
    report.notes.push(format!("Parity by kernel {}.", Kernel::fit().name()));
    report.notes.extend(unpinned());
    report
}

/// What rows on drives that are not real leave out, a sentence for each kind.
fn about_drives(report: &Report) -> Vec<String> {
    let about = |drives: Drives| match drives {
        Drives::Null => Some(
            "Null drives move no data: a read touches no byte of it, and a write only what parity is computed from. \
             Nothing here says what a driver, DMA or a drive's cache would cost.",
        ),
        Drives::Ram => {
            Some("Drives in memory copy every byte with the CPU, which a drive does not.")
        }
        // These models are controllers, and the report says what they leave out.
        Drives::Model if report.id.starts_with('D') => None,
        Drives::Model => Some(
            "Modelled drives have the latencies and limits of a profile and move no data: a read touches no byte of \
             it. They hold no driver or DMA cost.",
        ),
        Drives::Real => None,
    };
    [Drives::Null, Drives::Ram, Drives::Model]
        .into_iter()
        .filter(|drives| report.rows.iter().any(|row| row.drives == *drives))
        .filter_map(about)
        .map(str::to_owned)
        .collect()
}

/// What the kernel says to data cores on the CPUs that rows with two of them use.
fn unpinned() -> Option<String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    Rig::start(if cpus < 2 { 1 } else { 2 }).ok()?.unpinned()
}

fn parity(choice: &Choice) -> g9::Options {
    g9::Options {
        filter: choice.options.filter.clone(),
        repeats: choice.options.repeats.unwrap_or(g9::REPEATS),
        isal: choice.isal.clone(),
        kernel: choice.kernel,
    }
}

/// Bytes that no cache holds, as far as this machine has the memory.
#[must_use]
pub fn cold_bytes(last_cache: usize) -> usize {
    const CACHES: usize = 3;
    const LEAST: usize = 256 << 20;
    /// Of the memory that is free, the part that may be taken.
    const SHARE: usize = 4;
    (last_cache * CACHES).clamp(LEAST, (available_memory() / SHARE).max(LEAST))
}
