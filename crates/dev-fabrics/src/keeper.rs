//! The thread that keeps a device's association alive, and makes it anew.
//!
//! ```text
//! Up --silence, a breach, a lost connection--> Down --back-off, connect, same namespace--> Up
//! ```
//! When one connection of an association is lost, all are given up: a target then ends the controller, and with it
//! whatever it was still doing for us. It does so when it sees the connections close, or at the latest when no sign of
//! life has come for KATO. A change that was sent and not answered may be carried out until then, and would undo what
//! comes after it if that came first (F30). So a queue sends it again only [`QUIESCE`] after the end of the association
//! it was sent over, over another one: then it is carried out once more, with the same data, before anything that was
//! asked for after its end. Reads and flushes change nothing, and new changes are not ordered with those that have not
//! ended (the contract of [`IoQueue`](strake_block::IoQueue)), so they need not wait.

use crate::address::{Address, HostName};
use crate::device::Options;
use crate::error::Reason;
use crate::inbox::Inbox;
use crate::limits::{BACK_OFF_MAX, BACK_OFF_MIN, KEEP_ALIVE_EVERY, QUIESCE};
use crate::link::Port;
use crate::session::{Facts, Session};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strake_units::Nanos;

/// What the thread is asked for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Connect a queue now, and again whenever the association was made anew.
    Open(Port),
    /// A queue is closed.
    Close(u64),
    /// This association is of no use any more.
    Lost(u64, Reason),
}

/// How a device's association is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It is up.
    Up,
    /// It is down, because of this; so many tries to make it anew have failed.
    Down(Reason, u32),
}

/// What a device, its queues and its thread have in common.
pub(crate) struct Shared {
    pub(crate) address: Address,
    host: Mutex<HostName>,
    pub(crate) options: Options,
    /// The association that is up, counted from 1; 0 while none is. Whoever reads a number that is not its own stops
    /// using its connection; nothing else is published by it.
    pub(crate) association: AtomicU64,
    /// When it was lost, in nanoseconds, while it is down. Read after `association`, which is stored after it.
    pub(crate) down_at: AtomicU64,
    /// Queues that are open, and how many the target grants.
    pub(crate) queues_open: AtomicU32,
    pub(crate) queues_granted: AtomicU32,
    /// Times that the association was made anew.
    pub(crate) reconnects: AtomicU64,
    facts: Mutex<Facts>,
    state: Mutex<LinkState>,
}

impl Shared {
    pub(crate) fn new(
        address: &Address,
        host: &HostName,
        (facts, queues): (Facts, u32),
        options: Options,
    ) -> Self {
        Self {
            address: address.clone(),
            host: Mutex::new(host.clone()),
            options,
            association: AtomicU64::new(1),
            down_at: AtomicU64::new(u64::MAX),
            queues_open: AtomicU32::new(0),
            queues_granted: AtomicU32::new(queues),
            reconnects: AtomicU64::new(0),
            facts: Mutex::new(facts),
            state: Mutex::new(LinkState::Up),
        }
    }

    /// Who we are, and how the next association proves it.
    pub(crate) fn host(&self) -> HostName {
        self.host_lock().clone()
    }

    pub(crate) fn host_lock(&self) -> MutexGuard<'_, HostName> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing panics while holding these locks. They are taken by control threads and when a queue is opened.
    pub(crate) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> LinkState {
        *self.state_lock()
    }

    fn state_lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The monotonic clock, which is that of data cores.
pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * Nanos::SECOND.0 + time.tv_nsec as u64)
}

/// A queue and its number at the target.
struct Place {
    number: u16,
    port: Port,
}

/// The thread's own.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    inbox: Inbox,
    session: Option<Session>,
    places: Vec<Place>,
    /// Number of the association that is up, or was last.
    association: u64,
    settled_at: Nanos,
    /// When to show that we are alive, or to try again.
    due: Instant,
    back_off: Duration,
    last_number: u16,
}

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>, session: Session, inbox: Inbox) -> Self {
        Self {
            shared,
            inbox,
            session: Some(session),
            places: Vec::new(),
            association: 1,
            settled_at: Nanos::default(),
            due: Instant::now() + KEEP_ALIVE_EVERY,
            back_off: BACK_OFF_MIN,
            last_number: 0,
        }
    }

    /// Works until the device and all its queues are gone.
    pub(crate) fn run(mut self) {
        loop {
            match self.inbox.next() {
                Ok(request) => self.take(request),
                Err(TryRecvError::Empty) => self.wait(),
                Err(TryRecvError::Disconnected) => break,
            }
            // Whoever asks without end must not keep signs of life from being given.
            if Instant::now() >= self.due {
                self.act();
            }
        }
        if let Some(session) = self.session {
            session.leave();
        }
    }

    fn wait(&mut self) {
        let patience = self.due.saturating_duration_since(Instant::now());
        let target = self.session.as_ref().map(Session::as_fd);
        if self.inbox.wait(target, patience)
            && let Some(session) = &mut self.session
        {
            let news = session.listen();
            self.judge(news);
        }
    }

    /// Gives up the association if what was seen of the target is none that can be used on.
    fn judge(&mut self, news: Result<Option<Facts>, Reason>) {
        let seen = news.and_then(|facts| facts.map_or(Ok(()), |facts| self.compare(&facts)));
        if let Err(reason) = seen {
            self.lose(reason);
        }
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Open(port) => self.open(port),
            Request::Close(id) => self.places.retain(|place| place.port.id != id),
            Request::Lost(association, reason) => {
                if association == self.association && self.session.is_some() {
                    self.lose(reason);
                }
            }
        }
    }

    fn open(&mut self, port: Port) {
        let number = self.free_number();
        self.places.push(Place { number, port });
        if self.session.is_some()
            && let Err(reason) = self.connect(self.places.len() - 1)
        {
            self.lose(reason);
        }
    }

    /// A number that no queue has, as far as there is one; not that of the queue that was closed last, which the target
    /// may not have noticed.
    fn free_number(&mut self) -> u16 {
        let granted = self.shared.queues_granted.load(Ordering::Relaxed).max(1) as u16;
        let taken = |number| self.places.iter().any(|place| place.number == number);
        let after = |step| (self.last_number + step) % granted + 1;
        let number = (0..granted).map(after).find(|&number| !taken(number));
        self.last_number = number.unwrap_or(self.last_number);
        self.last_number
    }

    fn connect(&self, at: usize) -> Result<(), Reason> {
        let (Some(session), Some(place)) = (&self.session, self.places.get(at)) else {
            return Ok(());
        };
        let link = session.queue(place.number, self.association, self.settled_at)?;
        // A queue that is gone does not take it, and has said so or will.
        let _ = place.port.links.send(link);
        place.port.wake();
        Ok(())
    }

    fn act(&mut self) {
        match &mut self.session {
            Some(session) => {
                self.due = Instant::now() + KEEP_ALIVE_EVERY;
                let news = session.keep_alive();
                self.judge(news);
            }
            None => self.retry(),
        }
    }

    /// Gives up every connection.
    fn lose(&mut self, reason: Reason) {
        if let Some(session) = self.session.take() {
            session.abort();
        }
        let lost_at = now();
        self.settled_at = lost_at.plus(QUIESCE);
        self.shared.down_at.store(lost_at.0, Ordering::Relaxed);
        self.shared.association.store(0, Ordering::Release);
        *self.shared.state_lock() = LinkState::Down(reason, 0);
        self.back_off = BACK_OFF_MIN;
        self.due = Instant::now() + self.back_off;
        self.places.iter().for_each(|place| place.port.wake());
    }

    fn retry(&mut self) {
        let result = self.remake();
        if let Err(reason) = result {
            self.session = None;
            self.shared.association.store(0, Ordering::Release);
            let mut state = self.shared.state_lock();
            let tries = match *state {
                LinkState::Down(_, tries) => tries.saturating_add(1),
                LinkState::Up => 1,
            };
            *state = LinkState::Down(reason, tries);
            drop(state);
            self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
            self.due = Instant::now() + self.back_off;
        }
    }

    fn remake(&mut self) -> Result<(), Reason> {
        let shared = &self.shared;
        let session = Session::begin(&shared.address, &shared.host(), shared.options.digests)?;
        self.compare(&session.facts)?;
        *self.shared.facts() = session.facts.clone();
        self.shared.queues_granted.store(session.queues, Ordering::Relaxed);
        self.session = Some(session);
        self.association += 1;
        self.shared.association.store(self.association, Ordering::Release);
        for at in 0..self.places.len() {
            self.connect(at)?;
        }
        *self.shared.state_lock() = LinkState::Up;
        self.shared.down_at.store(u64::MAX, Ordering::Relaxed);
        self.shared.reconnects.fetch_add(1, Ordering::Relaxed);
        self.due = Instant::now() + KEEP_ALIVE_EVERY;
        Ok(())
    }

    /// Whether it is the namespace that it was; it may have grown.
    fn compare(&self, is: &Facts) -> Result<(), Reason> {
        let facts = self.shared.facts();
        if is.identity != facts.identity || is.block != facts.block || is.blocks < facts.blocks {
            return Err(Reason::Replaced);
        }
        Ok(())
    }
}
