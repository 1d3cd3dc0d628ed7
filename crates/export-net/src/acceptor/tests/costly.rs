//! Steps that the worker executes: other candidates continue meanwhile, and a panic closes one candidate.

use super::Brackets;
use super::accepting::{NEAR, dial, open};
use crate::acceptor::Acceptor;
use rustix::event::{PollFd, PollFlags, poll};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_units::Nanos;

const NOW: Nanos = Nanos::SECOND;

/// A candidate that has sent these bytes.
fn peer(acceptor: &mut Acceptor<Brackets>, address: SocketAddr, said: &str) -> OwnedFd {
    let socket = dial(NEAR, address);
    rustix::io::write(&socket, said.as_bytes()).expect("the socket takes it");
    acceptor.accept(NOW);
    socket
}

/// Waits until the worker has executed a step, and continues with its candidate.
fn continue_after_a_step(acceptor: &mut Acceptor<Brackets>) {
    let mut fds = [PollFd::from_borrowed_fd(acceptor.worker.socket(), PollFlags::IN)];
    poll(&mut fds, None).expect("the worker is not interrupted");
    acceptor.take_steps();
    acceptor.negotiate(NOW);
}

#[test]
fn other_candidates_continue_while_a_costly_step_is_executed() {
    let (mut acceptor, address) = open();
    let protocol = Arc::clone(&acceptor.protocol);
    let gate = protocol.gate.lock().expect("no panic");
    let _slow = peer(&mut acceptor, address, ".*.!");
    acceptor.negotiate(NOW);
    assert!(acceptor.candidates[0].is_at_worker());
    let _quick = peer(&mut acceptor, address, "..!");
    acceptor.negotiate(NOW);
    assert_eq!(acceptor.candidates.len(), 1, "the quick one has ended");
    assert!(acceptor.candidates[0].is_at_worker(), "and the slow one still waits");
    drop(gate);
    continue_after_a_step(&mut acceptor);
    assert!(acceptor.candidates.is_empty(), "it has ended too");
    assert_eq!(*protocol.at_worker.lock().expect("no panic"), b"*");
}

#[test]
fn a_step_that_panics_closes_its_candidate_only() {
    let (mut acceptor, address) = open();
    let _bad = peer(&mut acceptor, address, "?");
    let _good = peer(&mut acceptor, address, ".");
    acceptor.negotiate(NOW);
    assert_eq!(acceptor.candidates.len(), 2);
    continue_after_a_step(&mut acceptor);
    assert_eq!(acceptor.candidates.len(), 1);
    assert_eq!(acceptor.panics().load(Ordering::Relaxed), 1);
    assert!(!acceptor.candidates[0].is_at_worker());
    let _another = peer(&mut acceptor, address, "*!");
    acceptor.negotiate(NOW);
    continue_after_a_step(&mut acceptor);
    assert_eq!(acceptor.candidates.len(), 1, "the worker still works");
}

#[test]
fn a_step_of_a_closed_candidate_is_not_executed() {
    let (mut acceptor, address) = open();
    let protocol = Arc::clone(&acceptor.protocol);
    let gate = protocol.gate.lock().expect("no panic");
    let _first = peer(&mut acceptor, address, "*");
    let _second = peer(&mut acceptor, address, "*(");
    acceptor.negotiate(NOW);
    acceptor.give_up(1, NOW);
    let _third = peer(&mut acceptor, address, "*");
    acceptor.negotiate(NOW);
    drop(gate);
    continue_after_a_step(&mut acceptor);
    while acceptor.candidates.iter().any(super::Candidate::is_at_worker) {
        continue_after_a_step(&mut acceptor);
    }
    assert_eq!(*protocol.at_worker.lock().expect("no panic"), b"**");
}

/// A part of a message was once given to the worker again at each event of any other candidate.
#[test]
fn a_part_of_a_message_is_tried_once() {
    let (mut acceptor, address) = open();
    let protocol = Arc::clone(&acceptor.protocol);
    let slow = peer(&mut acceptor, address, "+");
    acceptor.negotiate(NOW);
    continue_after_a_step(&mut acceptor);
    for _ in 0..3 {
        acceptor.negotiate(NOW);
        assert!(!acceptor.candidates[0].is_at_worker(), "no byte has arrived");
    }
    assert_eq!(*protocol.at_worker.lock().expect("no panic"), b"+");
    rustix::io::write(&slow, b".!").expect("the socket takes it");
    acceptor.negotiate(NOW);
    assert!(acceptor.candidates[0].is_at_worker());
    continue_after_a_step(&mut acceptor);
    assert!(acceptor.candidates.is_empty(), "it has ended");
}
