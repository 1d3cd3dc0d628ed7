//! Enumerates the crashes of short histories: the real engine on small drives, with a crash between any two events.
//!
//! A case is an array of some kind and a few requests (`case.rs`). It is played once, on drives that record their
//! commands (`record.rs`). Then, for every point of that history and every set of writes that may have reached the
//! media by then (`cut.rs`, `states.rs`), the real engine assembles the array from the media, and the result is checked
//! (`judge.rs`): the array starts if its labels promise this; acknowledged stable writes are present, and every other
//! block is old or new; after the resync of regions, parity agrees with an independent encoder. Some recoveries are cut
//! in the same way.

mod area;
mod branches;
mod case;
mod cores;
pub mod corrupt;
mod cut;
mod disk;
mod host;
mod image;
mod in_place;
mod jobs;
mod judge;
pub mod pairs;
mod player;
mod promise;
mod record;
mod replay;
mod states;
mod wide;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use case::{Case, CaseName, List};
use cut::{Back, Cut, State, Writes};
pub use disk::Lie;
use image::Torn;
use jobs::Job;
use judge::{After, Known, judge, recovery};
use record::Record;
pub use replay::{ReplayError, replay, replay_all};
use states::{Covered, LOST_MAX, States};

use crate::drive::Crash;
use crate::rng::{Rng, mix};

/// The recovery from one of this many states is cut as well.
const RECOVERIES: u64 = 48;

/// The number of cuts of such a recovery.
const SECOND_CUTS: u64 = 8;

/// Another member is lost with one of this many second crashes.
const LATER: u64 = 3;

/// One recovery of this many second crashes is cut again.
const THIRDS: u64 = 16;

/// The number of cuts of such a recovery.
const THIRD_CUTS: u64 = 4;

/// Cases that are started together. A run ends between two such waves.
const WAVE: u64 = 64;

/// One of this many cases has a job.
const JOBS: u64 = 6;

/// One of this many cases has a wide shape.
const WIDE: u64 = 6;

/// One of this many cases has several cores.
const CORES: u64 = 12;

/// The length of the cycle in which the lists of cases repeat.
const CYCLE: u64 = 12;

/// The divisor of the number of states of a case whose redo log is full.
const FULL_LOGS: usize = 16;

/// Violations after which a run ends.
const VIOLATIONS_MAX: usize = 10;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Checked states, including those after a second crash.
    pub runs: u64,
    /// Played histories.
    pub cases: u64,
    /// Histories whose states were all checked.
    pub exhausted: u64,
    /// Violations, each with its replay command.
    pub violations: Vec<String>,
    /// The counts of faults and of results.
    pub faults: BTreeMap<&'static str, u64>,
    /// The number of states of each combination of events, if these were enumerated.
    pub pairs: BTreeMap<&'static str, u64>,
    /// The number of states in which the recovery took each branch.
    pub branches: BTreeMap<&'static str, u64>,
    /// The number of states of each sort of array.
    pub shapes: BTreeMap<&'static str, u64>,
    /// Coverage: the cuts of the histories, the cuts with all subsets of the open writes, and the numbers of possible
    /// and chosen states.
    pub covered: BTreeMap<&'static str, u64>,
}

impl Report {
    /// The branches that no recovery of this run took, though it could have: of a run of pairs, or of a run of drawn
    /// histories.
    #[must_use]
    pub fn branches_missed(&self, pairs: bool) -> Vec<&'static str> {
        branches::required(pairs).filter(|name| !self.branches.contains_key(name)).collect()
    }

    /// The number of states of every branch, including branches with none.
    #[must_use]
    pub fn branches_of_all(&self) -> BTreeMap<&'static str, u64> {
        let count = |name| (name, self.branches.get(name).copied().unwrap_or(0));
        branches::ALL.into_iter().map(count).collect()
    }

    fn count(&mut self, kind: &'static str, by: u64) {
        if by > 0 {
            *self.faults.entry(kind).or_insert(0) += by;
        }
    }

    fn cover(&mut self, covered: &Covered) {
        for (name, by) in covered.counts() {
            *self.covered.entry(name).or_default() += by;
        }
    }

    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.cases += other.cases;
        self.exhausted += other.exhausted;
        self.violations.extend(other.violations);
        other.faults.into_iter().for_each(|(kind, by)| self.count(kind, by));
        let branches = other.branches.into_iter();
        branches.for_each(|(branch, by)| *self.branches.entry(branch).or_default() += by);
        let shapes = other.shapes.into_iter();
        shapes.for_each(|(name, by)| *self.shapes.entry(name).or_default() += by);
        other
            .covered
            .into_iter()
            .for_each(|(name, by)| *self.covered.entry(name).or_default() += by);
        other.pairs.into_iter().for_each(|(pair, by)| *self.pairs.entry(pair).or_default() += by);
    }
}

/// Checks about `states` states of histories drawn from `seed`, on `threads` threads. The exact number and the
/// selection do not depend on the number of threads. Drives with a `lie` must be detected.
#[must_use]
pub fn run(seed: u64, states: u64, threads: usize, lie: Lie) -> Report {
    let mut report = Report::default();
    // The same number of states for each kind of array, for a little more than one pass over the kinds.
    let most = (states / (case::kinds_count() * 2)).clamp(20, 50_000) as usize;
    let mut first = 0;
    while report.runs < states && report.violations.len() < VIOLATIONS_MAX {
        // Near the end, no more states than remain, because histories with few states leave room for others.
        let left = (states - report.runs) / WAVE * 5 / 4 + 5;
        let most = most.min(left as usize);
        let case = |nth: u64| {
            let list = list_of(nth);
            let number = (0..nth % CYCLE).filter(|before| list_of(*before) == list).count() as u64;
            let in_a_cycle = (0..CYCLE).filter(|nth| list_of(*nth) == list).count() as u64;
            let number = nth / CYCLE * in_a_cycle + number;
            run_case(CaseName { seed, list, number }, lie, most)
        };
        in_parallel(first..first + WAVE, threads, case).into_iter().for_each(|c| report.add(c));
        first += WAVE;
    }
    report
}

/// The list of a case of a run.
const fn list_of(nth: u64) -> List {
    match nth % CYCLE {
        nth if nth % JOBS == JOBS - 1 => List::Jobs,
        nth if nth % WIDE == 0 => List::Wide,
        nth if nth % CORES == CORES / 4 => List::Cores,
        _ => List::Drawn,
    }
}

/// The results of `work` for `numbers`, in their order, on `threads` threads.
fn in_parallel<T: Send>(
    numbers: std::ops::Range<u64>,
    threads: usize,
    work: impl Fn(u64) -> T + Sync,
) -> Vec<T> {
    let next = AtomicU64::new(numbers.start);
    let done = Mutex::new(BTreeMap::new());
    let one = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                return;
            }
            let result = work(number);
            done.lock().unwrap_or_else(PoisonError::into_inner).insert(number, result);
        }
    };
    std::thread::scope(|scope| {
        (1..threads.max(1)).for_each(|_| drop(scope.spawn(one)));
        one();
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

fn case_of(CaseName { seed, list, number }: CaseName, lie: Lie) -> Case {
    match list {
        List::Drawn => Case::draw(seed, number, lie),
        List::Jobs => jobs::case(seed, number, lie),
        List::Pairs => pairs::case(seed, number),
        List::Wide => wide::case(seed, number, lie),
        List::Cores => cores::case(seed, number, lie),
    }
}

fn played(case: Case) -> Result<Record, String> {
    let words = case.to_string();
    judge::caught(|| Record::of(case))
        .map_err(|what| format!("{words}: the history itself: {what}"))
}

fn run_case(name: CaseName, lie: Lie, most: usize) -> Report {
    let mut report = Report { cases: 1, ..Report::default() };
    let record = match played(case_of(name, lie)) {
        Ok(record) => record,
        Err(what) => {
            report.violations.push(format!("case {name}: {what}"));
            return report;
        }
    };
    // Reading a full log takes long.
    let most = if record.case.around { (most / FULL_LOGS).max(5) } else { most };
    let most = if name.list == List::Wide { wide::states(&record.case, most) } else { most };
    report.count("log_goes_around", record.case.around.into());
    let States { chosen, covered } = States::of(&record, most, LOST_MAX);
    report.exhausted = u64::from(!covered.sampled());
    report.cover(&covered);
    let mut known: Option<Known> = None;
    for state in &chosen {
        let known = match &mut known {
            Some(known) if known.is_of(&state.cut) => known,
            other => other.insert(Known::at(&record, state.cut.point, state.cut.crash)),
        };
        look(&mut report, &record, known, state, name);
        if report.violations.is_empty() && state.name().is_multiple_of(RECOVERIES) {
            cut_recovery(&mut report, &record, known, state, name);
        }
        if !report.violations.is_empty() {
            return report;
        }
    }
    report
}

fn look(report: &mut Report, record: &Record, known: &Known, state: &State, name: CaseName) {
    report.runs += 1;
    for shape in wide::words(&record.case) {
        *report.shapes.entry(shape).or_default() += 1;
    }
    let cut = state.again.or(state.then).unwrap_or(state.cut);
    report.count(if cut.crash == Crash::Kill { "kill" } else { "power" }, 1);
    report.count("torn", u64::from(cut.torn != Torn::Whole));
    report.count("lost_members", state.lost.count_ones().into());
    report.count("lost_later", state.later.count_ones().into());
    report.count("second_crash", u64::from(state.then.is_some()));
    report.count("third_crash", u64::from(state.again.is_some()));
    let back = if state.back == Back::Never { 0 } else { state.lost.count_ones() };
    report.count("members_back", back.into());
    report.count(record.case.job.map_or("no_job", Job::word), 1);
    report.count("degraded", u64::from(!record.case.failed.is_empty()));
    match judge(record, known, state) {
        Ok(seen) => {
            report.count("refused", seen.refused.into());
            report.count("resync", seen.resynced.into());
            report.count("started", seen.ran.into());
            report.count("taken_back", seen.taken_back);
            let taken = branches::taken(&seen.recovery, seen.refused, seen.torn);
            taken.for_each(|branch| *report.branches.entry(branch).or_default() += 1);
        }
        Err(what) => report.violations.push(format!(
            "{}\n  {what}\n  replay: cargo run --release -p strake-sim -- --crash-replay {name}:{state}",
            record.case
        )),
    }
}

/// Cuts the recovery from a state at some points.
fn cut_recovery(
    report: &mut Report,
    record: &Record,
    known: &Known,
    state: &State,
    name: CaseName,
) {
    let Some(after) = recovered(report, record, known, state, name) else { return };
    let mut rng = Rng::new(state.name());
    let mut third = Rng::new(mix(state.name()));
    for _ in 0..SECOND_CUTS {
        let then = Some(draw_cut(record, &after, &mut rng));
        let back = if state.lost != 0 && rng.one_in(2) { Back::Second } else { Back::Never };
        let later = if rng.one_in(LATER) { draw_loss(record, state, &mut rng) } else { 0 };
        let second = State { then, later, back, ..*state };
        look(report, record, known, &second, name);
        if report.violations.is_empty() && third.one_in(THIRDS) {
            cut_again(report, record, known, &second, (name, &mut third));
        }
        if !report.violations.is_empty() {
            return;
        }
    }
}

/// Cuts the recovery from a second crash at some points.
fn cut_again(
    report: &mut Report,
    record: &Record,
    known: &Known,
    second: &State,
    (name, rng): (CaseName, &mut Rng),
) {
    let Some(after) = recovered(report, record, known, second, name) else { return };
    for _ in 0..THIRD_CUTS {
        let again = Some(draw_cut(record, &after, rng));
        let late = second.lost != 0 && second.back == Back::Never && rng.one_in(2);
        let back = if late { Back::Third } else { second.back };
        look(report, record, known, &State { again, back, ..*second }, name);
        if !report.violations.is_empty() {
            return;
        }
    }
}

/// Draws a drive that is lost with the second crash; none if the array would not tolerate this.
fn draw_loss(record: &Record, state: &State, rng: &mut Rng) -> u64 {
    let out = record.promise(state.cut.point).out;
    let spared =
        |at: &usize| state.lost & 1 << at == 0 && record.tolerates(out, state.lost | 1 << at);
    let spared: Vec<usize> = (0..record.case.drives()).filter(spared).collect();
    if spared.is_empty() { 0 } else { 1 << rng.pick(&spared) }
}

/// The writes of the recovery from a state; `None` after a violation, which is reported.
fn recovered(
    report: &mut Report,
    record: &Record,
    known: &Known,
    state: &State,
    name: CaseName,
) -> Option<After> {
    let violation = |what| {
        let case = &record.case;
        report.violations.push(format!("{case}\n  with latencies, {name}:{state}: {what}"));
    };
    let after = recovery(record, known, state).and_then(|after| {
        let rewritten = in_place::rewritten_label(record, &after.base, &after.events);
        rewritten.map_or(Ok(after), Err)
    });
    after.map_err(violation).ok()
}

fn draw_cut(record: &Record, after: &After, rng: &mut Rng) -> Cut {
    let spec = record.case.disk_spec();
    let point = rng.below(after.events.len() as u64 + 1) as usize;
    let crash = if rng.one_in(2) { Crash::Kill } else { Crash::Power };
    let writes = Writes::before(&after.events, point, crash, &spec);
    let kept = rng.bits() & u64::MAX.checked_shr(64 - writes.open.len() as u32).unwrap_or(0);
    let mut ways = vec![Torn::Whole];
    if let Some(last) = writes.last(kept) {
        ways.extend(cut::tears(&after.events[last], &record.geometry, &spec, rng.bits()));
    }
    Cut { point, crash, kept, torn: rng.pick(&ways) }
}
