//! A device that writes down what reaches it: which operation, where, and how durable it was asked to be.
//!
//! Tests of every export put it under a server. What a request said is then compared with what the device got, so that
//! a durability that is parsed well and dropped on the way is seen.

use std::sync::{Arc, Mutex, PoisonError};

use strake_block::{BlockDevice, DeviceError, DeviceInfo, Durability, IoQueue, Op};
use strake_units::{BlockSize, CoreIndex, LbaRange, Nanos};

use crate::intercept::Intercept;

/// An operation as it reached the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A read of these blocks.
    Read(LbaRange),
    /// A write of these blocks.
    Write(LbaRange, Durability),
    /// A flush.
    Flush,
    /// These blocks were given up.
    Deallocate(LbaRange),
    /// Zeroes to these blocks.
    Zeroes(LbaRange, Durability),
}

impl Seen {
    fn of(op: &Op, size: BlockSize) -> Self {
        let range = op.range(size);
        match op {
            Op::Read { .. } => Self::Read(range),
            Op::Write { durability, .. } => Self::Write(range, *durability),
            Op::Flush => Self::Flush,
            Op::Deallocate { .. } => Self::Deallocate(range),
            Op::WriteZeroes { durability, .. } => Self::Zeroes(range, *durability),
        }
    }
}

/// What reached the queues of a [`Recorder`], in order of submission. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Vec<Seen>>>);

impl Record {
    /// Takes all that was recorded and leaves it empty.
    #[must_use]
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`take`](Self::take), without the reads.
    #[must_use]
    pub fn changes(&self) -> Vec<Seen> {
        self.take().into_iter().filter(|seen| !matches!(seen, Seen::Read(_))).collect()
    }

    fn push(&self, seen: Seen) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }
}

/// A device that records every operation that it takes, before it hands it to the device within.
#[derive(Clone, Debug)]
pub struct Recorder<D> {
    inner: D,
    record: Record,
}

impl<D: BlockDevice> Recorder<D> {
    /// Records what reaches `inner`.
    #[must_use]
    pub fn new(inner: D) -> (Self, Record) {
        let record = Record::default();
        (Self { inner, record: record.clone() }, record)
    }
}

impl<D: BlockDevice> BlockDevice for Recorder<D> {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let (inner, record) = (self.inner.open_queue(core, depth)?, self.record.clone());
        let size = self.inner.info().block_size;
        Ok(Box::new(Intercept::new(inner, move |queue, io| {
            let seen = Seen::of(&io.op, size);
            // What is handed back comes again, and only counts then.
            queue.submit(io).inspect(|()| record.push(seen))
        })))
    }

    fn data_within(&self, range: LbaRange) -> Option<LbaRange> {
        self.inner.data_within(range)
    }

    fn settle_time(&self) -> Nanos {
        self.inner.settle_time()
    }
}
