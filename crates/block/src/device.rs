//! The two traits every device implements, and the properties that a device reports.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;

use crate::buf::{Sg, SgMut};
use crate::error::{DeviceError, IoError};
use crate::io::{Completion, Durability, Io, Op, Token};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, Nanos};

/// What blocks read as after they were deallocated (NVMe: DLFEAT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeallocateReads {
    /// The device has no deallocate.
    Unsupported,
    /// Promised zeroes: deallocating keeps parity true.
    Zeroes,
    /// Anything: never trusted by a redundant array.
    Unspecified,
}

/// Whether completed writes may sit in a cache that a power cut empties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolatileCache {
    /// Completed means stable; flush is free.
    Absent,
    /// Completed writes need a flush or FUA to be stable.
    Present,
}

/// The properties of a device. A snapshot: sizes of files and namespaces may change later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What identifies the medium wherever it shows up: a drive's serial and namespace, a file's device and
    /// inode, an array's UUID. Two paths to one drive give the same identity.
    pub identity: String,
    /// Capacity in blocks.
    pub blocks: u64,
    /// Logical block size.
    pub block_size: BlockSize,
    /// Bytes of the largest single I/O the device accepts; a multiple of the block size.
    pub io_bytes_max: u32,
    /// Preferred I/O size and alignment in bytes, 0 when it has no preference.
    pub io_bytes_optimal: u32,
    /// Whether writes need flushing.
    pub cache: VolatileCache,
    /// What deallocated blocks read as.
    pub deallocate: DeallocateReads,
    /// True when [`Op::WriteZeroes`] is much cheaper than writing zeroes.
    pub fast_zeroes: bool,
    /// True when writes are refused.
    pub read_only: bool,
}

impl DeviceInfo {
    /// Capacity in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks << self.block_size.shift()
    }
}

/// What kind of thing answers, as far as it says how long an answer may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A drive of this machine.
    #[default]
    Block,
    /// A file, behind a file system that may have work of its own.
    File,
    /// A remote drive, the paths to which may be lost for a while.
    Remote,
}

/// A device: described and opened from any thread.
pub trait BlockDevice: Send + Sync {
    /// What the device is like now.
    fn info(&self) -> DeviceInfo;

    /// What identifies the medium, as in [`info`](Self::info). It never changes, so a device that would ask the kernel
    /// for the rest answers from memory: a caller that only compares identities waits for no drive.
    fn identity(&self) -> String {
        self.info().identity
    }

    /// Opens a queue for `core` that takes at least `depth` I/Os at a time. Called on the thread that will use
    /// it; queues of one device are independent of each other.
    ///
    /// # Errors
    /// When the device was removed or the machine lacks a resource, with what to do about it.
    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError>;

    /// How long the device holds a request by itself before it fails it: the time that paths to a remote drive have to
    /// come back. Zero for a drive of this machine. A caller that waits for an answer has to wait longer than that.
    fn hold(&self) -> Nanos {
        Nanos(0)
    }

    /// What kind of thing answers.
    fn kind(&self) -> DeviceKind {
        DeviceKind::Block
    }

    /// The first part of `range` that may hold something other than zeroes, or `None` when all of it reads as zeroes.
    /// Nothing is read to find out: a device that does not know answers with the whole range.
    fn data_within(&self, range: LbaRange) -> Option<LbaRange> {
        Some(range)
    }

    /// How long after the end of a process that used the device a request of that process may still be executed. 0
    /// for a device of this machine: a request in flight keeps the claim on it (`O_EXCL`, `flock`), so that no other
    /// process opens it before. More for a remote device, which has to notice first that its host has disconnected.
    fn settle_time(&self) -> Nanos {
        Nanos(0)
    }
}

/// The longest [`settle_time`](BlockDevice::settle_time) of any device: what to wait when the association is not known.
pub const SETTLE_TIME_MAX: Nanos = Nanos(13 * Nanos::SECOND.0);

/// How an idle core may wait for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Nothing is outstanding: no need to look.
    Idle,
    /// Something is outstanding and only polling will show it.
    Poll,
    /// Something is outstanding; this file descriptor turns readable when it may have completed.
    Fd(RawFd),
    /// Something is outstanding and nothing will complete before this time.
    At(Nanos),
}

/// A submission and completion path to a device, used by one core.
pub trait IoQueue {
    /// Takes `io`, or hands it back when the queue is full (back-pressure: poll, then try again). A request
    /// the device cannot do is taken and completes with an error.
    ///
    /// # Errors
    /// The request itself, when there is no room.
    // Handing the request back is the point: its buffers are owned by it.
    #[allow(clippy::result_large_err)]
    fn submit(&mut self, io: Io) -> Result<(), Io>;

    /// As [`submit`](Self::submit) for a read. Its parts travel in registers: a request that is written to the stack in
    /// small pieces and read back in large ones at once costs more than all the rest of submitting it (store
    /// forwarding; Intel's optimization manual, "Store forwarding", has the rules).
    ///
    /// # Errors
    /// The request itself, when there is no room.
    #[allow(clippy::result_large_err)]
    fn submit_read(&mut self, token: Token, at: Lba, data: SgMut) -> Result<(), Io> {
        self.submit(Io { token, op: Op::Read { at, data } })
    }

    /// The same for a write.
    ///
    /// # Errors
    /// The request itself, when there is no room.
    #[allow(clippy::result_large_err)]
    fn submit_write(
        &mut self,
        token: Token,
        at: Lba,
        data: Sg,
        durability: Durability,
    ) -> Result<(), Io> {
        self.submit(Io { token, op: Op::Write { at, data, durability } })
    }

    /// Takes requests from the front of `batch` as far as there is room; the others stay in it. A queue may do once for
    /// all of them what [`submit`](Self::submit) does for each.
    fn submit_batch(&mut self, batch: &mut VecDeque<Io>) {
        while let Some(io) = batch.pop_front() {
            if let Err(back) = self.submit(io) {
                batch.push_front(back);
                return;
            }
        }
    }

    /// Makes everything submitted since the last call visible to the device. Once per turn.
    fn ring_doorbell(&mut self, now: Nanos);

    /// Moves what has completed into `batch`, as far as it has room.
    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch);

    /// How an idle core may wait for this queue.
    fn readiness(&self) -> Readiness;
}

/// A reusable, bounded batch of completions: room is made once, at start.
#[derive(Debug)]
pub struct CompletionBatch {
    items: Vec<Completion>,
    capacity: usize,
}

impl CompletionBatch {
    /// A batch for up to `capacity` completions.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { items: Vec::with_capacity(capacity), capacity }
    }

    /// How many more fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity - self.items.len()
    }

    /// Adds a completion. The caller has asked for [`room`](Self::room).
    ///
    /// # Panics
    /// When there is no room.
    #[inline]
    pub fn push(&mut self, completion: Completion) {
        let Completion { token, op, result } = completion;
        self.push_parts(token, op, result);
    }

    /// Adds a completion that is not assembled anywhere else: as with [`IoQueue::submit_read`], moving it as a whole
    /// right after would cost more than all the rest. The caller has asked for [`room`](Self::room).
    ///
    /// # Panics
    /// When there is no room.
    #[inline(always)]
    pub fn push_parts(&mut self, token: Token, op: Op, result: Result<(), IoError>) {
        // Not dropped when there is no room, so that it need not lie in memory on its way.
        let op = ManuallyDrop::new(op);
        if self.items.len() >= self.capacity {
            overflowed();
        }
        let len = self.items.len();
        // SAFETY: room for `capacity` items was made in `new` and is never given up, and there are fewer now; the place
        // behind the last item is thus allocated and holds nothing. All its fields are written before the length counts
        // it.
        unsafe {
            let place = self.items.as_mut_ptr().add(len);
            (&raw mut (*place).token).write(token);
            (&raw mut (*place).op).write(ManuallyDrop::into_inner(op));
            (&raw mut (*place).result).write(result);
            self.items.set_len(len + 1);
        }
    }

    /// Takes the completions out in order, leaving the batch empty and its memory in place.
    #[inline]
    pub fn drain(&mut self) -> std::vec::Drain<'_, Completion> {
        self.items.drain(..)
    }

    /// The completions in order, to be looked at where they are; [`clear`](Self::clear) follows.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Completion] {
        &mut self.items
    }

    /// Drops what is left of the completions.
    #[inline]
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// Moves completions over from `other`, oldest first, as far as there is room.
    #[inline]
    pub fn append(&mut self, other: &mut Self) {
        let count = other.len().min(self.room());
        self.append_first(other, count);
    }

    /// Moves the oldest `count` completions over from `other`. The caller has asked for [`room`](Self::room).
    ///
    /// # Panics
    /// When there are fewer, or no room for them.
    #[inline]
    pub fn append_first(&mut self, other: &mut Self, count: usize) {
        if count == other.len() && self.is_empty() && self.capacity == other.capacity {
            // Both have the same room, so what is in one may as well be in the other.
            std::mem::swap(&mut self.items, &mut other.items);
            return;
        }
        if count > self.room() {
            overflowed();
        }
        self.items.extend(other.items.drain(..count));
    }

    /// True when it holds nothing.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many it holds.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }
}

#[cold]
fn overflowed() -> ! {
    panic!("a completion batch overflowed")
}

/// A run of blocks that were all written, or all never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The blocks.
    pub range: LbaRange,
    /// False when they were never written and read as zeroes.
    pub written: bool,
}

/// A device that knows which of its blocks were never written. Control plane or export threads; answers may
/// call a block written that was not, never the other way round.
pub trait ExtentSource: Send + Sync {
    /// The extent that begins at `at`, no longer than `blocks_max`.
    fn extent(&self, at: Lba, blocks_max: u64) -> Extent;
}
