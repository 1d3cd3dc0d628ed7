//! An I/O connection that was made, on its way from the thread that made it to the core that uses it.

use crate::identify::Facts;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_nvme_tcp::Digests;
use strake_tls::Wire;
use strake_units::Nanos;

/// What was agreed on for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) digests: Digests,
    /// The alignment of data that the target requests, in dwords less one.
    pub(crate) alignment: u8,
    /// Most data of one PDU to the target.
    pub(crate) data_bytes_max: u32,
    /// Most data in a capsule.
    pub(crate) in_capsule_bytes: u32,
    /// Commands at a time.
    pub(crate) window: u32,
}

/// A connection. Once it is closed, nothing that waits in its socket reaches the target: it may be sent again
/// meanwhile.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) wire: Wire,
    /// The queue's number at the target.
    pub(crate) number: u16,
    pub(crate) terms: Terms,
    /// That of the association it belongs to.
    pub(crate) life: Arc<Life>,
    /// What is known of the namespace as it is reached over that.
    pub(crate) facts: Arc<Facts>,
}

/// The place for the connection that a queue takes next. There is one: what the queue has not taken is closed when
/// another comes, so an idle queue holds no more than a busy one.
#[derive(Debug, Default)]
pub(crate) struct Offer(Mutex<Option<Link>>);

impl Offer {
    /// Nothing panics while holding it.
    fn lock(&self) -> MutexGuard<'_, Option<Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, if there is one. Never waits: a thread that is changing it wakes the queue next.
    pub(crate) fn take(&self) -> Option<Link> {
        self.0.try_lock().ok().and_then(|mut link| link.take())
    }

    /// The number of the association that is used, as `current` tells it, and the connection if it is of that one. An
    /// older one is closed.
    ///
    /// `current` is asked last: what was offered before that is of the association that it tells or of an older one,
    /// and after an older one another is offered. One that is newer would be closed while its thread counts on it.
    pub(crate) fn take_current(&self, current: impl FnOnce() -> u64) -> (u64, Option<Link>) {
        let link = self.take();
        let current = current();
        (current, link.filter(|link| link.life.number == current))
    }
}

/// How far an association is, as the threads tell queues.
#[derive(Debug)]
pub(crate) struct Life {
    /// Which one it is, counted from 1.
    pub(crate) number: u64,
    /// See [`Phase`]: a time, or one of the constants below.
    phase: AtomicU64,
}

/// Phases of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// What was sent over it is answered, whether another is used for what comes next or not.
    Lasting,
    /// It is no longer relied on, but its target may still hear from us.
    Ending,
    /// It has ended. What was sent over it may be executed until this time and not afterwards.
    Ended(Nanos),
}

impl Life {
    const LASTING: u64 = u64::MAX;
    const ENDING: u64 = u64::MAX - 1;

    pub(crate) fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, phase: AtomicU64::new(Self::LASTING) })
    }

    pub(crate) fn phase(&self) -> Phase {
        // Nothing else is published by it.
        match self.phase.load(Ordering::Acquire) {
            Self::LASTING => Phase::Lasting,
            Self::ENDING => Phase::Ending,
            over_at => Phase::Ended(Nanos(over_at)),
        }
    }

    /// It is being ended.
    pub(crate) fn condemn(&self) {
        self.phase.store(Self::ENDING, Ordering::Release);
    }

    /// It has ended, and so has what was sent over it at this time.
    pub(crate) fn end(&self, over_at: Nanos) {
        self.phase.store(over_at.0.min(Self::ENDING - 1), Ordering::Release);
    }
}

/// How the thread reaches a queue.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) id: u64,
    pub(crate) offer: Arc<Offer>,
    /// A descriptor that becomes readable when the link has news.
    pub(crate) wake: Arc<OwnedFd>,
}

impl Port {
    /// Offers the queue a connection in the place of the one that it did not take, or none.
    pub(crate) fn offer(&self, link: Option<Link>) {
        let before = mem::replace(&mut *self.offer.lock(), link);
        self.wake();
        // Closed outside the lock, so that this keeps no queue from taking the next one.
        drop(before);
    }

    /// Makes the queue look, and its core if it sleeps.
    pub(crate) fn wake(&self) {
        // It is full only after 2^64 wake-ups that were not read; then it is readable already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests;
