//! What was received and what is to be sent, by a socket that takes little at a time.

use crate::{Input, Message, Messages, Owned, Place, Received, SendQueue, Sent, Wire};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use strake_block::{BufMut, SgMut};

struct Parts(Vec<Vec<u8>>);

impl Message for Parts {
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
}

fn pair() -> (Wire, UnixStream) {
    let (own, other) = UnixStream::pair().expect("a pair of sockets");
    own.set_nonblocking(true).expect("it can be so");
    set_socket_send_buffer_size(&own, 4096).expect("it can be small");
    (OwnedFd::from(own).into(), other)
}

#[test]
fn messages_arrive_whole_and_in_order_however_little_the_socket_takes() {
    const COUNT: usize = 100;
    let (mut wire, mut other) = pair();
    let message = |n: usize| {
        let data = (0..n * 97).map(|at| (at * 7 + n) as u8).collect();
        Parts(vec![vec![n as u8; n % 5], Vec::new(), data, vec![!(n as u8); n % 3 + 1]])
    };
    let expected: Vec<u8> = (0..COUNT).flat_map(|n| message(n).0.concat()).collect();
    let mut queue = SendQueue::new(COUNT);
    (0..COUNT).for_each(|n| queue.push(message(n)));
    let (mut heard, mut gone, mut room) = (Vec::new(), 0, [0; 1000]);
    while heard.len() < expected.len() {
        let sent = queue.send(&mut wire, 4, &mut Owned(|_: Parts| gone += 1));
        assert!(!matches!(sent, Sent::Broken(_)), "{sent:?}");
        let count = other.read(&mut room).expect("something was sent");
        heard.extend_from_slice(&room[..count]);
    }
    assert!(heard == expected);
    assert_eq!((gone, queue.is_empty()), (COUNT, true));
    assert_eq!(queue.send(&mut wire, 4, &mut Owned(|_: Parts| ())), Sent::Nothing);
}

/// Entries each of which stands for some messages, one after another.
struct Several {
    left: [usize; 3],
    messages: [Parts; 3],
}

impl Messages<usize> for Several {
    type Message = Parts;

    fn of<'a>(&'a self, entry: &'a usize) -> &'a Parts {
        &self.messages[*entry]
    }

    fn sent(&mut self, entry: usize) -> Option<usize> {
        self.left[entry] -= 1;
        self.messages[entry].0[0][0] += 10;
        (self.left[entry] > 0).then_some(entry)
    }
}

#[test]
fn what_follows_a_message_goes_behind_all_others() {
    let (mut wire, mut other) = pair();
    let messages = [0, 1, 2].map(|name| Parts(vec![vec![name]]));
    let mut several = Several { left: [3, 1, 2], messages };
    let mut queue = SendQueue::new(3);
    (0..3).for_each(|entry| queue.push(entry));
    assert_eq!(queue.send(&mut wire, 2, &mut several), Sent::Some);
    assert!(!queue.is_empty(), "more than two calls take");
    assert_eq!(queue.send(&mut wire, 2, &mut several), Sent::Some);
    assert!(queue.is_empty());
    let mut heard = [0; 6];
    other.read_exact(&mut heard).expect("all of it");
    assert_eq!(heard, [0, 1, 2, 10, 12, 20]);
}

#[test]
fn data_goes_to_its_place_and_what_follows_is_kept() {
    let (mut wire, mut other) = pair();
    let (mut input, mut data) = (Input::new(64), SgMut::from(BufMut::alone(100)));
    let mut say = |bytes: &[u8]| other.write_all(bytes).expect("there is room");
    assert_eq!(input.fill(&mut wire), Received::Blocked);
    say(&[&[1; 10][..], &[2; 40]].concat());
    assert_eq!(input.fill(&mut wire), Received::Short(50));
    input.consume(10);
    assert_eq!(input.move_to(Place { data: &mut data, at: 0, most: 100 }), 40);
    say(&[&[3; 60][..], &[4; 30]].concat());
    let place = Place { data: &mut data, at: 40, most: 60 };
    assert_eq!(input.fill_through(&mut wire, place), Received::Short(90));
    assert_eq!(input.bytes(), [4; 30]);
    input.consume(20);
    say(&[5; 70]);
    assert_eq!(input.fill(&mut wire), Received::Full(54), "behind what was kept");
    assert_eq!(input.bytes(), [&[4; 10][..], &[5; 54]].concat());
    input.clear();
    let place = Place { data: &mut data, at: 90, most: 10 };
    assert_eq!(input.fill_to(&mut wire, place), Received::Full(10));
    assert_eq!(input.fill(&mut wire), Received::Short(6));
    drop(other);
    assert_eq!(input.fill(&mut wire), Received::Ended);
    let expected = [&[2; 40][..], &[3; 50], &[5; 10]].concat();
    assert_eq!(data.slices(0, 100).collect::<Vec<_>>().concat(), expected);
}
