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

/// Time between two queries of the health of all drives.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// A drive whose spare blocks are this close to the limit at which it warns should be replaced, in percent of all its
/// spare blocks: a copy takes hours.
const SPARE_MARGIN: u8 = 5;
/// A limit above this says nothing: some drives have all their spare blocks, and a limit of 99 %.
const SPARE_THRESHOLD_MAX: u8 = 90;
/// An older health page describes no present state.
const PAGE_AGE_MAX: Duration = Duration::from_secs(3600);
/// The same reason of a member is reported at most once in this time.
const REPORT_EVERY: Duration = Duration::from_secs(86_400);

/// Kinds of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Predicts,
    Errors,
    Worn,
    FewSpareBlocks,
    MediaErrors,
    Slow,
}

impl Kind {
    /// True if a spare replaces the member. Other members are only reported: their drives may serve for years, or the
    /// reason is a comparison, which may be wrong. Drives of the same age have these reasons together, and would take
    /// all spares.
    fn is_failing(self) -> bool {
        match self {
            Self::Predicts | Self::Errors => true,
            Self::Worn | Self::FewSpareBlocks | Self::MediaErrors | Self::Slow => false,
        }
    }
}

/// Why a member should be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) kind: Kind,
    pub(crate) why: String,
}

/// What speaks against a spare, the lesser objection first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Objection {
    /// Its health was not queried yet, which takes seconds.
    Unknown,
    /// It predicts its own failure, for this reason.
    Predicts(String),
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
    read: Instant,
}

/// State of members that should be replaced.
#[derive(Default)]
pub(crate) struct Sick {
    /// The present reasons, by identity of the member.
    reasons: BTreeMap<Uuid, Vec<Reason>>,
    /// The times of the last reports.
    reports: BTreeMap<(Uuid, Kind), Instant>,
    /// Members for which no spare was found, which was reported.
    without_spare: BTreeSet<Uuid>,
    pages: BTreeMap<Subject, Page>,
    media: MediaErrors,
    /// The reasons why members are slower than their peers, by identity of the member.
    pub(crate) slow: BTreeMap<Uuid, String>,
    /// The time of the last query, and the drives that it was for.
    asked: Option<(Instant, BTreeSet<Subject>)>,
    /// Drives whose first query has ended, with or without a page.
    queried: BTreeSet<Subject>,
}

impl Sick {
    /// Returns true if `subjects` must be queried now: a minute has passed, or one of them was never queried.
    pub(crate) fn is_due(&self, subjects: &BTreeSet<Subject>, now: Instant) -> bool {
        let Some((at, before)) = &self.asked else { return !subjects.is_empty() };
        now.duration_since(*at) >= ASK_EVERY || !subjects.is_subset(before)
    }

    /// Records a query of `subjects`. Forgets all other drives.
    pub(crate) fn begin_query(&mut self, subjects: BTreeSet<Subject>, now: Instant) {
        self.pages.retain(|subject, _| subjects.contains(subject));
        self.queried.retain(|subject| subjects.contains(subject));
        self.media.retain(|member| subjects.contains(&Subject::Member(*member)));
        self.asked = Some((now, subjects));
    }

    /// Takes the health pages that drives returned at `now`, which is on `day`. A drive that did not answer keeps its
    /// last page.
    pub(crate) fn note_pages(
        &mut self,
        answers: Vec<(Subject, String, Option<Smart>)>,
        now: Instant,
        day: u64,
    ) {
        for (subject, path, smart) in answers {
            self.queried.insert(subject.clone());
            let Some(smart) = smart else { continue };
            if let Subject::Member(member) = subject {
                self.media.note(member, smart.media_errors, day);
            }
            self.pages.insert(subject, Page { path, smart, read: now });
        }
    }

    /// Gives a drive a health page that is kept: no drive is queried again.
    #[cfg(test)]
    pub(crate) fn keep_page(&mut self, subject: Subject, smart: Smart) {
        let now = Instant::now();
        let (_, subjects) = self.asked.get_or_insert_with(|| (now, BTreeSet::new()));
        subjects.insert(subject.clone());
        self.asked = self.asked.take().map(|(_, subjects)| (now + PAGE_AGE_MAX, subjects));
        self.pages.insert(subject, Page { path: String::new(), smart, read: now });
    }

    /// The present health pages of drives, one for each path.
    pub(crate) fn pages(&self, now: Instant) -> impl Iterator<Item = &Page> {
        let present =
            self.pages.values().filter(|page| now.duration_since(page.read) < PAGE_AGE_MAX);
        let mut of_paths: BTreeMap<&str, &Page> = BTreeMap::new();
        for page in present {
            let newest = of_paths.entry(&page.path).or_insert(page);
            if newest.read < page.read {
                *newest = page;
            }
        }
        of_paths.into_values()
    }

    /// True if the member should be replaced.
    pub(crate) fn is_sick(&self, member: Uuid) -> bool {
        self.reasons.contains_key(&member)
    }

    /// Takes the present reasons of a member at `now`. Returns those to report: they are new, and reasons of their kind
    /// were not reported in the last day.
    pub(crate) fn note(&mut self, member: Uuid, reasons: Vec<Reason>, now: Instant) -> Vec<Reason> {
        if reasons.is_empty() {
            self.reasons.remove(&member);
            return reasons;
        }
        let before = self.reasons.insert(member, reasons.clone()).unwrap_or_default();
        let mut due = reasons;
        due.retain(|reason| {
            let is_new = before.iter().all(|before| before.kind != reason.kind);
            let last = self.reports.get(&(member, reason.kind));
            is_new && last.is_none_or(|last| now.duration_since(*last) >= REPORT_EVERY)
        });
        for reason in &due {
            self.reports.insert((member, reason.kind), now);
            self.without_spare.remove(&member);
        }
        due
    }

    /// Forgets all members but these.
    pub(crate) fn retain(&mut self, is_member: impl Fn(&Uuid) -> bool) {
        self.reasons.retain(|member, _| is_member(member));
        self.reports.retain(|(member, _), _| is_member(member));
        self.without_spare.retain(|member| is_member(member));
    }

    /// Records that there is no spare for a serving member. Returns true the first time after a report of the member.
    pub(crate) fn note_no_spare(&mut self, member: Uuid) -> bool {
        self.without_spare.insert(member)
    }

    /// True if a spare should replace the member while it serves.
    pub(crate) fn wants_spare(&self, member: &MemberStatus) -> bool {
        let is_failing = |all: &Vec<Reason>| all.iter().any(|reason| reason.kind.is_failing());
        member.state == MemberState::InSync
            && member.replacement.is_empty()
            && self.reasons.get(&member.uuid).is_some_and(is_failing)
    }

    /// Returns what speaks against the spare with this identity, if anything. `reports` tells whether its drive may
    /// have a health page. A drive that returned none is like a drive that has none.
    pub(crate) fn objection(&self, spare: &str, reports: impl Fn() -> bool) -> Option<Objection> {
        let spare = Subject::Spare(spare.to_owned());
        match self.pages.get(&spare) {
            Some(page) => page.smart.prediction().map(|why| Objection::Predicts(why.to_owned())),
            None if self.queried.contains(&spare) => None,
            None => reports().then_some(Objection::Unknown),
        }
    }

    /// Returns the reasons why the member should be replaced.
    pub(crate) fn judge(&self, member: &MemberStatus, settings: Settings) -> Vec<Reason> {
        if member.state != MemberState::InSync {
            return Vec::new();
        }
        let reason = |kind| move |why| Reason { kind, why };
        let mut reasons = Vec::new();
        if let Some(page) = self.pages.get(&Subject::Member(member.uuid)) {
            judge_page(&page.smart, settings, &mut reasons);
        }
        reasons.extend(many_errors(member, settings).map(reason(Kind::Errors)));
        reasons.extend(self.media.judge(member.uuid).map(reason(Kind::MediaErrors)));
        reasons.extend(self.slow.get(&member.uuid).cloned().map(reason(Kind::Slow)));
        reasons
    }
}

fn many_errors(member: &MemberStatus, settings: Settings) -> Option<String> {
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

/// Adds the reasons why a drive with this health page should be replaced.
fn judge_page(page: &Smart, settings: Settings, reasons: &mut Vec<Reason>) {
    let mut add = |kind, why| reasons.push(Reason { kind, why });
    if let Some(why) = page.prediction() {
        add(Kind::Predicts, why.to_owned());
    }
    let (wear, limit) = (page.wear_percent, settings.report_at_wear_percent);
    if limit > 0 && wear >= limit {
        add(Kind::Worn, format!("{wear} % of the rated endurance of the drive is used"));
    }
    let Smart { spare_percent: spare, spare_threshold_percent: threshold, .. } = *page;
    // A drive that does not count its spare blocks reports 0 for both.
    let counts = (1..=SPARE_THRESHOLD_MAX).contains(&threshold) && spare < 100;
    if counts && spare <= threshold + SPARE_MARGIN {
        add(
            Kind::FewSpareBlocks,
            format!(
                "the drive has {spare} % of its spare blocks left, and predicts its failure below {threshold} %"
            ),
        );
    }
}

#[cfg(test)]
mod tests;
