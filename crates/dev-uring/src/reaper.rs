//! Outstanding requests of drives: requests that the kernel has not completed when their queue is dropped, and closes
//! that may wait for the server of a file.
//!
//! ```text
//! UringQueue::drop --> ledger (under its lock) --> thread of the drive: waits without a limit, then closes
//! open, open_queue --> ledger: outstanding requests?  the open fails after a limit
//! ```
//!
//! A debt is in the ledger before `drop` returns, so a later open cannot miss it. Each drive has a separate thread
//! while it has outstanding requests: an unresponsive drive delays no other.

use crate::limits::{CLOSE_PATIENCE, OWED_LOOK, OWED_THREADS_MAX};
use crate::ring::Ring;
use crate::slot::Slot;
use crate::wait::now;
use rustix::fs::{FlockOperation, Stat, flock};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use strake_units::Nanos;

use crate::device::Shared;

/// The identity of a file or block device: the file system and inode, or the device number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    device: u64,
    inode: u64,
    node: u64,
}

impl Key {
    /// Of a regular file.
    pub(crate) const fn of_file(found: &Stat) -> Self {
        Self { device: found.st_dev, inode: found.st_ino, node: 0 }
    }

    /// Of a block device: every node with this device number is the same device.
    pub(crate) const fn of_block(found: &Stat) -> Self {
        Self { device: 0, inode: 0, node: found.st_rdev }
    }

    pub(crate) const fn is_block(self) -> bool {
        self.node != 0
    }
}

/// An outstanding item of a drive.
pub(crate) enum Debt {
    /// A dropped queue: the rings with outstanding requests, and the memory of those requests.
    Queue { rings: Vec<Ring>, slots: Box<[Slot]>, shared: Arc<Shared> },
    /// A file whose close may wait.
    Close(OwnedFd),
}

// SAFETY: any thread that owns a ring may read its results; only submission is bound to the thread that created it
// (`IORING_SETUP_SINGLE_ISSUER`), and the reaper submits nothing. The pointers in slots point to the slots' own vectors
// and buffers, which move with them as one boxed slice; buffers are `Send`.
unsafe impl Send for Debt {}

impl Debt {
    /// Waits at most for `limit` for outstanding requests. Returns whether none is left.
    fn is_paid(&mut self, limit: Nanos) -> bool {
        match self {
            Self::Queue { rings, .. } => rings.iter_mut().all(|ring| ring.drain(limit)),
            Self::Close(_) => true,
        }
    }

    /// Releases all memory. The kernel no longer holds any address of it.
    fn close(self) {
        match self {
            Self::Queue { rings, slots, shared } => {
                drop(rings);
                drop(slots);
                // The kernel releases rings of another thread asynchronously, and they hold the file until then. The
                // lock of the file need not wait for that.
                if Arc::strong_count(&shared) == 1 {
                    unlock(&shared.file);
                }
                drop(shared);
            }
            Self::Close(file) => {
                unlock(&file);
                drop(file);
            }
        }
    }
}

fn unlock(file: &OwnedFd) {
    // A block device has no such lock, and the close releases the lock as well.
    let _ = flock(file, FlockOperation::NonBlockingUnlock);
}

/// The outstanding requests of one drive.
struct Account {
    since: Nanos,
    /// Requests that were outstanding when their queues were dropped.
    requests: u32,
    /// Items that the drive's thread has not taken yet.
    waiting: Vec<Debt>,
    /// Whether the drive has a thread.
    reaped: bool,
}

struct Accounts {
    open: BTreeMap<Key, Account>,
    /// The closing times of accounts, for [`CLOSE_PATIENCE`].
    closed: BTreeMap<Key, Nanos>,
}

struct Ledger {
    accounts: Mutex<Accounts>,
    /// Notified when an account is closed.
    closed: Condvar,
}

static LEDGER: Ledger = Ledger {
    accounts: Mutex::new(Accounts { open: BTreeMap::new(), closed: BTreeMap::new() }),
    closed: Condvar::new(),
};

impl Ledger {
    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // Every change of the map is one step, so a thread that panicked left it consistent.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outstanding requests of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owed {
    /// Requests that were outstanding when their queues were dropped.
    pub(crate) requests: u32,
    /// The time since the first of them.
    pub(crate) time: Nanos,
}

/// Takes over an outstanding item of the drive: a queue with `requests` requests, or a close. Never waits for the
/// drive.
pub(crate) fn hand_over(key: Key, requests: u32, debt: Debt) {
    let accounts = &mut LEDGER.accounts().open;
    let reaped = accounts.values().filter(|account| account.reaped).count();
    let account = accounts.entry(key).or_insert_with(|| Account {
        since: now(),
        requests: 0,
        waiting: Vec::new(),
        reaped: false,
    });
    account.requests += requests;
    account.waiting.push(debt);
    if account.reaped || reaped >= OWED_THREADS_MAX {
        // Without a thread the item stays in the ledger until another thread is free: its memory stays valid, and the
        // drive cannot be opened.
        return;
    }
    let thread = std::thread::Builder::new().name("strake-reaper".to_owned());
    account.reaped = thread.spawn(move || reap(key)).is_ok();
}

/// The thread of a drive: it waits until the drive has no outstanding requests, and continues with a drive that has no
/// thread.
fn reap(mut key: Key) {
    let mut owed: Vec<Debt> = Vec::new();
    loop {
        {
            let mut accounts = LEDGER.accounts();
            let Some(account) = accounts.open.get_mut(&key) else { return };
            owed.append(&mut account.waiting);
            if owed.is_empty() {
                accounts.open.remove(&key);
                let time = now();
                accounts.closed.retain(|_, closed| time.since(*closed) < CLOSE_PATIENCE);
                accounts.closed.insert(key, time);
                LEDGER.closed.notify_all();
                let next = accounts.open.iter_mut().find(|(_, account)| !account.reaped);
                let Some((other, account)) = next else { return };
                account.reaped = true;
                key = *other;
                continue;
            }
        }
        let mut unpaid = Vec::new();
        for mut debt in owed.drain(..) {
            if debt.is_paid(OWED_LOOK) { debt.close() } else { unpaid.push(debt) }
        }
        owed = unpaid;
    }
}

/// Returns the outstanding requests of the drive. Never waits.
pub(crate) fn owed_by(key: Key) -> Option<Owed> {
    let accounts = LEDGER.accounts();
    let account = accounts.open.get(&key)?;
    Some(Owed { requests: account.requests, time: now().since(account.since) })
}

/// True if the drive had outstanding requests until recently: the kernel releases the rings, which hold the drive open,
/// a little later.
pub(crate) fn closed_lately(key: Key) -> bool {
    LEDGER.accounts().closed.get(&key).is_some_and(|at| now().since(*at) < CLOSE_PATIENCE)
}

/// Waits at most for `limit` until the drive has no outstanding request.
///
/// Returns the remaining outstanding requests.
pub(crate) fn wait_for(key: Key, limit: Duration) -> Result<(), Owed> {
    let accounts = LEDGER.accounts();
    let waited = LEDGER
        .closed
        .wait_timeout_while(accounts, limit, |accounts| accounts.open.contains_key(&key))
        .unwrap_or_else(PoisonError::into_inner);
    drop(waited);
    owed_by(key).map_or(Ok(()), Err)
}
