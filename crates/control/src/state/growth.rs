//! Progress of the growth of an array.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use strake_engine::Progress;

/// Progress of zeroing the new area on the members of an array.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// Bytes of all members together.
    pub(crate) done: AtomicU64,
    total: u64,
    cancelled: AtomicBool,
}

// All accesses are relaxed: the progress is only shown, and one additional step before a cancellation is harmless.
impl Growth {
    /// Creates the progress of `total` bytes.
    pub(crate) fn of(total: u64) -> Self {
        Self { total, ..Self::default() }
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress { done_bytes: self.done.load(Ordering::Relaxed), total_bytes: self.total }
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
