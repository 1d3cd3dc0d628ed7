//! The device queue of a connection.

use crate::gate::{LimitedBy, next_queue};
use crate::limits::COMPLETIONS_PER_POLL;
use std::collections::VecDeque;
use strake_block::{CompletionBatch, Io, IoQueue};
use strake_qos::{Limiter, limits::TICK};
use strake_reactor::Sleep;
use strake_units::Nanos;

/// A device queue, with a backlog of I/Os that it could not accept.
///
/// ```text
/// submit -> held (waits for the limits) -> backlog (waits for room) -> device
/// ```
/// Each step keeps the order, and without limits nothing is held.
pub struct DeviceQueue {
    queue: Box<dyn IoQueue>,
    /// I/Os that wait for room in the device queue, in order.
    backlog: VecDeque<Io>,
    /// I/Os in flight at the device.
    outstanding: u32,
    /// Whether an I/O was submitted since the last doorbell.
    unrung: bool,
    batch: CompletionBatch,
    limits: Option<LimitedBy>,
    /// The version of the limits that `limited` has.
    version: u64,
    /// Present while a limit holds or an I/O is held.
    limited: Option<Box<Limited>>,
    /// The next I/Os that pass without waiting for the limits; [`usize::MAX`] for all.
    lifted: usize,
}

/// The state of a queue with limits.
struct Limited {
    limiter: Limiter,
    /// I/Os that wait for the limits, in order, each with the bytes of the host's request before it.
    held: VecDeque<(Io, u64)>,
}

impl DeviceQueue {
    /// Creates the queue with room for `backlog` waiting I/Os.
    #[must_use]
    pub fn new(queue: Box<dyn IoQueue>, backlog: usize) -> Self {
        Self {
            queue,
            backlog: VecDeque::with_capacity(backlog),
            outstanding: 0,
            unrung: false,
            batch: CompletionBatch::new(COMPLETIONS_PER_POLL),
            limits: None,
            version: 0,
            limited: None,
            lifted: 0,
        }
    }

    /// Has the queue obey limits.
    #[must_use]
    pub fn limited_by(mut self, limits: LimitedBy) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Submits an I/O that is a whole request, behind those that already wait.
    #[inline]
    pub fn submit(&mut self, io: Io) {
        self.submit_part(io, 0);
    }

    /// Submits an I/O behind those that already wait. `before` is the number of bytes of the host's request before it.
    #[inline]
    pub fn submit_part(&mut self, io: Io, before: u64) {
        if self.is_limited() {
            self.hold(io, before);
        } else {
            self.pass(io);
        }
    }

    /// True if a limit holds, or if the limits have changed.
    #[inline]
    fn is_limited(&self) -> bool {
        let version = self.limits.as_ref().map_or(0, |limits| limits.gate.version());
        version != self.version || self.limited.is_some()
    }

    #[cold]
    fn hold(&mut self, io: Io, before: u64) {
        self.follow();
        match &mut self.limited {
            Some(limited) => {
                limited.held.push_back((io, before));
                self.admit();
            }
            None => self.pass(io),
        }
    }

    /// Applies a change of the limits. Allocates then.
    fn follow(&mut self) {
        let Some(limits) = &self.limits else { return };
        if limits.gate.version() == self.version {
            return;
        }
        let (version, leases) = limits.gate.leases(limits.core);
        self.version = version;
        let room = self.backlog.capacity();
        let limited = self.limited.get_or_insert_with(|| {
            let held = VecDeque::with_capacity(room);
            Box::new(Limited { limiter: Limiter::new(next_queue()), held })
        });
        limited.limiter.replace(leases);
        self.forget_limits();
    }

    /// Ends the handling of limits if none holds and nothing is held.
    fn forget_limits(&mut self) {
        self.limited.take_if(|limited| limited.limiter.is_empty() && limited.held.is_empty());
    }

    /// Submits held I/Os that the limits admit; returns their number.
    fn admit(&mut self) -> usize {
        let mut count = 0;
        while self.backlog.is_empty()
            && let Some(io) = self.next_admitted()
        {
            self.pass(io);
            count += 1;
        }
        self.forget_limits();
        count
    }

    fn next_admitted(&mut self) -> Option<Io> {
        let (limited, limits) = (self.limited.as_mut()?, self.limits.as_ref()?);
        let (io, before) = limited.held.front()?;
        match limits.request(&io.op, *before).map(strake_qos::Request::cost) {
            None => {}
            Some(usage) if self.lifted > 0 => limited.limiter.force(usage),
            Some(usage) if limited.limiter.admit(usage, limits.now) => {}
            Some(_) => return None,
        }
        if self.lifted != usize::MAX {
            self.lifted = self.lifted.saturating_sub(1);
        }
        limited.held.pop_front().map(|(io, _)| io)
    }

    /// Has all I/Os pass without waiting, because the export or the connection ends. They are charged to the limits.
    pub fn lift(&mut self) {
        self.lifted = usize::MAX;
    }

    /// Submits the I/Os that are held now without waiting, because a client waits for their end.
    pub fn release(&mut self) {
        let held = self.limited.as_ref().map_or(0, |limited| limited.held.len());
        if held == 0 {
            return;
        }
        self.lifted = self.lifted.max(held);
        self.submit_backlog();
        if let Some(now) = self.limits.as_ref().map(|limits| limits.now) {
            self.ring(now);
        }
    }

    /// The next I/O that waits for the limits.
    #[must_use]
    pub fn held(&self) -> Option<&Io> {
        self.limited.as_ref()?.held.front().map(|(io, _)| io)
    }

    /// Returns the next I/O that waits for the limits. It is not submitted, because its client is gone, or may not
    /// submit it any more.
    pub fn take_held(&mut self) -> Option<Io> {
        let limited = self.limited.as_mut()?;
        let (io, _) = limited.held.pop_front()?;
        limited.limiter.forget();
        self.forget_limits();
        Some(io)
    }

    /// Sets the time of a turn, before I/Os are submitted.
    #[inline]
    pub fn begin_turn(&mut self, now: Nanos) {
        if let Some(limits) = &mut self.limits {
            limits.now = now;
        }
    }

    /// Admits an I/O to the device.
    #[inline]
    fn pass(&mut self, io: Io) {
        if !self.backlog.is_empty() {
            self.backlog.push_back(io);
            self.submit_waiting();
        } else if let Err(back) = self.queue.submit(io) {
            self.backlog.push_back(back);
        } else {
            self.outstanding += 1;
            self.unrung = true;
        }
    }

    /// Submits waiting I/Os for which there is room; returns their number.
    pub fn submit_backlog(&mut self) -> usize {
        let submitted = self.submit_waiting();
        if self.is_limited() {
            self.follow();
            return submitted + self.admit();
        }
        submitted
    }

    fn submit_waiting(&mut self) -> usize {
        let waiting = self.backlog.len();
        self.queue.submit_batch(&mut self.backlog);
        let count = waiting - self.backlog.len();
        self.outstanding += count as u32;
        self.unrung |= count > 0;
        count
    }

    /// True while I/Os wait for room or for a limit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.backlog.is_empty() || self.is_holding()
    }

    #[inline]
    fn is_holding(&self) -> bool {
        self.limited.as_ref().is_some_and(|limited| !limited.held.is_empty())
    }

    /// Rings the doorbell if an I/O was submitted since the last call.
    pub fn ring(&mut self, now: Nanos) {
        if let Some(limits) = &mut self.limits {
            limits.now = now;
        }
        if self.unrung {
            self.unrung = false;
            self.queue.ring_doorbell(now);
        }
    }

    /// Takes the completions of the device. The batch goes to the caller, so that its completions can change the rest
    /// of the connection; [`give_back`](Self::give_back) returns it. `None` if no I/O is in flight.
    pub fn poll(&mut self, now: Nanos) -> Option<CompletionBatch> {
        if self.outstanding == 0 {
            return None;
        }
        self.queue.poll(now, &mut self.batch);
        self.outstanding -= self.batch.len() as u32;
        Some(std::mem::replace(&mut self.batch, CompletionBatch::new(0)))
    }

    /// Returns the batch of the last [`poll`](Self::poll).
    pub fn give_back(&mut self, batch: CompletionBatch) {
        self.batch = batch;
    }

    /// True while an I/O is in flight.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.outstanding > 0
    }

    /// True if no I/O is in flight or waits.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.outstanding == 0 && !self.is_full()
    }

    /// Registers the wake-up of the core by completions.
    pub fn sleep(&self, sleep: &mut Sleep) {
        sleep.readiness(self.queue.readiness());
        if self.is_holding()
            && let Some(limits) = &self.limits
        {
            sleep.until(limits.now.plus(TICK));
        }
    }
}

#[cfg(test)]
mod tests;
