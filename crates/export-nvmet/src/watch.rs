//! The reservation changes that each I/O queue has applied.
//!
//! Once per turn, a queue checks for a change, updates its access rights, and reports this here. The reservation thread
//! waits for these reports before it completes the command that made the change. The only cost of a command is a read
//! of a value of its own queue.

use crate::limits::NAMESPACES_MAX;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Thread;
use strake_nvme_wire::reservation::HostId;

/// Namespaces of a subsystem, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Namespaces(u32);

const _: () = assert!(NAMESPACES_MAX <= u32::BITS);

impl Namespaces {
    /// The set of one namespace.
    pub(crate) const fn one(number: u32) -> Self {
        Self(1 << ((number - 1) % u32::BITS))
    }

    /// The union of two sets.
    pub(crate) const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn has(self, number: u32) -> bool {
        self.0 & Self::one(number).0 != 0
    }
}

/// The reports of one I/O queue.
pub(crate) struct Watch {
    host: HostId,
    /// The last change that the queue has applied.
    applied: AtomicU64,
    /// The namespaces, as [`Namespaces`], where the queue has aborted commands in flight. A change is included from the
    /// moment the queue applies it.
    awaited: AtomicU32,
    /// The thread that waits for the reports.
    reservation_thread: Thread,
}

impl Watch {
    /// Reports that changes up to `number` apply to every command that is started from now on, and the namespaces with
    /// aborted commands in flight. The Release pairs with the Acquire in `have_applied`: a thread that reads the number
    /// also finds `awaited`.
    pub(crate) fn set_applied(&self, number: u64, awaited: Namespaces) {
        self.awaited.store(awaited.0, Ordering::Release);
        self.applied.store(number, Ordering::Release);
        self.reservation_thread.unpark();
    }
}

impl Drop for Watch {
    /// The reservation thread no longer waits for a closed queue.
    fn drop(&mut self) {
        self.reservation_thread.unpark();
    }
}

/// All I/O queues of a subsystem.
#[derive(Default)]
pub(crate) struct Watches {
    there: Mutex<Vec<Weak<Watch>>>,
    /// The number of reservation changes so far.
    changes: AtomicU64,
}

impl Watches {
    /// No code panics while it holds the lock, so the list of a poisoned lock is consistent.
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Watch>>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of changes so far. Acquire pairs with the Release in `publish`: a thread that reads the number finds
    /// the change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Publishes a change that is in force. Only the reservation thread calls this.
    pub(crate) fn publish(&self, number: u64) {
        self.changes.store(number, Ordering::Release);
    }

    /// Adds a queue. The queue must read its rights after this call: a change that does not wait for this queue is then
    /// in force.
    pub(crate) fn join(&self, host: HostId, reservation_thread: Thread) -> Arc<Watch> {
        let (applied, awaited) = (AtomicU64::new(0), AtomicU32::new(0));
        let watch = Arc::new(Watch { host, applied, awaited, reservation_thread });
        let mut there = self.lock();
        there.retain(|known| known.strong_count() > 0);
        there.push(Arc::downgrade(&watch));
        watch
    }

    /// True if every open queue has applied the changes up to `number`.
    pub(crate) fn have_applied(&self, number: u64) -> bool {
        // Acquire pairs with the Release in `set_applied`.
        let has = |watch: Arc<Watch>| watch.applied.load(Ordering::Acquire) >= number;
        self.lock().iter().filter_map(Weak::upgrade).all(has)
    }

    /// True if no aborted command of these hosts is in flight at the device of a namespace, for changes that every
    /// queue has applied.
    pub(crate) fn are_quiet(&self, hosts: &[HostId], namespace: u32) -> bool {
        let quiet = |watch: Arc<Watch>| {
            let awaited = Namespaces(watch.awaited.load(Ordering::Acquire));
            !hosts.contains(&watch.host) || !awaited.has(namespace)
        };
        self.lock().iter().filter_map(Weak::upgrade).all(quiet)
    }
}
