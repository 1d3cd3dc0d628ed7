//! Grace periods: when no I/O from before a change of the map is in progress on any core.
//!
//! I/Os that do not pass the pool core enter a *section* before they look at the view of a volume, and leave it when
//! they have completed. Each queue has its own section, which only the queue changes: no core waits for a cache line
//! of another one. A section counts its I/Os in two halves. The pool core changes what the views show, then it *flips*
//! the half that new I/Os enter, and waits until the other half of each section is empty. This is the algorithm of
//! sleepable RCU (Linux, `kernel/rcu/srcutree.c`).
//!
//! `tests/loom.rs` tries every order of these steps on this very source.

use crate::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// The half of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Half(usize);

/// What the pool core and all queues of a pool share.
#[derive(Debug)]
pub(crate) struct Grace {
    /// The number of flips.
    flips: AtomicU64,
    /// True while new writes must pass the pool core.
    holds_writes: AtomicBool,
    /// True when all requests must pass the pool core.
    is_closed: AtomicBool,
    /// True after a write of which it is unknown whether the device still executes it.
    has_lost_write: AtomicBool,
}

/// The I/Os of one queue.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Section {
    counts: [AtomicU32; 2],
    /// True when the pool core waits for the I/Os of the section.
    is_open: AtomicBool,
    /// True when the queue no longer exists.
    is_gone: AtomicBool,
}

impl Grace {
    pub(crate) fn new() -> Self {
        Self {
            flips: AtomicU64::new(0),
            holds_writes: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            has_lost_write: AtomicBool::new(false),
        }
    }

    /// Makes later I/Os enter the other half, and returns the half of all earlier ones. Only the pool core flips, and
    /// only after this half of all sections was empty.
    pub(crate) fn flip(&self) -> Half {
        let before = self.flips.load(Ordering::Relaxed);
        self.flips.store(before + 1, Ordering::Release);
        // A section shows its count before it looks at the number of flips again.
        fence(Ordering::SeqCst);
        Half((before & 1) as usize)
    }

    /// Makes later writes pass the pool core, or not. A write that has not seen this is in a section now.
    pub(crate) fn hold_writes(&self, is_held: bool) {
        self.holds_writes.store(is_held, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// True if a write in a section must pass the pool core.
    pub(crate) fn holds_writes(&self) -> bool {
        self.holds_writes.load(Ordering::Acquire)
    }

    /// Makes all later I/Os pass the pool core. One that has not seen this is in a section now.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// True if an I/O in a section must pass the pool core.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Reports a write that the device may still execute, before it leaves its section.
    pub(crate) fn lose_write(&self) {
        self.has_lost_write.store(true, Ordering::Release);
    }

    /// True if a write that has left its section may still be executed.
    pub(crate) fn has_lost_write(&self) -> bool {
        self.has_lost_write.load(Ordering::Acquire)
    }
}

impl Section {
    pub(crate) fn new() -> Self {
        let counts = [AtomicU32::new(0), AtomicU32::new(0)];
        Self { counts, is_open: AtomicBool::new(false), is_gone: AtomicBool::new(false) }
    }

    /// Permits I/Os to enter. The pool core waits for them from now on.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// True if I/Os may enter.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Adds an I/O, which then may look at views.
    pub(crate) fn enter(&self, grace: &Grace) -> Half {
        loop {
            let flips = grace.flips.load(Ordering::Acquire);
            let half = Half((flips & 1) as usize);
            let count = self.counts[half.0].load(Ordering::Relaxed);
            self.counts[half.0].store(count + 1, Ordering::Release);
            // With an earlier I/O in this half, the pool core waits for this half, or it will see the new count.
            if count > 0 {
                return half;
            }
            fence(Ordering::SeqCst);
            if grace.flips.load(Ordering::Relaxed) == flips {
                return half;
            }
            self.leave(half);
        }
    }

    /// Removes an I/O.
    pub(crate) fn leave(&self, half: Half) {
        let count = self.counts[half.0].load(Ordering::Relaxed);
        self.counts[half.0].store(count - 1, Ordering::Release);
    }

    /// True if no I/O is in this half.
    pub(crate) fn is_empty(&self, half: Half) -> bool {
        self.counts[half.0].load(Ordering::Acquire) == 0 || self.is_gone()
    }

    /// True if no I/O is in the section.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_empty(Half(0)) && self.is_empty(Half(1))
    }

    /// Ends the section. The data of its reads are no longer needed.
    pub(crate) fn end(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    /// True if the queue no longer exists.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
}
