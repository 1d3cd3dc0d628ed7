//! What a benchmark found, as data.

use serde::Serialize;

use crate::machine::Machine;

/// The outcome of one benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its name in the list of goals.
    pub benchmark: String,
    /// Where it ran.
    pub machine: Machine,
    /// What ours was compared with, or why there is nothing to compare with.
    pub compared_with: String,
    /// The kernel of ours that was measured.
    pub kernel: String,
    /// Samples behind every median.
    pub repeats: usize,
    /// The fastest that one core read memory in this run, in GB/s.
    pub read_gbps: f64,
    /// One line per measurement.
    pub rows: Vec<Row>,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done, in words: unique in a report.
    pub case: String,
    /// The operation.
    pub operation: &'static str,
    /// Data drives.
    pub data: usize,
    /// Parities, or erasures for recovery.
    pub parity: usize,
    /// Bytes of a strip.
    pub strip: usize,
    /// Where the bytes were before.
    pub memory: Memory,
    /// What the numbers are.
    pub metric: &'static str,
    /// The median of ours.
    pub median: f64,
    /// The slowest sample of ours.
    pub min: f64,
    /// The fastest sample of ours.
    pub max: f64,
    /// The median of what ours is compared with; null when that is not on this machine.
    pub anchor: Option<f64>,
    /// Which function or measurement the anchor is.
    pub anchor_name: String,
    /// Median divided by anchor.
    pub ratio: Option<f64>,
    /// The ratio to reach.
    pub goal: f64,
    /// Whether it was reached; null without an anchor.
    pub meets: Option<bool>,
    /// The ratio we would like to reach.
    pub moonshot: f64,
}

/// Where bytes were before they were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// The same stripe again and again: in whatever cache holds it.
    Hot,
    /// A stripe that was not touched for longer than any cache remembers.
    Cold,
}

impl Memory {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Memory::Hot => "hot",
            Memory::Cold => "cold",
        }
    }
}

impl Report {
    /// Rows that reached their goal, rows that did not, and rows that had nothing to reach.
    #[must_use]
    pub fn tally(&self) -> [usize; 3] {
        let count = |wanted| self.rows.iter().filter(|row| row.meets == wanted).count();
        [count(Some(true)), count(Some(false)), count(None)]
    }
}

/// `bytes` in the unit that names strips.
#[must_use]
pub fn size(bytes: usize) -> String {
    const MIB: usize = 1 << 20;
    if bytes >= MIB { format!("{} MiB", bytes / MIB) } else { format!("{} KiB", bytes >> 10) }
}
