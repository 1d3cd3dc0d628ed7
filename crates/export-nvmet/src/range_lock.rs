//! Range locks: how a Compare and a Write that are fused are one step for every host that writes to the same blocks
//! (Base, section 3.4.2; NVM, section 2.1.4).
//!
//! ```text
//! raise -> every queue of the device has seen it, and has no earlier write there left -> stands -> lower
//! ```
//! A queue that has seen a range lock begins no write to its blocks until it is lowered, and says so once what it began
//! before is over. A range lock *stands* when all have said so, and no range lock that was raised before it is around
//! any of its blocks: then only its owner writes there. An ordinary write only checks what its queue knows, which is
//! nearly always nothing; queues check the shared list in their turns, when its number of changes differs.
//!
//! Range locks and the writes that wait for them are ordered by their tickets: a write waits for the range locks that
//! its queue knew when it came, and later range locks wait for it. Each waits for earlier ones only, so no wait is
//! endless, and a write that waits is not passed by one pair after another.
//!
//! [`RangeLocks`] and [`Outlook`] are pure; [`Gate`], [`Sentry`] and [`Raised`] put them between threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use strake_reactor::CoreHandle;
use strake_units::LbaRange;

/// When a range lock was raised, in order; its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RangeLock {
    ticket: Ticket,
    range: LbaRange,
    /// Queues that have not said yet that they write nothing there.
    missing: u32,
    /// Range locks that were raised before it, and are around some of its blocks.
    ahead: u32,
}

impl RangeLock {
    const fn stands(&self) -> bool {
        self.missing == 0 && self.ahead == 0
    }
}

/// All range locks of a device in the order in which they were raised, of which each queue has one at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RangeLocks {
    raised: Vec<RangeLock>,
    queues: u32,
    last: u64,
    /// Grows with whatever queues have to look at.
    changes: u64,
}

impl RangeLocks {
    /// A queue is opened. It has written nothing, and knows what is raised.
    pub(crate) fn join(&mut self) -> Outlook {
        self.queues += 1;
        // Every queue may raise a range lock: room for that is made now, and not when it does. The others look, and
        // make theirs.
        let queues = self.queues as usize;
        self.raised.reserve(queues.saturating_sub(self.raised.len()));
        self.changes += 1;
        let mut outlook = Outlook { known: Vec::with_capacity(queues), seen: self.changes };
        outlook.known.extend(self.raised.iter().map(|range_lock| Known::of(range_lock, Said::Yes)));
        outlook
    }

    /// A queue closes that has nothing left at the device.
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

    /// Raises a range lock around these blocks.
    pub(crate) fn raise(&mut self, range: LbaRange) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        let ahead = self.raised.iter().filter(|other| other.range.overlaps(range)).count() as u32;
        self.raised.push(RangeLock { ticket, range, missing: self.queues, ahead });
        self.changes += 1;
        ticket
    }

    /// Lowers a range lock, whether it stands or not.
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

/// Whether a queue has said that it writes nothing where a range lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    No,
    Yes,
}

/// A range lock as a queue knows it.
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

/// What a queue knows of the range locks of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outlook {
    /// In the order of tickets.
    known: Vec<Known>,
    /// Changes there were when it last looked.
    seen: u64,
}

impl Outlook {
    /// True when no range lock is known.
    pub(crate) const fn is_clear(&self) -> bool {
        self.known.is_empty()
    }

    /// The last range lock that a write to these blocks has to wait for, if there is one.
    pub(crate) fn before(&self, range: LbaRange) -> Option<Ticket> {
        let around = self.known.iter().filter(|known| known.range.overlaps(range));
        around.map(|known| known.ticket).max()
    }

    /// Whether a write to these blocks that had to wait for the range locks up to `last` can continue.
    pub(crate) fn is_past(&self, range: LbaRange, last: Ticket) -> bool {
        !self.known.iter().any(|known| known.ticket <= last && known.range.overlaps(range))
    }

    /// Whether a range lock stood when the queue last looked. Once it stands it does until it is lowered.
    pub(crate) fn stands(&self, ticket: Ticket) -> bool {
        self.known.iter().any(|known| known.ticket == ticket && known.stands)
    }

    /// Whether the queue has something to learn, because there were other `changes`, or to say that it could not say
    /// before. `writes` tells whether a write to blocks of this range lock is at the device, or waits for an earlier
    /// range lock.
    fn has_to_look(&self, changes: u64, writes: &mut impl FnMut(Ticket, LbaRange) -> bool) -> bool {
        self.seen != changes
            || self.known.iter().any(|k| k.said == Said::No && !writes(k.ticket, k.range))
    }

    /// Learns what range locks there are now, and says of each around whose blocks there are no `writes` that it is so.
    pub(crate) fn look(
        &mut self,
        range_locks: &mut RangeLocks,
        mut writes: impl FnMut(Ticket, LbaRange) -> bool,
    ) {
        // Memory is taken only after another queue was opened.
        let room = (range_locks.queues as usize).saturating_sub(self.known.len());
        self.known.reserve(room);
        // All that was raised before the last look is known: what is known and is there yet comes first in both lists.
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

    /// Nothing panics while holding the lock, so a poisoned one holds a sound list. Ordinary commands do not take it.
    fn lock(&self) -> MutexGuard<'_, RangeLocks> {
        self.range_locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies `it` to the list, and wakes the cores if that changed it. Release: a thread that sees the number finds
    /// the list changed.
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

/// A queue's place among those that are asked before a range lock stands. It goes after the queue, when nothing of the
/// queue is left at the device.
pub(crate) struct Sentry {
    gate: Arc<Gate>,
    pub(crate) outlook: Outlook,
}

impl Sentry {
    pub(crate) fn new(gate: &Arc<Gate>) -> Self {
        let outlook = gate.apply(gate.lock(), RangeLocks::join);
        Self { gate: Arc::clone(gate), outlook }
    }

    /// Raises a range lock around these blocks. It stands at a later look.
    pub(crate) fn raise(&self, range: LbaRange) -> Raised {
        let ticket = self.gate.apply(self.gate.lock(), |range_locks| range_locks.raise(range));
        Raised { gate: Arc::clone(&self.gate), ticket }
    }

    /// Checks the range locks if there is something to learn or to say; says whether there was. `writes` is as in
    /// [`Outlook::look`]. Who finds another queue looking comes back in the next turn.
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

/// A range lock that is raised; dropping it lowers it.
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
