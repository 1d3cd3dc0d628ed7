//! Serving members that should be replaced because of many errors, of the health of their drives, or of their
//! latencies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use strake_engine::MemberStatus;
use strake_nvme_wire::health::Smart;
use strake_raid::MemberState;
use strake_units::Uuid;

use crate::policy::media::MediaErrors;
use crate::record::store::Settings;

/// A drive whose spare blocks are this close to the limit at which it warns is replaced, in percent of all its spare
/// blocks: a copy takes hours.
const SPARE_MARGIN: u8 = 5;

/// State of members that should be replaced.
#[derive(Default)]
pub(crate) struct Sick {
    /// The reasons, by identity of the member.
    pub(crate) why: BTreeMap<Uuid, String>,
    /// Members whose replacement was cancelled.
    pub(crate) left_alone: BTreeSet<Uuid>,
    /// The last health pages of drives, by path.
    pub(crate) pages: BTreeMap<String, Smart>,
    pub(crate) media: MediaErrors,
    /// The reasons why members are slower than their peers, by identity of the member.
    pub(crate) slow: BTreeMap<Uuid, String>,
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
        let page = self.pages.get(&member.path);
        if let Some(why) = page.and_then(|page| worn(page, settings.replace_at_wear_percent)) {
            return Some(why);
        }
        if let Some(why) = self.media.judge(&member.path) {
            return Some(why);
        }
        if let Some(why) = self.slow.get(&member.uuid) {
            return Some(why.clone());
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

/// Returns the reason why a drive with this health page should be replaced, if any.
fn worn(page: &Smart, at_wear_percent: u8) -> Option<String> {
    if let Some(why) = page.prediction() {
        return Some(why.to_owned());
    }
    let Smart { spare_percent: spare, spare_threshold_percent: threshold, .. } = *page;
    // A drive that does not count its spare blocks reports 0 for both.
    if threshold > 0 && spare <= threshold.saturating_add(SPARE_MARGIN) {
        return Some(format!(
            "the drive has {spare} % of its spare blocks left, and predicts its failure below {threshold} %"
        ));
    }
    let wear = page.wear_percent;
    (at_wear_percent > 0 && wear >= at_wear_percent)
        .then(|| format!("{wear} % of the rated endurance of the drive is used"))
}

#[cfg(test)]
mod tests;
