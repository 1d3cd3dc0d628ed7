//! Serving members that should be replaced because of many errors or predicted failures of their drives.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use strake_engine::MemberStatus;
use strake_raid::MemberState;
use strake_units::Uuid;

use crate::record::store::Settings;

/// State of members that should be replaced.
#[derive(Default)]
pub(crate) struct Sick {
    /// The reasons, by identity of the member.
    pub(crate) why: BTreeMap<Uuid, String>,
    /// Members whose replacement was cancelled.
    pub(crate) left_alone: BTreeSet<Uuid>,
    /// The last failure predictions of drives, by path.
    pub(crate) predictions: BTreeMap<String, &'static str>,
    pub(crate) asked: Option<Instant>,
}

impl Sick {
    /// True if a spare should replace the member, if one exists.
    pub(crate) fn wants_spare(&self, member: &MemberStatus) -> bool {
        member.state == MemberState::InSync
            && member.replacement.is_empty()
            && self.why.contains_key(&member.uuid)
            && !self.left_alone.contains(&member.uuid)
    }

    /// Disables the automatic replacement of a member.
    pub(crate) fn leave_alone(&mut self, member: Uuid) {
        self.left_alone.insert(member);
    }

    /// Marks a member as one that should be replaced.
    #[cfg(test)]
    pub(crate) fn call(&mut self, member: Uuid, why: &str) {
        self.why.insert(member, why.to_owned());
    }

    /// Returns the reason why the member should be replaced, if any.
    pub(crate) fn judge(&self, member: &MemberStatus, settings: Settings) -> Option<String> {
        if member.state != MemberState::InSync {
            return None;
        }
        if let Some(why) = self.predictions.get(&member.path) {
            return Some((*why).to_owned());
        }
        let health = &member.health;
        let errors = health.medium + health.timeouts + health.device;
        let limit = u64::from(settings.replace_after_errors);
        (limit > 0 && errors >= limit).then(|| {
            format!(
                "it met {} unreadable blocks, {} time-outs and {} other errors",
                health.medium, health.timeouts, health.device
            )
        })
    }
}

#[cfg(test)]
mod tests;
