//! How far the growth of an array has come.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use strake_engine::Progress;

/// How far making room on the members of an array is.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// Bytes of all members together.
    pub(crate) done: AtomicU64,
    total: u64,
    cancelled: AtomicBool,
}

// Relaxed, here and below: the figures are for show, and a step more or less before the end does no harm.
impl Growth {
    /// Nothing of `total` bytes yet.
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
