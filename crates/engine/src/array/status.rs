//! What an array is like at one moment.

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

/// How far a background job has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the array done.
    pub done_bytes: u64,
    /// Bytes of the array in all.
    pub total_bytes: u64,
}

/// What the array has done since it was started.
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
    /// Reads that had to be reconstructed from the rest of a stripe.
    pub degraded_reads: u64,
    /// Unreadable blocks met on members.
    pub medium_errors: u64,
    /// Unreadable blocks written back.
    pub repairs: u64,
}

/// A picture of an array.
#[derive(Clone, Debug)]
pub struct ArrayStatus {
    /// Its name.
    pub name: Name,
    /// Its identity.
    pub uuid: Uuid,
    /// Its geometry.
    pub geometry: Geometry,
    /// What follows from the members' states.
    pub conditions: ConditionSet,
    /// The members by slot.
    pub members: Vec<MemberStatus>,
    /// Generation of the labels.
    pub generation: u64,
    /// The revision of the format that its labels have.
    pub format: Format,
    /// How its writes are made safe against crashes, as the labels say.
    pub consistency: Consistency,
    /// What this is to become, as soon as no write is under way that was begun before.
    pub consistency_wanted: Option<Consistency>,
    /// Members whose stripes have every write in the redo log by now.
    pub logged: MemberSet,
    /// The resync that is under way, if any; a new array's initialization is one.
    pub resync: Option<Progress>,
    /// The rebuild that is under way, if any.
    pub rebuild: Option<Progress>,
    /// The copy to a drive that is to take a member's place, if any is under way.
    pub replace: Option<Progress>,
    /// The scrub that is under way, or the last one since the array was started.
    pub scrub: Option<ScrubStatus>,
    /// The rebuild stopped because blocks it needs can no longer be read.
    pub rebuild_halted: bool,
    /// The resync stopped because blocks it needs can no longer be read.
    pub resync_halted: bool,
    /// What was last asked of resync and rebuild.
    pub maintenance: Maintenance,
    /// More members are absent than redundancy covers; nothing is served.
    pub lost: bool,
    /// Where data of the array are lost because nothing was left to recover them from: byte offset and bytes, in order.
    /// They are answered with errors until they are written.
    pub bad_ranges: Vec<(u64, u64)>,
    /// Where blocks may have been recovered wrongly, because a member went out before parity was known to be right
    /// after a crash: byte offset and bytes, in order. The next start has to accept that.
    pub in_doubt: Vec<(u64, u64)>,
    /// Bytes of memory reserved for stripes.
    pub scratch_bytes: u64,
    /// As many of them as are in huge pages, as far as the kernel has any.
    pub scratch_huge_bytes: u64,
    /// What it has done.
    pub counters: Counters,
}

impl Array {
    /// A picture of the array now.
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

    /// The latencies of requests and of the members' I/Os since the start of the array. Puts together what every core
    /// has counted, which is a few hundred kilobytes: for explicit requests, not for every look at the status.
    #[must_use]
    pub fn latencies(&self) -> ArrayLatencies {
        let cores = self.shared.cores.iter().map(|core| &*core.times);
        put_together(cores, self.geometry.members())
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
