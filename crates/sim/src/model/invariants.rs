//! The invariants of `Strake.tla`, by their names.
//!
//! A crash may happen in every state, so the invariants about starts apply to every state.

use super::label::shared;
use super::{Config, Lineage, Mode, Set, State, Step, Why, bit, members_of, returns};

/// An invariant.
type Invariant = fn(&State, &Config) -> bool;

/// The names and the conditions.
pub const INVARIANTS: [(&str, Invariant); 9] = [
    ("AcknowledgedIsNotPassedOver", acknowledged_is_not_passed_over),
    ("CutShortIsNoFork", cut_short_is_no_fork),
    ("CutShortCostsNoMember", cut_short_costs_no_member),
    ("InSyncMissedNothing", in_sync_missed_nothing),
    ("BitBeforeData", bit_before_data),
    ("NoSilentDoubt", no_silent_doubt),
    ("StartsWhenItCould", starts_when_it_could),
    ("OneHistoryTakesBack", one_history_takes_back),
    ("ReturningHoldsNothingMore", returning_holds_nothing_more),
];

/// The first invariant that does not hold.
pub fn violated(state: &State, config: &Config) -> Option<&'static str> {
    INVARIANTS.iter().find(|(_, holds)| !holds(state, config)).map(|(name, _)| *name)
}

fn acknowledged_is_not_passed_over(state: &State, config: &Config) -> bool {
    if state.mode != Mode::Off || state.acked == 0 {
        return true;
    }
    (1..=config.all()).all(|drives| {
        let verdict = state.verdict(config, drives);
        if verdict.why != Why::Starts {
            return true;
        }
        let (w, to) = state.replay(&verdict.new, verdict.here);
        let carried = if verdict.new.covered(config) { to } else { 0 };
        let here = members_of(drives).fold(0, |all, m| all | state.data[m]) & state.acked;
        members_of(verdict.next.in_sync()).all(|m| {
            let redone = if carried & bit(m) != 0 { bit(usize::from(w)) } else { 0 };
            here & !(state.data[m] | redone) == 0
        })
    })
}

fn cut_short_is_no_fork(state: &State, config: &Config) -> bool {
    let certain = state.mode != Mode::Off || state.forked;
    certain || (1..=config.all()).all(|drives| !state.matched(config, drives).fork)
}

fn cut_short_costs_no_member(state: &State, config: &Config) -> bool {
    if state.mode != Mode::Off || state.forked {
        return true;
    }
    let verdict = state.verdict(config, config.all());
    matches!(verdict.why, Why::Starts | Why::InDoubt | Why::Dirty)
        && verdict.new.live() & !verdict.next.live() == 0
}

/// Members in sync that accept writes.
fn sound(state: &State) -> Set {
    state.lab.in_sync() & !state.failed
}

fn agree(state: &State, about: Set) -> bool {
    let mut held = members_of(sound(state)).map(|m| state.data[m] & about);
    let first = held.next();
    held.all(|data| Some(data) == first)
}

fn in_sync_missed_nothing(state: &State, _: &Config) -> bool {
    state.mode != Mode::On || agree(state, state.acked)
}

fn bit_before_data(state: &State, _: &Config) -> bool {
    let writing = state.mode == Mode::On && state.wr.phase == Step::Data;
    !writing || members_of(state.inuse & !state.failed).all(|m| state.page[m].intent)
}

fn no_silent_doubt(state: &State, config: &Config) -> bool {
    let recovered = state.mode == Mode::On
        && config.parity()
        && state.lab.in_sync() != config.all()
        && !state.lab.doubt;
    let writing = if state.wr.w > 0 { bit(usize::from(state.wr.w)) } else { 0 };
    !recovered || agree(state, !writing)
}

fn starts_when_it_could(state: &State, config: &Config) -> bool {
    if state.mode != Mode::Off || state.forked {
        return true;
    }
    let sound = |drives: &Set| drives & state.unrecorded == 0;
    (1..=config.all()).filter(sound).all(|drives| {
        let verdict = state.verdict(config, drives);
        let enough = config.tolerates(config.all() & !(verdict.new.in_sync() & drives));
        verdict.why != Why::TooFew || !enough
    })
}

fn one_history_takes_back(state: &State, config: &Config) -> bool {
    if state.mode != Mode::On || state.forked {
        return true;
    }
    let out = config.all() & !state.lab.live();
    members_of(out).all(|m| {
        let (new, own) = (&state.lab, &state.head[m]);
        new.lineage(own) == Lineage::Older || shared(config, new, own, m).is_some()
    })
}

fn returning_holds_nothing_more(state: &State, config: &Config) -> bool {
    if state.mode != Mode::On {
        return true;
    }
    members_of(config.all()).filter(|m| returns(config, &state.lab, &state.head[*m], *m)).all(|m| {
        members_of(sound(state)).all(|k| state.data[m] & state.acked & !state.data[k] == 0)
    })
}
