//! How other threads reach a core: closures in its inbox, and waking it from its sleep.
//! `bell.rs` says why no wake-up is lost.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

use rustix::event::{EventfdFlags, eventfd};
use strake_units::CoreIndex;

use crate::bell::{Arrived, Bell, Inbox, Line};
use crate::core::Core;

/// A closure on its way to a core.
pub(crate) type Job = Box<dyn FnOnce(&mut Core) + Send>;

/// The core has stopped: the closure was dropped without being run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreGone {
    /// The core it was meant for.
    pub core: CoreIndex,
}

impl fmt::Display for CoreGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "core {} has stopped", self.core)
    }
}

impl std::error::Error for CoreGone {}

/// Which CPU a core runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Any: none was asked for.
    Any,
    /// This CPU only.
    Pinned {
        /// The kernel's CPU number.
        cpu: usize,
    },
    /// Any, because the kernel refused the CPU asked for (offline, or outside the container's set).
    Refused {
        /// The kernel's CPU number.
        cpu: usize,
        /// The kernel's error number.
        os: i32,
    },
}

/// What a core has done since it started. The figures are read one by one while the core runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreStats {
    /// Turns taken.
    pub turns: u64,
    /// Turns in which a poller or the inbox had something to do.
    pub busy_turns: u64,
    /// Times the core waited in the kernel, a present wait included.
    pub sleeps: u64,
    /// Nanoseconds spent there, a present wait not included.
    pub slept_ns: u64,
    /// Times another thread woke it by its event descriptor.
    pub wakes: u64,
    /// Closures run.
    pub jobs: u64,
    /// True when the core is asleep or about to be.
    pub sleeping: bool,
    /// Which CPU it runs on.
    pub pinning: Pinning,
}

/// Written by the core only, so an update is a plain load and store.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) turns: AtomicU64,
    pub(crate) busy_turns: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) slept_ns: AtomicU64,
    pub(crate) jobs: AtomicU64,
}

/// Adds to a counter that one thread writes. Relaxed: a counter orders nothing.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// What a core shares with the handles to it.
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

    /// Records which CPU the core got; once, before a handle is given out.
    pub(crate) fn set_pinning(&self, pinning: Pinning) {
        let _ = self.pinning.set(pinning);
    }

    /// Whether the core sleeps.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Makes the event descriptor unreadable again. Not blocking: an unwritten one says "would block".
    pub(crate) fn drain_event(&self) {
        let _ = rustix::io::read(self.event.as_fd(), &mut [0; 8]);
    }

    fn wake(&self) {
        if self.bell.has_to_ring() {
            self.wakes.0.fetch_add(1, Ordering::Relaxed);
            // The only failure is a counter about to overflow, and then the descriptor is readable already.
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

    /// Moves waiting closures into `jobs`, which is empty, without ever waiting for a control thread.
    pub(crate) fn receive(&self, jobs: &mut VecDeque<Job>) -> Arrived {
        self.inbox.receive(jobs)
    }

    /// Takes no closures from now on and returns those accepted before.
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

/// Reaches a core from any thread.
#[derive(Clone)]
pub struct CoreHandle(Arc<Shared>);

impl CoreHandle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Which core it is.
    #[must_use]
    pub fn index(&self) -> CoreIndex {
        self.0.index
    }

    /// Has the core run `job` between two turns. Jobs of one thread run in order, and a job that was accepted
    /// is run even if the core is asked to stop meanwhile. For control work: it allocates and may wait for
    /// other control threads (never for the core).
    ///
    /// # Errors
    /// When the core has stopped.
    pub fn run(&self, job: impl FnOnce(&mut Core) + Send + 'static) -> Result<(), CoreGone> {
        self.0.send(Box::new(job))
    }

    /// Has the core run `job` and waits for what it returns.
    ///
    /// # Errors
    /// When the core has stopped.
    ///
    /// # Panics
    /// On a data core: two cores that wait for each other would wait for ever.
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

    /// Makes sure that the core looks at its mailboxes: call it once after a batch of messages. A fence and a
    /// load while the core is awake, one system call when it sleeps.
    pub fn wake(&self) {
        self.0.wake();
    }

    /// What the core has done so far.
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
