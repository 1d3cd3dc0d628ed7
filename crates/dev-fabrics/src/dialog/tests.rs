//! Receiving from a target through TLS: the peer is the other end of a socket pair.

use super::{Dialog, EVENT_CID, Event};
use crate::error::Reason;
use crate::stream::{Stream, Until};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::Duration;
use strake_nvme_auth::{Identity, Names, Psk, TlsKey};
use strake_nvme_tcp::{Digests, pdu};
use strake_nvme_wire::{Cqe, Status};
use strake_tls::limits::RECORDS_PER_TURN;
use strake_tls::{Channel, Client, KnownKeys, Server, Wire};

const KEY: &str =
    "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";

struct Knows(TlsKey);

impl KnownKeys for Knows {
    fn meant_by(&self, identity: &[u8]) -> Vec<Psk> {
        Identity::parse(identity).map(|identity| self.0.meant_by(&identity)).unwrap_or_default()
    }
}

/// Both ends of a TLS connection: of the host, and of a target.
fn channels() -> (Box<Channel>, Box<Channel>) {
    let key: TlsKey = KEY.parse().expect("a key");
    let names =
        Names { host: "nqn.2014-08.org.host".into(), subsystem: "nqn.2014-08.org.s".into() };
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let offer = key.offers(&names).swap_remove(0);
    let mut client = Client::begin(&offer, &mut to_server).expect("random bytes");
    let (mut server, known) = (Server::default(), Knows(key));
    let step = server.step(&to_server, &known, &mut to_client);
    assert!(matches!(step, Ok(None)));
    to_server.clear();
    let ours = client.step(&to_client, &mut to_server).expect("the key is known");
    let theirs = server.step(&to_server, &known, &mut to_client).expect("the key is known");
    (ours.expect("it agrees").channel, theirs.expect("it agrees").channel)
}

/// A connection with an outstanding event request, the channel of its target, and the target's socket.
fn dialog() -> (Dialog, Box<Channel>, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, target) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .expect("a pair of sockets");
    let (ours, theirs) = channels();
    let mut wire = Wire::from(socket);
    wire.secure(ours);
    let dialog = Dialog {
        stream: Stream::of(wire),
        digests: Digests::default(),
        alignment: 0,
        data_bytes_max: 0,
        cid: EVENT_CID,
        event: Event::Asked,
        ends: None,
    };
    (dialog, theirs, target)
}

/// The records of a target for some data.
fn sealed(channel: &mut Channel, data: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    let sent = channel.send(&[IoSlice::new(data)], |bytes| {
        wire.extend(bytes);
        Ok::<_, ()>(bytes.len())
    });
    assert_eq!(sent, Ok(data.len()));
    wire
}

fn event(result: u64) -> (Cqe, Vec<u8>) {
    let cqe = Cqe { result, head: 0, cid: EVENT_CID, status: Status::SUCCESS };
    (cqe, pdu::capsule_resp(&cqe, Digests::default()).to_vec())
}

/// Time limit for the rest of a header after its first bytes.
const PATIENCE: Duration = Duration::from_secs(5);

/// A key update on an idle admin queue once counted as the start of a PDU, and the wait for the PDU delayed Keep Alive
/// beyond its timeout.
#[test]
fn a_change_of_keys_is_nothing_to_wait_for() {
    let (mut dialog, mut target, socket) = dialog();
    target.change_keys();
    let (cqe, capsule) = event(5);
    let wire = sealed(&mut target, &capsule);
    let change = 5 + usize::from(u16::from_be_bytes([wire[3], wire[4]]));
    assert!(change < wire.len(), "the change has a record of its own");
    rustix::io::write(&socket, &wire[..change]).expect("the socket takes it");
    assert_eq!(dialog.listen(PATIENCE), Ok(false));
    assert!(!dialog.has_more());
    rustix::io::write(&socket, &wire[change..]).expect("the socket takes it");
    assert_eq!(dialog.listen(PATIENCE), Ok(true));
    assert_eq!(dialog.take_event(), Some(cqe));
}

/// Data that arrived in one record with other data is no longer in the socket, so the socket does not report it.
#[test]
fn what_came_together_is_reported_and_the_end_behind_it_too() {
    let (mut dialog, mut target, socket) = dialog();
    let (first, second) = (event(1), event(2));
    let wire = sealed(&mut target, &[first.1, second.1].concat());
    rustix::io::write(&socket, &wire).expect("the socket takes it");
    for cqe in [first.0, second.0] {
        assert_eq!(dialog.listen(PATIENCE), Ok(true));
        assert_eq!(dialog.take_event(), Some(cqe));
        dialog.event = Event::Asked;
        assert_eq!(dialog.has_more(), cqe == first.0);
    }
    drop(socket);
    assert!(matches!(dialog.listen(PATIENCE), Err(Reason::Tls(_))), "cut off");
}

/// A target that answers in as many records as one turn decrypts, and then reads nothing, once kept the thread of its
/// path in a loop.
#[test]
fn a_send_ends_in_time_while_the_channel_is_paused() {
    let (mut dialog, mut target, socket) = dialog();
    let records: Vec<u8> = (0..RECORDS_PER_TURN).flat_map(|_| sealed(&mut target, &[7])).collect();
    rustix::io::write(&socket, &records).expect("the socket takes it");
    let mut place = [0; RECORDS_PER_TURN];
    assert_eq!(dialog.stream.take_now(&mut place), Ok(RECORDS_PER_TURN));
    assert!(dialog.has_more(), "the next turn may find more");
    let much = vec![0; 64 << 20];
    let patience = Until::within(Duration::from_millis(20));
    assert_eq!(dialog.stream.put(&much, patience), Err(Reason::Silent));
}
