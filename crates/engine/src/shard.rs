//! The part of an array on one core: the bands that it owns, the requests that it accepted, and its queues to the
//! members.
//!
//! A shard is driven by turns. A turn accepts new messages and requests, hands out spans, runs tasks, rings doorbells,
//! and sends messages to other shards. Time is an argument and there is no randomness, so a simulator can drive any
//! number of shards on one thread and replay them exactly.

mod address;
mod agreed;
mod bad;
mod bad_leader;
mod band_task;
mod bands;
mod build;
mod degraded_reads;
mod direct;
mod doubt;
mod driver;
mod execute;
mod install;
mod joint;
mod leader;
mod leader_tasks;
mod maintain;
mod members;
mod mend;
mod partial_writes;
mod peers;
mod rebuild;
mod reconfiguration;
mod redo;
mod regions;
mod replacement;
mod requests;
mod scratch;
mod scrub;
mod serve;
mod small;
mod stale;
mod wait;
mod workers;
mod write_task;

pub(crate) use build::{Link, ShardSpec, buffers_of};
pub(crate) use direct::read_batch;
pub(crate) use driver::drive;
pub(crate) use leader::{LeaderState, recorded, view_of};
pub(crate) use small::write_stripe;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use strake_block::{Buf, IoError, IoErrorKind, SgMut};
use strake_ondisk::PARTIAL_WRITE_BLOCKS_MAX;
use strake_raid::{Band, Geometry, Logged, MemberFacts, Regions, Sets, Spot};
use strake_reactor::Scheduler;
use strake_units::{MemberIndex, MemberSet, Nanos, PositionSet, RegionIndex, StripeIndex};

use self::agreed::AgreedStrips;
use self::bad::BadTable;
use self::bands::{Bands, WriteBatch};
use self::degraded_reads::DegradedReads;
use self::execute::Failed;
use self::leader::Leader;
use self::members::{Failure, Group, Members};
use self::partial_writes::PartialWrites;
use self::peers::SitOuts;
use self::rebuild::{RebuildTable, Window};
use self::redo::Redo;
use self::regions::RegionTable;
use self::requests::Requests;
use self::scratch::Scratch;
use self::scrub::ScrubTable;
use self::small::{ParityCache, Records, Smalls};
use self::wait::WaitQueue;
use self::workers::Workers;
use crate::message::{Change, FailReason, Fill, Origin, Peer, Span, SpanDone, ToLeader, View};
use crate::shared_status::{CoreCounters, SharedStatus};
use crate::trace::Stages;

/// A job of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Work on the band of this entry of the band table.
    Band(u32),
    /// Answer a small write with failed parts.
    Conclude { write: u32 },
    /// Record small writes as partial writes.
    Record,
    /// Flush every member for this request.
    Flush { request: u32 },
    /// Resync and rebuild.
    Maintain,
    /// Leader: write label changes.
    Labels,
    /// Leader: write bitmap changes.
    Bitmap,
}

pub(crate) struct Shard {
    pub(crate) core: u16,
    cores: u16,
    geometry: Geometry,
    regions: Regions,
    code: Option<strake_parity::Code>,
    /// The reconstruction matrices of this code that the shard used last.
    recoveries: Option<RefCell<strake_parity::Recoveries>>,
    merge: bool,
    steer: bool,
    /// A band of zeroes, shared by every write of zeroes.
    zeroes: Buf,
    now: Cell<Nanos>,
    hint: Cell<u8>,
    scheduler: Scheduler,
    workers: RefCell<Workers>,
    members: RefCell<Members>,
    /// The members to which I/Os may be sent directly until the next turn.
    sets: Cell<Sets>,
    /// Members that reads of this shard avoid.
    sits: RefCell<SitOuts>,
    bands: RefCell<Bands>,
    smalls: RefCell<Smalls>,
    /// The records of small writes in the redo log.
    records: RefCell<Records>,
    /// Small writes that must be recorded as partial writes before they write.
    partial_writes: RefCell<PartialWrites>,
    /// Number of tasks that record partial writes.
    recorders: Cell<usize>,
    /// Data and parities that small writes left in memory.
    parity_cache: RefCell<ParityCache>,
    degraded_reads: RefCell<DegradedReads>,
    requests: RefCell<Requests>,
    region_table: RefCell<RegionTable>,
    redo: RefCell<Redo>,
    /// Members whose stripes had every write of the last activation in its redo log. Parity of these stripes is
    /// trusted.
    replayed: MemberSet,
    rebuild: RefCell<RebuildTable>,
    scrub: RefCell<ScrubTable>,
    window: RefCell<Window>,
    /// Own regions to resynchronize, in order.
    untrusted: RefCell<VecDeque<RegionIndex>>,
    scratch: RefCell<Scratch>,
    bad: RefCell<BadTable>,
    /// Tasks waiting for a member to be out of use everywhere.
    views_waiting: RefCell<WaitQueue>,
    /// True until the first resync has finished, because copies of this array may differ.
    copies_may_differ: Cell<bool>,
    /// Strips whose copies are consistent although their region is not trusted yet.
    agreed: RefCell<AgreedStrips>,
    /// Number of unanswered spans sent to each other shard.
    remote_spans: RefCell<Vec<usize>>,
    /// Number of I/Os reserved for band tasks.
    task_ios: usize,
    maintaining: Cell<bool>,
    /// True if the array had maintenance work at the start of the present cycle of the pacer.
    maintained: Cell<bool>,
    /// The published state of clients: true if requests are in progress.
    clients_shown: Cell<bool>,
    stopping: Cell<bool>,
    /// Jobs of the leader, of maintenance and of recorders. Band tasks may wait for these jobs, so the jobs never wait
    /// for band tasks that have not started.
    urgent: RefCell<VecDeque<Job>>,
    /// Small writes with failed parts.
    concluding: RefCell<VecDeque<u32>>,
    /// Flushes to start; bands come from the band table instead.
    jobs: RefCell<VecDeque<Job>>,
    /// Parts of failed normal reads, which are sent to the owners of their bands.
    retries: RefCell<VecDeque<Span>>,
    /// Messages to each shard, including this shard, which are sent at the end of the turn.
    outbox: RefCell<Vec<VecDeque<Peer>>>,
    leader: Option<RefCell<Leader>>,
    shared: Arc<SharedStatus>,
}

impl Shard {
    fn open_group(&self) -> Group {
        self.members.borrow_mut().groups.open(self.scheduler.current())
    }

    fn counters(&self) -> &CoreCounters {
        &self.shared.cores[usize::from(self.core)]
    }

    fn post(&self, shard: u16, message: Peer) {
        self.outbox.borrow_mut()[usize::from(shard)].push_back(message);
    }

    #[inline]
    fn owner(&self, band: Band) -> u16 {
        if self.cores == 1 {
            return self.core;
        }
        self.regions.owner(self.regions.region_of(band.stripe), self.cores).0
    }

    /// Returns the members to which I/Os may be sent directly now.
    fn sets(&self) -> Sets {
        let members = self.members.borrow();
        let redo = self.redo.borrow();
        // The words of a torn block do not show whether the block is old or new.
        let words = redo.intends() && members.writes_whole_blocks();
        let facts = MemberFacts {
            sitting_out: self.sits.borrow().members(),
            logged: if words { Logged::Impaired } else { Logged::With(redo.logging()) },
            copies_may_differ: self.copies_may_differ.get(),
            write_blocks_max: PARTIAL_WRITE_BLOCKS_MAX,
            ..members.facts()
        };
        Sets::of(&self.geometry, &facts)
    }

    /// Restricts `sets` to a request to `spot`, as far as this shard knows the state of the stripe.
    fn sets_at(&self, sets: Sets, spot: &Spot) -> Sets {
        let region = self.regions.region_of(spot.place.stripe);
        let ours = self.regions.owner(region, self.cores).0 == self.core;
        if !ours || !self.region_table.borrow().trusted(region) {
            return sets.untrusted();
        }
        let lacks = |member: &MemberIndex| self.rebuild.borrow().lacks(*member, region);
        self.without_bad(sets, spot).lacking(sets.rebuilding().iter().filter(lacks).collect())
    }

    /// True if no new work may start.
    fn stopping(&self) -> bool {
        self.stopping.get() || self.shared.is_lost()
    }

    /// Returns a value that changes with each read, so that copies share the load.
    fn copy_hint(&self) -> u8 {
        self.hint.set(self.hint.get().wrapping_add(1));
        self.hint.get()
    }

    fn ask_write_intent(&self, region: RegionIndex) {
        self.post(0, Peer::Lead(ToLeader::Intend { from: self.core, region }));
    }

    /// Reports a member that may no longer be used to the leader. The report precedes this shard's
    /// [`ToLeader::Applied`]. Before every shard has sent this message, no member is published as out and no drive is
    /// accepted for its slot. Therefore the leader never attributes the report to the next drive.
    fn report(&self, member: MemberIndex, cause: IoErrorKind) {
        let members = self.members.borrow();
        if members.view(member) != View::Absent && !members.paired.is_retired(member) {
            let copied = members.paired.copied().is_some();
            if member.at() < self.geometry.members() {
                self.shared.note_failing(member);
            }
            let reason = FailReason::Io { cause, copied };
            self.post(0, Peer::Lead(ToLeader::Change(Change::Fail { member, reason })));
        }
    }

    /// Reports a failed I/O, unless its device has been put out of use since. The failure would not concern the present
    /// device.
    fn blame(&self, member: MemberIndex, failure: Failure) {
        if !failure.former {
            if member.at() < self.geometry.members() {
                self.shared.errors.count_device(member);
            }
            self.report(member, failure.kind);
        }
    }

    /// Classifies one failure as `execute` does.
    fn classify(&self, stripe: StripeIndex, position: u8, failure: Failure) -> Failed {
        let mut failed = Failed::default();
        self.note_failure(&mut failed, stripe, position, failure);
        failed
    }

    fn position_of_strip(&self, stripe: StripeIndex, strip: u8) -> u8 {
        let k = self.geometry.data_strips();
        let role = if strip < k {
            strake_raid::Role::Data { strip, copy: 0 }
        } else {
            strake_raid::Role::Parity { index: strip - k }
        };
        self.geometry.position(stripe, role)
    }

    /// Answers the sender of the work, which spent its time in `stages`.
    fn finish(
        &self,
        origin: Origin,
        result: Result<(), IoError>,
        data: Option<SgMut>,
        stages: &Stages,
    ) {
        match origin {
            Origin::Maintenance => self.window.borrow_mut().back(self.now.get(), result),
            Origin::Host { shard, request } if shard == self.core => {
                self.requests.borrow_mut().span_back(request, result, data, stages);
            }
            Origin::Host { shard, request } => {
                let stages = *stages;
                self.post(shard, Peer::Done(SpanDone { request, result, data, stages }));
            }
        }
    }

    /// True if a zeroing or deallocating write has no work: the region was never written, only a part of a band would
    /// be deallocated, or deallocation on the members does not guarantee zeroes.
    fn may_skip(&self, band: Band, batch: &WriteBatch) -> bool {
        if batch.items.iter().any(|item| matches!(item.fill, Fill::Data(_))) {
            return false;
        }
        if !self.bad_positions(band, strake_raid::hull(&batch.segments)).is_empty() {
            // The write repairs bad blocks. A partial band that is deallocated stays unchanged, as without bad blocks.
            return matches!(batch.items[0].fill, Fill::Deallocate) && !self.covers(batch);
        }
        let region = self.regions.region_of(band.stripe);
        if !self.shared.written.contains(region) && self.region_table.borrow().trusted(region) {
            return true;
        }
        let deallocates = matches!(batch.items[0].fill, Fill::Deallocate);
        deallocates && !(self.covers(batch) && self.members.borrow().deallocate_zeroes())
    }

    /// Waits until the members at `positions` are out of use on every shard, or were at some time after `since`, so
    /// that no read returns their stale blocks. Fails if the array cannot continue without the members.
    async fn await_out_of_use(
        &self,
        stripe: StripeIndex,
        positions: PositionSet,
        since: u64,
    ) -> Result<(), IoError> {
        for position in positions {
            self.await_member_out(self.geometry.member(stripe, position), since).await?;
        }
        Ok(())
    }

    /// Returns the positions whose member was swapped with its replacement after `since` without going out of use. The
    /// replacement has all blocks except blocks that were not written to the member.
    fn handed_over(&self, stripe: StripeIndex, positions: PositionSet, since: u64) -> PositionSet {
        let members = self.members.borrow();
        let handed = |position: &u8| {
            members.paired.changed_hands(self.geometry.member(stripe, *position), since)
        };
        positions.iter().filter(handed).collect()
    }

    /// Waits until `member` is out of use on every shard, or was out of use after `since` and then replaced.
    async fn await_member_out(&self, member: MemberIndex, since: u64) -> Result<(), IoError> {
        poll_fn(|_| {
            if self.members.borrow().was_out_of_use(member, since) || self.shared.is_lost() {
                return Poll::Ready(());
            }
            self.views_waiting.borrow_mut().register();
            Poll::Pending
        })
        .await;
        if self.shared.is_lost() { Err(IoError::new(IoErrorKind::Lost)) } else { Ok(()) }
    }

    fn maintenance_ended(&self) {
        self.maintaining.set(false);
    }

    /// Starts resync, rebuild and scrub if there is work.
    fn start_maintenance(&self) {
        let urgent = self.redundancy_wanted();
        if !(urgent || self.scrub.borrow().is_wanted()) || self.stopping() {
            return;
        }
        if !self.maintaining.replace(true) {
            self.urgent.borrow_mut().push_back(Job::Maintain);
        } else if urgent {
            // The scrub yields to more urgent work.
            self.window.borrow_mut().look_again();
        }
    }

    /// True if a resync or rebuild has work.
    fn redundancy_wanted(&self) -> bool {
        !self.untrusted.borrow().is_empty() || self.next_to_rebuild().is_some()
    }

    /// Stops the start of maintenance and the acceptance of requests.
    fn quiesce(&self) {
        self.stopping.set(true);
        self.window.borrow_mut().look_again();
        self.requests.borrow_mut().refuse(IoErrorKind::Aborted);
    }

    /// True if no work is waiting or in progress.
    fn is_quiet(&self) -> bool {
        self.bands.borrow().is_idle()
            && self.no_small_writes()
            && self.recorders.get() == 0
            && self.requests.borrow().live() == 0
            && !self.maintaining.get()
            && self.jobs.borrow().is_empty()
            && self.urgent.borrow().is_empty()
    }

    /// Publishes the number of accepted requests.
    fn publish_counts(&self) {
        let counts = self.requests.borrow().counts;
        let counters = self.counters();
        counters.reads.store(counts.reads, Relaxed);
        counters.writes.store(counts.writes, Relaxed);
        counters.read_bytes.store(counts.read_bytes, Relaxed);
        counters.write_bytes.store(counts.write_bytes, Relaxed);
    }
}
