//! What a benchmark found, as data.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::measure::Samples;

/// The outcome of one benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its name in the list of goals.
    pub id: String,
    /// The work, as the list of goals has it.
    pub title: String,
    /// Where it ran.
    pub machine: Machine,
    /// What holds for every row, a sentence each.
    pub notes: Vec<String>,
    /// One line per measurement.
    pub rows: Vec<Row>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was done, in words: unique in a report.
    pub case: String,
    /// What was measured.
    pub metric: Metric,
    /// The unit of the numbers.
    pub unit: String,
    /// The middle of the samples; null when this could not be measured, and then `note` says why.
    pub median: Option<f64>,
    /// The least of them.
    pub min: Option<f64>,
    /// The greatest of them.
    pub max: Option<f64>,
    /// How many samples.
    pub repeats: usize,
    /// What it is compared with: measured in the same run, or published; `note` says which.
    pub anchor: Option<f64>,
    /// What to reach; null in rows that are there to read the others by.
    pub goal: Option<f64>,
    /// What we would like to reach.
    pub moonshot: Option<f64>,
    /// Which of them the median reaches.
    pub meets: Meets,
    /// What stood in for drives.
    pub drives: Drives,
    /// How parity is kept true across a crash in this row.
    pub protection: String,
    /// Whatever else one has to know to read the row.
    pub note: String,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Host requests per second.
    Iops,
    /// Host bytes per second.
    Bandwidth,
    /// A part of what could be had at most.
    Share,
    /// How many times as much as in another case, such as on one core.
    Scaling,
    /// How long a request takes.
    Latency,
    /// How many times as long a request takes as it does undisturbed.
    Slowdown,
    /// Time of the CPU that is used.
    Cpu,
    /// Memory that is used.
    Memory,
    /// Instructions that a request takes.
    Instructions,
}

impl Metric {
    /// The unit its numbers are in.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Iops => "1/s",
            Self::Bandwidth => "GB/s",
            Self::Share => "%",
            Self::Scaling | Self::Slowdown => "x",
            Self::Latency => "us",
            Self::Cpu => "% of a core",
            Self::Memory => "MiB",
            Self::Instructions => "1/request",
        }
    }

    /// Whether less is better.
    #[must_use]
    pub const fn is_cost(self) -> bool {
        match self {
            Self::Iops | Self::Bandwidth | Self::Share | Self::Scaling => false,
            Self::Latency | Self::Slowdown | Self::Cpu | Self::Memory | Self::Instructions => true,
        }
    }

    /// Whether `value` is as good as `goal`.
    #[must_use]
    pub fn reaches(self, value: f64, goal: f64) -> bool {
        if self.is_cost() { value <= goal } else { value >= goal }
    }
}

/// Which goal a row reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meets {
    /// None: it has none, was not measured, or falls short.
    None,
    /// What is to be reached.
    Goal,
    /// What we would like to reach.
    Moonshot,
}

impl Meets {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Goal => "goal",
            Self::Moonshot => "moonshot",
        }
    }
}

/// What stood in for drives. Rows on different ones are never compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drives {
    /// Nothing: requests complete at the next turn and move no data.
    Null,
    /// Memory: every byte is copied.
    Ram,
    /// Drives with the latencies and limits of a profile, without driver or DMA cost. In D1 to D3, models of NVMe
    /// controllers that share memory with the driver.
    Model,
    /// Files and block devices; for G9, which has none, the machine's memory.
    Real,
}

impl Drives {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Ram => "ram",
            Self::Model => "model",
            Self::Real => "real",
        }
    }
}

/// What a row is held against, in the row's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Target {
    /// What it is compared with.
    pub anchor: Option<f64>,
    /// What to reach.
    pub goal: Option<f64>,
    /// What we would like to reach.
    pub moonshot: Option<f64>,
}

impl Target {
    /// Nothing: a row to read others by.
    pub const NONE: Self = Self { anchor: None, goal: None, moonshot: None };

    /// A goal and what lies beyond it.
    #[must_use]
    pub const fn new(anchor: f64, goal: f64, moonshot: f64) -> Self {
        Self { anchor: Some(anchor), goal: Some(goal), moonshot: Some(moonshot) }
    }

    /// The same without an anchor.
    #[must_use]
    pub const fn goals(goal: f64, moonshot: f64) -> Self {
        Self { anchor: None, goal: Some(goal), moonshot: Some(moonshot) }
    }
}

impl Row {
    /// A row with its numbers, on null drives and without a note.
    #[must_use]
    pub fn new(case: impl Into<String>, metric: Metric, samples: &Samples, target: Target) -> Self {
        let median = samples.median();
        Self {
            median: Some(median),
            min: Some(samples.min()),
            max: Some(samples.max()),
            repeats: samples.count(),
            meets: meets(metric, median, target),
            ..Self::open(case, metric, target, "")
        }
    }

    /// A row that could not be measured.
    #[must_use]
    pub fn open(
        case: impl Into<String>,
        metric: Metric,
        target: Target,
        why: impl Into<String>,
    ) -> Self {
        Self {
            case: case.into(),
            metric,
            unit: metric.unit().to_owned(),
            median: None,
            min: None,
            max: None,
            repeats: 0,
            anchor: target.anchor,
            goal: target.goal,
            moonshot: target.moonshot,
            meets: Meets::None,
            drives: Drives::Null,
            protection: "none".to_owned(),
            note: why.into(),
        }
    }

    /// The same row on `drives`.
    #[must_use]
    pub fn on(mut self, drives: Drives) -> Self {
        self.drives = drives;
        self
    }

    /// The same row with parity kept true by `protection`.
    #[must_use]
    pub fn protected(mut self, protection: &str) -> Self {
        protection.clone_into(&mut self.protection);
        self
    }

    /// The same row with one more thing to know.
    #[must_use]
    pub fn note(mut self, note: impl AsRef<str>) -> Self {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note.as_ref());
        self
    }

    /// How far it is from its goal: 1 is there, more is better, whatever is measured.
    #[must_use]
    pub fn progress(&self) -> Option<f64> {
        self.against(self.goal?)
    }

    /// How the median compares with `value`: more than 1 is better.
    #[must_use]
    pub fn against(&self, value: f64) -> Option<f64> {
        let median = self.median?;
        let ratio = if self.metric.is_cost() { value / median } else { median / value };
        ratio.is_finite().then_some(ratio)
    }
}

fn meets(metric: Metric, median: f64, target: Target) -> Meets {
    let reaches = |goal: Option<f64>| goal.is_some_and(|goal| metric.reaches(median, goal));
    match (reaches(target.goal), reaches(target.moonshot)) {
        (true, true) => Meets::Moonshot,
        (true, false) => Meets::Goal,
        (false, _) => Meets::None,
    }
}

/// How many rows do what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reach the goal, or more.
    pub goal: usize,
    /// Reach what we would like to reach.
    pub moonshot: usize,
    /// Fall short of the goal.
    pub short: usize,
    /// Have a goal and could not be measured.
    pub open: usize,
}

impl Report {
    /// A report about this machine, without rows.
    #[must_use]
    pub fn new(id: &str, title: &str) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            machine: Machine::here(),
            notes: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// How many rows reach their goals.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for row in self.rows.iter().filter(|row| row.goal.is_some()) {
            match (row.meets, row.median) {
                (Meets::Goal, _) => tally.goal += 1,
                (Meets::Moonshot, _) => {
                    tally.goal += 1;
                    tally.moonshot += 1;
                }
                (Meets::None, Some(_)) => tally.short += 1,
                (Meets::None, None) => tally.open += 1,
            }
        }
        tally
    }
}

/// `bytes` in the unit that names strips and requests.
#[must_use]
pub fn size(bytes: usize) -> String {
    const MIB: usize = 1 << 20;
    match bytes {
        MIB.. if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        1024.. => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// `value` in `unit`, with as many digits as a person reads.
#[must_use]
pub fn number(value: f64, unit: &str) -> String {
    let (value, suffix) = match unit {
        "1/s" if value >= 1e6 => (value / 1e6, " M/s"),
        "1/s" if value >= 1e3 => (value / 1e3, " k/s"),
        "1/s" => (value, " /s"),
        "% of a core" | "1/request" | "x" => (value, ""),
        "%" => (value, " %"),
        "us" => (value, " us"),
        "MiB" => (value, " MiB"),
        _ => (value, " GB/s"),
    };
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.digits$}{suffix}")
}

#[cfg(test)]
mod tests;
