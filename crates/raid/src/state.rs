//! What can become of a member. What that makes of the array: [`crate::condition`].
//!
//! Bad news about a member that is out already changes nothing and is legal: several commands to one drive
//! fail at once, and a failed drive is pulled. A faulty member never comes back by itself: it is replaced
//! (perhaps by itself, when the operator says so) and rebuilt from the start, or taken back and rebuilt where it
//! lacks something.

use std::fmt;

use strake_units::{MemberSet, StripeIndex};

/// The state of one member of an array.
///
/// ```text
///              Vanished                  ReturnedStale, Replaced
///  +--------+ ----------> +---------+ ----------------------------> +------------+ ---+
///  | InSync |             | Missing |                               | Rebuilding |    | Progress
///  +--------+ <---------- +---------+ <---------------------------- +------------+ <--+
///    |    ^   Returned-        |                 Vanished             |    |  ^
///    |    |   Current          |                                      |    |  |
///    |    +--------------------|--------------- Finished -------------+    |  | Replaced
///    |                         |                                           |  |
///    | WriteFailed,            | OperatorFailed              WriteFailed, |  |
///    | OperatorFailed          v                            OperatorFailed |  |
///    |                    +--------+                                       |  |
///    +------------------> | Faulty | <-------------------------------------+  |
///                         +--------+ -----------------------------------------+
/// ```
///
/// Not drawn: `Readded` leads where `Replaced` leads; `WriteFailed` and `Vanished` leave Missing as it is, and these
/// and `OperatorFailed` leave Faulty as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// Holds everything it should.
    InSync,
    /// Being filled.
    Rebuilding {
        /// Stripes of the array, counted from 0, below which this member holds everything it should.
        recovered_stripes: u64,
    },
    /// Failed: no longer used, even if it answers.
    Faulty,
    /// Not there.
    Missing,
}

/// Something that happens to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberEvent {
    /// A write to it failed permanently, so it no longer holds everything it should. (A read that fails does
    /// not: the strip is recovered and written back.)
    WriteFailed,
    /// The operator declared it failed.
    OperatorFailed,
    /// It is gone: pulled, unreachable, or not found when the array was assembled.
    Vanished,
    /// A member with none of the data takes its slot.
    Replaced,
    /// It has returned, and nothing was written in its absence.
    ReturnedCurrent,
    /// It has returned, and lacks the writes of its absence. The write-intent bitmap says which regions;
    /// a rebuild that skips the others is still a rebuild.
    ReturnedStale,
    /// An operator re-adds it, as it was when it went out: it lacks what was written since.
    Readded,
    /// The rebuild has filled every stripe below `stripes`, durably.
    Progress {
        /// The new value of `recovered_stripes`; never below the old one.
        stripes: u64,
    },
    /// The rebuild has filled every stripe.
    Finished,
}

impl MemberState {
    /// The state after `event`.
    ///
    /// # Errors
    /// [`IllegalTransition`] when the event cannot happen in this state, which is an error of the caller that reported
    /// it: nothing may change because of it.
    pub const fn next(self, event: MemberEvent) -> Result<Self, IllegalTransition> {
        let illegal = Err(IllegalTransition { state: self, event });
        match (event, self) {
            (MemberEvent::WriteFailed, Self::InSync | Self::Rebuilding { .. } | Self::Faulty) => {
                Ok(Self::Faulty)
            }
            (MemberEvent::WriteFailed, Self::Missing) => Ok(Self::Missing),
            (
                MemberEvent::OperatorFailed,
                Self::InSync | Self::Rebuilding { .. } | Self::Faulty | Self::Missing,
            ) => Ok(Self::Faulty),
            (MemberEvent::Vanished, Self::InSync | Self::Rebuilding { .. } | Self::Missing) => {
                Ok(Self::Missing)
            }
            (MemberEvent::Vanished, Self::Faulty) => Ok(Self::Faulty),
            (MemberEvent::Replaced | MemberEvent::Readded, Self::Faulty | Self::Missing)
            | (MemberEvent::ReturnedStale, Self::Missing) => {
                Ok(Self::Rebuilding { recovered_stripes: 0 })
            }
            (MemberEvent::ReturnedCurrent, Self::Missing) => Ok(Self::InSync),
            (MemberEvent::Progress { stripes }, Self::Rebuilding { recovered_stripes })
                if stripes >= recovered_stripes =>
            {
                Ok(Self::Rebuilding { recovered_stripes: stripes })
            }
            (MemberEvent::Finished, Self::Rebuilding { .. }) => Ok(Self::InSync),
            (
                MemberEvent::Replaced | MemberEvent::Readded,
                Self::InSync | Self::Rebuilding { .. },
            )
            | (
                MemberEvent::ReturnedStale | MemberEvent::ReturnedCurrent,
                Self::InSync | Self::Rebuilding { .. } | Self::Faulty,
            )
            | (
                MemberEvent::Progress { .. },
                Self::InSync | Self::Rebuilding { .. } | Self::Faulty | Self::Missing,
            )
            | (MemberEvent::Finished, Self::InSync | Self::Faulty | Self::Missing) => illegal,
        }
    }

    /// True when this member's strip of `stripe` cannot be used.
    #[must_use]
    pub const fn is_absent_in(self, stripe: StripeIndex) -> bool {
        match self {
            Self::InSync => false,
            Self::Rebuilding { recovered_stripes } => stripe.0 >= recovered_stripes,
            Self::Faulty | Self::Missing => true,
        }
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InSync => "in sync",
            Self::Rebuilding { recovered_stripes: _ } => "rebuilding",
            Self::Faulty => "faulty",
            Self::Missing => "missing",
        })
    }
}

impl fmt::Display for MemberEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteFailed => f.write_str("a write failed"),
            Self::OperatorFailed => f.write_str("the operator declared it failed"),
            Self::Vanished => f.write_str("it vanished"),
            Self::Replaced => f.write_str("it was replaced"),
            Self::ReturnedCurrent => f.write_str("it returned up to date"),
            Self::ReturnedStale => f.write_str("it returned out of date"),
            Self::Readded => f.write_str("it was taken back"),
            Self::Progress { stripes } => write!(f, "its rebuild reached stripe {stripes}"),
            Self::Finished => f.write_str("its rebuild finished"),
        }
    }
}

/// An event that cannot happen to a member in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalTransition {
    /// The state.
    pub state: MemberState,
    /// The event.
    pub event: MemberEvent,
}

impl fmt::Display for IllegalTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, event } = self;
        write!(
            f,
            "a member that is {state} cannot change because {event}; its state stays as it is"
        )
    }
}

impl std::error::Error for IllegalTransition {}

/// The members of the whole array that are absent in `stripe`.
/// [`Geometry::positions_of_members`](crate::Geometry::positions_of_members) makes positions of them.
#[must_use]
pub fn absent_members(states: &[MemberState], stripe: StripeIndex) -> MemberSet {
    members_where(states, |state| state.is_absent_in(stripe))
}

/// The members whose state satisfies `test`. An array has at most 64 members.
#[must_use]
pub fn members_where(states: &[MemberState], test: impl Fn(MemberState) -> bool) -> MemberSet {
    states
        .iter()
        .take(64)
        .enumerate()
        .filter(|(_, state)| test(**state))
        .map(|(slot, _)| slot)
        .collect()
}
