//! The [`IoQueue`] of an array. It passes requests to the shard on its core, and returns the completions.

use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use strake_block::{Completion, CompletionBatch, Io, IoError, IoErrorKind, IoQueue, Op, Readiness};
use strake_reactor::{Receiver, Sender};
use strake_units::Nanos;

use crate::array::Waker;
use crate::port::Near;
use crate::shard::{Shard, read_batch, write_stripe};

/// The connection to the shard.
enum Way {
    /// This thread drives the shard.
    Near { near: Rc<Near>, shard: Weak<Shard>, port: u16 },
    /// Another thread drives the shard.
    Far { requests: Sender<Io>, replies: Receiver<Completion> },
}

/// The queue of one user to an array, on one core.
pub(crate) struct ArrayQueue {
    way: Way,
    /// Requests that could not be passed on because the array was stopped.
    refused: VecDeque<Completion>,
    outstanding: u32,
    depth: u32,
    /// True if a request was passed to the next turn of the shard since the last doorbell.
    unrung: bool,
    wake: Waker,
}

impl ArrayQueue {
    /// Creates a queue to a shard of this thread, as its port `port`.
    pub(crate) fn near(
        near: Rc<Near>,
        shard: &Rc<Shard>,
        port: u16,
        depth: u32,
        wake: Waker,
    ) -> Self {
        Self::new(Way::Near { near, shard: Rc::downgrade(shard), port }, depth, wake)
    }

    /// Creates a queue to a shard of another thread.
    pub(crate) fn far(
        requests: Sender<Io>,
        replies: Receiver<Completion>,
        depth: u32,
        wake: Waker,
    ) -> Self {
        Self::new(Way::Far { requests, replies }, depth, wake)
    }

    fn new(way: Way, depth: u32, wake: Waker) -> Self {
        Self { way, refused: VecDeque::new(), outstanding: 0, depth, unrung: false, wake }
    }

    /// True if the shard no longer exists. All outstanding requests then fail.
    fn abandoned(&self) -> bool {
        match &self.way {
            Way::Near { near, .. } => near.gone.get(),
            Way::Far { requests, .. } => requests.abandoned(),
        }
    }

    /// Returns the shard and our port, if this thread drives the shard.
    #[inline]
    fn here(&self) -> Option<(Rc<Shard>, u16)> {
        match &self.way {
            Way::Near { shard, port, .. } => Some((shard.upgrade()?, *port)),
            Way::Far { .. } => None,
        }
    }

    #[inline]
    #[allow(clippy::result_large_err)]
    fn submit_by(&mut self, here: Option<&(Rc<Shard>, u16)>, io: Io) -> Result<(), Io> {
        if self.outstanding >= self.depth {
            return Err(io);
        }
        let Some((shard, port)) = here else { return self.pass_on(io) };
        let Io { token, op } = io;
        let back = match op {
            Op::Read { at, data } => {
                let sent = shard.read_directly(*port, token, at, data);
                sent.err().map(|data| Op::Read { at, data })
            }
            Op::Write { at, data, durability } => {
                let sent = shard.write_directly(*port, token, at, data, durability);
                match sent {
                    Ok(()) => None,
                    Err(data) => write_stripe(shard, (*port, token), at, data, durability)
                        .err()
                        .map(|data| Op::Write { at, data, durability }),
                }
            }
            op @ (Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. }) => Some(op),
        };
        match back {
            None => {
                self.outstanding += 1;
                Ok(())
            }
            Some(op) => self.pass_on(Io { token, op }),
        }
    }

    /// Passes a request to the shard, which accepts it in its next turn.
    #[allow(clippy::result_large_err)]
    fn pass_on(&mut self, io: Io) -> Result<(), Io> {
        if self.abandoned() {
            let Io { token, op } = io;
            let result = Err(IoError::new(IoErrorKind::Aborted));
            self.refused.push_back(Completion { token, op, result });
        } else {
            match &mut self.way {
                Way::Near { near, .. } => near.requests.borrow_mut().push_back(io),
                Way::Far { requests, .. } => requests.send(io)?,
            }
            self.unrung = true;
        }
        self.outstanding += 1;
        Ok(())
    }
}

impl IoQueue for ArrayQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        let here = self.here();
        self.submit_by(here.as_ref(), io)
    }

    fn submit_batch(&mut self, batch: &mut VecDeque<Io>) {
        let here = self.here();
        loop {
            if let Some((shard, port)) = &here
                && let Some(Io { op: Op::Read { .. }, .. }) = batch.front()
            {
                self.outstanding += read_batch(shard, *port, batch, self.depth - self.outstanding);
            }
            // A request that cannot be part of a batch is submitted individually.
            let Some(io) = batch.pop_front() else { return };
            if let Err(back) = self.submit_by(here.as_ref(), io) {
                batch.push_front(back);
                return;
            }
        }
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        if let Some((shard, _)) = self.here() {
            shard.ring(now);
        }
        if std::mem::take(&mut self.unrung) {
            self.wake.wake();
        }
    }

    fn poll(&mut self, _now: Nanos, batch: &mut CompletionBatch) {
        let before = batch.len();
        while batch.room() > 0
            && let Some(done) = self.refused.pop_front()
        {
            batch.push(done);
        }
        match &mut self.way {
            Way::Near { near, .. } => batch.append(&mut near.replies.borrow_mut()),
            Way::Far { replies, .. } => {
                while batch.room() > 0
                    && let Some(done) = replies.recv()
                {
                    batch.push(done);
                }
            }
        }
        self.outstanding -= (batch.len() - before) as u32;
    }

    fn readiness(&self) -> Readiness {
        // The shard is a poller of the same core, and keeps the core awake while the shard has work. As soon as an
        // answer is in our ring, it can be polled.
        let answered = match &self.way {
            Way::Near { near, .. } => !near.replies.borrow().is_empty(),
            Way::Far { replies, .. } => !replies.is_empty(),
        };
        if answered || !self.refused.is_empty() { Readiness::Poll } else { Readiness::Idle }
    }
}
