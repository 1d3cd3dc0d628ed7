//! The way of a connection to its device.

use crate::limits::COMPLETIONS_PER_POLL;
use std::collections::VecDeque;
use strake_block::{CompletionBatch, Io, IoQueue};
use strake_reactor::Sleep;
use strake_units::Nanos;

/// A device queue, with the I/Os that found it full.
pub struct DeviceQueue {
    queue: Box<dyn IoQueue>,
    /// I/Os that found the device queue full, in order.
    backlog: VecDeque<Io>,
    /// I/Os at the device.
    outstanding: u32,
    /// Submitted since the doorbell was last rung.
    unrung: bool,
    batch: CompletionBatch,
}

impl DeviceQueue {
    /// A queue of whose I/Os at most `backlog` ever wait for room in it.
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

    /// Hands an I/O to the device, behind those that wait already.
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

    /// Hands to the device what waited and finds room now; says how much.
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

    /// Rings the doorbell if something was submitted since.
    pub fn ring(&mut self, now: Nanos) {
        if self.unrung {
            self.unrung = false;
            self.queue.ring_doorbell(now);
        }
    }

    /// Takes what the device has completed. The batch goes to the caller, so that its completions can change the rest
    /// of the connection; [`give_back`](Self::give_back) returns it. `None` when nothing is at the device.
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

    /// True while anything is at the device.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.outstanding > 0
    }

    /// True when nothing is at the device or on its way there.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.outstanding == 0 && self.backlog.is_empty()
    }

    /// Lets completions wake the core.
    pub fn sleep(&self, sleep: &mut Sleep) {
        sleep.readiness(self.queue.readiness());
    }
}
