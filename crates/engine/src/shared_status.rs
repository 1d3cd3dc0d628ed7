//! What the data cores let the control plane see: counters and states, never waited for.
//!
//! Each counter has one writing core per array or is only ever added to; readers take them relaxed, because
//! a status is a picture, not a synchronization.

use std::collections::BTreeSet;
use std::ops::BitOr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use strake_block::{Extent, ExtentSource, IoErrorKind};
use strake_ondisk::{BadList, Consistency, Superblock};
use strake_raid::{Geometry, MemberState, Regions};
use strake_units::{Lba, MemberIndex, MemberSet, Name, Nanos, RegionIndex, Uuid};

use crate::events::{ArrayEvent, ArrayEventKind, EventRing};
use crate::histogram::CoreTimes;
use crate::pacing::Maintenance;
use crate::scrub::{ScrubState, SharedScrub};

mod errors;
mod scrub;
mod written;

use errors::MemberErrors;
use written::WrittenRegions;

/// A member as a status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its identity in the labels.
    pub uuid: Uuid,
    /// Where it was found, as the person would name it; empty when it is not here.
    pub path: String,
    /// Where the drive was found that is being filled to take its place; empty when there is none.
    pub replacement: String,
    /// Its state.
    pub state: MemberState,
    /// Why it left, when it did so since the array was started. The labels do not say.
    pub cause: Option<MemberCause>,
    /// Bytes of it that are out of date: what taking it back would copy, or what its rebuild still has to.
    pub stale_bytes: u64,
    /// What was counted since the array was started.
    pub health: MemberHealth,
}

/// Why a member is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberCause {
    /// The operator failed it.
    ByHand,
    /// An I/O failed like this, or its drive went away.
    Error(IoErrorKind),
}

impl MemberCause {
    /// For a person.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::ByHand => "failed by hand",
            Self::Error(kind) => kind.text(),
        }
    }
}

/// How a member's drive behaves, as counted since the array was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberHealth {
    /// Reads that met unreadable blocks.
    pub medium: u64,
    /// Reads after which the unreadable blocks were written again.
    pub repaired: u64,
    /// Reads that took too long, so that the rest of their stripe was read instead.
    pub slow: u64,
    /// I/Os that were abandoned.
    pub timeouts: u64,
    /// I/Os that failed in another way.
    pub device: u64,
    /// Half of the reads of the last seconds were at most this slow, on the core where they were slowest; 0 while too
    /// few were seen.
    pub read_p50: Nanos,
    /// The same for all but one in a hundred.
    pub read_p99: Nanos,
    /// Times that it was left out of reads because it was much slower than its peers.
    pub sit_outs: u64,
    /// It is left out now, on some core.
    pub sitting_out: bool,
}

/// What one core knows of one member. The core alone writes it.
#[derive(Default)]
pub(crate) struct MemberCounters {
    pub(crate) slow: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) read_p50: AtomicU64,
    pub(crate) read_p99: AtomicU64,
    pub(crate) sit_outs: AtomicU64,
    pub(crate) sitting_out: AtomicBool,
}

/// One core's counters.
#[derive(Default)]
pub(crate) struct CoreCounters {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
    pub(crate) resync_regions_left: AtomicU64,
    /// Regions of this core that a member being rebuilt lacks.
    pub(crate) rebuild_regions_left: AtomicU64,
    pub(crate) scratch_bytes: AtomicU64,
    /// As many of them as are in huge pages.
    pub(crate) scratch_huge_bytes: AtomicU64,
    /// Bytes of the array that the scrub compared with their redundancy here.
    pub(crate) scrub_checked: AtomicU64,
    /// Bytes of the array that it could compare with nothing.
    pub(crate) scrub_unchecked: AtomicU64,
    /// What this core's maintenance had to stop: [`HALTED_RESYNC`] and [`HALTED_REBUILD`].
    pub(crate) halted: AtomicU64,
    /// Members with I/Os of this core that have been outstanding for long, as bits.
    pub(crate) standing: AtomicU64,
    /// By slot.
    pub(crate) members: Vec<MemberCounters>,
    /// How long things take.
    pub(crate) times: Arc<CoreTimes>,
    /// Until when this core's clients count as there, in nanoseconds: `u64::MAX` while a request is not answered.
    pub(crate) clients_until: AtomicU64,
    /// Bands of maintenance that this core's clients allow each core, as the bits of an `f64`.
    pub(crate) window: AtomicU64,
}

/// In [`CoreCounters::halted`]: the resync.
pub(crate) const HALTED_RESYNC: u64 = 1;
/// In [`CoreCounters::halted`]: the rebuild.
pub(crate) const HALTED_REBUILD: u64 = 2;

/// Shared between an array's shards and its [`Array`](crate::Array) handle.
pub(crate) struct SharedStatus {
    pub(crate) cores: Vec<CoreCounters>,
    members: Mutex<Vec<MemberStatus>>,
    /// Per member: regions that it lacks.
    stale_regions: Vec<AtomicU64>,
    /// The last label that every live member holds.
    superblock: Mutex<Superblock>,
    /// Regions that were ever written.
    pub(crate) written: WrittenRegions,
    geometry: Geometry,
    regions: Regions,
    pub(crate) errors: MemberErrors,
    degraded_reads: AtomicU64,
    /// [`Maintenance`], packed.
    maintenance: AtomicU64,
    bad_blocks: Mutex<Arc<BadList>>,
    events: Mutex<EventRing>,
    /// Regions still to be copied to the drive that is to take a member's place.
    uncopied: AtomicU64,
    consistency_wanted: Mutex<Option<Consistency>>,
    generation: AtomicU64,
    /// Bits of `compat` that every label has to carry.
    marks: AtomicU64,
    in_doubt: Mutex<Vec<u32>>,
    lost: AtomicBool,
    /// Members that are known to have failed and that some shard may still use, as bits.
    failing: AtomicU64,
    /// Whether more members are stalled than the array can do without, as last reported.
    members_stalled: AtomicBool,
    scrub: Mutex<SharedScrub>,
    /// Number of the scrub that was begun last.
    scrub_number: AtomicU64,
    /// It continues.
    scrub_runs: AtomicBool,
    /// Members for which a replacement is under way, as bits.
    replacing: AtomicU64,
    /// Regions whose parity or copies are not yet known to be right. Changed once per region resynchronized.
    untrusted: Mutex<BTreeSet<u32>>,
}

impl SharedStatus {
    pub(crate) fn new(
        cores: usize,
        geometry: Geometry,
        regions: Regions,
        members: Vec<MemberStatus>,
        superblock: Superblock,
        untrusted: BTreeSet<u32>,
    ) -> Self {
        Self {
            cores: (0..cores)
                .map(|_| CoreCounters {
                    members: members.iter().map(|_| MemberCounters::default()).collect(),
                    // The place behind the last member is that of a drive that is to take a member's.
                    times: Arc::new(CoreTimes::new(geometry.members() + 1)),
                    ..CoreCounters::default()
                })
                .collect(),
            errors: MemberErrors::none(members.len()),
            stale_regions: members.iter().map(|_| AtomicU64::new(0)).collect(),
            generation: AtomicU64::new(superblock.generation),
            marks: AtomicU64::new(0),
            in_doubt: Mutex::default(),
            superblock: Mutex::new(superblock),
            members: Mutex::new(members),
            written: WrittenRegions::none(geometry, regions),
            geometry,
            regions,
            degraded_reads: AtomicU64::new(0),
            maintenance: AtomicU64::new(Maintenance::default().to_bits()),
            bad_blocks: Mutex::default(),
            events: Mutex::new(EventRing::default()),
            uncopied: AtomicU64::new(0),
            consistency_wanted: Mutex::new(None),
            lost: AtomicBool::new(false),
            failing: AtomicU64::new(0),
            members_stalled: AtomicBool::new(false),
            scrub: Mutex::new(SharedScrub::new(geometry)),
            scrub_number: AtomicU64::new(0),
            scrub_runs: AtomicBool::new(false),
            replacing: AtomicU64::new(0),
            untrusted: Mutex::new(untrusted),
        }
    }

    /// Members that are stalled for some core.
    pub(crate) fn standing(&self) -> MemberSet {
        // Together with the store in `show_standing`.
        let standing = self.cores.iter().map(|core| core.standing.load(SeqCst));
        standing.map(MemberSet::from_bits).fold(MemberSet::EMPTY, BitOr::bitor)
    }

    /// Members that have failed, until no shard uses them. They cannot be put out of use while the drives
    /// that are to record it are stalled, and count as absent nevertheless.
    pub(crate) fn failing(&self) -> MemberSet {
        MemberSet::from_bits(self.failing.load(SeqCst))
    }

    /// Records that `member` has failed. It leaves the set of stalled members, so a judgement of others loads
    /// [`standing`](Self::standing) before [`failing`](Self::failing).
    pub(crate) fn note_failing(&self, member: MemberIndex) {
        self.failing.fetch_or(MemberSet::of(member).bits(), SeqCst);
    }

    /// No shard uses these members now, or their failure was that of a drive that is no longer there.
    pub(crate) fn settle_failing(&self, members: MemberSet) {
        self.failing.fetch_and(!members.bits(), SeqCst);
    }

    /// Shows which members are stalled for `core`, and reports when that begins, or ceases, to be more than the array
    /// can do without, by `covered`: once for all cores.
    pub(crate) fn show_standing(
        &self,
        core: usize,
        members: MemberSet,
        covered: impl Fn(MemberSet) -> bool,
    ) {
        // Of two cores whose members come back at the same time, one has to see that the other's did: partner is the
        // load in `standing`.
        self.cores[core].standing.store(members.bits(), SeqCst);
        let common = !covered(self.standing());
        if self.members_stalled.swap(common, Relaxed) == common || self.lost.load(Relaxed) {
            return;
        }
        let (began, ended) = (ArrayEventKind::MembersStalled, ArrayEventKind::MembersStalledEnded);
        self.tell(None, if common { began } else { ended });
    }

    fn health(&self, at: usize) -> MemberHealth {
        let cores = || self.cores.iter().map(|core| &core.members[at]);
        let sum =
            |of: fn(&MemberCounters) -> &AtomicU64| cores().map(|m| of(m).load(Relaxed)).sum();
        let most = |of: fn(&MemberCounters) -> &AtomicU64| {
            Nanos(cores().map(|m| of(m).load(Relaxed)).max().unwrap_or(0))
        };
        MemberHealth {
            slow: sum(|m| &m.slow),
            timeouts: sum(|m| &m.timeouts),
            read_p50: most(|m| &m.read_p50),
            read_p99: most(|m| &m.read_p99),
            sit_outs: sum(|m| &m.sit_outs),
            sitting_out: cores().any(|m| m.sitting_out.load(Relaxed)),
            ..self.errors.of(at)
        }
    }

    pub(crate) fn count_degraded_reads(&self, count: u64) {
        self.degraded_reads.fetch_add(count, Relaxed);
    }

    pub(crate) fn degraded_reads(&self) -> u64 {
        self.degraded_reads.load(Relaxed)
    }

    /// What maintenance had to stop on some core.
    pub(crate) fn halted(&self) -> u64 {
        self.cores.iter().fold(0, |all, core| all | core.halted.load(Relaxed))
    }

    pub(crate) fn set_maintenance(&self, maintenance: Maintenance) {
        self.maintenance.store(maintenance.to_bits(), Relaxed);
    }

    /// The least window that cores with clients allow at `now`, if there are any.
    pub(crate) fn window(&self, now: Nanos) -> Option<f64> {
        let there = self.cores.iter().filter(|core| core.clients_until.load(Relaxed) > now.0);
        there.map(|core| f64::from_bits(core.window.load(Relaxed))).min_by(f64::total_cmp)
    }

    /// True while anything is left to resynchronize, rebuild or scrub on some core.
    pub(crate) fn maintains(&self) -> bool {
        self.scrub_runs.load(Relaxed) || self.repairs_redundancy()
    }

    /// True while anything is left to resynchronize or rebuild on some core.
    fn repairs_redundancy(&self) -> bool {
        self.cores.iter().any(|core| {
            core.resync_regions_left.load(Relaxed) + core.rebuild_regions_left.load(Relaxed) > 0
        })
    }

    pub(crate) fn maintenance(&self) -> Maintenance {
        Maintenance::from_bits(self.maintenance.load(Relaxed))
    }

    /// The list that every live member holds.
    pub(crate) fn set_bad_blocks(&self, list: Arc<BadList>) {
        *self.bad_blocks.lock().expect("a status writer panicked") = list;
    }

    pub(crate) fn bad_blocks(&self) -> Arc<BadList> {
        Arc::clone(&self.bad_blocks.lock().expect("a status writer panicked"))
    }

    /// Notes what happened. Called by the leader when a state changes, never per I/O.
    pub(crate) fn tell(&self, member: Option<MemberIndex>, kind: ArrayEventKind) {
        let mut events = self.events.lock().expect("a status writer panicked");
        events.push(ArrayEvent { member, kind });
    }

    pub(crate) fn drain_events(&self) -> Vec<ArrayEvent> {
        self.events.lock().expect("a status writer panicked").drain()
    }

    /// Bytes of one member in so many regions.
    pub(crate) fn member_bytes_of(&self, regions: u64) -> u64 {
        let strips = regions.saturating_mul(self.regions.stripes_per_region());
        let blocks = strips.saturating_mul(u64::from(self.geometry.strip_blocks()));
        blocks.min(self.geometry.member_blocks_used()) << self.geometry.block_size().shift()
    }

    pub(crate) fn name(&self) -> Name {
        self.superblock.lock().expect("a status writer panicked").name.clone()
    }

    /// More members are absent than redundancy covers: nothing more is served or recorded.
    pub(crate) fn set_lost(&self) {
        self.lost.store(true, Relaxed);
        self.change_scrub(ScrubState::Stopped);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }

    /// Regions in which blocks of members that are out may be recovered wrongly.
    pub(crate) fn set_in_doubt(&self, regions: Vec<u32>) {
        *self.in_doubt.lock().expect("a status writer panicked") = regions;
    }

    pub(crate) fn in_doubt(&self) -> Vec<u32> {
        self.in_doubt.lock().expect("a status writer panicked").clone()
    }

    /// Has every label from the next one on carry these bits of `compat` too.
    pub(crate) fn mark(&self, compat: u64) {
        self.marks.fetch_or(compat, Relaxed);
    }

    /// Bits of `compat` that every label has to carry.
    pub(crate) fn marks(&self) -> u64 {
        self.marks.load(Relaxed)
    }

    /// Begins to replace `member`; false when it is already being replaced.
    pub(crate) fn begin_replacing(&self, member: MemberIndex) -> bool {
        let before = self.replacing.fetch_or(MemberSet::of(member).bits(), Relaxed);
        !MemberSet::from_bits(before).contains(member)
    }

    pub(crate) fn end_replacing(&self, member: MemberIndex) {
        self.replacing.fetch_and(!MemberSet::of(member).bits(), Relaxed);
    }

    pub(crate) fn trust(&self, region: RegionIndex) {
        self.untrusted.lock().expect("a status writer panicked").remove(&region.0);
    }

    pub(crate) fn untrusted_regions(&self) -> BTreeSet<u32> {
        self.untrusted.lock().expect("a status writer panicked").clone()
    }

    /// The label that every live member holds by now.
    pub(crate) fn set_superblock(&self, superblock: &Superblock) {
        self.generation.store(superblock.generation, Relaxed);
        self.superblock.lock().expect("a status writer panicked").clone_from(superblock);
    }

    pub(crate) fn superblock(&self) -> Superblock {
        self.superblock.lock().expect("a status writer panicked").clone()
    }

    pub(crate) fn set_stale_regions(&self, member: MemberIndex, regions: u64) {
        self.stale_regions[member.at()].store(regions, Relaxed);
    }

    pub(crate) fn stale_regions(&self, member: MemberIndex) -> u64 {
        self.stale_regions[member.at()].load(Relaxed)
    }

    pub(crate) fn set_uncopied_regions(&self, regions: u64) {
        self.uncopied.store(regions, Relaxed);
    }

    pub(crate) fn uncopied_regions(&self) -> u64 {
        self.uncopied.load(Relaxed)
    }

    /// What the mode of consistency is to become; `None` when no change was requested since the start.
    pub(crate) fn consistency_wanted(&self) -> Option<Consistency> {
        *self.consistency_wanted.lock().expect("a status writer panicked")
    }

    pub(crate) fn set_consistency_wanted(&self, mode: Consistency) {
        *self.consistency_wanted.lock().expect("a status writer panicked") = Some(mode);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    pub(crate) fn members(&self) -> Vec<MemberStatus> {
        let mut members = self.members.lock().expect("a status writer panicked").clone();
        for (at, member) in members.iter_mut().enumerate() {
            member.health = self.health(at);
        }
        members
    }

    /// Changes a member's status. Called by the leader when a state changes, never per I/O.
    pub(crate) fn update_member(
        &self,
        member: MemberIndex,
        change: impl FnOnce(&mut MemberStatus),
    ) {
        change(&mut self.members.lock().expect("a status writer panicked")[member.at()]);
    }

    /// Changes all of them in one step for every reader. Called by the leader when a state changes, never per I/O.
    pub(crate) fn update_members(&self, change: impl FnOnce(&mut [MemberStatus])) {
        change(&mut self.members.lock().expect("a status writer panicked"));
    }
}

impl ExtentSource for SharedStatus {
    fn extent(&self, at: Lba, blocks_max: u64) -> Extent {
        self.written.extent(at, blocks_max)
    }
}
