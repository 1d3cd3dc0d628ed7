//! The status of an array.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use strake_ondisk::{Consistency, Format};
use strake_raid::{ConditionSet, Geometry, MemberState};
use strake_units::{MemberIndex, MemberSet, Name, RegionIndex, Uuid};

use super::Array;
use crate::bad_blocks::array_ranges;
use crate::histogram::{ArrayLatencies, put_together};
use crate::pacing::Maintenance;
use crate::scrub::ScrubStatus;
use crate::shared_status::{CoreCounters, HALTED_REBUILD, HALTED_RESYNC, MemberStatus};
use crate::trace::Trace;

/// Progress of a background job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the array that are done.
    pub done_bytes: u64,
    /// Total bytes of the array.
    pub total_bytes: u64,
}

/// Counters of the array since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Host reads.
    pub reads: u64,
    /// Host writes.
    pub writes: u64,
    /// Bytes read by hosts.
    pub read_bytes: u64,
    /// Bytes written by hosts.
    pub write_bytes: u64,
    /// Degraded reads.
    pub degraded_reads: u64,
    /// Unreadable blocks found on members.
    pub medium_errors: u64,
    /// Unreadable blocks that were rewritten.
    pub repairs: u64,
}

/// The status of an array at one time.
#[derive(Clone, Debug)]
pub struct ArrayStatus {
    /// Name of the array.
    pub name: Name,
    /// Identity of the array.
    pub uuid: Uuid,
    /// Geometry of the array.
    pub geometry: Geometry,
    /// Conditions derived from the states of the members.
    pub conditions: ConditionSet,
    /// The members by slot.
    pub members: Vec<MemberStatus>,
    /// Generation of the labels.
    pub generation: u64,
    /// Format of the labels.
    pub format: Format,
    /// Consistency mode in the labels.
    pub consistency: Consistency,
    /// Requested consistency mode. The labels record this mode as soon as all writes that were started before have
    /// completed.
    pub consistency_wanted: Option<Consistency>,
    /// Members for whose stripes the redo log contains every write.
    pub logged: MemberSet,
    /// Progress of the resync, if any. The initialization of a new array is a resync.
    pub resync: Option<Progress>,
    /// Progress of the rebuild, if any.
    pub rebuild: Option<Progress>,
    /// Progress of the copy to a replacement of a serving member, if any.
    pub replace: Option<Progress>,
    /// The scrub in progress, or the last scrub since the array was started.
    pub scrub: Option<ScrubStatus>,
    /// True if the rebuild halted because blocks that it needs are unreadable.
    pub rebuild_halted: bool,
    /// True if the resync halted because blocks that it needs are unreadable.
    pub resync_halted: bool,
    /// Current settings of resync and rebuild.
    pub maintenance: Maintenance,
    /// True if the array has failed: more members are absent than the level tolerates, and I/O stops.
    pub lost: bool,
    /// Ranges of lost data, which could not be reconstructed: byte offsets and lengths, in order. Reads of these ranges
    /// fail until the ranges are written.
    pub bad_ranges: Vec<(u64, u64)>,
    /// Ranges in which blocks may have been reconstructed wrongly, because a member went out before the resync after a
    /// crash: byte offsets and lengths, in order. The operator must accept this at the next start.
    pub in_doubt: Vec<(u64, u64)>,
    /// Bytes of memory reserved for stripes and for records of the redo log.
    pub scratch_bytes: u64,
    /// The part of `scratch_bytes` in huge pages.
    pub scratch_huge_bytes: u64,
    /// Counters since the start.
    pub counters: Counters,
}

impl Array {
    /// Returns the present status of the array.
    #[must_use]
    pub fn status(&self) -> ArrayStatus {
        let mut members = self.shared.members();
        for (slot, member) in members.iter_mut().enumerate() {
            let regions = self.shared.stale_regions(MemberIndex(slot as u8));
            member.stale_bytes = self.shared.member_bytes_of(regions);
        }
        let label = self.shared.superblock();
        let states: Vec<MemberState> = members.iter().map(|m| m.state).collect();
        let sum = |counter: fn(&CoreCounters) -> &AtomicU64| {
            self.shared.cores.iter().map(|c| counter(c).load(Relaxed)).sum::<u64>()
        };
        let left = sum(|c| &c.resync_regions_left);
        let total = self.bytes_of(u64::from(self.regions.count()));
        let rebuilding = states.iter().any(|s| matches!(s, MemberState::Rebuilding { .. }));
        let progress = |done: u64| Progress { done_bytes: done.min(total), total_bytes: total };
        ArrayStatus {
            name: self.name(),
            uuid: self.uuid,
            geometry: self.geometry,
            conditions: ConditionSet::of(&self.geometry, &states),
            generation: self.shared.generation(),
            format: label.format,
            consistency: label.consistency,
            consistency_wanted: self
                .shared
                .consistency_wanted()
                .filter(|mode| *mode != label.consistency),
            logged: label.logged,
            resync: (left > 0).then(|| progress(total - self.bytes_of(left).min(total))),
            rebuild: rebuilding.then(|| {
                let left = self.bytes_of(sum(|c| &c.rebuild_regions_left));
                progress(total - left.min(total))
            }),
            replace: members.iter().any(|m| !m.replacement.is_empty()).then(|| {
                let left = self.bytes_of(self.shared.uncopied_regions());
                progress(total - left.min(total))
            }),
            scrub: self.shared.scrub_status(),
            rebuild_halted: self.shared.halted() & HALTED_REBUILD != 0,
            resync_halted: self.shared.halted() & HALTED_RESYNC != 0,
            maintenance: self.shared.maintenance(),
            lost: self.shared.is_lost(),
            bad_ranges: self.bad_ranges(&states),
            in_doubt: self.in_doubt(),
            scratch_bytes: sum(|c| &c.scratch_bytes),
            scratch_huge_bytes: sum(|c| &c.scratch_huge_bytes),
            counters: Counters {
                reads: sum(|c| &c.reads),
                writes: sum(|c| &c.writes),
                read_bytes: sum(|c| &c.read_bytes),
                write_bytes: sum(|c| &c.write_bytes),
                degraded_reads: self.shared.degraded_reads(),
                medium_errors: self.shared.errors.medium(),
                repairs: self.shared.errors.repairs(),
            },
            members,
        }
    }

    /// Latencies of requests and of member I/Os since the start of the array. The function merges the counters of every
    /// core, a few hundred kilobytes. It is meant for explicit requests, not for every read of the status.
    #[must_use]
    pub fn latencies(&self) -> ArrayLatencies {
        let cores = self.shared.cores.iter().map(|core| &*core.times);
        put_together(cores, self.geometry.members())
    }

    /// Returns the recorded requests of every core, see [`Trace`]. A record that a core overwrites at the same time may
    /// be missing.
    #[must_use]
    pub fn traces(&self) -> Vec<Trace> {
        let cores = self.shared.cores.iter().enumerate();
        cores.flat_map(|(core, counters)| counters.traces.read(core as u16)).collect()
    }

    fn bad_ranges(&self, states: &[MemberState]) -> Vec<(u64, u64)> {
        let size = self.geometry.block_size();
        let ranges = array_ranges(&self.shared.bad_blocks(), &self.geometry, states);
        ranges.iter().map(|r| (r.start.bytes(size), r.blocks << size.shift())).collect()
    }

    fn in_doubt(&self) -> Vec<(u64, u64)> {
        let stripe_bytes = self.geometry.stripe_data_blocks() << self.geometry.block_size().shift();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for region in self.shared.in_doubt() {
            let stripes = self.regions.stripes(RegionIndex(region));
            let (from, bytes) =
                (stripes.start * stripe_bytes, (stripes.end - stripes.start) * stripe_bytes);
            match ranges.last_mut() {
                Some((at, length)) if *at + *length == from => *length += bytes,
                Some(_) | None => ranges.push((from, bytes)),
            }
        }
        ranges
    }

    fn bytes_of(&self, regions: u64) -> u64 {
        let blocks =
            regions * self.regions.stripes_per_region() * self.geometry.stripe_data_blocks();
        blocks.min(self.geometry.capacity_blocks()) << self.geometry.block_size().shift()
    }
}
