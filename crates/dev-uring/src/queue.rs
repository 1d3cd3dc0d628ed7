//! A queue: slots that own requests, and the rings that carry them.

use crate::device::Shared;
use crate::limits::{DEPTH_MAX, DRAIN};
use crate::ring::{Mode, Ring};
use crate::slot::{Context, Next, Slot};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::AsFd;
use std::sync::Arc;
use strake_block::{
    Completion, CompletionBatch, DeallocateReads, Io, IoError, IoErrorKind, IoQueue, Op, Readiness,
};
use strake_units::{LbaRange, Nanos};

/// A submission and completion path of a [`UringDevice`](crate::UringDevice). Stays on the thread that opened
/// it: the kernel refuses others (`IORING_SETUP_SINGLE_ISSUER`), and the raw pointers inside make it not `Send`.
pub struct UringQueue {
    shared: Arc<Shared>,
    /// Capacity in blocks when the queue was opened.
    blocks: u64,
    /// Reads and writes.
    ring: Ring,
    /// Everything else, when `ring` polls: a polling ring takes only reads and writes.
    other: Option<Ring>,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Something pushed since the last submission writes.
    writes_pushed: bool,
    /// Requests that were over before the kernel saw them, and how they ended.
    ready: VecDeque<(u32, Result<(), IoError>)>,
}

impl UringQueue {
    pub(crate) fn open(shared: Arc<Shared>, blocks: u64, depth: u32) -> io::Result<Self> {
        let depth = depth.max(1);
        if depth > DEPTH_MAX {
            return Err(io::Error::from_raw_os_error(Errno::INVAL.raw_os_error()));
        }
        let mode = if shared.polled { Mode::Polled } else { Mode::Interrupts };
        let mut ring = Ring::open(depth, mode, shared.file.as_fd())?;
        // `with_arenas` has told whether registration works; a queue that cannot is slower, not wrong.
        let _ = ring.register(&shared.arenas);
        let other = match mode {
            Mode::Polled => Some(Ring::open(depth, Mode::Interrupts, shared.file.as_fd())?),
            Mode::Interrupts => None,
        };
        Ok(Self {
            shared,
            blocks,
            ring,
            other,
            slots: (0..depth).map(|_| Slot::empty()).collect(),
            free: (0..depth).rev().collect(),
            writes_pushed: false,
            ready: VecDeque::with_capacity(depth as usize),
        })
    }

    fn context(shared: &Shared) -> Context<'_> {
        Context { size: shared.block_size, learned: &shared.learned, zeroes: &shared.zeroes }
    }

    /// Whether the device can do `op`; `Ok(false)` means there is nothing to do.
    fn check(&self, op: &Op) -> Result<bool, IoError> {
        let error = |kind| Err(IoError::new(kind));
        let writes = match op {
            Op::Flush => return Ok(true),
            Op::Read { data, .. } => {
                self.check_data(data.parts().iter().map(|part| (part.address(), part.len())))?;
                false
            }
            Op::Write { data, .. } => {
                self.check_data(data.parts().iter().map(|part| (part.address(), part.len())))?;
                true
            }
            Op::Deallocate { .. } | Op::WriteZeroes { .. } => true,
        };
        let range = op.range(self.shared.block_size);
        if writes && self.shared.read_only {
            return error(IoErrorKind::ReadOnly);
        }
        if matches!(op, Op::Deallocate { .. })
            && self.shared.deallocate == DeallocateReads::Unsupported
        {
            return error(IoErrorKind::Unsupported);
        }
        if !range.fits(self.blocks) {
            return error(IoErrorKind::OutOfRange);
        }
        Ok(!LbaRange::is_empty(range))
    }

    /// Direct I/O needs aligned pieces; copying them to aligned memory behind the caller's back would hide a
    /// cost, so they are refused.
    fn check_data(&self, parts: impl Iterator<Item = (usize, usize)>) -> Result<(), IoError> {
        let mut total = 0;
        for (address, bytes) in parts {
            if let Some(align) = self.shared.direct
                && (address % align.memory as usize != 0 || bytes % align.offset as usize != 0)
            {
                return Err(IoError::new(IoErrorKind::Misaligned));
            }
            total += bytes;
        }
        let size = self.shared.block_size;
        if size.blocks_in(total as u64).is_none() || total > self.shared.io_bytes_max as usize {
            return Err(IoError::new(IoErrorKind::Misaligned));
        }
        Ok(())
    }

    /// Puts the slot's next step into the ring that can carry it.
    fn push(&mut self, index: u32) {
        let Self { shared, ring, other, slots, writes_pushed, .. } = self;
        let slot = &mut slots[index as usize];
        *writes_pushed |= slot.writes();
        let ring = match other {
            Some(other) if !slot.is_transfer() => other,
            Some(_) | None => ring,
        };
        let entry = slot.entry(&Self::context(shared), ring);
        // SAFETY: the addresses in `entry` are those of the slot's I/O vectors, which sit in a boxed slice that
        // is neither resized nor dropped while the kernel holds them (see `Drop`), of the buffers the slot's
        // request owns, exclusively for reads and immutably for writes, and of the device's zeroes, which
        // `shared` keeps. Nothing touches the vectors or the request before `next` returns this slot.
        unsafe { ring.push(index, entry) };
    }

    /// Submits; when the ring is beyond use, ends what the kernel did not take.
    fn submit_all(&mut self) {
        let Self { shared, ring, other, ready, writes_pushed, .. } = self;
        let shrunk = mem::take(writes_pushed) && shared.has_shrunk();
        for ring in [Some(ring), other.as_mut()].into_iter().flatten() {
            if shrunk {
                ring.break_off(Errno::NODEV);
            }
            if let Err(errno) = ring.submit() {
                let kind =
                    if errno == Errno::NODEV { IoErrorKind::Gone } else { IoErrorKind::Device };
                let error = IoError::from_os(kind, errno.raw_os_error());
                while let Some(slot) = ring.abandon() {
                    ready.push_back((slot, Err(error)));
                }
            }
        }
    }

    fn complete(&mut self, index: u32, result: Result<(), IoError>, batch: &mut CompletionBatch) {
        let io = self.slots[index as usize].take();
        self.free.push(index);
        batch.push(Completion { token: io.token, op: io.op, result });
    }

    fn next_result(&mut self) -> Option<(u32, i32)> {
        self.ring.next().or_else(|| self.other.as_mut().and_then(Ring::next))
    }
}

impl IoQueue for UringQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        let Some(index) = self.free.pop() else {
            return Err(io);
        };
        let verdict = self.check(&io.op);
        self.slots[index as usize].fill(io, &Self::context(&self.shared));
        match verdict {
            Ok(true) => self.push(index),
            Ok(false) => self.ready.push_back((index, Ok(()))),
            Err(error) => self.ready.push_back((index, Err(error))),
        }
        Ok(())
    }

    fn ring_doorbell(&mut self, _now: Nanos) {
        self.submit_all();
    }

    fn poll(&mut self, _now: Nanos, batch: &mut CompletionBatch) {
        while batch.room() > 0
            && let Some((index, result)) = self.ready.pop_front()
        {
            self.complete(index, result, batch);
        }
        self.ring.collect();
        if let Some(other) = &mut self.other {
            other.collect();
        }
        let mut again = false;
        while batch.room() > 0
            && let Some((index, result)) = self.next_result()
        {
            let slot = &mut self.slots[index as usize];
            match slot.advance(result, &Self::context(&self.shared)) {
                Next::Finish(result) => self.complete(index, result, batch),
                Next::Again => {
                    self.push(index);
                    again = true;
                }
            }
        }
        if again {
            // A core that saw nothing complete may sleep on our file descriptor without another doorbell.
            self.submit_all();
        }
    }

    fn readiness(&self) -> Readiness {
        let submitted =
            self.ring.is_submitted() && self.other.as_ref().is_none_or(Ring::is_submitted);
        if self.free.len() == self.slots.len() {
            Readiness::Idle
        } else if !self.ready.is_empty() || !submitted || self.ring.mode() == Mode::Polled {
            Readiness::Poll
        } else {
            Readiness::Fd(self.ring.fd())
        }
    }
}

impl Drop for UringQueue {
    /// Waits for every request the kernel has taken, because their buffers are freed right after this. Should
    /// the kernel not answer (a drive that hangs without a time-out), the slots are leaked: lost memory is
    /// better than memory that a drive writes into while someone else uses it.
    fn drop(&mut self) {
        let drained = self.ring.drain(DRAIN) && self.other.as_mut().is_none_or(|r| r.drain(DRAIN));
        if !drained {
            let _ = ManuallyDrop::new(mem::take(&mut self.slots));
            // Slots that write zeroes use the device's.
            let _ = ManuallyDrop::new(Arc::clone(&self.shared));
        }
    }
}
