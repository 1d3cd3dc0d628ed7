//! Wake-ups of a sleeping core, and the inbox of closures for a core. Only this module shares state with other threads
//! by atomics of its own.
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
//! The two fences have an order. If A comes first, the waker's read in step 3 sees `true` (or a later value) and the
//! event descriptor turns readable, which ends any `ppoll`, started or not yet started. If B comes first, the message
//! is visible to the turn of the core's step 3, which then does not sleep. A later value is `false` only once that
//! sleep is over, and a full turn follows it before the next one. This is the store-buffering pattern of Dekker's
//! algorithm; the flag and the message may each be as weak as they like, because the fences carry the argument.
//! `tests/loom.rs` tries every order of these steps on this very source.
//!
//! The waker does not clear `sleeping`. Therefore wakers may write the event descriptor more than once per sleep, and
//! no waker depends on the scheduling of another waker.

use std::collections::VecDeque;
use std::sync::{PoisonError, TryLockError};

use super::atomic::{AtomicBool, Mutex, MutexGuard, Ordering, fence};

/// Separates data of different writing threads into different cache lines. The alignment is 128 because x86 fetches
/// lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// The sleep flag of a core, which shows whether the core needs a wake-up.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    sleeping: Line<AtomicBool>,
}

impl Bell {
    /// Steps 1 and 2 of going to sleep (module documentation).
    pub(crate) fn announce_sleep(&self) {
        self.sleeping.0.store(true, Ordering::Relaxed);
        // Fence A pairs with fence B in `has_to_ring`.
        fence(Ordering::SeqCst);
    }

    /// Records the end of the sleep. The store is relaxed: a waker that still reads `true` only writes the descriptor
    /// unnecessarily.
    pub(crate) fn end_sleep(&self) {
        self.sleeping.0.store(false, Ordering::Relaxed);
    }

    /// Steps 2 and 3 of a waker. Returns true if the event descriptor must be written.
    pub(crate) fn has_to_ring(&self) -> bool {
        // Fence B pairs with fence A in `announce_sleep`.
        fence(Ordering::SeqCst);
        self.is_sleeping()
    }

    /// True if the core is asleep or about to sleep. Without the fences, the value proves nothing.
    pub(crate) fn is_sleeping(&self) -> bool {
        self.sleeping.0.load(Ordering::Relaxed)
    }
}

/// The result of a check of the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The inbox is empty.
    Nothing,
    /// Closures were moved to the list of the core.
    Jobs,
    /// There are closures, but a control thread is adding another one. The core checks again in the next turn.
    Later,
}

/// Closures for a core, in order.
#[derive(Debug)]
pub(crate) struct Inbox<J> {
    /// True if `jobs` is not empty, so that the core need not access the lock in each turn.
    pending: Line<AtomicBool>,
    /// `None` after the core has stopped accepting closures.
    jobs: Mutex<Option<VecDeque<J>>>,
}

impl<J> Inbox<J> {
    pub(crate) fn new() -> Self {
        Self { pending: Line::default(), jobs: Mutex::new(Some(VecDeque::new())) }
    }

    /// No code panics while it holds the lock, so the list is valid even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, Option<VecDeque<J>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends `job`. The caller must then wake the core. Returns false if the core no longer accepts closures.
    pub(crate) fn put(&self, job: J) -> bool {
        let mut inbox = self.lock();
        let Some(jobs) = inbox.as_mut() else { return false };
        jobs.push_back(job);
        // The store is relaxed: the lock orders the list, and the fences order the flag and the sleep.
        self.pending.0.store(true, Ordering::Relaxed);
        true
    }

    /// Moves waiting closures into the empty list `jobs`. The function never waits for a control thread.
    pub(crate) fn receive(&self, jobs: &mut VecDeque<J>) -> Arrived {
        // The load is relaxed, as in `put`.
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

    /// Stops the acceptance of closures, and returns the accepted closures.
    pub(crate) fn close(&self) -> VecDeque<J> {
        self.lock().take().unwrap_or_default()
    }
}
