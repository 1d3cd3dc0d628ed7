//! The transfer of a connection from the thread that created it to the queue.

use super::{Life, Link, Offer, Port, Terms};
use crate::queue::tests::facts;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use strake_nvme_tcp::Digests;

/// A connection of association `number`.
fn link(number: u64) -> Link {
    let (ours, _) = UnixStream::pair().expect("sockets");
    let terms = Terms {
        digests: Digests::default(),
        alignment: 0,
        data_bytes_max: 8192,
        in_capsule_bytes: 8192,
        window: 4,
    };
    let wire = OwnedFd::from(ours).into();
    Link { wire, number: 1, terms, life: Life::new(number), facts: Arc::new(facts()) }
}

fn taken(offer: &Offer, current: impl FnOnce() -> u64) -> Option<u64> {
    offer.take_current(current).1.map(|link| link.life.number)
}

/// A core that was delayed between its read of the current association and its read of the offer took the connection of
/// the next association for an old one and closed it. This was not detected, so the queue never got another one.
#[test]
fn a_connection_that_comes_during_the_look_is_not_dropped() {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor");
    let offer = Arc::new(Offer::default());
    let port = Port { id: 1, offer: Arc::clone(&offer), wake: Arc::new(wake) };
    let meanwhile = || {
        port.offer(Some(link(6)));
        5
    };
    assert_eq!(taken(&offer, meanwhile), None);
    assert_eq!(taken(&offer, || 6), Some(6), "it is still there");
    port.offer(Some(link(6)));
    assert_eq!(taken(&offer, || 7), None, "one that is over is of no use");
    assert_eq!(taken(&offer, || 6), None, "and closed");
}
