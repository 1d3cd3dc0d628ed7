//! An I/O connection, on its way from the thread that created it to the core that uses it.

use crate::identify::Facts;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_nvme_tcp::Digests;
use strake_tls::Wire;
use strake_units::Nanos;

/// The negotiated parameters of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) digests: Digests,
    /// The data alignment that the target requests, in dwords less one.
    pub(crate) alignment: u8,
    /// Most data bytes of one PDU to the target.
    pub(crate) data_bytes_max: u32,
    /// Most data bytes in a capsule.
    pub(crate) in_capsule_bytes: u32,
    /// Most commands in flight.
    pub(crate) window: u32,
}

/// A connection. After its close, no queued bytes of its socket reach the target, because its commands may be sent
/// again.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) wire: Wire,
    /// The queue ID at the target.
    pub(crate) number: u16,
    pub(crate) terms: Terms,
    /// The association of the connection.
    pub(crate) life: Arc<Life>,
    /// The properties of the namespace over this path.
    pub(crate) facts: Arc<Facts>,
}

/// The slot for the next connection of a queue. It has room for one: a connection that the queue has not taken is
/// closed when another one is offered, so an idle queue holds no more connections than a busy one.
#[derive(Debug, Default)]
pub(crate) struct Offer(Mutex<Option<Link>>);

impl Offer {
    /// No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, Option<Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connection, if there is one. Never waits: a thread that holds the lock wakes the queue afterwards.
    pub(crate) fn take(&self) -> Option<Link> {
        self.0.try_lock().ok().and_then(|mut link| link.take())
    }

    /// Returns the number of the association in use, as `current` returns it, and the connection if it belongs to this
    /// association. An older connection is closed.
    ///
    /// `current` is called last: a connection that was offered before is of this association or of an older one, and
    /// after an older one another connection is offered. A newer connection would be closed although its thread relies
    /// on it.
    pub(crate) fn take_current(&self, current: impl FnOnce() -> u64) -> (u64, Option<Link>) {
        let link = self.take();
        let current = current();
        (current, link.filter(|link| link.life.number == current))
    }
}

/// The state of an association, which threads publish to queues.
#[derive(Debug)]
pub(crate) struct Life {
    /// The number of the association, counted from 1.
    pub(crate) number: u64,
    /// See [`Phase`]: a time, or one of the constants below.
    phase: AtomicU64,
}

/// The states of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Commands over the association complete, even if new commands use another one.
    Lasting,
    /// The association is being ended, but its target may still receive commands.
    Ending,
    /// The association has ended. Its commands may be executed until this time, and not later.
    Ended(Nanos),
}

impl Life {
    const LASTING: u64 = u64::MAX;
    const ENDING: u64 = u64::MAX - 1;

    pub(crate) fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, phase: AtomicU64::new(Self::LASTING) })
    }

    pub(crate) fn phase(&self) -> Phase {
        // The value publishes no other data.
        match self.phase.load(Ordering::Acquire) {
            Self::LASTING => Phase::Lasting,
            Self::ENDING => Phase::Ending,
            over_at => Phase::Ended(Nanos(over_at)),
        }
    }

    /// Marks the association as ending.
    pub(crate) fn condemn(&self) {
        self.phase.store(Self::ENDING, Ordering::Release);
    }

    /// Marks the association as ended, and its commands as settled at this time.
    pub(crate) fn end(&self, over_at: Nanos) {
        self.phase.store(over_at.0.min(Self::ENDING - 1), Ordering::Release);
    }
}

/// The handle with which a thread reaches a queue.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) id: u64,
    pub(crate) offer: Arc<Offer>,
    /// A descriptor that becomes readable when the link changes.
    pub(crate) wake: Arc<OwnedFd>,
}

impl Port {
    /// Replaces the connection that the queue has not taken, by another one or by none.
    pub(crate) fn offer(&self, link: Option<Link>) {
        let before = mem::replace(&mut *self.offer.lock(), link);
        self.wake();
        // The old connection is closed outside the lock, so that the queue can take the next one.
        drop(before);
    }

    /// Wakes the queue and its core.
    pub(crate) fn wake(&self) {
        // The counter is full only after 2^64 unread wake-ups, and is readable then.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests;
