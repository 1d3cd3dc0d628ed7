//! D1 to D3: what our NVMe driver costs, measured against models of controllers in this process.
//!
//! A model reads and writes memory that it shares with the driver: no number contains DMA, PCIe or a drive. The driver
//! runs on CPU 0. The models run on CPU 1, or, where a row says so, on the thread of the driver. The time of the
//! driver's calls is measured around the calls, so the time of a model is in none of them.

mod calls;
mod d1;
mod d2;
mod d3;
pub mod models;
#[cfg(test)]
mod tests;

use crate::measure::Samples;
use crate::report::{Drives, Metric, Report, Row, Target};
use crate::rig::Rig;
use crate::scenario::Options;

/// Bytes of a request, which is one block.
pub const BYTES: usize = 4096;

/// A row before it is measured.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    case: String,
    metric: Metric,
    target: Target,
    note: String,
    /// Of arrays, the protection of their parity.
    protection: &'static str,
}

impl Line {
    fn new(case: impl Into<String>, metric: Metric, target: Target, note: &str) -> Self {
        let (case, note) = (case.into(), note.to_owned());
        Self { case, metric, target, note, protection: "none" }
    }

    /// The row of what was found in each round: values in the unit of the metric, or why there is none.
    fn row(&self, found: Result<Vec<f64>, String>) -> Row {
        let row = match found {
            Ok(values) if !values.is_empty() && values.iter().all(|value| value.is_finite()) => {
                Row::new(self.case.as_str(), self.metric, &Samples::new(values), self.target)
            }
            Ok(_) => self.open("no request completed while the clock ran"),
            Err(why) => self.open(&why),
        };
        let ns = row.median.filter(|us| self.metric == Metric::Latency && *us < 1.0);
        let row = row.on(Drives::Model).protected(self.protection);
        let row =
            ns.map_or_else(|| row.clone(), |us| row.clone().note(format!("{:.1} ns", us * 1e3)));
        if self.note.is_empty() { row } else { row.note(&self.note) }
    }

    fn open(&self, why: &str) -> Row {
        Row::open(self.case.as_str(), self.metric, self.target, why)
    }
}

/// What each round found, by the number of the line.
type Found = Vec<Result<Vec<f64>, String>>;

/// Measures what goal `id` asks for, and adds its rows.
pub fn answer(report: &mut Report, options: &Options, progress: &mut dyn FnMut(&str)) {
    let id = report.id.clone();
    let lines = lines(&id);
    let wanted =
        |line: &Line| options.filter.as_ref().is_none_or(|part| line.case.contains(part.as_str()));
    if !lines.iter().any(wanted) {
        return;
    }
    report.notes.push(
        "Drives are models of NVMe controllers in this process: a model reads and writes memory that it shares with \
         the driver. No DMA, no PCIe, no drive."
            .to_owned(),
    );
    let found = measure(&id, options, progress)
        .unwrap_or_else(|why| lines.iter().map(|_| Err(why.clone())).collect());
    let rows = lines.iter().zip(found).filter(|(line, _)| wanted(line));
    report.rows.extend(rows.map(|(line, found)| line.row(found)));
}

fn lines(id: &str) -> Vec<Line> {
    match id {
        "D1" => d1::lines(),
        "D2" => d2::lines(),
        _ => d3::lines(),
    }
}

fn measure(id: &str, options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Found, String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        return Err("the models need a CPU of their own: this machine has one".to_owned());
    }
    let rig = Rig::start(2)?;
    match id {
        "D1" => d1::measure(&rig, options, progress),
        "D2" => d2::measure(&rig, options, progress),
        _ => d3::measure(&rig, options, progress),
    }
}

/// Adds a round to what was found.
fn add_round(found: &mut Found, round: Vec<Result<f64, String>>) {
    found.resize(round.len().max(found.len()), Ok(Vec::new()));
    for (values, value) in found.iter_mut().zip(round) {
        match (&mut *values, value) {
            (Ok(values), Ok(value)) => values.push(value),
            (Ok(_), Err(why)) => *values = Err(why),
            (Err(_), _) => {}
        }
    }
}
