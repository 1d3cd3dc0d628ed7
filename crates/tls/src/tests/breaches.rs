//! Handshakes with somebody who does what must not be done.

use super::{Knows, LONG, SHORT, key, meet, offers, shake};
use crate::hello::{Opening, RANDOM_BYTES, kind};
use crate::limits::HANDSHAKE_RECORDS_MAX;
use crate::reader::put_record;
use crate::record::content;
use crate::schedule::Transcript;
use crate::share::{GROUPS, Share};
use crate::{Alert, Client, Server, SystemRandom, TlsError};
use proptest::prelude::*;

/// What a fresh server says of some bytes.
fn told(bytes: &[u8]) -> Result<bool, TlsError> {
    let mut out = Vec::new();
    let random = SystemRandom::new();
    let step = Server::default().step(bytes, &Knows(key(SHORT)), &random, &mut out);
    if let Err(error) = step {
        let alert = error.alert().map(|alert| vec![21, 3, 3, 0, 2, 2, alert as u8]);
        assert_eq!(alert.unwrap_or_default(), out, "what it is told");
    }
    step.map(|secured| secured.is_some())
}

/// A hello with a key that the server knows.
fn hello() -> Vec<u8> {
    let random = SystemRandom::new();
    let share = Share::new(GROUPS[0], &random).expect("a share");
    let offers = offers(SHORT);
    let bytes = [7; RANDOM_BYTES];
    let opening = Opening { random: &bytes, offers: &offers, share: &share, cookie: &[] };
    opening.compose(Transcript::new).expect("a hello")
}

fn record(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_record(&mut out, content::HANDSHAKE, body);
    out
}

/// The hello with the first `from` in it replaced.
fn with(from: &[u8], to: &[u8]) -> Vec<u8> {
    let hello = hello();
    let at = hello.windows(from.len()).position(|window| window == from).expect("it is there");
    [&hello[..at], to, &hello[at + from.len()..]].concat()
}

fn breach(alert: Alert) -> Result<bool, TlsError> {
    Err(TlsError::Breach(alert))
}

#[test]
fn what_is_no_hello_is_refused() {
    assert_eq!(told(&record(&hello())), Ok(false), "the hello itself is answered");
    // An ICReq, HTTP, SSH, and records that do not come first.
    for bytes in [&[0; 128][..], b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"] {
        assert_eq!(told(bytes), breach(Alert::UnexpectedMessage));
    }
    assert_eq!(told(&[22, 3, 1, 0xff, 0xff]), breach(Alert::RecordOverflow));
    assert_eq!(told(&[23, 3, 3, 0, 1, 0]), breach(Alert::UnexpectedMessage));
    assert_eq!(told(&[20, 3, 3, 0, 1, 1]), breach(Alert::UnexpectedMessage));
    assert_eq!(told(&[22, 3, 3, 0, 0]), breach(Alert::UnexpectedMessage));
    assert_eq!(told(&[21, 3, 3, 0, 2, 2, 40]), Err(TlsError::Told(40)));
    assert_eq!(told(&record(&[kind::FINISHED, 0, 0, 0])), breach(Alert::UnexpectedMessage));
    assert_eq!(told(&record(&[kind::CLIENT_HELLO, 1, 0, 0])), breach(Alert::DecodeError));
}

#[test]
fn a_hello_that_lacks_or_forges_something_is_refused() {
    let table = [
        // TLS 1.2 only; no psk_dhe_ke; another compression; early data; a group and a suite that nobody knows.
        (&[0, 43, 0, 3, 2, 3, 4][..], &[0, 43, 0, 3, 2, 3, 3][..], Alert::ProtocolVersion),
        (&[0, 45, 0, 2, 1, 1], &[0, 45, 0, 2, 1, 0], Alert::HandshakeFailure),
        (&[0x13, 1, 1, 0], &[0x13, 1, 1, 1], Alert::IllegalParameter),
        (&[0, 45, 0, 2, 1, 1], &[0, 42, 0, 2, 1, 1], Alert::IllegalParameter),
        (&[0x13, 1, 1, 0], &[0x13, 2, 1, 0], Alert::DecryptError),
        // Extensions that are not there, and one that is there twice.
        (&[0, 43, 0, 3], &[9, 43, 0, 3], Alert::ProtocolVersion),
        (&[0, 10, 0, 10], &[9, 10, 0, 10], Alert::MissingExtension),
        (&[0, 51, 0, 38], &[9, 51, 0, 38], Alert::MissingExtension),
        (&[0, 45, 0, 2], &[9, 45, 0, 2], Alert::MissingExtension),
        (&[0, 45, 0, 2], &[0, 43, 0, 2], Alert::IllegalParameter),
    ];
    for (from, to, alert) in table {
        assert_eq!(told(&record(&with(from, to))), breach(alert), "{from:?} -> {to:?}");
    }
    let hello = hello();
    let mut unbound = hello.clone();
    *unbound.last_mut().expect("a binder") ^= 1;
    assert_eq!(told(&record(&unbound)), Ok(false), "the first binder is enough");
    let at = hello.len() - 40;
    unbound[at] ^= 1;
    assert_eq!(told(&record(&unbound)), breach(Alert::DecryptError));
    // Another random value is another hello, and nobody bound it.
    assert_eq!(told(&record(&with(&[7; 32], &[8; 32]))), breach(Alert::DecryptError));
}

#[test]
fn a_hello_cut_anywhere_is_refused_or_waited_for_exhaustive() {
    let hello = hello();
    for end in 4..hello.len() {
        let mut cut = hello[..end].to_vec();
        cut[2..4].copy_from_slice(&((end - 4) as u16).to_be_bytes());
        let result = told(&record(&cut));
        assert!(matches!(result, Err(TlsError::Breach(_))), "cut at {end}: {result:?}");
        assert_eq!(told(&record(&hello)[..end]), Ok(false), "more is waited for");
    }
}

#[test]
fn records_of_a_handshake_are_counted() {
    let hello = hello();
    let mut slow: Vec<u8> = Vec::new();
    for byte in &hello[..HANDSHAKE_RECORDS_MAX as usize] {
        slow.extend(record(&[*byte]));
    }
    assert_eq!(told(&slow), Ok(false));
    slow.extend(record(&hello[HANDSHAKE_RECORDS_MAX as usize..]));
    assert_eq!(told(&slow), breach(Alert::UnexpectedMessage));
}

/// What a server sends for a hello, and the client that sent it.
fn answered() -> (Client, Vec<u8>) {
    let random = SystemRandom::new();
    let (mut hello, mut answer) = (Vec::new(), Vec::new());
    let client = Client::begin(offers(LONG), &random, &mut hello).expect("random bytes");
    let step = Server::default().step(&hello, &Knows(key(LONG)), &random, &mut answer);
    assert!(matches!(step, Ok(None)));
    (client, answer)
}

#[test]
fn a_client_notices_any_changed_byte_of_a_server_exhaustive() {
    let length = answered().1.len();
    for at in 0..length {
        let (mut client, mut answer) = answered();
        answer[at] ^= 0x41;
        let mut out = Vec::new();
        let step = client.step(&answer, &SystemRandom::new(), &mut out);
        // The version of the first record means nothing; a length that grew leaves a record that never ends.
        assert!(at == 2 || !matches!(step, Ok(Some(_))), "byte {at}");
    }
}

#[test]
fn a_server_that_does_not_know_the_key_is_refused() {
    // It may have heard the handshakes of others, and can do everything but prove that it knows the key.
    let (mut client, _) = answered();
    let (_, other) = answered();
    let step = client.step(&other, &SystemRandom::new(), &mut Vec::new());
    assert!(matches!(step.map(|_| ()), Err(TlsError::Breach(Alert::BadRecordMac))));
}

#[test]
fn a_handshake_goes_on_after_nothing_that_came_behind_a_key_change() {
    let random = SystemRandom::new();
    let two = record(&[hello(), vec![kind::CLIENT_HELLO, 0, 0, 0]].concat());
    let step = Server::default().step(&two, &Knows(key(SHORT)), &random, &mut Vec::new());
    assert_eq!(step.map(|_| ()), Err(TlsError::Breach(Alert::UnexpectedMessage)));
}

#[test]
fn a_change_that_is_none_is_passed_over_where_it_may_come() {
    let (mut client, answer) = answered();
    let random = SystemRandom::new();
    let at = 5 + usize::from(u16::from_be_bytes([answer[3], answer[4]]));
    let with_change = [&answer[..at], &[20, 3, 3, 0, 1, 1], &answer[at..]].concat();
    let step = client.step(&with_change, &random, &mut Vec::new());
    assert!(matches!(step, Ok(Some(_))));
    let (mut client, answer) = answered();
    let with_other = [&answer[..at], &[20, 3, 3, 0, 1, 2], &answer[at..]].concat();
    let step = client.step(&with_other, &random, &mut Vec::new());
    assert_eq!(step.map(|_| ()), Err(TlsError::Breach(Alert::UnexpectedMessage)));
}

proptest! {
    #[test]
    fn random_bytes_are_no_handshake(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(!matches!(told(&bytes), Ok(true)));
        prop_assert!(!matches!(told(&record(&bytes)), Ok(true)));
        let (mut client, _) = answered();
        let step = client.step(&bytes, &SystemRandom::new(), &mut Vec::new());
        prop_assert!(!matches!(step, Ok(Some(_))));
    }

    #[test]
    fn random_damage_to_a_hello_never_agrees(at in 5usize..500, to in any::<u8>()) {
        let random = SystemRandom::new();
        let mut hello = Vec::new();
        let client = Client::begin(offers(SHORT), &random, &mut hello).expect("random bytes");
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
