//! How long requests take on modelled drives: of a healthy array, with a member out, and while it is rebuilt.

use strake_raid::Level;

use crate::bay::Bay;
use crate::measure::Samples;
use crate::report::{Drives, Meets, Metric, Report, Row, Target};
use crate::rig::Sample;
use crate::scenario::{Case, Made, Options};

pub mod draw;
#[cfg(test)]
mod tests;

/// Bytes of a member: a rebuild outlasts several samples.
const MEMBER_BYTES: u64 = 16 << 30;
/// The member that is lost.
const LOST: u8 = 1;
const ARRAYS: [(Level, usize); 2] = [(Level::Raid6, 8), (Level::Raid1, 2)];
const DEPTHS: [u32; 4] = [1, 8, 32, 128];
/// What is shown of each case: its name, and the requests of 1000 that were faster.
pub const PERCENTILES: [(&str, f64); 3] = [("p50", 500.0), ("p99", 990.0), ("p99.9", 999.0)];
/// How many times as long the slowest thousandth may take beside a rebuild.
const TIMES_MAX: f64 = 3.0;
/// How often a sample is tried again that the end of a rebuild fell into.
const TRIES: usize = 5;

/// What the array is like meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is wrong.
    Healthy,
    /// A member is out.
    Degraded,
    /// The member is being rebuilt, at the usual priority.
    Rebuilding,
}

impl State {
    /// All of them, in the order in which an array is brought into them.
    pub const ALL: [Self; 3] = [Self::Healthy, Self::Degraded, Self::Rebuilding];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Rebuilding => "rebuilding",
        }
    }
}

/// What was found about a case in one state: the percentiles of each sample, in microseconds.
#[derive(Clone, Debug)]
struct Point {
    case: Case,
    state: State,
    found: Result<Vec<[f64; 3]>, String>,
}

/// Measures and adds the rows.
pub fn answer(report: &mut Report, options: &Options, mut progress: impl FnMut(&str)) {
    let wanted =
        |row: &Row| options.filter.as_ref().is_none_or(|part| row.case.contains(part.as_str()));
    let cases: Vec<Case> = cases(options)
        .into_iter()
        .filter(|case| rows(&blank(std::slice::from_ref(case))).iter().any(wanted))
        .collect();
    if cases.is_empty() {
        return;
    }
    report.notes.push(
        "A member has 16 GiB. Rebuilds go at the usual priority; no driver or DMA cost.".to_owned(),
    );
    let points = measure(&cases, options, &mut progress);
    report.rows.extend(rows(&points).into_iter().filter(wanted));
}

/// Every case, of one array after the other.
fn cases(options: &Options) -> Vec<Case> {
    let made = Made::Model(options.profile);
    let mut cases = Vec::new();
    for (level, count) in ARRAYS {
        for write_percent in [0, 100] {
            let case = |depth| Case { made, write_percent, depth, ..Case::array(level, count) };
            cases.extend(DEPTHS.map(case));
        }
    }
    cases
}

/// A point without samples for each case and state.
fn blank(cases: &[Case]) -> Vec<Point> {
    let point = |state| {
        cases.iter().map(move |case| Point { case: case.clone(), state, found: Ok(Vec::new()) })
    };
    State::ALL.into_iter().flat_map(point).collect()
}

/// Measures everything once per round. An array that cannot be brought into a state has no numbers from then on.
fn measure(cases: &[Case], options: &Options, progress: &mut impl FnMut(&str)) -> Vec<Point> {
    let mut all = Vec::new();
    for (level, count) in ARRAYS {
        let mine: Vec<Case> =
            cases.iter().filter(|case| case.level == Some(level)).cloned().collect();
        if mine.is_empty() {
            continue;
        }
        progress("filling an array");
        let bay = Bay::new(Made::Model(options.profile), level, count, MEMBER_BYTES, LOST);
        let bay = bay.and_then(|bay| bay.fill().map(|()| bay));
        all.push((bay, blank(&mine)));
    }
    let repeats = options.repeats();
    for number in 1..=repeats {
        for (bay, points) in &mut all {
            let done = match bay {
                Ok(bay) => round(bay, points, options, &mut |name| {
                    progress(&format!("{number} of {repeats}: {name}"));
                }),
                Err(why) => Err(why.clone()),
            };
            if let Err(why) = done {
                points.iter_mut().for_each(|point| point.found = Err(why.clone()));
                *bay = Err(why);
            }
        }
    }
    all.into_iter().flat_map(|(_, points)| points).collect()
}

/// One sample of each point, and the array is healthy again.
fn round(
    bay: &Bay,
    points: &mut [Point],
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let mut was = State::Healthy;
    for point in points {
        if point.state != was && point.state == State::Degraded {
            bay.lose()?;
        }
        was = point.state;
        progress(&format!("{} {}", point.case.name(), point.state.word()));
        let sample = match point.state {
            State::Healthy | State::Degraded => {
                bay.sample(&point.case, options.span, &mut || Ok(()))?
            }
            State::Rebuilding => beside_rebuild(bay, &point.case, options)?,
        };
        if let Ok(found) = &mut point.found {
            found.push(percentiles(&sample)?);
        }
    }
    bay.settle()
}

/// A sample all of which was taken while the member was rebuilt.
fn beside_rebuild(bay: &Bay, case: &Case, options: &Options) -> Result<Sample, String> {
    for _ in 0..TRIES {
        // What is left may not last: begin another one.
        if !bay.is_rebuilding() || bay.rebuilt() > bay.bytes_of_member() / 2 {
            bay.settle()?;
            if bay.is_in_sync() {
                bay.lose()?;
            }
            bay.replace()?;
        }
        let sample = bay.sample(case, options.span, &mut || Ok(()))?;
        if bay.is_rebuilding() {
            return Ok(sample);
        }
    }
    Err("a rebuild ends before a sample does: use a smaller --milliseconds".to_owned())
}

fn percentiles(sample: &Sample) -> Result<[f64; 3], String> {
    let latency = sample.latency();
    let mut found = [0.0; 3];
    for (value, (_, per_mille)) in found.iter_mut().zip(PERCENTILES) {
        let ns = latency.percentile(per_mille).ok_or("no request completed")?;
        *value = ns as f64 / 1e3;
    }
    Ok(found)
}

/// The percentiles of each point, and how much a rebuild adds to the last of them.
fn rows(points: &[Point]) -> Vec<Row> {
    let mut rows: Vec<Row> = points.iter().flat_map(percentile_rows).collect();
    for point in points.iter().filter(|point| point.state == State::Rebuilding) {
        let calm = points.iter().find(|p| p.state == State::Healthy && p.case == point.case);
        rows.extend(calm.map(|calm| slowdown(point, calm)));
    }
    rows
}

fn percentile_rows(point: &Point) -> Vec<Row> {
    let name = format!("{} {}", point.case.name(), point.state.word());
    let row = |(at, (percentile, _)): (usize, (&str, f64))| {
        let values = point.found.clone().map(|all| all.iter().map(|one| one[at]).collect());
        row(point, format!("{name}: {percentile}"), Metric::Latency, Target::NONE, values)
    };
    PERCENTILES.into_iter().enumerate().map(row).collect()
}

fn slowdown(point: &Point, calm: &Point) -> Row {
    let last = PERCENTILES.len() - 1;
    let values = match (&point.found, &calm.found) {
        (Ok(now), Ok(then)) => Ok(now.iter().zip(then).map(|(n, t)| n[last] / t[last]).collect()),
        (Err(why), _) | (_, Err(why)) => Err(why.clone()),
    };
    let name = format!("{} rebuilding beside healthy: {}", point.case.name(), PERCENTILES[last].0);
    let target = Target { anchor: None, goal: Some(TIMES_MAX), moonshot: None };
    let row = row(point, name, Metric::Slowdown, target, values)
        .note("99.9 of 100 requests beside a rebuild, divided by the same without");
    match calm.found.as_deref() {
        Ok(found) => doubt(row, found),
        Err(_) => row,
    }
}

/// A row whose divisor is not the array's doing shows nothing, and says so. The drives' own slowest requests take a
/// fifth longer than the median, and at most depths times as long where they stand in line; what takes many times as
/// long without a rebuild waited for the CPU.
fn doubt(row: Row, calm: &[[f64; 3]]) -> Row {
    const TIMES_OF_MEDIAN: f64 = 8.0;
    let Some(times) = (!calm.is_empty())
        .then(|| Samples::new(calm.iter().map(|[p50, _, p999]| p999 / p50).collect()).median())
    else {
        return row;
    };
    if times <= TIMES_OF_MEDIAN {
        return row;
    }
    let row = row.note(format!(
        "without a rebuild the slowest thousandth took {times:.0} times the median: something else had the CPU, \
         so this row shows nothing"
    ));
    Row { meets: Meets::None, ..row }
}

fn row(
    point: &Point,
    name: String,
    metric: Metric,
    target: Target,
    values: Result<Vec<f64>, String>,
) -> Row {
    let row = match values {
        Ok(values) if !values.is_empty() => Row::new(name, metric, &Samples::new(values), target),
        Ok(_) => Row::open(name, metric, target, "it was not measured"),
        Err(why) => Row::open(name, metric, target, why),
    };
    row.on(Drives::Model).protected(point.case.protection())
}

/// The rows of `report` as a table: a line for each case, the percentiles of each state side by side.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut out = "| case | healthy p50 / p99 / p99.9 us | degraded | rebuilding | p99.9 rebuilding / healthy |\n\
                   |---|---:|---:|---:|---:|\n"
        .to_owned();
    for case in names(report) {
        let states = State::ALL.map(|state| {
            let cell = |(percentile, _): (&str, f64)| {
                value(report, &format!("{case} {}: {percentile}", state.word()), 1)
            };
            PERCENTILES.map(cell).join(" / ")
        });
        let times = value(report, &format!("{case} rebuilding beside healthy: p99.9"), 2);
        out.push_str(&format!("| {case} | {} | {times} |\n", states.join(" | ")));
    }
    out
}

/// The cases of a report, in order.
fn names(report: &Report) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in report.rows.iter().filter(|row| row.metric == Metric::Latency) {
        let base = State::ALL
            .into_iter()
            .find_map(|state| Some(row.case.split_once(&format!(" {}", state.word()))?.0));
        names.extend(base.filter(|base| !names.contains(base)));
    }
    names
}

fn value(report: &Report, name: &str, digits: usize) -> String {
    let row = report.rows.iter().find(|row| row.case == name);
    row.and_then(|row| row.median).map_or("-".to_owned(), |median| format!("{median:.digits$}"))
}
