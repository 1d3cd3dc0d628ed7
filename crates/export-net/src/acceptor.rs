//! The acceptor: a control thread that accepts connections and negotiates with their peers, so that data cores do
//! neither.

use crate::failed_handshakes::FailedHandshakes;
use crate::limits::{
    ACCEPTS_PER_ROUND, REFUSALS_UNTIL_REST, REST, REST_AFTER_REFUSALS, UNDISTURBED_TIME,
};
use crate::peer::Peer;
use crate::place::place_of;
use crate::protocol::{AcceptedConnection, Listener, Next, Protocol, Step};
use crate::service::{Lane, Setup, Ticket};
use crate::session_poller::Order;
use crate::step_worker::{StepJob, StepResult, StepWorker, Stepped};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use strake_reactor::monotonic;
use strake_tls::{Input, Received, WireError};
use strake_units::Nanos;

/// One end of a channel whose only message is "stop".
pub(crate) struct Stop(Arc<OwnedFd>);

impl Stop {
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let event = Arc::new(event);
        Ok((Self(Arc::clone(&event)), Self(event)))
    }

    /// Sends the message.
    pub(crate) fn stop(&self) {
        // The write fails only if the counter is full, and then the message was sent before.
        let _ = rustix::io::write(self.0.as_fd(), &1_u64.to_ne_bytes());
    }
}

/// A peer whose negotiation has not finished.
struct Candidate<P: Protocol> {
    /// The identity of the candidate, which also shows the worker that it still exists.
    id: Arc<()>,
    peer: Peer,
    ticket: Ticket,
    handshake: Progress<P>,
    out: Vec<u8>,
    /// The number of sent bytes of `out`.
    sent: usize,
    /// The address, as far as it distinguishes peers; `None` on a unix socket.
    place: Option<IpAddr>,
    /// The time of the accept.
    since: Nanos,
    /// The time limit of the whole negotiation.
    deadline: Nanos,
    /// The time limit of the current part, if it has one.
    part_deadline: Option<Nanos>,
    ending: Ending,
    /// The last step took nothing, and would take nothing again without more input.
    needs_input: bool,
}

/// The negotiation with a candidate.
enum Progress<P: Protocol> {
    Here(P::Handshake),
    /// The worker executes a step.
    AtWorker,
    /// The worker has executed this step.
    Stepped(P::Handshake, Step<P::Admission>),
    /// A step has panicked.
    Failed,
}

/// The action after the output of a candidate was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Continue the negotiation.
    None,
    /// Close the connection.
    Close,
}

/// The state of a candidate after a round.
enum Fate<A> {
    Waits,
    Gone,
    Served(A),
}

pub(crate) struct Acceptor<P: Protocol> {
    listener: Box<dyn Listener>,
    protocol: Arc<P>,
    lanes: Vec<Lane<P>>,
    setup: Setup,
    stopping: Stop,
    tickets: Arc<AtomicU32>,
    /// Peers that were closed because there was no ticket. Relaxed: a count orders no other access.
    turned_away: Arc<AtomicU64>,
    /// Steps and rounds that panicked. Relaxed, as above.
    panics: Arc<AtomicU64>,
    candidates: Vec<Candidate<P>>,
    worker: StepWorker<P>,
    failed_handshakes: FailedHandshakes,
    /// Peers rejected at the limit of their address since the last pause.
    refused: usize,
    /// The end of the pause in accepting.
    resting: Option<Nanos>,
}

impl<P: Protocol> Acceptor<P> {
    pub(crate) fn new(
        listener: Box<dyn Listener>,
        protocol: Arc<P>,
        lanes: Vec<Lane<P>>,
        setup: Setup,
        stopping: Stop,
        worker: StepWorker<P>,
    ) -> Self {
        let tickets = Arc::new(AtomicU32::new(0));
        Self {
            listener,
            protocol,
            lanes,
            setup,
            stopping,
            tickets,
            turned_away: Arc::default(),
            panics: Arc::default(),
            candidates: Vec::new(),
            worker,
            failed_handshakes: FailedHandshakes::new(
                setup.candidates_max,
                setup.failed_handshake_time,
            ),
            refused: 0,
            resting: None,
        }
    }

    /// The counter of peers that were closed because there was no ticket.
    pub(crate) fn turned_away(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.turned_away)
    }

    /// The counter of panics.
    pub(crate) fn panics(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.panics)
    }

    /// Runs until it is stopped. It then closes the candidates (CVE-2024-7409: a client that keeps its socket open
    /// while the server stops must find a closed connection, not a half-closed one).
    pub(crate) fn run(mut self) {
        // The panic hook reports a panic. Peers cause the input, so one of them must not end the service for all
        // others.
        while catch_unwind(AssertUnwindSafe(|| self.serve())).is_err() {
            self.start_over(monotonic());
        }
    }

    /// Closes every candidate after a panic, because one of them has probably caused it, and pauses.
    fn start_over(&mut self, now: Nanos) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        self.candidates.clear();
        self.resting = Some(now.plus(REST));
    }

    fn serve(&mut self) {
        while self.wait() {
            let now = monotonic();
            self.take_steps();
            // Finished candidates make room before a new peer is rejected.
            self.negotiate(now);
            if self.resting.is_none_or(|until| now >= until) {
                self.resting = None;
                self.accept(now);
            }
        }
    }

    /// Waits for an event; returns false after the stop message.
    fn wait(&self) -> bool {
        let mut fds = Vec::with_capacity(3 + self.candidates.len());
        fds.push(PollFd::new(&*self.stopping.0, PollFlags::IN));
        let accepting = if self.resting.is_none() { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::from_borrowed_fd(self.listener.socket(), accepting));
        fds.push(PollFd::from_borrowed_fd(self.worker.socket(), PollFlags::IN));
        // The socket of a candidate whose step is being executed would stay readable, or broken.
        for candidate in self.candidates.iter().filter(|candidate| !candidate.is_at_worker()) {
            let wants = if candidate.is_sending() { PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::new(&candidate.peer, wants));
        }
        let deadlines = self.candidates.iter().map(Candidate::wakes_at);
        let timeout = deadlines.chain(self.resting).min().map(|at| timespec(at.since(monotonic())));
        match poll(&mut fds, timeout.as_ref()) {
            // After an interruption, or a brief lack of memory, everything is checked again.
            Err(_) => true,
            Ok(_) => fds[0].revents().is_empty(),
        }
    }

    /// Accepts all waiting peers, and pauses after a round with too many rejections: otherwise peers that reconnect at
    /// once would keep this thread and the processor busy.
    fn accept(&mut self, now: Nanos) {
        for _ in 0..ACCEPTS_PER_ROUND {
            if self.is_full() && self.intruder(now).is_none() {
                self.resting = Some(now.plus(UNDISTURBED_TIME));
                return;
            }
            match self.listener.accept() {
                Ok(socket) => self.receive(socket, now),
                Err(Errno::AGAIN) => break,
                // There is no descriptor or memory for the accept. A failed accept must not end the service
                // (RUSTSEC-2024-0376).
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    self.resting = Some(now.plus(REST));
                    return;
                }
                // The peer has already disconnected.
                Err(_) => {}
            }
        }
        if self.refused >= REFUSALS_UNTIL_REST {
            self.refused = 0;
            self.resting = Some(now.plus(REST_AFTER_REFUSALS));
        }
    }

    /// Accepts a peer, or closes it at once if there is no room.
    fn receive(&mut self, socket: OwnedFd, now: Nanos) {
        let address = address_of(&socket);
        let place = address.map(place_of);
        if !self.has_room_for(place, now) {
            self.refused += 1;
            return;
        }
        if self.is_full()
            && let Some(intruder) = self.intruder(now)
        {
            self.give_up(intruder, now);
        }
        let ticket = Ticket::take(&self.tickets, self.setup.connections_max);
        let Some(ticket) = ticket else {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (handshake, out) = self.protocol.greet(address);
        self.candidates.push(Candidate {
            id: Arc::default(),
            peer: Peer::new(socket, Input::new(self.setup.input_bytes)),
            ticket,
            handshake: Progress::Here(handshake),
            out,
            sent: 0,
            place,
            since: now,
            deadline: now.plus(self.setup.handshake_time_max),
            part_deadline: None,
            ending: Ending::None,
            needs_input: false,
        });
    }

    const fn is_full(&self) -> bool {
        self.candidates.len() >= self.setup.candidates_max
    }

    /// True if one more peer of an address may negotiate. The limit per address keeps room for other addresses.
    fn has_room_for(&mut self, place: Option<IpAddr>, now: Nanos) -> bool {
        let Some(at) = place else { return true };
        self.count(place) + self.failed_handshakes.of(at, now)
            < self.setup.candidates_per_address_max
    }

    /// The number of negotiating peers of an address.
    fn count(&self, place: Option<IpAddr>) -> usize {
        self.candidates.iter().filter(|candidate| candidate.place == place).count()
    }

    /// The candidate that is closed if there is no room: of those that had some time, the first of the address with the
    /// most candidates. A peer on a unix socket has permission to use the socket, and is not closed.
    fn intruder(&self, now: Nanos) -> Option<usize> {
        let has_had_time = |candidate: &Candidate<P>| {
            candidate.place.is_some() && now >= candidate.since.plus(UNDISTURBED_TIME)
        };
        let all = self.candidates.iter().enumerate();
        all.filter(|(_, candidate)| has_had_time(candidate))
            .max_by_key(|(_, candidate)| (self.count(candidate.place), Reverse(candidate.since)))
            .map(|(index, _)| index)
    }

    /// Takes the steps that the worker has executed. The candidate of a step may be gone.
    fn take_steps(&mut self) {
        for Stepped { candidate, result } in self.worker.take() {
            self.panics.fetch_add(u64::from(result.is_none()), Ordering::Relaxed);
            let is_it = |known: &&mut Candidate<P>| Arc::as_ptr(&known.id) == candidate.as_ptr();
            let Some(candidate) = self.candidates.iter_mut().find(is_it) else { continue };
            match result {
                Some(StepResult { handshake, out, step }) => {
                    candidate.out = out;
                    candidate.handshake = Progress::Stepped(handshake, step);
                }
                None => candidate.handshake = Progress::Failed,
            }
        }
    }

    fn negotiate(&mut self, now: Nanos) {
        let mut index = 0;
        while let Some(candidate) = self.candidates.get_mut(index) {
            match candidate.advance(now, &*self.protocol, &mut self.worker) {
                Fate::Waits => index += 1,
                Fate::Gone => self.give_up(index, now),
                Fate::Served(admission) => {
                    let candidate = self.candidates.swap_remove(index);
                    self.hand_over(candidate, admission);
                }
            }
        }
    }

    /// Closes a peer whose negotiation failed.
    fn give_up(&mut self, index: usize, now: Nanos) {
        let gone = self.candidates.swap_remove(index);
        self.failed_handshakes.add(gone.place, now);
    }

    /// Passes a connection to the core with the fewest connections.
    fn hand_over(&self, candidate: Candidate<P>, admission: P::Admission) {
        let Candidate { mut peer, ticket, mut out, sent, .. } = candidate;
        peer.try_again();
        out.drain(..sent);
        let accepted_connection = AcceptedConnection { peer, ticket, admission, final_reply: out };
        // Relaxed: the count is a hint, and only this thread increments it.
        let lane = self.lanes.iter().min_by_key(|lane| lane.load.load(Ordering::Relaxed));
        if let Some(lane) = lane {
            lane.load.fetch_add(1, Ordering::Relaxed);
            lane.send(Order::Adopt(Box::new(accepted_connection)));
        }
    }
}

/// The address of a peer; `None` on a unix socket.
fn address_of(socket: &OwnedFd) -> Option<IpAddr> {
    let name = rustix::net::getpeername(socket).ok()??;
    SocketAddr::try_from(name).ok().map(|address| address.ip().to_canonical())
}

fn timespec(span: Nanos) -> Timespec {
    Timespec {
        tv_sec: (span.0 / Nanos::SECOND.0) as i64,
        tv_nsec: (span.0 % Nanos::SECOND.0) as i64,
    }
}

impl<P: Protocol> Candidate<P> {
    const fn is_sending(&self) -> bool {
        self.sent < self.out.len()
    }

    /// The time at which the candidate times out.
    fn due(&self) -> Nanos {
        self.part_deadline.map_or(self.deadline, |part| part.min(self.deadline))
    }

    /// The time at which the candidate continues or times out without an event of its socket.
    fn wakes_at(&self) -> Nanos {
        if self.peer.is_paused() { Nanos::default() } else { self.due() }
    }

    /// Updates the time limit of the current part.
    fn note_part(&mut self, now: Nanos, time_max: Option<Nanos>) {
        let begun = self.part_deadline;
        self.part_deadline = time_max.map(|time| begun.unwrap_or_else(|| now.plus(time)));
    }

    const fn is_at_worker(&self) -> bool {
        matches!(self.handshake, Progress::AtWorker)
    }

    fn advance(
        &mut self,
        now: Nanos,
        protocol: &P,
        worker: &mut StepWorker<P>,
    ) -> Fate<P::Admission> {
        if now >= self.due() {
            return Fate::Gone;
        }
        // No edge-triggered watch reports events of a candidate's socket, so the socket is tried each time.
        self.peer.try_again();
        self.peer.begin_turn();
        // The loop is limited by the length of a negotiation.
        loop {
            let (handshake, step) = match self.take_progress() {
                Progress::AtWorker => return Fate::Waits,
                Progress::Failed => return Fate::Gone,
                Progress::Stepped(handshake, step) => (handshake, step),
                Progress::Here(mut handshake) => {
                    // Everything is sent before the next step.
                    let sent = self.send();
                    if !sent || !self.is_sending() && self.ending == Ending::Close {
                        return Fate::Gone;
                    }
                    if self.is_sending() {
                        self.handshake = Progress::Here(handshake);
                        return Fate::Waits;
                    }
                    if self.needs_input {
                        let received = self.peer.fill();
                        self.needs_input = received.bytes() == 0;
                        self.handshake = Progress::Here(handshake);
                        match received {
                            Received::Full(_) | Received::Short(_) => continue,
                            Received::Blocked => return Fate::Waits,
                            Received::Ended | Received::Broken(_) => return Fate::Gone,
                        }
                    }
                    let input = self.peer.input().bytes();
                    if protocol.is_costly(&handshake, input) {
                        return self.submit(handshake, worker);
                    }
                    let step = protocol.step(&mut handshake, input, &mut self.out);
                    (handshake, step)
                }
            };
            let Step { taken, next } = step;
            self.needs_input = taken == 0 && matches!(next, Next::More);
            self.peer.input().consume(taken);
            self.note_part(now, protocol.part_time_max(&handshake));
            self.handshake = Progress::Here(handshake);
            match next {
                Next::More => {}
                Next::Secure(channel) => self.peer.secure(channel),
                Next::Serve(admission) => return Fate::Served(admission),
                Next::Close => self.ending = Ending::Close,
            }
        }
    }

    const fn take_progress(&mut self) -> Progress<P> {
        std::mem::replace(&mut self.handshake, Progress::AtWorker)
    }

    /// Has the worker execute the next step.
    fn submit(
        &mut self,
        handshake: P::Handshake,
        worker: &mut StepWorker<P>,
    ) -> Fate<P::Admission> {
        let (candidate, place) = (Arc::downgrade(&self.id), self.place);
        let input = self.peer.input().bytes().to_vec();
        match worker.submit(StepJob { candidate, place, handshake, input }) {
            true => Fate::Waits,
            false => Fate::Gone,
        }
    }

    /// Sends as much as the socket accepts; returns false if the socket has failed.
    fn send(&mut self) -> bool {
        while self.is_sending() {
            match self.peer.send_bytes(&self.out[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(WireError::Socket(Errno::AGAIN)) => return true,
                Err(WireError::Socket(Errno::INTR)) => {}
                Err(_) => return false,
            }
        }
        self.out.clear();
        self.sent = 0;
        true
    }
}

#[cfg(test)]
mod tests;
