//! A queue: slots that own requests, and the rings that transfer them.

use crate::device::Shared;
use crate::limits::{DEPTH_MAX, SLOW_DEPTH_MAX, WAKE_AFTER};
use crate::reaper::{self, Debt};
use crate::ring::{Mode, Ring, wake_workers};
use crate::slot::{Context, Next, Slot};
use io_uring::squeue;
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

/// A submission and completion path of a [`UringDevice`](crate::UringDevice). It stays on the thread that opened it:
/// the kernel rejects other threads (`IORING_SETUP_SINGLE_ISSUER`), and the raw pointers inside make it not `Send`.
pub struct UringQueue {
    shared: Arc<Shared>,
    /// Capacity in blocks when the queue was opened.
    blocks: u64,
    /// Reads and writes.
    ring: ManuallyDrop<Ring>,
    /// All other requests, if `ring` polls: a polling ring accepts only reads and writes.
    other: Option<Ring>,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Whether a write was pushed since the last submission.
    writes_pushed: bool,
    /// Requests in the kernel that each occupy one of its threads.
    slow: u32,
    /// Further such requests, which wait for one of those to complete.
    held_back: VecDeque<u32>,
    /// Requests that completed without reaching the kernel, with their results.
    ready: VecDeque<(u32, Result<(), IoError>)>,
    /// The time of the last result, or of the last wake-up of the kernel's workers; `None` until the first poll of a
    /// queue that was idle.
    moved: Option<Nanos>,
}

impl UringQueue {
    pub(crate) fn open(shared: Arc<Shared>, blocks: u64, depth: u32) -> io::Result<Self> {
        let depth = depth.max(1);
        if depth > DEPTH_MAX {
            return Err(io::Error::from_raw_os_error(Errno::INVAL.raw_os_error()));
        }
        let mode = if shared.polled { Mode::Polled } else { Mode::Interrupts };
        let mut ring = Ring::open(depth, mode, shared.file.as_fd())?;
        // `with_arenas` has reported whether registration works; a queue without it is slower, but correct.
        let _ = ring.register(&shared.arenas);
        let other = match mode {
            Mode::Polled => Some(Ring::open(depth, Mode::Interrupts, shared.file.as_fd())?),
            Mode::Interrupts => None,
        };
        Ok(Self {
            shared,
            blocks,
            ring: ManuallyDrop::new(ring),
            other,
            slots: (0..depth).map(|_| Slot::empty()).collect(),
            free: (0..depth).rev().collect(),
            writes_pushed: false,
            slow: 0,
            held_back: VecDeque::with_capacity(depth as usize),
            ready: VecDeque::with_capacity(depth as usize),
            moved: None,
        })
    }

    fn context(shared: &Shared) -> Context<'_> {
        Context { size: shared.block_size, learned: &shared.learned, zeroes: &shared.zeroes }
    }

    /// Checks that the device supports `op`; `Ok(false)` means that there is nothing to do.
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

    /// Direct I/O needs aligned pieces. A hidden copy to aligned memory would hide a cost, so unaligned pieces are
    /// rejected.
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

    /// Pushes the slot's next step into the suitable ring, or holds it back while the kernel has the maximum number of
    /// slow steps.
    fn push(&mut self, index: u32) {
        let Self { shared, ring, other, slots, writes_pushed, slow, held_back, .. } = self;
        let slot = &mut slots[index as usize];
        if slot.is_slow(shared.served) {
            if *slow >= SLOW_DEPTH_MAX {
                held_back.push_back(index);
                return;
            }
            *slow += 1;
            slot.occupies = true;
        }
        *writes_pushed |= slot.writes();
        let ring = match other {
            Some(other) if !slot.is_transfer() => other,
            Some(_) | None => &mut **ring,
        };
        let mut entry = slot.entry(&Self::context(shared), ring);
        if shared.served {
            // Otherwise this thread could wait inside the submission for the server of the file.
            entry = entry.flags(squeue::Flags::ASYNC);
        }
        // SAFETY: the addresses in `entry` are those of the slot's I/O vectors, which are in a boxed slice that is
        // neither resized nor dropped while the kernel holds them (see `Drop`), of the buffers that the slot's request
        // owns, exclusively for reads and immutably for writes, and of the device's zeroes, which `shared` keeps. No
        // code accesses the vectors or the request before `next` returns this slot.
        unsafe { ring.push(index, entry) };
    }

    /// Records that the kernel has completed the slot's step.
    fn came_back(&mut self, index: u32) {
        if mem::take(&mut self.slots[index as usize].occupies) {
            self.slow -= 1;
        }
    }

    /// Pushes held-back requests up to the limit. Returns whether there was one.
    fn push_held_back(&mut self) -> bool {
        let mut pushed = false;
        while self.slow < SLOW_DEPTH_MAX
            && let Some(index) = self.held_back.pop_front()
        {
            self.push(index);
            pushed = true;
        }
        pushed
    }

    /// Submits; if the ring is broken, completes the requests that the kernel has not taken.
    fn submit_all(&mut self) {
        let Self { shared, ring, other, ready, writes_pushed, slow, slots, held_back, .. } = self;
        let shrunk = mem::take(writes_pushed) && shared.has_shrunk();
        for ring in [Some(&mut **ring), other.as_mut()].into_iter().flatten() {
            if shrunk {
                ring.break_off(Errno::NODEV);
            }
            if let Err(errno) = ring.submit() {
                let kind =
                    if errno == Errno::NODEV { IoErrorKind::Gone } else { IoErrorKind::Device };
                let error = IoError::from_os(kind, errno.raw_os_error());
                while let Some(slot) = ring.abandon() {
                    *slow -= u32::from(mem::take(&mut slots[slot as usize].occupies));
                    ready.push_back((slot, Err(error)));
                }
                ready.extend(held_back.drain(..).map(|slot| (slot, Err(error))));
            }
        }
    }

    fn complete(&mut self, index: u32, result: Result<(), IoError>, batch: &mut CompletionBatch) {
        let io = self.slots[index as usize].take();
        self.free.push(index);
        batch.push(Completion { token: io.token, op: io.op, result });
    }

    /// Wakes the kernel's workers of this thread if requests have been outstanding for long without any result.
    fn wake_if_stuck(&mut self, now: Nanos, has_results: bool) {
        let is_idle = self.free.len() == self.slots.len();
        let moved = self.moved.filter(|_| !has_results && !is_idle).unwrap_or(now);
        let is_stuck = now.since(moved) >= WAKE_AFTER;
        if is_stuck {
            wake_workers();
        }
        self.moved = Some(if is_stuck { now } else { moved });
    }

    fn next_result(&mut self) -> Option<(u32, i32)> {
        self.ring.next().or_else(|| self.other.as_mut().and_then(Ring::next))
    }
}

impl IoQueue for UringQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.free.len() == self.slots.len() {
            // The queue was idle: the time since the last result does not count.
            self.moved = None;
        }
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

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
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
            self.came_back(index);
            let slot = &mut self.slots[index as usize];
            match slot.advance(result, &Self::context(&self.shared)) {
                Next::Finish(result) => self.complete(index, result, batch),
                Next::Again => {
                    self.push(index);
                    again = true;
                }
            }
        }
        self.wake_if_stuck(now, !batch.is_empty());
        again |= !self.held_back.is_empty() && self.push_held_back();
        if again {
            // A core without completions may sleep on this file descriptor without another doorbell.
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
    /// Never waits for the drive: outstanding requests are passed to the `reaper` together with the slots, whose
    /// buffers the drive may still read and write.
    fn drop(&mut self) {
        // SAFETY: the queue is being dropped, and no later code uses its ring.
        let ring = unsafe { ManuallyDrop::take(&mut self.ring) };
        let mut rings: Vec<Ring> = std::iter::once(ring).chain(self.other.take()).collect();
        rings.retain_mut(|ring| !ring.call_back());
        if rings.is_empty() {
            return;
        }
        let requests = rings.iter().map(Ring::in_kernel).sum();
        let (slots, shared) = (mem::take(&mut self.slots), Arc::clone(&self.shared));
        reaper::hand_over(shared.key, requests, Debt::Queue { rings, slots, shared });
    }
}
