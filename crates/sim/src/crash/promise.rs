//! The promises of labels for a crash, and the event from which each holds.

use strake_engine::Consistency;
use strake_ondisk::{RecordedState, Superblock};
use strake_units::MemberSet;

use super::disk::{Event, Tape};
use crate::placement::Placement;

/// The losses that a crash may cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Promise {
    /// Members whose stripes have every write in the redo log.
    pub(super) logged: MemberSet,
    /// Members that are not in sync, or are about to leave that state.
    pub(super) out: MemberSet,
}

impl Promise {
    /// The promise of a label that every member in use holds.
    pub(super) fn of(label: &Superblock, placement: &Placement) -> Self {
        let rows = label.members.iter().enumerate();
        let out = rows.filter(|(_, row)| row.state != RecordedState::InSync);
        let out: MemberSet = out.map(|(slot, _)| slot).collect();
        let every_member = MemberSet::first_n(label.members.len());
        let all = label.consistency == Consistency::Strict && label.logged == every_member;
        let logged = if all { every_member } else { label.logged & out };
        Self { logged: placement.groups_with(logged), out }
    }

    /// The weaker combination of both.
    fn less(self, other: Self) -> Self {
        Self { logged: self.logged & other.logged, out: self.out | other.out }
    }
}

/// A promise that replaces the previous one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    pub(super) promise: Promise,
    /// The number of events before the turn in which it changed.
    pub(super) from: usize,
    /// The number of events before it was observed.
    pub(super) at: usize,
}

/// The promise at a point, where `first` was the initial one. A promise that is observed at the end of a turn may hold
/// from any event in the turn: there, the weaker combination counts.
pub(super) fn promise_at(
    point: usize,
    first: Promise,
    noted: impl IntoIterator<Item = Noted>,
) -> Promise {
    let mut now = first;
    for next in noted {
        if next.at > point {
            return if next.from < point { now.less(next.promise) } else { now };
        }
        now = next.promise;
    }
    now
}

/// The promises of a history.
pub(super) fn of_history(events: &[Event]) -> impl Iterator<Item = Noted> + '_ {
    (1..).zip(events).filter_map(|(at, event)| match event {
        Event::Promise { promise, from } => Some(Noted { promise: *promise, from: *from, at }),
        _ => None,
    })
}

/// Records the promises of the labels during a recorded recovery. These promises are not events, so the cuts of a
/// recovery keep their names.
pub(super) struct Watch {
    tape: Tape,
    placement: Placement,
    noted: Vec<Noted>,
}

impl Watch {
    pub(super) fn new(tape: &Tape, placement: &Placement) -> Self {
        Self { tape: Tape::clone(tape), placement: *placement, noted: Vec::new() }
    }

    /// The number of events so far.
    pub(super) fn events(&self) -> usize {
        self.tape.lock().expect("one thread runs a case").len()
    }

    /// Records the promise of `label`, which changed at some time after the event `from`.
    pub(super) fn note(&mut self, label: &Superblock, from: usize) {
        let promise = Promise::of(label, &self.placement);
        if self.noted.last().is_none_or(|last| last.promise != promise) {
            self.noted.push(Noted { promise, from, at: self.events() });
        }
    }

    pub(super) fn into_noted(self) -> Vec<Noted> {
        self.noted
    }
}

#[cfg(test)]
mod tests {
    use strake_units::MemberSet;

    use super::{Noted, Promise, promise_at};

    const NONE: Promise = Promise { logged: MemberSet::EMPTY, out: MemberSet::EMPTY };
    const ONE_OUT: Promise = Promise { out: MemberSet::first_n(1), ..NONE };
    const LOGGED: Promise = Promise { logged: MemberSet::first_n(3), ..ONE_OUT };

    fn check(point: usize, expected: Promise) {
        let noted = |promise, from, at| Noted { promise, from, at };
        let noted = [noted(LOGGED, 2, 5), noted(NONE, 7, 9)];
        assert_eq!(promise_at(point, NONE, noted), expected, "point {point}");
    }

    #[test]
    fn within_a_turn_the_less_of_both_is_promised() {
        [0, 2].into_iter().for_each(|point| check(point, NONE));
        [3, 4].into_iter().for_each(|point| check(point, ONE_OUT));
        [5, 7].into_iter().for_each(|point| check(point, LOGGED));
        check(8, ONE_OUT);
        [9, 20].into_iter().for_each(|point| check(point, NONE));
    }
}
