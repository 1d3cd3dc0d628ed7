//! Drives that are watched: what reaches them, and what comes back.

use std::sync::{Arc, Mutex};

use strake_block::{
    BlockDevice, CompletionBatch, DeviceError, DeviceInfo, DeviceKind, Io, IoQueue, Op, Readiness,
};
use strake_units::{BlockSize, CoreIndex, Nanos};

/// One I/O as a drive got it, in the order of all drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number of the drive.
    pub drive: usize,
    /// First letter of the operation: read, write, flush, deallocate, zeroes.
    pub op: char,
    /// Where, in bytes.
    pub byte: u64,
    /// How much, in bytes.
    pub bytes: u64,
    /// True when it completed, false when it was submitted.
    pub done: bool,
}

pub(super) type Log = Arc<Mutex<Option<Vec<Seen>>>>;

/// Writes down what reaches a device and what comes back.
pub(super) struct Watched {
    pub(super) inner: Box<dyn BlockDevice>,
    pub(super) drive: usize,
    pub(super) kind: DeviceKind,
    pub(super) log: Log,
}

struct WatchedQueue {
    inner: Box<dyn IoQueue>,
    drive: usize,
    size: BlockSize,
    log: Log,
    seen: CompletionBatch,
}

impl BlockDevice for Watched {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn kind(&self) -> DeviceKind {
        self.kind
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        Ok(Box::new(WatchedQueue {
            inner: self.inner.open_queue(core, depth)?,
            drive: self.drive,
            size: self.inner.info().block_size,
            log: Arc::clone(&self.log),
            seen: CompletionBatch::new(64),
        }))
    }
}

impl WatchedQueue {
    fn note(&self, op: &Op, done: bool) {
        let letter = match op {
            Op::Read { .. } => 'r',
            Op::Write { .. } => 'w',
            Op::Flush => 'f',
            Op::Deallocate { .. } => 'd',
            Op::WriteZeroes { .. } => 'z',
        };
        if let Some(log) = &mut *self.log.lock().expect("one thread") {
            let range = op.range(self.size);
            let (byte, bytes) = (range.start.bytes(self.size), range.blocks << self.size.shift());
            log.push(Seen { drive: self.drive, op: letter, byte, bytes, done });
        }
    }
}

impl IoQueue for WatchedQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        self.note(&io.op, false);
        self.inner.submit(io)
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.inner.ring_doorbell(now);
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        self.seen = CompletionBatch::new(batch.room().min(64));
        let mut seen = std::mem::replace(&mut self.seen, CompletionBatch::new(0));
        self.inner.poll(now, &mut seen);
        for done in seen.drain() {
            self.note(&done.op, true);
            batch.push(done);
        }
    }

    fn readiness(&self) -> Readiness {
        self.inner.readiness()
    }
}
