//! The members as one shard sees them: its queues, what it may use them for, and every I/O in flight.
//!
//! Tasks issue I/Os in groups and wait for a whole group. A clean host read needs no task: it is issued on the
//! request's behalf and answered straight from the completion.

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
use crate::slab::Slab;

mod back;
mod direct;
mod groups;
mod hung;
mod issue;
mod latency;
mod overdue;
mod part;
mod replacement;
#[cfg(test)]
mod tests;
mod token;

pub(crate) use back::{PartBack, PartTaken, Takers};
pub(crate) use direct::{DirectRead, Unplaced};
pub(crate) use groups::Group;
pub(crate) use hung::SharedDevice;
pub(crate) use latency::Percentiles;
pub(crate) use overdue::Overdue;
pub(crate) use part::{Part, Sent};
pub(crate) use replacement::{Pair, Pairing};
pub(crate) use token::next as next_generation;

use direct::Direct;
use groups::Groups;
use hung::Hung;
use latency::Latency;

/// One issued I/O of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IoSlot(u32);

/// Who is notified when an I/O is done.
#[derive(Debug)]
enum Waiter {
    Group(u32),
    /// A clean read of host request `request`, from `range` of the array.
    Host {
        request: u32,
        range: LbaRange,
    },
    /// A part of a small write or of a degraded read, see [`part`].
    Part(PartIo),
    /// Timed out, and its task has not looked yet.
    Late,
    /// Timed out: nothing waits for it, but the device still owns the buffers.
    Abandoned,
}

impl Waiter {
    /// Whether the waiter can do without a read that takes long.
    const fn is_hasty(&self) -> bool {
        matches!(self, Self::Host { .. } | Self::Part(PartIo { whole: Whole::Read, .. }))
    }
}

/// What an I/O without a place of its own is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// A small write.
    Write,
    /// A degraded read.
    Read,
}

/// Names an I/O of a small write or of a degraded read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartIo {
    pub(crate) whole: Whole,
    /// The number of the write or read among its kind.
    pub(crate) number: u32,
    pub(crate) part: u8,
}

/// How one of them failed; [`Members::failure`] says what that means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub(crate) kind: IoErrorKind,
    /// Where the device was when it failed.
    pub(crate) place: MemberIndex,
    /// [`Members::membership_epoch`] when it was issued.
    pub(crate) issued: u64,
    /// The device had lost its place by then.
    pub(crate) former: bool,
}

/// How an I/O failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What the device said.
    pub(crate) kind: IoErrorKind,
    /// It has not failed: it takes long, and need not be waited for if there is another way.
    pub(crate) slow: bool,
    /// The device was put out of use, or another one took its place, after the I/O was issued: this says nothing about
    /// the device that is there now.
    pub(crate) former: bool,
    /// Where the device is now: it may have changed places with its replacement since the I/O was issued.
    pub(crate) place: MemberIndex,
}

struct Inflight {
    waiter: Waiter,
    /// The place of the device that has it.
    member: MemberIndex,
    /// The place it was issued to.
    asked: MemberIndex,
    /// Counts reuse of the place, so that a late completion is not taken for its successor's.
    generation: u32,
    /// When the device got it; waiting in the backlog is not the device's fault.
    started: Option<Nanos>,
    /// A read.
    read: bool,
    /// The waiter can do without it when it takes long.
    hasty: bool,
    /// It was done without.
    passed: bool,
    /// [`Members::membership_epoch`] when it was issued.
    issued: u64,
    /// The same write to the other device of a pair, see [`Pairing`].
    replacement: Option<IoSlot>,
    done: Option<(Op, Result<(), IoError>)>,
}

/// What a shard knows of a member, and the device that is open for it.
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
    /// The last change to `View::Absent` is in force on every shard.
    settled: bool,
    queue: Option<Box<dyn IoQueue>>,
    /// Whose queue it is, as in [`DeviceInfo::identity`](strake_block::DeviceInfo).
    identity: String,
    area: DataArea,
    outstanding: u32,
    backlog: VecDeque<Io>,
    /// Deallocations among those outstanding, at most [`DEALLOCATE_DEPTH`](crate::limits::DEALLOCATE_DEPTH).
    deallocating: u32,
    /// Further ones, which wait here, so that they hold up nothing and their limit does not count yet.
    deallocations: VecDeque<(Token, LbaRange)>,
    /// The device let an I/O of some core run into its time limit, as of the last look: it gets no more of them.
    hung: bool,
    /// The same as of now, for all cores that have the device.
    hung_for_some: Hung,
    /// The device before, which has lost the place, hung.
    former_hung: bool,
    /// How long it may take over one I/O.
    limit: Nanos,
    latency: Latency,
    /// I/Os that were done without because they took long, and that were given up.
    slow: u64,
    timeouts: u64,
    /// [`Members::membership_epoch`] when the member was last put out of use.
    left: u64,
    /// [`Members::membership_epoch`] when a replacement last took its place, which happens only after every shard had
    /// put it out of use.
    joined: u64,
    /// [`Members::membership_epoch`] from the moment on when the device was opened: what was issued before that went to
    /// another one. A device that changes places takes it along.
    opened: u64,
    deallocate: DeallocateReads,
    cache: VolatileCache,
}

impl Member {
    /// True when the outcome of an I/O that was issued at `issued` says nothing about the device that is here now.
    const fn changed_since(&self, issued: u64) -> bool {
        self.left > issued || self.opened > issued
    }

    /// True when the device that is here is that of the member that went out of use.
    fn has_left_since_opened(&self) -> bool {
        self.view == View::Absent && self.opened < self.left
    }
}

/// A queue of a device that has lost its place, kept until its requests in progress have completed.
struct Former {
    queue: Box<dyn IoQueue>,
    identity: String,
    outstanding: u32,
}

/// A clean host read that came back.
pub(crate) struct HostRead {
    pub(crate) request: u32,
    pub(crate) member: MemberIndex,
    pub(crate) range: LbaRange,
    /// The buffer, unless the drive may still write to it.
    pub(crate) data: Option<SgMut>,
    pub(crate) result: Result<(), IoError>,
    /// It has no result: it takes long.
    pub(crate) slow: bool,
    /// When it was issued, for [`Members::left_since`].
    pub(crate) issued: u64,
}

/// What there is room for.
#[derive(Clone, Copy)]
pub(crate) struct Capacity {
    /// I/Os under way.
    pub(crate) inflight: usize,
    /// Tasks that wait for some of them.
    pub(crate) tasks: usize,
    /// Host reads that are passed on as they are.
    pub(crate) requests: usize,
    /// How long devices may take.
    pub(crate) limits: IoLimits,
}

pub(crate) struct Members {
    limits: IoLimits,
    core: CoreIndex,
    block_size: BlockSize,
    /// Members of the array; the place behind the last one is a replacement's.
    count: usize,
    pub(crate) paired: Pair,
    /// How long the members' I/Os take, for statistics.
    times: Arc<CoreTimes>,
    members: Vec<Member>,
    inflight: Slab<Inflight>,
    direct: Direct,
    /// Parts of small writes and degraded reads that devices have and that have no place among those in flight.
    parts: usize,
    /// Members that were sent something since the last doorbell.
    unrung: MemberSet,
    pub(crate) groups: Groups,
    graveyard: Vec<Former>,
    batch: CompletionBatch,
    generation: u32,
    /// Counts changes of the views, and of the devices.
    membership_epoch: u64,
    degraded: bool,
    /// Parts of small writes and degraded reads that are no longer waited for.
    given_up: Vec<(PartIo, Failed)>,
    /// What came back after its task had given up on it: only the buffers still matter.
    orphans: Vec<Op>,
    /// Members with reads outstanding that were done without: more of them would not come back either.
    lagging: MemberSet,
    /// I/Os that no device was given, to be answered at the next poll.
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
            // A task has one at each member.
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
            // The task that writes labels flushes in a group of its own.
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

    /// Opens `shared` for `member`, whose data area begins `start_bytes` into it. What was meant for the device
    /// before it and has not reached it fails.
    pub(crate) fn install(
        &mut self,
        member: MemberIndex,
        shared: &SharedDevice,
        start_bytes: u64,
    ) -> Result<(), DeviceError> {
        let device = &shared.device;
        let queue = device.open_queue(self.core, MEMBER_DEPTH)?;
        self.bury(member.at());
        // Until now the device before this one may have been given writes that were planned before the member went out.
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

    /// I/Os that the device `identity` was given here and has not answered.
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

    /// Every shard uses the members as this one does: nothing is sent any more to devices of members that are out, so
    /// their queues are closed. A device that was opened since waits for its place to be given to it.
    pub(crate) fn settle_views(&mut self) {
        for member in &mut self.members {
            member.settled = true;
        }
        for at in 0..self.count {
            // The replacement of a member that is out may be about to take its place.
            let is_paired = self.paired.member().is_some_and(|member| member.at() == at);
            if !is_paired && self.members[at].has_left_since_opened() {
                self.bury(at);
            }
        }
    }

    /// Closes the device that was opened for `member`, unless it came into use: it will not take the place.
    pub(crate) fn release(&mut self, member: MemberIndex) {
        if self.view(member) == View::Absent && self.paired.member() != Some(member) {
            self.bury(member.at());
        }
    }

    pub(crate) fn view(&self, member: MemberIndex) -> View {
        self.members[member.at()].view
    }

    /// True when some member is not fully usable.
    pub(crate) fn degraded(&self) -> bool {
        self.degraded
    }

    /// What the planner is to know of members, as far as it is known here.
    pub(crate) fn facts(&self) -> MemberFacts {
        let mut facts = MemberFacts { lagging: self.lagging, ..MemberFacts::default() };
        for (at, member) in self.members[..self.count].iter().enumerate() {
            match member.view {
                View::InSync => facts.in_sync.insert(at),
                View::Rebuilding => facts.rebuilding.insert(at),
                View::Absent => {}
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

    /// True when every member writes a block of the array whole or not at all: it is one of the device's.
    pub(crate) fn writes_whole_blocks(&self) -> bool {
        let whole =
            |m: &Member| m.queue.is_none() || m.area.device_shift == self.block_size.shift();
        self.members.iter().all(whole)
    }

    /// What the failure of a part of a small write means.
    pub(crate) fn failure(&self, failed: Failed) -> Failure {
        let Failed { kind, place, issued, former } = failed;
        let former = former || self.members[place.at()].changed_since(issued);
        Failure { kind, slow: false, former, place }
    }

    /// Parts of small writes and degraded reads that were given up, or passed, since this was last called.
    pub(crate) fn take_given_up(&mut self) -> Vec<(PartIo, Failed)> {
        std::mem::take(&mut self.given_up)
    }

    /// Counts changes of the views, and of the devices: a moment to ask [`was_out_of_use`](Self::was_out_of_use) about.
    pub(crate) fn membership_epoch(&self) -> u64 {
        self.membership_epoch
    }

    /// True when the member is out of use and every shard knows, or was so at some time after `since` and has
    /// been replaced.
    pub(crate) fn was_out_of_use(&self, member: MemberIndex, since: u64) -> bool {
        let member = &self.members[member.at()];
        match member.view {
            View::Absent => member.settled,
            View::InSync | View::Rebuilding => member.left > since || member.joined > since,
        }
    }

    /// True when deallocating a band leaves zeroes on every member in use.
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

    /// The members that are viewed as `view`.
    pub(crate) fn viewed(&self, view: View) -> MemberSet {
        let members = self.members[..self.count].iter().enumerate();
        members.filter(|(_, m)| m.view == view).map(|(at, _)| at).collect()
    }

    /// Members with a read that has been outstanding for a long time.
    pub(crate) fn lagging(&self) -> MemberSet {
        self.lagging
    }

    /// Room for another host read without a task.
    pub(crate) fn room(&self) -> usize {
        self.inflight.room()
    }

    /// I/Os whose outcome is not taken yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.inflight.live() + self.direct.live() + self.parts
    }

    /// Operations that came back after their task had given up on them.
    pub(crate) fn take_orphans(&mut self) -> std::vec::Drain<'_, Op> {
        self.orphans.drain(..)
    }

    /// True when nothing waits for [`take_orphans`](Self::take_orphans).
    pub(crate) fn has_no_orphans(&self) -> bool {
        self.orphans.is_empty()
    }

    /// I/Os outstanding at `member` from this shard.
    pub(crate) fn load(&self, member: MemberIndex) -> usize {
        let member = &self.members[member.at()];
        member.outstanding as usize + member.backlog.len() + member.deallocations.len()
    }

    /// Rings the doorbells of all members: a queue may have to try again what it had no room for.
    pub(crate) fn ring(&mut self, now: Nanos) {
        self.unrung = MemberSet::EMPTY;
        for member in self.members.iter_mut().filter(|member| member.outstanding > 0) {
            if let Some(queue) = member.queue.as_mut() {
                queue.ring_doorbell(now);
            }
        }
        // What a device was given in the turn in which it lost its place is executed as well.
        self.graveyard.iter_mut().for_each(|former| former.queue.ring_doorbell(now));
    }

    /// Rings the doorbells of those that were sent something directly.
    pub(crate) fn ring_direct(&mut self, now: Nanos) {
        for member in std::mem::take(&mut self.unrung) {
            if let Some(queue) = self.members[member.at()].queue.as_mut() {
                queue.ring_doorbell(now);
            }
        }
    }

    /// True when `member` was put out of use, or got another device, after the moment `issued`.
    pub(crate) fn left_since(&self, member: MemberIndex, issued: u64) -> bool {
        self.members[member.at()].changed_since(issued) || self.paired.changed_hands(member, issued)
    }

    /// What an idle core must watch to notice completions.
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
            // A drive that does not respond says nothing: wake to look for overdue I/Os.
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
