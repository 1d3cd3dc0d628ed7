//! State that a device, its queues and its threads share.

use crate::address::{Address, HostName};
use crate::cache::Cache;
use crate::device::Options;
use crate::error::Reason;
use crate::identify::Facts;
use crate::link::{Life, Phase};
use crate::path_selection::PathId;
use crate::reservation::{self, Asked, Claimed, ReservationMode};
use crate::session::Gate;
use crate::stats::Stats;
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use strake_units::Nanos;

/// The connection state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The device is connected over one of its paths.
    Up,
    /// The device is not connected: the reason is that of the last used path, with the number of failed reconnects.
    Down(Reason, u32),
}

/// The connection state of a path.
pub(crate) enum Standing {
    /// The path has an association.
    Up(Box<Live>),
    /// The path has no association, for this reason, after this number of failed reconnects.
    Down { reason: Option<Reason>, tries: u32 },
}

/// The association of a path.
#[derive(Clone)]
pub(crate) struct Live {
    /// The number of the association among all of the device.
    pub(crate) session: u64,
    pub(crate) gate: Gate,
    pub(crate) facts: Facts,
}

/// The state of a path, as its thread reports it.
pub(crate) struct PathEntry {
    pub(crate) id: PathId,
    pub(crate) address: Address,
    pub(crate) standing: Standing,
    /// The time of the last change of the state.
    pub(crate) since: Nanos,
    /// The reason of the last loss or failed connect.
    pub(crate) last: Option<Reason>,
    /// The number of reconnects.
    pub(crate) reconnects: u64,
    /// Whether the path carries I/O.
    pub(crate) used: bool,
    /// The number of times that the path was selected.
    pub(crate) turns: u64,
    /// Whether the path is to be removed.
    pub(crate) leaving: bool,
    /// The instance and the time of the last answered Keep Alive.
    pub(crate) alive: Option<(Option<[u8; 16]>, Nanos)>,
}

impl PathEntry {
    pub(crate) fn new(id: PathId, address: Address) -> Self {
        Self {
            id,
            address,
            standing: Standing::Down { reason: None, tries: 0 },
            since: now(),
            last: None,
            reconnects: 0,
            used: false,
            turns: 0,
            leaving: false,
            alive: None,
        }
    }
}

/// State that a device, its queues and its threads share.
pub(crate) struct Shared {
    /// The address that names the drive.
    pub(crate) address: Address,
    host: Mutex<HostName>,
    pub(crate) options: Options,
    /// The association in use, counted from 1; 0 if there is none. A queue that reads a number other than its own sends
    /// no new commands over its connection; the value publishes no other data.
    pub(crate) association: AtomicU64,
    /// The time of the last loss, in nanoseconds, while there is no association. Readers load it after `association`,
    /// which is stored after it.
    pub(crate) down_at: AtomicU64,
    /// The number of open queues, and of granted queues.
    pub(crate) queues_open: AtomicU32,
    pub(crate) queues_granted: AtomicU32,
    /// The number of associations that followed a lost one.
    pub(crate) reconnects: AtomicU64,
    pub(crate) cache: Cache,
    facts: Mutex<Facts>,
    /// The properties of the namespace that users rely on, and that every path must have.
    promise: Mutex<Facts>,
    state: Mutex<LinkState>,
    /// The reservation of this host, if there is one.
    claimed: Mutex<Option<Claimed>>,
    /// Held by the path that makes the reservation.
    turn: Mutex<()>,
    /// Whether the reservation was lost. The drive is then not used over any path. The value publishes no other data.
    taken_over: AtomicBool,
    paths: Mutex<Vec<PathEntry>>,
    /// Associations over which closed queues left unanswered changes.
    left: Mutex<Vec<Arc<Life>>>,
    /// Stats of the open queues.
    stats: Mutex<Vec<Weak<Stats>>>,
    /// Readable after a change of a path's state.
    pub(crate) news: OwnedFd,
    numbers: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        address: &Address,
        host: &HostName,
        facts: Facts,
        options: Options,
    ) -> io::Result<Self> {
        Ok(Self {
            address: address.clone(),
            host: Mutex::new(host.clone()),
            options,
            association: AtomicU64::new(0),
            down_at: AtomicU64::new(u64::MAX),
            queues_open: AtomicU32::new(0),
            queues_granted: AtomicU32::new(0),
            reconnects: AtomicU64::new(0),
            cache: Cache::new(),
            promise: Mutex::new(facts.clone()),
            facts: Mutex::new(facts),
            state: Mutex::new(LinkState::Up),
            claimed: Mutex::new(None),
            turn: Mutex::new(()),
            taken_over: AtomicBool::new(false),
            paths: Mutex::new(Vec::new()),
            left: Mutex::new(vec![before_us(options.settled_at)]),
            stats: Mutex::new(Vec::new()),
            news: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            numbers: AtomicU64::new(0),
        })
    }

    /// The identity of this host, with the keys for the next association.
    pub(crate) fn host(&self) -> HostName {
        self.host_lock().clone()
    }

    /// No code panics while it holds these locks. Control threads take them, and queues when they are opened.
    pub(crate) fn host_lock(&self) -> MutexGuard<'_, HostName> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current or last properties of the namespace.
    pub(crate) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The properties that users rely on, independent of the path.
    pub(crate) fn promise(&self) -> MutexGuard<'_, Facts> {
        self.promise.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if `instance` answered a Keep Alive that was sent after `since`.
    pub(crate) fn was_alive(&self, instance: Option<[u8; 16]>, since: Nanos) -> bool {
        let is = |(it, asked)| it == instance && asked > since;
        self.paths().iter().any(|entry| entry.alive.is_some_and(is))
    }

    pub(crate) fn state(&self) -> LinkState {
        *self.state_lock()
    }

    pub(crate) fn state_lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reservation of this host.
    pub(crate) fn claimed(&self) -> Option<Claimed> {
        *self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the namespace that was found at `address`, if this is configured and possible.
    pub(crate) fn claim(
        &self,
        address: &Address,
        is: &Facts,
        reservation: ReservationMode,
    ) -> Result<(), Reason> {
        if self.options.reservation == ReservationMode::Off {
            return Ok(());
        }
        if self.is_taken_over() {
            return Err(Reason::TakenOver);
        }
        let before = self.claimed();
        let Some(ability) = is.reservations else {
            // The drive was reserved before; over this path other hosts would not be excluded.
            return before.map_or(Ok(()), |_| Err(Reason::Lesser));
        };
        let (host, digests) = (self.host(), self.options.digests);
        let asked = Asked { address, host: &host, digests };
        let claimed = reservation::claim(&asked, ability, (reservation, before), &self.turn)?;
        // `is_new` keeps the value of the first reservation.
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(claimed);
        Ok(())
    }

    /// True if another host may have written.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// Stops the use of the drive if an association ended because another host took the drive over.
    pub(crate) fn note_loss(&self, reason: Reason) {
        if reason == Reason::TakenOver {
            self.taken_over.store(true, Ordering::Relaxed);
        }
    }

    /// The paths in the order in which they were added.
    pub(crate) fn paths(&self) -> MutexGuard<'_, Vec<PathEntry>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left_lock(&self) -> MutexGuard<'_, Vec<Arc<Life>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a closed queue whose commands over this association may be executed until it has ended and settled.
    pub(crate) fn leave(&self, life: Arc<Life>) {
        self.left_lock().push(life);
    }

    /// The associations that a queue that is opened now must await before it changes anything.
    pub(crate) fn left(&self, now: Nanos) -> Vec<Arc<Life>> {
        let mut left = self.left_lock();
        left.retain(|life| !matches!(life.phase(), Phase::Ended(over_at) if over_at <= now));
        left.clone()
    }

    /// Records the stats of a queue while the queue exists.
    pub(crate) fn keep(&self, stats: &Arc<Stats>) {
        let mut kept = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|other| other.strong_count() > 0);
        kept.push(Arc::downgrade(stats));
    }

    /// Stats of the open queues, in the order in which they were opened.
    pub(crate) fn stats(&self) -> Vec<Arc<Stats>> {
        let kept = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().filter_map(Weak::upgrade).collect()
    }

    /// A number that is unique in this device.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Changes the state of a path, and wakes the path manager.
    pub(crate) fn note(&self, id: PathId, change: impl FnOnce(&mut PathEntry)) {
        if let Some(entry) = self.paths().iter_mut().find(|entry| entry.id == id) {
            change(entry);
        }
        self.tell();
    }

    /// Wakes the path manager.
    pub(crate) fn tell(&self) {
        // The counter is full only after 2^64 calls without a read.
        let _ = rustix::io::write(&self.news, &1_u64.to_ne_bytes());
    }
}

/// The association of an earlier process, whose commands have settled at `settled_at`.
fn before_us(settled_at: Nanos) -> Arc<Life> {
    let life = Life::new(0);
    life.end(settled_at);
    life
}

/// Adds a path to a device.
pub(crate) fn enlist(shared: &Arc<Shared>, address: &Address) -> PathId {
    let id = PathId(shared.number());
    shared.paths().push(PathEntry::new(id, address.clone()));
    id
}

/// The time of the monotonic clock, which data cores use as well.
pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * Nanos::SECOND.0 + time.tv_nsec as u64)
}
