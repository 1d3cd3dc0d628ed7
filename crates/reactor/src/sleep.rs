//! What may end a core's sleep: file descriptors, a deadline, or nothing but polling.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use strake_block::Readiness;
use strake_units::Nanos;

/// File descriptors there is room for from the start; the list grows (once) when pollers name more.
const FDS_EXPECTED: usize = 64;

/// How long a sleeping core may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// Until something happens.
    Forever,
    /// Until this time at the latest.
    Until(Nanos),
    /// Not at all: a poller has to be polled.
    Never,
}

/// Collects what may end a core's sleep. Every poller adds to it; the core itself adds its own wake-up.
#[derive(Debug)]
pub struct Sleep {
    fds: Vec<PollFd<'static>>,
    limit: Limit,
}

impl Sleep {
    /// A sleep that nothing ends.
    #[must_use]
    pub fn new() -> Self {
        Self { fds: Vec::with_capacity(FDS_EXPECTED), limit: Limit::Forever }
    }

    /// Ends the sleep when `fd` is readable, hung up or in error. It has to stay open until the poller's next
    /// turn.
    pub fn fd(&mut self, fd: RawFd) {
        self.fd_for(fd, PollFlags::IN);
    }

    /// Ends the sleep when `fd` is writable, hung up or in error. It has to stay open until the poller's next
    /// turn.
    pub fn fd_writable(&mut self, fd: RawFd) {
        self.fd_for(fd, PollFlags::OUT);
    }

    /// Ends the sleep at `deadline`.
    pub fn until(&mut self, deadline: Nanos) {
        self.limit = match self.limit {
            Limit::Forever => Limit::Until(deadline),
            Limit::Until(earlier) => Limit::Until(earlier.min(deadline)),
            Limit::Never => Limit::Never,
        };
    }

    /// Forbids the sleep: only polling will show what the poller waits for.
    pub fn never(&mut self) {
        self.limit = Limit::Never;
    }

    /// Adds what a queue says it needs.
    pub fn readiness(&mut self, readiness: Readiness) {
        match readiness {
            Readiness::Idle => {}
            Readiness::Poll => self.never(),
            Readiness::Fd(fd) => self.fd(fd),
            Readiness::At(deadline) => self.until(deadline),
        }
    }

    /// True when a poller has to be polled.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.limit == Limit::Never
    }

    /// When the sleep ends at the latest, if a time was given.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        match self.limit {
            Limit::Until(deadline) => Some(deadline),
            Limit::Forever | Limit::Never => None,
        }
    }

    /// How many file descriptors were added.
    #[must_use]
    pub fn fds(&self) -> usize {
        self.fds.len()
    }

    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.fds.clear();
        self.limit = Limit::Forever;
    }

    #[allow(unsafe_code)]
    fn fd_for(&mut self, fd: RawFd, flags: PollFlags) {
        // A negative number is how a closed descriptor often looks; `ppoll` ignores it and so do we.
        if fd < 0 {
            return;
        }
        // SAFETY: the number is used for one `ppoll` and forgotten by `clear`. The poller that named it is
        // owned by the sleeping core and can neither run nor be dropped before that call returns, so the
        // descriptor it owns stays open. If it does not own it and another thread closes it, `ppoll` reports POLLNVAL
        // or watches another file: a needless turn, no access to memory or to that file's content.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        self.fds.push(PollFd::from_borrowed_fd(fd, flags));
    }

    /// Waits for whatever was added. Returns at once when a poller has to be polled or the deadline has passed. A
    /// signal ends the wait as well: the caller takes a turn in any case.
    pub(crate) fn wait(&mut self, now: Nanos) {
        let timeout = match self.limit {
            Limit::Forever => None,
            Limit::Until(deadline) if deadline <= now => return,
            Limit::Until(deadline) => Some(timespec(deadline.since(now))),
            Limit::Never => return,
        };
        // Interrupted, or the kernel is short of memory for the call: both only mean polling again.
        let _ = poll(&mut self.fds, timeout.as_ref());
    }
}

impl Default for Sleep {
    fn default() -> Self {
        Self::new()
    }
}

/// A span of time as the kernel wants it. 584 years of nanoseconds fit in its seconds.
fn timespec(span: Nanos) -> Timespec {
    Timespec {
        tv_sec: (span.0 / Nanos::SECOND.0) as i64,
        tv_nsec: (span.0 % Nanos::SECOND.0) as i64,
    }
}

#[cfg(test)]
mod tests;
