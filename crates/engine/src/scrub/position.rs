//! The position of a scrub, in a form that can be stored.

use std::ops::Range;

use strake_raid::Geometry;
use strake_units::RegionIndex;

use super::{ScrubCounts, ScrubFinding, ScrubMode, ScrubState};
use crate::limits::SCRUB_FINDINGS_MAX;

/// The progress and the findings of a scrub, from which it can continue after a restart, with any number of cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubPosition {
    /// The mode of the scrub.
    pub mode: ScrubMode,
    /// The state of the scrub.
    pub state: ScrubState,
    /// Number of regions of the array.
    pub regions: u32,
    /// Scrubbed regions, as runs in ascending order.
    pub done: Vec<Range<u32>>,
    /// Counts of the scrubbed regions.
    pub counts: ScrubCounts,
    /// Findings in the scrubbed regions.
    pub findings: Vec<ScrubFinding>,
    /// Number of findings that are not listed, because the list is full.
    pub unlisted: u64,
}

impl ScrubPosition {
    /// Returns the scrubbed regions, if the position is valid for an array of `geometry` with `regions` regions. The
    /// position may come from an untrusted file.
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
    /// Creates an empty set for `regions` regions.
    pub(super) fn new(regions: u32) -> Self {
        Self { bits: vec![false; regions as usize] }
    }

    pub(super) fn contains(&self, region: RegionIndex) -> bool {
        self.bits[region.0 as usize]
    }

    pub(super) fn insert(&mut self, region: RegionIndex) {
        self.bits[region.0 as usize] = true;
    }

    /// Returns the regions in the set, as runs in ascending order.
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
