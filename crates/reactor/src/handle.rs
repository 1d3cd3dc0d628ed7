//! The access of other threads to a core: closures in its inbox, and wake-ups. `bell.rs` explains why no wake-up is
//! lost.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

use rustix::event::{EventfdFlags, eventfd};
use strake_units::CoreIndex;

use crate::bell::{Arrived, Bell, Inbox, Line};
use crate::core::Core;

/// A closure for a core.
pub(crate) type Job = Box<dyn FnOnce(&mut Core) + Send>;

/// The error of a stopped core. The closure was dropped without running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreGone {
    /// The core for which the closure was meant.
    pub core: CoreIndex,
}

impl fmt::Display for CoreGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "core {} has stopped", self.core)
    }
}

impl std::error::Error for CoreGone {}

/// The CPU of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Any CPU, because no CPU was requested.
    Any,
    /// This CPU only.
    Pinned {
        /// The kernel's CPU number.
        cpu: usize,
    },
    /// Any CPU, because the kernel refused the requested CPU (offline, or outside the set of the container).
    Refused {
        /// The kernel's CPU number.
        cpu: usize,
        /// The kernel's error number.
        os: i32,
    },
}

/// Counters of a core since its start. The counters are read one by one while the core runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreStats {
    /// Turns taken.
    pub turns: u64,
    /// Turns in which a poller or the inbox had work.
    pub busy_turns: u64,
    /// Number of waits in the kernel, including a present wait.
    pub sleeps: u64,
    /// Nanoseconds in these waits, without a present wait.
    pub slept_ns: u64,
    /// Number of wake-ups by other threads through the event descriptor.
    pub wakes: u64,
    /// Closures that have run.
    pub jobs: u64,
    /// True if the core is asleep or about to sleep.
    pub sleeping: bool,
    /// The CPU of the core.
    pub pinning: Pinning,
}

/// Counters that only the core writes, so an update is a plain load and store.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) turns: AtomicU64,
    pub(crate) busy_turns: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) slept_ns: AtomicU64,
    pub(crate) jobs: AtomicU64,
}

/// Adds to a counter that one thread writes. The accesses are relaxed, because a counter orders nothing.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// The state that a core shares with its handles.
pub(crate) struct Shared {
    index: CoreIndex,
    event: OwnedFd,
    pinning: OnceLock<Pinning>,
    bell: Bell,
    wakes: Line<AtomicU64>,
    counters: Line<Counters>,
    inbox: Inbox<Job>,
}

impl Shared {
    pub(crate) fn new(index: CoreIndex) -> std::io::Result<Self> {
        Ok(Self {
            index,
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            pinning: OnceLock::new(),
            bell: Bell::default(),
            wakes: Line::default(),
            counters: Line::default(),
            inbox: Inbox::new(),
        })
    }

    pub(crate) fn index(&self) -> CoreIndex {
        self.index
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters.0
    }

    pub(crate) fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Records the CPU of the core. Called once, before the first handle exists.
    pub(crate) fn set_pinning(&self, pinning: Pinning) {
        let _ = self.pinning.set(pinning);
    }

    /// Returns the sleep flag of the core.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Makes the event descriptor unreadable again. The read does not block.
    pub(crate) fn drain_event(&self) {
        let _ = rustix::io::read(self.event.as_fd(), &mut [0; 8]);
    }

    fn wake(&self) {
        if self.bell.has_to_ring() {
            self.wakes.0.fetch_add(1, Ordering::Relaxed);
            // The only possible failure is an overflow of the counter, and then the descriptor is already readable.
            let _ = rustix::io::write(self.event.as_fd(), &1_u64.to_ne_bytes());
        }
    }

    fn send(&self, job: Job) -> Result<(), CoreGone> {
        if !self.inbox.put(job) {
            return Err(CoreGone { core: self.index });
        }
        self.wake();
        Ok(())
    }

    /// Moves waiting closures into the empty list `jobs`. The function never waits for a control thread.
    pub(crate) fn receive(&self, jobs: &mut VecDeque<Job>) -> Arrived {
        self.inbox.receive(jobs)
    }

    /// Stops the acceptance of closures, and returns the accepted closures.
    pub(crate) fn close(&self) -> VecDeque<Job> {
        self.inbox.close()
    }

    fn stats(&self) -> CoreStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters.0;
        CoreStats {
            turns: read(&counters.turns),
            busy_turns: read(&counters.busy_turns),
            sleeps: read(&counters.sleeps),
            slept_ns: read(&counters.slept_ns),
            wakes: read(&self.wakes.0),
            jobs: read(&counters.jobs),
            sleeping: self.bell.is_sleeping(),
            pinning: self.pinning.get().copied().unwrap_or(Pinning::Any),
        }
    }
}

/// Gives any thread access to a core.
#[derive(Clone)]
pub struct CoreHandle(Arc<Shared>);

impl CoreHandle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Returns the index of the core.
    #[must_use]
    pub fn index(&self) -> CoreIndex {
        self.0.index
    }

    /// Lets the core run `job` between two turns. Jobs of one thread run in order, and an accepted job runs even if the
    /// core is asked to stop meanwhile. This function is for control work: it allocates, and may wait for other control
    /// threads (never for the core).
    ///
    /// # Errors
    /// If the core has stopped.
    pub fn run(&self, job: impl FnOnce(&mut Core) + Send + 'static) -> Result<(), CoreGone> {
        self.0.send(Box::new(job))
    }

    /// Lets the core run `job`, and waits for the result.
    ///
    /// # Errors
    /// If the core has stopped.
    ///
    /// # Panics
    /// If called on a data core, because two cores that wait for each other would deadlock.
    pub fn call<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Core) -> R + Send + 'static,
    ) -> Result<R, CoreGone> {
        assert!(
            !crate::thread::on_data_core(),
            "a data core must not wait for core {}",
            self.index()
        );
        let (reply, result) = mpsc::sync_channel(1);
        self.run(move |core| {
            // The caller waits below, so there is a receiver and room for the one reply.
            let _ = reply.send(job(core));
        })?;
        result.recv().map_err(|mpsc::RecvError| CoreGone { core: self.index() })
    }

    /// Makes sure that the core checks its mailboxes. Call this function once after a batch of messages. It costs a
    /// fence and a load while the core is awake, and one system call while the core sleeps.
    pub fn wake(&self) {
        self.0.wake();
    }

    /// Returns the counters of the core.
    #[must_use]
    pub fn stats(&self) -> CoreStats {
        self.0.stats()
    }
}

impl fmt::Debug for CoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreHandle")
            .field("index", &self.index())
            .field("stats", &self.stats())
            .finish()
    }
}
