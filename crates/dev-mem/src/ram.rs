//! A drive that keeps its bytes in memory.
//!
//! Extents of 64 KiB are allocated when first written and freed when deallocated or zeroed, so a large empty
//! drive costs almost nothing. Each extent has a lock, because queues of several cores share the bytes. Those
//! locks and allocations exist here and only here: a real drive has its own memory and no queue of ours waits
//! on a lock for it.

mod store;

use crate::device::MemSpec;
use crate::queue::{Limits, Line};
use std::fmt;
use std::sync::Arc;
use store::Store;
use strake_block::{
    BlockDevice, CompletionBatch, DeallocateReads, DeviceError, DeviceInfo, Io, IoError,
    IoErrorKind, IoQueue, Op, Readiness,
};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, Nanos};

/// Bytes allocated, locked and freed together.
pub const EXTENT_BYTES: usize = 64 << 10;

/// A drive in memory. Clones share the bytes: keep one to look at the medium while another is in use.
#[derive(Clone)]
pub struct RamDevice {
    medium: Arc<Medium>,
}

struct Medium {
    spec: MemSpec,
    store: Store,
}

impl RamDevice {
    /// An all-zero drive of `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u64, block_size: BlockSize) -> Self {
        Self::with_spec(MemSpec::new(blocks, block_size))
    }

    /// An all-zero drive like `spec`.
    #[must_use]
    pub fn with_spec(spec: MemSpec) -> Self {
        let store = Store::new(spec.blocks << spec.block_size.shift());
        Self { medium: Arc::new(Medium { spec, store }) }
    }

    /// Copies bytes of the medium out, whatever the queues are doing.
    ///
    /// # Errors
    /// [`IoErrorKind::OutOfRange`] when the bytes are not all on the drive.
    pub fn read_at(&self, byte: u64, data: &mut [u8]) -> Result<(), IoError> {
        self.check_bytes(byte, data.len())?;
        self.medium.store.read(byte, data);
        Ok(())
    }

    /// Overwrites bytes of the medium behind everybody's back, read-only drive or not.
    ///
    /// # Errors
    /// [`IoErrorKind::OutOfRange`] when the bytes are not all on the drive.
    pub fn write_at(&self, byte: u64, data: &[u8]) -> Result<(), IoError> {
        self.check_bytes(byte, data.len())?;
        self.medium.store.write(byte, data);
        Ok(())
    }

    /// Bytes of memory the content takes up now.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.medium.store.allocated_bytes()
    }

    /// Allocates every extent, so that no later write allocates.
    pub fn preallocate(&self) {
        self.medium.store.preallocate();
    }

    fn check_bytes(&self, byte: u64, len: usize) -> Result<(), IoError> {
        if LbaRange::new(Lba(byte), len as u64).fits(self.medium.store.bytes()) {
            Ok(())
        } else {
            Err(IoError::new(IoErrorKind::OutOfRange))
        }
    }
}

impl fmt::Debug for RamDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RamDevice").field("spec", &self.medium.spec).finish_non_exhaustive()
    }
}

impl BlockDevice for RamDevice {
    fn info(&self) -> DeviceInfo {
        self.medium.spec.info()
    }

    fn open_queue(&self, _core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        Ok(Box::new(RamQueue {
            limits: Limits::of(&self.info()),
            line: Line::new(depth),
            medium: Arc::clone(&self.medium),
        }))
    }
}

impl Medium {
    fn run(&self, op: &mut Op) {
        let size = self.spec.block_size;
        match op {
            Op::Read { at, data } => {
                let mut byte = at.bytes(size);
                for part in data.parts_mut() {
                    self.store.read(byte, part.as_mut_slice());
                    byte += part.len() as u64;
                }
            }
            Op::Write { at, data, .. } => {
                let mut byte = at.bytes(size);
                for part in data.parts() {
                    self.store.write(byte, part.as_slice());
                    byte += part.len() as u64;
                }
            }
            Op::Flush => {}
            Op::Deallocate { range } => {
                if self.spec.deallocate == DeallocateReads::Zeroes {
                    self.store.zero(range.start.bytes(size), range.blocks << size.shift());
                }
            }
            Op::WriteZeroes { range, .. } => {
                self.store.zero(range.start.bytes(size), range.blocks << size.shift());
            }
        }
    }
}

struct RamQueue {
    limits: Limits,
    line: Line,
    medium: Arc<Medium>,
}

impl IoQueue for RamQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        self.line.submit(io)
    }

    fn ring_doorbell(&mut self, _now: Nanos) {
        self.line.ring();
    }

    fn poll(&mut self, _now: Nanos, batch: &mut CompletionBatch) {
        let limits = self.limits;
        let medium = &self.medium;
        self.line.complete(batch, |op| {
            limits.check(op)?;
            medium.run(op);
            Ok(())
        });
    }

    fn readiness(&self) -> Readiness {
        self.line.readiness()
    }
}

#[cfg(test)]
mod tests;
