//! Timeouts of candidates, with a clock that only the test moves; and, in `accepting`, the admission of candidates;
//! and, in `costly`, steps that the worker executes.

mod accepting;
mod costly;

use super::{Candidate, Ending, Fate, Progress};
use crate::connection_slots::{ConnectionSlots, Export};
use crate::peer::Peer;
use crate::protocol::{AcceptedConnection, After, Connection, CoreContext, Next, Protocol, Step};
use crate::service::Ticket;
use crate::step_worker::{StepWorker, WORKER_SUFFIX};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::convert::Infallible;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::thread;
use strake_block::DeviceError;
use strake_reactor::Sleep;
use strake_tls::Input;
use strake_units::Nanos;

const WHOLE: Nanos = Nanos(10 * Nanos::SECOND.0);
/// The name of the thread of the acceptor.
const THREAD: &str = "test";
const PART: Nanos = Nanos(5 * Nanos::SECOND.0);

/// A protocol of bytes: `(` starts a part with a limit of its own, `)` ends it, `!` ends the negotiation, `*` is costly
/// and waits for the gate, `?` is costly and panics, `%` panics, `+` is costly and waits for the byte behind it; others
/// have no effect.
#[derive(Default)]
struct Brackets {
    /// Held by a test that stops costly steps.
    gate: Mutex<()>,
    /// Bytes processed by the worker.
    at_worker: Mutex<Vec<u8>>,
}

/// Whether the negotiation is in such a part.
struct Inside(bool);

impl Protocol for Brackets {
    type Handshake = Inside;
    type Admission = ();
    type Export = Nothing;
    type Connection = NoConnection;

    fn greet(self: &Arc<Self>, _: Option<IpAddr>) -> (Inside, Vec<u8>) {
        (Inside(false), Vec::new())
    }

    fn step(&self, inside: &mut Inside, input: &[u8], _: &mut Vec<u8>) -> Step<()> {
        let Some(&byte) = input.first() else { return Step { taken: 0, next: Next::More } };
        if byte == b'+' && input.len() < 2 {
            self.at_worker.lock().expect("no panic").push(byte);
            return Step { taken: 0, next: Next::More };
        }
        if thread::current().name() == Some(&format!("{THREAD}{WORKER_SUFFIX}")) {
            self.at_worker.lock().expect("no panic").push(byte);
        }
        match byte {
            b'*' => drop(self.gate.lock().expect("no panic")),
            b'?' | b'%' => panic!("a defect of the protocol"),
            _ => {}
        }
        inside.0 = byte == b'(' || inside.0 && byte != b')';
        let next = if byte == b'!' { Next::Serve(()) } else { Next::More };
        Step { taken: 1, next }
    }

    fn is_costly(&self, _: &Inside, input: &[u8]) -> bool {
        matches!(input.first(), Some(b'*' | b'?' | b'+'))
    }

    fn part_time_max(&self, inside: &Inside) -> Option<Nanos> {
        inside.0.then_some(PART)
    }

    fn open(
        self: &Arc<Self>,
        _: AcceptedConnection<()>,
        _: &CoreContext,
        _: Nanos,
    ) -> Result<NoConnection, DeviceError> {
        unreachable!("nobody is served here")
    }
}

/// An export without peers.
struct Nothing(ConnectionSlots);

impl Export for Nothing {
    fn connection_slots(&self) -> &ConnectionSlots {
        &self.0
    }
}

/// A connection type without values.
struct NoConnection(Infallible);

impl Connection for NoConnection {
    type Export = Nothing;

    fn peer(&mut self) -> &mut Peer {
        match self.0 {}
    }

    fn serves(&self, _: &Arc<Nothing>) -> bool {
        match self.0 {}
    }

    fn drain(&mut self) {
        match self.0 {}
    }

    fn turn(&mut self, _: Nanos) -> After {
        match self.0 {}
    }

    fn sleep(&self, _: &mut Sleep) {
        match self.0 {}
    }
}

/// A candidate that was accepted at time zero, and the other end of its socket.
fn candidate() -> (Candidate<Brackets>, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .expect("a pair of sockets");
    let ticket = Ticket::take(&Arc::new(AtomicU32::new(0)), 1).expect("the first");
    let candidate = Candidate {
        id: Arc::default(),
        peer: Peer::new(ours, Input::new(4096)),
        ticket,
        handshake: Progress::Here(Inside(false)),
        out: Vec::new(),
        sent: 0,
        place: None,
        since: Nanos(0),
        deadline: WHOLE,
        part_deadline: None,
        ending: Ending::None,
        needs_input: false,
    };
    (candidate, theirs)
}

/// The outcome of a peer that sends `said` at these seconds, and its timeout if it sends nothing further.
fn check(said: &[(u64, &str)], expected: Result<u64, &str>) {
    let (mut candidate, theirs) = candidate();
    let protocol = Arc::new(Brackets::default());
    let mut worker = StepWorker::new(THREAD, Arc::clone(&protocol)).expect("an event");
    for &(second, bytes) in said {
        rustix::io::write(&theirs, bytes.as_bytes()).expect("the socket takes it");
        match candidate.advance(Nanos(second * Nanos::SECOND.0), &protocol, &mut worker) {
            Fate::Waits => {}
            Fate::Gone => return assert_eq!(expected, Err("gone"), "{said:?}"),
            Fate::Served(()) => return assert_eq!(expected, Err("served"), "{said:?}"),
        }
    }
    let due = candidate.due();
    assert_eq!(expected, Ok(due.0 / Nanos::SECOND.0), "{said:?}");
    let early = candidate.advance(Nanos(due.0 - 1), &protocol, &mut worker);
    assert!(matches!(early, Fate::Waits), "{said:?}");
    assert!(matches!(candidate.advance(due, &protocol, &mut worker), Fate::Gone), "{said:?}");
}

#[test]
fn a_part_has_its_own_time_within_that_of_the_whole() {
    check(&[], Ok(10));
    check(&[(3, ".")], Ok(10));
    check(&[(0, "(")], Ok(5));
    check(&[(2, "(")], Ok(7));
    check(&[(2, "("), (6, "..")], Ok(7));
    check(&[(8, "(")], Ok(10));
    check(&[(2, "("), (6, ")")], Ok(10));
    check(&[(2, "()"), (4, "(")], Ok(9));
    check(&[(2, "("), (7, ")!")], Err("gone"));
    check(&[(9, "!")], Err("served"));
    check(&[(10, "!")], Err("gone"));
}
