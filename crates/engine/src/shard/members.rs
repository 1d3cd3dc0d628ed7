//! The members as one shard uses them: its queues, the permitted use of each member, and every I/O in progress.
//!
//! Tasks issue I/Os in groups and wait for a whole group. A normal host read needs no task: it is issued for its
//! request and answered directly from the completion.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use strake_block::{
    Completion, CompletionBatch, DeallocateReads, DeviceError, DeviceKind, Io, IoError,
    IoErrorKind, IoQueue, Op, SgMut, Token, VolatileCache,
};
use strake_raid::MemberFacts;
use strake_units::{BlockSize, CoreIndex, LbaRange, MemberIndex, MemberSet, Nanos};

use super::address::DataArea;
use crate::array::IoLimits;
use crate::histogram::CoreTimes;
use crate::limits::{MEMBER_DEPTH, TIMEOUT_CHECK};
use crate::message::View;
use crate::shared_device::{Hung, SharedDevice};
use crate::slab::Slab;

mod back;
mod direct;
mod groups;
mod issue;
mod latency;
mod overdue;
mod part;
mod parts;
mod replacement;
#[cfg(test)]
mod tests;
mod token;

pub(crate) use back::{PartBack, PartTaken, Takers};
pub(crate) use direct::{DirectRead, Unplaced};
pub(crate) use groups::Group;
pub(crate) use latency::Percentiles;
pub(crate) use overdue::Overdue;
pub(crate) use part::{Part, Sent};
pub(super) use parts::{Out, PartSet, Strays};
pub(crate) use replacement::Pair;
pub(crate) use token::{PARTS_NAMED_MAX, PartIo, Whole, next as next_generation};

use direct::Direct;
use groups::Groups;
use latency::Latency;

/// One issued I/O of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IoSlot(u32);

/// The recipient of the completion of an I/O.
#[derive(Debug)]
enum Waiter {
    Group(u32),
    /// A normal read of host request `request`, from `range` of the array.
    Host {
        request: u32,
        range: LbaRange,
    },
    /// A part of a small write or of a degraded read, see [`part`].
    Part(PartIo),
    /// The I/O timed out, and its task has not noticed yet.
    Late,
    /// The I/O timed out. Nothing waits for the I/O, but the device still owns the buffers.
    Abandoned,
}

impl Waiter {
    /// True if the waiter can continue without a slow read.
    const fn is_hasty(&self) -> bool {
        matches!(self, Self::Host { .. } | Self::Part(PartIo { whole: Whole::Read, .. }))
    }
}

/// The failure of a part; [`Members::failure`] evaluates it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub(crate) kind: IoErrorKind,
    /// The index of the device at the time of the failure.
    pub(crate) place: MemberIndex,
    /// [`Members::membership_epoch`] when the I/O was issued.
    pub(crate) issued: u64,
    /// True if the device had lost its slot at that time.
    pub(crate) former: bool,
}

/// The failure of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The error of the device.
    pub(crate) kind: IoErrorKind,
    /// True if the I/O has not failed but is slow. The waiter need not wait if it has an alternative.
    pub(crate) slow: bool,
    /// True if the device was put out of use, or was replaced by another device, after the I/O was issued. The failure
    /// then does not concern the present device.
    pub(crate) former: bool,
    /// The present index of the device, which may have been swapped with its replacement since the I/O was issued.
    pub(crate) place: MemberIndex,
}

struct Inflight {
    waiter: Waiter,
    /// The index of the device that has the I/O.
    member: MemberIndex,
    /// The index to which the I/O was issued.
    asked: MemberIndex,
    /// Counts reuses of the entry, so that a late completion is not attributed to a later I/O.
    generation: u32,
    /// The time at which the device got the I/O. Time in the backlog does not count against the device.
    started: Option<Nanos>,
    /// True for a read.
    read: bool,
    /// True if the waiter can continue without the I/O when it is slow.
    hasty: bool,
    /// True if the waiter continued without the I/O.
    passed: bool,
    /// [`Members::membership_epoch`] when the I/O was issued.
    issued: u64,
    /// The I/O of the same write to the other device of a pair, see [`Pairing`](crate::message::Pairing).
    replacement: Option<IoSlot>,
    done: Option<(Op, Result<(), IoError>)>,
}

/// The state of a member on a shard, and the device that is open for the member.
///
/// | Event | What changes |
/// |---|---|
/// | a device is opened for the place | the device before is closed; `opened`; `hung`, `slow`, `timeouts` start again |
/// | the member goes out of use here | `view`, `left`; `settled` and `former_hung` are false |
/// | it is out of use on every shard | `settled`; the device is closed |
/// | it comes into use | `view`, `joined` |
/// | a core abandons the device | `hung_for_some`; on other cores `hung` at their next look |
/// | a device that hung is closed | `former_hung` |
/// | a member and its replacement change places | all but `view`, `settled`, `left`, `joined` changes, too |
struct Member {
    view: View,
    /// True if every shard has applied the last change to `View::Absent`.
    settled: bool,
    queue: Option<Box<dyn IoQueue>>,
    /// The identity of the device, as in [`DeviceInfo::identity`](strake_block::DeviceInfo).
    identity: String,
    area: DataArea,
    outstanding: u32,
    backlog: VecDeque<Io>,
    /// Number of outstanding deallocations, at most [`DEALLOCATE_DEPTH`](crate::limits::DEALLOCATE_DEPTH).
    deallocating: u32,
    /// Further deallocations. They wait here so that they delay nothing and their time limits do not start.
    deallocations: VecDeque<(Token, LbaRange)>,
    /// True if the device let an I/O of some core reach its time limit, as of the last check. The device gets no more
    /// I/Os.
    hung: bool,
    /// Like `hung`, but current, and shared by all cores that have the device.
    hung_for_some: Hung,
    /// True if the previous device was unresponsive.
    former_hung: bool,
    /// Time limit of one I/O.
    limit: Nanos,
    latency: Latency,
    /// Number of slow I/Os without which waiters continued, and of abandoned I/Os.
    slow: u64,
    timeouts: u64,
    /// [`Members::membership_epoch`] when the member was last put out of use.
    left: u64,
    /// [`Members::membership_epoch`] when a replacement last got the slot. Every shard had put the member out of use
    /// before.
    joined: u64,
    /// [`Members::membership_epoch`] when the device was opened: earlier I/Os went to another device. The value moves
    /// with the device when it changes its index.
    opened: u64,
    deallocate: DeallocateReads,
    cache: VolatileCache,
}

impl Member {
    /// True if the outcome of an I/O that was issued at `issued` does not concern the present device.
    const fn changed_since(&self, issued: u64) -> bool {
        self.left > issued || self.opened > issued
    }

    /// True if the present device was opened before the member went out of use.
    fn has_left_since_opened(&self) -> bool {
        self.view == View::Absent && self.opened < self.left
    }
}

/// The queue of a device that has lost its slot, kept until its requests in progress have completed.
struct Former {
    queue: Box<dyn IoQueue>,
    identity: String,
    outstanding: u32,
}

/// A completed normal read of a host request.
pub(crate) struct HostRead {
    pub(crate) request: u32,
    pub(crate) member: MemberIndex,
    pub(crate) range: LbaRange,
    /// The buffer, unless the drive may still write to it.
    pub(crate) data: Option<SgMut>,
    pub(crate) result: Result<(), IoError>,
    /// True if the read is slow and has no result.
    pub(crate) slow: bool,
    /// When the read was issued, for [`Members::left_since`].
    pub(crate) issued: u64,
    /// The time at which the device got the read, if it did.
    pub(crate) started: Option<Nanos>,
}

/// Capacities of [`Members`].
#[derive(Clone, Copy)]
pub(crate) struct Capacity {
    /// I/Os in progress.
    pub(crate) inflight: usize,
    /// Tasks that wait for I/Os.
    pub(crate) tasks: usize,
    /// Direct host reads.
    pub(crate) requests: usize,
    /// Time limits of devices.
    pub(crate) limits: IoLimits,
}

pub(crate) struct Members {
    limits: IoLimits,
    core: CoreIndex,
    block_size: BlockSize,
    /// Number of members of the array. The index after the last member belongs to a replacement.
    count: usize,
    pub(crate) paired: Pair,
    /// Latencies of member I/Os, for statistics.
    times: Arc<CoreTimes>,
    members: Vec<Member>,
    inflight: Slab<Inflight>,
    direct: Direct,
    /// Number of unpromoted parts of small writes and degraded reads that devices have.
    parts: usize,
    /// Members that got an I/O since the last doorbell.
    unrung: MemberSet,
    pub(crate) groups: Groups,
    graveyard: Vec<Former>,
    batch: CompletionBatch,
    generation: u32,
    /// Counts changes of the views, and of the devices.
    membership_epoch: u64,
    degraded: bool,
    /// Abandoned parts of small writes and degraded reads.
    given_up: Vec<(PartIo, Failed)>,
    /// Operations that completed after their task had abandoned them. Only their buffers are still needed.
    orphans: Vec<Op>,
    /// Members with outstanding slow reads without which waiters continued. Further reads would be slow too.
    lagging: MemberSet,
    /// I/Os that no device received, to be failed at the next poll.
    refused: VecDeque<Completion>,
}

impl Members {
    pub(crate) fn new(
        core: CoreIndex,
        block_size: BlockSize,
        count: usize,
        Capacity { inflight, tasks, requests, limits }: Capacity,
        times: Arc<CoreTimes>,
    ) -> Self {
        let member = |_| Member {
            view: View::Absent,
            settled: true,
            queue: None,
            identity: String::new(),
            area: DataArea { start_bytes: 0, device_shift: block_size.shift() },
            outstanding: 0,
            backlog: VecDeque::with_capacity(64),
            deallocating: 0,
            // Each task has at most one deallocation per member.
            deallocations: VecDeque::with_capacity(tasks),
            hung: false,
            hung_for_some: Hung::default(),
            former_hung: false,
            limit: limits.of(DeviceKind::Block),
            latency: Latency::new(),
            slow: 0,
            timeouts: 0,
            left: 0,
            joined: 0,
            opened: 0,
            deallocate: DeallocateReads::Unspecified,
            cache: VolatileCache::Present,
        };
        Self {
            limits,
            core,
            block_size,
            count,
            paired: Pair::none(count),
            times,
            members: (0..=count).take(64).map(member).collect(),
            inflight: Slab::new(inflight),
            direct: Direct::new(requests),
            parts: 0,
            unrung: MemberSet::EMPTY,
            // The label task flushes in a separate group.
            groups: Groups::new(tasks + 1),
            graveyard: Vec::with_capacity(count),
            batch: CompletionBatch::new(MEMBER_DEPTH as usize),
            generation: 0,
            membership_epoch: 1,
            degraded: true,
            given_up: Vec::new(),
            orphans: Vec::new(),
            lagging: MemberSet::EMPTY,
            refused: VecDeque::with_capacity(64),
        }
    }

    /// Opens `shared` for `member`, whose data area starts at byte `start_bytes`. I/Os for the previous device that
    /// have not reached it fail.
    pub(crate) fn install(
        &mut self,
        member: MemberIndex,
        shared: &SharedDevice,
        start_bytes: u64,
    ) -> Result<(), DeviceError> {
        let device = &shared.device;
        let queue = device.open_queue(self.core, MEMBER_DEPTH)?;
        self.bury(member.at());
        // Until now, the previous device may have received writes that were planned before the member went out.
        self.membership_epoch += 1;
        let place = &mut self.members[member.at()];
        place.opened = self.membership_epoch;
        place.queue = Some(queue);
        place.hung = false;
        place.hung_for_some = shared.hung();
        place.limit = self.limits.of(device.kind());
        place.latency.clear();
        (place.slow, place.timeouts) = (0, 0);
        self.times.forget_member(member.at());
        let info = device.info();
        place.identity = info.identity;
        place.area = DataArea { start_bytes, device_shift: info.block_size.shift() };
        place.deallocate = info.deallocate;
        place.cache = info.cache;
        Ok(())
    }

    /// Number of outstanding I/Os of the device `identity` on this shard.
    pub(crate) fn owed_by(&self, identity: &str) -> u32 {
        let places = self.members.iter().map(|m| (&m.identity, m.outstanding));
        let former = self.graveyard.iter().map(|f| (&f.identity, f.outstanding));
        places.chain(former).filter(|(whose, _)| *whose == identity).map(|(_, count)| count).sum()
    }

    fn refuse_backlog(place: &mut Member, refused: &mut VecDeque<Completion>, kind: IoErrorKind) {
        let failed = |Io { token, op }| Completion { token, op, result: Err(IoError::new(kind)) };
        let deallocations = place.deallocations.drain(..).map(issue::deallocation);
        let waiting = place.backlog.drain(..).chain(deallocations);
        refused.extend(waiting.map(failed));
    }

    pub(crate) fn set_views(&mut self, views: &[View]) {
        self.membership_epoch += 1;
        for (member, view) in self.members.iter_mut().zip(views) {
            if *view == View::Absent && member.view != View::Absent {
                member.settled = false;
                member.left = self.membership_epoch;
                member.former_hung = false;
            }
            if *view != View::Absent && member.view == View::Absent {
                member.joined = self.membership_epoch;
            }
            member.view = *view;
        }
        self.degraded = views.iter().any(|v| *v != View::InSync);
    }

    /// Records that every shard has applied the views of this shard. No shard sends I/Os to devices of members that are
    /// out, so their queues are closed. A device that was opened since stays open, because it is about to get the slot.
    pub(crate) fn settle_views(&mut self) {
        for member in &mut self.members {
            member.settled = true;
        }
        for at in 0..self.count {
            // The replacement of a member that is out may be about to get the slot.
            let is_paired = self.paired.member().is_some_and(|member| member.at() == at);
            if !is_paired && self.members[at].has_left_since_opened() {
                self.bury(at);
            }
        }
    }

    /// Closes the device that was opened for `member` and will not get the slot, unless the device came into use.
    pub(crate) fn release(&mut self, member: MemberIndex) {
        if self.view(member) == View::Absent && self.paired.member() != Some(member) {
            self.bury(member.at());
        }
    }

    pub(crate) fn view(&self, member: MemberIndex) -> View {
        self.members[member.at()].view
    }

    /// True if some member is not fully usable.
    pub(crate) fn degraded(&self) -> bool {
        self.degraded
    }

    /// Returns the facts about members for the planner, as far as this shard knows them.
    pub(crate) fn facts(&self) -> MemberFacts {
        let mut facts = MemberFacts { lagging: self.lagging, ..MemberFacts::default() };
        for (at, member) in self.members[..self.count].iter().enumerate() {
            match member.view {
                View::InSync => facts.in_sync.insert(at),
                View::Rebuilding => facts.rebuilding.insert(at),
                View::Absent if member.settled => {}
                View::Absent => facts.unsettled.insert(at),
            }
            if member.hung || member.queue.is_none() {
                facts.silent.insert(at);
            }
            if self.paired.is_paired(MemberIndex(at as u8)) {
                facts.paired.insert(at);
            }
        }
        facts
    }

    /// True if every member writes a block of the array atomically, because it is one block of the device.
    pub(crate) fn writes_whole_blocks(&self) -> bool {
        let whole =
            |m: &Member| m.queue.is_none() || m.area.device_shift == self.block_size.shift();
        self.members.iter().all(whole)
    }

    /// Evaluates the failure of a part of a small write.
    pub(crate) fn failure(&self, failed: Failed) -> Failure {
        let Failed { kind, place, issued, former } = failed;
        let former = former || self.members[place.at()].changed_since(issued);
        Failure { kind, slow: false, former, place }
    }

    /// Returns the parts of small writes and degraded reads that were abandoned or skipped since the last call.
    pub(crate) fn take_given_up(&mut self) -> Vec<(PartIo, Failed)> {
        std::mem::take(&mut self.given_up)
    }

    /// Returns a counter of changes of the views and devices, as an argument for
    /// [`was_out_of_use`](Self::was_out_of_use).
    pub(crate) fn membership_epoch(&self) -> u64 {
        self.membership_epoch
    }

    /// True if the member is out of use and every shard has applied this, or if this was true at some time after
    /// `since` and the member has been replaced.
    pub(crate) fn was_out_of_use(&self, member: MemberIndex, since: u64) -> bool {
        let member = &self.members[member.at()];
        match member.view {
            View::Absent => member.settled,
            View::InSync | View::Rebuilding => member.left > since || member.joined > since,
        }
    }

    /// True if a deallocated band reads as zeroes on every member in use.
    pub(crate) fn deallocate_zeroes(&self) -> bool {
        let used = || self.members.iter().filter(|m| m.view != View::Absent);
        used().all(|m| m.deallocate == DeallocateReads::Zeroes)
    }

    /// Members in use whose completed writes need a flush to be stable.
    pub(crate) fn to_flush(&self) -> MemberSet {
        let cached = |m: &Member| m.view != View::Absent && m.cache == VolatileCache::Present;
        let members = self.members.iter().enumerate();
        members.filter(|(_, m)| cached(m)).map(|(at, _)| at).collect()
    }

    /// Returns the members with the view `view`.
    pub(crate) fn viewed(&self, view: View) -> MemberSet {
        let members = self.members[..self.count].iter().enumerate();
        members.filter(|(_, m)| m.view == view).map(|(at, _)| at).collect()
    }

    /// Returns the members with a slow outstanding read.
    pub(crate) fn lagging(&self) -> MemberSet {
        self.lagging
    }

    /// Free entries for further I/Os.
    pub(crate) fn room(&self) -> usize {
        self.inflight.room()
    }

    /// Number of I/Os whose outcome was not taken.
    pub(crate) fn outstanding(&self) -> usize {
        self.inflight.live() + self.direct.live() + self.parts
    }

    /// Returns the operations that completed after their task had abandoned them.
    pub(crate) fn take_orphans(&mut self) -> std::vec::Drain<'_, Op> {
        self.orphans.drain(..)
    }

    /// True if [`take_orphans`](Self::take_orphans) would return nothing.
    pub(crate) fn has_no_orphans(&self) -> bool {
        self.orphans.is_empty()
    }

    /// Number of outstanding I/Os of this shard at `member`.
    pub(crate) fn load(&self, member: MemberIndex) -> usize {
        let member = &self.members[member.at()];
        member.outstanding as usize + member.backlog.len() + member.deallocations.len()
    }

    /// Rings the doorbells of all members, because a queue may have to retry requests for which it had no room.
    pub(crate) fn ring(&mut self, now: Nanos) {
        self.unrung = MemberSet::EMPTY;
        for member in self.members.iter_mut().filter(|member| member.outstanding > 0) {
            if let Some(queue) = member.queue.as_mut() {
                queue.ring_doorbell(now);
            }
        }
        // Former devices also execute the requests that they got in the turn in which they lost their slot.
        self.graveyard.iter_mut().for_each(|former| former.queue.ring_doorbell(now));
    }

    /// Rings the doorbells of members that got direct I/Os.
    pub(crate) fn ring_direct(&mut self, now: Nanos) {
        for member in std::mem::take(&mut self.unrung) {
            if let Some(queue) = self.members[member.at()].queue.as_mut() {
                queue.ring_doorbell(now);
            }
        }
    }

    /// True if `member` was put out of use, or got another device, after `issued`.
    pub(crate) fn left_since(&self, member: MemberIndex, issued: u64) -> bool {
        self.members[member.at()].changed_since(issued) || self.paired.changed_hands(member, issued)
    }

    /// Registers the event sources of outstanding I/Os for an idle core.
    pub(crate) fn sleep(&self, now: Nanos, sleep: &mut strake_reactor::Sleep) {
        for member in self.members.iter().filter(|m| m.outstanding > 0) {
            if let Some(queue) = &member.queue {
                sleep.readiness(queue.readiness());
            }
        }
        for former in &self.graveyard {
            sleep.readiness(former.queue.readiness());
        }
        if !self.refused.is_empty() {
            sleep.never();
        }
        if self.outstanding() > 0 {
            // An unresponsive drive causes no wake-up, so the core must wake to check for overdue I/Os.
            sleep.until(now.plus(TIMEOUT_CHECK));
        }
    }
}

/// Waits until every I/O of `group` has an outcome.
pub(crate) async fn settled(members: &std::cell::RefCell<Members>, group: Group) {
    poll_fn(|_| {
        if members.borrow().groups.is_settled(group) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
