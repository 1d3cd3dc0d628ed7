//! A queue: slots that own requests, and the connection that transfers them.
//!
//! ```text
//!            +--> Ready <----------- again, or the association was lost ------------+
//! submit ----+      |                                                              |
//!                   v                                                              |
//!                Sending --> Waiting --R2T--> Sending        one PDU at a time      |
//!                               |  +--------------------------------------------> Settling
//!                               +--answer--> Ready, when more of it is to be done
//!                               +----------> Over --> poll
//! ```
//! `Settling` holds changes that a lost association may still execute, and commands that were temporarily rejected. A
//! request is in exactly one of these stages; its buffers leave it only while they are sent or received.

mod intake;
mod outbox;
mod piece;
mod slot;

use crate::error::Reason;
use crate::inbox::Asker;
use crate::limits::{
    ANSWER_TIME_MAX, INPUT_BYTES, IO_BYTES_MAX, IO_ENTRIES_MAX, SENDS_PER_TURN, SETTLE_MARGIN,
    TICK, TRIES_MAX,
};
use crate::link::{Life, Link, Offer, Phase, Port};
use crate::path_manager::Request;
use crate::shared::Shared;
use crate::stats::Stats;
use intake::Intake;
use outbox::Outgoing;
use piece::Ability;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use slot::{SlotIndex, Slots, Stage};
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_block::{
    Buf, CompletionBatch, DeallocateReads, Io, IoError, IoErrorKind, IoQueue, Op, Readiness,
};
use strake_tls::{Input, SendQueue, Sent, Wire};
use strake_units::{CoreIndex, LbaRange, Nanos};

/// The descriptors with which a queue sleeps: one descriptor becomes readable when any of the others does.
struct Watch {
    epoll: OwnedFd,
    timer: OwnedFd,
    wake: Arc<OwnedFd>,
    /// Whether room in the send buffer of the socket is watched.
    room: bool,
    /// The timer has no event before this time.
    tick_at: Nanos,
}

/// A submission and completion path of a [`FabricsDevice`](crate::FabricsDevice).
pub struct FabricsQueue {
    shared: Arc<Shared>,
    asker: Asker<Request>,
    id: u64,
    offer: Arc<Offer>,
    link: Option<Link>,
    /// The latest known time. A caller that does not know the time passes zero, and the time never decreases.
    now: Nanos,
    /// The time since when there has been no link; `None` while there is one, and before the first check.
    down_since: Option<Nanos>,
    /// The association of a link that was dropped with unanswered commands, until it has ended.
    dropped: Option<Arc<Life>>,
    /// Associations over which earlier queues left unanswered changes, until they have ended.
    left: Vec<Arc<Life>>,
    /// The queue sends no change before this time, because unanswered changes of earlier queues may be executed until
    /// then.
    changes_after: Nanos,
    /// The first association that the queue may use: earlier losses do not concern it.
    since: u64,
    watch: Watch,
    ability: Ability,
    slots: Slots,
    /// Slots to send, in order.
    ready: VecDeque<SlotIndex>,
    /// Slots to send at the time that their stage states, or later.
    settling: VecDeque<SlotIndex>,
    /// Completed slots.
    over: VecDeque<SlotIndex>,
    /// Commands in flight at the target.
    in_flight: u32,
    /// Slots with a PDU to send, each with at most one.
    outbox: SendQueue<SlotIndex>,
    input: Input,
    intake: Intake,
    /// Received bytes may be unprocessed: there is no wake-up for them.
    more: bool,
    stats: Arc<Stats>,
}

impl FabricsQueue {
    pub(crate) fn open(
        shared: &Arc<Shared>,
        asker: &Asker<Request>,
        (id, depth, core): (u64, u32, CoreIndex),
        zeroes: Buf,
        now: Nanos,
    ) -> io::Result<Self> {
        let watch = Watch::open()?;
        let offer = Arc::new(Offer::default());
        shared.queues_open.fetch_add(1, Ordering::Relaxed);
        let port = Port { id, offer: Arc::clone(&offer), wake: Arc::clone(&watch.wake) };
        asker.ask(Request::Open(port));
        let depth = depth.max(1) as usize;
        let ability = Ability::of(&shared.facts(), zeroes);
        let stats = Arc::new(Stats::new(core));
        shared.keep(&stats);
        Ok(Self {
            shared: Arc::clone(shared),
            asker: asker.clone(),
            id,
            offer,
            link: None,
            now,
            down_since: None,
            dropped: None,
            left: shared.left(now),
            changes_after: Nanos::default(),
            since: shared.cache.current(),
            watch,
            ability,
            slots: Slots::new(depth),
            ready: VecDeque::with_capacity(depth),
            settling: VecDeque::with_capacity(depth),
            over: VecDeque::with_capacity(depth),
            in_flight: 0,
            outbox: SendQueue::new(depth.min(IO_ENTRIES_MAX as usize)),
            input: Input::new(INPUT_BYTES),
            intake: Intake::Header,
            more: false,
            stats,
        })
    }

    fn time(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        self.now
    }

    /// Checks that the device supports `op`; `Ok(false)` means that there is nothing to do.
    fn check(&self, op: &Op) -> Result<bool, IoErrorKind> {
        let ability = &self.ability;
        let bytes = match op {
            Op::Flush => return Ok(true),
            Op::Read { data, .. } => data.len(),
            Op::Write { data, .. } => data.len(),
            Op::Deallocate { .. } if ability.deallocate == DeallocateReads::Unsupported => {
                return Err(IoErrorKind::Unsupported);
            }
            Op::Deallocate { .. } | Op::WriteZeroes { .. } => 0,
        };
        if !matches!(op, Op::Read { .. }) && ability.read_only {
            return Err(IoErrorKind::ReadOnly);
        }
        if ability.block.blocks_in(bytes as u64).is_none() || bytes > IO_BYTES_MAX as usize {
            return Err(IoErrorKind::Misaligned);
        }
        let range = op.range(ability.block);
        if !range.fits(ability.blocks) {
            return Err(IoErrorKind::OutOfRange);
        }
        Ok(!LbaRange::is_empty(range))
    }

    /// Completes a request.
    fn end(&mut self, index: SlotIndex, result: Result<(), IoErrorKind>) {
        self.slots.get(index).stage = Stage::Over(result.map_err(IoError::new));
        self.over.push_back(index);
    }

    /// Takes the connection that the thread has created, and drops one that has ended. A connection that must not be
    /// used for new commands, while its association lasts, is dropped when all its commands have completed.
    fn look_at_links(&mut self, now: Nanos) {
        // The wake-up is cleared before the check, so that a wake-up during the check is seen by the next one. A
        // wake-up may concern no queue with a connection, and its core could not sleep before the wake-up is cleared.
        if self.link.is_none() || now >= self.watch.tick_at {
            self.watch.hear();
        }
        if let Some(link) = &self.link {
            if self.is_current(link) || (link.life.phase() == Phase::Lasting && self.in_flight > 0)
            {
                return;
            }
            self.drop_link(now);
        }
        let since = *self.down_since.get_or_insert(now);
        if let Some(life) = &self.dropped {
            // Until the end, the settle time of the commands is unknown.
            let Phase::Ended(over_at) = life.phase() else { return };
            self.settle_after(over_at);
            self.dropped = None;
        }
        for life in &self.left {
            let Phase::Ended(over_at) = life.phase() else { return };
            self.changes_after = self.changes_after.max(over_at);
        }
        self.left.clear();
        let current = || self.shared.association.load(Ordering::Acquire);
        let (current, link) = self.offer.take_current(current);
        if current == 0 {
            // The association may have been lost long before the first check.
            let down_at = Nanos(self.shared.down_at.load(Ordering::Relaxed));
            self.down_since = Some(since.min(down_at));
            return;
        }
        if let Some(link) = link {
            self.take_link(link);
        }
    }

    /// True if new commands are sent over `link`.
    fn is_current(&self, link: &Link) -> bool {
        self.shared.association.load(Ordering::Acquire) == link.life.number
    }

    fn take_link(&mut self, link: Link) {
        if self.watch.watch_socket(&link.wire).is_err() {
            // Without wake-ups the queue would stall: the thread must create another connection.
            return self.report(link.life.number, Reason::Socket(rustix::io::Errno::NOMEM));
        }
        self.ability.renew(&link.facts);
        self.down_since = None;
        self.stats.connected(&link, self.now);
        self.link = Some(link);
    }

    /// Changes in flight may still be executed before this time.
    fn settle_after(&mut self, time: Nanos) {
        for index in &self.settling {
            self.slots.get(*index).wait_until(time);
        }
    }

    fn report(&self, association: u64, reason: Reason) {
        self.asker.ask(Request::Lost(association, reason));
    }

    /// Reports that the connection must no longer be used, and drops it.
    fn break_off(&mut self, now: Nanos, reason: Reason) {
        if let Some(link) = &self.link {
            self.report(link.life.number, reason);
            self.drop_link(now);
        }
    }

    /// Drops the connection. Its commands are sent again, changes only after their settle time.
    fn drop_link(&mut self, now: Nanos) {
        let unanswered = self.in_flight > 0;
        self.stats.disconnected();
        self.dropped = self.link.take().map(|link| Arc::clone(&link.life)).filter(|_| unanswered);
        self.down_since = Some(now);
        self.outbox.abandon(|_| ());
        self.input.clear();
        self.intake = Intake::Header;
        self.more = false;
        self.in_flight = 0;
        for at in 0..self.slots.len() {
            let index = SlotIndex::of(at);
            if matches!(self.slots.get(index).stage, Stage::Sending | Stage::Waiting) {
                let wait = match self.slots.get(index).changes() {
                    true => self.ability.settle_time,
                    false => Nanos::default(),
                };
                self.send_again(index, now.plus(wait), IoErrorKind::Gone);
            }
        }
    }

    /// Schedules another attempt of the slot's command after `not_before`, or its failure at that time if the attempts
    /// are exhausted: a change that fails is no longer executed.
    fn send_again(&mut self, index: SlotIndex, not_before: Nanos, failure: IoErrorKind) {
        let slot = self.slots.get(index);
        slot.forget_sent();
        slot.stage = Stage::Settling { not_before, failure };
        self.settling.push_back(index);
        self.stats.again();
    }

    /// Moves slots whose wait is over to the ready list, before later ones, or to the completed ones.
    fn settle(&mut self, now: Nanos) {
        for _ in 0..self.settling.len() {
            let Some(index) = self.settling.pop_front() else { break };
            let slot = self.slots.get(index);
            match slot.stage {
                Stage::Settling { not_before, failure } if now >= not_before => {
                    if slot.tries >= TRIES_MAX {
                        self.end(index, Err(failure));
                    } else {
                        slot.stage = Stage::Ready;
                        self.ready.push_front(index);
                    }
                }
                Stage::Settling { .. } => self.settling.push_back(index),
                Stage::Free | Stage::Ready | Stage::Sending | Stage::Waiting | Stage::Over(_) => {
                    unreachable!("what waits in a list is at that stage");
                }
            }
        }
    }

    /// Time for which a request may be held.
    fn hold(&self) -> Nanos {
        self.shared.options.loss_time.max(self.ability.settle_time.plus(SETTLE_MARGIN))
    }

    /// Fails requests that were held for too long: without a link, or without progress over any link.
    fn give_up(&mut self, now: Nanos) {
        if self.dropped.is_some() {
            // The thread has not ended that association yet, so its commands may still be executed.
            return;
        }
        // A drive that was taken over does not return.
        let hold = if self.shared.is_taken_over() { Nanos::default() } else { self.hold() };
        let outage = self.down_since.is_some_and(|since| now.since(since) >= hold);
        // A ready request with a link waits for other requests.
        let no_link = self.link.is_none();
        let mut lists =
            [(mem::take(&mut self.settling), true), (mem::take(&mut self.ready), no_link)];
        for (list, looked_at) in &mut lists {
            list.retain(|&index| {
                let patience = if outage { Nanos::default() } else { hold };
                let over = *looked_at && self.slots.get(index).is_overdue(now, patience);
                if over {
                    self.end(index, Err(IoErrorKind::Gone));
                }
                !over
            });
        }
        [(self.settling, _), (self.ready, _)] = lists;
    }

    /// Checks deadlines, ten times a second.
    fn tick(&mut self, now: Nanos) {
        if now < self.watch.tick_at {
            return;
        }
        self.watch.arm(now);
        let silent = |slot: &slot::Slot| {
            matches!(slot.stage, Stage::Sending | Stage::Waiting)
                && now.since(slot.sent_at) >= ANSWER_TIME_MAX
        };
        if self.slots.any(silent) {
            self.break_off(now, Reason::Silent);
        }
        self.give_up(now);
        // Only a new link shows when the commands of the lost one have settled.
        if self.link.is_some() {
            self.settle(now);
        }
    }

    /// Composes as many commands as the target accepts.
    fn admit(&mut self, now: Nanos) {
        let Some(link) = self.link.as_ref().filter(|link| self.is_current(link)) else { return };
        while self.in_flight < link.terms.window
            && let Some(index) = self.ready.pop_front()
        {
            let slot = self.slots.get(index);
            if now < self.changes_after && slot.changes() {
                let (not_before, failure) = (self.changes_after, IoErrorKind::Gone);
                slot.stage = Stage::Settling { not_before, failure };
                self.settling.push_back(index);
                continue;
            }
            if matches!(slot.op(), Op::Flush) {
                slot.covers = self.shared.cache.changes();
            }
            slot.begin(&self.ability, &link.terms, index, now);
            let (bytes, along) = (slot.piece.bytes, slot.moved);
            self.stats.command(slot.op(), bytes);
            self.stats.counts.goes(along);
            self.outbox.push(index);
            self.in_flight += 1;
        }
    }

    fn send(&mut self, now: Nanos) {
        let Self { link: Some(link), slots, ability, outbox, watch, .. } = self else { return };
        let mut outgoing = Outgoing { slots, ability, terms: &link.terms };
        let sent = outbox.send(&mut link.wire, SENDS_PER_TURN, &mut outgoing);
        // If data beyond the limit of a turn remains, the queue watches for room in the socket, so that an idle core is
        // woken.
        let watched = watch.watch_room(&link.wire, !outbox.is_empty());
        match (sent, watched) {
            (Sent::Broken(error), _) => self.break_off(now, error.into()),
            (Sent::Nothing | Sent::Some | Sent::Blocked, Ok(())) => {}
            (Sent::Nothing | Sent::Some | Sent::Blocked, Err(errno)) => {
                self.break_off(now, Reason::Socket(errno));
            }
        }
    }

    /// Publishes the number of waiting requests.
    fn tell(&self) {
        self.stats.holds(self.ready.len() + self.settling.len());
    }

    fn give_back(&mut self, batch: &mut CompletionBatch) {
        while batch.room() > 0
            && let Some(index) = self.over.pop_front()
        {
            let (io, result) = self.slots.end(index);
            batch.push_parts(io.token, io.op, result);
        }
    }
}

impl IoQueue for FabricsQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        let checked = self.check(&io.op);
        let index = self.slots.take(io)?;
        match checked {
            Ok(true) => self.ready.push_back(index),
            Ok(false) => self.end(index, Ok(())),
            Err(kind) => self.end(index, Err(kind)),
        }
        Ok(())
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        let now = self.time(now);
        self.look_at_links(now);
        self.admit(now);
        self.send(now);
        self.tell();
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        let now = self.time(now);
        self.look_at_links(now);
        self.tick(now);
        if self.link.is_some() {
            if let Err(reason) = self.take_in(now) {
                self.break_off(now, reason);
            }
            // All commands of a kept connection may have completed.
            self.look_at_links(now);
            self.admit(now);
            self.send(now);
        }
        self.give_back(batch);
        self.tell();
    }

    fn readiness(&self) -> Readiness {
        if !self.over.is_empty() || self.more {
            return Readiness::Poll;
        }
        if self.slots.are_free() {
            return Readiness::Idle;
        }
        Readiness::Fd(self.watch.epoll.as_raw_fd())
    }
}

impl FabricsQueue {
    /// Records the unanswered changes of this queue for later queues (F30). An association with such changes must end:
    /// otherwise their settle time would be unknown.
    fn leave(&mut self) {
        let (mut unanswered, mut settling) = (false, None);
        for at in 0..self.slots.len() {
            let slot = self.slots.get(SlotIndex::of(at));
            let stage = slot.stage;
            match stage {
                Stage::Sending | Stage::Waiting => unanswered |= slot.changes(),
                Stage::Settling { not_before, .. } if slot.changes() => {
                    settling = settling.max(Some(not_before));
                }
                Stage::Settling { .. } | Stage::Free | Stage::Ready | Stage::Over(_) => {}
            }
        }
        if let Some(until) = settling {
            let life = Life::new(0);
            life.end(until);
            self.shared.leave(life);
            self.dropped.take().into_iter().for_each(|life| self.shared.leave(life));
        }
        // The connection is closed before its association can end.
        let life = self.link.take().map(|link| Arc::clone(&link.life));
        if let Some(life) = life.filter(|_| unanswered) {
            let association = life.number;
            self.shared.leave(life);
            self.report(association, Reason::Silent);
        }
    }
}

impl Drop for FabricsQueue {
    fn drop(&mut self) {
        self.leave();
        self.shared.queues_open.fetch_sub(1, Ordering::Relaxed);
        self.asker.ask(Request::Close(self.id));
    }
}

impl Watch {
    fn open() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        for fd in [&timer, &wake] {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll, timer, wake: Arc::new(wake), room: false, tick_at: Nanos::default() })
    }

    /// Clears the wake-up.
    fn hear(&self) {
        // An eventfd that was not written to is not readable.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// The close of the socket removes it from the set.
    fn watch_socket(&mut self, socket: &Wire) -> Result<(), rustix::io::Errno> {
        self.room = false;
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(1), epoll::EventFlags::IN)
    }

    fn watch_room(&mut self, socket: &Wire, too: bool) -> Result<(), rustix::io::Errno> {
        if self.room == too {
            return Ok(());
        }
        self.room = too;
        let room = if too { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let flags = epoll::EventFlags::IN | room;
        epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(1), flags)
    }

    /// Sets the timer to expire once. Setting it also clears an earlier expiry.
    fn arm(&mut self, now: Nanos) {
        self.tick_at = now.plus(TICK);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec {
            it_interval: zero,
            it_value: Timespec { tv_sec: 0, tv_nsec: TICK.0 as i64 },
        };
        // The call fails only for invalid times.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }
}

#[cfg(test)]
pub(crate) mod tests;
