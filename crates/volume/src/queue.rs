//! The [`IoQueue`] of a volume: requests go to the device below, or else to the pool core.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strake_block::{Completion, CompletionBatch, Io, IoError, IoErrorKind, IoQueue, Readiness};
use strake_reactor::{CoreHandle, Receiver, Sender};
use strake_units::Nanos;

use crate::direct_queue::{Back, DirectQueue};

/// The way to the pool core.
pub(crate) struct ByPool {
    requests: Sender<Io>,
    replies: Receiver<Completion>,
    /// The pool core. `None` if the user drives the pool.
    wake: Option<CoreHandle>,
    /// True if a request was sent since the last doorbell.
    unrung: bool,
}

impl ByPool {
    pub(crate) fn new(
        requests: Sender<Io>,
        replies: Receiver<Completion>,
        wake: Option<CoreHandle>,
    ) -> Self {
        Self { requests, replies, wake, unrung: false }
    }

    #[allow(clippy::result_large_err)]
    fn send(&mut self, io: Io) -> Result<(), Io> {
        self.requests.send(io)?;
        self.unrung = true;
        Ok(())
    }
}

/// The queue of one user of a volume.
pub(crate) struct VolumeQueue {
    direct: DirectQueue,
    by_pool: ByPool,
    /// True when the pool takes no more requests.
    is_closing: Arc<AtomicBool>,
    /// Requests after the end of the pool.
    refused: VecDeque<Completion>,
    outstanding: u32,
    depth: u32,
}

impl VolumeQueue {
    pub(crate) fn new(
        by_pool: ByPool,
        direct: DirectQueue,
        is_closing: Arc<AtomicBool>,
        depth: u32,
    ) -> Self {
        let refused = VecDeque::new();
        Self { direct, by_pool, is_closing, refused, outstanding: 0, depth }
    }

    /// True if the pool takes no more requests.
    fn is_closed(&self) -> bool {
        self.is_closing.load(Ordering::Acquire) || self.by_pool.requests.abandoned()
    }

    fn refuse(&mut self, io: Io) {
        let result = Err(IoError::new(IoErrorKind::Aborted));
        self.refused.push_back(Completion { token: io.token, op: io.op, result });
    }
}

impl IoQueue for VolumeQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.outstanding >= self.depth {
            return Err(io);
        }
        if self.is_closed() {
            self.refuse(io);
        } else {
            match self.direct.submit(io) {
                Ok(()) => {}
                Err(Back::Full(io)) => return Err(io),
                Err(Back::ForPool(io)) => self.by_pool.send(io)?,
            }
        }
        self.outstanding += 1;
        Ok(())
    }

    fn submit_batch(&mut self, batch: &mut VecDeque<Io>) {
        if self.is_closed() {
            while self.outstanding < self.depth
                && let Some(io) = batch.pop_front()
            {
                self.refuse(io);
                self.outstanding += 1;
            }
            return;
        }
        while self.outstanding < self.depth
            && let Some(io) = batch.pop_front()
        {
            if let Err(io) = self.direct.stage(io)
                && let Err(back) = self.by_pool.send(io)
            {
                batch.push_front(back);
                break;
            }
            self.outstanding += 1;
        }
        self.outstanding -= self.direct.submit_staged(batch);
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.direct.ring_doorbell(now);
        if std::mem::take(&mut self.by_pool.unrung)
            && let Some(core) = &self.by_pool.wake
        {
            core.wake();
        }
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        let before = batch.len();
        while batch.room() > 0
            && let Some(done) = self.refused.pop_front()
        {
            batch.push(done);
        }
        while batch.room() > 0
            && let Some(done) = self.by_pool.replies.recv()
        {
            batch.push(done);
        }
        self.direct.poll(now, batch);
        self.outstanding -= (batch.len() - before) as u32;
    }

    fn readiness(&self) -> Readiness {
        // The pool core wakes this core after it has sent an answer.
        let has_answer = !self.by_pool.replies.is_empty() || !self.refused.is_empty();
        if has_answer { Readiness::Poll } else { self.direct.readiness() }
    }
}
