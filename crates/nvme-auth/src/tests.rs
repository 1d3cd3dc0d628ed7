//! Conversations with a scripted host, and values that another program computed.

use crate::claim::{Claim, Doubt};
use crate::exchange::{Answer, Exchange, Failure, Fresh, Keys, MESSAGE_BYTES_MAX};
use crate::group::{Group, Groups};
use crate::proof::{Challenge, Hash, Names, Side, respond};
use crate::secret::{Secret, SecretError};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

/// Python's `hmac`, `hashlib` and `pow` on the formulas of Base, section 8.13.5: the first 16 bytes of both responses,
/// and the first 8 of the SHA-256 of the controller's public value.
struct Vector {
    hash: u8,
    group: u8,
    host: &'static str,
    controller: &'static str,
    public: &'static str,
    responses: [&'static str; 2],
}

const VECTORS: [Vector; 8] = [
    Vector {
        hash: 1,
        group: 0,
        host: "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:",
        controller: "DHHC-1:00:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQlGwA0N:",
        public: "e3b0c44298fc1c14",
        responses: ["9b85730c18eab3c9e4b24f4b018d4dde", "5a790300bc65f597645d558ba87d541d"],
    },
    Vector {
        hash: 2,
        group: 0,
        host: "DHHC-1:01:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHUj8Hcw==:",
        controller: "DHHC-1:01:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJnSBpqw==:",
        public: "e3b0c44298fc1c14",
        responses: ["6b3f14fdb61f4b38879bc0c7a91f9db0", "ca18961bed6044edb0f161f5195abfe3"],
    },
    Vector {
        hash: 3,
        group: 0,
        host: "DHHC-1:03:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:",
        controller: "DHHC-1:03:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQlGwA0N:",
        public: "e3b0c44298fc1c14",
        responses: ["4a0b0324f6ddb5dffa44ba491ed55ce8", "32ad88d19623396af1d8d19f0b89704a"],
    },
    Vector {
        hash: 3,
        group: 1,
        host: "DHHC-1:02:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:",
        controller: "DHHC-1:02:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQlGwA0N:",
        public: "e3b336fd6ee8d69d",
        responses: ["ea66f63dd72d2a8daff2a25608fb5fd4", "489a477c77c23a00398d8702b708db32"],
    },
    Vector {
        hash: 1,
        group: 2,
        host: "DHHC-1:01:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:",
        controller: "DHHC-1:01:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQlGwA0N:",
        public: "30ef7a562a141162",
        responses: ["ea5fab206af3c88f9832ad6431fa3538", "24119cfe1369cabc3cc3983ff173f698"],
    },
    Vector {
        hash: 2,
        group: 3,
        host: "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHUj8Hcw==:",
        controller: "DHHC-1:00:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJnSBpqw==:",
        public: "b12e423189b7787a",
        responses: ["b658b75f93995e6b923f527b797cd913", "cbfa4c4307c9aaf1a6cbf4cf03fe2bf1"],
    },
    Vector {
        hash: 3,
        group: 4,
        host: "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHUj8Hcw==:",
        controller: "DHHC-1:00:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJnSBpqw==:",
        public: "cef92890a33d5715",
        responses: ["29443a7dc79f28b0cd20bb06929bfbd6", "688ec9b8b553fd9137c6fc12fcdae99e"],
    },
    Vector {
        hash: 3,
        group: 5,
        host: "DHHC-1:03:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHUj8Hcw==:",
        controller: "DHHC-1:03:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJnSBpqw==:",
        public: "fceebacc2299ee76",
        responses: ["d43745cb371ebd45b7da69c5dd93f8d8", "d721c00c438e2532846427ad396fec5f"],
    },
];

const TRANSACTION: u16 = 0x1234;
/// The host's private exponent.
const EXPONENT: [u8; 64] = counting(1);

const fn counting<const N: usize>(from: u8) -> [u8; N] {
    let mut out = [0; N];
    let mut at = 0;
    while at < N {
        out[at] = from.wrapping_add(at as u8);
        at += 1;
    }
    out
}

fn names() -> Names {
    Names {
        host: "nqn.2014-08.org.nvmexpress:uuid:host".into(),
        subsystem: "nqn.2014-08.org.nvmexpress:uuid:ram".into(),
    }
}

fn fresh() -> Fresh {
    Fresh { challenge: counting(0), exponent: counting(100), sequence: 0x0102_0304 }
}

/// The host's own challenge.
fn own_challenge(hash: Hash) -> Vec<u8> {
    let mut bytes: [u8; 64] = counting(200);
    bytes[56..].fill(0);
    bytes[..hash.bytes()].to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn keys(vector: &Vector) -> Keys {
    Keys {
        host: vector.host.parse().expect("a secret"),
        controller: Some(vector.controller.parse().expect("a secret")),
    }
}

fn lead(kind: u8, id: u8) -> Vec<u8> {
    let [low, high] = TRANSACTION.to_le_bytes();
    vec![kind, id, 0, 0, low, high]
}

fn negotiate(hashes: &[u8], groups: &[u8]) -> Vec<u8> {
    let mut out = lead(0, 0);
    out.extend([0, 1, 1, 0, hashes.len() as u8, groups.len() as u8]);
    let mut ids = [0; 60];
    ids[..hashes.len()].copy_from_slice(hashes);
    ids[30..30 + groups.len()].copy_from_slice(groups);
    out.extend(ids);
    out
}

fn reply(hash: Hash, response: &[u8], own: Option<(&[u8], u32)>, public: &[u8]) -> Vec<u8> {
    let mut out = lead(1, 2);
    out.extend([hash.bytes() as u8, 0, u8::from(own.is_some()), 0]);
    out.extend((public.len() as u16).to_le_bytes());
    out.extend(own.map_or(0, |(_, sequence)| sequence).to_le_bytes());
    out.extend(response);
    out.extend(own.map_or(vec![0; hash.bytes()], |(value, _)| value.to_vec()));
    out.extend(public);
    out
}

/// A host of a vector: its hash and group, what it sends as its public value, and what both sides respond.
fn host_of(vector: &Vector) -> (Hash, Group, Vec<u8>, [Vec<u8>; 2]) {
    let (hash, group) = (Hash::of(vector.hash).expect("a hash"), Group::of(vector.group));
    let group = group.expect("a group");
    let (public, session) = match group {
        Group::Null => (Vec::new(), None),
        group => {
            let theirs = group.public(&fresh().exponent).expect("a value");
            (group.public(&EXPONENT).expect("a value"), group.shared(&theirs, &EXPONENT))
        }
    };
    let own = own_challenge(hash);
    let challenge = |value, sequence| Challenge {
        hash,
        value,
        session: session.as_deref(),
        sequence,
        transaction: TRANSACTION,
    };
    let keys = keys(vector);
    let fresh = fresh();
    let ours = challenge(&fresh.challenge[..hash.bytes()], 0x0102_0304);
    let host = respond(Side::Host, &keys.host, &names(), &ours).to_vec();
    let secret = keys.controller.expect("one for the controller");
    let theirs = challenge(&own, 0x0a0b_0c0d);
    let controller = respond(Side::Controller, &secret, &names(), &theirs).to_vec();
    (hash, group, public, [host, controller])
}

#[test]
fn both_sides_prove_themselves_as_another_program_computed_it() {
    for vector in &VECTORS {
        let (hash, group, public, [host, controller]) = host_of(vector);
        assert_eq!(hex(&host[..16]), vector.responses[0], "{hash:?} {group:?}");
        assert_eq!(hex(&controller[..16]), vector.responses[1], "{hash:?} {group:?}");
        let mut exchange = Exchange::new(names(), vec![keys(vector)], fresh(), Groups::ALL);
        assert_eq!(exchange.take(&negotiate(&[vector.hash], &[vector.group])), Answer::Goes);
        let (challenge, answer) = exchange.give();
        assert_eq!((answer, challenge[..2].to_vec()), (Answer::Goes, vec![1, 1]));
        let value = 16 + hash.bytes();
        assert_eq!(challenge[16..value], fresh().challenge[..hash.bytes()]);
        let digest = Sha256::digest(&challenge[value..]);
        assert_eq!(hex(&digest[..8]), vector.public);
        let own = own_challenge(hash);
        let message = reply(hash, &host, Some((&own, 0x0a0b_0c0d)), &public);
        assert!(message.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(exchange.take(&message), Answer::Goes);
        let (success, answer) = exchange.give();
        assert_eq!((answer, success[..2].to_vec(), success[8]), (Answer::Goes, vec![1, 3], 1));
        assert_eq!(success[16..], controller);
        assert_eq!(exchange.take(&[lead(1, 4), vec![0; 10]].concat()), Answer::Proven);
    }
}

#[test]
fn a_host_that_asks_for_no_proof_is_done_earlier() {
    let vector = &VECTORS[0];
    let (hash, _, public, [host, _]) = host_of(vector);
    let keys = Keys { controller: None, ..keys(vector) };
    let mut exchange = Exchange::new(names(), vec![keys], fresh(), Groups::ALL);
    exchange.take(&negotiate(&[1], &[0]));
    exchange.give();
    assert_eq!(exchange.take(&reply(hash, &host, None, &public)), Answer::Goes);
    let (success, answer) = exchange.give();
    assert_eq!((answer, success.len(), success[8]), (Answer::Proven, 16, 0));
}

/// Continues until the reply, and returns how it was received.
fn check(vector: &Vector, keys: Keys, message: &[u8]) -> Option<Failure> {
    let mut exchange = Exchange::new(names(), vec![keys], fresh(), Groups::ALL);
    exchange.take(&negotiate(&[vector.hash], &[vector.group]));
    exchange.give();
    exchange.take(message);
    let failure = exchange.failure();
    if let Some(why) = failure {
        let (message, answer) = exchange.give();
        assert_eq!((answer, &message[..2]), (Answer::Failed, &[0, 0xf1][..]));
        assert_eq!(message[6..], [1, why as u8]);
    }
    failure
}

#[test]
fn a_host_that_does_not_know_the_secret_is_refused() {
    for vector in &VECTORS[..4] {
        let (hash, _, public, [host, _]) = host_of(vector);
        let good = reply(hash, &host, None, &public);
        assert_eq!(check(vector, keys(vector), &good), None);
        for at in 0..hash.bytes() {
            let mut wrong = host.clone();
            wrong[at] ^= 1;
            let message = reply(hash, &wrong, None, &public);
            assert_eq!(check(vector, keys(vector), &message), Some(Failure::Refused), "byte {at}");
        }
        let swapped = Keys { host: vector.controller.parse().expect("a secret"), ..keys(vector) };
        assert_eq!(check(vector, swapped, &good), Some(Failure::Refused), "another secret");
    }
}

/// A controller is not made to respond to its own challenge, nor without a secret.
#[test]
fn what_the_controller_cannot_or_must_not_prove_is_refused() {
    let vector = &VECTORS[0];
    let (hash, _, public, [host, _]) = host_of(vector);
    let mirrored = fresh().challenge[..hash.bytes()].to_vec();
    let message = reply(hash, &host, Some((&mirrored, 9)), &public);
    assert_eq!(check(vector, keys(vector), &message), Some(Failure::Refused));
    let own = own_challenge(hash);
    let message = reply(hash, &host, Some((&own, 9)), &public);
    let one_sided = Keys { controller: None, ..keys(vector) };
    assert_eq!(check(vector, one_sided, &message), Some(Failure::Refused));
}

/// Values that would make the result known, or that are none of the group (RFC 7919, section 5.1).
#[test]
fn public_values_outside_the_group_are_refused() {
    let vector = &VECTORS[3];
    let (hash, group, _, [host, _]) = host_of(vector);
    let prime = group.prime();
    let mut less_one = prime.clone();
    less_one[255] -= 1;
    let number = |low: u8| [vec![0; 255], vec![low]].concat();
    for public in [number(0), number(1), less_one, prime, vec![0xff; 256]] {
        let message = reply(hash, &host, None, &public);
        assert_eq!(check(vector, keys(vector), &message), Some(Failure::Group));
    }
    for public in [vec![], vec![2; 255], vec![2; 257]] {
        let message = reply(hash, &host, None, &public);
        assert_eq!(check(vector, keys(vector), &message), Some(Failure::Group));
    }
    let message = reply(Hash::Sha256, &[0; 32], None, &[3]);
    assert_eq!(check(&VECTORS[0], keys(&VECTORS[0]), &message), Some(Failure::Payload));
}

#[test]
fn the_best_of_what_a_host_offers_is_chosen() {
    let vector = &VECTORS[0];
    for (hashes, groups, wanted) in [
        (&[1, 2, 3][..], &[0, 1, 2, 3, 4, 5][..], Ok((3, 2))),
        (&[1, 2], &[0, 1], Ok((2, 1))),
        (&[9, 1], &[0, 77], Ok((1, 0))),
        (&[], &[0], Err(Failure::Hash)),
        (&[4, 0], &[0], Err(Failure::Hash)),
        (&[1], &[], Err(Failure::Group)),
        (&[1], &[6, 255], Err(Failure::Group)),
    ] {
        let mut exchange = Exchange::new(names(), vec![keys(vector)], fresh(), Groups::ALL);
        exchange.take(&negotiate(hashes, groups));
        let failure = exchange.failure();
        let (message, _) = exchange.give();
        let chosen = failure.map_or_else(|| Ok((message[8], message[9])), Err);
        assert_eq!(chosen, wanted, "{hashes:?} {groups:?}");
    }
    let mut exchange = Exchange::new(names(), vec![keys(vector)], fresh(), Groups::ALL);
    let mut secure = negotiate(&[1], &[0]);
    secure[6] = 1;
    exchange.take(&secure);
    assert_eq!(exchange.failure(), Some(Failure::SecureChannel));
}

/// nvmet-auth: repeated negotiation, steps out of order, another transaction. Each ends the authentication once.
#[test]
fn steps_out_of_order_end_the_conversation() {
    let vector = &VECTORS[3];
    let (hash, _, public, [host, _]) = host_of(vector);
    let offer = negotiate(&[vector.hash], &[vector.group]);
    let good = reply(hash, &host, None, &public);
    let mut other = good.clone();
    other[4] ^= 1;
    let done = [lead(1, 4), vec![0; 10]].concat();
    for (what, first, message, wanted) in [
        ("a reply first", false, &good, Failure::Message),
        ("an end first", false, &done, Failure::Message),
        ("a second negotiation", true, &offer, Failure::Message),
        ("an end without proof", true, &done, Failure::Message),
        ("another transaction", true, &other, Failure::Payload),
        ("nothing", true, &Vec::new(), Failure::Payload),
    ] {
        let mut exchange = Exchange::new(names(), vec![keys(vector)], fresh(), Groups::ALL);
        if first {
            exchange.take(&offer);
            exchange.give();
        }
        exchange.take(message);
        assert_eq!(exchange.failure(), Some(wanted), "{what}");
        // Whatever comes now does not help.
        assert_eq!(exchange.take(&offer), Answer::Goes);
        assert_eq!(exchange.give().1, Answer::Failed, "{what}");
        assert_eq!(exchange.take(&good), Answer::Goes);
        assert_eq!(exchange.give().1, Answer::Failed, "{what}");
    }
    let mut exchange = Exchange::new(names(), vec![keys(vector)], fresh(), Groups::ALL);
    assert_eq!(exchange.give().1, Answer::Failed, "nothing was said");
    let mut exchange = Exchange::new(names(), vec![keys(vector)], fresh(), Groups::ALL);
    exchange.take(&offer);
    assert_eq!(exchange.take(&[lead(0, 0xf0), vec![1, 1]].concat()), Answer::Failed, "given up");
}

#[test]
fn secrets_are_read_or_refused() {
    let read = |text: &str| text.parse::<Secret>().map(drop);
    let good = VECTORS[0].host;
    assert_eq!(read(good), Ok(()));
    assert_eq!(read(&format!("{good}\n")), Ok(()), "a file ends with a line feed");
    let long = concat!(
        "DHHC-1:03:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH",
        "BwcHBwcHB7hZPNU=:"
    );
    assert_eq!(read(long), Ok(()), "64 bytes");
    for (text, why) in [
        ("", SecretError::Format),
        ("DHHC-1:00", SecretError::Format),
        (&good[..good.len() - 1], SecretError::Format),
        (&good.replace("DHHC-1", "DHHC-2"), SecretError::Format),
        (&good.replace("BwcH", "B cH"), SecretError::Format),
        (&good.replace(":00:", ":04:"), SecretError::Transform),
        ("DHHC-1:00:AAAA:", SecretError::Length),
        ("DHHC-1:00::", SecretError::Length),
        (&good.replacen("BwcH", "CwcH", 1), SecretError::Checksum),
    ] {
        assert_eq!(read(text), Err(why), "{text:?}");
    }
    let shown = format!("{:?}", good.parse::<Secret>().expect("a secret"));
    assert!(!shown.contains('7'), "{shown}");
    let texts = VECTORS.iter().flat_map(|vector| [vector.host, vector.controller]).chain([long]);
    for text in texts {
        assert_eq!(text.parse::<Secret>().expect("a secret").reveal().as_str(), text);
    }
}

proptest! {
    #[test]
    fn random_messages_never_prove_anything(
        messages in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..200), 0_u8..5, any::<bool>()), 1..8,
        ),
    ) {
        let mut exchange = Exchange::new(names(), vec![keys(&VECTORS[0])], fresh(), Groups::ALL);
        exchange.take(&negotiate(&[1], &[0]));
        for (mut message, id, asks) in messages {
            let head = lead(1, id);
            let known = head.len().min(message.len());
            message[..known].copy_from_slice(&head[..known]);
            prop_assert_ne!(exchange.take(&message), Answer::Proven);
            if asks {
                prop_assert_ne!(exchange.give().1, Answer::Proven);
            }
        }
    }
}

/// The host's own random bytes.
fn claim(vector: &Vector, controller: bool) -> Claim {
    let mut keys = keys(vector);
    keys.controller = keys.controller.filter(|_| controller);
    let sequence = 0x0a0b_0000 | u32::from(TRANSACTION);
    Claim::new(names(), keys, Fresh { challenge: counting(200), exponent: EXPONENT, sequence })
}

/// The controller's messages have this much room.
fn given(exchange: &mut Exchange) -> Vec<u8> {
    let (mut message, _) = exchange.give();
    message.resize(4096, 0);
    message
}

#[test]
fn a_host_and_a_controller_of_ours_believe_each_other() {
    for vector in &VECTORS {
        for asks in [false, true] {
            let (mut host, mut exchange) = (
                claim(vector, asks),
                Exchange::new(names(), vec![keys(vector)], fresh(), Groups::ALL),
            );
            let mut offer = host.offer();
            // Only what the vector has.
            (offer[12], offer[13]) = (1, 1);
            (offer[14], offer[44]) = (vector.hash, vector.group);
            assert_eq!(exchange.take(&offer), Answer::Goes);
            let reply = host.reply(&given(&mut exchange)).expect("a challenge");
            assert!(reply.len() <= MESSAGE_BYTES_MAX);
            assert_eq!(exchange.take(&reply), Answer::Goes);
            let last = host.conclude(&given(&mut exchange)).expect("both know the secrets");
            assert_eq!(last.is_some(), asks);
            if let Some(last) = last {
                assert_eq!(exchange.take(&last), Answer::Proven);
            }
        }
    }
}

/// A host that still has the replaced keys proves itself, and gets the proof of the controller that belongs to them.
#[test]
fn replaced_keys_are_accepted_while_they_are_valid() {
    let (old, new) = (&VECTORS[0], &VECTORS[1]);
    for (has, old_keys, expected) in [
        (old, Some(keys(old)), Answer::Goes),
        (new, Some(keys(old)), Answer::Goes),
        (new, None, Answer::Goes),
        (old, None, Answer::Failed),
    ] {
        let valid = [Some(keys(new)), old_keys].into_iter().flatten().collect();
        let mut exchange = Exchange::new(names(), valid, fresh(), Groups::ALL);
        let random = Fresh { challenge: counting(200), exponent: EXPONENT, sequence: 7 };
        let mut host = Claim::new(names(), keys(has), random);
        exchange.take(&host.offer());
        let reply = host.reply(&given(&mut exchange)).expect("a challenge");
        exchange.take(&reply);
        let (message, answer) = exchange.give();
        assert_eq!(answer, expected);
        if expected == Answer::Goes {
            host.conclude(&message).expect("the controller has the keys of the same pair");
        }
    }
}

#[test]
fn a_group_that_the_controller_does_not_accept_is_not_used() {
    let groups = [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072, Group::Ffdhe8192];
    for (offered, chosen) in [
        (&groups[..], Some(Group::Ffdhe3072)),
        (&groups[..2], Some(Group::Ffdhe2048)),
        (&groups[..1], None),
        (&groups[3..], None),
    ] {
        let keys = keys(&VECTORS[0]);
        let mut exchange = Exchange::new(names(), vec![keys], fresh(), Groups::default());
        let ids: Vec<u8> = offered.iter().map(|group| *group as u8).collect();
        exchange.take(&negotiate(&[Hash::Sha256 as u8], &ids));
        let failure = chosen.is_none().then_some(Failure::Group);
        assert_eq!(exchange.failure(), failure, "{offered:?}");
        if let Some(group) = chosen {
            assert_eq!(exchange.give().0[9], group as u8);
        }
    }
}

#[test]
fn a_host_offers_everything_and_the_best_is_chosen() {
    let mut exchange = Exchange::new(names(), vec![keys(&VECTORS[0])], fresh(), Groups::ALL);
    assert_eq!(exchange.take(&claim(&VECTORS[0], true).offer()), Answer::Goes);
    let (message, _) = exchange.give();
    assert_eq!((message[8], message[9]), (Hash::Sha512 as u8, Group::Ffdhe3072 as u8));
}

/// What a host hears, up to the word that it is believed; that is given to `change` first.
fn heard(host: Keys, change: impl Fn(&mut Vec<u8>)) -> Result<Option<Vec<u8>>, Doubt> {
    let vector = &VECTORS[1];
    let random = Fresh { challenge: counting(200), exponent: EXPONENT, sequence: 7 };
    let mut host = Claim::new(names(), host, random);
    let mut exchange = Exchange::new(names(), vec![keys(vector)], fresh(), Groups::ALL);
    exchange.take(&host.offer());
    let reply = host.reply(&given(&mut exchange))?;
    exchange.take(&reply);
    let mut success = given(&mut exchange);
    change(&mut success);
    host.conclude(&success)
}

#[test]
fn a_controller_that_does_not_prove_itself_is_not_believed() {
    let keys = || keys(&VECTORS[1]);
    assert!(heard(keys(), |_| ()).is_ok_and(|last| last.is_some()));
    for at in 16..16 + 64 {
        assert_eq!(heard(keys(), |message| message[at] ^= 1), Err(Doubt::Unproven), "byte {at}");
    }
    assert_eq!(heard(keys(), |message| message[8] = 0), Err(Doubt::Unproven), "no response");
    assert_eq!(heard(keys(), |message| message[6] = 0), Err(Doubt::Unproven), "an empty one");
    assert_eq!(heard(keys(), |message| message[4] ^= 1), Err(Doubt::Nonsense), "of another talk");
    assert_eq!(heard(keys(), |message| message[1] = 1), Err(Doubt::Nonsense), "out of order");
    assert_eq!(heard(keys(), |message| message.truncate(5)), Err(Doubt::Nonsense), "cut off");
    let wrong = Keys { host: Secret::from([1; 32]), ..keys() };
    assert_eq!(heard(wrong, |_| ()), Err(Doubt::Refused(Failure::Refused as u8)));
    let other = Keys { controller: Some(Secret::from([1; 32])), ..keys() };
    assert_eq!(heard(other, |_| ()), Err(Doubt::Unproven), "another secret");
}

#[test]
fn a_challenge_without_a_possible_response_ends_the_exchange() {
    let challenge = || {
        let mut exchange = Exchange::new(names(), vec![keys(&VECTORS[3])], fresh(), Groups::ALL);
        exchange.take(&negotiate(&[3], &[1]));
        given(&mut exchange)
    };
    let check = |change: fn(&mut Vec<u8>), doubt| {
        let mut message = challenge();
        change(&mut message);
        assert_eq!(claim(&VECTORS[3], true).reply(&message), Err(doubt));
    };
    check(|m| m[6] = 32, Doubt::Nonsense);
    check(|m| m[8] = 9, Doubt::Nonsense);
    check(|m| m[9] = 6, Doubt::Nonsense);
    check(|m| m[9] = 0, Doubt::Nonsense);
    check(|m| m[11] = 2, Doubt::Nonsense);
    check(|m| m.truncate(16 + 64 + 255), Doubt::Nonsense);
    check(|m| m[16 + 64..16 + 64 + 256].fill(0), Doubt::Choice);
    check(|m| m[16 + 64..16 + 64 + 256].fill(0xff), Doubt::Choice);
}

proptest! {
    #[test]
    fn random_messages_never_panic_or_convince_a_host(
        bytes in proptest::collection::vec(any::<u8>(), 0..1200),
        shaped in any::<bool>(),
    ) {
        let mut host = claim(&VECTORS[1], true);
        let lead = |id| [&lead(1, id)[..], &bytes[..]].concat();
        let challenge = if shaped { lead(1) } else { bytes.clone() };
        // Whatever it is: an answer or a doubt.
        let _ = host.reply(&challenge);
        let success = if shaped { lead(3) } else { bytes.clone() };
        prop_assert!(host.conclude(&success).is_err());
    }
}
