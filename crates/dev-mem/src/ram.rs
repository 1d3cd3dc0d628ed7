//! A drive that stores its bytes in memory.
//!
//! Extents of 64 KiB are allocated at their first write and freed when they are deallocated or zeroed, so that a large
//! empty drive needs almost no memory. Each extent has a lock, because queues of several cores share the bytes. Only
//! this drive has such locks and allocations: a real drive has its own memory, and no queue waits for a lock on it.

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

/// Bytes that are allocated, locked and freed together.
pub const EXTENT_BYTES: usize = 64 << 10;

/// A drive in memory. Clones share the bytes, so that a test can read the medium through a clone while the drive is in
/// use.
#[derive(Clone)]
pub struct RamDevice {
    medium: Arc<Medium>,
}

struct Medium {
    spec: MemSpec,
    store: Store,
}

impl RamDevice {
    /// Returns a drive of `blocks` blocks of zeroes.
    #[must_use]
    pub fn new(blocks: u64, block_size: BlockSize) -> Self {
        Self::with_spec(MemSpec::new(blocks, block_size))
    }

    /// Returns a drive of zeroes with the properties `spec`.
    #[must_use]
    pub fn with_spec(spec: MemSpec) -> Self {
        let store = Store::new(spec.blocks << spec.block_size.shift());
        Self { medium: Arc::new(Medium { spec, store }) }
    }

    /// Copies bytes of the medium, independently of the queues.
    ///
    /// # Errors
    /// [`IoErrorKind::OutOfRange`] when the bytes are not all on the drive.
    pub fn read_at(&self, byte: u64, data: &mut [u8]) -> Result<(), IoError> {
        self.check_bytes(byte, data.len())?;
        self.medium.store.read(byte, data);
        Ok(())
    }

    /// Overwrites bytes of the medium directly, also of a read-only drive.
    ///
    /// # Errors
    /// [`IoErrorKind::OutOfRange`] when the bytes are not all on the drive.
    pub fn write_at(&self, byte: u64, data: &[u8]) -> Result<(), IoError> {
        self.check_bytes(byte, data.len())?;
        self.medium.store.write(byte, data);
        Ok(())
    }

    /// Returns the bytes of memory that the content needs now.
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
