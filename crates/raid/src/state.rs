//! The states of a member and their transitions. [`crate::condition`] defines the resulting condition of the array.
//!
//! A failure event of a member that is already out is legal and changes nothing: several commands to one drive fail at
//! the same time, and a failed drive is removed. A faulty member never returns automatically. It is replaced
//! (automatically if the operator configured this) and rebuilt from the start, or re-added and rebuilt in the regions
//! that it lacks.

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
/// The diagram omits some transitions. `Readded` has the same transitions as `Replaced`. `WriteFailed` and `Vanished`
/// do not change Missing. `WriteFailed`, `Vanished` and `OperatorFailed` do not change Faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// The member contains all its data.
    InSync,
    /// The member is being filled.
    Rebuilding {
        /// The number of stripes from the start of the array for which this member contains all its data.
        recovered_stripes: u64,
    },
    /// The member failed. It is no longer used, even if it responds.
    Faulty,
    /// The member is not present.
    Missing,
}

/// An event of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberEvent {
    /// A write to the member failed permanently, so that the member lacks data. (A failed read is not such an event:
    /// the strip is recovered and rewritten.)
    WriteFailed,
    /// The operator failed the member.
    OperatorFailed,
    /// The drive was removed, is unreachable, or was not found when the array was assembled.
    Vanished,
    /// A drive without data becomes the member of the slot.
    Replaced,
    /// The member returned, and nothing was written in its absence.
    ReturnedCurrent,
    /// The member returned and lacks the writes during its absence. The write-intent bitmap records the regions. A
    /// rebuild that skips the other regions is still a rebuild.
    ReturnedStale,
    /// The operator re-adds the member with its content from the time when it went out. The member lacks later writes.
    Readded,
    /// The rebuild has filled every stripe below `stripes` with stable writes.
    Progress {
        /// The new value of `recovered_stripes`, which is not below the old value.
        stripes: u64,
    },
    /// The rebuild has filled every stripe.
    Finished,
}

impl MemberState {
    /// Returns the state after `event`.
    ///
    /// # Errors
    /// [`IllegalTransition`] if the event cannot happen in this state. This is an error of the caller, which must not
    /// change anything because of the event.
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

    /// Returns true if the strip of this member in `stripe` cannot be used.
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

/// An event that is illegal in the state of a member.
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

/// Returns the members of the whole array that are absent in `stripe`.
/// [`Geometry::positions_of_members`](crate::Geometry::positions_of_members) converts them to positions.
#[must_use]
pub fn absent_members(states: &[MemberState], stripe: StripeIndex) -> MemberSet {
    members_where(states, |state| state.is_absent_in(stripe))
}

/// Returns the members whose state satisfies `test`. An array has at most 64 members.
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
