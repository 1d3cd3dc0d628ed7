//! Connecting to one of several addresses.

use super::{Stream, Until};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A target has an address in an unreachable network, for example of IPv6: it took all of the time, and the next
/// address was never tried.
#[test]
fn a_place_that_does_not_answer_leaves_time_for_the_next() {
    let bind = || TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let (away, here) = (bind(), bind());
    // One connection that is not accepted fills the backlog, and the kernel drops further requests.
    rustix::net::listen(&away, 0).expect("it listens already");
    let places = [&away, &here].map(|listener| listener.local_addr().expect("it has an address"));
    let _line = TcpStream::connect(places[0]).expect("there is room for one");
    let stream = Stream::open(&places, &[], Until::within(Duration::from_secs(4)));
    assert_eq!(stream.map(|stream| stream.place()).err(), None);
    assert!(Stream::open(&places[..1], &[], Until::within(Duration::from_millis(1))).is_err());
}
