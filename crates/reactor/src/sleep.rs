//! Events that may end the sleep of a core: file descriptors and a deadline, or the need to poll.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use strake_block::Readiness;
use strake_units::Nanos;

/// Initial capacity for file descriptors. The list grows once if pollers add more.
const FDS_EXPECTED: usize = 64;

/// Maximum duration of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// Sleep until an event occurs.
    Forever,
    /// Sleep until this time at the latest.
    Until(Nanos),
    /// Do not sleep, because a poller must be polled.
    Never,
}

/// Collects the events that may end the sleep of a core. Every poller adds its events, and the core adds its own
/// wake-up.
#[derive(Debug)]
pub struct Sleep {
    fds: Vec<PollFd<'static>>,
    limit: Limit,
}

impl Sleep {
    /// Creates a sleep without events.
    #[must_use]
    pub fn new() -> Self {
        Self { fds: Vec::with_capacity(FDS_EXPECTED), limit: Limit::Forever }
    }

    /// Ends the sleep when `fd` is readable, hung up or in error. The descriptor must stay open until the next turn of
    /// the poller.
    pub fn fd(&mut self, fd: RawFd) {
        self.fd_for(fd, PollFlags::IN);
    }

    /// Ends the sleep when `fd` is writable, hung up or in error. The descriptor must stay open until the next turn of
    /// the poller.
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

    /// Prevents the sleep, because the poller must be polled.
    pub fn never(&mut self) {
        self.limit = Limit::Never;
    }

    /// Adds the readiness of a queue.
    pub fn readiness(&mut self, readiness: Readiness) {
        match readiness {
            Readiness::Idle => {}
            Readiness::Poll => self.never(),
            Readiness::Fd(fd) => self.fd(fd),
            Readiness::At(deadline) => self.until(deadline),
        }
    }

    /// True if a poller must be polled.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.limit == Limit::Never
    }

    /// Returns the latest end of the sleep, if any.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        match self.limit {
            Limit::Until(deadline) => Some(deadline),
            Limit::Forever | Limit::Never => None,
        }
    }

    /// Returns the number of added file descriptors.
    #[must_use]
    pub fn fds(&self) -> usize {
        self.fds.len()
    }

    /// Removes all events and keeps the memory.
    pub fn clear(&mut self) {
        self.fds.clear();
        self.limit = Limit::Forever;
    }

    #[allow(unsafe_code)]
    fn fd_for(&mut self, fd: RawFd, flags: PollFlags) {
        // A closed descriptor is often a negative number. `ppoll` ignores negative numbers, and so does this function.
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

    /// Waits for the added events. Returns immediately if a poller must be polled or the deadline has passed. A signal
    /// also ends the wait, because the caller takes a turn in any case.
    pub(crate) fn wait(&mut self, now: Nanos) {
        let timeout = match self.limit {
            Limit::Forever => None,
            Limit::Until(deadline) if deadline <= now => return,
            Limit::Until(deadline) => Some(timespec(deadline.since(now))),
            Limit::Never => return,
        };
        // If the call was interrupted, or the kernel lacked memory, the core only polls again.
        let _ = poll(&mut self.fds, timeout.as_ref());
    }
}

impl Default for Sleep {
    fn default() -> Self {
        Self::new()
    }
}

/// Converts a duration for the kernel. 584 years of nanoseconds fit in its seconds.
fn timespec(span: Nanos) -> Timespec {
    Timespec {
        tv_sec: (span.0 / Nanos::SECOND.0) as i64,
        tv_nsec: (span.0 % Nanos::SECOND.0) as i64,
    }
}

#[cfg(test)]
mod tests;
