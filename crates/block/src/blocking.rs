//! One I/O at a time, waited for: how the control plane reads labels and wipes drives.

use crate::buf::{BufMut, Sg, SgMut};
use crate::device::{CompletionBatch, IoQueue};
use crate::error::{IoError, IoErrorKind};
use crate::io::{Durability, Io, Op, Token};
use strake_units::{Lba, LbaRange, Nanos};

/// Drives a queue synchronously. Never used on a data core.
pub struct Blocking<'a> {
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
    wait: &'a mut dyn FnMut() -> Option<Nanos>,
}

impl<'a> Blocking<'a> {
    /// Wraps `queue`. `wait` is called whenever nothing has completed yet: it waits a little and returns the
    /// time, or `None` to give up (the I/O then fails with [`IoErrorKind::Timeout`]).
    pub fn new(queue: Box<dyn IoQueue>, wait: &'a mut dyn FnMut() -> Option<Nanos>) -> Self {
        Self { queue, batch: CompletionBatch::new(1), wait }
    }

    /// Runs one operation to its end and hands it back.
    ///
    /// # Errors
    /// The device's error, or a time-out.
    pub fn run(&mut self, op: Op) -> Result<Op, IoError> {
        let mut io = Io { token: Token(0), op };
        let mut now = Nanos::default();
        while let Err(back) = self.queue.submit(io) {
            io = back;
            now = (self.wait)().ok_or(IoError::new(IoErrorKind::Timeout))?;
            self.queue.poll(now, &mut self.batch);
        }
        loop {
            self.queue.ring_doorbell(now);
            self.queue.poll(now, &mut self.batch);
            if let Some(done) = self.batch.drain().next() {
                return done.result.map(|()| done.op);
            }
            now = (self.wait)().ok_or(IoError::new(IoErrorKind::Timeout))?;
        }
    }

    /// Reads `data.len()` bytes at `at`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn read(&mut self, at: Lba, data: BufMut) -> Result<BufMut, IoError> {
        match self.run(Op::Read { at, data: SgMut::from(data) })? {
            Op::Read { data, .. } => data.into_single().ok_or(IoError::new(IoErrorKind::Device)),
            Op::Write { .. } | Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {
                Err(IoError::new(IoErrorKind::Device))
            }
        }
    }

    /// Writes `data` at `at` and makes it stable.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn write_stable(&mut self, at: Lba, data: Sg) -> Result<(), IoError> {
        self.run(Op::Write { at, data, durability: Durability::Fua }).map(drop)
    }

    /// Makes completed writes stable.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn flush(&mut self) -> Result<(), IoError> {
        self.run(Op::Flush).map(drop)
    }

    /// Makes `range` read as zeroes.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn write_zeroes(&mut self, range: LbaRange) -> Result<(), IoError> {
        self.run(Op::WriteZeroes { range, durability: Durability::Normal }).map(drop)
    }
}
