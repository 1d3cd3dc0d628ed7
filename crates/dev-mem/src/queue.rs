//! The common parts of all queues of this crate: the check of a request against the limits of the drive, and the list
//! of requests that wait for a doorbell and a poll.

use strake_block::{
    CompletionBatch, DeallocateReads, DeviceInfo, Io, IoError, IoErrorKind, Op, Readiness,
};
use strake_units::{BlockSize, Lba, LbaRange};

/// The limits for the check of a request, which are copied once when a queue is opened.
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

    /// Checks that a device with these limits can execute `op`.
    #[inline]
    pub(crate) fn check(&self, op: &Op) -> Result<(), IoError> {
        match op {
            Op::Read { at, data } => self.check_transfer(*at, data.len()),
            Op::Write { at, data, .. } => {
                self.check_writable()?;
                self.check_transfer(*at, data.len())
            }
            Op::Flush => Ok(()),
            Op::Deallocate { range } => {
                self.check_writable()?;
                if self.deallocate == DeallocateReads::Unsupported {
                    return Err(IoError::new(IoErrorKind::Unsupported));
                }
                self.check_range(*range)
            }
            Op::WriteZeroes { range, .. } => {
                self.check_writable()?;
                self.check_range(*range)
            }
        }
    }

    #[inline]
    fn check_transfer(&self, at: Lba, bytes: usize) -> Result<(), IoError> {
        match self.size.blocks_in(bytes as u64) {
            Some(blocks) if bytes <= self.bytes_max as usize => {
                self.check_range(LbaRange::new(at, blocks))
            }
            _ => Err(IoError::new(IoErrorKind::Misaligned)),
        }
    }

    #[inline]
    fn check_writable(&self) -> Result<(), IoError> {
        if self.read_only { Err(IoError::new(IoErrorKind::ReadOnly)) } else { Ok(()) }
    }

    #[inline]
    fn check_range(&self, range: LbaRange) -> Result<(), IoError> {
        if range.fits(self.blocks) { Ok(()) } else { Err(IoError::new(IoErrorKind::OutOfRange)) }
    }
}

/// Requests in order of submission. Only requests before the last doorbell are visible to the device, so that a caller
/// without a doorbell waits forever, as with a real drive.
///
/// The requests wait as completions in a batch, which is exchanged with the batch of the caller if possible. A request
/// is therefore written only once.
#[derive(Debug)]
pub(crate) struct Line {
    waiting: CompletionBatch,
    /// The number of requests before the last doorbell.
    rung: usize,
}

impl Line {
    pub(crate) fn new(depth: u32) -> Self {
        Self { waiting: CompletionBatch::new(depth.max(1) as usize), rung: 0 }
    }

    // The contract of `IoQueue::submit` requires the return of the request.
    #[allow(clippy::result_large_err)]
    #[inline]
    pub(crate) fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.waiting.room() == 0 {
            return Err(io);
        }
        self.waiting.push_parts(io.token, io.op, Ok(()));
        Ok(())
    }

    pub(crate) fn ring(&mut self) {
        self.rung = self.waiting.len();
    }

    /// Executes the visible requests, as far as the batch has space.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        batch: &mut CompletionBatch,
        mut run: impl FnMut(&mut Op) -> Result<(), IoError>,
    ) {
        let count = self.rung.min(batch.room());
        for done in &mut self.waiting.as_mut_slice()[..count] {
            done.result = run(&mut done.op);
        }
        self.rung -= count;
        batch.append_first(&mut self.waiting, count);
    }

    pub(crate) fn readiness(&self) -> Readiness {
        if self.waiting.is_empty() { Readiness::Idle } else { Readiness::Poll }
    }
}
