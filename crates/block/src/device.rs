//! The two traits every device implements, and the properties that a device reports.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;

use crate::buf::{Sg, SgMut};
use crate::error::{DeviceError, IoError};
use crate::io::{Completion, Durability, Io, Op, Token};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, Nanos};

/// Content of deallocated blocks (NVMe: DLFEAT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeallocateReads {
    /// The device does not support deallocation.
    Unsupported,
    /// Deallocated blocks read as zeroes, so parity stays consistent.
    Zeroes,
    /// The content is undefined, so redundant arrays do not use deallocation.
    Unspecified,
}

/// Presence of a volatile write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolatileCache {
    /// Completed writes are stable, and a flush costs nothing.
    Absent,
    /// Completed writes need a flush or FUA to be stable.
    Present,
}

/// The properties of a device at one time. Sizes of files and namespaces may change later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The identity of the medium, independent of the path: the serial number and namespace of a drive, the device and
    /// inode of a file, or the UUID of an array. Two paths to one drive give the same identity.
    pub identity: String,
    /// Capacity in blocks.
    pub blocks: u64,
    /// Logical block size.
    pub block_size: BlockSize,
    /// Maximum bytes of a single I/O, a multiple of the block size.
    pub io_bytes_max: u32,
    /// Preferred I/O size and alignment in bytes; 0 without a preference.
    pub io_bytes_optimal: u32,
    /// The presence of a volatile write cache.
    pub cache: VolatileCache,
    /// Content of deallocated blocks.
    pub deallocate: DeallocateReads,
    /// True if [`Op::WriteZeroes`] is much cheaper than writes of zeroes.
    pub fast_zeroes: bool,
    /// True if the device refuses writes.
    pub read_only: bool,
}

impl DeviceInfo {
    /// Capacity in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks << self.block_size.shift()
    }
}

/// Kinds of devices, which determine their time limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A local drive.
    #[default]
    Block,
    /// A file, whose file system may be busy with other work.
    File,
    /// A remote drive, whose paths may be lost for some time.
    Remote,
}

/// A device, which any thread can query and open.
pub trait BlockDevice: Send + Sync {
    /// Returns the present properties of the device.
    fn info(&self) -> DeviceInfo;

    /// Returns the identity of the medium, as in [`info`](Self::info). The identity never changes. A device whose
    /// `info` queries the kernel returns the identity from memory, so a caller that only compares identities does not
    /// wait for a drive.
    fn identity(&self) -> String {
        self.info().identity
    }

    /// Opens a queue for `core` that accepts at least `depth` concurrent I/Os. Called on the thread that will use the
    /// queue. Queues of one device are independent of each other.
    ///
    /// # Errors
    /// If the device was removed, or the host lacks a resource. The error contains the remedy.
    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError>;

    /// Time for which the device holds a request before it fails the request, which is the time for paths to a remote
    /// drive to reconnect. Zero for a local drive. A caller that waits for an answer must wait longer.
    fn hold(&self) -> Nanos {
        Nanos(0)
    }

    /// Returns the kind of the device.
    fn kind(&self) -> DeviceKind {
        DeviceKind::Block
    }

    /// Returns the first part of `range` that may contain data other than zeroes, or `None` if all of it reads as
    /// zeroes. The device is not read for this: a device without this information returns the whole range.
    fn data_within(&self, range: LbaRange) -> Option<LbaRange> {
        Some(range)
    }

    /// Time after the end of a process during which its requests may still be executed. 0 for a local device: a request
    /// in progress keeps the claim on the device (`O_EXCL`, `flock`), so that no other process can open the device
    /// earlier. Greater for a remote device, which must first notice the disconnect of its host.
    fn settle_time(&self) -> Nanos {
        Nanos(0)
    }
}

/// The maximum [`settle_time`](BlockDevice::settle_time) of all devices, for an unknown association.
pub const SETTLE_TIME_MAX: Nanos = Nanos(13 * Nanos::SECOND.0);

/// The kind of wait of an idle core for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// No request is outstanding, so no check is needed.
    Idle,
    /// Requests are outstanding, and only polling shows completions.
    Poll,
    /// Requests are outstanding. This file descriptor becomes readable when some may have completed.
    Fd(RawFd),
    /// Requests are outstanding, and none will complete before this time.
    At(Nanos),
}

/// A submission and completion queue of a device, used by one core.
pub trait IoQueue {
    /// Accepts `io`, or returns it if the queue is full (back-pressure: the caller polls and tries again). An
    /// unsupported request is accepted and completes with an error.
    ///
    /// # Errors
    /// If there is no room. The error contains the request.
    // The error returns the request, because the request owns its buffers.
    #[allow(clippy::result_large_err)]
    fn submit(&mut self, io: Io) -> Result<(), Io>;

    /// Submits a read like [`submit`](Self::submit). Its fields are passed in registers. If a request is written to the
    /// stack in small parts and immediately read back in large parts, this costs more than the rest of the submission
    /// (store forwarding; see "Store forwarding" in Intel's optimization manual).
    ///
    /// # Errors If there is no room. The error contains the request.
    #[allow(clippy::result_large_err)]
    fn submit_read(&mut self, token: Token, at: Lba, data: SgMut) -> Result<(), Io> {
        self.submit(Io { token, op: Op::Read { at, data } })
    }

    /// Submits a write like [`submit_read`](Self::submit_read).
    ///
    /// # Errors
    /// If there is no room. The error contains the request.
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

    /// Accepts requests from the front of `batch` as far as there is room. The other requests stay in `batch`. A queue
    /// may do work once for all requests that [`submit`](Self::submit) does for each request.
    fn submit_batch(&mut self, batch: &mut VecDeque<Io>) {
        while let Some(io) = batch.pop_front() {
            if let Err(back) = self.submit(io) {
                batch.push_front(back);
                return;
            }
        }
    }

    /// Makes all requests since the last call visible to the device. Called once per turn.
    fn ring_doorbell(&mut self, now: Nanos);

    /// Moves completions into `batch`, as far as there is room.
    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch);

    /// Returns the kind of wait of an idle core for this queue.
    fn readiness(&self) -> Readiness;
}

/// A reusable, bounded batch of completions. Its memory is allocated once.
#[derive(Debug)]
pub struct CompletionBatch {
    items: Vec<Completion>,
    capacity: usize,
}

/// A place in a [`CompletionBatch`] for which there is room.
#[derive(Debug)]
pub struct Place<'a> {
    /// Has fewer items than it has memory for.
    items: &'a mut Vec<Completion>,
}

impl Place<'_> {
    /// Adds a completion from its parts.
    #[inline(always)]
    pub fn put(self, token: Token, op: Op, result: Result<(), IoError>) {
        let mut op = ManuallyDrop::new(op);
        self.put_from(token, &mut op, result);
    }

    /// Adds a completion whose operation it takes from `op`, where it leaves a flush, which owns nothing: a copy of the
    /// operation in between would be in memory.
    #[inline(always)]
    pub fn put_from(self, token: Token, op: &mut Op, result: Result<(), IoError>) {
        let len = self.items.len();
        // SAFETY: room for `capacity` items was made in `new` and is never given up, and `place` found fewer; the place
        // behind the last item is thus allocated and holds nothing. All its fields are written before the length counts
        // it. The operation is moved: its former place gets another value, without a drop of the old one.
        unsafe {
            let place = self.items.as_mut_ptr().add(len);
            (&raw mut (*place).token).write(token);
            (&raw mut (*place).op).copy_from_nonoverlapping(op, 1);
            std::ptr::write(op, Op::Flush);
            (&raw mut (*place).result).write(result);
            self.items.set_len(len + 1);
        }
    }
}

impl CompletionBatch {
    /// Creates a batch for up to `capacity` completions.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { items: Vec::with_capacity(capacity), capacity }
    }

    /// Returns the number of further completions that fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity - self.items.len()
    }

    /// Adds a completion. The caller must have checked [`room`](Self::room).
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn push(&mut self, completion: Completion) {
        let Completion { token, op, result } = completion;
        self.push_parts(token, op, result);
    }

    /// Adds a completion from its parts. As with [`IoQueue::submit_read`], a move of the whole completion immediately
    /// after its construction would cost more than the rest. The caller must have checked [`room`](Self::room).
    ///
    /// # Panics
    /// If there is no room.
    #[inline(always)]
    pub fn push_parts(&mut self, token: Token, op: Op, result: Result<(), IoError>) {
        // The operation is not dropped without room, so that it need not be stored in memory before.
        let op = ManuallyDrop::new(op);
        match self.place() {
            Some(place) => place.put(token, ManuallyDrop::into_inner(op), result),
            None => overflowed(),
        }
    }

    /// Returns the place of the next completion, if there is room.
    #[inline(always)]
    pub fn place(&mut self) -> Option<Place<'_>> {
        (self.items.len() < self.capacity).then_some(Place { items: &mut self.items })
    }

    /// Removes and returns the completions in order. The batch keeps its memory.
    #[inline]
    pub fn drain(&mut self) -> std::vec::Drain<'_, Completion> {
        self.items.drain(..)
    }

    /// Returns the completions in order, for access in place. The caller then calls [`clear`](Self::clear).
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Completion] {
        &mut self.items
    }

    /// Drops the remaining completions.
    #[inline]
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// Moves completions from `other`, the oldest first, as far as there is room.
    #[inline]
    pub fn append(&mut self, other: &mut Self) {
        let count = other.len().min(self.room());
        self.append_first(other, count);
    }

    /// Moves the oldest `count` completions from `other`. The caller must have checked [`room`](Self::room).
    ///
    /// # Panics
    /// If there are fewer completions, or there is no room.
    #[inline]
    pub fn append_first(&mut self, other: &mut Self, count: usize) {
        if count == other.len() && self.is_empty() && self.capacity == other.capacity {
            // Both batches have the same capacity, so the buffers can be swapped.
            std::mem::swap(&mut self.items, &mut other.items);
            return;
        }
        if count > self.room() {
            overflowed();
        }
        self.items.extend(other.items.drain(..count));
    }

    /// True if the batch is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the number of completions.
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
    /// False if the blocks were never written and read as zeroes.
    pub written: bool,
}

/// A device that tracks which of its blocks were never written. Used by the control plane and export threads. An answer
/// may treat unwritten blocks as written, but never the reverse.
pub trait ExtentSource: Send + Sync {
    /// Returns the extent that starts at `at`, with at most `blocks_max` blocks.
    fn extent(&self, at: Lba, blocks_max: u64) -> Extent;
}
