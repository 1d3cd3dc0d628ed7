//! The path manager: the thread that connects the queues of a device over the best path.
//!
//! Each path has a thread of its own (`path`), which keeps an association. The path manager selects among the connected
//! paths (`path_selection`), connects the queues over the selected one, each in a thread of its own (`joins`), and
//! publishes the state of the associations to the queues that use them (`Life`). It never waits for a target.
//!
//! **A change that was sent and not answered** may be executed until its association has ended and its target has
//! detected this. If it were executed late, it could undo later changes (F30). So a queue sends it again only when the
//! target must have stopped (`settle_time`), over any path: then it is executed once more, with the same data, before
//! any change that was requested after its completion. Reads and flushes change nothing, and new changes are not
//! ordered with changes in flight (the contract of [`IoQueue`](strake_block::IoQueue)), so they need not wait.
//!
//! **A change of the path while the association lasts**, for a better path or because the namespace is inaccessible
//! over the old one, is made by each queue when all its commands over the old path have completed. Only commands that
//! the target rejected are then sent again.

mod joins;

use crate::cache::Instance;
use crate::error::Reason;
use crate::identify::Facts;
use crate::inbox::{Asker, Inbox};
use crate::limits::{KEEP_ALIVE_EVERY, LEAVE_TIME_MAX, POOR_TIME, STAY_TIME_MIN};
use crate::link::{Life, Port};
use crate::path::GiveUp;
use crate::path_selection::{PathCandidate, PathId, Used, are_one, choose, share_cache};
use crate::session::Gate;
use crate::shared::{LinkState, Live, PathEntry, Shared, Standing, now};
use joins::{Join, Joined, Joins};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};
use strake_units::Nanos;

/// A request to the path manager.
#[derive(Debug)]
pub(crate) enum Request {
    /// Connect a queue now, and again whenever another association is used.
    Open(Port),
    /// A queue was closed.
    Close(u64),
    /// This association must no longer be used.
    Lost(u64, Reason),
    /// The handle of the thread of a path.
    Add(PathId, Asker<GiveUp>),
}

/// A queue.
struct Place {
    seat: Seat,
    port: Port,
}

/// The connection state of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seat {
    /// The queue is to be connected.
    Wanted,
    /// The target rejected the queue, or no queue ID or another resource was free. The next Keep Alive triggers another
    /// attempt: the target may not have detected yet that a queue was closed.
    Refused,
    /// The queue is to be connected, after a rejection.
    Again,
    /// The queue is being connected, with this ID.
    Joining(u16, Try),
    /// The queue is connected with this ID.
    Taken(u16),
}

/// Whether a queue was rejected before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Try {
    First,
    Another,
}

/// Whether there was a queue ID for each queue to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    Enough,
    Lack,
}

/// An association over which commands may be in flight.
struct Use {
    path: PathId,
    session: u64,
    life: Arc<Life>,
    /// Time after the end of the association during which the target may still execute its commands.
    settle_time: Nanos,
}

/// The association that new commands use.
struct Active {
    path: PathId,
    session: u64,
    gate: Gate,
    facts: Arc<Facts>,
    /// True if it follows a lost one, and has not been counted yet.
    uncounted: bool,
}

/// The state of the thread.
pub(crate) struct PathManager {
    shared: Arc<Shared>,
    inbox: Inbox<Request>,
    /// The threads of paths. A thread stops when its handle is dropped.
    threads: Vec<(PathId, Asker<GiveUp>)>,
    /// Associations that were ordered to end, and their paths.
    condemned: Vec<(PathId, GiveUp)>,
    places: Vec<Place>,
    joins: Joins,
    /// Paths over which a queue was not connected, and the end of their lower rank.
    poor: Vec<(PathId, Instant)>,
    uses: Vec<Use>,
    active: Option<Active>,
    /// The path that carries I/O, or the last one that did.
    last: Option<PathId>,
    /// The time of the last change of the path.
    turned: Instant,
    /// The number of the current or last association.
    association: u64,
    /// The time of the next periodic check.
    due: Instant,
    last_number: u16,
}

impl PathManager {
    pub(crate) fn new(shared: Arc<Shared>, inbox: Inbox<Request>) -> Self {
        Self {
            shared,
            inbox,
            threads: Vec::new(),
            condemned: Vec::new(),
            places: Vec::new(),
            joins: Joins::new(),
            poor: Vec::new(),
            uses: Vec::new(),
            active: None,
            last: None,
            turned: Instant::now(),
            association: 0,
            due: Instant::now() + KEEP_ALIVE_EVERY,
            last_number: 0,
        }
    }

    /// Runs until the device and all its queues are dropped.
    pub(crate) fn run(mut self) {
        while self.look() {
            let patience = self.due.saturating_duration_since(Instant::now());
            self.inbox.wait(Some(self.shared.news.as_fd()), patience);
        }
    }

    /// Executes requests, reads the states of the paths, and acts on them, without waiting. Returns false if no handle
    /// is left.
    pub(crate) fn look(&mut self) -> bool {
        if Instant::now() >= self.due {
            self.due = Instant::now() + KEEP_ALIVE_EVERY;
            self.want_refused();
        }
        loop {
            if !self.hear() {
                return false;
            }
            self.look_at_paths();
            if self.connect_wanted() == Numbers::Enough {
                break;
            }
        }
        if self.is_settled() {
            self.count_reconnect();
            self.tell_state();
        }
        true
    }

    /// As [`look`](Self::look), and waits until no queue is being connected.
    #[cfg(test)]
    pub(crate) fn settle(&mut self) {
        self.look();
        while let Some(joined) = self.joins.wait() {
            self.take_joined(joined);
            self.look();
        }
    }

    /// True if each queue is connected or rejected.
    fn is_settled(&self) -> bool {
        let is_known = |place: &Place| matches!(place.seat, Seat::Refused | Seat::Taken(_));
        self.active.is_none() || self.places.iter().all(is_known)
    }

    /// Executes all requests; returns false if no handle is left.
    fn hear(&mut self) -> bool {
        loop {
            match self.inbox.next() {
                Ok(request) => self.take(request),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    pub(crate) fn take(&mut self, request: Request) {
        match request {
            Request::Open(port) => self.places.push(Place { seat: Seat::Wanted, port }),
            Request::Close(id) => self.places.retain(|place| place.port.id != id),
            Request::Lost(association, reason) => {
                let used = self.uses.iter().find(|used| used.life.number == association);
                if let Some(&Use { path, session, .. }) = used {
                    self.condemn(path, session, reason);
                }
            }
            Request::Add(path, thread) => {
                // The path failed before its thread was known.
                for (_, order) in self.condemned.iter().filter(|(id, _)| *id == path) {
                    thread.ask(*order);
                }
                self.threads.push((path, thread));
            }
        }
    }

    /// Reads the states of the paths, and selects the path in use.
    fn look_at_paths(&mut self) {
        // An eventfd that was not written to is not readable.
        let _ = rustix::io::read(&self.shared.news, &mut [0; 8]);
        // The read precedes the checks, so that later changes are seen in the next pass.
        while let Some(joined) = self.joins.next() {
            self.take_joined(joined);
        }
        self.end_uses();
        self.renew_facts();
        self.refuse_others();
        self.leave_taken_over();
        self.poor.retain(|(_, until)| Instant::now() < *until);
        let candidates = self.candidates();
        let lately = self.turned.elapsed() < STAY_TIME_MIN;
        let used = self.active.as_ref().map(|active| Used { path: active.path, lately });
        let chosen = choose(&candidates, used);
        if let Some(path) = chosen.filter(|_| chosen != used.map(|used| used.path)) {
            self.begin(path);
        }
        self.dismiss();
    }

    /// Publishes the end of associations whose paths are down.
    fn end_uses(&mut self) {
        let up: Vec<u64> = {
            let paths = self.shared.paths();
            let session = |entry: &PathEntry| match entry.standing {
                Standing::Up(ref live) => Some(live.session),
                Standing::Down { .. } => None,
            };
            paths.iter().filter_map(session).collect()
        };
        self.condemned.retain(|(_, order)| up.contains(&order.session));
        if self.active.as_ref().is_some_and(|active| !up.contains(&active.session)) {
            self.stop(Reason::Closed);
        }
        let (current, count) = (self.association, self.uses.len());
        self.uses.retain(|used| {
            if !up.contains(&used.session) {
                // All commands of all queues were sent before this time.
                used.life.end(now().plus(used.settle_time));
                return false;
            }
            // A queue that no longer holds the association has left it.
            used.life.number == current || Arc::strong_count(&used.life) > 1
        });
        if self.uses.len() < count {
            self.wake_queues();
        }
    }

    /// Applies the properties of the namespace that the path in use reports, because it may have grown. Connected
    /// queues keep their properties; later queues use these.
    fn renew_facts(&mut self) {
        let Some(active) = &mut self.active else { return };
        let paths = self.shared.paths();
        let reported = paths.iter().find_map(|entry| match &entry.standing {
            Standing::Up(live) if live.session == active.session => Some(&live.facts),
            Standing::Up(_) | Standing::Down { .. } => None,
        });
        if let Some(facts) = reported.filter(|facts| **facts != *active.facts) {
            active.facts = Arc::new(facts.clone());
            self.shared.promise().tell(facts);
            self.shared.facts().clone_from(facts);
        }
    }

    fn wake_queues(&self) {
        for place in &self.places {
            place.port.wake();
        }
    }

    /// Ends paths to another namespace, or to another instance, than the one in use.
    fn refuse_others(&mut self) {
        let Some(active) = &self.active else { return };
        let facts = self.shared.facts().clone();
        let paths = self.shared.paths();
        let other = paths.iter().filter(|entry| entry.id != active.path);
        let strange = other.filter_map(|entry| match &entry.standing {
            Standing::Up(live) if !are_one(&facts, &live.facts) => Some((entry.id, live.session)),
            Standing::Up(_) | Standing::Down { .. } => None,
        });
        let strange: Vec<_> = strange.collect();
        drop(paths);
        for (path, session) in strange {
            self.condemn(path, session, Reason::OtherInstance);
        }
    }

    /// Ends every path to a drive that another host may have written to.
    fn leave_taken_over(&mut self) {
        if !self.shared.is_taken_over() {
            return;
        }
        let paths = self.shared.paths();
        let up = paths.iter().filter_map(|entry| match &entry.standing {
            Standing::Up(live) => Some((entry.id, live.session)),
            Standing::Down { .. } => None,
        });
        let up: Vec<_> = up.collect();
        drop(paths);
        for (path, session) in up {
            self.condemn(path, session, Reason::TakenOver);
        }
    }

    /// The paths that can be selected.
    fn candidates(&self) -> Vec<PathCandidate> {
        let used = self.shared.facts().clone();
        let paths = self.shared.paths();
        // A path that is to be removed may stay in use, but is not selected again.
        let is_used = |entry: &PathEntry| self.active.as_ref().is_some_and(|a| a.path == entry.id);
        let is_open = |entry: &PathEntry| !entry.leaving || is_used(entry);
        let candidate = |entry: &PathEntry| match &entry.standing {
            Standing::Up(live) if is_open(entry) && !self.is_condemned(live.session) => {
                Some(PathCandidate {
                    path: entry.id,
                    access: live.facts.access,
                    leaving: entry.leaving,
                    poor: self.poor.iter().any(|(path, _)| *path == entry.id),
                    shares_cache: share_cache(&used, &live.facts),
                })
            }
            Standing::Up(_) | Standing::Down { .. } => None,
        };
        paths.iter().filter_map(candidate).collect()
    }

    fn is_condemned(&self, session: u64) -> bool {
        self.condemned.iter().any(|(_, order)| order.session == session)
    }

    /// Orders a path to end its association.
    fn condemn(&mut self, path: PathId, session: u64, reason: Reason) {
        if self.is_condemned(session) {
            return;
        }
        self.shared.note_loss(reason);
        let order = GiveUp { session, reason };
        self.condemned.push((path, order));
        for used in self.uses.iter().filter(|used| used.session == session) {
            used.life.condemn();
        }
        if self.active.as_ref().is_some_and(|active| active.session == session) {
            self.stop(reason);
        }
        if let Some((_, thread)) = self.threads.iter().find(|(id, _)| *id == path) {
            thread.ask(order);
        }
    }

    /// Stops the use of the association, for this reason unless the path reports a more specific one.
    fn stop(&mut self, reason: Reason) {
        self.active = None;
        *self.shared.state_lock() = LinkState::Down(reason, 0);
        for entry in self.shared.paths().iter_mut() {
            entry.used = false;
        }
        self.shared.down_at.store(now().0, Ordering::Relaxed);
        self.shared.association.store(0, Ordering::Release);
        self.shared.cache.association_ended(self.association);
        self.disconnect_queues();
    }

    /// Marks every queue as not connected to the next association.
    fn disconnect_queues(&mut self) {
        for place in &mut self.places {
            place.seat = Seat::Wanted;
            place.port.offer(None);
        }
    }

    /// Selects `path` for new commands.
    fn begin(&mut self, path: PathId) {
        let Some(Live { session, gate, facts }) = self.live(path) else { return };
        // The path may have come up before the users saw the current properties.
        let kept = self.shared.promise().check(&facts);
        if let Err(reason) = kept {
            return self.condemn(path, session, reason);
        }
        self.shared.promise().tell(&facts);
        self.turn_to(path);
        let follows_loss = self.active.is_none() && self.association > 0;
        let was = std::mem::replace(&mut *self.shared.facts(), facts.clone());
        self.association += 1;
        let instance = match self.association {
            1 => Instance::Same,
            _ => Instance::of(was.instance, facts.instance),
        };
        self.shared.cache.association_began(self.association, instance);
        self.shared.queues_granted.store(gate.queues, Ordering::Relaxed);
        let life = Life::new(self.association);
        self.uses.push(Use { path, session, life, settle_time: facts.settle_time });
        let facts = Arc::new(facts);
        self.active = Some(Active { path, session, gate, facts, uncounted: follows_loss });
        (self.last, self.turned) = (Some(path), Instant::now());
        self.shared.association.store(self.association, Ordering::Release);
        self.disconnect_queues();
        self.shared.down_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// Counts an association that follows a lost one, after its queues are connected.
    fn count_reconnect(&mut self) {
        if let Some(active) = &mut self.active
            && std::mem::take(&mut active.uncounted)
        {
            self.shared.reconnects.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The resources of a path, if it is up.
    fn live(&self, path: PathId) -> Option<Live> {
        let paths = self.shared.paths();
        match &paths.iter().find(|entry| entry.id == path)?.standing {
            Standing::Up(live) => Some(Live::clone(live)),
            Standing::Down { .. } => None,
        }
    }

    /// Marks a path as in use.
    fn turn_to(&self, path: PathId) {
        for entry in self.shared.paths().iter_mut() {
            entry.used = entry.id == path;
            entry.turns += u64::from(entry.used);
        }
    }

    /// A free queue ID, other than that of the last closed queue, which the target may not have detected yet.
    fn free_number(&self) -> Option<u16> {
        let granted = self.shared.queues_granted.load(Ordering::Relaxed).max(1) as u16;
        let has = |place: &Place, number| match place.seat {
            Seat::Taken(its) | Seat::Joining(its, _) => its == number,
            Seat::Wanted | Seat::Refused | Seat::Again => false,
        };
        let taken = |number| self.places.iter().any(|place| has(place, number));
        let after = |step| (self.last_number + step) % granted + 1;
        (0..granted).map(after).find(|&number| !taken(number))
    }

    /// Schedules another attempt for rejected queues.
    fn want_refused(&mut self) {
        for place in self.places.iter_mut().filter(|place| place.seat == Seat::Refused) {
            place.seat = Seat::Again;
        }
    }

    /// Connects the waiting queues. If there are too few queue IDs, another path may be better.
    fn connect_wanted(&mut self) -> Numbers {
        let mut numbers = Numbers::Enough;
        for at in 0..self.places.len() {
            let tried = match self.places[at].seat {
                Seat::Wanted => Try::First,
                Seat::Again => Try::Another,
                Seat::Refused | Seat::Joining(..) | Seat::Taken(_) => continue,
            };
            let (Some(active), Some(used)) = (&self.active, self.uses.last()) else { break };
            if !self.joins.has_room() {
                break;
            }
            let path = active.path;
            let Some(number) = self.free_number() else {
                self.refuse(at, tried, path);
                numbers = Numbers::Lack;
                continue;
            };
            let join = Join {
                queue: self.places[at].port.id,
                number,
                gate: active.gate.clone(),
                host: self.shared.host(),
                life: Arc::clone(&used.life),
                facts: Arc::clone(&active.facts),
            };
            self.last_number = number;
            match self.joins.begin(join, &self.shared) {
                Ok(()) => self.places[at].seat = Seat::Joining(number, tried),
                // No thread could be created.
                Err(_) => self.refuse(at, tried, path),
            }
        }
        numbers
    }

    /// Leaves a queue without a connection for now: the other queues work without it.
    fn refuse(&mut self, at: usize, tried: Try, path: PathId) {
        self.places[at].seat = Seat::Refused;
        if tried == Try::Another {
            self.is_poor(path);
        }
    }

    /// Processes the result of a connect. A result for another association is discarded.
    fn take_joined(&mut self, joined: Joined) {
        let Joined { association, queue, number, link } = joined;
        let Some(&Active { path, session, .. }) = self.active.as_ref() else { return };
        if association != self.association {
            return;
        }
        let known = self.places.iter().position(|place| place.port.id == queue);
        let seat = known.map(|at| (at, self.places[at].seat));
        match (link, seat) {
            (Ok(link), Some((at, Seat::Joining(its, _)))) if its == number => {
                self.places[at].seat = Seat::Taken(number);
                self.places[at].port.offer(Some(link));
            }
            (Err(reason), _) if !reason.is_of_one_connection() => {
                self.is_poor(path);
                self.condemn(path, session, reason);
            }
            (Err(_), Some((at, Seat::Joining(its, tried)))) if its == number => {
                self.refuse(at, tried, path);
            }
            // The queue was closed meanwhile.
            (Ok(_) | Err(_), _) => {}
        }
        if self.places.iter().all(|place| matches!(place.seat, Seat::Taken(_))) {
            self.poor.retain(|(id, _)| *id != path);
        }
    }

    /// Records that a path did not connect a queue.
    fn is_poor(&mut self, path: PathId) {
        self.poor.retain(|(id, _)| *id != path);
        self.poor.push((path, Instant::now() + POOR_TIME));
    }

    /// Removes leaving paths when no queue uses them, or after `LEAVE_TIME_MAX`.
    fn dismiss(&mut self) {
        let used = self.active.as_ref().map(|active| active.path);
        let waits = |path| self.uses.iter().any(|u| u.path == path);
        let leaving: Vec<_> = self
            .shared
            .paths()
            .iter()
            .filter(|entry| entry.leaving && Some(entry.id) != used)
            .filter(|entry| !waits(entry.id) || now().since(entry.since) >= nanos(LEAVE_TIME_MAX))
            .map(|entry| entry.id)
            .collect();
        self.threads.retain(|(id, _)| !leaving.contains(id));
    }

    /// Publishes the connection state of the device.
    fn tell_state(&self) {
        let state = match (&self.active, self.last) {
            (Some(_), _) => LinkState::Up,
            (None, last) => {
                let paths = self.shared.paths();
                let entry = paths.iter().find(|entry| Some(entry.id) == last);
                match entry.or(paths.first()).map(|entry| &entry.standing) {
                    Some(Standing::Down { reason: Some(reason), tries }) => {
                        LinkState::Down(*reason, *tries)
                    }
                    // The path was ordered to end, and the state has the reason.
                    Some(_) | None => return,
                }
            }
        };
        *self.shared.state_lock() = state;
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos(span.as_nanos() as u64)
}

#[cfg(test)]
pub(crate) mod tests;
