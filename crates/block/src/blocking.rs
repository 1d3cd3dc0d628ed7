//! Synchronous I/O, one operation at a time, with which the control plane reads labels and erases drives.

use crate::buf::{BufMut, Sg, SgMut};
use crate::device::{CompletionBatch, IoQueue};
use crate::error::{IoError, IoErrorKind};
use crate::io::{Durability, Io, Op, Token};
use crate::patience::{Attention, Patience, Silence};
use strake_units::{Lba, LbaRange, Nanos};

/// Drives a queue synchronously. Never used on a data core.
pub struct Blocking<'a> {
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
    wait: &'a mut dyn FnMut() -> Option<Nanos>,
    now: Nanos,
    attention: Attention,
    silence: Silence,
}

impl<'a> Blocking<'a> {
    /// Wraps a queue of a local device. `wait` is called while nothing has completed. It waits for a short time and
    /// returns the time, or `None` to stop waiting. The I/O then fails with [`IoErrorKind::Timeout`], as it does if the
    /// device is unresponsive for longer than the [`Patience`] of such a device.
    pub fn new(queue: Box<dyn IoQueue>, wait: &'a mut dyn FnMut() -> Option<Nanos>) -> Self {
        Self::patient(queue, wait, Patience::of(Nanos(0)))
    }

    /// Wraps a queue with the `patience` of its device.
    pub fn patient(
        queue: Box<dyn IoQueue>,
        wait: &'a mut dyn FnMut() -> Option<Nanos>,
        patience: Patience,
    ) -> Self {
        Self {
            queue,
            batch: CompletionBatch::new(1),
            wait,
            now: Nanos(0),
            attention: Attention::default(),
            silence: Silence::new(patience),
        }
    }

    /// Returns the total time of waits for the device.
    pub fn waited(&mut self) -> Nanos {
        self.attention.at(self.now)
    }

    /// Runs one operation to its end and returns it.
    ///
    /// # Errors
    /// The device's error, or a time-out.
    pub fn run(&mut self, op: Op) -> Result<Op, IoError> {
        let long = matches!(op, Op::Deallocate { .. } | Op::WriteZeroes { .. });
        let mut io = Io { token: Token(0), op };
        while let Err(back) = self.queue.submit(io) {
            io = back;
            self.look_later(long)?;
            self.queue.poll(self.now, &mut self.batch);
        }
        loop {
            self.queue.ring_doorbell(self.now);
            self.queue.poll(self.now, &mut self.batch);
            if let Some(done) = self.batch.drain().next() {
                self.silence.answered(self.attention.at(self.now), false, long);
                return done.result.map(|()| done.op);
            }
            self.look_later(long)?;
        }
    }

    /// Waits until the next check, unless the device has been unresponsive for too long.
    fn look_later(&mut self, long: bool) -> Result<(), IoError> {
        let silent = IoError::new(IoErrorKind::Timeout);
        // The check uses the time of the last poll. The next poll finds later completions.
        if self.silence.is_over(self.attention.at(self.now), long) {
            return Err(silent);
        }
        self.now = (self.wait)().ok_or(silent)?;
        self.silence.owed(self.attention.at(self.now));
        Ok(())
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
