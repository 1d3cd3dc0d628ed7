//! The LED pattern of a drive's slot, as a function of the state of the drive.

use std::collections::{BTreeMap, BTreeSet};

use strake_dev_uring::Pattern;
use strake_engine::{ArrayStatus, MemberStatus};
use strake_raid::MemberState;
use strake_units::{MemberSet, Uuid};

use crate::policy::members::absent_members;

/// The redundancy state of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ArrayState {
    /// The array has redundancy, or its level has none.
    Sound,
    /// No redundancy is left: one more failure loses data.
    Critical,
    /// More members are absent than the level tolerates.
    Lost,
}

/// A fact about the drive in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    /// A member in use, of an array in this state.
    Member(ArrayState),
    /// A spare.
    Spare,
    /// A serving member that should be replaced.
    Sick,
    /// A drive that a rebuild or a copy fills.
    Filled,
    /// A failed drive, or a drive whose controller could not be stopped with certainty (`unfenced`).
    Failed,
    /// A drive that the operator locates.
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

    /// True if the drive is in use, so that it must be the drive in its slot.
    pub(crate) const fn is_use(self) -> bool {
        match self {
            Self::Member(_) | Self::Spare | Self::Sick | Self::Filled => true,
            Self::Failed | Self::Located => false,
        }
    }
}

/// Facts about drives, by path.
pub(crate) type Facts = BTreeMap<String, BTreeSet<Fact>>;

/// Returns the most urgent pattern of `facts`.
pub(crate) fn pattern_of(facts: &BTreeSet<Fact>) -> Pattern {
    facts.iter().map(|fact| fact.pattern()).max().unwrap_or_default()
}

/// Adds the facts of an array about its drives. `is_sick` selects the members that should be replaced.
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
        // A missing member with a path was present while the array ran: it was pulled, or its slot failed.
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
