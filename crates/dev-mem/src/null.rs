//! A drive that performs no I/O but checks requests. It is the lower bound of every benchmark.

use crate::device::MemSpec;
use crate::queue::{Limits, Line};
use strake_block::{BlockDevice, CompletionBatch, DeviceError, DeviceInfo, Io, IoQueue, Readiness};
use strake_units::{BlockSize, CoreIndex, Nanos};

/// A drive that completes requests at the next poll and stores no data: reads do not change their buffers, and writes
/// are discarded. It refuses the requests that a real drive would refuse.
#[derive(Clone, Debug)]
pub struct NullDevice {
    spec: MemSpec,
}

impl NullDevice {
    /// Returns a null drive of `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u64, block_size: BlockSize) -> Self {
        Self::with_spec(MemSpec::new(blocks, block_size))
    }

    /// Returns a null drive with the reported properties `spec`.
    #[must_use]
    pub const fn with_spec(spec: MemSpec) -> Self {
        Self { spec }
    }
}

impl BlockDevice for NullDevice {
    fn info(&self) -> DeviceInfo {
        self.spec.info()
    }

    fn open_queue(&self, _core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        Ok(Box::new(NullQueue { limits: Limits::of(&self.info()), line: Line::new(depth) }))
    }
}

struct NullQueue {
    limits: Limits,
    line: Line,
}

impl IoQueue for NullQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        self.line.submit(io)
    }

    fn ring_doorbell(&mut self, _now: Nanos) {
        self.line.ring();
    }

    fn poll(&mut self, _now: Nanos, batch: &mut CompletionBatch) {
        let limits = self.limits;
        self.line.complete(batch, |op| limits.check(op));
    }

    fn readiness(&self) -> Readiness {
        self.line.readiness()
    }
}
