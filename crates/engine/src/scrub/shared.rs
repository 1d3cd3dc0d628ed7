//! The last scrub, which all shards share.
//!
//! Findings in a region are final when the region is complete. An interrupted scrub checks incomplete regions again,
//! and must not count their findings twice.

use strake_raid::{Geometry, Regions};
use strake_units::{Nanos, RegionIndex};

use super::position::{RegionSet, ScrubPosition};
use super::{ScrubCounts, ScrubFinding, ScrubMode, ScrubOrder, ScrubState, ScrubStatus};
use crate::limits::{SCRUB_FINDINGS_MAX, SCRUB_TELL_EVERY};

/// Findings in one band.
#[derive(Default)]
pub(crate) struct ScrubReport {
    pub(crate) findings: Vec<ScrubFinding>,
}

/// Findings in some regions.
#[derive(Clone, Default)]
struct Found {
    /// Counts except the checked and unchecked bytes, which each core counts separately.
    counts: ScrubCounts,
    findings: Vec<ScrubFinding>,
    unlisted: u64,
}

impl Found {
    /// Adds a finding. If it cannot be merged with another finding and there is no `room`, it is only counted.
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

    /// Adds the findings of `other`.
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

/// The last scrub.
pub(crate) struct SharedScrub {
    geometry: Geometry,
    regions: Regions,
    /// The status without counts and findings.
    status: Option<ScrubStatus>,
    /// Regions that were scrubbed completely.
    done: RegionSet,
    /// Findings in these regions.
    settled: Found,
    /// Findings of each shard in its present region.
    open: Vec<Found>,
    /// Number of shards that have not finished.
    shards_left: u16,
    /// Time of the last report of findings.
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

    /// Starts a scrub in `state`. Returns false if a scrub is in progress.
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

    /// Continues the scrub of `position`. Returns false if another scrub was started, or if the position does not fit
    /// this array.
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

    /// Returns the position from which the scrub could continue after an interruption now. Findings in incomplete
    /// regions will be found again, except repaired findings.
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

    /// Changes the state of the scrub in progress to `state`. Returns false without such a scrub, or if the state is
    /// unchanged.
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

    /// Records the findings of shard `core` in a band for scrub `number`. Returns the counts so far if a report is due.
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

    /// Returns the first incomplete region from `region` on that shard `core` of `cores` owns.
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

    /// Records that shard `core` has scrubbed all of `region` for scrub `number`. `checked` and `unchecked` are the
    /// bytes that it counted there. Returns false if this scrub has ended.
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

    /// Records that a shard has scrubbed all its regions. Returns true for the last shard.
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
