//! Replays of one state, by its name.

use std::fmt;

use super::case::{CaseName, List};
use super::cut::{Cut, State, Writes};
use super::disk::{Event, Lie};
use super::in_place::rewritten_label;
use super::judge::{Known, judge, recovery};
use super::record::Record;
use super::{case_of, in_parallel, pairs, played, run_case};

/// States of a case that is replayed as a whole.
const STATES_OF_A_CASE: usize = 500;

/// The reason why a replay did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The state does not exist: the name is invalid, or it does not fit the history of its case, which has changed.
    NoState(String),
    /// A check failed.
    Violation(String),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NoState(what) | Self::Violation(what)) = self;
        f.write_str(what)
    }
}

impl std::error::Error for ReplayError {}

/// Checks one state again, or a whole case, as named in [`Report::violations`](super::Report::violations). Returns a
/// description of the case.
///
/// Returns the violation, or that there is no such state.
pub fn replay(key: &str) -> Result<String, ReplayError> {
    let (name, state) = parsed(key).map_err(ReplayError::NoState)?;
    let case = case_of(name, Lie::None);
    let words = case.to_string();
    let Some(state) = state else {
        let report = match name.list {
            List::Drawn | List::Jobs | List::Wide | List::Cores => {
                run_case(name, Lie::None, STATES_OF_A_CASE)
            }
            List::Pairs => pairs::run_case(name, 1),
        };
        let words = format!("{words}\n  {} states hold", report.runs);
        return report.violations.into_iter().next().map_or(Ok(words), violation);
    };
    let record = played(case).or_else(violation)?;
    let no_longer = |what| {
        let what = format!("{key} no longer fits the history of case {name}: {what}");
        ReplayError::NoState(what)
    };
    let known = fitting(&record, &state).map_err(no_longer)?;
    let first = State { then: None, again: None, ..state };
    let second = State { again: None, ..state };
    for recovered in std::iter::once(first).chain(state.then.map(|_| second)) {
        // The judge finds an invalid recovery again.
        if let Ok(after) = recovery(&record, &known, &recovered)
            && let Some(what) = rewritten_label(&record, &after.base, &after.events)
        {
            return violation(format!("{words}\n  {what}"));
        }
    }
    match judge(&record, &known, &state) {
        Ok(seen) => Ok(format!("{words}\n  holds: {seen:?}")),
        Err(what) => violation(format!("{words}\n  {what}")),
    }
}

/// The results of [`replay`] for `keys`, in their order, on `threads` threads.
#[must_use]
pub fn replay_all(keys: &[String], threads: usize) -> Vec<Result<String, ReplayError>> {
    in_parallel(0..keys.len() as u64, threads, |at| replay(&keys[at as usize]))
}

fn violation<T>(what: String) -> Result<T, ReplayError> {
    Err(ReplayError::Violation(what))
}

/// The case and the state of a key; no state if it names a whole case.
fn parsed(key: &str) -> Result<(CaseName, Option<State>), String> {
    let wrong = || {
        format!("{key} is no state: SEED:CASE[:CUT:LOST[:CUT[:CUT]][:lostLOST][:back]] is wanted")
    };
    let (seed, rest) = key.split_once(':').ok_or_else(wrong)?;
    let (number, state) = rest.split_once(':').unwrap_or((rest, ""));
    let list = [List::Jobs, List::Pairs, List::Wide, List::Cores]
        .into_iter()
        .find(|l| number.starts_with(l.letter()));
    let list = list.unwrap_or(List::Drawn);
    let number = number[list.letter().len()..].parse().map_err(|_| wrong())?;
    let name = CaseName { seed: seed.parse().map_err(|_| wrong())?, list, number };
    Ok((name, if state.is_empty() { None } else { Some(state.parse()?) }))
}

/// Checks that a state fits its history: each cut is at a point of the events, keeps only writes that are open there,
/// and the lost drives exist. Returns the knowledge at the first cut.
fn fitting(record: &Record, state: &State) -> Result<Known, String> {
    let drives = record.case.drives();
    let lost = state.lost | state.later;
    if lost.checked_shr(drives as u32).unwrap_or(0) != 0 {
        return Err(format!("drives {lost:x} are lost, as a mask, and it has {drives}"));
    }
    fits(record, &record.events, &state.cut)?;
    let known = Known::at(record, state.cut.point, state.cut.crash);
    let first = State { then: None, again: None, ..*state };
    let second = State { again: None, ..*state };
    for (cut, before) in [(state.then, first), (state.again, second)] {
        let Some(cut) = cut else { break };
        // The judge finds an invalid recovery again.
        let Ok(after) = recovery(record, &known, &before) else { break };
        fits(record, &after.events, &cut)?;
    }
    Ok(known)
}

fn fits(record: &Record, events: &[Event], cut: &Cut) -> Result<(), String> {
    if cut.point > events.len() {
        return Err(format!("cut {cut} is behind the last of {} events", events.len()));
    }
    let writes = Writes::before(events, cut.point, cut.crash, &record.case.disk_spec());
    let open = writes.open.len();
    if cut.kept.checked_shr(open as u32).unwrap_or(0) != 0 {
        return Err(format!("cut {cut} keeps others than the {open} writes that are open there"));
    }
    Ok(())
}
