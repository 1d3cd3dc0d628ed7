//! The work of G1 and G2 while a client watches, and while maintenance that is under way is paused.
//!
//! Watching is what the daemon's handlers of `GetArray` and `ListArrays` and its event pump do with an array, ten times
//! a second: a picture of its status and its events, and its histograms of latencies with them. That is all that
//! reaches the data path of a gRPC client; what the daemon does with the answers happens on other threads. Counters
//! cannot be switched off, so they are in every row of every report. So that there are events, a small array beside the
//! measured one, on the same core, loses and gets back a member with every look.

use std::time::Duration;

use strake_engine::Array;
use strake_raid::Level;

use crate::bay::{Bay, array_on, replace};
use crate::measure::Samples;
use crate::report::{Drives, Metric, Report, Row, Target};
use crate::rig::fail;
use crate::scenario::{Case, Made, Options};

#[cfg(test)]
mod tests;

const MEMBER_BYTES: u64 = 4 << 30;
/// The member that is lost, or has a replacement.
const LOST: u8 = 1;
/// How much of the undisturbed rate has to be left.
const LEFT: f64 = 0.9;

/// What happens besides the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    /// Nothing, on a healthy array.
    None,
    /// A client looks, ten times a second.
    Watched,
    /// A healthy member is to be replaced; the copy is paused.
    CopyPaused,
    /// Nothing, with a member out.
    MemberOut,
    /// A new member is to be rebuilt; that is paused.
    RebuildPaused,
}

impl Company {
    const ALL: [Self; 5] =
        [Self::None, Self::Watched, Self::CopyPaused, Self::MemberOut, Self::RebuildPaused];

    const fn words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Watched => " watched at 10 Hz",
            Self::CopyPaused => " with a paused copy to a new drive",
            Self::MemberOut => " with a member out",
            Self::RebuildPaused => " with a paused rebuild",
        }
    }

    /// What its rate is compared with, and what has to be known about that.
    const fn beside(self) -> Option<(Self, &'static str)> {
        match self {
            Self::None | Self::MemberOut => None,
            Self::Watched => Some((
                Self::None,
                "status, latencies and events of the array as the daemon fetches them for a gRPC client, while another \
                 array on the core loses and gets back a member with every look; counters are always on",
            )),
            Self::CopyPaused => {
                Some((Self::None, "writes to the member go to its replacement, too, paused or not"))
            }
            Self::RebuildPaused => Some((
                Self::MemberOut,
                "beside the same array with the member out and no rebuild: what the member lacks has to be \
                 reconstructed from the others either way (G8)",
            )),
        }
    }

    /// Whether an array without parity can be in it.
    const fn needs_redundancy(self) -> bool {
        !matches!(self, Self::None | Self::Watched)
    }
}

/// What was found: the rates of a case in some company.
#[derive(Clone, Debug)]
struct Point {
    case: Case,
    company: Company,
    found: Result<Vec<f64>, String>,
}

/// Measures and adds the rows.
pub fn answer(report: &mut Report, options: &Options, mut progress: impl FnMut(&str)) {
    let wanted =
        |row: &Row| options.filter.as_ref().is_none_or(|part| row.case.contains(part.as_str()));
    let mut points = points();
    let is_needed = |case: &Case| {
        let mine = points.iter().filter(|p| p.case == *case).cloned().collect::<Vec<_>>();
        rows(&mine).iter().any(wanted)
    };
    let needed: Vec<bool> = points.iter().map(|point| is_needed(&point.case)).collect();
    let mut needed = needed.into_iter();
    points.retain(|_| needed.next().unwrap_or(false));
    if points.is_empty() {
        return;
    }
    let events = measure(&mut points, options, &mut progress);
    report.notes.push(format!("{events} events were fetched while arrays were watched."));
    report.rows.extend(rows(&points).into_iter().filter(wanted));
}

/// The main rows of G1 and G2, in all company they can have.
fn points() -> Vec<Point> {
    let raid6 = Case::array(Level::Raid6, 8);
    let writes = Case { write_percent: 100, ..raid6.clone() };
    let mut points = Vec::new();
    for case in [Case::array(Level::Raid0, 8), raid6, writes] {
        let can =
            |company: &Company| case.level != Some(Level::Raid0) || !company.needs_redundancy();
        let point = |company| Point { case: case.clone(), company, found: Ok(Vec::new()) };
        points.extend(Company::ALL.into_iter().filter(can).map(point));
    }
    points
}

/// Samples every point once per round. Returns how many events were fetched.
fn measure(points: &mut [Point], options: &Options, progress: &mut impl FnMut(&str)) -> u64 {
    progress("filling arrays");
    let mut bays: Vec<(Option<Level>, Company, Result<Watched, String>)> = Vec::new();
    for point in &*points {
        if !bays.iter().any(|(level, company, _)| (*level, *company) == point.place()) {
            let (level, company) = point.place();
            bays.push((level, company, Watched::new(level, company)));
        }
    }
    let (repeats, count) = (options.repeats(), points.len());
    let mut events = 0;
    for round in 0..repeats {
        for turn in 0..count {
            let point = &mut points[(round + turn) % count];
            let bay =
                bays.iter_mut().find(|(level, company, _)| (*level, *company) == point.place());
            let Some((_, _, bay)) = bay else { continue };
            progress(&format!("{} of {repeats}: {}", round + 1, point.name()));
            match (bay, &mut point.found) {
                (Ok(bay), Ok(found)) => {
                    match bay.sample(&point.case, point.company, options.span) {
                        Ok((rate, fetched)) => {
                            found.push(rate);
                            events += fetched;
                        }
                        Err(why) => point.found = Err(why),
                    }
                }
                (Err(why), Ok(_)) => point.found = Err(why.clone()),
                (_, Err(_)) => {}
            }
        }
    }
    events
}

impl Point {
    /// Which array it is measured on: the same one with and without a watching client.
    fn place(&self) -> (Option<Level>, Company) {
        let company = match self.company {
            Company::None | Company::Watched => Company::None,
            Company::CopyPaused | Company::MemberOut | Company::RebuildPaused => self.company,
        };
        (self.case.level, company)
    }

    fn name(&self) -> String {
        format!("{}{}", self.case.name(), self.company.words())
    }
}

/// An array, and a small one on the same core to which things happen.
struct Watched {
    // Dropped before the core, which is the bay's.
    small: Array,
    bay: Bay,
    /// How often the small one got a new member.
    replaced: u8,
}

impl Watched {
    fn new(level: Option<Level>, company: Company) -> Result<Self, String> {
        const SMALL_BYTES: u64 = 256 << 20;
        let level = level.ok_or("only arrays are watched")?;
        let bay = Bay::new(Made::Null, level, 8, MEMBER_BYTES, LOST)?;
        bay.fill()?;
        match company {
            Company::None | Company::Watched => {}
            Company::MemberOut => bay.lose()?,
            Company::CopyPaused => {
                bay.pause(true);
                bay.replace()?;
            }
            Company::RebuildPaused => {
                bay.pause(true);
                bay.lose()?;
                bay.replace()?;
            }
        }
        let small = array_on(bay.rig(), Made::Null, Level::Raid1, 2, SMALL_BYTES)?;
        Ok(Self { small, bay, replaced: 0 })
    }

    /// Requests per second, and the events that were fetched.
    fn sample(
        &mut self,
        case: &Case,
        company: Company,
        span: Duration,
    ) -> Result<(f64, u64), String> {
        let is_watched = company == Company::Watched;
        let mut events = 0;
        let (bay, small, replaced) = (&self.bay, &self.small, &mut self.replaced);
        let mut beat = || {
            if is_watched {
                events += look(bay.array()) + look(small);
                happen(small, replaced)?;
            }
            Ok(())
        };
        let sample = bay.sample(case, span, &mut beat)?;
        let status = bay.array().status();
        let is_under_way = match company {
            Company::RebuildPaused => status.rebuild.is_some(),
            Company::CopyPaused => status.replace.is_some(),
            Company::None | Company::Watched | Company::MemberOut => true,
        };
        if !is_under_way {
            return Err("what was paused went on all the same".to_owned());
        }
        Ok((sample.rate(), events))
    }
}

/// What the daemon does for a client that looks. Returns how many events there were.
fn look(array: &Array) -> u64 {
    std::hint::black_box((array.status(), array.latencies()));
    array.drain_events().len() as u64
}

/// A member is lost, and a new one has taken its place: three events.
fn happen(small: &Array, replaced: &mut u8) -> Result<(), String> {
    const MEMBER: u8 = 1;
    const BYTES: u64 = 256 << 20;
    if small.status().rebuild.is_some() {
        return Ok(());
    }
    *replaced = replaced.wrapping_add(1);
    fail(small, MEMBER)?;
    replace(small, MEMBER, Made::Null, BYTES, *replaced)
}

/// The rate of each point, and what is left of it in company.
fn rows(points: &[Point]) -> Vec<Row> {
    let mut rows = Vec::new();
    for point in points {
        rows.push(row(point, point.name(), Metric::Iops, Target::NONE, point.found.clone()));
        let Some((alone, note)) = point.company.beside() else { continue };
        let Some(alone) = points.iter().find(|p| p.company == alone && p.case == point.case) else {
            continue;
        };
        let ratios = match (&point.found, &alone.found) {
            (Ok(now), Ok(then)) => Ok(now.iter().zip(then).map(|(n, t)| n / t).collect()),
            (Err(why), _) | (_, Err(why)) => Err(why.clone()),
        };
        let target = Target { anchor: None, goal: Some(LEFT), moonshot: None };
        let without = if alone.company == Company::None { "undisturbed" } else { "without it" };
        let name = format!("{} beside {without}", point.name());
        rows.push(row(point, name, Metric::Scaling, target, ratios).note(note));
    }
    rows
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
    row.on(Drives::Null).protected(point.case.protection())
}
