//! A drive for experiments about time: it keeps labels and discards data.
//!
//! Copying the bytes of a rebuild would take most of the running time and would not affect simulated time. The other
//! tests of this crate keep every byte and compare it.

use std::ops::Range;

use strake_block::{
    BlockDevice, CompletionBatch, DeviceError, DeviceInfo, Io, IoQueue, Op, Readiness,
};
use strake_dev_mem::{MemSpec, NullDevice, RamDevice};
use strake_ondisk::{HEAD_BYTES, TAIL_BYTES};
use strake_units::{BlockSize, CoreIndex, Lba, Nanos};

/// Keeps writes to the label areas; completes everything else at once.
#[derive(Clone, Debug)]
pub struct LabelDrive {
    /// Both areas, one after the other: a drive of terabytes needs no more memory.
    ends: RamDevice,
    null: NullDevice,
}

impl LabelDrive {
    /// An empty drive of `bytes` bytes in blocks of 4 KiB.
    #[must_use]
    pub fn new(bytes: u64, identity: &str) -> Self {
        let size = BlockSize::B4096;
        let spec = MemSpec::new(bytes >> size.shift(), size).named(identity);
        let ends = RamDevice::new((HEAD_BYTES + TAIL_BYTES) >> size.shift(), size);
        Self { ends, null: NullDevice::with_spec(spec) }
    }
}

impl BlockDevice for LabelDrive {
    fn info(&self) -> DeviceInfo {
        self.null.info()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let info = self.info();
        let size = info.block_size;
        Ok(Box::new(LabelQueue {
            ends: self.ends.open_queue(core, depth)?,
            null: self.null.open_queue(core, depth)?,
            size,
            data: HEAD_BYTES >> size.shift()..info.blocks - (TAIL_BYTES >> size.shift()),
        }))
    }
}

struct LabelQueue {
    ends: Box<dyn IoQueue>,
    null: Box<dyn IoQueue>,
    size: BlockSize,
    /// Blocks whose content is not kept.
    data: Range<u64>,
}

impl IoQueue for LabelQueue {
    // Returning the request is the contract of `IoQueue::submit`.
    #[allow(clippy::result_large_err)]
    fn submit(&mut self, mut io: Io) -> Result<(), Io> {
        let range = io.op.range(self.size);
        if range.blocks > 0 && self.data.contains(&range.start.0) {
            return self.null.submit(io);
        }
        if let Some(at) = start_of(&mut io.op).filter(|at| at.0 >= self.data.end) {
            // No caller checks the address in a completion.
            at.0 -= self.data.end - self.data.start;
        }
        self.ends.submit(io)
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.ends.ring_doorbell(now);
        self.null.ring_doorbell(now);
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        self.ends.poll(now, batch);
        self.null.poll(now, batch);
    }

    fn readiness(&self) -> Readiness {
        match self.ends.readiness() {
            Readiness::Idle => self.null.readiness(),
            busy @ (Readiness::Poll | Readiness::At(_) | Readiness::Fd(_)) => busy,
        }
    }
}

/// The first block of an operation, if it has one.
fn start_of(op: &mut Op) -> Option<&mut Lba> {
    match op {
        Op::Read { at, .. } | Op::Write { at, .. } => Some(at),
        Op::WriteZeroes { range, .. } | Op::Deallocate { range } => Some(&mut range.start),
        Op::Flush => None,
    }
}
