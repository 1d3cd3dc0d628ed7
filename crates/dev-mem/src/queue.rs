//! What all queues of this crate share: the check of a request against the drive's limits, and the line of
//! requests waiting for a doorbell and a poll.

use std::collections::VecDeque;
use strake_block::{
    Completion, CompletionBatch, DeallocateReads, DeviceInfo, Io, IoError, IoErrorKind, Op,
    Readiness,
};
use strake_units::{BlockSize, LbaRange};

/// The numbers a request is checked against, copied once when a queue opens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) blocks: u64,
    pub(crate) size: BlockSize,
    bytes_max: u32,
    deallocate: DeallocateReads,
    read_only: bool,
}

impl Limits {
    pub(crate) fn of(info: &DeviceInfo) -> Self {
        Self {
            blocks: info.blocks,
            size: info.block_size,
            bytes_max: info.io_bytes_max,
            deallocate: info.deallocate,
            read_only: info.read_only,
        }
    }

    /// Whether a device with these limits can do `op` at all.
    pub(crate) fn check(&self, op: &Op) -> Result<(), IoError> {
        match op {
            Op::Read { data, .. } => self.check_length(data.len())?,
            Op::Write { data, .. } => {
                self.check_writable()?;
                self.check_length(data.len())?;
            }
            Op::Flush => {}
            Op::Deallocate { .. } => {
                self.check_writable()?;
                if self.deallocate == DeallocateReads::Unsupported {
                    return Err(IoError::new(IoErrorKind::Unsupported));
                }
            }
            Op::WriteZeroes { .. } => self.check_writable()?,
        }
        self.check_range(op.range(self.size))
    }

    fn check_length(&self, bytes: usize) -> Result<(), IoError> {
        if bytes > self.bytes_max as usize || self.size.blocks_in(bytes as u64).is_none() {
            return Err(IoError::new(IoErrorKind::Misaligned));
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<(), IoError> {
        if self.read_only { Err(IoError::new(IoErrorKind::ReadOnly)) } else { Ok(()) }
    }

    fn check_range(&self, range: LbaRange) -> Result<(), IoError> {
        if range.fits(self.blocks) { Ok(()) } else { Err(IoError::new(IoErrorKind::OutOfRange)) }
    }
}

/// Requests in order of submission. Only those the doorbell was rung for are visible to the device, so that a
/// caller who forgets the doorbell waits forever here as it would on a real drive.
#[derive(Debug)]
pub(crate) struct Line {
    waiting: VecDeque<Io>,
    depth: usize,
    rung: usize,
}

impl Line {
    pub(crate) fn new(depth: u32) -> Self {
        let depth = depth.max(1) as usize;
        Self { waiting: VecDeque::with_capacity(depth), depth, rung: 0 }
    }

    // Handing the request back is the contract of `IoQueue::submit`.
    #[allow(clippy::result_large_err)]
    pub(crate) fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.waiting.len() == self.depth {
            return Err(io);
        }
        self.waiting.push_back(io);
        Ok(())
    }

    pub(crate) fn ring(&mut self) {
        self.rung = self.waiting.len();
    }

    /// Executes what was rung, as far as the batch has room.
    pub(crate) fn complete(
        &mut self,
        batch: &mut CompletionBatch,
        mut run: impl FnMut(&mut Op) -> Result<(), IoError>,
    ) {
        let count = self.rung.min(batch.room());
        self.rung -= count;
        for mut io in self.waiting.drain(..count) {
            let result = run(&mut io.op);
            batch.push(Completion { token: io.token, op: io.op, result });
        }
    }

    pub(crate) fn readiness(&self) -> Readiness {
        if self.waiting.is_empty() { Readiness::Idle } else { Readiness::Poll }
    }
}
