//! The thread that has the queues of a device connected, over the path that serves best.
//!
//! Each path has a thread of its own (`path`), which keeps an association. This one chooses among those that are up
//! (`path_selection`), has the queues connected over it, each by a thread of its own (`joins`), and tells them the
//! outcome of the associations that they have used (`Life`). It never waits for a target.
//!
//! **A change that was sent and not answered** may be executed until its association has ended and its target has
//! noticed. It would undo what comes after it if that came first (F30). So a queue sends it again only when the target
//! must have stopped (`settle_time` of what is known of it), over whichever path: then it is executed once more,
//! with the same data, before anything that was asked for after its end. Reads and flushes change nothing, and new
//! changes are not ordered with those that have not ended (the contract of [`IoQueue`](strake_block::IoQueue)), so they
//! need not wait.
//!
//! **A path that is left though its association lasts**, for a better one or because the namespace is not reached over
//! it, is left by each queue for itself, when all is answered that it sent over it. Nothing is sent again then but what
//! the target says it has not done.

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

/// What the thread is asked for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Connect a queue now, and again whenever another association is used.
    Open(Port),
    /// A queue is closed.
    Close(u64),
    /// This association can no longer be used.
    Lost(u64, Reason),
    /// A path has a thread, which is reached thus.
    Add(PathId, Asker<GiveUp>),
}

/// A queue.
struct Place {
    seat: Seat,
    port: Port,
}

/// Whether a queue is connected over what is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seat {
    /// It is to be.
    Wanted,
    /// The target did not take it, or there was no number or something else left for it. It is tried again with the
    /// next Keep Alive: the target may not have noticed yet that a queue was closed.
    Refused,
    /// It is to be, and was refused before.
    Again,
    /// It is being connected, with this number.
    Joining(u16, Try),
    /// It is, with this number at the target.
    Taken(u16),
}

/// Whether a queue was refused before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Try {
    First,
    Another,
}

/// Whether there was a number for each queue that is to be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    Enough,
    Lack,
}

/// An association over which commands may be in progress.
struct Use {
    path: PathId,
    session: u64,
    life: Arc<Life>,
    /// The time after the end of the association in which the target may still execute its commands.
    settle_time: Nanos,
}

/// The association that queues use for what comes next.
struct Active {
    path: PathId,
    session: u64,
    gate: Gate,
    facts: Arc<Facts>,
    /// It follows one that was lost, and has not been counted yet.
    uncounted: bool,
}

/// The thread's own.
pub(crate) struct PathManager {
    shared: Arc<Shared>,
    inbox: Inbox<Request>,
    /// The threads of paths. One whose asker is dropped leaves.
    threads: Vec<(PathId, Asker<GiveUp>)>,
    /// Associations that were ordered to end, and their paths.
    condemned: Vec<(PathId, GiveUp)>,
    places: Vec<Place>,
    joins: Joins,
    /// Paths over which a queue was not connected, and until when they rank behind others.
    poor: Vec<(PathId, Instant)>,
    uses: Vec<Use>,
    active: Option<Active>,
    /// The path that carries I/O, or did last.
    last: Option<PathId>,
    /// When that came to do so.
    turned: Instant,
    /// Number of the association that is used, or was last.
    association: u64,
    /// When to look at everything without being asked.
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

    /// Works until the device and all its queues are gone.
    pub(crate) fn run(mut self) {
        while self.look() {
            let patience = self.due.saturating_duration_since(Instant::now());
            self.inbox.wait(Some(self.shared.news.as_fd()), patience);
        }
    }

    /// Takes the requests, looks how the paths stand, and does what follows from it, without waiting for anything.
    /// False when no asker is left.
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

    /// The same, and waits until no queue is being connected.
    #[cfg(test)]
    pub(crate) fn settle(&mut self) {
        self.look();
        while let Some(joined) = self.joins.wait() {
            self.take_joined(joined);
            self.look();
        }
    }

    /// Whether it is known of every queue what became of it.
    fn is_settled(&self) -> bool {
        let is_known = |place: &Place| matches!(place.seat, Seat::Refused | Seat::Taken(_));
        self.active.is_none() || self.places.iter().all(is_known)
    }

    /// Takes all requests; false when no asker is left.
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
                // It was used, and turned out to be of no use, before its thread was known.
                for (_, order) in self.condemned.iter().filter(|(id, _)| *id == path) {
                    thread.ask(*order);
                }
                self.threads.push((path, thread));
            }
        }
    }

    /// Looks how the paths stand, and chooses the one that is used.
    fn look_at_paths(&mut self) {
        // An eventfd that was not written to has nothing to read.
        let _ = rustix::io::read(&self.shared.news, &mut [0; 8]);
        // After that, so that what comes later is news.
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

    /// Tells queues the outcome of associations whose paths are down.
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
                // Whatever was sent, by whichever queue, was sent before this.
                used.life.end(now().plus(used.settle_time));
                return false;
            }
            // A queue that no longer holds it has left it.
            used.life.number == current || Arc::strong_count(&used.life) > 1
        });
        if self.uses.len() < count {
            self.wake_queues();
        }
    }

    /// Takes over what the path in use reports of the namespace now, which may have grown. Queues that are connected
    /// use what they know; those that are opened from now on know this.
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

    /// Ends paths to what is another namespace, or another instance of it, than the one in use.
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

    /// The paths that can be chosen.
    fn candidates(&self) -> Vec<PathCandidate> {
        let used = self.shared.facts().clone();
        let paths = self.shared.paths();
        // A path that is to be removed is left when it can be, and not taken up again.
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

    /// Has a path end its association.
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

    /// Has queues send no more, because of this unless the path knows better.
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

    /// No queue is connected to what is used next.
    fn disconnect_queues(&mut self) {
        for place in &mut self.places {
            place.seat = Seat::Wanted;
            place.port.offer(None);
        }
    }

    /// Has queues send what comes next over `path`.
    fn begin(&mut self, path: PathId) {
        let Some(Live { session, gate, facts }) = self.live(path) else { return };
        // It may have come up when users had been promised less.
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

    /// Counts an association that follows one that was lost, once its queues are connected.
    fn count_reconnect(&mut self) {
        if let Some(active) = &mut self.active
            && std::mem::take(&mut active.uncounted)
        {
            self.shared.reconnects.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What a path is used with, if it is up.
    fn live(&self, path: PathId) -> Option<Live> {
        let paths = self.shared.paths();
        match &paths.iter().find(|entry| entry.id == path)?.standing {
            Standing::Up(live) => Some(Live::clone(live)),
            Standing::Down { .. } => None,
        }
    }

    /// Notes that a path comes to be used.
    fn turn_to(&self, path: PathId) {
        for entry in self.shared.paths().iter_mut() {
            entry.used = entry.id == path;
            entry.turns += u64::from(entry.used);
        }
    }

    /// A number that no queue has; not that of the queue that was closed last, which the target may not have noticed.
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

    /// Has the queues that the target refused be tried again.
    fn want_refused(&mut self) {
        for place in self.places.iter_mut().filter(|place| place.seat == Seat::Refused) {
            place.seat = Seat::Again;
        }
    }

    /// Has the queues connected that are to be. Where numbers lack another path may serve better.
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
                // The machine has no thread left.
                Err(_) => self.refuse(at, tried, path),
            }
        }
        numbers
    }

    /// A queue is left without a connection for now: the others are of use without it.
    fn refuse(&mut self, at: usize, tried: Try, path: PathId) {
        self.places[at].seat = Seat::Refused;
        if tried == Try::Another {
            self.is_poor(path);
        }
    }

    /// Takes note of the outcome of a queue. Whatever became of one of another association is of no use.
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
            // A closed queue takes nothing.
            (Ok(_) | Err(_), _) => {}
        }
        if self.places.iter().all(|place| matches!(place.seat, Seat::Taken(_))) {
            self.poor.retain(|(id, _)| *id != path);
        }
    }

    /// A path did not connect a queue.
    fn is_poor(&mut self, path: PathId) {
        self.poor.retain(|(id, _)| *id != path);
        self.poor.push((path, Instant::now() + POOR_TIME));
    }

    /// Releases paths that are to be removed, when no queue waits for them or `LEAVE_TIME_MAX` is over.
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

    /// Says how the device is connected.
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
                    // It was ordered to end, and the state has the reason.
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
