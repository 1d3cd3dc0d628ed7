//! One core's part of an array: the bands it owns, the requests that came in on it, its queues to the members.
//!
//! A shard is driven by turns: take in what has arrived, hand out spans, run tasks, ring doorbells, send what
//! has to go to other shards. Time comes in as an argument and there is no randomness, so a simulator can
//! drive any number of shards on one thread and replay them exactly.

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
mod parts;
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

pub(crate) use build::{Link, ShardSpec};
pub(crate) use direct::read_batch;
pub(crate) use driver::drive;
pub(crate) use leader::{LeaderState, recorded, view_of};
pub(crate) use members::{Pairing, SharedDevice};
pub(crate) use redo::Roll;

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
use self::small::{ParityCache, Smalls};
use self::wait::WaitQueue;
use self::workers::Workers;
use crate::message::{Change, FailReason, Fill, Origin, Peer, Span, SpanDone, ToLeader, View};
use crate::shared_status::{CoreCounters, SharedStatus};

/// What a task slot is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Work on the band of this entry of the band table.
    Band(u32),
    /// Answer a small write of which parts failed.
    Conclude { write: u32 },
    /// Put small writes on record as partial writes.
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
    /// The recoveries of that code that this shard was last in need of.
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
    /// What may be sent to members directly until the next turn.
    sets: Cell<Sets>,
    /// Members that reads of this shard avoid.
    sits: RefCell<SitOuts>,
    bands: RefCell<Bands>,
    smalls: RefCell<Smalls>,
    /// Small writes that are to be on record as partial writes before they write.
    partial_writes: RefCell<PartialWrites>,
    /// Tasks that put them there.
    recorders: Cell<usize>,
    /// What small writes left behind.
    parity_cache: RefCell<ParityCache>,
    degraded_reads: RefCell<DegradedReads>,
    requests: RefCell<Requests>,
    region_table: RefCell<RegionTable>,
    redo: RefCell<Redo>,
    /// Members whose stripes had every write of the last activation in its redo log: parity is trusted
    /// there.
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
    /// Copies of this array may disagree somewhere until the first resync is through.
    copies_may_differ: Cell<bool>,
    /// Where they agree although their region is not trusted yet.
    agreed: RefCell<AgreedStrips>,
    /// Spans sent to each other shard and not answered.
    remote_spans: RefCell<Vec<usize>>,
    /// I/O places kept for band tasks.
    task_ios: usize,
    maintaining: Cell<bool>,
    /// There was something to maintain in the array when a cycle of the pace began.
    maintained: Cell<bool>,
    /// What the shared status says about requests here: there are some.
    clients_shown: Cell<bool>,
    stopping: Cell<bool>,
    /// Jobs of the leader, of maintenance and of recorders: band tasks may wait for them, so they never wait for band
    /// tasks that have not begun.
    urgent: RefCell<VecDeque<Job>>,
    /// Small writes of which parts failed.
    concluding: RefCell<VecDeque<u32>>,
    /// Flushes to start; bands come from the band table instead.
    jobs: RefCell<VecDeque<Job>>,
    /// Parts of clean reads that failed and go to their owners instead.
    retries: RefCell<VecDeque<Span>>,
    /// Messages to each shard (also to ourselves), sent at the end of the turn.
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

    fn owner(&self, band: Band) -> u16 {
        if self.cores == 1 {
            return self.core;
        }
        self.regions.owner(self.regions.region_of(band.stripe), self.cores).0
    }

    /// What may be sent to members directly now.
    fn sets(&self) -> Sets {
        let members = self.members.borrow();
        let redo = self.redo.borrow();
        // Of a block that is torn no word tells the age.
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

    /// What of `sets` holds for a request to `spot`, as far as this shard knows: of the stripes of others only that.
    fn sets_at(&self, sets: Sets, spot: &Spot) -> Sets {
        let region = self.regions.region_of(spot.place.stripe);
        let ours = self.regions.owner(region, self.cores).0 == self.core;
        if !ours || !self.region_table.borrow().trusted(region) {
            return sets.untrusted();
        }
        let lacks = |member: &MemberIndex| self.rebuild.borrow().lacks(*member, region);
        self.without_bad(sets, spot).lacking(sets.rebuilding().iter().filter(lacks).collect())
    }

    /// True when nothing new is to be begun.
    fn stopping(&self) -> bool {
        self.stopping.get() || self.shared.is_lost()
    }

    /// Changes from read to read, so that copies share the load.
    fn copy_hint(&self) -> u8 {
        self.hint.set(self.hint.get().wrapping_add(1));
        self.hint.get()
    }

    fn ask_write_intent(&self, region: RegionIndex) {
        self.post(0, Peer::Lead(ToLeader::Intend { from: self.core, region }));
    }

    /// Tells the leader that a member may no longer be used. The report is ahead of this shard's [`ToLeader::Applied`],
    /// and before that has come from every shard, no member is shown as out and no drive is accepted for its place: the
    /// leader never takes the report for one about the next drive.
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

    /// Reports a failed I/O, unless the device it was sent to has been put out of use since: it says nothing about
    /// the one that may be there now.
    fn blame(&self, member: MemberIndex, failure: Failure) {
        if !failure.former {
            if member.at() < self.geometry.members() {
                self.shared.errors.count_device(member);
            }
            self.report(member, failure.kind);
        }
    }

    /// Sorts one failure as `execute` does.
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

    /// Answers the sender of the work.
    fn finish(&self, origin: Origin, result: Result<(), IoError>, data: Option<SgMut>) {
        match origin {
            Origin::Maintenance => self.window.borrow_mut().back(self.now.get(), result),
            Origin::Host { shard, request } if shard == self.core => {
                self.requests.borrow_mut().span_back(request, result, data);
            }
            Origin::Host { shard, request } => {
                self.post(shard, Peer::Done(SpanDone { request, result, data }))
            }
        }
    }

    /// True when a zeroing or deallocating write has nothing to do: the region was never written, or only a
    /// part of a band would be deallocated, or the members' deallocation promises nothing.
    fn may_skip(&self, band: Band, batch: &WriteBatch) -> bool {
        if batch.items.iter().any(|item| matches!(item.fill, Fill::Data(_))) {
            return false;
        }
        if !self.bad_positions(band, strake_raid::hull(&batch.segments)).is_empty() {
            // They are good when that is done; but a part of a band that is deallocated is left alone as before.
            return matches!(batch.items[0].fill, Fill::Deallocate) && !self.covers(batch);
        }
        let region = self.regions.region_of(band.stripe);
        if !self.shared.written.contains(region) && self.region_table.borrow().trusted(region) {
            return true;
        }
        let deallocates = matches!(batch.items[0].fill, Fill::Deallocate);
        deallocates && !(self.covers(batch) && self.members.borrow().deallocate_zeroes())
    }

    /// Waits until the members at `positions` are out of use on every shard, or have been since the moment `since`, so
    /// that no read returns their stale blocks; fails when the array cannot go on without them.
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

    /// The positions of `positions` whose member got another device after `since` without going out of use: the
    /// replacement, which has all blocks except those that were not written to the member.
    fn handed_over(&self, stripe: StripeIndex, positions: PositionSet, since: u64) -> PositionSet {
        let members = self.members.borrow();
        let handed = |position: &u8| {
            members.paired.changed_hands(self.geometry.member(stripe, *position), since)
        };
        positions.iter().filter(handed).collect()
    }

    /// Waits until `member` is out of use on every shard, or has been since the moment `since` and was replaced.
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

    /// Starts resync, rebuild and scrub if there is any to do.
    fn start_maintenance(&self) {
        let urgent = self.redundancy_wanted();
        if !(urgent || self.scrub.borrow().is_wanted()) || self.stopping() {
            return;
        }
        if !self.maintaining.replace(true) {
            self.urgent.borrow_mut().push_back(Job::Maintain);
        } else if urgent {
            // The scrub makes way.
            self.window.borrow_mut().look_again();
        }
    }

    /// True when there is something to resynchronize or rebuild.
    fn redundancy_wanted(&self) -> bool {
        !self.untrusted.borrow().is_empty() || self.next_to_rebuild().is_some()
    }

    /// Begins no maintenance and accepts no requests from now on.
    fn quiesce(&self) {
        self.stopping.set(true);
        self.window.borrow_mut().look_again();
        self.requests.borrow_mut().refuse(IoErrorKind::Aborted);
    }

    /// True when nothing is waiting or in flight.
    fn is_quiet(&self) -> bool {
        self.bands.borrow().is_idle()
            && self.no_small_writes()
            && self.recorders.get() == 0
            && self.requests.borrow().live() == 0
            && !self.maintaining.get()
            && self.jobs.borrow().is_empty()
            && self.urgent.borrow().is_empty()
    }

    /// Shows how many requests came in.
    fn publish_counts(&self) {
        let counts = self.requests.borrow().counts;
        let counters = self.counters();
        counters.reads.store(counts.reads, Relaxed);
        counters.writes.store(counts.writes, Relaxed);
        counters.read_bytes.store(counts.read_bytes, Relaxed);
        counters.write_bytes.store(counts.write_bytes, Relaxed);
    }
}
