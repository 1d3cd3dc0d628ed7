//! Waking a core from its sleep, and the closures that are on their way to it: all that a core shares with other
//! threads by atomics of our own.
//!
//! # Why no wake-up is lost
//! A core goes to sleep in this order:
//! 1. `sleeping = true`
//! 2. sequentially consistent fence (A)
//! 3. one more full turn, which looks at the inbox and every mailbox; if it finds anything, no sleep
//! 4. `ppoll` on its event descriptor and what the pollers named
//!
//! A waker goes in this order:
//! 1. publish the message (ring, inbox)
//! 2. sequentially consistent fence (B)
//! 3. read `sleeping`; if true, write the event descriptor
//!
//! The two fences have an order. If A comes first, the waker's read in step 3 sees `true` (or a later value)
//! and the event descriptor turns readable, which ends any `ppoll`, begun or not yet begun. If B comes first,
//! the message is visible to the turn of the core's step 3, which then does not sleep. A later value is
//! `false` only once that sleep is over, and a full turn follows it before the next one. This is the
//! store-buffering pattern of Dekker's algorithm; the flag and the message may each be as weak as they like,
//! because the fences carry the argument. `tests/loom.rs` tries every order of these steps on this very source.
//!
//! The waker does not clear `sleeping`. Wakers may therefore write the event descriptor more than once per
//! sleep, and no waker ever depends on another one being scheduled.

use std::collections::VecDeque;
use std::sync::{PoisonError, TryLockError};

use super::atomic::{AtomicBool, Mutex, MutexGuard, Ordering, fence};

/// Keeps what different threads write on different cache lines; 128 because x86 fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// Whether a core sleeps, and so has to be woken.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    sleeping: Line<AtomicBool>,
}

impl Bell {
    /// Steps 1 and 2 of going to sleep (module documentation).
    pub(crate) fn announce_sleep(&self) {
        self.sleeping.0.store(true, Ordering::Relaxed);
        // Fence A; its partner is fence B in `has_to_ring`.
        fence(Ordering::SeqCst);
    }

    /// The sleep has ended. Relaxed: a waker that still reads `true` writes the descriptor once too often.
    pub(crate) fn end_sleep(&self) {
        self.sleeping.0.store(false, Ordering::Relaxed);
    }

    /// Steps 2 and 3 of a waker: whether the event descriptor has to be written.
    pub(crate) fn has_to_ring(&self) -> bool {
        // Fence B; its partner is fence A in `announce_sleep`.
        fence(Ordering::SeqCst);
        self.is_sleeping()
    }

    /// Whether the core is asleep or about to be. Nothing follows from it without the fences.
    pub(crate) fn is_sleeping(&self) -> bool {
        self.sleeping.0.load(Ordering::Relaxed)
    }
}

/// What the core found in its inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Nothing.
    Nothing,
    /// Closures, now in the core's own list.
    Jobs,
    /// Closures, but a control thread is just adding another: look again next turn.
    Later,
}

/// Closures on their way to a core, in order.
#[derive(Debug)]
pub(crate) struct Inbox<J> {
    /// True when `jobs` is not empty, so that the core need not touch the lock each turn.
    pending: Line<AtomicBool>,
    /// `None` once the core has stopped taking closures.
    jobs: Mutex<Option<VecDeque<J>>>,
}

impl<J> Inbox<J> {
    pub(crate) fn new() -> Self {
        Self { pending: Line::default(), jobs: Mutex::new(Some(VecDeque::new())) }
    }

    /// Nothing panics while holding it, so a poisoned lock guards a sound list.
    fn lock(&self) -> MutexGuard<'_, Option<VecDeque<J>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts `job` behind all earlier ones; the core has to be woken then. False when it no longer takes any.
    pub(crate) fn put(&self, job: J) -> bool {
        let mut inbox = self.lock();
        let Some(jobs) = inbox.as_mut() else { return false };
        jobs.push_back(job);
        // Relaxed: the lock orders the list, the fences order the flag against sleeping.
        self.pending.0.store(true, Ordering::Relaxed);
        true
    }

    /// Moves waiting closures into `jobs`, which is empty, without ever waiting for a control thread.
    pub(crate) fn receive(&self, jobs: &mut VecDeque<J>) -> Arrived {
        // Relaxed: as in `put`.
        if !self.pending.0.load(Ordering::Relaxed) {
            return Arrived::Nothing;
        }
        let mut inbox = match self.jobs.try_lock() {
            Ok(inbox) => inbox,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Arrived::Later,
        };
        self.pending.0.store(false, Ordering::Relaxed);
        let Some(waiting) = inbox.as_mut() else { return Arrived::Nothing };
        std::mem::swap(waiting, jobs);
        Arrived::Jobs
    }

    /// Takes no closures from now on and returns those accepted before.
    pub(crate) fn close(&self) -> VecDeque<J> {
        self.lock().take().unwrap_or_default()
    }
}
