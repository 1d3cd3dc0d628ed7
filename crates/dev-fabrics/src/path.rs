//! The thread of a path, which keeps an association alive, and establishes it again after a loss.
//!
//! ```text
//! Up --timeout, violation, lost connection, order--> Down --back-off, connect, same namespace--> Up
//! ```
//! If one connection of an association is lost, all are closed: the target then disables the controller, and with it
//! the commands of this host. Each path has a thread of its own, because waiting for a silent target would delay Keep
//! Alive commands of other paths.

use crate::address::Address;
use crate::error::Reason;
use crate::identify::Facts;
use crate::inbox::{Asker, Inbox};
use crate::limits::{BACK_OFF_MAX, BACK_OFF_MIN, KEEP_ALIVE_EVERY};
use crate::path_selection::{PathId, are_one};
use crate::reservation::ReservationMode;
use crate::session::Session;
use crate::shared::{LinkState, Live, Shared, Standing, now};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::{Duration, Instant};
use strake_units::Nanos;

/// An order of the path manager to the thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GiveUp {
    /// The association that must be ended.
    pub(crate) session: u64,
    pub(crate) reason: Reason,
}

/// An instance that serves the namespace over a path, while another instance serves it over the path in use.
struct Other {
    instance: Option<[u8; 16]>,
    /// The instance in use.
    used: Option<[u8; 16]>,
    since: Nanos,
    /// Both instances existed at the same time, so neither is a restart of the other.
    is_proven: bool,
}

/// The state of a path's thread.
pub(crate) struct Path {
    id: PathId,
    address: Address,
    shared: Arc<Shared>,
    inbox: Inbox<GiveUp>,
    session: Option<(u64, Session)>,
    has_been_up: bool,
    /// The time of the next Keep Alive, or of the next attempt.
    due: Instant,
    back_off: Duration,
    /// Another instance than the one in use, that was found over this path.
    other: Option<Other>,
    /// Attempts since the path was last up for longer than a short time.
    tries: u32,
}

impl Path {
    /// Creates path `id` of the device. It connects at once unless it has a session.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        (id, address): (PathId, &Address),
        session: Option<Session>,
        inbox: Inbox<GiveUp>,
    ) -> Self {
        let mut path = Self {
            id,
            address: address.clone(),
            shared: Arc::clone(shared),
            inbox,
            session: None,
            has_been_up: false,
            due: Instant::now(),
            back_off: BACK_OFF_MIN,
            other: None,
            tries: 0,
        };
        if let Some(session) = session {
            path.begin(session);
        }
        path
    }

    /// Starts the thread.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        path: (PathId, &Address),
        session: Option<Session>,
    ) -> io::Result<Asker<GiveUp>> {
        let (asker, inbox) = Inbox::open()?;
        let path = Self::new(shared, path, session, inbox);
        thread::Builder::new().name("nvme-tcp".to_owned()).spawn(move || path.run())?;
        Ok(asker)
    }

    /// Executes due work and orders without waiting.
    #[cfg(test)]
    pub(crate) fn step(&mut self) {
        while let Ok(order) = self.inbox.next() {
            self.take(&order);
        }
        if Instant::now() >= self.due || self.session.is_some() {
            self.act();
        }
    }

    /// Runs until the path has no handle left.
    fn run(mut self) {
        loop {
            match self.inbox.next() {
                Ok(order) => self.take(&order),
                Err(TryRecvError::Empty) => self.wait(),
                Err(TryRecvError::Disconnected) => break,
            }
            if Instant::now() >= self.due {
                self.act();
            }
        }
        if let Some((_, session)) = self.session {
            session.leave();
        }
        self.shared.paths().retain(|entry| entry.id != self.id);
        self.shared.tell();
    }

    fn wait(&mut self) {
        let patience = self.due.saturating_duration_since(Instant::now());
        let target = self.session.as_ref().map(|(_, session)| session.as_fd());
        let more = self.session.as_ref().is_some_and(|(_, session)| session.has_more());
        if (more || self.inbox.wait(target, patience))
            && let Some((_, session)) = &mut self.session
        {
            let news = session.listen();
            if let Err(reason) = self.judge(news) {
                self.lose(reason);
            }
        }
    }

    fn take(&mut self, order: &GiveUp) {
        if self.session.as_ref().is_some_and(|(number, _)| *number == order.session) {
            self.lose(order.reason);
        }
    }

    /// Executes due work: a Keep Alive, or a connect attempt.
    fn act(&mut self) {
        if self.session.is_none() {
            return self.retry();
        }
        if let Err(reason) = self.show_life() {
            self.lose(reason);
        }
    }

    /// Sends a Keep Alive, and checks the namespace.
    fn show_life(&mut self) -> Result<(), Reason> {
        let Some((_, session)) = &mut self.session else { return Ok(()) };
        self.due = Instant::now() + KEEP_ALIVE_EVERY;
        let asked = now();
        let news = session.keep_alive();
        self.judge(news)?;
        if let Some((_, session)) = &self.session {
            let alive = Some((session.facts.instance, asked));
            let mut paths = self.shared.paths();
            paths.iter_mut().filter(|it| it.id == self.id).for_each(|it| it.alive = alive);
        }
        (self.back_off, self.tries) = (BACK_OFF_MIN, 0);
        Ok(())
    }

    /// Checks that the path is still usable after a report of the target.
    fn judge(&mut self, news: Result<Option<Facts>, Reason>) -> Result<(), Reason> {
        let reservation = self.shared.options.reservation;
        if reservation == ReservationMode::Off && matches!(news, Err(Reason::TakenOver)) {
            // The notice concerns a reservation that another process made for this host.
            return Ok(());
        }
        let Some(is) = news? else { return Ok(()) };
        let Some((_, session)) = &mut self.session else { return Ok(()) };
        session.facts.check(&is)?;
        // Another instance may have lost changes. Queues learn of this only from a new association, so this one is
        // ended.
        if is.instance != session.facts.instance {
            return Err(Reason::AnotherInstance);
        }
        if is != session.facts {
            session.facts = is.clone();
            self.shared.note(self.id, |entry| {
                if let Standing::Up(live) = &mut entry.standing {
                    live.facts = is;
                }
            });
        }
        Ok(())
    }

    fn retry(&mut self) {
        self.tries = self.tries.saturating_add(1);
        if self.shared.is_taken_over() {
            return self.fall(Reason::TakenOver);
        }
        let (address, host) = (&self.address, self.shared.host());
        let session = Session::begin(address, &host, self.shared.options.digests);
        match session.and_then(|session| self.accept(session)) {
            Ok(session) => self.begin(session),
            Err(reason) => self.fall(reason),
        }
    }

    /// Checks that the connected controller is usable.
    fn accept(&mut self, session: Session) -> Result<Session, Reason> {
        self.shared.promise().check(&session.facts)?;
        if self.is_other(&session.facts) {
            return Err(Reason::OtherInstance);
        }
        self.shared.claim(&self.address, &session.facts, ReservationMode::Claim)?;
        Ok(session)
    }

    /// Returns whether the instance differs from the one in use, or from one that was in use at the same time: a copy.
    /// A restarted target has another instance as well, but never at the same time as the previous one.
    fn is_other(&mut self, is: &Facts) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut other = self.other.take().filter(|other| other.instance == is.instance);
        if let Some(other) = &mut other {
            other.is_proven |= shared.was_alive(other.used, other.since);
        }
        let refused = if shared.state() == LinkState::Up {
            let used = shared.facts().clone();
            let seen = Other {
                instance: is.instance,
                used: used.instance,
                since: now(),
                is_proven: false,
            };
            other = (!are_one(&used, is)).then(|| other.unwrap_or(seen));
            other.is_some()
        } else {
            other.as_ref().is_some_and(|other| other.is_proven)
        };
        self.other = other;
        refused
    }

    fn begin(&mut self, session: Session) {
        let number = self.shared.number();
        let (gate, facts) = (session.gate.clone(), session.facts.clone());
        let live = Box::new(Live { session: number, gate, facts });
        self.session = Some((number, session));
        // The reservation may have taken most of the keep-alive timeout.
        let rest = match self.shared.options.reservation {
            ReservationMode::Off => KEEP_ALIVE_EVERY,
            ReservationMode::Claim | ReservationMode::TakeOver => Duration::ZERO,
        };
        self.due = Instant::now() + rest;
        let again = u64::from(std::mem::replace(&mut self.has_been_up, true));
        self.shared.note(self.id, |entry| {
            entry.standing = Standing::Up(live);
            entry.since = now();
            // The same critical section counts the reconnect, so that no reader sees a reconnected path without its
            // count.
            entry.reconnects += again;
        });
    }

    /// Closes every connection, and schedules a reconnect.
    pub(crate) fn lose(&mut self, reason: Reason) {
        if let Some((_, session)) = self.session.take() {
            session.abort();
        }
        self.fall(reason);
    }

    fn fall(&mut self, reason: Reason) {
        self.shared.note_loss(reason);
        let tries = self.tries;
        self.due = Instant::now() + self.back_off;
        self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
        self.shared.note(self.id, |entry| {
            if matches!(entry.standing, Standing::Up(_)) {
                entry.since = now();
            }
            entry.standing = Standing::Down { reason: Some(reason), tries };
            entry.last = Some(reason);
        });
    }
}

#[cfg(test)]
mod tests;
