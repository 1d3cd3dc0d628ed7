//! Counters and states that the data cores publish to the control plane. Data cores never wait for readers.
//!
//! Each counter has one writing core per array, or is only incremented. Readers use relaxed loads, because a status
//! does not synchronize anything.

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
use crate::trace::TraceRing;

mod errors;
mod scrub;
mod written;

use errors::MemberErrors;
use written::WrittenRegions;

/// The status of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Identity of the member in the labels.
    pub uuid: Uuid,
    /// Path of the drive, as the operator would write it; empty without a drive.
    pub path: String,
    /// Path of the replacement that is being filled; empty without a replacement.
    pub replacement: String,
    /// State of the member.
    pub state: MemberState,
    /// Why the member went out since the array was started. The labels do not record the cause.
    pub cause: Option<MemberCause>,
    /// Bytes of the member that are out of date: the bytes that a re-add would copy, or that a rebuild still has to
    /// copy.
    pub stale_bytes: u64,
    /// Counters since the array was started.
    pub health: MemberHealth,
}

/// Why a member is out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberCause {
    /// The operator failed the member.
    ByHand,
    /// An I/O failed with this error, or the drive was removed.
    Error(IoErrorKind),
}

impl MemberCause {
    /// Text for the operator.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::ByHand => "failed by hand",
            Self::Error(kind) => kind.text(),
        }
    }
}

/// Counters of a member's drive since the array was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberHealth {
    /// Reads that failed at unreadable blocks.
    pub medium: u64,
    /// Reads after which the engine rewrote the unreadable blocks.
    pub repaired: u64,
    /// Reads that took too long, so that the engine read the rest of the stripe instead.
    pub slow: u64,
    /// I/Os that were abandoned.
    pub timeouts: u64,
    /// I/Os that failed in another way.
    pub device: u64,
    /// Median latency of recent reads, on the core with the largest median; 0 with too few reads.
    pub read_p50: Nanos,
    /// 99th percentile of the latency of recent reads, on the core with the largest percentile; 0 with too few reads.
    pub read_p99: Nanos,
    /// Number of times that reads began to avoid the member because it was much slower than its peers.
    pub sit_outs: u64,
    /// True while reads avoid the member on some core.
    pub sitting_out: bool,
}

/// Counters of one core about one member. Only this core writes the counters.
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
    /// The part of `scratch_bytes` in huge pages.
    pub(crate) scratch_huge_bytes: AtomicU64,
    /// Bytes of the array that the scrub compared with their redundancy on this core.
    pub(crate) scrub_checked: AtomicU64,
    /// Bytes of the array that the scrub could not compare with any redundancy.
    pub(crate) scrub_unchecked: AtomicU64,
    /// Maintenance that this core halted: [`HALTED_RESYNC`] and [`HALTED_REBUILD`].
    pub(crate) halted: AtomicU64,
    /// Members that are stalled for this core, as bits.
    pub(crate) standing: AtomicU64,
    /// By slot.
    pub(crate) members: Vec<MemberCounters>,
    /// Latencies of requests and of member I/Os.
    pub(crate) times: Arc<CoreTimes>,
    /// Recorded requests.
    pub(crate) traces: Arc<TraceRing>,
    /// Time in nanoseconds until which clients of this core count as active; `u64::MAX` while a request is outstanding.
    pub(crate) clients_until: AtomicU64,
    /// Maintenance bands that the clients of this core allow for each core, as the bits of an `f64`.
    pub(crate) window: AtomicU64,
}

/// Bit of the resync in [`CoreCounters::halted`].
pub(crate) const HALTED_RESYNC: u64 = 1;
/// Bit of the rebuild in [`CoreCounters::halted`].
pub(crate) const HALTED_REBUILD: u64 = 2;

/// Shared between an array's shards and its [`Array`](crate::Array) handle.
pub(crate) struct SharedStatus {
    pub(crate) cores: Vec<CoreCounters>,
    members: Mutex<Vec<MemberStatus>>,
    /// Number of regions that each member lacks.
    stale_regions: Vec<AtomicU64>,
    /// The newest label that every live member has.
    superblock: Mutex<Superblock>,
    /// Regions that were ever written.
    pub(crate) written: WrittenRegions,
    geometry: Geometry,
    regions: Regions,
    pub(crate) errors: MemberErrors,
    degraded_reads: AtomicU64,
    /// The settings of [`Maintenance`], packed into one word.
    maintenance: AtomicU64,
    bad_blocks: Mutex<Arc<BadList>>,
    events: Mutex<EventRing>,
    /// Regions that are not yet copied to a replacement.
    uncopied: AtomicU64,
    consistency_wanted: Mutex<Option<Consistency>>,
    generation: AtomicU64,
    /// Bits of `compat` that every label must contain.
    marks: AtomicU64,
    in_doubt: Mutex<Vec<u32>>,
    lost: AtomicBool,
    /// Failed members that some shard may still use, as bits.
    failing: AtomicU64,
    /// True if the last report said that more members are stalled than the array can do without.
    members_stalled: AtomicBool,
    scrub: Mutex<SharedScrub>,
    /// Number of the scrub that was started last.
    scrub_number: AtomicU64,
    /// True while the scrub is running.
    scrub_runs: AtomicBool,
    /// Members with a replacement in progress, as bits.
    replacing: AtomicU64,
    /// Regions whose parity or copies may be inconsistent. Each resynchronized region changes this set once.
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
                    // The entry after the last member belongs to a replacement.
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

    /// Members that are stalled for at least one core.
    pub(crate) fn standing(&self) -> MemberSet {
        // Pairs with the store in `show_standing`.
        let standing = self.cores.iter().map(|core| core.standing.load(SeqCst));
        standing.map(MemberSet::from_bits).fold(MemberSet::EMPTY, BitOr::bitor)
    }

    /// Failed members that some shard may still use. The labels cannot record these members as out while the other
    /// drives are stalled. The members count as absent nevertheless.
    pub(crate) fn failing(&self) -> MemberSet {
        MemberSet::from_bits(self.failing.load(SeqCst))
    }

    /// Records that `member` has failed. The member leaves the set of stalled members. Therefore a caller that needs
    /// both sets must load [`standing`](Self::standing) before [`failing`](Self::failing).
    pub(crate) fn note_failing(&self, member: MemberIndex) {
        self.failing.fetch_or(MemberSet::of(member).bits(), SeqCst);
    }

    /// Removes `members` from the failing members: no shard uses them any longer, or the failure concerned an earlier
    /// drive.
    pub(crate) fn settle_failing(&self, members: MemberSet) {
        self.failing.fetch_and(!members.bits(), SeqCst);
    }

    /// Publishes the members that are stalled for `core`. Reports once for all cores when the array can no longer do
    /// without the stalled members according to `covered`, and when it can again.
    pub(crate) fn show_standing(
        &self,
        core: usize,
        members: MemberSet,
        covered: impl Fn(MemberSet) -> bool,
    ) {
        // If the members of two cores answer again at the same time, at least one core must see the change of the other
        // core. Pairs with the load in `standing`.
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

    /// Maintenance that is halted on at least one core.
    pub(crate) fn halted(&self) -> u64 {
        self.cores.iter().fold(0, |all, core| all | core.halted.load(Relaxed))
    }

    pub(crate) fn set_maintenance(&self, maintenance: Maintenance) {
        self.maintenance.store(maintenance.to_bits(), Relaxed);
    }

    /// The minimum of the windows of all cores with clients at `now`; `None` without clients.
    pub(crate) fn window(&self, now: Nanos) -> Option<f64> {
        let there = self.cores.iter().filter(|core| core.clients_until.load(Relaxed) > now.0);
        there.map(|core| f64::from_bits(core.window.load(Relaxed))).min_by(f64::total_cmp)
    }

    /// True while some core has work of a resync, rebuild or scrub.
    pub(crate) fn maintains(&self) -> bool {
        self.scrub_runs.load(Relaxed) || self.repairs_redundancy()
    }

    /// True while some core has work of a resync or rebuild.
    fn repairs_redundancy(&self) -> bool {
        self.cores.iter().any(|core| {
            core.resync_regions_left.load(Relaxed) + core.rebuild_regions_left.load(Relaxed) > 0
        })
    }

    pub(crate) fn maintenance(&self) -> Maintenance {
        Maintenance::from_bits(self.maintenance.load(Relaxed))
    }

    /// Publishes the list of bad blocks that every live member has.
    pub(crate) fn set_bad_blocks(&self, list: Arc<BadList>) {
        *self.bad_blocks.lock().expect("a status writer panicked") = list;
    }

    pub(crate) fn bad_blocks(&self) -> Arc<BadList> {
        Arc::clone(&self.bad_blocks.lock().expect("a status writer panicked"))
    }

    /// Records an event. The leader calls this function when a state changes, never for an I/O.
    pub(crate) fn tell(&self, member: Option<MemberIndex>, kind: ArrayEventKind) {
        let mut events = self.events.lock().expect("a status writer panicked");
        events.push(ArrayEvent { member, kind });
    }

    pub(crate) fn drain_events(&self) -> Vec<ArrayEvent> {
        self.events.lock().expect("a status writer panicked").drain()
    }

    /// Bytes of one member in `regions` regions.
    pub(crate) fn member_bytes_of(&self, regions: u64) -> u64 {
        let strips = regions.saturating_mul(self.regions.stripes_per_region());
        let blocks = strips.saturating_mul(u64::from(self.geometry.strip_blocks()));
        blocks.min(self.geometry.member_blocks_used()) << self.geometry.block_size().shift()
    }

    pub(crate) fn name(&self) -> Name {
        self.superblock.lock().expect("a status writer panicked").name.clone()
    }

    /// Records that the array has failed: more members are absent than the level tolerates, and I/O stops.
    pub(crate) fn set_lost(&self) {
        self.lost.store(true, Relaxed);
        self.change_scrub(ScrubState::Stopped);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }

    /// Publishes the regions in which blocks of members that are out may be reconstructed wrongly.
    pub(crate) fn set_in_doubt(&self, regions: Vec<u32>) {
        *self.in_doubt.lock().expect("a status writer panicked") = regions;
    }

    pub(crate) fn in_doubt(&self) -> Vec<u32> {
        self.in_doubt.lock().expect("a status writer panicked").clone()
    }

    /// Adds bits of `compat` that every later label must contain.
    pub(crate) fn mark(&self, compat: u64) {
        self.marks.fetch_or(compat, Relaxed);
    }

    /// Bits of `compat` that every label must contain.
    pub(crate) fn marks(&self) -> u64 {
        self.marks.load(Relaxed)
    }

    /// Records the start of a replacement of `member`. Returns false if a replacement is already in progress.
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

    /// Publishes the label that every live member has.
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

    /// The requested consistency mode; `None` without a change since the start.
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

    /// Changes the status of a member. The leader calls this function when a state changes, never for an I/O.
    pub(crate) fn update_member(
        &self,
        member: MemberIndex,
        change: impl FnOnce(&mut MemberStatus),
    ) {
        change(&mut self.members.lock().expect("a status writer panicked")[member.at()]);
    }

    /// Changes the status of all members atomically for readers. The leader calls this function when a state changes,
    /// never for an I/O.
    pub(crate) fn update_members(&self, change: impl FnOnce(&mut [MemberStatus])) {
        change(&mut self.members.lock().expect("a status writer panicked"));
    }
}

impl ExtentSource for SharedStatus {
    fn extent(&self, at: Lba, blocks_max: u64) -> Extent {
        self.written.extent(at, blocks_max)
    }
}
