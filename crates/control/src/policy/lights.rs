//! What the light of a drive's slot is to show, as a function of the state of the drive.

use std::collections::{BTreeMap, BTreeSet};

use strake_dev_uring::Pattern;
use strake_engine::{ArrayStatus, MemberStatus};
use strake_raid::MemberState;
use strake_units::{MemberSet, Uuid};

use crate::policy::members::absent_members;

/// What an array can still lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ArrayState {
    /// It has redundancy, or its level has none.
    Sound,
    /// Its redundancy is used up: one more failure loses data.
    Critical,
    /// More members are absent than it tolerates.
    Lost,
}

/// Something that is known of the drive in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    /// A member in use, of an array in this state.
    Member(ArrayState),
    /// A spare.
    Spare,
    /// It serves and should be replaced.
    Sick,
    /// A rebuild or a copy fills it.
    Filled,
    /// It failed, or its controller could not be stopped for certain (`unfenced`).
    Failed,
    /// The operator asked where it is.
    Located,
}

impl Fact {
    const fn pattern(self) -> Pattern {
        match self {
            Self::Member(ArrayState::Sound) => Pattern::Ok,
            Self::Member(ArrayState::Critical) => Pattern::Ica,
            Self::Member(ArrayState::Lost) => Pattern::Ifa,
            Self::Spare => Pattern::Hotspare,
            Self::Sick => Pattern::Pfa,
            Self::Filled => Pattern::Rebuild,
            Self::Failed => Pattern::Fail,
            Self::Located => Pattern::Locate,
        }
    }

    /// Whether the drive serves for something, so that it is the one that is in its slot.
    pub(crate) const fn is_use(self) -> bool {
        match self {
            Self::Member(_) | Self::Spare | Self::Sick | Self::Filled => true,
            Self::Failed | Self::Located => false,
        }
    }
}

/// What is known of drives, by path.
pub(crate) type Facts = BTreeMap<String, BTreeSet<Fact>>;

/// The most urgent of what `facts` ask for.
pub(crate) fn pattern_of(facts: &BTreeSet<Fact>) -> Pattern {
    facts.iter().map(|fact| fact.pattern()).max().unwrap_or_default()
}

/// Adds what an array says about its drives. `is_sick` knows the members that should be replaced.
pub(crate) fn add_array(facts: &mut Facts, status: &ArrayStatus, is_sick: impl Fn(Uuid) -> bool) {
    let state = state_of(status);
    let mut add = |path: &str, fact| {
        if !path.is_empty() {
            facts.entry(path.to_owned()).or_default().insert(fact);
        }
    };
    for member in &status.members {
        add(&member.replacement, Fact::Filled);
        for fact in facts_of(member, state, is_sick(member.uuid)) {
            add(&member.path, fact);
        }
    }
}

fn facts_of(member: &MemberStatus, state: ArrayState, is_sick: bool) -> Vec<Fact> {
    match member.state {
        MemberState::InSync if is_sick => vec![Fact::Member(state), Fact::Sick],
        MemberState::InSync => vec![Fact::Member(state)],
        MemberState::Rebuilding { .. } => vec![Fact::Member(state), Fact::Filled],
        // A missing one with a path was there while the array ran: it was pulled, or its slot failed.
        MemberState::Faulty | MemberState::Missing => vec![Fact::Failed],
    }
}

fn state_of(status: &ArrayStatus) -> ArrayState {
    let left = status.geometry.redundancy(absent_members(status));
    let full = status.geometry.redundancy(MemberSet::EMPTY);
    match left {
        _ if status.lost => ArrayState::Lost,
        None => ArrayState::Lost,
        Some(0) if full != Some(0) => ArrayState::Critical,
        Some(_) => ArrayState::Sound,
    }
}

#[cfg(test)]
mod tests;
