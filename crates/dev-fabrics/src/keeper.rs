//! The thread that keeps a device's association alive, and makes it anew.
//!
//! ```text
//! Up --silence, a breach, a lost connection--> Down --back-off, connect, same namespace--> Up
//! ```
//! When one connection of an association is lost, all are given up: a target then ends the controller, and with it
//! whatever it was still doing for us. It does so when it sees the connections close, or when no sign of life has come
//! for some KATOs. A change that was sent and not answered may be carried out until then, and would undo what comes
//! after it if that came first (F30). So a queue sends it again only when the target must have stopped (`settle_time`
//! of what is known of it), over another association: then it is carried out once more, with the same data, before
//! anything that was asked for after its end. Reads and flushes change nothing, and new changes are not ordered with
//! those that have not ended (the contract of [`IoQueue`](strake_block::IoQueue)), so they need not wait.

use crate::address::{Address, HostName};
use crate::cache::{Cache, Instance};
use crate::device::Options;
use crate::error::Reason;
use crate::inbox::Inbox;
use crate::limits::{BACK_OFF_MAX, BACK_OFF_MIN, KEEP_ALIVE_EVERY};
use crate::link::Port;
use crate::session::{Facts, Session};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strake_block::{DeallocateReads, VolatileCache};
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
    pub(crate) cache: Cache,
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
            cache: Cache::new(),
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

/// A queue and its number at the target; `None` while it is not connected.
struct Place {
    number: Option<u16>,
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
            if let Err(reason) = self.judge(news) {
                self.lose(reason);
            }
        }
    }

    /// Whether what was seen of the target is what can be used on.
    fn judge(&self, news: Result<Option<Facts>, Reason>) -> Result<(), Reason> {
        let Some(facts) = news? else { return Ok(()) };
        self.compare(&facts)?;
        // Another one may have lost changes: told to queues by what is known of associations, so this one ends.
        if facts.instance == self.shared.facts().instance {
            Ok(())
        } else {
            Err(Reason::AnotherInstance)
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
        self.places.push(Place { number: None, port });
        if let Err(reason) = self.connect_queues() {
            self.lose(reason);
        }
    }

    /// A number that no queue has; not that of the queue that was closed last, which the target may not have noticed.
    fn free_number(&self) -> Option<u16> {
        let granted = self.shared.queues_granted.load(Ordering::Relaxed).max(1) as u16;
        let taken = |number| self.places.iter().any(|place| place.number == Some(number));
        let after = |step| (self.last_number + step) % granted + 1;
        (0..granted).map(after).find(|&number| !taken(number))
    }

    /// Connects the queues that are not, as far as there are numbers. One that the target refuses is left for the next
    /// time: the others are of use without it.
    fn connect_queues(&mut self) -> Result<(), Reason> {
        for at in 0..self.places.len() {
            if self.places[at].number.is_some() {
                continue;
            }
            if Instant::now() >= self.due {
                self.show_life()?;
            }
            match self.connect(at) {
                Ok(()) | Err(Reason::Refused(_)) => {}
                Err(reason) => return Err(reason),
            }
        }
        Ok(())
    }

    fn connect(&mut self, at: usize) -> Result<(), Reason> {
        let (Some(session), Some(number)) = (&self.session, self.free_number()) else {
            return Ok(());
        };
        self.last_number = number;
        let life = (self.association, self.settled_at);
        let link = session.queue(number, &self.shared.host(), life)?;
        let place = &mut self.places[at];
        place.number = Some(number);
        // A queue that is gone does not take it, and has said so or will.
        let _ = place.port.links.send(link);
        place.port.wake();
        Ok(())
    }

    fn act(&mut self) {
        if self.session.is_none() {
            return self.retry();
        }
        if let Err(reason) = self.show_life().and_then(|()| self.connect_queues()) {
            self.lose(reason);
        }
    }

    /// Shows that we are alive, and looks whether the target is, and the namespace the same.
    fn show_life(&mut self) -> Result<(), Reason> {
        let Some(session) = &mut self.session else { return Ok(()) };
        self.due = Instant::now() + KEEP_ALIVE_EVERY;
        let news = session.keep_alive();
        self.judge(news)
    }

    /// Gives up every connection, and tries to make them anew soon.
    fn lose(&mut self, reason: Reason) {
        self.end();
        *self.shared.state_lock() = LinkState::Down(reason, 0);
        self.back_off = BACK_OFF_MIN;
        self.due = Instant::now() + self.back_off;
    }

    /// Ends the association, if there is one. What its queues were sent from here on is over only after a while.
    fn end(&mut self) {
        let Some(session) = self.session.take() else { return };
        session.abort();
        let lost_at = now();
        let settle_time = self.shared.facts().settle_time;
        self.settled_at = lost_at.plus(settle_time);
        self.shared.down_at.store(lost_at.0, Ordering::Relaxed);
        self.shared.association.store(0, Ordering::Release);
        self.shared.cache.association_ended(self.association);
        for place in &mut self.places {
            place.number = None;
            place.port.wake();
        }
    }

    fn retry(&mut self) {
        if let Err(reason) = self.remake() {
            self.end();
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
        let was = std::mem::replace(&mut *shared.facts(), session.facts.clone());
        shared.queues_granted.store(session.queues, Ordering::Relaxed);
        self.association += 1;
        let instance = Instance::of(was.instance, session.facts.instance);
        shared.cache.association_began(self.association, instance);
        self.session = Some(session);
        self.shared.association.store(self.association, Ordering::Release);
        self.due = Instant::now() + KEEP_ALIVE_EVERY;
        self.last_number = 0;
        self.connect_queues()?;
        *self.shared.state_lock() = LinkState::Up;
        self.shared.down_at.store(u64::MAX, Ordering::Relaxed);
        self.shared.reconnects.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it is the namespace that it was, and can do what its users rely on. It may have grown; how much it takes
    /// at once is looked at with every command.
    fn compare(&self, is: &Facts) -> Result<(), Reason> {
        let facts = self.shared.facts();
        if is.identity != facts.identity || is.block != facts.block || is.blocks < facts.blocks {
            return Err(Reason::Replaced);
        }
        let absent = |is, was| is == DeallocateReads::Unsupported && was != is;
        if (is.cache == VolatileCache::Present && facts.cache == VolatileCache::Absent)
            || absent(is.deallocate, facts.deallocate)
            || (is.read_only && !facts.read_only)
        {
            return Err(Reason::Lesser);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
