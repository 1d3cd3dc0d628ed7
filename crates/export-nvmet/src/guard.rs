//! Guards: how a Compare and a Write that are fused are one step for everybody who writes to the same blocks (Base,
//! section 3.4.2; NVM, section 2.1.4).
//!
//! ```text
//! raise -> every queue of the device has seen it, and has no earlier write there any more -> stands -> lower
//! ```
//! A queue that has seen a guard begins no write to its blocks until it is lowered, and says so once what it began
//! before is over. A guard *stands* when all have said so, and no guard that was raised before it is around any of its
//! blocks: then nobody but its owner writes there. Ordinary writes cost a look at what their queue knows, which is
//! nothing nearly always; queues look at the list they share when its number of changes is another, in their turns.
//!
//! Guards and the writes that wait for them have an order, that of their tickets: a write waits for the guards that its
//! queue knew when it came, and later guards wait for it. Everybody waits for earlier ones only, so nobody waits for
//! ever, and a write that waits is not passed by one pair after another.
//!
//! [`Guards`] and [`Outlook`] are pure; [`Gate`], [`Sentry`] and [`Raised`] put them between threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use strake_reactor::CoreHandle;
use strake_units::LbaRange;

/// When a guard was raised, in order; its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Guard {
    ticket: Ticket,
    range: LbaRange,
    /// Queues that have not said yet that they write nothing there.
    missing: u32,
}

/// Whether others have to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// They have.
    Matters,
    /// There is nothing for them to see.
    None,
}

/// All guards of a device in the order in which they were raised, of which each queue has one at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Guards {
    raised: Vec<Guard>,
    queues: u32,
    last: u64,
}

impl Guards {
    /// A queue is opened. It has written nothing, and knows what is raised.
    pub(crate) fn join(&mut self) -> Outlook {
        self.queues += 1;
        // Room for all there can be, so that there is none to be made later.
        let capacity = crate::limits::CONNECTIONS_PER_EXPORT_MAX as usize;
        self.raised.reserve(capacity.saturating_sub(self.raised.len()));
        let mut outlook = Outlook { known: Vec::with_capacity(capacity) };
        outlook.known.extend(self.raised.iter().map(|guard| Known::of(guard, Said::Yes)));
        outlook
    }

    /// A queue is closed that has nothing at the device any more.
    pub(crate) fn leave(&mut self, outlook: &Outlook) -> Change {
        self.queues -= 1;
        let mut change = Change::None;
        for guard in &mut self.raised {
            if !outlook.known.iter().any(|k| k.ticket == guard.ticket && k.said == Said::Yes) {
                guard.missing -= 1;
                change = Change::Matters;
            }
        }
        change
    }

    /// Raises a guard around these blocks.
    pub(crate) fn raise(&mut self, range: LbaRange) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.raised.push(Guard { ticket, range, missing: self.queues });
        ticket
    }

    /// Lowers a guard, whether it stands or not.
    pub(crate) fn lower(&mut self, ticket: Ticket) {
        self.raised.retain(|guard| guard.ticket != ticket);
    }

    fn stands(&self, ticket: Ticket) -> bool {
        let Some(at) = self.raised.iter().position(|guard| guard.ticket == ticket) else {
            return false;
        };
        let (before, guard) = (&self.raised[..at], &self.raised[at]);
        guard.missing == 0 && !before.iter().any(|other| other.range.overlaps(guard.range))
    }
}

/// Whether a queue has said that it writes nothing where a guard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    No,
    Yes,
}

/// A guard as a queue knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    ticket: Ticket,
    range: LbaRange,
    said: Said,
    stands: bool,
}

impl Known {
    const fn of(guard: &Guard, said: Said) -> Self {
        Self { ticket: guard.ticket, range: guard.range, said, stands: false }
    }
}

/// What a queue knows of the guards of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outlook {
    known: Vec<Known>,
}

impl Outlook {
    /// True when no guard is known.
    pub(crate) const fn is_clear(&self) -> bool {
        self.known.is_empty()
    }

    /// The last guard that a write to these blocks has to wait for, if there is one.
    pub(crate) fn before(&self, range: LbaRange) -> Option<Ticket> {
        let around = self.known.iter().filter(|known| known.range.overlaps(range));
        around.map(|known| known.ticket).max()
    }

    /// Whether a write to these blocks that had to wait for the guards up to `last` can go on.
    pub(crate) fn is_past(&self, range: LbaRange, last: Ticket) -> bool {
        !self.known.iter().any(|known| known.ticket <= last && known.range.overlaps(range))
    }

    /// Whether a guard stood when the queue last looked. Once it stands it does until it is lowered.
    pub(crate) fn stands(&self, ticket: Ticket) -> bool {
        self.known.iter().any(|known| known.ticket == ticket && known.stands)
    }

    /// Whether the queue has something to say that it could not say before. `writes` tells whether a write to blocks
    /// of this guard is at the device, or waits for an earlier guard.
    fn has_news(&self, writes: &mut impl FnMut(Ticket, LbaRange) -> bool) -> bool {
        self.known.iter().any(|k| k.said == Said::No && !writes(k.ticket, k.range))
    }

    /// Learns what guards there are now, and says of each around whose blocks there are no `writes` that it is so.
    pub(crate) fn look(
        &mut self,
        guards: &mut Guards,
        mut writes: impl FnMut(Ticket, LbaRange) -> bool,
    ) -> Change {
        let is_raised = |known: &Known| guards.raised.iter().any(|g| g.ticket == known.ticket);
        self.known.retain(is_raised);
        let last = self.known.last().map(|known| known.ticket);
        let new = guards.raised.iter().filter(|guard| Some(guard.ticket) > last);
        self.known.extend(new.map(|guard| Known::of(guard, Said::No)));
        let mut change = Change::None;
        // Both lists are in the order of tickets and hold the same guards.
        for (known, guard) in self.known.iter_mut().zip(&mut guards.raised) {
            if known.said == Said::No && !writes(known.ticket, known.range) {
                known.said = Said::Yes;
                guard.missing -= 1;
                if guard.missing == 0 {
                    change = Change::Matters;
                }
            }
        }
        for known in &mut self.known {
            known.stands = guards.stands(known.ticket);
        }
        change
    }
}

/// The guards of a device, for the queues on all cores.
pub(crate) struct Gate {
    guards: Mutex<Guards>,
    changes: AtomicU64,
    /// Cores that have to be told of changes.
    cores: Vec<CoreHandle>,
}

impl Gate {
    pub(crate) fn new(cores: Vec<CoreHandle>) -> Self {
        Self { guards: Mutex::new(Guards::default()), changes: AtomicU64::new(0), cores }
    }

    /// Nothing panics while holding the lock, so a poisoned one guards a sound list. Ordinary commands do not take it.
    fn lock(&self) -> MutexGuard<'_, Guards> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has others look at what was changed under `lock`. Release: whoever sees the number finds the list changed.
    fn tell(&self, lock: MutexGuard<'_, Guards>) {
        self.changes.fetch_add(1, Ordering::Release);
        drop(lock);
        self.cores.iter().for_each(CoreHandle::wake);
    }
}

/// A queue's place among those that are asked before a guard stands. It goes after the queue, when nothing of it is at
/// the device any more.
pub(crate) struct Sentry {
    gate: Arc<Gate>,
    pub(crate) outlook: Outlook,
    /// Changes there were when it last looked.
    seen: u64,
}

impl Sentry {
    pub(crate) fn new(gate: &Arc<Gate>) -> Self {
        let mut guards = gate.lock();
        let seen = gate.changes.load(Ordering::Acquire);
        let outlook = guards.join();
        drop(guards);
        Self { gate: Arc::clone(gate), outlook, seen }
    }

    /// Raises a guard around these blocks. It stands at a later look.
    pub(crate) fn raise(&self, range: LbaRange) -> Raised {
        let mut guards = self.gate.lock();
        let ticket = guards.raise(range);
        self.gate.tell(guards);
        Raised { gate: Arc::clone(&self.gate), ticket }
    }

    /// Looks at the guards if there is something to learn or to say; says whether there was. `writes` is as in
    /// [`Outlook::look`]. Who finds another queue looking comes back in the next turn.
    pub(crate) fn look(&mut self, mut writes: impl FnMut(Ticket, LbaRange) -> bool) -> usize {
        let is_known = self.gate.changes.load(Ordering::Acquire) == self.seen;
        if is_known && (self.outlook.is_clear() || !self.outlook.has_news(&mut writes)) {
            return 0;
        }
        let mut guards = match self.gate.guards.try_lock() {
            Ok(guards) => guards,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return 1,
        };
        self.seen = self.gate.changes.load(Ordering::Acquire);
        match self.outlook.look(&mut guards, writes) {
            Change::Matters => self.gate.tell(guards),
            Change::None => {}
        }
        1
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        let mut guards = self.gate.lock();
        match guards.leave(&self.outlook) {
            Change::Matters => self.gate.tell(guards),
            Change::None => {}
        }
    }
}

/// A guard that is raised; dropping it lowers it.
pub(crate) struct Raised {
    gate: Arc<Gate>,
    pub(crate) ticket: Ticket,
}

impl Drop for Raised {
    fn drop(&mut self) {
        let mut guards = self.gate.lock();
        guards.lower(self.ticket);
        self.gate.tell(guards);
    }
}

#[cfg(test)]
mod tests;
