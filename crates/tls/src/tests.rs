//! Both sides in one process.

mod breaches;
mod channel;
mod queues;

use crate::{Channel, Client, KnownKeys, Secured, Server, TlsError};
use std::io::{IoSlice, IoSliceMut};
use strake_nvme_auth::{Identity, Names, Psk, PskHash, TlsKey};

/// What a socket says that has nothing for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Nothing;

const SHORT: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const LONG: &str =
    "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";

fn names() -> Names {
    Names { host: "nqn.2014-08.org.host".into(), subsystem: "nqn.2014-08.org.subsystem".into() }
}

fn key(text: &str) -> TlsKey {
    text.parse().expect("a key")
}

fn offers(text: &str) -> Vec<Psk> {
    key(text).offers(&names())
}

/// The one to be preferred.
fn offer(text: &str) -> Psk {
    offers(text).swap_remove(0)
}

/// A server that knows one key, whichever host has it.
struct Knows(TlsKey);

impl KnownKeys for Knows {
    fn meant_by(&self, identity: &[u8]) -> Vec<Psk> {
        Identity::parse(identity).map(|identity| self.0.meant_by(&identity)).unwrap_or_default()
    }
}

type Ends = (Result<Secured, TlsError>, Result<Secured, TlsError>);

/// A handshake whose bytes come `piece` at a time: how it ended for the client and for the server.
fn shake(mut client: Client, hello: Vec<u8>, known: &dyn KnownKeys, piece: usize) -> Ends {
    let mut server = Server::default();
    let (mut to_server, mut to_client) = (hello, Vec::new());
    let (mut client_end, mut server_end) = (None, None);
    while !to_server.is_empty() || !to_client.is_empty() {
        for bytes in std::mem::take(&mut to_server).chunks(piece) {
            if server_end.is_none() {
                let step = server.step(bytes, known, &mut to_client);
                server_end = step.transpose();
            }
        }
        for bytes in std::mem::take(&mut to_client).chunks(piece) {
            if client_end.is_none() {
                client_end = client.step(bytes, &mut to_server).transpose();
            }
        }
    }
    let cut = |end: Option<_>| end.unwrap_or(Err(TlsError::Truncated));
    (cut(client_end), cut(server_end))
}

/// A handshake between a client with one key and a server with another.
fn meet(theirs: &str, ours: &str, piece: usize) -> Ends {
    let mut hello = Vec::new();
    let client = Client::begin(&offer(theirs), &mut hello);
    shake(client.expect("random bytes"), hello, &Knows(key(ours)), piece)
}

/// Both ends of a connection.
fn connect(text: &str) -> (Channel, Channel) {
    let (client, server) = meet(text, text, usize::MAX);
    (*client.expect("a client").channel, *server.expect("a server").channel)
}

/// What a channel sends for some data.
fn sent(channel: &mut Channel, data: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut done = 0;
    while done < data.len() {
        let count = channel.send(&[IoSlice::new(&data[done..])], |bytes| {
            wire.extend(bytes);
            Ok::<_, Nothing>(bytes.len())
        });
        done += count.expect("it goes out");
    }
    wire
}

/// Up to `room` bytes of what a channel makes of what came.
fn received(channel: &mut Channel, wire: &mut &[u8], room: usize) -> Result<Vec<u8>, TlsError> {
    let mut data = vec![0; room];
    channel.begin_turn();
    let count = channel.receive(&mut [IoSliceMut::new(&mut data)], |room| {
        let count = room.len().min(wire.len());
        if count == 0 {
            return Err(Nothing);
        }
        room[..count].copy_from_slice(&wire[..count]);
        *wire = &wire[count..];
        Ok(count)
    });
    match count {
        Ok(count) => data.truncate(count),
        Err(crate::channel::Failure::Socket(Nothing) | crate::channel::Failure::Paused) => {
            data.clear();
        }
        Err(crate::channel::Failure::Tls(error)) => return Err(error),
    }
    Ok(data)
}

#[test]
fn two_that_know_a_key_agree_however_their_bytes_are_cut() {
    for text in [SHORT, LONG] {
        for piece in [1, 7, 100, usize::MAX] {
            let (client, server) = meet(text, text, piece);
            let (mut client, mut server) = (client.expect("a client"), server.expect("a server"));
            assert_eq!(client.identity, offers(text)[0].identity, "the newer identity");
            assert_eq!(server.identity, client.identity);
            let wire = sent(&mut client.channel, b"connect");
            assert_eq!(received(&mut server.channel, &mut &wire[..], 100), Ok(b"connect".to_vec()));
            let wire = sent(&mut server.channel, b"connected");
            let got = received(&mut client.channel, &mut &wire[..], 100);
            assert_eq!(got, Ok(b"connected".to_vec()));
        }
    }
}

#[test]
fn a_peer_with_another_key_learns_that_and_nothing_else() {
    let other = key(&key(LONG).reveal().replace(":02:", ":00:"));
    for (theirs, ours) in [(SHORT, LONG), (LONG, SHORT), (LONG, &*other.reveal())] {
        let (client, server) = meet(theirs, ours, usize::MAX);
        assert_eq!(client.err(), Some(TlsError::PeerAlert(51)));
        assert_eq!(server.err(), Some(TlsError::Breach(crate::Alert::DecryptError)));
    }
}

/// As GnuTLS does before 3.8.11 with a key that goes with SHA-384.
#[test]
fn a_peer_that_proves_a_key_with_another_hash_does_not_learn_its_owner() {
    for (text, hash) in [(LONG, PskHash::Sha256), (SHORT, PskHash::Sha384)] {
        let mut hello = Vec::new();
        let client = Client::begin(&Psk { hash, ..offer(text) }, &mut hello).expect("it offers it");
        let (client, server) = shake(client, hello, &Knows(key(text)), usize::MAX);
        assert_eq!(client.err(), Some(TlsError::PeerAlert(51)), "as if nobody knew the name");
        assert_eq!(server.err(), Some(TlsError::Breach(crate::Alert::DecryptError)));
    }
}

/// What several keys may be meant by: a server that has another one for the same name, and then that of the client.
struct Doubts(TlsKey);

impl KnownKeys for Doubts {
    fn meant_by(&self, identity: &[u8]) -> Vec<Psk> {
        let known = Knows(self.0.clone()).meant_by(identity);
        let mut wrong = Knows(self.0.clone()).meant_by(identity);
        wrong.iter_mut().for_each(|psk| psk.secret[0] ^= 1);
        wrong.into_iter().chain(known).collect()
    }
}

#[test]
fn of_several_keys_for_an_identity_that_of_the_client_is_found() {
    for piece in [1, usize::MAX] {
        let mut hello = Vec::new();
        let client = Client::begin(&offer(SHORT), &mut hello).expect("random bytes");
        let (client, server) = shake(client, hello, &Doubts(key(SHORT)), piece);
        let (mut client, mut server) = (client.expect("a client"), server.expect("a server"));
        let wire = sent(&mut client.channel, b"found");
        assert_eq!(received(&mut server.channel, &mut &wire[..], 5), Ok(b"found".to_vec()));
    }
}

#[test]
fn either_identity_is_known() {
    for psk in offers(SHORT) {
        let mut hello = Vec::new();
        let client = Client::begin(&psk, &mut hello).expect("random bytes");
        let (_, server) = shake(client, hello, &Knows(key(SHORT)), usize::MAX);
        assert_eq!(server.expect("a server").identity, psk.identity);
    }
}
