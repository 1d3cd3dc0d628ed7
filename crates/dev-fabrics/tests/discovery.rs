//! Queries of a discovery controller: correct and malicious services.

mod proxy;

use std::sync::mpsc;

use proxy::{Hostile, Passed};
use strake_dev_fabrics::discovery::{Channel, EntryError, Kind, Offers, Transport};
use strake_dev_fabrics::{Digests, Use};
use strake_fuzz::{Case, Chance, Shown, damage, runs};
use strake_nvme_tcp::pdu::{self, DATA_BYTES};
use strake_nvme_wire::nqn::NqnError;
use strake_nvme_wire::{Cqe, Status};

const NONE: Digests = Digests { header: Use::Off, data: Use::Off };
const BOTH: Digests = Digests { header: Use::On, data: Use::On };

/// The PDUs of a discovery service, in this order.
const CONNECTED: usize = 1;
const STATUS: usize = 4;
const HEADER: usize = 5;
const ENTRIES: usize = 6;
const HEADER_AGAIN: usize = 7;
const ALL: usize = 8;

/// The result of a query when PDU `number` is changed.
fn changed(
    number: usize,
    change: impl Fn(&mut Vec<u8>) + Send + 'static,
) -> Result<Offers, String> {
    let hostile = Hostile::new();
    let rule = move |at, mut pdu: Vec<u8>| {
        if at == number {
            change(&mut pdu);
        }
        Passed::On(pdu)
    };
    hostile.discover(NONE, Box::new(rule)).map_err(|error| error.to_string())
}

/// As [`changed`]; the query must fail with `why`.
fn refused(number: usize, change: impl Fn(&mut Vec<u8>) + Send + 'static, why: &str) {
    let error = changed(number, change).expect_err("it is refused");
    assert!(error.contains(why), "PDU {number}: {error}");
}

/// A field of the data of a PDU.
fn field<const N: usize>(at: usize, value: [u8; N]) -> impl Fn(&mut Vec<u8>) + Send + 'static {
    move |pdu| pdu[DATA_BYTES + at..][..N].copy_from_slice(&value)
}

#[test]
fn what_is_offered_is_reported_as_it_is() {
    for digests in [NONE, BOTH] {
        let hostile = Hostile::new();
        let (reported, kinds) = mpsc::channel();
        let rule = move |at, pdu: Vec<u8>| {
            reported.send((at, pdu[0])).expect("the test waits");
            Passed::On(pdu)
        };
        let offers = hostile.discover(digests, Box::new(rule)).expect("an honest service");
        let [Ok(entry)] = &offers[..] else { panic!("one subsystem: {offers:?}") };
        assert_eq!((entry.kind, entry.transport), (Kind::Subsystem, Transport::Tcp));
        assert_eq!(entry.nqn, "nqn.2014-08.org.nvmexpress:uuid:ram");
        assert_eq!((entry.address.as_str(), entry.channel), ("127.0.0.1", Channel::NotRequired));
        // The order that these tests assume: three PDUs with data, the last of the log.
        let data: Vec<_> = kinds.try_iter().filter(|(_, kind)| *kind == 7).collect();
        assert_eq!(data, [(HEADER, 7), (ENTRIES, 7), (HEADER_AGAIN, 7)]);
    }
}

/// A read of the whole log would exhaust the memory.
#[test]
fn a_log_without_end_is_not_read() {
    refused(HEADER, field(8, [0xff; 8]), "endless");
    refused(HEADER, field(8, 1025_u64.to_le_bytes()), "endless");
    refused(HEADER_AGAIN, field(0, [0xff; 16]), "endless");
}

#[test]
fn a_log_of_an_unknown_format_is_not_read() {
    refused(HEADER, field(16, [1, 0]), "unknown format");
}

/// A service that reports too many entries pads with zeroes, which are not entries.
#[test]
fn entries_that_are_not_there_are_no_offers() {
    let offers = changed(HEADER, field(8, 3_u64.to_le_bytes())).expect("the log is in order");
    let none = Err(EntryError::Name(NqnError::NoPrefix));
    assert!(offers.len() == 3 && offers[0].is_ok(), "{offers:?}");
    assert_eq!(offers[1..], [none.clone(), none]);
}

/// A log that became shorter meanwhile: the read fails, and the generation differs.
#[test]
fn a_log_that_shrinks_is_read_again() {
    let refuse = |pdu: &mut Vec<u8>| {
        let cid = u16::from_le_bytes([pdu[8], pdu[9]]);
        let cqe = Cqe { result: 0, head: 0, cid, status: Status::INVALID_FIELD };
        *pdu = pdu::capsule_resp(&cqe, NONE).to_vec();
    };
    refused(ENTRIES, refuse, "the target refused");
    let hostile = Hostile::new();
    let rule = move |at, mut pdu: Vec<u8>| {
        match at {
            ENTRIES => refuse(&mut pdu),
            HEADER_AGAIN => pdu[DATA_BYTES] ^= 1,
            _ => {}
        }
        Passed::On(pdu)
    };
    let offers = hostile.discover(NONE, Box::new(rule)).expect("it is quiet then");
    assert!(offers.len() == 1 && offers[0].is_ok(), "{offers:?}");
}

/// A log that changes during a read is read again, up to a limit.
#[test]
fn a_log_that_changes_is_read_again() {
    let again = changed(HEADER_AGAIN, field(0, [0xee; 8])).expect("it is quiet then");
    assert_eq!(again.len(), 1);
    let hostile = Hostile::new();
    let rule = |at: usize, mut pdu: Vec<u8>| {
        if pdu[0] == 7 && pdu.len() == DATA_BYTES + 1024 {
            pdu[DATA_BYTES] = at as u8;
        }
        Passed::On(pdu)
    };
    let error = hostile.discover(NONE, Box::new(rule)).expect_err("it never is");
    assert!(error.to_string().contains("changes faster"), "{error}");
}

/// The text of an entry reaches the terminal of an operator.
#[test]
fn entries_that_cannot_be_shown_are_distinguished() {
    for (at, byte, why) in [
        (512, 0x1b, EntryError::Place),
        (32, 0x07, EntryError::Place),
        (260, 0x1b, EntryError::Name(NqnError::NotText)),
        (256, b'x', EntryError::Name(NqnError::NoPrefix)),
        (2, 7, EntryError::Kind(7)),
    ] {
        let offers = changed(ENTRIES, field(at, [byte])).expect("the log is in order");
        assert_eq!(offers, [Err(why)]);
    }
    let unending = changed(ENTRIES, field(256, [b'n'; 256])).expect("the log is in order");
    assert_eq!(unending, [Err(EntryError::Name(NqnError::TooLong))]);
}

/// The result of Connect states what the service requires before it returns the log (Base, Figure 393).
#[test]
fn a_service_that_asks_for_proof_or_encryption_says_so() {
    let required = |bits: u64| move |pdu: &mut Vec<u8>| pdu[8 + 2] |= (bits >> 16) as u8;
    refused(CONNECTED, required(1 << 17), "requires DH-HMAC-CHAP");
    refused(CONNECTED, required(1 << 18), "asks for a secure channel");
    refused(CONNECTED, |pdu| pdu[22..24].copy_from_slice(&[0x08, 0x03]), "we connect as nqn.");
    refused(STATUS, |pdu| pdu[8] = 2, "does not become ready");
}

#[test]
fn a_service_may_go_at_any_time() {
    for number in 0..ALL {
        let hostile = Hostile::new();
        let rule = move |at, pdu: Vec<u8>| match at == number {
            true => Passed::Last(pdu[..pdu.len() / 2].to_vec()),
            false => Passed::On(pdu),
        };
        hostile.discover(BOTH, Box::new(rule)).expect_err("it went");
    }
}

/// Random changes of the responses: the query returns the log or an error, and both can be displayed.
#[test]
fn random_logs_are_reported_or_refused() {
    let hostile = Hostile::new();
    runs(100, |seed| {
        let mut chance = Chance::new(seed);
        let number = chance.pick(&[CONNECTED, HEADER, ENTRIES, ENTRIES, HEADER_AGAIN]);
        let mut own = Chance::new(chance.bits());
        let rule = move |at, mut pdu: Vec<u8>| {
            if at != number {
                return Passed::On(pdu);
            }
            let whole = pdu.clone();
            let mut data = pdu.split_off(pdu.len().min(DATA_BYTES));
            let part = if data.is_empty() { &mut pdu } else { &mut data };
            (0..=own.below(3)).for_each(|_| damage(part, &mut own));
            data.resize(whole.len().saturating_sub(DATA_BYTES), 0);
            pdu.extend_from_slice(&data);
            if pdu.get(..8) == whole.get(..8) && pdu.len() == whole.len() {
                Passed::On(pdu)
            } else {
                Passed::Last(pdu)
            }
        };
        let case = Case::of("discovery", vec![vec![number as u8]]);
        let shown = Shown::new(&case);
        match hostile.discover(NONE, Box::new(rule)) {
            Ok(offers) => {
                let hidden = |c: char| c.is_control() || c.is_whitespace();
                for entry in offers.iter().flatten() {
                    assert!(!entry.nqn.contains(hidden) && !entry.address.contains(hidden));
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        drop(shown);
    });
}
