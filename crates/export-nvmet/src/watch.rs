//! Which changes of reservations I/O queues apply already.
//!
//! A queue looks once a turn whether there was a change, takes over its rights, and says so here; whoever answers the
//! command behind the change waits for that. A command pays for nothing but a look at a value of its own queue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Thread;
use strake_nvme_wire::reservation::HostId;

/// What one I/O queue says.
pub(crate) struct Watch {
    host: HostId,
    /// The change up to which it applies them.
    applied: AtomicU64,
    /// The change up to which no command that it gave up is at a device.
    quiet: AtomicU64,
    /// Who waits to hear.
    clerk: Thread,
}

impl Watch {
    /// Says that the changes up to `number` apply to every command that is begun from now on. Release: whoever sees it
    /// knows that what was begun before was begun.
    pub(crate) fn set_applied(&self, number: u64) {
        self.applied.store(number, Ordering::Release);
        self.clerk.unpark();
    }

    /// Says that all commands are over that the changes up to `number` gave up.
    pub(crate) fn set_quiet(&self, number: u64) {
        self.quiet.store(number, Ordering::Release);
        self.clerk.unpark();
    }
}

impl Drop for Watch {
    /// A queue that goes is waited for no more.
    fn drop(&mut self) {
        self.clerk.unpark();
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
    /// Nothing panics while holding the lock, so a poisoned one guards a sound list.
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Watch>>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes there were. Acquire: whoever sees the number finds what changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Tells queues of a change that is in force. Only the clerk does.
    pub(crate) fn publish(&self, number: u64) {
        self.changes.store(number, Ordering::Release);
    }

    /// A queue that opens. It has to look at its rights after this: a change that is not waited for by this queue is in
    /// force by then.
    pub(crate) fn join(&self, host: HostId, clerk: Thread) -> Arc<Watch> {
        let watch = Watch { host, applied: AtomicU64::new(0), quiet: AtomicU64::new(0), clerk };
        let watch = Arc::new(watch);
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

    /// True when no command of these hosts is at a device any more that the change `number` gave up.
    pub(crate) fn are_quiet(&self, hosts: &[HostId], number: u64) -> bool {
        let quiet = |watch: Arc<Watch>| {
            !hosts.contains(&watch.host) || watch.quiet.load(Ordering::Acquire) >= number
        };
        self.lock().iter().filter_map(Weak::upgrade).all(quiet)
    }
}
