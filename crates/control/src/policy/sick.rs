//! Serving members that should be replaced because of many errors, of the health of their drives, or of their
//! latencies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use strake_engine::MemberStatus;
use strake_nvme_wire::health::Smart;
use strake_raid::MemberState;
use strake_units::Uuid;

use crate::policy::media::MediaErrors;
use crate::record::store::Settings;

/// A drive whose spare blocks are this close to the limit at which it warns should be replaced, in percent of all its
/// spare blocks: a copy takes hours.
const SPARE_MARGIN: u8 = 5;
/// A limit above this says nothing: some drives have all their spare blocks, and a limit of 99 %.
const SPARE_THRESHOLD_MAX: u8 = 90;
/// A health page that is older describes the past.
const PAGE_AGE_MAX: Duration = Duration::from_secs(3600);

/// What a spare does about a member that should be replaced, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Its drive fails requests, or predicts its failure: any spare that fits replaces it.
    Failing,
    /// Its drive reached the age at which the operator wants it replaced: a spare replaces it if another spare remains
    /// for a failure. Drives of the same age reach the limit together, and would otherwise take all spares.
    Worn,
    /// Only reported: the reason is a comparison or a forecast, which may be wrong.
    Watched,
}

/// Why a member should be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) why: String,
    pub(crate) urgency: Urgency,
}

/// A drive whose health is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// The drive of the member with this identity.
    Member(Uuid),
    /// The spare with this identity of its medium.
    Spare(String),
}

/// The last health page of a drive.
pub(crate) struct Page {
    /// The path at which the drive was.
    pub(crate) path: String,
    pub(crate) smart: Smart,
    pub(crate) read: Instant,
}

/// State of members that should be replaced.
#[derive(Default)]
pub(crate) struct Sick {
    /// The reasons, by identity of the member.
    reasons: BTreeMap<Uuid, Reason>,
    pages: BTreeMap<Subject, Page>,
    media: MediaErrors,
    /// The reasons why members are slower than their peers, by identity of the member.
    pub(crate) slow: BTreeMap<Uuid, String>,
    pub(crate) asked: Option<Instant>,
}

impl Sick {
    /// Takes the health pages that drives returned at `now`, which is on `day`. A drive that did not answer keeps its
    /// last page for an hour; pages of drives that were not `asked` are dropped.
    pub(crate) fn note_pages(
        &mut self,
        asked: &BTreeSet<Subject>,
        answered: Vec<(Subject, String, Smart)>,
        now: Instant,
        day: u64,
    ) {
        for (subject, path, smart) in answered {
            if let Subject::Member(member) = subject {
                self.media.note(member, smart.media_errors, day);
            }
            self.pages.insert(subject, Page { path, smart, read: now });
        }
        let is_new = |page: &Page| now.duration_since(page.read) < PAGE_AGE_MAX;
        self.pages.retain(|subject, page| asked.contains(subject) && is_new(page));
        self.media.retain(|member| asked.contains(&Subject::Member(*member)));
    }

    /// Gives a drive a health page that is kept: no drive is asked again.
    #[cfg(test)]
    pub(crate) fn keep_page(&mut self, subject: Subject, smart: Smart) {
        let now = Instant::now();
        self.asked = Some(now + PAGE_AGE_MAX);
        self.pages.insert(subject, Page { path: String::new(), smart, read: now });
    }

    /// The last health pages of drives.
    pub(crate) fn pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.values()
    }

    /// True if the member should be replaced.
    pub(crate) fn is_sick(&self, member: Uuid) -> bool {
        self.reasons.contains_key(&member)
    }

    /// Takes the present reason of a member. Returns true if it should be reported: the member had none before, or it
    /// became more urgent.
    pub(crate) fn note(&mut self, member: Uuid, reason: Option<Reason>) -> bool {
        let Some(reason) = reason else {
            self.reasons.remove(&member);
            return false;
        };
        let urgency = reason.urgency;
        let before = self.reasons.insert(member, reason);
        before.is_none_or(|before| urgency < before.urgency)
    }

    /// Forgets all members but these.
    pub(crate) fn retain(&mut self, is_member: impl Fn(&Uuid) -> bool) {
        self.reasons.retain(|member, _| is_member(member));
    }

    /// How urgently a spare should replace the member; `None` if none should.
    pub(crate) fn wants_spare(&self, member: &MemberStatus) -> Option<Urgency> {
        let urgency = self.reasons.get(&member.uuid)?.urgency;
        let may_be_copied = member.state == MemberState::InSync && member.replacement.is_empty();
        (may_be_copied && urgency != Urgency::Watched).then_some(urgency)
    }

    /// True if nothing speaks against a spare as the replacement of a member that still serves.
    pub(crate) fn is_fit(&self, spare: &str, settings: Settings) -> bool {
        let page = self.pages.get(&Subject::Spare(spare.to_owned()));
        page.is_none_or(|page| judge_page(&page.smart, settings).is_none())
    }

    /// Returns the reason why the member should be replaced, if any: the most urgent one.
    pub(crate) fn judge(&self, member: &MemberStatus, settings: Settings) -> Option<Reason> {
        if member.state != MemberState::InSync {
            return None;
        }
        let watched = |why| Reason { why, urgency: Urgency::Watched };
        let page = self.pages.get(&Subject::Member(member.uuid));
        let of_page = page.and_then(|page| judge_page(&page.smart, settings));
        let media = || self.media.judge(member.uuid).map(watched);
        let slow = || self.slow.get(&member.uuid).cloned().map(watched);
        let reasons = [many_errors(member, settings), of_page, media(), slow()];
        reasons.into_iter().flatten().min_by_key(|reason| reason.urgency)
    }
}

fn many_errors(member: &MemberStatus, settings: Settings) -> Option<Reason> {
    let health = &member.health;
    let errors = health.medium + health.timeouts + health.device;
    let limit = u64::from(settings.replace_after_errors);
    (limit > 0 && errors >= limit).then(|| Reason {
        why: format!(
            "it met {} unreadable blocks, {} time-outs and {} other errors",
            health.medium, health.timeouts, health.device
        ),
        urgency: Urgency::Failing,
    })
}

/// Returns the reason why a drive with this health page should be replaced, if any.
fn judge_page(page: &Smart, settings: Settings) -> Option<Reason> {
    if let Some(why) = page.prediction() {
        return Some(Reason { why: why.to_owned(), urgency: Urgency::Failing });
    }
    let (wear, limit) = (page.wear_percent, settings.replace_at_wear_percent);
    if limit > 0 && wear >= limit {
        let why = format!("{wear} % of the rated endurance of the drive is used");
        return Some(Reason { why, urgency: Urgency::Worn });
    }
    let Smart { spare_percent: spare, spare_threshold_percent: threshold, .. } = *page;
    // A drive that does not count its spare blocks reports 0 for both.
    let counts = (1..=SPARE_THRESHOLD_MAX).contains(&threshold) && spare < 100;
    (counts && spare <= threshold + SPARE_MARGIN).then(|| Reason {
        why: format!(
            "the drive has {spare} % of its spare blocks left, and predicts its failure below {threshold} %"
        ),
        urgency: Urgency::Watched,
    })
}

#[cfg(test)]
mod tests;
