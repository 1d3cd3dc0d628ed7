//! The control thread that accepts connections and takes them up to their Connect command, so that nothing of either
//! happens on a data core.

use crate::connection::Newcomer;
use crate::handshake::{Agreement, Handshake, Next};
use crate::input::{Input, Received};
use crate::limits::CANDIDATES_MAX;
use crate::registry::{Admission, Registry};
use crate::station::Order;
use crate::target::{Lane, TargetConfig, Ticket};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, sockopt};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use strake_reactor::monotonic;
use strake_units::Nanos;

/// How long accepting rests when the machine has no file descriptor left: the condition stays readable, so trying at
/// once would spin.
const REST: Nanos = Nanos(100 * Nanos::MILLI.0);

/// Connections accepted between two looks at those already there.
const ACCEPTS_PER_ROUND: usize = 16;

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

/// A connection without a queue yet.
struct Candidate {
    socket: OwnedFd,
    ticket: Ticket,
    handshake: Handshake,
    input: Input,
    out: Vec<u8>,
    /// Bytes of `out` sent.
    sent: usize,
    deadline: Nanos,
    ending: Ending,
}

/// What to do with a candidate once what is due to it is sent.
enum Ending {
    /// Go on.
    None,
    /// Disconnect it.
    Close,
    /// Hand it to a data core.
    Serve(Admission, Agreement, Vec<u8>),
}

/// What became of a candidate in a round.
enum Fate {
    Waits,
    Gone,
    Served(Admission, Agreement, Vec<u8>),
}

pub(crate) struct Lobby {
    listener: OwnedFd,
    registry: Arc<Registry>,
    lanes: Vec<Lane>,
    config: TargetConfig,
    stopping: Stop,
    tickets: Arc<AtomicU32>,
    candidates: Vec<Candidate>,
    /// Until when nobody is accepted.
    resting: Option<Nanos>,
}

impl Lobby {
    pub(crate) fn new(
        listener: OwnedFd,
        registry: Arc<Registry>,
        lanes: Vec<Lane>,
        config: TargetConfig,
        stopping: Stop,
    ) -> Self {
        let tickets = Arc::new(AtomicU32::new(0));
        let candidates = Vec::new();
        Self { listener, registry, lanes, config, stopping, tickets, candidates, resting: None }
    }

    /// Runs until told to stop; candidates are disconnected then.
    pub(crate) fn run(mut self) {
        while self.wait() {
            let now = monotonic();
            if self.resting.is_none_or(|until| now >= until) {
                self.resting = None;
                self.accept(now);
            }
            self.negotiate(now);
        }
    }

    /// Waits for something to do; false when that is to stop.
    fn wait(&self) -> bool {
        let mut fds = Vec::with_capacity(2 + self.candidates.len());
        fds.push(PollFd::new(&*self.stopping.0, PollFlags::IN));
        let room = self.candidates.len() < CANDIDATES_MAX && self.resting.is_none();
        let accepting = if room { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::new(&self.listener, accepting));
        for candidate in &self.candidates {
            let wants = if candidate.is_sending() { PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::new(&candidate.socket, wants));
        }
        let deadlines = self.candidates.iter().map(|candidate| candidate.deadline);
        let timeout = deadlines.chain(self.resting).min().map(|at| timespec(at.since(monotonic())));
        match poll(&mut fds, timeout.as_ref()) {
            // Interrupted, or out of memory for a moment: look at everything again.
            Err(_) => true,
            Ok(_) => fds[0].revents().is_empty(),
        }
    }

    fn accept(&mut self, now: Nanos) {
        for _ in 0..ACCEPTS_PER_ROUND {
            if self.candidates.len() >= CANDIDATES_MAX {
                return;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => {
                    // A connection too many is closed at once rather than left to wonder.
                    let ticket = Ticket::take(&self.tickets, self.config.connections_max);
                    let Some(ticket) = ticket else { continue };
                    // What is sent is sent whole, so waiting to fill a segment would only delay it; and a host whose
                    // machine vanished is noticed in the end. Neither is worth refusing a host over.
                    let _ = sockopt::set_tcp_nodelay(&socket, true);
                    let _ = sockopt::set_socket_keepalive(&socket, true);
                    let deadline = now.plus(self.config.handshake_time_max);
                    self.candidates.push(Candidate::new(socket, ticket, deadline));
                }
                Err(Errno::AGAIN) => return,
                // No descriptor or memory to accept with. One failed accept is never the end of the target.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    self.resting = Some(now.plus(REST));
                    return;
                }
                // That host is gone already.
                Err(_) => {}
            }
        }
    }

    fn negotiate(&mut self, now: Nanos) {
        let mut index = 0;
        while let Some(candidate) = self.candidates.get_mut(index) {
            match candidate.advance(now, &self.registry) {
                Fate::Waits => index += 1,
                Fate::Gone => drop(self.candidates.swap_remove(index)),
                Fate::Served(admission, agreement, farewell) => {
                    let candidate = self.candidates.swap_remove(index);
                    self.hand_over(candidate, admission, agreement, farewell);
                }
            }
        }
    }

    /// Sends a connection to the core with the fewest.
    fn hand_over(
        &self,
        candidate: Candidate,
        admission: Admission,
        agreement: Agreement,
        farewell: Vec<u8>,
    ) {
        let Candidate { socket, ticket, input, .. } = candidate;
        let newcomer = Newcomer { socket, ticket, input, admission, agreement, farewell };
        // Relaxed: a hint, and only this thread counts up.
        let lane = self.lanes.iter().min_by_key(|lane| lane.load.load(Ordering::Relaxed));
        if let Some(lane) = lane {
            lane.load.fetch_add(1, Ordering::Relaxed);
            lane.send(Order::Adopt(Box::new(newcomer)));
        }
    }
}

fn timespec(span: Nanos) -> Timespec {
    Timespec {
        tv_sec: (span.0 / Nanos::SECOND.0) as i64,
        tv_nsec: (span.0 % Nanos::SECOND.0) as i64,
    }
}

impl Candidate {
    fn new(socket: OwnedFd, ticket: Ticket, deadline: Nanos) -> Self {
        Self {
            socket,
            ticket,
            handshake: Handshake::default(),
            input: Input::new(),
            out: Vec::new(),
            sent: 0,
            deadline,
            ending: Ending::None,
        }
    }

    const fn is_sending(&self) -> bool {
        self.sent < self.out.len()
    }

    fn advance(&mut self, now: Nanos, registry: &Registry) -> Fate {
        if now >= self.deadline {
            return Fate::Gone;
        }
        // Bounded: two PDUs at most are answered, and each pass takes one or receives more.
        loop {
            if !self.send() {
                return Fate::Gone;
            }
            if self.is_sending() {
                return Fate::Waits;
            }
            match std::mem::replace(&mut self.ending, Ending::None) {
                Ending::None => {}
                Ending::Close => return Fate::Gone,
                Ending::Serve(admission, agreement, farewell) => {
                    return Fate::Served(admission, agreement, farewell);
                }
            }
            let step = self.handshake.step(self.input.bytes(), registry, &mut self.out);
            self.input.consume(step.taken);
            match step.next {
                Next::More if step.taken > 0 => {}
                Next::More => match self.input.fill(self.socket.as_fd()) {
                    Received::Full(_) | Received::Short(_) => {}
                    Received::Blocked => return Fate::Waits,
                    Received::Ended | Received::Broken => return Fate::Gone,
                },
                Next::Serve(admission, agreement, farewell) => {
                    self.ending = Ending::Serve(admission, agreement, farewell);
                }
                Next::Close => self.ending = Ending::Close,
            }
        }
    }

    /// Sends what the socket takes; false when it is broken.
    fn send(&mut self) -> bool {
        while self.is_sending() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(&self.socket, &self.out[self.sent..], flags) {
                Ok(bytes) => self.sent += bytes,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        self.out.clear();
        self.sent = 0;
        true
    }
}
