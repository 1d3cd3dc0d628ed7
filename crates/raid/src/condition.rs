//! What the states of its members make of an array. Always derived, never stored.

use std::fmt;

use strake_units::StripeIndex;

use crate::geometry::Geometry;
use crate::state::{MemberState, absent_members};

/// One thing that is true of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// All data can be read and written.
    Online,
    /// Some data is not as redundant as the level promises.
    Degraded,
    /// Degraded so far that one more failure may lose data.
    NoRedundancy,
    /// A member is being filled.
    Rebuilding,
    /// Parity or copies are being made to agree after a crash. Reported by the owner of the write-intent
    /// bitmap; member states do not show it.
    Resyncing,
    /// Some data cannot be read or recovered with the members that are there.
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

    /// The word for it.
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

    /// What the operator should do about it.
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
    /// The conditions that follow from the states of the members, one state per member.
    #[must_use]
    pub fn of(geometry: &Geometry, states: &[MemberState]) -> Self {
        // The last stripe is the one that rebuilds reach last, so what is absent anywhere is absent there.
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

    /// The set with `condition` in it as well.
    #[must_use]
    pub const fn with(self, condition: Condition) -> Self {
        Self(self.0 | condition.bit())
    }

    /// True when `condition` holds.
    #[must_use]
    pub const fn contains(self, condition: Condition) -> bool {
        self.0 & condition.bit() != 0
    }

    /// The conditions that hold, in the order of [`Condition::ALL`].
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
