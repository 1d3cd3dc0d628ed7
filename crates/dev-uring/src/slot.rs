//! One request between submission and completion: what to ask the kernel next, and what its answer means.

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

/// What the device has turned out not to support. Learned from refusals and shared by all queues; only a hint,
/// because every queue can learn it again, so relaxed order is enough.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    no_dsync: AtomicBool,
    zeroing: AtomicU8,
}

/// Ways to make blocks zero, best first.
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

/// What the kernel is doing for the slot.
///
/// ```text
/// read, write      Transfer --(FUA the kernel cannot do)--> Sync
/// deallocate       Punch -> as write zeroes                                       (arrows: refused)
/// write zeroes     Zero(Range) -> Zero(Punch) -> Zero(Write) --(FUA)--> Sync      (arrows: refused)
/// flush            Sync
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Transfer,
    Punch,
    Zero(Zeroing),
    Sync,
}

/// What every slot of a queue needs to know about its device.
pub(crate) struct Context<'a> {
    pub(crate) size: BlockSize,
    pub(crate) learned: &'a Learned,
    pub(crate) zeroes: &'a Buf,
}

/// A request's place. It lives in a boxed slice, so its address never changes.
pub(crate) struct Slot {
    io: Option<Io>,
    step: Step,
    done: u64,
    resubmits: u32,
    /// Its step occupies a thread of the kernel.
    pub(crate) occupies: bool,
    vectors: [libc::iovec; SEGMENTS_MAX],
}

/// What to do after a result.
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

    /// True when the request changes what the device holds.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.op(), Op::Read { .. } | Op::Flush)
    }

    /// True when the current step is a read or write, which is all a polling ring takes.
    pub(crate) fn is_transfer(&self) -> bool {
        match self.step {
            Step::Transfer | Step::Zero(Zeroing::Write) => true,
            Step::Punch | Step::Zero(Zeroing::Range | Zeroing::Punch) | Step::Sync => false,
        }
    }

    /// True when the current step occupies a thread of the kernel for as long as it takes: every step where others
    /// serve the file, else giving back and zeroing space. Flushes do as well, but others wait for them, and they are
    /// few.
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

    /// The ring entry for the current step, from where the previous one stopped.
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
        // Only the last piece may be left over after a partial transfer, so one vector means one buffer.
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

    /// FUA is one flag of the write (`RWF_DSYNC`, pwritev2(2)) unless that was refused before.
    fn write_flags(&self, context: &Context<'_>) -> i32 {
        let dsync = self.fua() && !context.learned.no_dsync.load(Ordering::Relaxed);
        if dsync { libc::RWF_DSYNC } else { 0 }
    }

    /// Points the vectors at the data not transferred yet and returns how many there are.
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

    /// What the kernel's answer to the current step means.
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

    /// The device does not support the current step: take the next best way, if there is one.
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
                // Zeroes were promised for what is given back, and parity rests on them.
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
            // The kernel has nothing more to give: the file or device ends before the blocks we were promised.
            return Next::Finish(Err(IoError::new(IoErrorKind::Gone)));
        }
        let before = self.done;
        self.done += bytes;
        if self.done >= total {
            let dsync = self.step == Step::Transfer && self.write_flags(context) != 0;
            return self.stored(!dsync);
        }
        // Go on at a block boundary, so that direct I/O stays aligned.
        self.done &= !u64::from(context.size.bytes() - 1);
        if self.done == before { self.again(Errno::IO) } else { Next::Again }
    }

    /// The blocks are with the device. `sync` tells whether FUA still needs a flush.
    fn stored(&mut self, sync: bool) -> Next {
        if sync && self.fua() {
            self.step = Step::Sync;
            return Next::Again;
        }
        Next::Finish(Ok(()))
    }
}

/// Collects addresses into I/O vectors, leaving out the first `skip` bytes.
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
