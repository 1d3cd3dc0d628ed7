//! Admission of peers without a thread: successive rounds of accepts, for connections that were made before.

use super::{Brackets, THREAD};
use crate::acceptor::{Acceptor, Stop};
use crate::limits::{BACKLOG, REFUSALS_UNTIL_REST, REST_AFTER_REFUSALS, UNDISTURBED_TIME};
use crate::protocol::Listener;
use crate::service::Setup;
use crate::step_worker::StepWorker;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use strake_units::Nanos;

pub(super) const NEAR: Ipv4Addr = Ipv4Addr::LOCALHOST;
const FAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const PER_ADDRESS: usize = 4;
const CANDIDATES: usize = 6;

struct Port(TcpListener);

impl Listener for Port {
    fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn accept(&self) -> Result<OwnedFd, Errno> {
        let accepted = self.0.accept();
        accepted
            .map(|(socket, _)| socket.into())
            .map_err(|error| Errno::from_io_error(&error).expect("an error of the system"))
    }
}

/// An acceptor and its address.
pub(super) fn open() -> (Acceptor<Brackets>, SocketAddr) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from((NEAR, 0))).expect("a port is free");
    rustix::net::listen(&socket, BACKLOG).expect("it is bound");
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true).expect("it can be set");
    let address = listener.local_addr().expect("it is bound");
    let setup = Setup {
        thread: THREAD,
        peers: "nobody",
        connections_max: 100,
        candidates_max: CANDIDATES,
        candidates_per_address_max: PER_ADDRESS,
        failed_handshake_time: Nanos::SECOND,
        handshake_time_max: Nanos::SECOND.times(100),
        input_bytes: 64,
        stock: None,
    };
    let (_, stopping) = Stop::pair().expect("an event");
    let port = Box::new(Port(listener));
    let protocol = Arc::new(Brackets::default());
    let worker = StepWorker::new(THREAD, Arc::clone(&protocol)).expect("an event");
    (Acceptor::new(port, protocol, Vec::new(), setup, stopping, worker), address)
}

/// A panic of the acceptor once ended its thread, and with it every later connection.
#[test]
fn the_acceptor_continues_after_a_panic() {
    let (mut acceptor, address) = open();
    let (stop, stopping) = Stop::pair().expect("an event");
    acceptor.stopping = stopping;
    let panics = acceptor.panics();
    let running = thread::spawn(move || acceptor.run());
    let bad = dial(NEAR, address);
    rustix::io::write(&bad, b"%").expect("the socket takes it");
    assert_eq!(rustix::io::read(&bad, &mut [0]), Ok(0), "it is closed");
    let good = dial(NEAR, address);
    rustix::io::write(&good, b"..!").expect("the socket takes it");
    assert_eq!(
        rustix::io::read(&good, &mut [0]),
        Ok(0),
        "it was negotiated, and no core serves it"
    );
    assert_eq!(panics.load(Ordering::Relaxed), 1);
    stop.stop();
    running.join().expect("it ends without a panic");
}

/// A connection from `from`, which waits for the accept whether it is dropped or not.
pub(super) fn dial(from: Ipv4Addr, to: SocketAddr) -> OwnedFd {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from((from, 0))).expect("all of 127.0.0.0/8 is here");
    connect(&socket, &to).expect("somebody listens");
    socket
}

/// The number of negotiating peers of an address.
fn inside(acceptor: &Acceptor<Brackets>, address: Ipv4Addr) -> usize {
    acceptor.count(Some(address.into()))
}

/// A flood from one address once filled the backlog: four of its connections were rejected ten times a second, and a
/// peer behind a hundred of them waited for seconds.
#[test]
fn a_host_behind_a_flood_is_accepted_in_the_next_round() {
    let (mut acceptor, address) = open();
    for _ in 0..BACKLOG - 1 {
        drop(dial(FAR, address));
    }
    let _host = dial(NEAR, address);
    let now = Nanos::SECOND;
    acceptor.accept(now);
    assert_eq!((inside(&acceptor, FAR), inside(&acceptor, NEAR)), (PER_ADDRESS, 1));
    assert_eq!(acceptor.resting, Some(now.plus(REST_AFTER_REFUSALS)), "and nobody for a while");
}

#[test]
fn one_that_comes_again_and_again_brings_on_a_rest() {
    let (mut acceptor, address) = open();
    let _inside: Vec<_> = (0..PER_ADDRESS).map(|_| dial(FAR, address)).collect();
    for refused in 0..REFUSALS_UNTIL_REST {
        assert_eq!((refused, acceptor.resting), (refused, None));
        drop(dial(FAR, address));
        acceptor.accept(Nanos::SECOND);
    }
    assert!(acceptor.resting.is_some());
    assert_eq!(acceptor.refused, 0, "the count restarts after it");
}

#[test]
fn when_there_is_no_room_the_greediest_address_gives_way() {
    let (mut acceptor, address) = open();
    let others: Vec<_> = (3..).map(|last| Ipv4Addr::new(127, 0, 0, last)).take(3).collect();
    let mut came = Nanos::SECOND;
    let mut hosts = vec![dial(NEAR, address)];
    acceptor.accept(came);
    for from in [FAR, FAR, FAR, others[0], others[1]] {
        came = came.plus(Nanos(1));
        hosts.push(dial(from, address));
        acceptor.accept(came);
    }
    hosts.push(dial(others[2], address));
    let soon = Nanos::SECOND.plus(Nanos(1));
    acceptor.accept(soon);
    assert_eq!(inside(&acceptor, others[2]), 0, "all had little time yet");
    assert_eq!(acceptor.resting, Some(soon.plus(UNDISTURBED_TIME)));
    let last = acceptor.candidates.iter().filter(|one| one.place == Some(FAR.into()));
    let last: Vec<Nanos> = last.map(|one| one.since).skip(1).collect();
    let later = came.plus(UNDISTURBED_TIME);
    acceptor.accept(later);
    assert_eq!((inside(&acceptor, NEAR), inside(&acceptor, others[2])), (1, 1));
    let left = acceptor.candidates.iter().filter(|one| one.place == Some(FAR.into()));
    let mut left: Vec<Nanos> = left.map(|one| one.since).collect();
    left.sort();
    assert_eq!(left, last, "its first has gone");
    assert_eq!(acceptor.failed_handshakes.of(FAR.into(), later), 1, "which counts on for it");
}
