//! The control thread that accepts connections and negotiates with their peers, so that nothing of either happens on a
//! data core.

use crate::failed_handshakes::FailedHandshakes;
use crate::limits::{
    ACCEPTS_PER_ROUND, REFUSALS_UNTIL_REST, REST, REST_AFTER_REFUSALS, UNDISTURBED_TIME,
};
use crate::peer::Peer;
use crate::place::place_of;
use crate::protocol::{AcceptedConnection, Listener, Next, Protocol};
use crate::service::{Lane, Setup, Ticket};
use crate::session_poller::Order;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use strake_reactor::monotonic;
use strake_tls::{Input, Received, WireError};
use strake_units::Nanos;

/// One end of a line on which the only message is "stop".
pub(crate) struct Stop(Arc<OwnedFd>);

impl Stop {
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let event = Arc::new(event);
        Ok((Self(Arc::clone(&event)), Self(event)))
    }

    /// Says it.
    pub(crate) fn stop(&self) {
        // The only failure is a full counter, and then it was said before.
        let _ = rustix::io::write(self.0.as_fd(), &1_u64.to_ne_bytes());
    }
}

/// A peer that has not negotiated yet.
struct Candidate<P: Protocol> {
    peer: Peer,
    ticket: Ticket,
    handshake: P::Handshake,
    out: Vec<u8>,
    /// Bytes of `out` sent.
    sent: usize,
    /// Where it is, as far as peers are distinguished; `None` on a unix socket.
    place: Option<IpAddr>,
    /// When it came.
    since: Nanos,
    /// Until when all of it is to be over.
    deadline: Nanos,
    /// The same of the part that it is in, if that has a bound of its own.
    part_deadline: Option<Nanos>,
    ending: Ending,
}

/// What to do with a candidate once what is due to it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Go on negotiating.
    None,
    /// Disconnect it.
    Close,
}

/// The outcome of a candidate in a round.
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
    /// Peers for whom there was no ticket. Relaxed: a count orders nothing.
    turned_away: Arc<AtomicU64>,
    candidates: Vec<Candidate<P>>,
    failed_handshakes: FailedHandshakes,
    /// Peers refused for want of room for their address since the last rest.
    refused: usize,
    /// Until when no peer is accepted.
    resting: Option<Nanos>,
}

impl<P: Protocol> Acceptor<P> {
    pub(crate) fn new(
        listener: Box<dyn Listener>,
        protocol: Arc<P>,
        lanes: Vec<Lane<P>>,
        setup: Setup,
        stopping: Stop,
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
            candidates: Vec::new(),
            failed_handshakes: FailedHandshakes::new(
                setup.candidates_max,
                setup.failed_handshake_time,
            ),
            refused: 0,
            resting: None,
        }
    }

    /// Counts peers for whom there was no ticket.
    pub(crate) fn turned_away(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.turned_away)
    }

    /// Runs until it is stopped. Candidates are disconnected then (CVE-2024-7409: a client that keeps its socket open
    /// while the server stops finds no half-closed server, only the end).
    pub(crate) fn run(mut self) {
        while self.wait() {
            let now = monotonic();
            // Candidates that have gone make room before a peer is turned away for want of it.
            self.negotiate(now);
            if self.resting.is_none_or(|until| now >= until) {
                self.resting = None;
                self.accept(now);
            }
        }
    }

    /// Waits for something to do; false when that is to stop.
    fn wait(&self) -> bool {
        let mut fds = Vec::with_capacity(2 + self.candidates.len());
        fds.push(PollFd::new(&*self.stopping.0, PollFlags::IN));
        let accepting = if self.resting.is_none() { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::from_borrowed_fd(self.listener.socket(), accepting));
        for candidate in &self.candidates {
            let wants = if candidate.is_sending() { PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::new(&candidate.peer, wants));
        }
        let deadlines = self.candidates.iter().map(Candidate::due);
        let timeout = deadlines.chain(self.resting).min().map(|at| timespec(at.since(monotonic())));
        match poll(&mut fds, timeout.as_ref()) {
            // Interrupted, or out of memory briefly: look at everything again.
            Err(_) => true,
            Ok(_) => fds[0].revents().is_empty(),
        }
    }

    /// Takes all waiting peers, and rests after a round in which too many were turned away: peers that come again at
    /// once would keep this thread, and those beside it, from anything else.
    fn accept(&mut self, now: Nanos) {
        for _ in 0..ACCEPTS_PER_ROUND {
            if self.is_full() && self.intruder(now).is_none() {
                self.resting = Some(now.plus(UNDISTURBED_TIME));
                return;
            }
            match self.listener.accept() {
                Ok(socket) => self.receive(socket, now),
                Err(Errno::AGAIN) => break,
                // No descriptor or memory to accept with. One failed accept is never the end of the service
                // (RUSTSEC-2024-0376).
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    self.resting = Some(now.plus(REST));
                    return;
                }
                // That peer is gone already.
                Err(_) => {}
            }
        }
        if self.refused >= REFUSALS_UNTIL_REST {
            self.refused = 0;
            self.resting = Some(now.plus(REST_AFTER_REFUSALS));
        }
    }

    /// Lets a peer in, or disconnects one too many at once rather than leave it to wonder.
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
            peer: Peer::new(socket, Input::new(self.setup.input_bytes)),
            ticket,
            handshake,
            out,
            sent: 0,
            place,
            since: now,
            deadline: now.plus(self.setup.handshake_time_max),
            part_deadline: None,
            ending: Ending::None,
        });
    }

    const fn is_full(&self) -> bool {
        self.candidates.len() >= self.setup.candidates_max
    }

    /// Whether one more peer of an address may negotiate: an address that only ever begins keeps no other out.
    fn has_room_for(&mut self, place: Option<IpAddr>, now: Nanos) -> bool {
        let Some(at) = place else { return true };
        self.count(place) + self.failed_handshakes.of(at, now)
            < self.setup.candidates_per_address_max
    }

    /// Peers of an address that negotiate.
    fn count(&self, place: Option<IpAddr>) -> usize {
        self.candidates.iter().filter(|candidate| candidate.place == place).count()
    }

    /// Who gives way when there is no room: of those that had some time, the first of the address that has the most. A
    /// peer that came through a unix socket may use it, and is waited for.
    fn intruder(&self, now: Nanos) -> Option<usize> {
        let has_had_time = |candidate: &Candidate<P>| {
            candidate.place.is_some() && now >= candidate.since.plus(UNDISTURBED_TIME)
        };
        let all = self.candidates.iter().enumerate();
        all.filter(|(_, candidate)| has_had_time(candidate))
            .max_by_key(|(_, candidate)| (self.count(candidate.place), Reverse(candidate.since)))
            .map(|(index, _)| index)
    }

    fn negotiate(&mut self, now: Nanos) {
        let mut index = 0;
        while let Some(candidate) = self.candidates.get_mut(index) {
            match candidate.advance(now, &self.protocol) {
                Fate::Waits => index += 1,
                Fate::Gone => self.give_up(index, now),
                Fate::Served(admission) => {
                    let candidate = self.candidates.swap_remove(index);
                    self.hand_over(candidate, admission);
                }
            }
        }
    }

    /// Disconnects a peer whose negotiation came to nothing.
    fn give_up(&mut self, index: usize, now: Nanos) {
        let gone = self.candidates.swap_remove(index);
        self.failed_handshakes.add(gone.place, now);
    }

    /// Sends a connection to the core with the fewest.
    fn hand_over(&self, candidate: Candidate<P>, admission: P::Admission) {
        let Candidate { mut peer, ticket, mut out, sent, .. } = candidate;
        peer.try_again();
        out.drain(..sent);
        let accepted_connection = AcceptedConnection { peer, ticket, admission, final_reply: out };
        // Relaxed: a hint, and only this thread counts up.
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

    /// When it is given up.
    fn due(&self) -> Nanos {
        self.part_deadline.map_or(self.deadline, |part| part.min(self.deadline))
    }

    /// Notes how long the part may take that it is in now.
    fn note_part(&mut self, now: Nanos, time_max: Option<Nanos>) {
        let begun = self.part_deadline;
        self.part_deadline = time_max.map(|time| begun.unwrap_or_else(|| now.plus(time)));
    }

    fn advance(&mut self, now: Nanos, protocol: &P) -> Fate<P::Admission> {
        if now >= self.due() {
            return Fate::Gone;
        }
        // Nothing watches the socket of a candidate for edges, so it is tried each time.
        self.peer.try_again();
        // Bounded by what one negotiation may consist of.
        loop {
            if !self.send() {
                return Fate::Gone;
            }
            if self.is_sending() {
                return Fate::Waits;
            }
            if self.ending == Ending::Close {
                return Fate::Gone;
            }
            let input = self.peer.input();
            let step = protocol.step(&mut self.handshake, input.bytes(), &mut self.out);
            input.consume(step.taken);
            self.note_part(now, protocol.part_time_max(&self.handshake));
            match step.next {
                Next::More if step.taken > 0 => {}
                Next::More => match self.peer.fill() {
                    Received::Full(_) | Received::Short(_) => {}
                    Received::Blocked => return Fate::Waits,
                    Received::Ended | Received::Broken(_) => return Fate::Gone,
                },
                Next::Secure(channel) => self.peer.secure(channel),
                Next::Serve(admission) => return Fate::Served(admission),
                Next::Close => self.ending = Ending::Close,
            }
        }
    }

    /// Sends what the socket takes; false when it is broken.
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
