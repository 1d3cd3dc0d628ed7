//! A controller: the state that the queues of one host share.
//!
//! ```text
//! created by Connect of the admin queue -> enabled -> disabled, shut down or admin queue closed
//!                                          I/O queues connect and work       I/O queues are closed
//! ```

use crate::failures::Failures;
use crate::limits::{IO_ENTRIES, QUEUES_MAX};
use crate::notices::Notices;
use crate::stats::{ControllerStats, Stats};
use crate::subsystem::Subsystem;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use strake_nvme_wire::Status;
use strake_nvme_wire::fabrics::{Configuration, Property, Width, capabilities, property, ready};
use strake_nvme_wire::identify::ControllerKind;
use strake_nvme_wire::reservation::NoticeKind;
use strake_reactor::CoreHandle;

/// The version of the base specification that controllers implement: 1.4. Later versions require log pages that are not
/// implemented.
pub(crate) const VERSION: u32 = 0x0001_0400;

/// The time that a controller may take to become ready, in units of half a second. It is ready at once.
const READY_HALF_SECONDS: u8 = 30;

/// Largest controller identifier (Base, section 5.17.2.1, CNTLID).
pub(crate) const CONTROLLER_MAX: u16 = 0xffef;

/// The identity that a host reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) nqn: String,
    pub(crate) id: [u8; 16],
}

/// The state of a controller, shared by the cores of its queues.
pub(crate) struct Controller {
    pub(crate) id: u16,
    pub(crate) host: Host,
    /// The subsystem; `None` for a discovery controller.
    pub(crate) subsystem: Option<Arc<Subsystem>>,
    configuration: AtomicU32,
    status: AtomicU32,
    /// Incremented each time the controller is disabled, so that an I/O queue detects that it is from before.
    life: AtomicU32,
    /// Set when the host has to leave. No queue of the controller stays connected.
    dismissed: AtomicBool,
    /// Bitmap of the connected queues.
    queues: AtomicU32,
    /// Stats of its queues.
    stats: Mutex<Vec<Weak<Stats>>>,
    /// Keep-alive timeout in milliseconds; 0 disables it. The core of the admin queue applies it.
    keep_alive_ms: AtomicU32,
    failures: Mutex<Failures>,
    notices: Mutex<Notices>,
    /// The number of notices so far.
    noticed: AtomicU64,
    /// Cores to wake when the controller is disabled.
    cores: Vec<CoreHandle>,
}

impl Controller {
    pub(crate) fn new(
        id: u16,
        host: Host,
        subsystem: Option<Arc<Subsystem>>,
        cores: Vec<CoreHandle>,
    ) -> Self {
        Self {
            id,
            host,
            subsystem,
            configuration: AtomicU32::new(0),
            status: AtomicU32::new(0),
            life: AtomicU32::new(0),
            dismissed: AtomicBool::new(false),
            queues: AtomicU32::new(0),
            stats: Mutex::new(Vec::new()),
            keep_alive_ms: AtomicU32::new(0),
            failures: Mutex::new(Failures::default()),
            notices: Mutex::new(Notices::default()),
            noticed: AtomicU64::new(0),
            cores,
        }
    }

    pub(crate) const fn kind(&self) -> ControllerKind {
        match self.subsystem {
            Some(_) => ControllerKind::Io,
            None => ControllerKind::Discovery,
        }
    }

    /// The last failed commands. No code panics while it holds the lock, so the list of a poisoned lock is consistent.
    /// Only the queues of this host take the lock, and only for a failed command or a page.
    pub(crate) fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reservation notices for the host; the lock is as for failures.
    pub(crate) fn notices(&self) -> MutexGuard<'_, Notices> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of such notices so far. Acquire pairs with the Release in `notify`: a thread that reads the number
    /// finds the notices.
    pub(crate) fn noticed(&self) -> u64 {
        self.noticed.load(Ordering::Acquire)
    }

    /// Adds a notice.
    pub(crate) fn notify(&self, kind: NoticeKind, namespace: u32) {
        let mut notices = self.notices();
        notices.note(kind, namespace);
        self.noticed.store(notices.count, Ordering::Release);
    }

    /// No code panics while it holds the lock, so the list of a poisoned lock is consistent. The lock is taken when a
    /// queue connects, and when the stats are read.
    fn queue_stats(&self) -> MutexGuard<'_, Vec<Weak<Stats>>> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the stats of a queue while the queue exists.
    pub(crate) fn keep(&self, stats: &Arc<Stats>) {
        let mut kept = self.queue_stats();
        kept.retain(|other| other.strong_count() > 0);
        kept.push(Arc::downgrade(stats));
    }

    /// Stats of the queues.
    pub(crate) fn stats(&self) -> ControllerStats {
        let mut queues: Vec<_> =
            self.queue_stats().iter().filter_map(Weak::upgrade).map(|queue| queue.read()).collect();
        queues.sort_by_key(|queue| queue.facts.number);
        ControllerStats {
            id: self.id,
            host: self.host.nqn.clone(),
            host_id: self.host.id,
            keep_alive_ms: self.keep_alive_ms(),
            queues,
        }
    }

    /// Keep-alive timeout in milliseconds; 0 disables it. Relaxed: the value orders no other access.
    pub(crate) fn keep_alive_ms(&self) -> u32 {
        self.keep_alive_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn set_keep_alive(&self, milliseconds: u32) {
        self.keep_alive_ms.store(milliseconds, Ordering::Relaxed);
    }

    /// True from the enabling until the controller is disabled. Acquire pairs with the Release in `set`, so that
    /// earlier settings are visible.
    pub(crate) fn is_ready(&self) -> bool {
        self.status.load(Ordering::Acquire) == ready::READY
    }

    pub(crate) fn life(&self) -> u32 {
        self.life.load(Ordering::Acquire)
    }

    /// The value of a property (Base, section 6.5).
    pub(crate) fn get(&self, wanted: Property) -> Result<u64, Status> {
        Ok(match (wanted.offset, wanted.width) {
            (property::CAP, Width::Eight) => capabilities(IO_ENTRIES, READY_HALF_SECONDS),
            (property::VS, Width::Four) => VERSION.into(),
            (property::CC, Width::Four) => self.configuration.load(Ordering::Acquire).into(),
            (property::CSTS, Width::Four) => self.status.load(Ordering::Acquire).into(),
            _ => return Err(Status::INVALID_FIELD),
        })
    }

    /// Sets a property. Only the core of the admin queue does this, so loads and stores do not race.
    pub(crate) fn set(&self, wanted: Property) -> Result<u64, Status> {
        if (wanted.offset, wanted.width) != (property::CC, Width::Four) {
            return Err(Status::INVALID_FIELD);
        }
        let before = Configuration(self.configuration.load(Ordering::Acquire));
        let now = Configuration(wanted.value as u32);
        self.configuration.store(now.0, Ordering::Release);
        if before.is_enabled() && (!now.is_enabled() || now.is_shutdown()) {
            self.end_work();
        }
        let status = if now.is_shutdown() {
            ready::SHUT_DOWN
        } else if !now.is_enabled() {
            0
        } else if !now.is_possible() {
            ready::FATAL
        } else {
            ready::READY
        };
        self.status.store(status, Ordering::Release);
        Ok(0)
    }

    /// Closes the I/O queues, on any core.
    fn end_work(&self) {
        self.status.store(0, Ordering::Release);
        self.life.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    fn wake(&self) {
        for core in &self.cores {
            core.wake();
        }
    }

    /// Closes all queues, on any core, and rejects further ones. The host may connect a new controller, if it is still
    /// allowed to.
    pub(crate) fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_dismissed(&self) -> bool {
        self.dismissed.load(Ordering::Acquire)
    }

    /// The number of connected queues, including the admin queue.
    pub(crate) fn places(&self) -> u32 {
        self.queues.load(Ordering::Acquire).count_ones()
    }

    /// Takes a queue number; `None` if the number is invalid or in use.
    fn take(&self, queue: u16) -> Option<()> {
        if queue > QUEUES_MAX {
            return None;
        }
        let bit = 1 << queue;
        (self.queues.fetch_or(bit, Ordering::AcqRel) & bit == 0).then_some(())
    }
}

/// A queue of a controller; its number is free again after the drop. The drop of the admin queue disables the
/// controller.
pub(crate) struct Place {
    pub(crate) controller: Arc<Controller>,
    pub(crate) queue: u16,
    life: u32,
}

impl Place {
    /// Takes a queue number, 0 for the admin queue; `None` if the number is invalid or in use.
    pub(crate) fn take(controller: &Arc<Controller>, queue: u16) -> Option<Self> {
        let life = controller.life();
        controller.take(queue)?;
        Some(Self { controller: Arc::clone(controller), queue, life })
    }

    /// False if the controller was dismissed, or disabled after this I/O queue had connected.
    pub(crate) fn is_current(&self) -> bool {
        let is_enabled = self.queue == 0 || self.controller.life() == self.life;
        is_enabled && !self.controller.is_dismissed()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.queue == 0 {
            self.controller.end_work();
        }
        self.controller.queues.fetch_and(!(1 << self.queue), Ordering::AcqRel);
        if let Some(subsystem) =
            self.controller.subsystem.as_ref().filter(|_| self.controller.is_dismissed())
        {
            subsystem.note_left();
        }
    }
}
