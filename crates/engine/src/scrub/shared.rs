//! The scrub that was begun last, as all shards share it.
//!
//! What is found in a region is final when the region is done: a scrub that is interrupted looks at regions
//! again that were not, and must not count twice what it finds there.

use strake_raid::{Geometry, Regions};
use strake_units::{Nanos, RegionIndex};

use super::position::{RegionSet, ScrubPosition};
use super::{ScrubCounts, ScrubFinding, ScrubMode, ScrubOrder, ScrubState, ScrubStatus};
use crate::limits::{SCRUB_FINDINGS_MAX, SCRUB_TELL_EVERY};

/// What was found in one band.
#[derive(Default)]
pub(crate) struct ScrubReport {
    pub(crate) findings: Vec<ScrubFinding>,
}

/// What was found in some regions.
#[derive(Clone, Default)]
struct Found {
    /// But for what was checked and what could not be, which each core counts for itself.
    counts: ScrubCounts,
    findings: Vec<ScrubFinding>,
    unlisted: u64,
}

impl Found {
    /// Takes a finding in. It is only counted when it cannot join another one and there is no `room`.
    fn add(&mut self, finding: &ScrubFinding, geometry: &Geometry, room: bool) {
        self.counts.note(finding, geometry.block_size().shift());
        if self.findings.iter_mut().rev().any(|known| known.join(finding, geometry)) {
            return;
        }
        match room {
            true => self.findings.push(*finding),
            false => self.unlisted += 1,
        }
    }

    /// Takes in what was found elsewhere.
    fn merge(&mut self, other: Self, geometry: &Geometry) {
        self.counts.add(&other.counts);
        self.unlisted += other.unlisted;
        for finding in other.findings {
            if !self.findings.iter_mut().rev().any(|known| known.join(&finding, geometry)) {
                self.findings.push(finding);
            }
        }
    }
}

/// The scrub that was begun last.
pub(crate) struct SharedScrub {
    geometry: Geometry,
    regions: Regions,
    /// Without what was counted and found.
    status: Option<ScrubStatus>,
    /// Regions that were looked at from the first to the last band.
    done: RegionSet,
    /// What was found there.
    settled: Found,
    /// What each shard found in the region that it is at.
    open: Vec<Found>,
    /// Shards that are not through.
    shards_left: u16,
    /// When findings were last reported.
    reported: Option<Nanos>,
}

impl SharedScrub {
    pub(crate) fn new(geometry: Geometry) -> Self {
        let regions = Regions::new(&geometry);
        Self {
            geometry,
            regions,
            status: None,
            done: RegionSet::new(regions.count()),
            settled: Found::default(),
            open: Vec::new(),
            shards_left: 0,
            reported: None,
        }
    }

    /// Starts a scrub in `state`, unless one is in progress. False then.
    pub(crate) fn begin(&mut self, mode: ScrubMode, state: ScrubState, shards: u16) -> bool {
        if self.status.is_some_and(|status| !status.state.is_over()) {
            return false;
        }
        let number = self.status.map_or(0, |status| status.number) + 1;
        let counts = ScrubCounts::default();
        self.status = Some(ScrubStatus { number, mode, state, counts, unlisted: 0 });
        self.done = RegionSet::new(self.regions.count());
        self.settled = Found::default();
        self.open = vec![Found::default(); usize::from(shards)];
        (self.shards_left, self.reported) = (shards, None);
        true
    }

    /// Takes up the scrub that `position` is of. False when another one was begun, or it is not of this array.
    pub(crate) fn take_up(&mut self, position: &ScrubPosition, shards: u16) -> bool {
        let Some(done) = position.of(&self.geometry, self.regions.count()) else { return false };
        if self.status.is_some() || !self.begin(position.mode, position.state, shards) {
            return false;
        }
        self.done = done;
        self.settled = Found {
            counts: position.counts,
            findings: position.findings.clone(),
            unlisted: position.unlisted,
        };
        true
    }

    /// From where the scrub could be taken up if it were interrupted now. What was found in regions that are not done
    /// is found again, except what was put right.
    pub(crate) fn position(&self) -> Option<ScrubPosition> {
        let status = self.status?;
        let mut found = self.settled.clone();
        let repaired = self.open.iter().flat_map(|open| &open.findings).filter(|f| f.repaired);
        for finding in repaired {
            found.add(finding, &self.geometry, found.findings.len() < SCRUB_FINDINGS_MAX);
        }
        Some(ScrubPosition {
            mode: status.mode,
            state: status.state,
            regions: self.regions.count(),
            done: self.done.runs(),
            counts: found.counts,
            findings: found.findings,
            unlisted: found.unlisted,
        })
    }

    /// Moves the scrub that is under way to `state`. False when there is none, or it is there already.
    pub(crate) fn change(&mut self, state: ScrubState) -> bool {
        match &mut self.status {
            Some(status) if !status.state.is_over() && status.state != state => {
                status.state = state;
                true
            }
            Some(_) | None => false,
        }
    }

    pub(crate) fn status(&self) -> Option<ScrubStatus> {
        let mut status = self.status?;
        for found in self.open.iter().chain([&self.settled]) {
            status.counts.add(&found.counts);
            status.unlisted += found.unlisted;
        }
        Some(status)
    }

    pub(crate) fn order(&self) -> Option<ScrubOrder> {
        self.status.map(|ScrubStatus { number, mode, state, .. }| ScrubOrder {
            number,
            mode,
            runs: state == ScrubState::Running,
        })
    }

    pub(crate) fn findings(&self) -> Vec<ScrubFinding> {
        let mut all = self.settled.clone();
        self.open.iter().for_each(|open| all.merge(open.clone(), &self.geometry));
        all.findings.sort_unstable_by_key(|finding| (finding.array.start, finding.member));
        all.findings
    }

    /// Takes note of what shard `core` found in a band for scrub `number`. What was found so far, when that is to be
    /// reported.
    pub(crate) fn report(
        &mut self,
        (core, number): (u16, u64),
        report: &ScrubReport,
        now: Nanos,
    ) -> Option<ScrubCounts> {
        self.status.filter(|status| status.number == number)?;
        for finding in &report.findings {
            let listed = |found: &Found| found.findings.len();
            let all = listed(&self.settled) + self.open.iter().map(listed).sum::<usize>();
            let room = all < SCRUB_FINDINGS_MAX;
            self.open[usize::from(core)].add(finding, &self.geometry, room);
        }
        let due = self.reported.is_none_or(|reported| now.since(reported) >= SCRUB_TELL_EVERY);
        if !due {
            return None;
        }
        self.reported = Some(now);
        self.status().map(|status| status.counts)
    }

    /// The first region from `region` on that shard `core` of `cores` owns and that is not done.
    pub(crate) fn next(
        &self,
        region: RegionIndex,
        (core, cores): (u16, u16),
    ) -> Option<RegionIndex> {
        let own = (region.0..self.regions.count())
            .map(RegionIndex)
            .filter(|region| self.regions.owner(*region, cores).0 == core);
        own.into_iter().find(|region| !self.done.contains(*region))
    }

    /// Shard `core` has been over all of `region` for scrub `number`; `checked` and `unchecked` are the bytes it
    /// counted there. False when that scrub has finished.
    pub(crate) fn region_done(
        &mut self,
        (core, number): (u16, u64),
        region: RegionIndex,
        (checked, unchecked): (u64, u64),
    ) -> bool {
        let current = |status: &ScrubStatus| status.number == number && !status.state.is_over();
        if self.status.filter(current).is_none() {
            return false;
        }
        let open = std::mem::take(&mut self.open[usize::from(core)]);
        self.settled.merge(open, &self.geometry);
        self.settled.counts.checked += checked;
        self.settled.counts.unchecked += unchecked;
        self.done.insert(region);
        true
    }

    /// A shard has scrubbed all it owns. True for the last shard.
    pub(crate) fn shard_done(&mut self, number: u64) -> bool {
        let Some(status) = self.status.as_mut().filter(|status| status.number == number) else {
            return false;
        };
        self.shards_left -= 1;
        let last = self.shards_left == 0 && !status.state.is_over();
        if last {
            status.state = ScrubState::Finished;
        }
        last
    }
}
