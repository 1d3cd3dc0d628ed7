//! Tests of negotiations as byte strings: the input of a client, the answer, and the decision.

use super::*;
use crate::wire::{info, transmission_flag};
use proptest::prelude::*;

/// A directory of two exports, `disk` and `full`, whose connection slots are their names.
struct Two;

fn offer(name: &str) -> Offer {
    Offer {
        name: name.to_owned(),
        description: "words".to_owned(),
        bytes: 1 << 20,
        flags: transmission_flag::HAS_FLAGS,
        block_bytes: 512,
        preferred_bytes: 4096,
        payload_bytes_max: 32 << 20,
    }
}

impl Directory for Two {
    type ConnectionSlot = String;

    fn list(&self, each: &mut dyn FnMut(&str, &str)) {
        each("disk", "words");
        each("full", "");
    }

    fn find(&self, name: &str) -> Result<Offer, Refusal> {
        match name {
            "disk" | "full" => Ok(offer(name)),
            "late" => Err(Refusal::Stopping),
            _ => Err(Refusal::Unknown),
        }
    }

    fn claim(&self, name: &str) -> Result<(Offer, String), Refusal> {
        match name {
            "full" => Err(Refusal::Full),
            _ => Ok((self.find(name)?, name.to_owned())),
        }
    }
}

/// The end of a negotiation.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Waiting,
    Serves(String, Agreement),
    Closed(Goodbye),
}

/// Runs a negotiation with `input`, and returns all its answers and its end.
fn play(input: &[u8]) -> (Vec<u8>, End) {
    let mut handshake = Handshake::new();
    let (mut at, mut out) = (0, Vec::new());
    loop {
        let rest = &input[at..];
        let window = &rest[..rest.len().min(OPTION_BYTES_MAX + OPTION_HEADER_BYTES)];
        let step = handshake.step(window, &Two, &mut out);
        assert!(step.taken <= window.len(), "took more than there was");
        at += step.taken;
        match step.next {
            Next::More if step.taken == 0 => return (out, End::Waiting),
            Next::More => {}
            Next::Serve(connection_slot, agreement) => {
                return (out, End::Serves(connection_slot, agreement));
            }
            Next::Close(why) => return (out, End::Closed(why)),
        }
    }
}

fn hello(flags: u32, options: &[Vec<u8>]) -> Vec<u8> {
    [flags.to_be_bytes().to_vec(), options.concat()].concat()
}

fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = wire::OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(code.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn wanted(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((kinds.len() as u16).to_be_bytes());
    data.extend(kinds.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

fn queries(name: &str, texts: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((texts.len() as u32).to_be_bytes());
    data.extend(texts.iter().flat_map(|text| string(text)));
    data
}

/// Splits answers into (option, reply type, data).
fn replies(mut bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let mut cursor = Cursor::new(bytes);
        assert_eq!(cursor.u64(), Some(wire::OPTION_REPLY_MAGIC), "replies begin with their magic");
        let (option, kind) = (cursor.u32().unwrap(), cursor.u32().unwrap());
        let length = cursor.u32().unwrap() as usize;
        let data = cursor.bytes(length).unwrap().to_vec();
        bytes = &bytes[wire::OPTION_REPLY_HEADER_BYTES + length..];
        all.push((option, kind, data));
    }
    all
}

/// Runs options after a plain hello, and checks the types of the replies and the end.
fn check(options: &[Vec<u8>], want: &[u32], end: End) -> Vec<(u32, u32, Vec<u8>)> {
    let (out, ended) = play(&hello(3, options));
    let got = replies(&out);
    let kinds: Vec<u32> = got.iter().map(|reply| reply.1).collect();
    assert_eq!((kinds.as_slice(), &ended), (want, &end));
    got
}

const ACK: u32 = option_reply::ACK;
const INFO: u32 = option_reply::INFO;
const SIMPLE: Agreement =
    Agreement { replies: ReplyStyle::Simple, allocation: Allocation::Unavailable };
const STRUCTURED: Agreement =
    Agreement { replies: ReplyStyle::Structured, allocation: Allocation::Unavailable };

fn disk(agreement: Agreement) -> End {
    End::Serves("disk".to_owned(), agreement)
}

#[test]
fn go_describes_the_export_and_begins_transmission() {
    let got = check(&[option(option::GO, &wanted("disk", &[]))], &[INFO, INFO, ACK], disk(SIMPLE));
    assert_eq!(got[0].2, [0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 1]);
    assert_eq!(got[1].2, [0, 3, 0, 0, 2, 0, 0, 0, 0x10, 0, 2, 0, 0, 0]);
}

#[test]
fn info_answers_what_was_asked_once_each() {
    let kinds = [info::NAME, info::DESCRIPTION, info::NAME, 999];
    let got = check(
        &[option(option::INFO, &wanted("disk", &kinds))],
        &[INFO, INFO, INFO, INFO, ACK],
        End::Waiting,
    );
    assert_eq!(got[1].2, b"\0\x01disk");
    assert_eq!(got[2].2, b"\0\x02words");
}

#[test]
fn structured_replies_bring_the_flag_for_unfragmented_reads() {
    let got = check(
        &[option(option::STRUCTURED_REPLY, &[]), option(option::GO, &wanted("disk", &[]))],
        &[ACK, INFO, INFO, ACK],
        disk(STRUCTURED),
    );
    let flags = u16::from_be_bytes([got[1].2[10], got[1].2[11]]);
    assert_eq!(flags, transmission_flag::HAS_FLAGS | transmission_flag::SEND_DF);
}

#[test]
fn refusals_leave_the_negotiation_open() {
    let go = |name: &str| option(option::GO, &wanted(name, &[]));
    check(
        &[go("none"), go("full"), go("late"), go("disk")],
        &[
            option_reply::ERR_UNKNOWN,
            option_reply::ERR_POLICY,
            option_reply::ERR_SHUTDOWN,
            INFO,
            INFO,
            ACK,
        ],
        disk(SIMPLE),
    );
}

#[test]
fn list_names_every_export() {
    let got = check(
        &[option(option::LIST, &[])],
        &[option_reply::SERVER, option_reply::SERVER, ACK],
        End::Waiting,
    );
    assert_eq!(got[0].2, b"\0\0\0\x04diskwords");
    check(&[option(option::LIST, b"x")], &[option_reply::ERR_INVALID], End::Waiting);
}

#[test]
fn export_name_pads_unless_the_client_declines() {
    let ask = [option(option::EXPORT_NAME, b"disk")];
    let (out, end) = play(&hello(1, &ask));
    assert_eq!((out.len(), end), (10 + 124, disk(SIMPLE)));
    let (out, end) = play(&hello(3, &ask));
    assert_eq!((out.len(), end), (10, disk(SIMPLE)));
    let (out, end) = play(&hello(3, &[option(option::EXPORT_NAME, b"none")]));
    assert_eq!((out.len(), end), (0, End::Closed(Goodbye::NoExport)));
}

#[test]
fn abort_is_acknowledged_whatever_it_carries() {
    check(&[option(option::ABORT, b"bye")], &[ACK], End::Closed(Goodbye::Aborted));
}

#[test]
fn contexts_are_listed_and_selected() {
    let structured = option(option::STRUCTURED_REPLY, &[]);
    let context = option_reply::META_CONTEXT;
    let list = |texts: &[&str]| option(option::LIST_META_CONTEXT, &queries("disk", texts));
    check(
        &[structured.clone(), list(&[]), list(&["base:"]), list(&["qemu:", "x"])],
        &[ACK, context, ACK, context, ACK, ACK],
        End::Waiting,
    );
    let set = |name: &str, texts: &[&str]| option(option::SET_META_CONTEXT, &queries(name, texts));
    let go = option(option::GO, &wanted("disk", &[]));
    let selected = Agreement { allocation: Allocation::Selected, ..STRUCTURED };
    check(
        &[structured.clone(), set("disk", &["base:allocation"]), go.clone()],
        &[ACK, context, ACK, INFO, INFO, ACK],
        disk(selected),
    );
    // The wildcard selects nothing, and a later selection, even one that fails, replaces an earlier one.
    check(
        &[structured.clone(), set("disk", &["base:"]), go.clone()],
        &[ACK, ACK, INFO, INFO, ACK],
        disk(STRUCTURED),
    );
    check(
        &[structured.clone(), set("disk", &["base:allocation"]), set("none", &[]), go.clone()],
        &[ACK, context, ACK, option_reply::ERR_UNKNOWN, INFO, INFO, ACK],
        disk(STRUCTURED),
    );
    // A selection for one export does not apply to another export.
    check(
        &[structured, set("full", &["base:allocation"]), go.clone()],
        &[ACK, context, ACK, INFO, INFO, ACK],
        disk(STRUCTURED),
    );
    check(
        &[set("disk", &["base:allocation"]), go],
        &[option_reply::ERR_INVALID, INFO, INFO, ACK],
        disk(SIMPLE),
    );
}

#[test]
fn unknown_options_are_refused_and_skipped() {
    check(
        &[option(4, b"?"), option(11, &[]), option(u32::MAX, &[0; 100])],
        &[option_reply::ERR_UNSUP; 3],
        End::Waiting,
    );
}

#[test]
fn violations_end_the_negotiation() {
    assert_eq!(play(&hello(4, &[])).1, End::Closed(Goodbye::UnknownFlags));
    assert_eq!(play(&hello(3, &[vec![0; 16]])).1, End::Closed(Goodbye::BadMagic));
    let flood: Vec<_> = (0..65).map(|_| option(option::LIST, &[])).collect();
    assert_eq!(play(&hello(3, &flood)).1, End::Closed(Goodbye::TooManyOptions));
}

/// CVE-2017-15118: an export name of 3000 bytes overflowed a buffer of QEMU's server. The name is valid, and no export
/// has it.
#[test]
fn cve_2017_15118_long_export_name() {
    let long = "x".repeat(3000);
    check(&[option(option::GO, &wanted(&long, &[]))], &[option_reply::ERR_UNKNOWN], End::Waiting);
    let (_, end) = play(&hello(3, &[option(option::EXPORT_NAME, long.as_bytes())]));
    assert_eq!(end, End::Closed(Goodbye::NoExport));
    let longer = "x".repeat(4097);
    check(&[option(option::GO, &wanted(&longer, &[]))], &[option_reply::ERR_INVALID], End::Waiting);
}

/// CVE-2017-15119: options of up to 4 GiB kept QEMU's server reading. Here they are skipped without being stored, up to
/// a limit.
#[test]
fn cve_2017_15119_huge_options() {
    let huge = option(option::INFO, &vec![0; 100_000]);
    check(
        &[huge.clone(), option(option::GO, &wanted("disk", &[]))],
        &[option_reply::ERR_TOO_BIG, INFO, INFO, ACK],
        disk(SIMPLE),
    );
    let flood: Vec<_> = (0..11).map(|_| huge.clone()).collect();
    assert_eq!(play(&hello(3, &flood)).1, End::Closed(Goodbye::TooMuchSkipped));
    let mut liar = option(option::LIST, &[]);
    liar[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(play(&hello(3, &[liar])).1, End::Closed(Goodbye::TooMuchSkipped));
}

/// CVE-2022-26495: nbd-server added 1 to a name length of 0xffffffff and wrote into nothing.
#[test]
fn cve_2022_26495_name_length_of_all_ones() {
    for code in [option::INFO, option::GO, option::LIST_META_CONTEXT, option::SET_META_CONTEXT] {
        let data = [u32::MAX.to_be_bytes().to_vec(), b"disk".to_vec(), vec![0; 8]].concat();
        check(
            &[option(option::STRUCTURED_REPLY, &[]), option(code, &data)],
            &[ACK, option_reply::ERR_INVALID],
            End::Waiting,
        );
    }
    // Queries are checked in the same way: a count and a length that are far beyond the data.
    let mut data = string("disk");
    data.extend(u32::MAX.to_be_bytes());
    data.extend(u32::MAX.to_be_bytes());
    check(
        &[option(option::STRUCTURED_REPLY, &[]), option(option::LIST_META_CONTEXT, &data)],
        &[ACK, option_reply::ERR_INVALID],
        End::Waiting,
    );
}

/// CVE-2022-26496: a name of more than 1024 bytes in INFO or GO overflowed nbd-server's stack.
#[test]
fn cve_2022_26496_long_bodies() {
    for code in [option::INFO, option::GO] {
        for bytes in [1020, 1025, 4096] {
            let name = "n".repeat(bytes);
            check(
                &[option(code, &wanted(&name, &[0; 2000]))],
                &[option_reply::ERR_UNKNOWN],
                End::Waiting,
            );
        }
        let short = [wanted("disk", &[]), vec![0]].concat();
        check(&[option(code, &short)], &[option_reply::ERR_INVALID], End::Waiting);
        let missing = wanted("disk", &[3, 3]);
        check(
            &[option(code, &missing[..missing.len() - 1])],
            &[option_reply::ERR_INVALID],
            End::Waiting,
        );
    }
}

/// CVE-2021-3716: options that were negotiated without encryption before STARTTLS remained in effect. Here STARTTLS
/// never succeeds, so no such option can apply to an encrypted connection.
#[test]
fn cve_2021_3716_structured_reply_before_starttls() {
    check(
        &[
            option(option::STRUCTURED_REPLY, &[]),
            option(option::STARTTLS, &[]),
            option(option::GO, &wanted("disk", &[])),
        ],
        &[ACK, option_reply::ERR_POLICY, INFO, INFO, ACK],
        disk(STRUCTURED),
    );
}

/// CVE-2019-14851 and others: requests before, and options after, the end of the negotiation. A request is not an
/// option, and the bytes after GO remain for the transmission phase.
#[test]
fn cve_2019_14851_messages_in_the_wrong_order() {
    let read = wire::Request { flags: 0, command: 0, cookie: 1, offset: 0, length: 512 };
    assert_eq!(play(&hello(3, &[read.bytes().to_vec()])).1, End::Closed(Goodbye::BadMagic));
    let go = option(option::GO, &wanted("disk", &[]));
    let input = hello(3, &[go.clone(), read.bytes().to_vec()]);
    let mut handshake = Handshake::new();
    let mut out = Vec::new();
    let first = handshake.step(&input, &Two, &mut out).taken;
    let second = handshake.step(&input[first..], &Two, &mut out);
    assert_eq!(first + second.taken, 4 + go.len());
}

/// An option that is well formed or almost well formed.
fn any_option() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![Just("disk".to_owned()), Just(String::new()), ".{0,40}"];
    let data = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        (name.clone(), proptest::collection::vec(any::<u16>(), 0..5))
            .prop_map(|(name, kinds)| wanted(&name, &kinds)),
        (name, any::<bool>()).prop_map(|(name, base)| {
            queries(&name, if base { &["base:allocation"] } else { &["x:y", "base:"] })
        }),
    ];
    (0u32..13, data, proptest::option::of(any::<u32>())).prop_map(|(code, data, lie)| {
        let mut bytes = option(code, &data);
        if let Some(length) = lie {
            bytes[12..16].copy_from_slice(&length.to_be_bytes());
        }
        bytes
    })
}

proptest! {
    #[test]
    fn any_bytes_end_or_wait(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        play(&bytes);
    }

    #[test]
    fn near_misses_end_or_wait_with_bounded_answers(
        options in proptest::collection::vec(any_option(), 0..80),
    ) {
        let (out, _) = play(&hello(3, &options));
        // Two exports: no answer to one option is longer than this.
        prop_assert!(out.len() <= options.len() * 200, "{} bytes", out.len());
    }

    #[test]
    fn how_bytes_are_cut_changes_nothing(
        options in proptest::collection::vec(any_option(), 0..6),
        cut in 1usize..50,
    ) {
        let input = hello(3, &options);
        let whole = play(&input);
        let mut handshake = Handshake::new();
        let (mut at, mut seen, mut out) = (0, 0, Vec::new());
        let end = loop {
            let step = handshake.step(&input[at..seen], &Two, &mut out);
            at += step.taken;
            match step.next {
                Next::More if step.taken == 0 && seen == input.len() => break End::Waiting,
                Next::More if step.taken == 0 => seen = input.len().min(seen + cut),
                Next::More => {}
                Next::Serve(connection_slot, agreement) => break End::Serves(connection_slot, agreement),
                Next::Close(why) => break End::Closed(why),
            }
        };
        prop_assert_eq!((out, end), whole);
    }
}
