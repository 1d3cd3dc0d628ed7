//! One request between submission and completion: its next system call, and the evaluation of results.

use crate::error::{During, io_error};
use crate::limits::{RESUBMITS_MAX, ZEROES_BYTES};
use crate::ring::Ring;
use io_uring::{opcode, squeue, types};
use rustix::io::Errno;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use strake_block::buf::SEGMENTS_MAX;
use strake_block::{Buf, BufMut, Durability, Io, IoError, IoErrorKind, Op};
use strake_units::BlockSize;

/// The queue's only registered file.
const FILE: types::Fixed = types::Fixed(0);

/// Unsupported operations of the device. They are learned from errors and shared by all queues. Relaxed order is
/// enough, because this is only a hint: every queue can learn it again.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    no_dsync: AtomicBool,
    zeroing: AtomicU8,
}

/// Methods to zero blocks, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeroing {
    Range,
    Punch,
    Write,
}

impl Learned {
    fn zeroing(&self) -> Zeroing {
        match self.zeroing.load(Ordering::Relaxed) {
            0 => Zeroing::Range,
            1 => Zeroing::Punch,
            _ => Zeroing::Write,
        }
    }

    fn zeroing_refused(&self, method: Zeroing) {
        let next = match method {
            Zeroing::Range => 1,
            Zeroing::Punch | Zeroing::Write => 2,
        };
        self.zeroing.fetch_max(next, Ordering::Relaxed);
    }
}

/// The current operation of the kernel for the slot.
///
/// ```text
/// read, write      Transfer --(FUA not supported)--> Sync
/// deallocate       Punch -> as write zeroes                                       (arrows: not supported)
/// write zeroes     Zero(Range) -> Zero(Punch) -> Zero(Write) --(FUA)--> Sync      (arrows: not supported)
/// flush            Sync
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Transfer,
    Punch,
    Zero(Zeroing),
    Sync,
}

/// Properties of the device that every slot of a queue needs.
pub(crate) struct Context<'a> {
    pub(crate) size: BlockSize,
    pub(crate) learned: &'a Learned,
    pub(crate) zeroes: &'a Buf,
}

/// The slot of a request. It is in a boxed slice, so its address never changes.
pub(crate) struct Slot {
    io: Option<Io>,
    step: Step,
    done: u64,
    resubmits: u32,
    /// Whether its step occupies a kernel thread.
    pub(crate) occupies: bool,
    vectors: [libc::iovec; SEGMENTS_MAX],
}

/// The action after a result.
pub(crate) enum Next {
    Finish(Result<(), IoError>),
    Again,
}

impl Slot {
    pub(crate) const fn empty() -> Self {
        let vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            io: None,
            step: Step::Sync,
            done: 0,
            resubmits: 0,
            occupies: false,
            vectors: [vector; SEGMENTS_MAX],
        }
    }

    pub(crate) fn fill(&mut self, io: Io, context: &Context<'_>) {
        self.step = match io.op {
            Op::Read { .. } | Op::Write { .. } => Step::Transfer,
            Op::Flush => Step::Sync,
            Op::Deallocate { .. } => Step::Punch,
            Op::WriteZeroes { .. } => Step::Zero(context.learned.zeroing()),
        };
        self.done = 0;
        self.resubmits = 0;
        self.io = Some(io);
    }

    pub(crate) fn take(&mut self) -> Io {
        self.io.take().expect("a busy slot holds a request")
    }

    fn op(&self) -> &Op {
        &self.io.as_ref().expect("a busy slot holds a request").op
    }

    /// True if the request changes the content of the device.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.op(), Op::Read { .. } | Op::Flush)
    }

    /// True if the current step is a read or write. A polling ring accepts nothing else.
    pub(crate) fn is_transfer(&self) -> bool {
        match self.step {
            Step::Transfer | Step::Zero(Zeroing::Write) => true,
            Step::Punch | Step::Zero(Zeroing::Range | Zeroing::Punch) | Step::Sync => false,
        }
    }

    /// True if the current step occupies a kernel thread for its duration: every step on a served file, otherwise
    /// deallocating and zeroing. Flushes do so as well, but they are few, and other requests wait for them.
    pub(crate) const fn is_slow(&self, served: bool) -> bool {
        match self.step {
            Step::Punch | Step::Zero(Zeroing::Range | Zeroing::Punch) => true,
            Step::Transfer | Step::Zero(Zeroing::Write) | Step::Sync => served,
        }
    }

    fn fua(&self) -> bool {
        match self.op() {
            Op::Write { durability, .. } | Op::WriteZeroes { durability, .. } => {
                *durability == Durability::Fua
            }
            Op::Read { .. } | Op::Flush | Op::Deallocate { .. } => false,
        }
    }

    /// The ring entry for the current step, which continues after the previous one.
    pub(crate) fn entry(&mut self, context: &Context<'_>, ring: &Ring) -> squeue::Entry {
        let range = self.op().range(context.size);
        let offset = range.start.bytes(context.size) + self.done;
        let left = (range.blocks << context.size.shift())
            - self.done.min(range.blocks << context.size.shift());
        let mode = libc::FALLOC_FL_KEEP_SIZE;
        match self.step {
            Step::Transfer => self.transfer(context, ring, offset),
            Step::Sync => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
            Step::Punch | Step::Zero(Zeroing::Punch) => opcode::Fallocate::new(FILE, left)
                .offset(offset)
                .mode(mode | libc::FALLOC_FL_PUNCH_HOLE)
                .build(),
            Step::Zero(Zeroing::Range) => opcode::Fallocate::new(FILE, left)
                .offset(offset)
                .mode(mode | libc::FALLOC_FL_ZERO_RANGE)
                .build(),
            Step::Zero(Zeroing::Write) => {
                let count = self.point_at_zeroes(context.zeroes, left);
                self.write_vectors(count, offset, 0)
            }
        }
    }

    fn transfer(&mut self, context: &Context<'_>, ring: &Ring, offset: u64) -> squeue::Entry {
        let flags = self.write_flags(context);
        let count = self.point_at_data();
        let first = self.vectors[0];
        let address = first.iov_base.cast::<u8>();
        let reading = matches!(self.op(), Op::Read { .. });
        // Only the last piece may remain after a partial transfer, so one vector means one buffer.
        let fixed =
            if count == 1 { ring.registered(address as usize, first.iov_len) } else { None };
        match (fixed, reading) {
            (Some(index), true) => {
                opcode::ReadFixed::new(FILE, address, first.iov_len as u32, index)
                    .offset(offset)
                    .build()
            }
            (Some(index), false) => {
                opcode::WriteFixed::new(FILE, address, first.iov_len as u32, index)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
            (None, true) => {
                opcode::Readv::new(FILE, self.vectors.as_ptr(), count).offset(offset).build()
            }
            (None, false) => self.write_vectors(count, offset, flags),
        }
    }

    fn write_vectors(&self, count: u32, offset: u64, flags: i32) -> squeue::Entry {
        opcode::Writev::new(FILE, self.vectors.as_ptr(), count)
            .offset(offset)
            .rw_flags(flags)
            .build()
    }

    /// FUA is a flag of the write (`RWF_DSYNC`, pwritev2(2)), unless the device has rejected the flag before.
    fn write_flags(&self, context: &Context<'_>) -> i32 {
        let dsync = self.fua() && !context.learned.no_dsync.load(Ordering::Relaxed);
        if dsync { libc::RWF_DSYNC } else { 0 }
    }

    /// Points the vectors at the remaining data; returns their number.
    fn point_at_data(&mut self) -> u32 {
        let mut list = Vectors { vectors: &mut self.vectors, count: 0, skip: self.done as usize };
        match &self.io.as_ref().expect("a busy slot holds a request").op {
            Op::Read { data, .. } => {
                data.parts().iter().for_each(|part: &BufMut| list.add(part.address(), part.len()));
            }
            Op::Write { data, .. } => {
                data.parts().iter().for_each(|part: &Buf| list.add(part.address(), part.len()));
            }
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
        }
        list.count as u32
    }

    fn point_at_zeroes(&mut self, zeroes: &Buf, left: u64) -> u32 {
        let mut left = left;
        let mut list = Vectors { vectors: &mut self.vectors, count: 0, skip: 0 };
        while left > 0 && list.count < SEGMENTS_MAX {
            let take = left.min(ZEROES_BYTES as u64);
            list.add(zeroes.address(), take as usize);
            left -= take;
        }
        list.count as u32
    }

    /// Evaluates the kernel's result of the current step.
    pub(crate) fn advance(&mut self, result: i32, context: &Context<'_>) -> Next {
        if result >= 0 {
            return self.progress(result as u64, context);
        }
        let errno = Errno::from_raw_os_error(-result);
        match errno {
            Errno::AGAIN | Errno::INTR => self.again(errno),
            Errno::OPNOTSUPP => self.refused(context),
            _ => Next::Finish(Err(io_error(errno, self.during()))),
        }
    }

    fn during(&self) -> During {
        match self.op() {
            Op::Read { .. } => During::Read,
            Op::Write { .. } | Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {
                During::Write
            }
        }
    }

    fn again(&mut self, errno: Errno) -> Next {
        self.resubmits += 1;
        if self.resubmits > RESUBMITS_MAX {
            return Next::Finish(Err(IoError::from_os(IoErrorKind::Device, errno.raw_os_error())));
        }
        Next::Again
    }

    /// The device does not support the current step: continues with the next best method, if there is one.
    fn refused(&mut self, context: &Context<'_>) -> Next {
        match self.step {
            Step::Transfer if self.write_flags(context) != 0 => {
                context.learned.no_dsync.store(true, Ordering::Relaxed);
                Next::Again
            }
            Step::Zero(method @ (Zeroing::Range | Zeroing::Punch)) => {
                context.learned.zeroing_refused(method);
                self.step = Step::Zero(context.learned.zeroing());
                Next::Again
            }
            Step::Punch => {
                // Deallocated blocks must read as zeroes, and parity relies on this.
                self.step = Step::Zero(context.learned.zeroing());
                Next::Again
            }
            Step::Transfer | Step::Zero(Zeroing::Write) | Step::Sync => {
                Next::Finish(Err(io_error(Errno::OPNOTSUPP, self.during())))
            }
        }
    }

    fn progress(&mut self, bytes: u64, context: &Context<'_>) -> Next {
        match self.step {
            Step::Transfer | Step::Zero(Zeroing::Write) => self.transferred(bytes, context),
            Step::Zero(Zeroing::Range | Zeroing::Punch) => self.stored(true),
            Step::Punch | Step::Sync => Next::Finish(Ok(())),
        }
    }

    fn transferred(&mut self, bytes: u64, context: &Context<'_>) -> Next {
        let total = self.op().range(context.size).blocks << context.size.shift();
        if bytes == 0 {
            // The file or device ends before the requested blocks.
            return Next::Finish(Err(IoError::new(IoErrorKind::Gone)));
        }
        let before = self.done;
        self.done += bytes;
        if self.done >= total {
            let dsync = self.step == Step::Transfer && self.write_flags(context) != 0;
            return self.stored(!dsync);
        }
        // The next step starts at a block boundary, so that direct I/O stays aligned.
        self.done &= !u64::from(context.size.bytes() - 1);
        if self.done == before { self.again(Errno::IO) } else { Next::Again }
    }

    /// The device has the blocks. `sync` states whether FUA still needs a flush.
    fn stored(&mut self, sync: bool) -> Next {
        if sync && self.fua() {
            self.step = Step::Sync;
            return Next::Again;
        }
        Next::Finish(Ok(()))
    }
}

/// Collects addresses into I/O vectors, without the first `skip` bytes.
struct Vectors<'a> {
    vectors: &'a mut [libc::iovec; SEGMENTS_MAX],
    count: usize,
    skip: usize,
}

impl Vectors<'_> {
    fn add(&mut self, address: usize, bytes: usize) {
        let skipped = self.skip.min(bytes);
        self.skip -= skipped;
        if bytes > skipped {
            self.vectors[self.count] =
                libc::iovec { iov_base: (address + skipped) as *mut _, iov_len: bytes - skipped };
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests;
