//! Detection of writes that may have been lost with the volatile write cache of a target.
//!
//! A completed change is in the target's cache until a flush. If the association ends before that and the target
//! restarts, the change may be lost without a report: a flush over the next association succeeds although it does not
//! cover the change, and a read returns the data from before the change. Both must fail in this case. An array then
//! takes the member out of use and copies to it all data written since the last successful flush.
//!
//! A queue is responsible for changes that complete after it was opened. Earlier losses are reported by the queues of
//! that time, so a caller that opens several queues for one purpose opens all of them before it uses one.
//!
//! A target can report the instance of its device
//! ([`instance`](strake_nvme_wire::identified::NamespaceFacts::instance)). An unchanged instance proves that no change
//! was lost. With any other target a loss must be assumed.

use super::atomic::{AtomicU64, Ordering};

/// The counters of a device. A flush of one of its queues covers all of them.
///
/// Completions and the start of an association happen on several cores. The core that counts a completion then reads
/// the first association of the instance, and the thread that starts an association reads the count after it has stored
/// that. At least one of them sees the other (all accesses are sequentially consistent; `tests/loom.rs` checks every
/// order of the steps).
#[derive(Debug)]
pub(crate) struct Cache {
    /// The number of completed changes that were not written with FUA.
    changes: AtomicU64,
    /// The number of changes that the last successful flush covers.
    flushed: AtomicU64,
    /// The current association, or the next one if there is none.
    current: AtomicU64,
    /// The first association of the current instance, as far as is known.
    first: AtomicU64,
    /// The last association at whose start changes were lost, or may have been lost.
    lost: AtomicU64,
}

impl Cache {
    /// Creates the counters of a target without completed changes.
    pub(crate) fn new() -> Self {
        Self {
            changes: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            current: AtomicU64::new(1),
            first: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Counts a change that completed over `association`, which may have ended meanwhile.
    pub(crate) fn changed(&self, association: u64) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        let first = self.first.load(Ordering::SeqCst);
        if association < first {
            self.lost.fetch_max(first, Ordering::SeqCst);
        }
    }

    /// The changes that a flush covers if it is sent now.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Records the success of a flush that covers `changes`.
    pub(crate) fn flushed(&self, changes: u64) {
        self.flushed.fetch_max(changes, Ordering::SeqCst);
    }

    /// Records the end of `association`.
    pub(crate) fn association_ended(&self, association: u64) {
        self.current.store(association + 1, Ordering::SeqCst);
    }

    /// Records the start of `association`, over which nothing has been sent yet.
    pub(crate) fn association_began(&self, association: u64, instance: Instance) {
        self.current.store(association, Ordering::SeqCst);
        if instance == Instance::Same {
            return;
        }
        self.first.store(association, Ordering::SeqCst);
        let changes = self.changes();
        if self.flushed.fetch_max(changes, Ordering::SeqCst) < changes {
            self.lost.fetch_max(association, Ordering::SeqCst);
        }
    }

    /// The current association, or the next one if there is none: a queue that is opened now is responsible for its
    /// completions.
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::SeqCst)
    }

    /// A number that increases whenever changes may have been lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    /// True if changes may have been lost that completed over association `since` or a later one.
    pub(crate) fn has_lost(&self, since: u64) -> bool {
        self.lost() > since
    }
}

/// The comparison of the instance with the instance of the previous association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instance {
    /// The instance is the same.
    Same,
    /// The instance is another one, or is unknown.
    PerhapsAnother,
}

impl Instance {
    /// Compares the previous report of a target with the current one.
    pub(crate) fn of(was: Option<[u8; 16]>, is: Option<[u8; 16]>) -> Self {
        if was.is_some() && was == is { Self::Same } else { Self::PerhapsAnother }
    }
}
