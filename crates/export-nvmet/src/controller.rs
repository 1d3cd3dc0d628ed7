//! A controller: what the queues of one host have in common.
//!
//! ```text
//! made by Connect of the admin queue -> enabled -> disabled, shut down or its admin queue gone
//!                                          I/O queues connect and work          I/O queues leave
//! ```

use crate::failures::Failures;
use crate::limits::{IO_ENTRIES, QUEUES_MAX};
use crate::notices::Notices;
use crate::stats::{ControllerStats, Stats};
use crate::subsystem::Subsystem;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use strake_nvme_wire::Status;
use strake_nvme_wire::fabrics::{Configuration, Property, Width, capabilities, property, ready};
use strake_nvme_wire::identify::ControllerKind;
use strake_nvme_wire::reservation::NoticeKind;
use strake_reactor::CoreHandle;

/// The version of the base specification that controllers follow: 1.4. Later ones demand log pages that are not here.
pub(crate) const VERSION: u32 = 0x0001_0400;

/// How long a host may wait for a controller to become ready, in half seconds. It is ready at once.
const READY_HALF_SECONDS: u8 = 30;

/// Largest controller identifier (Base, section 5.17.2.1, CNTLID).
pub(crate) const CONTROLLER_MAX: u16 = 0xffef;

/// Who a host says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) nqn: String,
    pub(crate) id: [u8; 16],
}

/// The state, shared by the data cores of its queues.
pub(crate) struct Controller {
    pub(crate) id: u16,
    pub(crate) host: Host,
    /// What it is a controller of; `None` for discovery.
    pub(crate) subsystem: Option<Arc<Subsystem>>,
    configuration: AtomicU32,
    status: AtomicU32,
    /// Grows with each end of work, so that an I/O queue knows that it is from before.
    life: AtomicU32,
    /// Queues that are connected, as bits.
    queues: AtomicU32,
    /// What they have done.
    stats: Mutex<Vec<Weak<Stats>>>,
    /// How long the host may be silent, in milliseconds; 0 for ever. The admin queue's core decides.
    keep_alive_ms: AtomicU32,
    failures: Mutex<Failures>,
    notices: Mutex<Notices>,
    /// How many of those there were.
    noticed: AtomicU64,
    /// Cores that may have to be woken when it ends.
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

    /// The commands that failed last. Nothing panics while holding the lock, so a poisoned one holds a sound list.
    /// Only this host's queues take it, and only for a command that failed or a page.
    pub(crate) fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notices of reservations for the host; the lock is as for failures.
    pub(crate) fn notices(&self) -> MutexGuard<'_, Notices> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many such notices there were. Acquire: a thread that sees the number finds them.
    pub(crate) fn noticed(&self) -> u64 {
        self.noticed.load(Ordering::Acquire)
    }

    /// Adds one.
    pub(crate) fn notify(&self, kind: NoticeKind, namespace: u32) {
        let mut notices = self.notices();
        notices.note(kind, namespace);
        self.noticed.store(notices.count, Ordering::Release);
    }

    /// Nothing panics while holding the lock, so a poisoned one holds a sound list. It is taken when a queue comes, and
    /// when the stats are read.
    fn queue_stats(&self) -> MutexGuard<'_, Vec<Weak<Stats>>> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the stats of a queue, as long as the queue does.
    pub(crate) fn keep(&self, stats: &Arc<Stats>) {
        let mut kept = self.queue_stats();
        kept.retain(|other| other.strong_count() > 0);
        kept.push(Arc::downgrade(stats));
    }

    /// What its queues have done.
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

    /// How long the host may be silent, in milliseconds; 0 for ever. Relaxed: a number that orders nothing.
    pub(crate) fn keep_alive_ms(&self) -> u32 {
        self.keep_alive_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn set_keep_alive(&self, milliseconds: u32) {
        self.keep_alive_ms.store(milliseconds, Ordering::Relaxed);
    }

    /// True when it was enabled and nothing ended that. Acquire: what was set up before is seen.
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

    /// Sets a property. Only the admin queue's core does, so loads and stores do not race.
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

    /// Makes I/O queues leave, on whatever core they are.
    fn end_work(&self) {
        self.status.store(0, Ordering::Release);
        self.life.fetch_add(1, Ordering::AcqRel);
        for core in &self.cores {
            core.wake();
        }
    }

    /// Queues that are connected, the admin queue among them.
    pub(crate) fn places(&self) -> u32 {
        self.queues.load(Ordering::Acquire).count_ones()
    }

    /// Takes a queue's number; `None` when it is not possible or taken.
    fn take(&self, queue: u16) -> Option<()> {
        if queue > QUEUES_MAX {
            return None;
        }
        let bit = 1 << queue;
        (self.queues.fetch_or(bit, Ordering::AcqRel) & bit == 0).then_some(())
    }
}

/// A queue of a controller; it is free again once this is dropped. With its admin queue a controller ends.
pub(crate) struct Place {
    pub(crate) controller: Arc<Controller>,
    pub(crate) queue: u16,
    life: u32,
}

impl Place {
    /// Takes the place of a queue, 0 for the admin queue; `None` when it is not possible or taken.
    pub(crate) fn take(controller: &Arc<Controller>, queue: u16) -> Option<Self> {
        let life = controller.life();
        controller.take(queue)?;
        Some(Self { controller: Arc::clone(controller), queue, life })
    }

    /// False when the controller stopped working after this I/O queue was connected.
    pub(crate) fn is_current(&self) -> bool {
        self.queue == 0 || self.controller.life() == self.life
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.queue == 0 {
            self.controller.end_work();
        }
        self.controller.queues.fetch_and(!(1 << self.queue), Ordering::AcqRel);
    }
}
