//! An array's [`IoQueue`]: hands requests to the shard on its own core and brings the answers back.

use std::collections::VecDeque;

use strake_block::{Completion, CompletionBatch, Io, IoQueue, Op, Readiness, Token};
use strake_reactor::{Receiver, Sender};
use strake_units::Nanos;

/// A request on its way to the shard.
#[derive(Debug)]
pub(crate) struct PortRequest {
    pub(crate) token: Token,
    pub(crate) op: Op,
}

/// An answer on its way back.
pub(crate) type PortReply = Completion;

/// One user's queue to an array, for one core.
pub(crate) struct ArrayQueue {
    requests: Sender<PortRequest>,
    replies: Receiver<PortReply>,
    /// Requests that could not be passed on because the array is gone.
    refused: VecDeque<Completion>,
    outstanding: u32,
    depth: u32,
    wake: crate::array::Waker,
}

impl ArrayQueue {
    pub(crate) fn new(
        requests: Sender<PortRequest>,
        replies: Receiver<PortReply>,
        depth: u32,
        wake: crate::array::Waker,
    ) -> Self {
        Self { requests, replies, refused: VecDeque::new(), outstanding: 0, depth, wake }
    }

    /// Everything outstanding fails when the shard has gone away with it.
    fn abandoned(&self) -> bool {
        self.requests.abandoned()
    }
}

impl IoQueue for ArrayQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.outstanding >= self.depth {
            return Err(io);
        }
        let Io { token, op } = io;
        if self.abandoned() {
            self.refused.push_back(Completion {
                token,
                op,
                result: Err(strake_block::IoError::new(strake_block::IoErrorKind::Aborted)),
            });
        } else if let Err(back) = self.requests.send(PortRequest { token, op }) {
            return Err(Io { token: back.token, op: back.op });
        }
        self.outstanding += 1;
        Ok(())
    }

    fn ring_doorbell(&mut self, _now: Nanos) {
        self.wake.wake();
    }

    fn poll(&mut self, _now: Nanos, batch: &mut CompletionBatch) {
        while batch.room() > 0 {
            let Some(done) = self.refused.pop_front().or_else(|| self.replies.recv()) else {
                break;
            };
            self.outstanding -= 1;
            batch.push(done);
        }
    }

    fn readiness(&self) -> Readiness {
        // The shard is a poller of this same core and keeps the core awake while it has work; once its answer
        // is in our ring there is something to poll right now.
        if !self.refused.is_empty() || !self.replies.is_empty() {
            Readiness::Poll
        } else {
            Readiness::Idle
        }
    }
}
