//! Corruption of inactive arrays: any 4 KiB of any one member are overwritten with any bytes.
//!
//! A case is played as for crashes and cut somewhere, or stopped cleanly. Then one member is damaged (`wound.rs`), the
//! array is assembled, and the result is checked (`look.rs`): the array starts or reports the reason, and reads are
//! right, except for damaged blocks, because data has no checksums. A scrub must find those, and must repair them if it
//! can determine the wrong strip.

mod look;
mod wound;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::case::Case;
use super::cut::{self, Cut, State, Writes};
use super::disk::Lie;
use super::image::Torn;
use super::judge::{Known, caught};
use super::record::Record;
use super::states::{self, LOST_MAX};
use super::{ReplayError, in_parallel, played};
use crate::drive::Crash;
use crate::rng::{Rng, mix};
use look::{Found, examine};
use wound::Wound;

/// Damages per history.
const WOUNDS_OF_A_CASE: u64 = 40;

/// Histories that are started together. A run ends between two such waves.
const WAVE: u64 = 16;

/// Violations after which a run ends.
const VIOLATIONS_MAX: usize = 10;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Corrupted {
    /// Damaged members.
    pub runs: u64,
    /// Arrays that started, with any required consent of the operator.
    pub assembled: u64,
    /// Arrays whose first start was rejected with a reason.
    pub explained: u64,
    /// Arrays in which a scrub found and repaired the damage.
    pub healed: u64,
    /// Arrays in which a scrub found the damage and could not determine the wrong strip.
    pub found: u64,
    /// Counts of damages by area.
    pub areas: BTreeMap<&'static str, u64>,
    /// Counts of damages by kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Violations, each with its replay command.
    pub violations: Vec<String>,
}

impl Corrupted {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.assembled += other.assembled;
        self.explained += other.explained;
        self.healed += other.healed;
        self.found += other.found;
        other.areas.into_iter().for_each(|(area, by)| *self.areas.entry(area).or_default() += by);
        other.kinds.into_iter().for_each(|(kind, by)| *self.kinds.entry(kind).or_default() += by);
        self.violations.extend(other.violations);
    }
}

/// Damages `runs` arrays that are drawn from `seed`, on `threads` threads. The selection does not depend on the number
/// of threads.
#[must_use]
pub fn run(seed: u64, runs: u64, threads: usize) -> Corrupted {
    let mut report = Corrupted::default();
    let mut first = 0;
    while report.runs < runs && report.violations.len() < VIOLATIONS_MAX {
        let left = runs - report.runs;
        let each = left.div_ceil(WAVE).min(WOUNDS_OF_A_CASE);
        let cases = first..first + WAVE.min(left);
        for case in in_parallel(cases, threads, |number| run_case(seed, number, each)) {
            report.add(case);
        }
        first += WAVE;
    }
    report
}

/// Every other history ends with a clean shutdown: on a consistent array, a scrub must find every inconsistency.
fn drawn(seed: u64, number: u64) -> Case {
    let mut case = Case::draw(seed, number, Lie::None);
    case.stops = number.is_multiple_of(2);
    case
}

fn run_case(seed: u64, number: u64, wounds: u64) -> Corrupted {
    let mut report = Corrupted::default();
    let record = match played(drawn(seed, number)) {
        Ok(record) => record,
        Err(what) => {
            report.violations.push(format!("case {seed}:{number}: {what}"));
            return report;
        }
    };
    for index in 0..wounds {
        let (wound, result) = wounded(&record, seed, number, index);
        report.runs += 1;
        *report.areas.entry(wound.area.word()).or_default() += 1;
        *report.kinds.entry(wound.kind.word()).or_default() += 1;
        match result {
            Ok(found) => {
                report.assembled += u64::from(found.started);
                report.explained += u64::from(!found.said.is_empty());
                report.healed += u64::from(found.healed);
                report.found += u64::from(found.found);
            }
            Err(what) => {
                let mut words = format!("{}\n  {wound}: {what}", record.case);
                let _ = write!(
                    words,
                    "\n  replay: cargo run --release -p strake-sim -- --corrupt-replay {seed}:{number}:{index}"
                );
                report.violations.push(words);
                return report;
            }
        }
    }
    report
}

/// Repeats one case of damage: SEED:CASE:WOUND. Returns the damage and the result.
///
/// # Errors
/// Returns the violation, or that there is no such damage.
pub fn replay(key: &str) -> Result<String, ReplayError> {
    let wrong = || ReplayError::NoState(format!("{key} is no wound: SEED:CASE:WOUND is wanted"));
    let numbers: Result<Vec<u64>, _> = key.split(':').map(str::parse).collect();
    let [seed, number, index] = numbers.map_err(|_| wrong())?[..] else { return Err(wrong()) };
    let case = drawn(seed, number);
    let mut words = case.to_string();
    let record = played(case).map_err(ReplayError::Violation)?;
    let (wound, result) = wounded(&record, seed, number, index);
    let _ = write!(words, "\n  {wound}");
    match result {
        Ok(found) => Ok(format!("{words}\n  holds: {found:?}")),
        Err(what) => Err(ReplayError::Violation(format!("{words}\n  {what}"))),
    }
}

/// Draws a state of the history and a damage, and checks it.
fn wounded(record: &Record, seed: u64, number: u64, index: u64) -> (Wound, Result<Found, String>) {
    let mut rng = Rng::new(mix(seed ^ mix(number ^ mix(index.wrapping_add(0x3c6e_f372)))));
    let state = draw_state(record, &mut rng);
    let known = Known::at(record, state.cut.point, state.cut.crash);
    let mut images = known.writes().images(&record.base, &record.events, &state.cut);
    let absent = state.lost | record.pulled;
    let wound = Wound::draw(record, &images, absent, &mut rng);
    images[wound.member].write(wound.offset, &wound.bytes);
    let found = caught(|| examine(record, &known, &state, &wound, &images));
    (wound, found.map_err(|what| format!("{what} (state {state})")))
}

/// A state at some point of the history, or at its end, with all members or without some.
fn draw_state(record: &Record, rng: &mut Rng) -> State {
    let spec = record.case.disk_spec();
    let end = record.events.len();
    let point = if rng.one_in(2) { end } else { rng.below(end as u64 + 1) as usize };
    let crash = if rng.one_in(2) { Crash::Kill } else { Crash::Power };
    let writes = Writes::before(&record.events, point, crash, &spec);
    let all = u64::MAX.checked_shr(64 - writes.open.len() as u32).unwrap_or(0);
    let kept = if rng.one_in(2) { all } else { rng.bits() & all };
    let mut ways = vec![Torn::Whole];
    if let Some(last) = writes.last(kept) {
        ways.extend(cut::tears(&record.events[last], &record.geometry, &spec, rng.bits()));
    }
    let out = record.promise(point).out;
    let lost = if rng.one_in(4) { rng.pick(&states::losses(record, LOST_MAX)) } else { 0 };
    let lost = if record.tolerates(out, lost) { lost } else { 0 };
    let cut = Cut { point, crash, kept, torn: rng.pick(&ways) };
    State::first(cut, lost)
}
