//! What a device, its queues and its threads have in common.

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

/// How a device is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Over one of its paths.
    Up,
    /// Over none, because of this, which happened to the path that was used last; so many tries to establish its
    /// association again have failed.
    Down(Reason, u32),
}

/// How a path is.
pub(crate) enum Standing {
    /// Its association is up.
    Up(Box<Live>),
    /// It has none, because of this; so many tries to establish it again have failed.
    Down { reason: Option<Reason>, tries: u32 },
}

/// The association of a path.
#[derive(Clone)]
pub(crate) struct Live {
    /// Which one it is, of all of the device.
    pub(crate) session: u64,
    pub(crate) gate: Gate,
    pub(crate) facts: Facts,
}

/// What is known of a path. Its thread says how it stands.
pub(crate) struct PathEntry {
    pub(crate) id: PathId,
    pub(crate) address: Address,
    pub(crate) standing: Standing,
    /// Since when it has stood so.
    pub(crate) since: Nanos,
    /// Why it was lost, or could not be had, the last time.
    pub(crate) last: Option<Reason>,
    /// Times that its association was established again.
    pub(crate) reconnects: u64,
    /// Whether it carries I/O.
    pub(crate) used: bool,
    /// Times that it came to do so.
    pub(crate) turns: u64,
    /// It is to be removed.
    pub(crate) leaving: bool,
    /// When it was last asked for a sign of life that came, and which instance it led to then.
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

/// What a device, its queues and its threads have in common.
pub(crate) struct Shared {
    /// The address that the drive is named by.
    pub(crate) address: Address,
    host: Mutex<HostName>,
    pub(crate) options: Options,
    /// The association to use, counted from 1; 0 while there is none. A queue that reads a number other than its own
    /// sends no more over its connection; nothing else is published by it.
    pub(crate) association: AtomicU64,
    /// When the last one was lost, in nanoseconds, while there is none. Read after `association`, which is stored after
    /// it.
    pub(crate) down_at: AtomicU64,
    /// Queues that are open, and how many the target grants.
    pub(crate) queues_open: AtomicU32,
    pub(crate) queues_granted: AtomicU32,
    /// Times that an association had to follow one that was lost.
    pub(crate) reconnects: AtomicU64,
    pub(crate) cache: Cache,
    facts: Mutex<Facts>,
    /// What users were promised of the namespace, which every path has to keep.
    promise: Mutex<Facts>,
    state: Mutex<LinkState>,
    /// The reservation that we have; `None` while there is none.
    claimed: Mutex<Option<Claimed>>,
    /// Held by the path that is about to reserve it.
    turn: Mutex<()>,
    /// It is gone, so the drive is no longer used, whatever becomes of its paths. Nothing else is published by it.
    taken_over: AtomicBool,
    paths: Mutex<Vec<PathEntry>>,
    /// Associations over which queues that are gone sent changes that were not answered.
    left: Mutex<Vec<Arc<Life>>>,
    /// What queues have done that are open.
    stats: Mutex<Vec<Weak<Stats>>>,
    /// Readable once a path stands in another way.
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

    /// Who we are, and how the next association proves it.
    pub(crate) fn host(&self) -> HostName {
        self.host_lock().clone()
    }

    /// Nothing panics while holding these locks. They are taken by control threads and when a queue is opened.
    pub(crate) fn host_lock(&self) -> MutexGuard<'_, HostName> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the namespace as it is reached now, or was last.
    pub(crate) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What users rely on, however the namespace is reached.
    pub(crate) fn promise(&self) -> MutexGuard<'_, Facts> {
        self.promise.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `instance` was there when it was asked for a sign of life after `since`.
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

    /// The reservation that we have.
    pub(crate) fn claimed(&self) -> Option<Claimed> {
        *self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the namespace that was found at `address`, if it is to be and can be.
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
            // The drive was reserved; over this path nothing would keep other hosts out.
            return before.map_or(Ok(()), |_| Err(Reason::Lesser));
        };
        let (host, digests) = (self.host(), self.options.digests);
        let asked = Asked { address, host: &host, digests };
        let claimed = reservation::claim(&asked, ability, (reservation, before), &self.turn)?;
        // Whether it was new: as found the first time.
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(claimed);
        Ok(())
    }

    /// Whether another host may have written.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// Stops the use of the drive if an association ended because another host took it over.
    pub(crate) fn note_loss(&self, reason: Reason) {
        if reason == Reason::TakenOver {
            self.taken_over.store(true, Ordering::Relaxed);
        }
    }

    /// In the order in which they were added.
    pub(crate) fn paths(&self) -> MutexGuard<'_, Vec<PathEntry>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left_lock(&self) -> MutexGuard<'_, Vec<Arc<Life>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue goes away, and what it has sent over this association may be executed until that is over.
    pub(crate) fn leave(&self, life: Arc<Life>) {
        self.left_lock().push(life);
    }

    /// What a queue that is opened at this time has to wait for before it changes anything.
    pub(crate) fn left(&self, now: Nanos) -> Vec<Arc<Life>> {
        let mut left = self.left_lock();
        left.retain(|life| !matches!(life.phase(), Phase::Ended(over_at) if over_at <= now));
        left.clone()
    }

    /// Keeps the stats of a queue, as long as the queue does.
    pub(crate) fn keep(&self, stats: &Arc<Stats>) {
        let mut kept = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|other| other.strong_count() > 0);
        kept.push(Arc::downgrade(stats));
    }

    /// The stats of queues that are open, in the order in which they were opened.
    pub(crate) fn stats(&self) -> Vec<Arc<Stats>> {
        let kept = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().filter_map(Weak::upgrade).collect()
    }

    /// A number that nothing else of this device has.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes something about a path, and has the path manager look at it.
    pub(crate) fn note(&self, id: PathId, change: impl FnOnce(&mut PathEntry)) {
        if let Some(entry) = self.paths().iter_mut().find(|entry| entry.id == id) {
            change(entry);
        }
        self.tell();
    }

    /// Has the path manager look.
    pub(crate) fn tell(&self) {
        // It is full only after 2^64 calls without a look.
        let _ = rustix::io::write(&self.news, &1_u64.to_ne_bytes());
    }
}

/// The association of an ended process, whose requests are over at `settled_at`.
fn before_us(settled_at: Nanos) -> Arc<Life> {
    let life = Life::new(0);
    life.end(settled_at);
    life
}

/// Adds a path to those of a device.
pub(crate) fn enlist(shared: &Arc<Shared>, address: &Address) -> PathId {
    let id = PathId(shared.number());
    shared.paths().push(PathEntry::new(id, address.clone()));
    id
}

/// The monotonic clock, which is that of data cores.
pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * Nanos::SECOND.0 + time.tv_nsec as u64)
}
