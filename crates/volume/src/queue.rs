//! The [`IoQueue`] of a volume: it sends requests to the pool core, and returns the completions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strake_block::{Completion, CompletionBatch, Io, IoError, IoErrorKind, IoQueue, Readiness};
use strake_reactor::{CoreHandle, Receiver, Sender};
use strake_units::Nanos;

/// The queue of one user of a volume.
pub(crate) struct VolumeQueue {
    requests: Sender<Io>,
    replies: Receiver<Completion>,
    /// The pool core. `None` if the user drives the pool.
    wake: Option<CoreHandle>,
    /// True when the pool takes no more requests.
    is_closing: Arc<AtomicBool>,
    /// Requests after the end of the pool.
    refused: VecDeque<Completion>,
    outstanding: u32,
    depth: u32,
    /// True if a request was sent since the last doorbell.
    unrung: bool,
}

impl VolumeQueue {
    pub(crate) fn new(
        requests: Sender<Io>,
        replies: Receiver<Completion>,
        wake: Option<CoreHandle>,
        is_closing: Arc<AtomicBool>,
        depth: u32,
    ) -> Self {
        let refused = VecDeque::new();
        let (outstanding, unrung) = (0, false);
        Self { requests, replies, wake, is_closing, refused, outstanding, depth, unrung }
    }
}

impl IoQueue for VolumeQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.outstanding >= self.depth {
            return Err(io);
        }
        if self.is_closing.load(Ordering::Acquire) || self.requests.abandoned() {
            let result = Err(IoError::new(IoErrorKind::Aborted));
            self.refused.push_back(Completion { token: io.token, op: io.op, result });
        } else {
            self.requests.send(io)?;
            self.unrung = true;
        }
        self.outstanding += 1;
        Ok(())
    }

    fn ring_doorbell(&mut self, _now: Nanos) {
        if std::mem::take(&mut self.unrung)
            && let Some(core) = &self.wake
        {
            core.wake();
        }
    }

    fn poll(&mut self, _now: Nanos, batch: &mut CompletionBatch) {
        let before = batch.len();
        while batch.room() > 0
            && let Some(done) = self.refused.pop_front()
        {
            batch.push(done);
        }
        while batch.room() > 0
            && let Some(done) = self.replies.recv()
        {
            batch.push(done);
        }
        self.outstanding -= (batch.len() - before) as u32;
    }

    fn readiness(&self) -> Readiness {
        // The pool core wakes this core after it has sent an answer.
        let has_answer = !self.replies.is_empty() || !self.refused.is_empty();
        if has_answer { Readiness::Poll } else { Readiness::Idle }
    }
}
