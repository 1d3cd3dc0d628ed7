//! What all queues of this crate share: the check of a request against the drive's limits, and the line of
//! requests waiting for a doorbell and a poll.

use strake_block::{
    CompletionBatch, DeallocateReads, DeviceInfo, Io, IoError, IoErrorKind, Op, Readiness, Token,
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
    #[inline]
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
///
/// A ring of places that are written and read where they are: a request that is moved as a whole right after its parts
/// were written costs more than all the rest.
#[derive(Debug)]
pub(crate) struct Line {
    places: Box<[Io]>,
    depth: usize,
    /// The first request, counted from the start; its place is that modulo the number of places.
    first: usize,
    /// Behind the last request, and behind the last one the doorbell was rung for.
    end: usize,
    rung: usize,
}

/// What is in a place without a request.
const VACANT: Op = Op::Flush;

impl Line {
    pub(crate) fn new(depth: u32) -> Self {
        let depth = depth.max(1) as usize;
        let vacant = || Io { token: Token(0), op: VACANT };
        let places = (0..depth.next_power_of_two()).map(|_| vacant()).collect();
        Self { places, depth, first: 0, end: 0, rung: 0 }
    }

    // Handing the request back is the contract of `IoQueue::submit`.
    #[allow(clippy::result_large_err)]
    #[inline]
    pub(crate) fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.end - self.first == self.depth {
            return Err(io);
        }
        let Io { token, op } = io;
        let mask = self.places.len() - 1;
        let place = &mut self.places[self.end & mask];
        place.token = token;
        place.op = op;
        self.end += 1;
        Ok(())
    }

    pub(crate) fn ring(&mut self) {
        self.rung = self.end;
    }

    /// Executes what was rung, as far as the batch has room.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        batch: &mut CompletionBatch,
        mut run: impl FnMut(&mut Op) -> Result<(), IoError>,
    ) {
        let count = (self.rung - self.first).min(batch.room());
        let mask = self.places.len() - 1;
        for at in self.first..self.first + count {
            let place = &mut self.places[at & mask];
            let result = run(&mut place.op);
            let op = std::mem::replace(&mut place.op, VACANT);
            batch.push_parts(place.token, op, result);
        }
        self.first += count;
    }

    pub(crate) fn readiness(&self) -> Readiness {
        if self.first == self.end { Readiness::Idle } else { Readiness::Poll }
    }
}
