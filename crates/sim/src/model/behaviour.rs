//! Checks that the label trace of a simulated array is a behaviour of the model.
//!
//! A trace contains the observable events: labels that reached drives, starts and crashes. The rest (failed members,
//! decisions, pages and data) is found by search: the possible states of the model are all states from which the next
//! observed event can follow. Writes, pages and the log are omitted, so the fields that depend on them (`logged`,
//! `doubt` and `clean`) are neither compared nor used, and a label may be written again with the next generation at any
//! time, as the code does to record progress.

use std::collections::HashSet;

use super::{Action, Config, Label, MEMBERS_MAX, Mode, Phase, Set, Spent, Stage, State, bit};

/// The observable part of a label. Epochs are numbered by their first appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The generation.
    pub generation: u16,
    /// The epoch.
    pub epoch: u16,
    /// The previous epoch.
    pub parent: u16,
    /// Members recorded as in sync.
    pub in_sync: Set,
    /// Members recorded as rebuilding.
    pub rebuilding: Set,
    /// The generation with which each member was last in sync.
    pub since: [u16; MEMBERS_MAX],
    /// A generation that each member held when it went out.
    pub held: [u16; MEMBERS_MAX],
}

/// An observable event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A label reached the head ring of a member.
    Head(usize, Seen),
    /// A label reached the tail ring of a member.
    Tail(usize, Seen),
    /// The array was started with these drives.
    Start(Set),
    /// A crash.
    Crash,
}

impl Seen {
    fn of(label: &Label) -> Self {
        Self {
            generation: label.generation,
            epoch: label.epoch,
            parent: label.parent,
            in_sync: label.in_sync(),
            rebuilding: label.live() & !label.in_sync(),
            since: label.since,
            held: label.held,
        }
    }
}

/// The reason why a trace is not a behaviour of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The first event that cannot follow.
    pub at: usize,
    /// The number of possible states before it.
    pub states: usize,
}

/// Follows `events` from a new array on. Returns the largest number of possible states.
///
/// Returns the event that the model cannot follow.
pub fn follow(config: &Config, events: &[Event]) -> Result<usize, Refused> {
    let most = Spent { writes: 0, crashes: u8::MAX, stops: u8::MAX, changes: u8::MAX };
    let config = &Config { most, ..*config };
    let mut states = HashSet::from([seen_only(State::new(config))]);
    let mut widest = 1;
    for (at, event) in events.iter().enumerate() {
        let reached = unseen(config, &states);
        widest = widest.max(reached.len());
        let mut next = HashSet::new();
        for state in &reached {
            state.next(config, &mut |action, after| {
                if shows(state, action, event) {
                    next.insert(seen_only(after));
                }
            });
        }
        if next.is_empty() {
            return Err(Refused { at, states: reached.len() });
        }
        states = next;
    }
    Ok(widest)
}

/// Sets everything unobservable to the same value in every state, and the event counts to zero.
fn seen_only(mut state: State) -> State {
    let State { head, lab, old, last, .. } = &mut state;
    for label in head.iter_mut().chain([lab, old, last]) {
        (label.logged, label.doubt, label.clean) = (false, false, false);
    }
    state.last = Label::none(0);
    state.forked = false;
    state.unrecorded = 0;
    state.spent = Spent::default();
    state
}

/// True if an action is observable.
fn is_seen(state: &State, action: Action) -> bool {
    match action {
        Action::Put(_) => matches!(state.job.phase, Phase::Head | Phase::Tail),
        Action::Start(_) | Action::Crash => true,
        _ => false,
    }
}

/// True if an action is observed as `event`.
fn shows(state: &State, action: Action, event: &Event) -> bool {
    let label = if state.job.stage == Stage::Finish { &state.old } else { &state.lab };
    match (action, event) {
        (Action::Put(m), Event::Head(member, seen)) => {
            state.job.phase == Phase::Head && m == *member && Seen::of(label) == *seen
        }
        (Action::Put(m), Event::Tail(member, seen)) => {
            state.job.phase == Phase::Tail && m == *member && Seen::of(label) == *seen
        }
        (Action::Start(drives), Event::Start(here)) => drives == *here,
        (Action::Crash, Event::Crash) => true,
        _ => false,
    }
}

/// Every state that follows from `states` by unobservable steps.
fn unseen(config: &Config, states: &HashSet<State>) -> HashSet<State> {
    let mut reached = states.clone();
    let mut open: Vec<State> = states.iter().copied().collect();
    while let Some(state) = open.pop() {
        let mut offer = |after: State| {
            let after = seen_only(after);
            if reached.insert(after) {
                open.push(after);
            }
        };
        state.next(config, &mut |action, after| {
            if !is_seen(&state, action) {
                offer(after);
            }
        });
        others(config, &state).into_iter().for_each(&mut offer);
    }
    reached
}

/// Additional steps that are possible because of the omitted parts.
fn others(config: &Config, state: &State) -> Vec<State> {
    let mut others = Vec::new();
    let idle = state.mode == Mode::On && state.job.stage == Stage::None && state.failed == 0;
    if idle {
        others.push(state.written_again());
    }
    // The label may have recorded the log as complete.
    if state.job.stage == Stage::Finish && state.job.todo == 0 && config.parity() {
        let mut logged = *state;
        logged.old.logged = true;
        logged.next(config, &mut |action, after| {
            if action == Action::Next {
                others.push(after);
            }
        });
    }
    others
}

/// The set of some members.
#[must_use]
pub fn set_of(members: impl Iterator<Item = usize>) -> Set {
    members.fold(0, |set, m| set | bit(m))
}
