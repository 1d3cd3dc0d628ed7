//! Handshakes with a peer that does what must not be done.

use super::{Knows, LONG, SHORT, key, meet, offer, shake};
use crate::agreement::Agreement;
use crate::limits::HANDSHAKE_BYTES_MAX;
use crate::{Client, KnownKeys, Server, TlsError};
use proptest::prelude::*;
use strake_nvme_auth::Psk;

/// What a fresh server says of some bytes; a refused client gets an alert or nothing.
fn reported(bytes: &[u8]) -> Result<bool, TlsError> {
    let mut out = Vec::new();
    let step = Server::default().step(bytes, &Knows(key(SHORT)), &mut out);
    if step.is_err() {
        assert!(out.is_empty() || (out.len(), out[0]) == (7, 21), "{out:?}");
    }
    step.map(|secured| secured.is_some())
}

/// A hello with a key that the server knows, in its record.
fn hello() -> Vec<u8> {
    let mut out = Vec::new();
    Client::begin(&offer(SHORT), &mut out).expect("random bytes");
    out
}

fn record(body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16).to_be_bytes();
    [&[22, 3, 3, length[0], length[1]], body].concat()
}

/// The hello with the first `from` in it replaced.
fn with(from: &[u8], to: &[u8]) -> Vec<u8> {
    let hello = hello();
    let at = hello.windows(from.len()).position(|window| window == from).expect("it is there");
    [&hello[..at], to, &hello[at + from.len()..]].concat()
}

#[track_caller]
fn assert_breach(bytes: &[u8]) {
    let result = reported(bytes);
    assert!(matches!(result, Err(TlsError::Breach(_))), "{result:?}");
}

#[test]
fn what_is_no_hello_is_refused() {
    assert_eq!(reported(&hello()), Ok(false), "the hello itself is answered");
    // An ICReq, HTTP, SSH, and records that do not come first.
    for bytes in [&[0; 128][..], b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"] {
        assert_breach(bytes);
    }
    assert_breach(&[&[22, 3, 1, 0xff, 0xff][..], &[0; 64]].concat());
    assert_breach(&[23, 3, 3, 0, 1, 0]);
    assert_breach(&[20, 3, 3, 0, 1, 1]);
    assert_breach(&record(&[20, 0, 0, 0]));
    assert_breach(&[21, 3, 3, 0, 2, 2, 40]);
}

#[test]
fn a_hello_that_lacks_or_forges_something_is_refused() {
    let table = [
        // TLS 1.2 only; no psk_dhe_ke.
        (&[0, 43, 0, 3, 2, 3, 4][..], &[0, 43, 0, 3, 2, 3, 3][..]),
        (&[0, 45, 0, 2, 1, 1], &[0, 45, 0, 2, 1, 0]),
        // Extensions that are not there, and one that is there twice.
        (&[0, 43, 0, 3], &[9, 43, 0, 3]),
        (&[0, 10, 0, 10], &[9, 10, 0, 10]),
        (&[0, 51, 0, 38], &[9, 51, 0, 38]),
        (&[0, 45, 0, 2], &[9, 45, 0, 2]),
        (&[0, 45, 0, 2], &[0, 43, 0, 2]),
        (&[0, 41], &[9, 41]),
    ];
    for (from, to) in table {
        assert_breach(&with(from, to));
    }
    let mut unbound = hello();
    *unbound.last_mut().expect("a binder") ^= 1;
    assert_breach(&unbound);
}

/// Knows no key.
struct Stranger;

impl KnownKeys for Stranger {
    fn meant_by(&self, _: &[u8]) -> Vec<Psk> {
        Vec::new()
    }
}

/// Faults of a hello besides its proof were once reported for names that have a key only: those of the other suite got
/// another alert.
#[test]
fn no_peer_learns_without_a_key_which_names_have_one_exhaustive() {
    let hello = hello();
    for at in 5..hello.len() {
        for change in [1, 3, 0x80] {
            let mut changed = hello.clone();
            changed[at] ^= change;
            let reported = |known: &dyn KnownKeys| {
                let mut out = Vec::new();
                let step = Server::default().step(&changed, known, &mut out);
                (step.map(|_| ()), out)
            };
            assert_eq!(reported(&Knows(key(SHORT))), reported(&Stranger), "byte {at}, {change}");
        }
    }
}

/// RFC 8446, appendix D.4: a client that sends the identifier of a session must get a change_cipher_spec.
#[test]
fn a_client_that_pretends_to_come_back_is_answered_as_if_it_did() {
    let mut client = Agreement::pretending(&offer(SHORT)).expect("random bytes");
    assert_eq!(client.advance(&[]), Ok(false));
    let (hello, mut answer) = (client.take_output(), Vec::new());
    assert_eq!(hello[43], 32, "the bytes of its identifier");
    let mut server = Server::default();
    let step = server.step(&hello, &Knows(key(SHORT)), &mut answer);
    assert!(matches!(step, Ok(None)));
    let second = 5 + usize::from(u16::from_be_bytes([answer[3], answer[4]]));
    assert_eq!(answer[second..second + 6], [20, 3, 3, 0, 1, 1]);
    assert_eq!(client.advance(&answer), Ok(true));
    let secured = server.step(&client.take_output(), &Knows(key(SHORT)), &mut Vec::new());
    assert!(matches!(secured, Ok(Some(_))), "and its own is ignored");
}

#[test]
fn a_hello_cut_anywhere_is_refused_or_waited_for_exhaustive() {
    let hello = hello();
    for end in 9..hello.len() {
        let mut cut = hello[5..end].to_vec();
        cut[2..4].copy_from_slice(&((end - 9) as u16).to_be_bytes());
        assert_breach(&record(&cut));
        assert_eq!(reported(&hello[..end]), Ok(false), "more is waited for");
    }
}

#[test]
fn a_handshake_does_not_grow_without_end() {
    // A hello of 64 KiB, in records that are full.
    let piece = record(&[&[1, 1, 0, 0][..], &[0; 8188]].concat());
    let mut server = Server::default();
    let steps = (0..8).map(|_| server.step(&piece, &Knows(key(SHORT)), &mut Vec::new()));
    let refused = steps.take_while(Result::is_ok).count();
    assert!(refused * piece.len() <= HANDSHAKE_BYTES_MAX, "after {refused} records");
}

/// What a server sends for a hello, and the client that sent it.
fn answered() -> (Client, Vec<u8>) {
    let (mut hello, mut answer) = (Vec::new(), Vec::new());
    let client = Client::begin(&offer(LONG), &mut hello).expect("random bytes");
    let step = Server::default().step(&hello, &Knows(key(LONG)), &mut answer);
    assert!(matches!(step, Ok(None)));
    (client, answer)
}

#[test]
fn a_client_notices_any_changed_byte_of_a_server_exhaustive() {
    let length = answered().1.len();
    for at in 0..length {
        let (mut client, mut answer) = answered();
        answer[at] ^= 0x41;
        let step = client.step(&answer, &mut Vec::new());
        // The version of the first record means nothing; a length that grew leaves a record that never ends.
        assert!(at == 2 || !matches!(step, Ok(Some(_))), "byte {at}");
    }
}

#[test]
fn a_server_that_does_not_know_the_key_is_refused() {
    // It may have heard the handshakes of others, and can do everything but prove that it knows the key.
    let (mut client, _) = answered();
    let (_, other) = answered();
    let step = client.step(&other, &mut Vec::new());
    assert!(matches!(step.map(|_| ()), Err(TlsError::Breach(_))));
}

proptest! {
    #[test]
    fn random_bytes_are_no_handshake(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(!matches!(reported(&bytes), Ok(true)));
        prop_assert!(!matches!(reported(&record(&bytes)), Ok(true)));
        let (mut client, _) = answered();
        let step = client.step(&bytes, &mut Vec::new());
        prop_assert!(!matches!(step, Ok(Some(_))));
    }

    #[test]
    fn random_damage_to_a_hello_never_agrees(at in 5usize..500, to in any::<u8>()) {
        let mut hello = Vec::new();
        let client = Client::begin(&offer(SHORT), &mut hello).expect("random bytes");
        let at = at.min(hello.len() - 1);
        let was = std::mem::replace(&mut hello[at], to);
        let (client, server) = shake(client, hello, &Knows(key(SHORT)), usize::MAX);
        prop_assert_eq!(client.is_ok() && server.is_ok(), was == to);
    }
}

#[test]
fn a_peer_that_gives_up_is_heard() {
    let (client, _) = meet(LONG, SHORT, usize::MAX);
    let error = client.err().expect("a refusal");
    assert_eq!(
        error.to_string(),
        "TLS was refused: it does not know the key, or has another one for these names (alert 51)"
    );
}
