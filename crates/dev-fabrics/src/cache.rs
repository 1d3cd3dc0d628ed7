//! What may have been lost with the volatile cache of a target.
//!
//! A change that completed is in the target's cache until a flush. When the association ends before that, the target
//! may have been restarted, and nobody can see whether it was: a flush over the next association succeeds, and says
//! nothing about what was there before, and a read shows what was there before that. So both have to fail, which has an
//! array take the member out and copy to it what was written since the last flush that worked.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts for a device of all whose queues a flush of one of them is for. Completions and the end of an association are
/// on several cores: whoever counts a completion looks after that whether the association ended, and whoever ends it
/// looks at the count after that, so one of them sees the other (both sequentially consistent).
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Changes that completed and are not durable by themselves.
    changes: AtomicU64,
    /// How many there were when a flush was sent that succeeded.
    flushed: AtomicU64,
    /// Times that something may have been lost.
    losses: AtomicU64,
}

impl Cache {
    /// A change has completed over `association`, of which `current` tells whether it is up.
    pub(crate) fn changed(&self, association: u64, current: &AtomicU64) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        if current.load(Ordering::SeqCst) != association {
            self.losses.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What a flush covers that is sent now.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// A flush that covers `changes` has succeeded.
    pub(crate) fn flushed(&self, changes: u64) {
        self.flushed.fetch_max(changes, Ordering::SeqCst);
    }

    /// No association is up any more.
    pub(crate) fn association_ended(&self) {
        let changes = self.changes();
        if self.flushed.fetch_max(changes, Ordering::SeqCst) < changes {
            self.losses.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whoever finds another number than when it began may have lost what completed before.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }
}
