//! Timeouts of candidates, with a clock that only the test moves; and, in `accepting`, the admission of candidates.

mod accepting;

use super::{Candidate, Ending, Fate};
use crate::connection_slots::{ConnectionSlots, Export};
use crate::peer::Peer;
use crate::protocol::{AcceptedConnection, After, Connection, CoreContext, Next, Protocol, Step};
use crate::service::Ticket;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::convert::Infallible;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use strake_block::DeviceError;
use strake_reactor::Sleep;
use strake_tls::Input;
use strake_units::Nanos;

const WHOLE: Nanos = Nanos(10 * Nanos::SECOND.0);
const PART: Nanos = Nanos(5 * Nanos::SECOND.0);

/// A protocol of bytes: `(` starts a part with a limit of its own, `)` ends it, `!` ends the negotiation; others have
/// no effect.
struct Brackets;

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
        inside.0 = byte == b'(' || inside.0 && byte != b')';
        let next = if byte == b'!' { Next::Serve(()) } else { Next::More };
        Step { taken: 1, next }
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
        peer: Peer::new(ours, Input::new(4096)),
        ticket,
        handshake: Inside(false),
        out: Vec::new(),
        sent: 0,
        place: None,
        since: Nanos(0),
        deadline: WHOLE,
        part_deadline: None,
        ending: Ending::None,
    };
    (candidate, theirs)
}

/// The outcome of a peer that sends `said` at these seconds, and its timeout if it sends nothing further.
fn check(said: &[(u64, &str)], expected: Result<u64, &str>) {
    let (mut candidate, theirs) = candidate();
    for &(second, bytes) in said {
        rustix::io::write(&theirs, bytes.as_bytes()).expect("the socket takes it");
        match candidate.advance(Nanos(second * Nanos::SECOND.0), &Brackets) {
            Fate::Waits => {}
            Fate::Gone => return assert_eq!(expected, Err("gone"), "{said:?}"),
            Fate::Served(()) => return assert_eq!(expected, Err("served"), "{said:?}"),
        }
    }
    let due = candidate.due();
    assert_eq!(expected, Ok(due.0 / Nanos::SECOND.0), "{said:?}");
    assert!(matches!(candidate.advance(Nanos(due.0 - 1), &Brackets), Fate::Waits), "{said:?}");
    assert!(matches!(candidate.advance(due, &Brackets), Fate::Gone), "{said:?}");
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
