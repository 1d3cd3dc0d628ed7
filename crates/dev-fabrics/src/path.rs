//! The thread of a path, which keeps an association over it alive, and establishes it again after a loss.
//!
//! ```text
//! Up --silence, a breach, a lost connection, an order--> Down --back-off, connect, same namespace--> Up
//! ```
//! When one connection of an association is lost, all are given up: a target then ends the controller, and with it
//! whatever it was still doing for us. Each path has a thread of its own, since waiting for a silent target would let
//! the others miss Keep Alive commands.

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

/// What the path manager has the thread do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GiveUp {
    /// The association that can no longer be used.
    pub(crate) session: u64,
    pub(crate) reason: Reason,
}

/// What serves the namespace at the end of a path, while something else does at the end of the one in use.
struct Other {
    instance: Option<[u8; 16]>,
    /// The one in use.
    used: Option<[u8; 16]>,
    since: Nanos,
    /// Both were there at a time, so neither is the outcome of the other.
    is_proven: bool,
}

/// A path, as its thread has it.
pub(crate) struct Path {
    id: PathId,
    address: Address,
    shared: Arc<Shared>,
    inbox: Inbox<GiveUp>,
    session: Option<(u64, Session)>,
    has_been_up: bool,
    /// When to show that we are alive, or to try again.
    due: Instant,
    back_off: Duration,
    /// Another instance than the one in use, that was found at its end.
    other: Option<Other>,
    /// Tries since it was last up for longer than a short time.
    tries: u32,
}

impl Path {
    /// The path `id` of the device. It connects at once unless it has a session already.
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

    /// Does what is due and was ordered, and waits for nothing.
    #[cfg(test)]
    pub(crate) fn step(&mut self) {
        while let Ok(order) = self.inbox.next() {
            self.take(&order);
        }
        if Instant::now() >= self.due || self.session.is_some() {
            self.act();
        }
    }

    /// Runs until the path has no asker left.
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

    /// Does what is due: shows that we are alive, or tries again.
    fn act(&mut self) {
        if self.session.is_none() {
            return self.retry();
        }
        if let Err(reason) = self.show_life() {
            self.lose(reason);
        }
    }

    /// Shows that we are alive, and looks whether the target is, and the namespace the same.
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

    /// Whether what was seen of the target is what can be used on.
    fn judge(&mut self, news: Result<Option<Facts>, Reason>) -> Result<(), Reason> {
        let reservation = self.shared.options.reservation;
        if reservation == ReservationMode::Off && matches!(news, Err(Reason::TakenOver)) {
            // Of a reservation that another process made in our name.
            return Ok(());
        }
        let Some(is) = news? else { return Ok(()) };
        let Some((_, session)) = &mut self.session else { return Ok(()) };
        session.facts.check(&is)?;
        // Another instance may have lost changes. Queues learn that from associations alone, so this one ends.
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

    /// Whether the connected controller can be used.
    fn accept(&mut self, session: Session) -> Result<Session, Reason> {
        self.shared.promise().check(&session.facts)?;
        if self.is_other(&session.facts) {
            return Err(Reason::OtherInstance);
        }
        self.shared.claim(&self.address, &session.facts, ReservationMode::Claim)?;
        Ok(session)
    }

    /// Whether it is another instance than the one in use, or than one that was in use beside it: a copy. A target that
    /// was restarted is another instance as well, but never beside the one before.
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
        // Reserving the drive may have taken most of the time that the target waits for a Keep Alive.
        let rest = match self.shared.options.reservation {
            ReservationMode::Off => KEEP_ALIVE_EVERY,
            ReservationMode::Claim | ReservationMode::TakeOver => Duration::ZERO,
        };
        self.due = Instant::now() + rest;
        let again = u64::from(std::mem::replace(&mut self.has_been_up, true));
        self.shared.note(self.id, |entry| {
            entry.standing = Standing::Up(live);
            entry.since = now();
            // In the same change, so that no reader sees the path reconnected and not counted.
            entry.reconnects += again;
        });
    }

    /// Gives up every connection, and tries to connect again soon.
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
