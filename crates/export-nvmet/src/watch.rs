//! Which changes of reservations I/O queues apply already.
//!
//! A queue looks once a turn whether there was a change, takes over its rights, and says so here; the reservation
//! thread waits for that before it answers the command behind the change. A command pays for nothing but a look at a
//! value of its own queue.

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
    /// The one of this number.
    pub(crate) const fn one(number: u32) -> Self {
        Self(1 << ((number - 1) % u32::BITS))
    }

    /// These and those.
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

/// What one I/O queue says.
pub(crate) struct Watch {
    host: HostId,
    /// The change up to which it applies them.
    applied: AtomicU64,
    /// Namespaces at whose devices commands are that it gave up, as [`Namespaces`]: those of each change from when it
    /// applies the change.
    awaited: AtomicU32,
    /// Who waits to hear.
    reservation_thread: Thread,
}

impl Watch {
    /// Says that the changes up to `number` apply to every command that is begun from now on, and where commands are
    /// waited for that were given up. Release: a thread that sees the number knows that what was begun before was
    /// begun, and where it is waited for.
    pub(crate) fn set_applied(&self, number: u64, awaited: Namespaces) {
        self.awaited.store(awaited.0, Ordering::Release);
        self.applied.store(number, Ordering::Release);
        self.reservation_thread.unpark();
    }
}

impl Drop for Watch {
    /// A queue that goes is waited for no more.
    fn drop(&mut self) {
        self.reservation_thread.unpark();
    }
}

/// All I/O queues of a subsystem.
#[derive(Default)]
pub(crate) struct Watches {
    there: Mutex<Vec<Weak<Watch>>>,
    /// Changes of reservations there were.
    changes: AtomicU64,
}

impl Watches {
    /// Nothing panics while holding the lock, so a poisoned one holds a sound list.
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Watch>>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes there were. Acquire: a thread that sees the number finds what changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Tells queues of a change that is in force. Only the reservation thread does.
    pub(crate) fn publish(&self, number: u64) {
        self.changes.store(number, Ordering::Release);
    }

    /// A queue that opens. It has to look at its rights after this: a change that is not waited for by this queue is in
    /// force by then.
    pub(crate) fn join(&self, host: HostId, reservation_thread: Thread) -> Arc<Watch> {
        let (applied, awaited) = (AtomicU64::new(0), AtomicU32::new(0));
        let watch = Arc::new(Watch { host, applied, awaited, reservation_thread });
        let mut there = self.lock();
        there.retain(|known| known.strong_count() > 0);
        there.push(Arc::downgrade(&watch));
        watch
    }

    /// True when every queue that is open applies the changes up to `number`.
    pub(crate) fn have_applied(&self, number: u64) -> bool {
        // Acquire: see `set_applied` of a queue.
        let has = |watch: Arc<Watch>| watch.applied.load(Ordering::Acquire) >= number;
        self.lock().iter().filter_map(Weak::upgrade).all(has)
    }

    /// True when the device of a namespace has no command left of these hosts that was given up by a change that every
    /// queue applies.
    pub(crate) fn are_quiet(&self, hosts: &[HostId], namespace: u32) -> bool {
        let quiet = |watch: Arc<Watch>| {
            let awaited = Namespaces(watch.awaited.load(Ordering::Acquire));
            !hosts.contains(&watch.host) || !awaited.has(namespace)
        };
        self.lock().iter().filter_map(Weak::upgrade).all(quiet)
    }
}
