//! A device that records its operations: the kind, the range and the requested durability.
//!
//! Tests of every export use it below a server. They compare the request with the operation of the device, and
//! therefore detect a durability that is parsed correctly but not forwarded.

use std::sync::{Arc, Mutex, PoisonError};

use strake_block::{BlockDevice, DeviceError, DeviceInfo, Durability, IoQueue, Op};
use strake_units::{BlockSize, CoreIndex, LbaRange, Nanos};

use crate::intercept::Intercept;

/// An operation that reached the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A read of these blocks.
    Read(LbaRange),
    /// A write of these blocks.
    Write(LbaRange, Durability),
    /// A flush.
    Flush,
    /// A deallocation of these blocks.
    Deallocate(LbaRange),
    /// A write of zeroes to these blocks.
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

/// The operations that reached the queues of a [`Recorder`], in order of submission. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Vec<Seen>>>);

impl Record {
    /// Returns the recorded operations and clears the record.
    #[must_use]
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the operations of [`take`](Self::take) without the reads.
    #[must_use]
    pub fn changes(&self) -> Vec<Seen> {
        self.take().into_iter().filter(|seen| !matches!(seen, Seen::Read(_))).collect()
    }

    fn push(&self, seen: Seen) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }
}

/// A device that records every operation that the inner device accepts.
#[derive(Clone, Debug)]
pub struct Recorder<D> {
    inner: D,
    record: Record,
}

impl<D: BlockDevice> Recorder<D> {
    /// Records the operations that reach `inner`.
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
            // A returned request is submitted again, and is recorded only when it is accepted.
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
