//! An array's [`IoQueue`]: hands requests to the shard on its own core and brings the answers back.

use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use strake_block::{
    Completion, CompletionBatch, Durability, Io, IoError, IoErrorKind, IoQueue, Op, Readiness, Sg,
    SgMut, Token,
};
use strake_reactor::{Receiver, Sender};
use strake_units::{Lba, Nanos};

use crate::array::Waker;
use crate::port::Near;
use crate::shard::Shard;

/// The way to the shard.
enum Way {
    /// It is driven by this thread.
    Near { near: Rc<Near>, shard: Weak<Shard>, port: u16 },
    /// It is driven by another one.
    Far { requests: Sender<Io>, replies: Receiver<Completion> },
}

/// One user's queue to an array, for one core.
pub(crate) struct ArrayQueue {
    way: Way,
    /// Requests that could not be passed on because the array is gone.
    refused: VecDeque<Completion>,
    outstanding: u32,
    depth: u32,
    /// Something was passed on to the shard's next turn since the last doorbell.
    unrung: bool,
    wake: Waker,
}

impl ArrayQueue {
    /// A queue to a shard of this thread, as its port `port`.
    pub(crate) fn near(
        near: Rc<Near>,
        shard: &Rc<Shard>,
        port: u16,
        depth: u32,
        wake: Waker,
    ) -> Self {
        Self::new(Way::Near { near, shard: Rc::downgrade(shard), port }, depth, wake)
    }

    /// A queue to a shard of another thread.
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

    /// Everything outstanding fails when the shard has gone away with it.
    fn abandoned(&self) -> bool {
        match &self.way {
            Way::Near { near, .. } => near.gone.get(),
            Way::Far { requests, .. } => requests.abandoned(),
        }
    }

    /// Passes a request on to where the shard takes it in with its next turn.
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
        if self.outstanding >= self.depth {
            return Err(io);
        }
        match io {
            Io { token, op: Op::Read { at, data } } => self.submit_read(token, at, data),
            Io { token, op: Op::Write { at, data, durability } } => {
                self.submit_write(token, at, data, durability)
            }
            io => self.pass_on(io),
        }
    }

    #[inline]
    fn submit_read(&mut self, token: Token, at: Lba, mut data: SgMut) -> Result<(), Io> {
        if self.outstanding >= self.depth {
            return Err(Io { token, op: Op::Read { at, data } });
        }
        if let Way::Near { shard, port, .. } = &self.way
            && let Some(shard) = shard.upgrade()
        {
            match shard.read_directly(*port, token, at, data) {
                Ok(()) => {
                    self.outstanding += 1;
                    return Ok(());
                }
                Err(back) => data = back,
            }
        }
        self.pass_on(Io { token, op: Op::Read { at, data } })
    }

    #[inline]
    fn submit_write(
        &mut self,
        token: Token,
        at: Lba,
        mut data: Sg,
        durability: Durability,
    ) -> Result<(), Io> {
        if self.outstanding >= self.depth {
            return Err(Io { token, op: Op::Write { at, data, durability } });
        }
        if let Way::Near { shard, port, .. } = &self.way
            && let Some(shard) = shard.upgrade()
        {
            match shard.write_directly(*port, token, at, data, durability) {
                Ok(()) => {
                    self.outstanding += 1;
                    return Ok(());
                }
                Err(back) => data = back,
            }
        }
        self.pass_on(Io { token, op: Op::Write { at, data, durability } })
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        if let Way::Near { shard, .. } = &self.way
            && let Some(shard) = shard.upgrade()
        {
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
        // The shard is a poller of this same core and keeps the core awake while it has work; once its answer
        // is in our ring there is something to poll right now.
        let answered = match &self.way {
            Way::Near { near, .. } => !near.replies.borrow().is_empty(),
            Way::Far { replies, .. } => !replies.is_empty(),
        };
        if answered || !self.refused.is_empty() { Readiness::Poll } else { Readiness::Idle }
    }
}
