//! What may have been lost with the volatile cache of a target.
//!
//! A change that completed is in the target's cache until a flush. When the association ends before that and the target
//! restarts, the change may be lost, and nothing reports it: a flush over the next association succeeds although it
//! does not cover the change, and a read returns the data from before the change. So both have to fail; an array then
//! takes the member out and copies to it what was written since the last flush that worked.
//!
//! A queue answers for what completes after it was opened. Losses of earlier changes are reported by the queues of that
//! time, so a caller that opens several queues for one purpose uses none before all are open.
//!
//! A target that says which instance of a device it serves
//! ([`instance`](strake_nvme_wire::identified::NamespaceFacts::instance)) shows by the same instance that nothing is
//! lost. With any other target a loss has to be assumed.

use super::atomic::{AtomicU64, Ordering};

/// Counts for a device. A flush of one of its queues is for all of them.
///
/// Completions and the beginning of an association are on several cores: the core that counts a completion reads after
/// that which association was the first of the instance, and the thread that begins an association reads the count
/// after it has stored that. One of them sees the other (all of it sequentially consistent; `tests/loom.rs` tries every
/// order of the steps).
#[derive(Debug)]
pub(crate) struct Cache {
    /// Changes that completed and are not durable by themselves.
    changes: AtomicU64,
    /// How many there were when a flush was sent that succeeded.
    flushed: AtomicU64,
    /// The association that is up, or else the next.
    current: AtomicU64,
    /// The last association with which, as far as is known, another instance began to serve the namespace.
    first: AtomicU64,
    /// The last association at whose beginning something was lost, or may have been.
    lost: AtomicU64,
}

impl Cache {
    /// That of a target over whose first association nothing has completed yet.
    pub(crate) fn new() -> Self {
        Self {
            changes: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            current: AtomicU64::new(1),
            first: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// A change has completed over `association`, which may have ended meanwhile.
    pub(crate) fn changed(&self, association: u64) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        let first = self.first.load(Ordering::SeqCst);
        if association < first {
            self.lost.fetch_max(first, Ordering::SeqCst);
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

    /// `association` has ended.
    pub(crate) fn association_ended(&self, association: u64) {
        self.current.store(association + 1, Ordering::SeqCst);
    }

    /// `association` begins, over which nothing has been sent yet.
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

    /// The association that is up, or else the next: a queue that is opened now relies on what completes over it.
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::SeqCst)
    }

    /// A number that grows whenever something may have been lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    /// Whether something may have been lost that completed over association `since` or a later one.
    pub(crate) fn has_lost(&self, since: u64) -> bool {
        self.lost() > since
    }
}

/// What is known of the instance that serves a namespace, against that of the association before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instance {
    /// It is the same.
    Same,
    /// It is another, or nothing tells.
    PerhapsAnother,
}

impl Instance {
    /// Compares what a target said with what it says.
    pub(crate) fn of(was: Option<[u8; 16]>, is: Option<[u8; 16]>) -> Self {
        if was.is_some() && was == is { Self::Same } else { Self::PerhapsAnother }
    }
}
