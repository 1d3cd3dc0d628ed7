//! Range locks: they make a fused Compare and Write one atomic operation for every host that writes to the same blocks
//! (Base, section 3.4.2; NVM, section 2.1.4).
//!
//! ```text
//! raise -> every queue of the device has seen it, and its earlier writes there have completed -> stands -> lower
//! ```
//! A queue that has seen a range lock starts no write to its blocks until it is lowered, and acknowledges the range
//! lock when its earlier writes there have completed. A range lock is granted (*stands*) when all queues have
//! acknowledged it and no earlier range lock overlaps it: then only its owner writes there. An ordinary write checks
//! only the view of its queue, which is usually empty. Queues check the shared list in their turns, when its change
//! counter differs.
//!
//! Tickets order range locks and the writes that wait for them: a write waits for the range locks that its queue knew
//! when the write arrived, and later range locks wait for the write. Each waits for earlier ones only, so there is no
//! deadlock, and a waiting write is not overtaken repeatedly.
//!
//! [`RangeLocks`] and [`Outlook`] are pure; [`Gate`], [`Sentry`] and [`Raised`] share them between threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use strake_reactor::CoreHandle;
use strake_units::LbaRange;

/// The identifier of a range lock; range locks are ordered by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RangeLock {
    ticket: Ticket,
    range: LbaRange,
    /// The number of queues that have not acknowledged it yet.
    missing: u32,
    /// The number of earlier range locks that overlap it.
    ahead: u32,
}

impl RangeLock {
    const fn stands(&self) -> bool {
        self.missing == 0 && self.ahead == 0
    }
}

/// All range locks of a device in the order of their tickets. Each queue has at most one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RangeLocks {
    raised: Vec<RangeLock>,
    queues: u32,
    last: u64,
    /// Incremented by every change that queues have to read.
    changes: u64,
}

impl RangeLocks {
    /// Adds a queue that has written nothing. Its view contains all current range locks.
    pub(crate) fn join(&mut self) -> Outlook {
        self.queues += 1;
        // Every queue may request a range lock. The memory for it is allocated here, and other queues allocate theirs
        // when they next check the list.
        let queues = self.queues as usize;
        self.raised.reserve(queues.saturating_sub(self.raised.len()));
        self.changes += 1;
        let mut outlook = Outlook { known: Vec::with_capacity(queues), seen: self.changes };
        outlook.known.extend(self.raised.iter().map(|range_lock| Known::of(range_lock, Said::Yes)));
        outlook
    }

    /// Removes a queue that has no I/O in flight.
    pub(crate) fn leave(&mut self, outlook: &Outlook) {
        self.queues -= 1;
        let mut known = outlook.known.iter().peekable();
        for range_lock in &mut self.raised {
            while known.next_if(|known| known.ticket < range_lock.ticket).is_some() {}
            let said =
                known.next_if(|known| known.ticket == range_lock.ticket).map(|known| known.said);
            if said != Some(Said::Yes) {
                range_lock.missing -= 1;
                self.changes += u64::from(range_lock.stands());
            }
        }
    }

    /// Adds a range lock of these blocks.
    pub(crate) fn raise(&mut self, range: LbaRange) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        let ahead = self.raised.iter().filter(|other| other.range.overlaps(range)).count() as u32;
        self.raised.push(RangeLock { ticket, range, missing: self.queues, ahead });
        self.changes += 1;
        ticket
    }

    /// Removes a range lock, granted or not.
    pub(crate) fn lower(&mut self, ticket: Ticket) {
        let Some(at) = self.raised.iter().position(|range_lock| range_lock.ticket == ticket) else {
            return;
        };
        let lowered = self.raised.remove(at);
        for later in &mut self.raised[at..] {
            later.ahead -= u32::from(later.range.overlaps(lowered.range));
        }
        self.changes += 1;
    }
}

/// Whether a queue has acknowledged a range lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    No,
    Yes,
}

/// A range lock in the view of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    ticket: Ticket,
    range: LbaRange,
    said: Said,
    stands: bool,
}

impl Known {
    const fn of(range_lock: &RangeLock, said: Said) -> Self {
        Self { ticket: range_lock.ticket, range: range_lock.range, said, stands: false }
    }
}

/// The view that a queue has of the range locks of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outlook {
    /// In the order of tickets.
    known: Vec<Known>,
    /// The change counter at the last check.
    seen: u64,
}

impl Outlook {
    /// True if the view contains no range lock.
    pub(crate) const fn is_clear(&self) -> bool {
        self.known.is_empty()
    }

    /// The last range lock that a write to these blocks must wait for, if there is one.
    pub(crate) fn before(&self, range: LbaRange) -> Option<Ticket> {
        let around = self.known.iter().filter(|known| known.range.overlaps(range));
        around.map(|known| known.ticket).max()
    }

    /// True if a write to these blocks that waited for the range locks up to `last` can continue.
    pub(crate) fn is_past(&self, range: LbaRange, last: Ticket) -> bool {
        !self.known.iter().any(|known| known.ticket <= last && known.range.overlaps(range))
    }

    /// True if a range lock was granted at the last check. A granted range lock stays granted until it is removed.
    pub(crate) fn stands(&self, ticket: Ticket) -> bool {
        self.known.iter().any(|known| known.ticket == ticket && known.stands)
    }

    /// True if the queue has to check the list, because `changes` differs, or because it can now acknowledge a range
    /// lock. `writes` returns whether a write to blocks of this range lock is in flight, or waits for an earlier range
    /// lock.
    fn has_to_look(&self, changes: u64, writes: &mut impl FnMut(Ticket, LbaRange) -> bool) -> bool {
        self.seen != changes
            || self.known.iter().any(|k| k.said == Said::No && !writes(k.ticket, k.range))
    }

    /// Updates the view, and acknowledges each range lock whose blocks have no `writes`.
    pub(crate) fn look(
        &mut self,
        range_locks: &mut RangeLocks,
        mut writes: impl FnMut(Ticket, LbaRange) -> bool,
    ) {
        // Memory is allocated only after another queue was opened.
        let room = (range_locks.queues as usize).saturating_sub(self.known.len());
        self.known.reserve(room);
        // The view contains all range locks from before the last check, so the common entries come first in both lists.
        let mut both = 0;
        self.known.retain(|known| {
            let is_raised = range_locks.raised.get(both).is_some_and(|g| g.ticket == known.ticket);
            both += usize::from(is_raised);
            is_raised
        });
        let new = range_locks.raised[both..].iter();
        self.known.extend(new.map(|range_lock| Known::of(range_lock, Said::No)));
        for (known, range_lock) in self.known.iter_mut().zip(&mut range_locks.raised) {
            if known.said == Said::No && !writes(known.ticket, known.range) {
                known.said = Said::Yes;
                range_lock.missing -= 1;
                range_locks.changes += u64::from(range_lock.stands());
            }
            known.stands = range_lock.stands();
        }
        self.seen = range_locks.changes;
    }
}

/// The range locks of a device, for the queues on all cores.
pub(crate) struct Gate {
    range_locks: Mutex<RangeLocks>,
    changes: AtomicU64,
    /// Cores to wake on changes.
    cores: Vec<CoreHandle>,
}

impl Gate {
    pub(crate) fn new(cores: Vec<CoreHandle>) -> Self {
        Self { range_locks: Mutex::new(RangeLocks::default()), changes: AtomicU64::new(0), cores }
    }

    /// No code panics while it holds the lock, so the list of a poisoned lock is consistent. Ordinary commands do not
    /// take it.
    fn lock(&self) -> MutexGuard<'_, RangeLocks> {
        self.range_locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies `it` to the list, and wakes the cores if it changed the list. The Release pairs with the Acquire in
    /// `look`: a thread that reads the counter finds the changed list.
    fn apply<R>(
        &self,
        mut range_locks: MutexGuard<'_, RangeLocks>,
        it: impl FnOnce(&mut RangeLocks) -> R,
    ) -> R {
        let before = range_locks.changes;
        let result = it(&mut range_locks);
        let now = range_locks.changes;
        self.changes.store(now, Ordering::Release);
        drop(range_locks);
        if now != before {
            self.cores.iter().for_each(CoreHandle::wake);
        }
        result
    }
}

/// The registration of a queue with the range locks of a device. It is dropped after the queue, when the queue has no
/// I/O in flight.
pub(crate) struct Sentry {
    gate: Arc<Gate>,
    pub(crate) outlook: Outlook,
}

impl Sentry {
    pub(crate) fn new(gate: &Arc<Gate>) -> Self {
        let outlook = gate.apply(gate.lock(), RangeLocks::join);
        Self { gate: Arc::clone(gate), outlook }
    }

    /// Requests a range lock of these blocks. A later check shows that it is granted.
    pub(crate) fn raise(&self, range: LbaRange) -> Raised {
        let ticket = self.gate.apply(self.gate.lock(), |range_locks| range_locks.raise(range));
        Raised { gate: Arc::clone(&self.gate), ticket }
    }

    /// Checks the range locks if the view is outdated or an acknowledgement is due; returns whether there was one.
    /// `writes` is as in [`Outlook::look`]. If another queue holds the lock, the check is repeated in the next turn.
    pub(crate) fn look(&mut self, mut writes: impl FnMut(Ticket, LbaRange) -> bool) -> usize {
        let changes = self.gate.changes.load(Ordering::Acquire);
        if !self.outlook.has_to_look(changes, &mut writes) {
            return 0;
        }
        let range_locks = match self.gate.range_locks.try_lock() {
            Ok(range_locks) => range_locks,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return 1,
        };
        self.gate.apply(range_locks, |range_locks| self.outlook.look(range_locks, writes));
        1
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        self.gate.apply(self.gate.lock(), |range_locks| range_locks.leave(&self.outlook));
    }
}

/// A requested range lock; the drop removes it.
pub(crate) struct Raised {
    gate: Arc<Gate>,
    pub(crate) ticket: Ticket,
}

impl Drop for Raised {
    fn drop(&mut self) {
        self.gate.apply(self.gate.lock(), |range_locks| range_locks.lower(self.ticket));
    }
}

#[cfg(test)]
mod tests;
