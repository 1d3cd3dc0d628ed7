//! The device queue of a connection.

use crate::limits::COMPLETIONS_PER_POLL;
use std::collections::VecDeque;
use strake_block::{CompletionBatch, Io, IoQueue};
use strake_reactor::Sleep;
use strake_units::Nanos;

/// A device queue, with a backlog of I/Os that it could not accept.
pub struct DeviceQueue {
    queue: Box<dyn IoQueue>,
    /// I/Os that wait for room in the device queue, in order.
    backlog: VecDeque<Io>,
    /// I/Os in flight at the device.
    outstanding: u32,
    /// Whether an I/O was submitted since the last doorbell.
    unrung: bool,
    batch: CompletionBatch,
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
        }
    }

    /// Submits an I/O, behind those that already wait.
    pub fn submit(&mut self, io: Io) {
        if !self.backlog.is_empty() {
            self.backlog.push_back(io);
            self.submit_backlog();
        } else if let Err(back) = self.queue.submit(io) {
            self.backlog.push_back(back);
        } else {
            self.outstanding += 1;
            self.unrung = true;
        }
    }

    /// Submits waiting I/Os for which there is room; returns their number.
    pub fn submit_backlog(&mut self) -> usize {
        let waiting = self.backlog.len();
        self.queue.submit_batch(&mut self.backlog);
        let count = waiting - self.backlog.len();
        self.outstanding += count as u32;
        self.unrung |= count > 0;
        count
    }

    /// True while I/Os wait for room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Rings the doorbell if an I/O was submitted since the last call.
    pub fn ring(&mut self, now: Nanos) {
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
        self.outstanding == 0 && self.backlog.is_empty()
    }

    /// Registers the wake-up of the core by completions.
    pub fn sleep(&self, sleep: &mut Sleep) {
        sleep.readiness(self.queue.readiness());
    }
}
