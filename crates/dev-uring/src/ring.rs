//! One io_uring: submits requests to the kernel and returns their results.
//!
//! This module and `queue` ensure memory safety: between [`Ring::push`] and the [`Ring::next`] that returns the same
//! slot, the kernel may access the memory of the entry, so the slot, its I/O vectors and its buffers are not moved or
//! released. A dropped queue passes rings with outstanding requests to the `reaper`, together with the slots.

use crate::limits::{KERNEL_WORKERS_MAX, REGISTERED_BYTES_MAX, REGISTERED_MAX};
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode, squeue};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use strake_block::Arena;
use strake_units::Nanos;

/// The method of detecting completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The drive interrupts; the kernel then writes the result or sets a flag that requests a call.
    Interrupts,
    /// The drive does not interrupt; a call makes the kernel poll the drive (`IORING_SETUP_IOPOLL`).
    Polled,
}

pub(crate) struct Ring {
    ring: IoUring,
    mode: Mode,
    /// Slots in the submission ring that the kernel has not taken yet, in order.
    unsubmitted: VecDeque<u32>,
    /// Requests that the kernel has taken and not completed.
    in_kernel: u32,
    /// Set after a permanent error of the kernel. Entries that it never took are still in the submission ring although
    /// their slots have completed, so nothing may be submitted afterwards.
    broken: Option<Errno>,
    /// Address ranges registered as fixed buffers; the index is the kernel's.
    registered: Vec<Range<usize>>,
    /// Keeps registered memory mapped for as long as the ring exists.
    _arenas: Vec<Arc<Arena>>,
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Creates a ring that processes completions inside system calls instead of by interrupts of the thread (cooperative
/// task running, 5.19; single issuer, 6.0), or a plain ring if the kernel supports neither.
///
/// Deferred task running (`IORING_SETUP_DEFER_TASKRUN`, 6.1) would be cheaper, but a deferred completion does not wake
/// a thread that sleeps on the ring's file descriptor: on 6.18 such a sleep lasted until its timeout (the test
/// `a_core_can_sleep_on_the_queue` shows this). A core must be able to sleep.
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

thread_local! {
    /// A ring without requests of a queue, which keeps the kernel's workers of this thread. Recent kernels end all
    /// workers of a thread that closes its last ring (io_uring/io-wq.c, `io_wq_set_exit_on_idle`), as between two
    /// arrays on a core. A request that is queued while the last worker exits may then wait for the next request of
    /// the thread.
    static ANCHOR: RefCell<Option<IoUring>> = const { RefCell::new(None) };
}

/// Keeps the workers of this thread until the thread ends. A failure changes nothing else.
fn keep_workers() {
    ANCHOR.with_borrow_mut(|anchor| {
        if anchor.is_none() {
            *anchor = IoUring::builder().dontfork().build(1).ok();
        }
    });
}

/// Makes the kernel start or wake a worker of this thread, which then executes requests that wait for a worker as well.
/// A working kernel needs no such request. A failure changes nothing else.
pub(crate) fn wake_workers() {
    #[cfg(test)]
    WAKE_UPS.set(WAKE_UPS.get() + 1);
    ANCHOR.with_borrow_mut(|anchor| {
        let Some(ring) = anchor else { return };
        while ring.completion().next().is_some() {}
        let entry = opcode::Nop::new().build().flags(squeue::Flags::ASYNC);
        // SAFETY: a no-op contains no address.
        let pushed = unsafe { ring.submission().push(&entry) };
        if pushed.is_ok() {
            let _ = ring.submit();
        }
    });
}

impl Ring {
    /// Creates a ring for `entries` requests to `file`, which the caller keeps open as long as the ring.
    pub(crate) fn open(entries: u32, mode: Mode, file: BorrowedFd<'_>) -> io::Result<Self> {
        let ring = setup(entries, mode)?;
        keep_workers();
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        // The setting applies to all rings of this thread. A kernel without it (before 5.15) keeps its default.
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

    /// Registers the memory of `arenas`, so that the kernel need not look up and pin it for each request.
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
        // SAFETY: each vector covers memory of an arena, and the clones of their `Arc`s that are kept below hold that
        // memory until the ring is dropped.
        unsafe { self.ring.submitter().register_buffers(&vectors)? };
        self.registered = pieces;
        self._arenas = arenas.to_vec();
        Ok(())
    }

    /// The kernel's index of the registered memory that contains `bytes` bytes from `address` on.
    pub(crate) fn registered(&self, address: usize, bytes: usize) -> Option<u16> {
        let holds = |range: &Range<usize>| range.start <= address && address + bytes <= range.end;
        self.registered.iter().position(holds).map(|index| index as u16)
    }

    /// Pushes `entry` into the submission ring for `slot`.
    ///
    /// # Safety Every address in `entry` must stay valid, and its memory unmoved and without conflicting use, until
    /// [`next`](Self::next) returned `slot`. A slot has at most one entry in the ring, so the ring has room for all
    /// slots.
    pub(crate) unsafe fn push(&mut self, slot: u32, entry: squeue::Entry) {
        self.unsubmitted.push_back(slot);
        if self.broken.is_some() {
            return;
        }
        let entry = entry.user_data(u64::from(slot));
        // SAFETY: the caller fulfils the contract.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the submission ring has an entry for every slot");
    }

    /// Submits all pushed entries to the kernel. After a temporary error the rest stays for the next call; after any
    /// other error the ring is broken, and pushed entries can only be [abandoned](Self::abandon).
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

    /// Marks the ring as broken, as a permanent error of the kernel would: pushed entries that the kernel has not taken
    /// are never submitted.
    pub(crate) fn break_off(&mut self, errno: Errno) {
        self.broken.get_or_insert(errno);
    }

    /// Makes the kernel write results that it defers, if there are any.
    pub(crate) fn collect(&mut self) {
        if self.in_kernel == 0 || !self.ring.completion().is_empty() {
            return;
        }
        if self.mode == Mode::Polled || self.ring.submission().taskrun() {
            // After a failure there is no result; the next turn calls again.
            let _ = self.enter(0);
        }
    }

    /// Waits in the kernel for at least `want` results.
    fn enter(&self, want: u32) -> io::Result<usize> {
        // SAFETY: nothing is submitted and no argument is passed, so the call reads no memory of this process.
        unsafe {
            let flags = EnterFlags::GETEVENTS.bits();
            self.ring.submitter().enter::<libc::sigset_t>(0, want, flags, None)
        }
    }

    /// The next result: its slot, and the return value of the equivalent system call.
    pub(crate) fn next(&mut self) -> Option<(u32, i32)> {
        let entry = self.ring.completion().next()?;
        self.in_kernel -= 1;
        Some((entry.user_data() as u32, entry.result()))
    }

    /// A slot whose entry the kernel has not taken and, after a failed [`submit`](Self::submit), never takes.
    pub(crate) fn abandon(&mut self) -> Option<u32> {
        self.unsubmitted.pop_front()
    }

    /// True if all pushed entries were submitted.
    pub(crate) fn is_submitted(&self) -> bool {
        self.unsubmitted.is_empty()
    }

    /// The method of detecting completions.
    pub(crate) const fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// Requests that the kernel has taken and not completed.
    pub(crate) const fn in_kernel(&self) -> u32 {
        self.in_kernel
    }

    /// Cancels requests that have not reached the drive, and takes all results, without waiting. Returns true if the
    /// kernel no longer holds any address of this ring's requests. Only for the thread that created the ring.
    pub(crate) fn call_back(&mut self) -> bool {
        if self.in_kernel > 0 {
            self.collect();
            while self.next().is_some() {}
        }
        if self.in_kernel > 0 {
            // The reaper waits for requests that cannot be cancelled, so a failure has no effect. The timeout is zero.
            let canceler = self.ring.submitter();
            let _ = canceler.register_sync_cancel(Some(Timespec::new()), CancelBuilder::any());
            self.collect();
            while self.next().is_some() {}
        }
        self.in_kernel == 0
    }

    /// Waits until the kernel has completed everything that it has taken, at most until `limit`. Returns true if the
    /// kernel no longer holds any address of this ring's requests: it never saw entries that it has not taken. For any
    /// thread that owns the ring.
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

    /// Waits for a result, at most for `pause`, if the kernel supports timeouts here (5.11); otherwise returns at once.
    fn wait_for_one(&self, pause: &Timespec) {
        if !self.ring.params().is_feature_ext_arg() {
            let _ = self.enter(0);
            return;
        }
        let args = SubmitArgs::new().timespec(pause);
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: nothing is submitted; `args` and the time it points to live until the call returns. An error
        // (timeout, interruption) means that there is no result, which the caller checks.
        let _ = unsafe { self.ring.submitter().enter(0, 1, flags.bits(), Some(&args)) };
    }
}

impl Drop for Ring {
    /// The kernel releases a closed ring asynchronously, and until then the ring would hold the file (and so its lock)
    /// and the pinned memory. This releases both first, so that a later open succeeds at once.
    fn drop(&mut self) {
        // After a failure the kernel only releases them a little later.
        let _ = self.ring.submitter().unregister_files();
        if !self.registered.is_empty() {
            let _ = self.ring.submitter().unregister_buffers();
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Number of wake-ups of the workers of this thread.
    static WAKE_UPS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Returns the number of wake-ups of the workers of this thread.
#[cfg(test)]
pub(crate) fn wake_ups() -> u32 {
    WAKE_UPS.get()
}

#[cfg(test)]
mod tests {
    use super::{ANCHOR, Mode, Ring, wake_workers};
    use io_uring::opcode;
    use std::fs::File;
    use std::os::fd::AsFd;
    use strake_units::Nanos;

    /// After a permanent error, a ring must not submit rejected entries later, when their buffers are released.
    #[test]
    fn a_broken_ring_stays_broken_and_takes_nothing() {
        let file = File::open("/proc/self/exe").expect("we run from a file");
        let mut ring = Ring::open(2, Mode::Interrupts, file.as_fd()).expect("io_uring works");
        let push = |ring: &mut Ring, slot: u32| {
            let entry = opcode::Nop::new().build();
            // SAFETY: a no-op contains no address.
            unsafe { ring.push(slot, entry) };
        };
        push(&mut ring, 0);
        ring.submit().expect("this thread made the ring");
        // A ring has one issuer; the kernel permanently rejects any other thread (`IORING_SETUP_SINGLE_ISSUER`).
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
    /// A wake-up is a request that the kernel executes on a worker of this thread.
    #[test]
    fn a_wake_up_reaches_a_worker() {
        wake_workers();
        assert!(ANCHOR.with_borrow(Option::is_none), "a thread without rings has no workers");
        let file = File::open("/proc/self/exe").expect("we run from a file");
        let ring = Ring::open(2, Mode::Interrupts, file.as_fd()).expect("io_uring works");
        drop(ring);
        for _ in 0..10 {
            wake_workers();
            let done = ANCHOR.with_borrow_mut(|anchor| {
                let ring = anchor.as_mut().expect("it outlives the rings of queues");
                ring.submit_and_wait(1).expect("this thread made the ring");
                ring.completion().count()
            });
            assert_eq!(done, 1);
        }
    }
}
