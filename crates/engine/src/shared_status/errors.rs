//! Error counters of members since the array was started.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use strake_units::MemberIndex;

use super::MemberHealth;

#[derive(Default)]
struct Counts {
    medium: AtomicU64,
    repaired: AtomicU64,
    device: AtomicU64,
}

/// Error counters by member.
pub(crate) struct MemberErrors(Vec<Counts>);

impl MemberErrors {
    pub(super) fn none(members: usize) -> Self {
        Self((0..members).map(|_| Counts::default()).collect())
    }

    pub(crate) fn count_medium(&self, member: MemberIndex) {
        self.0[member.at()].medium.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_repair(&self, member: MemberIndex) {
        self.0[member.at()].repaired.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_device(&self, member: MemberIndex) {
        self.0[member.at()].device.fetch_add(1, Relaxed);
    }

    /// Medium errors of all members.
    pub(crate) fn medium(&self) -> u64 {
        self.0.iter().map(|counts| counts.medium.load(Relaxed)).sum()
    }

    /// Repairs of all members.
    pub(crate) fn repairs(&self) -> u64 {
        self.0.iter().map(|counts| counts.repaired.load(Relaxed)).sum()
    }

    /// Returns the counters of the member in slot `at`.
    pub(super) fn of(&self, at: usize) -> MemberHealth {
        let Counts { medium, repaired, device } = &self.0[at];
        MemberHealth {
            medium: medium.load(Relaxed),
            repaired: repaired.load(Relaxed),
            device: device.load(Relaxed),
            ..MemberHealth::default()
        }
    }

    /// Clears the counters, because another drive gets the slot.
    pub(crate) fn forget(&self, member: MemberIndex) {
        let Counts { medium, repaired, device } = &self.0[member.at()];
        [medium, repaired, device].into_iter().for_each(|count| count.store(0, Relaxed));
    }
}
