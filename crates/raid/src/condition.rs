//! The conditions of an array, always derived from the states of its members, never stored.

use std::fmt;

use strake_units::StripeIndex;

use crate::geometry::Geometry;
use crate::state::{MemberState, absent_members};

/// A condition of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// All data are readable and writable.
    Online,
    /// Some data have less redundancy than the level provides.
    Degraded,
    /// The array is degraded, and one more failure may lose data.
    NoRedundancy,
    /// A member is being filled.
    Rebuilding,
    /// A resync is in progress. The owner of the write-intent bitmap reports this condition; member states do not show
    /// it.
    Resyncing,
    /// Some data cannot be read or reconstructed with the present members.
    Lost,
}

impl Condition {
    /// All conditions, in the order in which they are printed.
    pub const ALL: [Self; 6] = [
        Self::Online,
        Self::Degraded,
        Self::NoRedundancy,
        Self::Rebuilding,
        Self::Resyncing,
        Self::Lost,
    ];

    /// Returns the name of the condition.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Degraded => "degraded",
            Self::NoRedundancy => "no_redundancy",
            Self::Rebuilding => "rebuilding",
            Self::Resyncing => "resyncing",
            Self::Lost => "lost",
        }
    }

    /// Returns the advice for the operator.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Online => "nothing to do",
            Self::Degraded => "replace the faulty and missing members, or add a spare",
            Self::NoRedundancy => "replace a member now: one more failure may lose data",
            Self::Rebuilding => "wait for the rebuild; pulling a member now costs redundancy",
            Self::Resyncing => "wait for the resync; the array can be used meanwhile",
            Self::Lost => "bring missing members back; what stays lost must come from a backup",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Online => 1,
            Self::Degraded => 2,
            Self::NoRedundancy => 4,
            Self::Rebuilding => 8,
            Self::Resyncing => 16,
            Self::Lost => 32,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The conditions of an array at one moment. Prints as `online degraded rebuilding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConditionSet(u8);

impl ConditionSet {
    /// Derives the conditions from the states of the members, one state per member.
    #[must_use]
    pub fn of(geometry: &Geometry, states: &[MemberState]) -> Self {
        // Rebuilds reach the last stripe last, so every member that is absent anywhere is absent there.
        let absent = absent_members(states, StripeIndex(geometry.stripes() - 1));
        let rebuilding = states.iter().any(|state| match state {
            MemberState::Rebuilding { recovered_stripes: _ } => true,
            MemberState::InSync | MemberState::Faulty | MemberState::Missing => false,
        });
        let mut set = Self::default();
        match geometry.redundancy(absent) {
            None => set = set.with(Condition::Lost),
            Some(_) if absent.is_empty() => set = set.with(Condition::Online),
            Some(0) => {
                set = set
                    .with(Condition::Online)
                    .with(Condition::Degraded)
                    .with(Condition::NoRedundancy);
            }
            Some(_) => set = set.with(Condition::Online).with(Condition::Degraded),
        }
        if rebuilding { set.with(Condition::Rebuilding) } else { set }
    }

    /// Returns the set with `condition` added.
    #[must_use]
    pub const fn with(self, condition: Condition) -> Self {
        Self(self.0 | condition.bit())
    }

    /// True if `condition` holds.
    #[must_use]
    pub const fn contains(self, condition: Condition) -> bool {
        self.0 & condition.bit() != 0
    }

    /// Returns the conditions that hold, in the order of [`Condition::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Condition> {
        Condition::ALL.into_iter().filter(move |condition| self.contains(*condition))
    }
}

impl fmt::Display for ConditionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, condition) in self.iter().enumerate() {
            let gap = if nth == 0 { "" } else { " " };
            write!(f, "{gap}{condition}")?;
        }
        Ok(())
    }
}
