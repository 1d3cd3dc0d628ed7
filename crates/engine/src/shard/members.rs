//! The members as one shard sees them: its queues, what it may use them for, and every I/O in flight.
//!
//! Tasks issue I/Os in groups and wait for a whole group. A clean host read needs no task: it is issued on the
//! request's behalf and answered straight from the completion.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use strake_block::{
    BlockDevice, Completion, CompletionBatch, DeallocateReads, DeviceError, Io, IoError,
    IoErrorKind, IoQueue, Op, Token, VolatileCache,
};
use strake_reactor::{Scheduler, TaskId};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, MemberIndex, Nanos};

use super::address::{DataArea, Target, translate};
use crate::limits::{MEMBER_DEPTH, TIMEOUT_CHECK};
use crate::message::View;
use crate::slab::Slab;

mod latency;
mod overdue;
mod twin;

pub(crate) use latency::Percentiles;
pub(crate) use twin::Pairing;

use latency::Latency;

/// A task's I/Os that are waited for together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group(u32);

/// One issued I/O of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IoSlot(u32);

/// Who is told when an I/O is done.
#[derive(Debug)]
enum Waiter {
    Group(u32),
    /// A clean read of host request `request`, from `range` of the array.
    Host {
        request: u32,
        range: LbaRange,
    },
    /// Timed out, and its task has not looked yet.
    Late,
    /// Timed out: nobody waits, but the device still owns the buffers.
    Nobody,
}

/// How an I/O failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What the device said.
    pub(crate) kind: IoErrorKind,
    /// It has not failed: it takes long, and nobody has to wait for it if there is another way.
    pub(crate) slow: bool,
    /// The member was put out of use after the I/O was issued: this says nothing about the device that may have
    /// taken its place since.
    pub(crate) former: bool,
    /// Where the device is now: it may have changed places with its twin since the I/O was issued.
    pub(crate) place: MemberIndex,
}

struct Inflight {
    waiter: Waiter,
    /// The place of the device that has it.
    member: MemberIndex,
    /// The place it was issued to.
    asked: MemberIndex,
    /// Counts reuse of the place, so that a late completion is not taken for its successor's.
    turn: u32,
    /// When the device got it; waiting in the backlog is not the device's fault.
    started: Option<Nanos>,
    /// A read.
    read: bool,
    /// Whoever waits for it can do without it when it takes long.
    hasty: bool,
    /// It was done without.
    passed: bool,
    /// [`Members::clock`] when it was issued.
    issued: u64,
    /// The same write to the other device of a pair, see [`Pairing`].
    twin: Option<IoSlot>,
    done: Option<(Op, Result<(), IoError>)>,
}

struct GroupState {
    task: TaskId,
    outstanding: u32,
}

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
    /// The device let an I/O run into its time limit: it gets no more of them.
    hung: bool,
    latency: Latency,
    /// I/Os that were done without because they took long, and that were given up.
    slow: u64,
    timeouts: u64,
    /// [`Members::clock`] when the member was last put out of use.
    left: u64,
    /// [`Members::clock`] when a replacement last took its place, which happens only after every shard had put it
    /// out of use.
    joined: u64,
    deallocate: DeallocateReads,
    cache: VolatileCache,
}

/// A queue of a device that has lost its place, kept until what it has in flight is back.
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
    pub(crate) data: Option<strake_block::SgMut>,
    pub(crate) result: Result<(), IoError>,
    /// It has no result: it takes long.
    pub(crate) slow: bool,
    /// When it was issued, for [`Members::left_since`].
    pub(crate) issued: u64,
}

pub(crate) struct Members {
    core: CoreIndex,
    block_size: BlockSize,
    /// Members of the array; the place behind the last one is a twin's.
    count: usize,
    pairing: Pairing,
    /// [`Members::clock`] when the devices of a pair last changed places, and whose.
    swapped: (u64, Option<MemberIndex>),
    twin_failed: Option<(MemberIndex, Failure)>,
    members: Vec<Member>,
    inflight: Slab<Inflight>,
    groups: Slab<GroupState>,
    graveyard: Vec<Former>,
    batch: CompletionBatch,
    turn: u32,
    /// Counts changes of the views.
    clock: u64,
    degraded: bool,
    /// What came back after its task had given up on it: only the buffers still matter.
    orphans: Vec<Op>,
    /// Members with reads outstanding that were done without, as a mask: more of them would not come back either.
    lagging: u64,
    /// I/Os that no device was given, to be answered at the next poll.
    refused: VecDeque<Completion>,
}

impl Members {
    pub(crate) fn new(
        core: CoreIndex,
        block_size: BlockSize,
        count: usize,
        inflight: usize,
        tasks: usize,
    ) -> Self {
        let member = |_| Member {
            view: View::Absent,
            settled: true,
            queue: None,
            identity: String::new(),
            area: DataArea { start_bytes: 0, device_shift: block_size.shift() },
            outstanding: 0,
            backlog: VecDeque::with_capacity(64),
            hung: false,
            latency: Latency::new(),
            slow: 0,
            timeouts: 0,
            left: 0,
            joined: 0,
            deallocate: DeallocateReads::Unspecified,
            cache: VolatileCache::Present,
        };
        Self {
            core,
            block_size,
            count,
            pairing: Pairing::None,
            swapped: (0, None),
            twin_failed: None,
            members: (0..=count).take(64).map(member).collect(),
            inflight: Slab::new(inflight),
            groups: Slab::new(tasks),
            graveyard: Vec::with_capacity(count),
            batch: CompletionBatch::new(MEMBER_DEPTH as usize),
            turn: 0,
            clock: 1,
            degraded: true,
            orphans: Vec::new(),
            lagging: 0,
            refused: VecDeque::with_capacity(64),
        }
    }

    /// Opens `device` for `member`, whose data area begins `start_bytes` into it. What was meant for the device
    /// before it and has not reached it fails.
    pub(crate) fn install(
        &mut self,
        member: MemberIndex,
        device: &dyn BlockDevice,
        start_bytes: u64,
    ) -> Result<(), DeviceError> {
        let queue = device.open_queue(self.core, MEMBER_DEPTH)?;
        self.bury(member.at());
        let place = &mut self.members[member.at()];
        place.queue = Some(queue);
        place.hung = false;
        place.latency.clear();
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
        refused.extend(place.backlog.drain(..).map(failed));
    }

    pub(crate) fn set_views(&mut self, views: &[View]) {
        self.clock += 1;
        for (member, view) in self.members.iter_mut().zip(views) {
            if *view == View::Absent && member.view != View::Absent {
                member.settled = false;
                member.left = self.clock;
            }
            if *view != View::Absent && member.view == View::Absent {
                member.joined = self.clock;
            }
            member.view = *view;
        }
        self.degraded = views.iter().any(|v| *v != View::InSync);
    }

    pub(crate) fn settle_views(&mut self) {
        for member in &mut self.members {
            member.settled = true;
        }
    }

    pub(crate) fn view(&self, member: MemberIndex) -> View {
        self.members[member.at()].view
    }

    /// True when some member is not fully usable.
    pub(crate) fn degraded(&self) -> bool {
        self.degraded
    }

    /// Counts changes of the views: a moment to ask [`was_out_of_use`](Self::was_out_of_use) about.
    pub(crate) fn clock(&self) -> u64 {
        self.clock
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
    pub(crate) fn to_flush(&self) -> u64 {
        let cached = |m: &Member| m.view != View::Absent && m.cache == VolatileCache::Present;
        let bits =
            self.members.iter().enumerate().filter(|(_, m)| cached(m)).map(|(i, _)| 1u64 << i);
        bits.fold(0, |mask, bit| mask | bit)
    }

    /// The members that are viewed as `view`, as a mask.
    pub(crate) fn viewed(&self, view: View) -> u64 {
        let members = self.members[..self.count].iter().enumerate();
        let bits = members.filter(|(_, m)| m.view == view);
        bits.fold(0, |mask, (at, _)| mask | 1 << at)
    }

    /// Members that have not answered a read for long, as a mask.
    pub(crate) fn lagging(&self) -> u64 {
        self.lagging
    }

    /// Room for another host read without a task.
    pub(crate) fn room(&self) -> usize {
        self.inflight.room()
    }

    /// I/Os whose outcome is not taken yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.inflight.live()
    }

    pub(crate) fn open_group(&mut self, task: TaskId) -> Group {
        Group(self.groups.insert(GroupState { task, outstanding: 0 }))
    }

    pub(crate) fn close_group(&mut self, group: Group) {
        let state = self.groups.remove(group.0);
        assert_eq!(state.outstanding, 0, "a task left I/Os behind");
    }

    /// Issues `op` to `member` as part of `group`. Always accepted: for a member that has no queue or hangs, the
    /// answer at the next poll is an error.
    pub(crate) fn issue(
        &mut self,
        now: Nanos,
        group: Group,
        member: MemberIndex,
        target: Target,
        op: Op,
    ) -> IoSlot {
        let again = match (&op, target) {
            (Op::Write { at, data, durability }, Target::Data) if self.is_paired(member) => {
                Some(Op::Write { at: *at, data: data.clone(), durability: *durability })
            }
            (Op::Deallocate { range }, Target::Data) if self.is_paired(member) => {
                Some(Op::Deallocate { range: *range })
            }
            (Op::WriteZeroes { range, durability }, Target::Data) if self.is_paired(member) => {
                Some(Op::WriteZeroes { range: *range, durability: *durability })
            }
            (Op::Read { .. } | Op::Write { .. } | Op::Flush, _)
            | (Op::Deallocate { .. } | Op::WriteZeroes { .. }, _) => None,
        };
        let slot = IoSlot(self.send(now, Waiter::Group(group.0), member, target, op));
        if let Some(again) = again {
            self.mirror(now, group, (member, slot), again);
        }
        slot
    }

    /// The group can do without this read when it takes long: its outcome is then [`Failure::slow`].
    pub(crate) fn hurry(&mut self, slot: IoSlot) {
        let entry = self.inflight.get_mut(slot.0).expect("an I/O just issued");
        entry.hasty = entry.read;
    }

    /// Issues a clean read for a host request.
    pub(crate) fn issue_host_read(
        &mut self,
        now: Nanos,
        member: MemberIndex,
        at: Lba,
        data: strake_block::SgMut,
        (request, range): (u32, LbaRange),
    ) {
        self.send(
            now,
            Waiter::Host { request, range },
            member,
            Target::Data,
            Op::Read { at, data },
        );
    }

    fn send(
        &mut self,
        now: Nanos,
        waiter: Waiter,
        member: MemberIndex,
        target: Target,
        op: Op,
    ) -> u32 {
        let place = &mut self.members[member.at()];
        let op = translate(op, target, place.area, self.block_size);
        self.turn = self.turn.wrapping_add(1);
        if let Waiter::Group(group) = waiter {
            self.groups.get_mut(group).expect("a group outlives its I/Os").outstanding += 1;
        }
        let issued = self.clock;
        let hasty = matches!(waiter, Waiter::Host { .. });
        let slot = self.inflight.insert(Inflight {
            waiter,
            member,
            asked: member,
            turn: self.turn,
            started: None,
            read: matches!(op, Op::Read { .. }),
            hasty,
            passed: false,
            issued,
            twin: None,
            done: None,
        });
        let io = Io { token: Token(u64::from(self.turn) << 32 | u64::from(slot)), op };
        place.backlog.push_back(io);
        if place.queue.is_none() {
            Self::refuse_backlog(place, &mut self.refused, IoErrorKind::Gone);
        } else if place.hung {
            Self::refuse_backlog(place, &mut self.refused, IoErrorKind::Timeout);
        } else {
            Self::feed(place, &mut self.inflight, now);
        }
        slot
    }

    fn feed(member: &mut Member, inflight: &mut Slab<Inflight>, now: Nanos) {
        let Some(queue) = member.queue.as_mut() else { return };
        while member.outstanding < MEMBER_DEPTH
            && let Some(io) = member.backlog.pop_front()
        {
            let slot = slot_of(io.token);
            if let Err(back) = queue.submit(io) {
                member.backlog.push_front(back);
                return;
            }
            inflight.get_mut(slot).expect("a backlogged I/O has its place").started = Some(now);
            member.outstanding += 1;
        }
    }

    /// Takes the outcome of a finished I/O.
    pub(crate) fn take(&mut self, slot: IoSlot) -> (Option<Op>, Result<(), Failure>) {
        let entry = self.inflight.get_mut(slot.0).expect("an I/O is taken once");
        match entry.twin.take() {
            None => self.take_one(slot),
            Some(twin) => self.take_pair(slot, twin),
        }
    }

    fn take_one(&mut self, slot: IoSlot) -> (Option<Op>, Result<(), Failure>) {
        let entry = self.inflight.get_mut(slot.0).expect("an I/O is taken once");
        let place = entry.member;
        // A read from a device that its twin has replaced meanwhile says nothing about the twin.
        let retired = entry.read && place != entry.asked;
        let former = retired || self.members[place.at()].left > entry.issued;
        let slow = entry.passed;
        let failure = |kind| Failure { kind, slow, former, place };
        if let Some((op, result)) = entry.done.take() {
            self.inflight.remove(slot.0);
            return (Some(op), result.map_err(|error| failure(error.kind)));
        }
        // Timed out: the place stays occupied until the device lets go of the buffers.
        entry.waiter = Waiter::Nobody;
        (None, Err(failure(IoErrorKind::Timeout)))
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
        member.outstanding as usize + member.backlog.len()
    }

    pub(crate) fn ring(&mut self, now: Nanos) {
        for member in &mut self.members {
            if let Some(queue) = member.queue.as_mut() {
                queue.ring_doorbell(now);
            }
        }
    }

    /// Collects completions; clean host reads go to `host_reads`, the rest wakes its tasks. Returns how many.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        scheduler: &Scheduler,
        host_reads: &mut VecDeque<HostRead>,
    ) -> usize {
        let mut seen = self.refused.len();
        while let Some(done) = self.refused.pop_front() {
            complete(
                &mut self.inflight,
                &mut self.groups,
                scheduler,
                host_reads,
                &mut self.orphans,
                done,
            );
        }
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            let Some(queue) = member.queue.as_mut() else { continue };
            if member.outstanding == 0 && member.backlog.is_empty() {
                continue;
            }
            queue.poll(now, &mut self.batch);
            seen += self.batch.len();
            member.outstanding -= self.batch.len() as u32;
            for done in self.batch.drain() {
                let entry = self.inflight.get(slot_of(done.token));
                if let Some(Inflight { started: Some(started), read: true, .. }) = entry {
                    member.latency.record(now.since(*started));
                }
                complete(
                    &mut self.inflight,
                    &mut self.groups,
                    scheduler,
                    host_reads,
                    &mut self.orphans,
                    done,
                );
            }
            Self::feed(&mut self.members[at], &mut self.inflight, now);
        }
        if !self.graveyard.is_empty() {
            seen += self.poll_graveyard(now, scheduler, host_reads);
        }
        seen
    }

    fn poll_graveyard(
        &mut self,
        now: Nanos,
        scheduler: &Scheduler,
        host_reads: &mut VecDeque<HostRead>,
    ) -> usize {
        let mut seen = 0;
        for former in &mut self.graveyard {
            former.queue.poll(now, &mut self.batch);
            former.outstanding -= self.batch.len() as u32;
            seen += self.batch.len();
            for done in self.batch.drain() {
                complete(
                    &mut self.inflight,
                    &mut self.groups,
                    scheduler,
                    host_reads,
                    &mut self.orphans,
                    done,
                );
            }
        }
        self.graveyard.retain(|former| former.outstanding > 0);
        seen
    }

    /// True when `member` was put out of use after the moment `issued`.
    pub(crate) fn left_since(&self, member: MemberIndex, issued: u64) -> bool {
        self.members[member.at()].left > issued || self.changed_hands(member, issued)
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
        if self.inflight.live() > 0 {
            // A drive that hangs says nothing: wake to look for overdue I/Os.
            sleep.until(now.plus(TIMEOUT_CHECK));
        }
    }
}

/// Waits until every I/O of `group` has an outcome.
pub(crate) async fn settled(members: &std::cell::RefCell<Members>, group: Group) {
    poll_fn(|_| {
        let members = members.borrow();
        if members.groups.get(group.0).expect("the group is open").outstanding == 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

fn settle_one(groups: &mut Slab<GroupState>, group: u32, scheduler: &Scheduler) {
    let state = groups.get_mut(group).expect("a group outlives its I/Os");
    state.outstanding -= 1;
    if state.outstanding == 0 {
        scheduler.wake(state.task);
    }
}

fn complete(
    inflight: &mut Slab<Inflight>,
    groups: &mut Slab<GroupState>,
    scheduler: &Scheduler,
    host_reads: &mut VecDeque<HostRead>,
    orphans: &mut Vec<Op>,
    done: Completion,
) {
    let slot = slot_of(done.token);
    let entry = inflight.get_mut(slot).expect("a device completed an I/O twice");
    assert_eq!(entry.turn, (done.token.0 >> 32) as u32, "a device made up a completion");
    match entry.waiter {
        Waiter::Group(group) => {
            entry.done = Some((done.op, done.result));
            settle_one(groups, group, scheduler);
        }
        Waiter::Late => entry.done = Some((done.op, Err(IoError::new(IoErrorKind::Timeout)))),
        Waiter::Host { request, range } => {
            let Inflight { asked: member, issued, .. } = inflight.remove(slot);
            let data = match done.op {
                Op::Read { data, .. } => Some(data),
                Op::Write { .. } | Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {
                    None
                }
            };
            host_reads.push_back(HostRead {
                request,
                member,
                range,
                data,
                result: done.result,
                slow: false,
                issued,
            });
        }
        Waiter::Nobody => {
            inflight.remove(slot);
            orphans.push(done.op);
        }
    }
}

fn slot_of(token: Token) -> u32 {
    (token.0 & u64::from(u32::MAX)) as u32
}
