//! How far a scrub has come, in a form that outlasts the array's run.

use std::ops::Range;

use strake_raid::Geometry;
use strake_units::RegionIndex;

use super::{ScrubCounts, ScrubFinding, ScrubMode, ScrubState};
use crate::limits::SCRUB_FINDINGS_MAX;

/// How far a scrub has come and what it found: all that is needed to take it up after a restart, with any number of
/// cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubPosition {
    /// What it does.
    pub mode: ScrubMode,
    /// Where it stands.
    pub state: ScrubState,
    /// Regions of the array that it is of.
    pub regions: u32,
    /// Regions that it has been over, as runs in ascending order.
    pub done: Vec<Range<u32>>,
    /// What it has seen there.
    pub counts: ScrubCounts,
    /// What it found there.
    pub findings: Vec<ScrubFinding>,
    /// Findings that are not listed, because there was no room.
    pub unlisted: u64,
}

impl ScrubPosition {
    /// The regions that are done, if this can be a position in an array of `geometry` with so many regions. It may come
    /// from an untrusted file.
    pub(super) fn of(&self, geometry: &Geometry, regions: u32) -> Option<RegionSet> {
        let inside = |finding: &ScrubFinding| {
            finding.member.is_none_or(|member| member.at() < geometry.members())
                && finding.stripe.0 < geometry.stripes()
                && is_within(
                    finding.rows.start.0,
                    finding.rows.blocks,
                    geometry.member_blocks_used(),
                )
                && is_within(
                    finding.array.start.0,
                    finding.array.blocks,
                    geometry.capacity_blocks(),
                )
        };
        let sound = self.regions == regions
            && self.findings.len() <= SCRUB_FINDINGS_MAX
            && self.findings.iter().all(inside)
            && self.done.iter().all(|run| run.end <= regions);
        sound.then(|| {
            let mut set = RegionSet::new(regions);
            self.done.iter().flat_map(Range::clone).for_each(|at| set.insert(RegionIndex(at)));
            set
        })
    }
}

fn is_within(start: u64, length: u64, end: u64) -> bool {
    start.checked_add(length).is_some_and(|to| to <= end)
}

/// A set of regions.
#[derive(Clone, Debug)]
pub(super) struct RegionSet {
    bits: Vec<bool>,
}

impl RegionSet {
    /// None of so many regions.
    pub(super) fn new(regions: u32) -> Self {
        Self { bits: vec![false; regions as usize] }
    }

    pub(super) fn contains(&self, region: RegionIndex) -> bool {
        self.bits[region.0 as usize]
    }

    pub(super) fn insert(&mut self, region: RegionIndex) {
        self.bits[region.0 as usize] = true;
    }

    /// What is in it, as runs in ascending order.
    pub(super) fn runs(&self) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for at in (0..self.bits.len()).filter(|at| self.bits[*at]).map(|at| at as u32) {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end = at + 1,
                Some(_) | None => runs.push(at..at + 1),
            }
        }
        runs
    }
}
