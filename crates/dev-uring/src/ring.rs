//! One io_uring: handing requests to the kernel and getting their results back.
//!
//! The rule that keeps memory safe lives here and in `queue`: between [`Ring::push`] and the [`Ring::next`]
//! that returns the same slot, the kernel may read or write the memory the entry names, so the slot, its I/O
//! vectors and its buffers stay where they are. A dropped queue gives rings with requests in the kernel to the
//! `reaper`, together with the slots.

use crate::limits::{KERNEL_WORKERS_MAX, REGISTERED_BYTES_MAX, REGISTERED_MAX};
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, squeue};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use strake_block::Arena;
use strake_units::Nanos;

/// How completions are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The drive interrupts; the kernel then writes the result or flags that it wants to.
    Interrupts,
    /// Nothing interrupts; asking the kernel makes it look at the drive (`IORING_SETUP_IOPOLL`).
    Polled,
}

pub(crate) struct Ring {
    ring: IoUring,
    mode: Mode,
    /// Slots in the submission ring that the kernel has not taken yet, in order.
    unsubmitted: VecDeque<u32>,
    /// Requests the kernel has taken and not answered.
    in_kernel: u32,
    /// Set when the kernel refused permanently. Entries it never took still sit in the submission ring while their
    /// slots have gone home, so nothing may ever be submitted again.
    broken: Option<Errno>,
    /// Address ranges registered as fixed buffers; the index is the kernel's.
    registered: Vec<Range<usize>>,
    /// Keeps registered memory mapped for as long as the ring exists.
    _arenas: Vec<Arc<Arena>>,
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Opens a ring that runs completions when we enter the kernel instead of interrupting us (cooperative task
/// running, 5.19; single issuer, 6.0), or a plain one where the kernel knows neither.
///
/// Deferred task running (`IORING_SETUP_DEFER_TASKRUN`, 6.1) would be cheaper still, but a completion it holds
/// back does not wake a thread that sleeps on the ring's file descriptor: on 6.18 such a sleep lasted until its
/// time-out (the test `a_core_can_sleep_on_the_queue` shows it). A core must be able to sleep.
fn setup(entries: u32, mode: Mode) -> io::Result<IoUring> {
    let build = |tune: fn(&mut io_uring::Builder)| {
        let mut builder = IoUring::builder();
        tune(&mut builder);
        if mode == Mode::Polled {
            builder.setup_iopoll();
        }
        builder.dontfork().build(entries)
    };
    let invalid = |error: &io::Error| errno(error) == Errno::INVAL;
    match build(|b| {
        b.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
    }) {
        Err(error) if invalid(&error) => build(|_| {}),
        done => done,
    }
}

impl Ring {
    /// A ring for `entries` requests to `file`, which the caller keeps open as long as the ring.
    pub(crate) fn open(entries: u32, mode: Mode, file: BorrowedFd<'_>) -> io::Result<Self> {
        let ring = setup(entries, mode)?;
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        // Applies to all rings of this thread. A kernel without it (before 5.15) keeps its own limit.
        let _ = ring.submitter().register_iowq_max_workers(&mut [KERNEL_WORKERS_MAX, 0]);
        Ok(Self {
            ring,
            mode,
            unsubmitted: VecDeque::with_capacity(entries as usize),
            in_kernel: 0,
            broken: None,
            registered: Vec::new(),
            _arenas: Vec::new(),
        })
    }

    /// Registers the memory of `arenas`, so that the kernel need not look it up and pin it for each request.
    pub(crate) fn register(&mut self, arenas: &[Arc<Arena>]) -> io::Result<()> {
        let mut pieces = Vec::new();
        for arena in arenas {
            let range = arena.address_range();
            let starts = range.clone().step_by(REGISTERED_BYTES_MAX);
            pieces.extend(starts.map(|at| at..range.end.min(at + REGISTERED_BYTES_MAX)));
        }
        pieces.truncate(REGISTERED_MAX);
        if pieces.is_empty() {
            return Ok(());
        }
        let vectors: Vec<_> = pieces
            .iter()
            .map(|piece| libc::iovec { iov_base: piece.start as *mut _, iov_len: piece.len() })
            .collect();
        // SAFETY: each vector covers memory of an arena, and the clones of their `Arc`s kept below hold that
        // memory until the ring is gone.
        unsafe { self.ring.submitter().register_buffers(&vectors)? };
        self.registered = pieces;
        self._arenas = arenas.to_vec();
        Ok(())
    }

    /// The kernel's index of the registered memory that holds `bytes` bytes from `address` on.
    pub(crate) fn registered(&self, address: usize, bytes: usize) -> Option<u16> {
        let holds = |range: &Range<usize>| range.start <= address && address + bytes <= range.end;
        self.registered.iter().position(holds).map(|index| index as u16)
    }

    /// Puts `entry` into the submission ring on behalf of `slot`.
    ///
    /// # Safety
    /// Every address in `entry` must stay valid, unmoved and free of conflicting use until [`next`](Self::next)
    /// returned `slot`. A slot has at most one entry in the ring, so the ring, made for all slots, has room.
    pub(crate) unsafe fn push(&mut self, slot: u32, entry: squeue::Entry) {
        self.unsubmitted.push_back(slot);
        if self.broken.is_some() {
            return;
        }
        let entry = entry.user_data(u64::from(slot));
        // SAFETY: passed on to the caller.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the submission ring has an entry for every slot");
    }

    /// Hands everything pushed to the kernel. Temporary refusals leave the rest for the next call; after any
    /// other refusal the ring is broken and what was pushed can only be [abandoned](Self::abandon).
    pub(crate) fn submit(&mut self) -> Result<(), Errno> {
        if self.unsubmitted.is_empty() {
            return Ok(());
        }
        if let Some(errno) = self.broken {
            return Err(errno);
        }
        match self.ring.submit() {
            Ok(taken) => {
                self.unsubmitted.drain(..taken.min(self.unsubmitted.len()));
                self.in_kernel += taken as u32;
                Ok(())
            }
            Err(error) => match errno(&error) {
                Errno::INTR | Errno::AGAIN | Errno::BUSY => Ok(()),
                fatal => {
                    self.broken = Some(fatal);
                    Err(fatal)
                }
            },
        }
    }

    /// Makes the ring as broken as a refusal of the kernel would: what is pushed and not taken never will be.
    pub(crate) fn break_off(&mut self, errno: Errno) {
        self.broken.get_or_insert(errno);
    }

    /// Lets the kernel write results that it holds back until asked, if there are any.
    pub(crate) fn collect(&mut self) {
        if self.in_kernel == 0 || !self.ring.completion().is_empty() {
            return;
        }
        if self.mode == Mode::Polled || self.ring.submission().taskrun() {
            // A failure here only means no news; the next turn asks again.
            let _ = self.enter(0);
        }
    }

    /// Asks the kernel for at least `want` results.
    fn enter(&self, want: u32) -> io::Result<usize> {
        // SAFETY: nothing is submitted and no argument is passed, so the call reads no memory of ours.
        unsafe {
            let flags = EnterFlags::GETEVENTS.bits();
            self.ring.submitter().enter::<libc::sigset_t>(0, want, flags, None)
        }
    }

    /// The next result: whose it is and what the system call would have returned.
    pub(crate) fn next(&mut self) -> Option<(u32, i32)> {
        let entry = self.ring.completion().next()?;
        self.in_kernel -= 1;
        Some((entry.user_data() as u32, entry.result()))
    }

    /// A slot whose entry the kernel never took and, after a failed [`submit`](Self::submit), never will.
    pub(crate) fn abandon(&mut self) -> Option<u32> {
        self.unsubmitted.pop_front()
    }

    /// True when everything pushed has been handed over.
    pub(crate) fn is_submitted(&self) -> bool {
        self.unsubmitted.is_empty()
    }

    /// How completions are found.
    pub(crate) const fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// Requests the kernel has taken and not answered.
    pub(crate) const fn in_kernel(&self) -> u32 {
        self.in_kernel
    }

    /// Has whatever has not reached the drive come back, and takes what has come back, without waiting. True means that
    /// the kernel no longer holds any address of ours. Only for the thread that made the ring.
    pub(crate) fn call_back(&mut self) -> bool {
        if self.in_kernel > 0 {
            self.collect();
            while self.next().is_some() {}
        }
        if self.in_kernel > 0 {
            // What cannot be called back is waited for elsewhere, so a failure changes nothing. The time limit is over
            // as it begins.
            let canceler = self.ring.submitter();
            let _ = canceler.register_sync_cancel(Some(Timespec::new()), CancelBuilder::any());
            self.collect();
            while self.next().is_some() {}
        }
        self.in_kernel == 0
    }

    /// Waits until the kernel has answered everything it has taken, or gives up at `limit`. True means that the
    /// kernel no longer holds any address of ours: what it never took, it never saw. For any thread that owns the
    /// ring.
    pub(crate) fn drain(&mut self, limit: Nanos) -> bool {
        let start = crate::wait::now();
        let pause = Timespec::new().nsec(100_000_000);
        loop {
            while self.next().is_some() {}
            if self.in_kernel == 0 {
                return true;
            }
            if crate::wait::now().since(start) > limit {
                return false;
            }
            self.wait_for_one(&pause);
        }
    }

    /// Waits for a result at most for `pause` where the kernel can limit a wait (5.11), else asks and returns.
    fn wait_for_one(&self, pause: &Timespec) {
        if !self.ring.params().is_feature_ext_arg() {
            let _ = self.enter(0);
            return;
        }
        let args = SubmitArgs::new().timespec(pause);
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: nothing is submitted; `args` and the time it points to live until the call returns.
        // An error (timed out, interrupted) means no news, which the caller finds out by looking.
        let _ = unsafe { self.ring.submitter().enter(0, 1, flags.bits(), Some(&args)) };
    }
}

impl Drop for Ring {
    /// The kernel takes a closed ring apart in its own time, and until then the ring would hold the file (and so
    /// its lock) and the pinned memory. Giving both back first makes "dropped" mean "free for the next opener".
    fn drop(&mut self) {
        // Nothing is lost when this fails: the kernel then lets go a little later.
        let _ = self.ring.submitter().unregister_files();
        if !self.registered.is_empty() {
            let _ = self.ring.submitter().unregister_buffers();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Mode, Ring};
    use io_uring::opcode;
    use std::fs::File;
    use std::os::fd::AsFd;
    use strake_units::Nanos;

    /// A ring the kernel refused once must not submit what it refused later, when its buffers are gone.
    #[test]
    fn a_broken_ring_stays_broken_and_takes_nothing() {
        let file = File::open("/proc/self/exe").expect("we run from a file");
        let mut ring = Ring::open(2, Mode::Interrupts, file.as_fd()).expect("io_uring works");
        let push = |ring: &mut Ring, slot: u32| {
            let entry = opcode::Nop::new().build();
            // SAFETY: a no-op names no memory.
            unsafe { ring.push(slot, entry) };
        };
        push(&mut ring, 0);
        ring.submit().expect("this thread made the ring");
        // A ring has one issuer; any other thread is refused permanently (`IORING_SETUP_SINGLE_ISSUER`).
        let mut ring = std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                push(&mut ring, 1);
                if ring.submit().is_ok() {
                    eprintln!("skipped: this kernel lets any thread submit");
                    return None;
                }
                Some(ring)
            });
            other.join().expect("no panic")
        });
        let Some(ring) = &mut ring else { return };
        assert_eq!((ring.abandon(), ring.abandon()), (Some(1), None));
        for slot in 0..10 {
            push(ring, slot);
            assert!(ring.submit().is_err(), "back on its own thread it is still broken");
            assert_eq!(ring.abandon(), Some(slot));
        }
        assert!(ring.drain(Nanos(30 * Nanos::SECOND.0)));
    }
}
