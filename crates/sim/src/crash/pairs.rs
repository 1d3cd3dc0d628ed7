//! Enumerates every pair of events on a few small geometries in mode `strict`.
//!
//! A history is one request of each sort, or two, and a flush. Every cut of it is checked with every member that may be
//! lost in the same event, and with every two if the geometry is small. The recovery from some of these states is cut
//! as well, at every point, with the lost members absent and returned. Only latencies, the position of a tear, and the
//! selection of recoveries are drawn.

use strake_engine::Consistency;
use strake_raid::{Geometry, Level};
use strake_units::{BlockSize, Lba, LbaRange};

use super::case::{Before, Case, CaseName, Ground, List, Plot, Request, Step};
use super::cut::{Back, State};
use super::disk::{Lie, Pace};
use super::judge::Known;
use super::record::Record;
use super::states::{LOST_MAX, States, every_cut};
use super::{Report, in_parallel, look, played, recovered};
use crate::rng::mix;

/// An array, and the largest number of members that are lost with a crash.
#[derive(Clone, Copy, Debug)]
struct Shape {
    level: Level,
    members: usize,
    lost_max: u32,
}

const fn shape(level: Level, members: usize, lost_max: u32) -> Shape {
    Shape { level, members, lost_max }
}

/// The geometries, from the narrowest on.
const SHAPES: [Shape; 8] = [
    shape(Level::Raid1, 2, 1),
    shape(Level::Raid5, 3, 1),
    shape(Level::Raid1, 3, LOST_MAX),
    shape(Level::Raid10, 4, LOST_MAX),
    shape(Level::Raid6, 4, LOST_MAX),
    // Wide enough for small writes, and with enough parity strips for partial-write records.
    shape(Level::Raid6, 6, LOST_MAX),
    shape(Level::Raid73, 6, LOST_MAX),
    shape(Level::Raid73, 8, 1),
];

/// The histories, one of each sort.
const PLOTS: [fn(&Geometry) -> Vec<Step>; 9] = [
    one_block,
    part_of_a_strip,
    one_strip,
    two_strips,
    whole_stripe,
    zeroes,
    forced,
    two_in_a_stripe,
    one_over_the_other,
];

/// The variants of the initial state: with a volatile cache or not, with a dirty region or not.
const WAYS: u64 = 4;

/// The default number of cut recoveries per history.
pub const RECOVERIES: usize = 2;

/// The number of histories.
#[must_use]
pub const fn count() -> u64 {
    SHAPES.len() as u64 * PLOTS.len() as u64 * WAYS
}

/// The geometries as text.
#[must_use]
pub fn geometries() -> Vec<String> {
    SHAPES.iter().map(|shape| format!("RAID {} of {}", shape.level, shape.members)).collect()
}

/// The history of this number: the geometry varies fastest, then the requests, then the variant. Numbers wrap around.
pub(super) fn case(seed: u64, number: u64) -> Case {
    let Shape { level, members, .. } = shape_of(number);
    let rest = number / SHAPES.len() as u64;
    let plot = PLOTS[(rest % PLOTS.len() as u64) as usize];
    let way = rest / PLOTS.len() as u64 % WAYS;
    Case {
        seed: mix(seed ^ mix(number.wrapping_add(1))),
        level,
        members,
        group_size: None,
        mode: Consistency::Strict,
        cached: way.is_multiple_of(2),
        strip_bytes: 4096,
        disk_block: BlockSize::B512,
        array_block: BlockSize::B512,
        // Every other history has its requests on another core than that of the first stripe.
        cores: if rest.is_multiple_of(2) { 1 } else { 2 },
        ground: Ground::Start,
        failed: Vec::new(),
        pulled: false,
        before: if way / 2 == 0 { Before::Rested } else { Before::Busy },
        lie: Lie::None,
        pace: Pace::Even,
        around: false,
        stops: false,
        job: None,
        plot: Plot::Given(plot),
    }
}

const fn shape_of(number: u64) -> Shape {
    SHAPES[(number % SHAPES.len() as u64) as usize]
}

/// Checks every state of the histories with these numbers, and every cut of about `recoveries` recoveries of each, on
/// `threads` threads.
#[must_use]
pub fn run(seed: u64, numbers: std::ops::Range<u64>, recoveries: usize, threads: usize) -> Report {
    let one = |number| run_case(CaseName { seed, list: List::Pairs, number }, recoveries);
    let mut report = Report::default();
    in_parallel(numbers, threads, one).into_iter().for_each(|case| report.add(case));
    report
}

pub(super) fn run_case(name: CaseName, recoveries: usize) -> Report {
    let mut report = Report { cases: 1, ..Report::default() };
    let record = match played(case(name.seed, name.number)) {
        Ok(record) => record,
        Err(what) => {
            report.violations.push(format!("case {name}: {what}"));
            return report;
        }
    };
    let States { chosen, covered } =
        States::of(&record, usize::MAX, shape_of(name.number).lost_max);
    report.exhausted = u64::from(!covered.sampled());
    report.cover(&covered);
    let stride = chosen.len().checked_div(recoveries).unwrap_or(0).max(1) as u64;
    let mut known: Option<Known> = None;
    for state in &chosen {
        let known = match &mut known {
            Some(known) if known.is_of(&state.cut) => known,
            other => other.insert(Known::at(&record, state.cut.point, state.cut.crash)),
        };
        look(&mut report, &record, known, state, name);
        count_pair(&mut report, state);
        if recoveries > 0 && state.name().is_multiple_of(stride) {
            cut_recovery(&mut report, &record, known, state, name);
        }
        if !report.violations.is_empty() {
            break;
        }
    }
    report
}

/// Cuts the recovery from a state at every point.
fn cut_recovery(
    report: &mut Report,
    record: &Record,
    known: &Known,
    state: &State,
    name: CaseName,
) {
    let Some(after) = recovered(report, record, known, state, name) else { return };
    let mut cuts = Vec::new();
    let covered = every_cut(record, &after.events, &mut |reached| cuts.push(reached.cut));
    report.count(
        if covered.sampled() { "recovery_cut_at_some" } else { "recovery_cut_everywhere" },
        1,
    );
    for then in cuts {
        for &back in if state.lost == 0 { &[Back::Never][..] } else { &[Back::Never, Back::Second] }
        {
            let state = State { then: Some(then), back, ..*state };
            look(report, record, known, &state, name);
            count_pair(report, &state);
            if !report.violations.is_empty() {
                return;
            }
        }
    }
}

fn count_pair(report: &mut Report, state: &State) {
    let words = match (state.lost.count_ones(), state.then.is_some(), state.back != Back::Never) {
        (0, false, _) => "crash",
        (1, false, _) => "crash+lost",
        (_, false, _) => "crash+lost+lost",
        (0, true, _) => "crash+crash",
        (1, true, false) => "crash+lost+crash",
        (1, true, true) => "crash+lost+crash+back",
        (_, true, false) => "crash+lost+lost+crash",
        (_, true, true) => "crash+lost+lost+crash+back",
    };
    *report.pairs.entry(words).or_default() += 1;
}

/// Simultaneous requests, their completions, and a flush.
fn history(requests: Vec<Request>) -> Vec<Step> {
    vec![Step::Requests(requests), Step::Settle, Step::Requests(vec![Request::Flush]), Step::Settle]
}

const fn write(start: u64, blocks: u64) -> Request {
    Request::Write { range: LbaRange { start: Lba(start), blocks }, fua: false }
}

fn strip(geometry: &Geometry) -> u64 {
    u64::from(geometry.strip_blocks())
}

fn one_block(_: &Geometry) -> Vec<Step> {
    history(vec![write(1, 1)])
}

fn part_of_a_strip(geometry: &Geometry) -> Vec<Step> {
    history(vec![write(1, strip(geometry) - 2)])
}

fn one_strip(geometry: &Geometry) -> Vec<Step> {
    history(vec![write(strip(geometry), strip(geometry))])
}

/// The end of a stripe and the start of the next, if a stripe has only one strip.
fn two_strips(geometry: &Geometry) -> Vec<Step> {
    history(vec![write(0, 2 * strip(geometry))])
}

fn whole_stripe(geometry: &Geometry) -> Vec<Step> {
    history(vec![write(0, geometry.stripe_data_blocks())])
}

fn zeroes(geometry: &Geometry) -> Vec<Step> {
    let range = LbaRange::new(Lba(0), strip(geometry));
    history(vec![Request::Zeroes { range, fua: false }])
}

fn forced(_: &Geometry) -> Vec<Step> {
    history(vec![Request::Write { range: LbaRange::new(Lba(2), 1), fua: true }])
}

fn two_in_a_stripe(geometry: &Geometry) -> Vec<Step> {
    history(vec![write(0, 1), write(strip(geometry) + 2, 1)])
}

/// The second write covers the first and more, after the first was acknowledged and before it is stable.
fn one_over_the_other(_: &Geometry) -> Vec<Step> {
    let mut steps = vec![Step::Requests(vec![write(1, 1)]), Step::Settle];
    steps.extend(history(vec![write(0, 3)]));
    steps
}
