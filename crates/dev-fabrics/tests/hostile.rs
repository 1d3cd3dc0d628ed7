//! Malicious targets during the connect of a host. Inputs that broke other hosts have their names; the tests of the
//! queue cover I/O.

mod proxy;

use proxy::{Hostile, Passed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use strake_block::{BlockDevice, IoErrorKind, VolatileCache};
use strake_dev_fabrics::{Access, Digests, LinkState, PathState, Reason, Use};
use strake_export_nvmet::{Keys, Secret};
use strake_fuzz::{Case, Chance, Shown, damage, runs};
use strake_nvme_tcp::pdu::{self, CAPSULE_RESP_BYTES, DATA_BYTES};
use strake_nvme_tcp::{PduError, digest};
use strake_nvme_wire::{Cqe, Status};

/// Longest wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);
const NONE: Digests = Digests { header: Use::Off, data: Use::Off };
const BOTH: Digests = Digests { header: Use::On, data: Use::On };

/// The PDUs of a target to a host that connects, in this order.
const GRANT: usize = 0;
const CONNECTED: usize = 1;
const CAPABILITIES: usize = 2;
const STATUS: usize = 4;
const CONTROLLER: usize = 5;
const EVENTS: usize = 6;
const NAMESPACE: usize = 7;
const ACCESS: usize = 10;
const QUEUES: usize = 11;
const ALL: usize = 12;

/// Changes PDU `number`; the connect must fail with `why`.
fn refused(
    digests: Digests,
    number: usize,
    change: impl Fn(&mut Vec<u8>) + Send + 'static,
    why: &str,
) {
    let hostile = Hostile::new();
    let rule = move |at, mut pdu: Vec<u8>| {
        if at == number {
            change(&mut pdu);
        }
        Passed::On(pdu)
    };
    let error = hostile.connect(digests, Box::new(rule)).expect_err("it is refused");
    assert!(error.to_string().contains(why), "PDU {number}: {error}");
}

/// A field of the data of a PDU.
fn field<const N: usize>(at: usize, value: [u8; N]) -> impl Fn(&mut Vec<u8>) + Send + 'static {
    move |pdu| pdu[DATA_BYTES + at..][..N].copy_from_slice(&value)
}

#[test]
fn the_order_is_what_these_tests_take_it_for() {
    let hostile = Hostile::new();
    let (reported, kinds) = channel();
    let rule = move |at, pdu: Vec<u8>| {
        reported.send((at, pdu[0], pdu.len())).expect("the test waits");
        Passed::On(pdu)
    };
    hostile.connect(NONE, Box::new(rule)).expect("an honest target");
    let kinds: Vec<_> = kinds.try_iter().take(ALL).collect();
    let (page, answer) = (DATA_BYTES + 4096, (5, 24));
    // The page has as many groups as there may be namespaces.
    let groups = DATA_BYTES + 16 + 32 * 32;
    let expected = [(1, 128), answer, answer, answer, answer, (7, page), answer]
        .into_iter()
        .chain([(7, page); 3])
        .chain([(7, groups), answer]);
    let expected: Vec<_> = expected.enumerate().map(|(at, (kind, len))| (at, kind, len)).collect();
    assert_eq!(kinds, expected);
}

/// CVE-2025-21927: a header with the largest possible length.
#[test]
fn cve_2025_21927_headers_of_255_bytes() {
    for digests in [NONE, BOTH] {
        for number in [GRANT, CONNECTED, CONTROLLER, QUEUES] {
            refused(digests, number, |pdu| pdu[2] = 255, "a broken PDU");
        }
        refused(digests, CONTROLLER, |pdu| pdu[3] = 255, "a broken PDU");
    }
}

/// CVE-2021-28361: a data PDU without data.
#[test]
fn cve_2021_28361_data_without_data() {
    refused(
        NONE,
        CONTROLLER,
        |pdu| {
            pdu.truncate(DATA_BYTES);
            pdu[4..8].copy_from_slice(&(DATA_BYTES as u32).to_le_bytes());
            pdu[16..20].fill(0);
        },
        "a broken PDU",
    );
}

/// CVE-2022-50717, CVE-2023-6356, CVE-2026-23112 for hosts: data of another command, at a wrong offset, and of a wrong
/// length.
#[test]
fn cve_2026_23112_data_that_does_not_fit() {
    refused(NONE, CONTROLLER, |pdu| pdu[8] ^= 1, "is not in progress");
    refused(NONE, CONTROLLER, |pdu| pdu[12] = 4, "out of order");
    refused(NONE, CONTROLLER, |pdu| pdu[15] = 0xff, "out of order");
    refused(NONE, CONTROLLER, |pdu| pdu[17] = 0x20, "more or less data");
    refused(
        NONE,
        CONTROLLER,
        |pdu| {
            pdu.extend_from_slice(&[0; 4096]);
            pdu[5] = 0x20;
            pdu[17] = 0x20;
        },
        "more or less data",
    );
    refused(NONE, CONTROLLER, |pdu| pdu[4..8].fill(0xff), "more or less data");
}

/// CVE-2023-6535, CVE-2023-6536 for hosts: success without the data, and a repeated completion.
#[test]
fn cve_2023_6536_answers_without_what_they_are_about() {
    let done = |cid| {
        let cqe = Cqe { result: 0, head: 0, cid, status: Status::SUCCESS };
        pdu::capsule_resp(&cqe, NONE)
    };
    let cid = |pdu: &[u8]| u16::from_le_bytes([pdu[8], pdu[9]]);
    refused(NONE, CONTROLLER, move |pdu| *pdu = done(cid(pdu)).to_vec(), "without all of its data");
    refused(NONE, CONTROLLER, |pdu| pdu[1] = 8, "without all of its data");
    refused(
        NONE,
        CONTROLLER,
        move |pdu| pdu.extend_from_slice(&done(cid(pdu))),
        "is not in progress",
    );
    refused(NONE, CONNECTED, |pdu| pdu[20] ^= 1, "is not in progress");
    refused(NONE, CONNECTED, |pdu| pdu.extend_from_within(..), "is not in progress");
}

/// CVE-2026-64534 for hosts: wrong digests.
#[test]
fn cve_2026_64534_wrong_digests() {
    let end = |by| {
        move |pdu: &mut Vec<u8>| {
            let at = pdu.len() - by;
            pdu[at] ^= 1;
        }
    };
    refused(BOTH, CONNECTED, end(1), "header digest mismatch");
    refused(BOTH, CONTROLLER, end(1), "data digest mismatch");
    refused(BOTH, CONTROLLER, end(100), "data digest mismatch");
    refused(BOTH, CONTROLLER, |pdu| pdu[24] ^= 1, "header digest mismatch");
    refused(BOTH, CONTROLLER, |pdu| pdu[1] &= !1, "a broken PDU");
}

/// CVE-2023-5178 and other bugs of the handshake: invalid parameters in ICResp.
#[test]
fn cve_2023_5178_a_connection_that_is_granted_wrongly() {
    refused(NONE, GRANT, |pdu| pdu[8] = 1, "a broken PDU");
    refused(NONE, GRANT, |pdu| pdu[10] = 32, "a broken PDU");
    refused(NONE, GRANT, |pdu| pdu[11] = 4, "a broken PDU");
    refused(NONE, GRANT, |pdu| pdu[11] = 1, "digests that were not asked for");
    refused(NONE, GRANT, |pdu| pdu[11] = 2, "digests that were not asked for");
    refused(NONE, GRANT, |pdu| pdu[12..16].fill(0), "a broken PDU");
    refused(NONE, GRANT, |pdu| pdu[12] = 1, "a broken PDU");
    refused(NONE, GRANT, |pdu| pdu[0] = 0, "not expected");
    refused(NONE, GRANT, |pdu| pdu.fill(0xa5), "a broken PDU");
}

/// nvmet-auth: a target that requires authentication in the middle, and a controller that stops being ready.
#[test]
fn answers_of_another_state() {
    refused(NONE, STATUS, |pdu| pdu[8] = 2, "does not become ready");
    refused(
        NONE,
        CONNECTED,
        |pdu| pdu[22..24].copy_from_slice(&[0x23, 0x02]),
        "the target refused",
    );
    refused(NONE, CAPABILITIES, |pdu| pdu[22] = 2, "the target refused");
    refused(NONE, QUEUES, |pdu| pdu[22] = 2, "the target refused");
    for number in 0..ALL {
        refused(
            NONE,
            number,
            |pdu| {
                let (bytes, length) = pdu::c2h_term_req(PduError::field(2), &[]);
                *pdu = bytes[..length].to_vec();
            },
            "the target ended the connection",
        );
    }
}

/// Targets that do not report changes, with or without a statement of this: the next Keep Alive detects another
/// namespace.
#[test]
fn a_target_that_does_not_tell_is_looked_at() {
    for number in [CONTROLLER, EVENTS] {
        let hostile = Hostile::new();
        let rule = move |at, mut pdu: Vec<u8>| {
            if at == number && at == CONTROLLER {
                pdu[DATA_BYTES + 92..][..4].fill(0);
            } else if at == number {
                pdu[22] = 4;
            }
            Passed::On(pdu)
        };
        let device = hostile.connect(NONE, Box::new(rule)).expect("it can be used all the same");
        hostile.swap();
        let ends = Instant::now() + PATIENCE;
        while !matches!(device.state(), LinkState::Down(Reason::Replaced, _)) {
            assert!(Instant::now() < ends, "it is not noticed");
            std::thread::yield_now();
        }
    }
}

/// A target may send only the authentication message, although the host requested more bytes.
#[test]
fn a_message_may_be_shorter_than_its_room() {
    let mut hostile = Hostile::new();
    hostile.set_keys(Keys { host: Secret::from([7; 32]), controller: None });
    // ICResp, the completion of Connect, and twice a completion and a message.
    const PROVEN: usize = 6;
    // No authentication message of this exchange is longer.
    const ENOUGH: usize = 2048;
    let (reported, cut) = channel();
    let rule = move |at, mut pdu: Vec<u8>| {
        if at < PROVEN && pdu.len() == DATA_BYTES + 4096 {
            pdu.truncate(DATA_BYTES + ENOUGH);
            pdu[4..8].copy_from_slice(&((DATA_BYTES + ENOUGH) as u32).to_le_bytes());
            pdu[16..20].copy_from_slice(&(ENOUGH as u32).to_le_bytes());
            reported.send(()).expect("the test waits");
        }
        Passed::On(pdu)
    };
    hostile.connect(NONE, Box::new(rule)).expect("both know the secret");
    assert!(cut.try_iter().count() >= 2, "a challenge and a conclusion");
}

/// After a loss, the namespace has a volatile cache. Its users do not know this and would not flush.
#[test]
fn a_namespace_that_gets_a_cache_is_not_used_on() {
    let hostile = Hostile::new();
    let rule = |at, mut pdu: Vec<u8>| match at {
        CONTROLLER => {
            pdu[DATA_BYTES + 525] = 0;
            Passed::On(pdu)
        }
        at if at < ALL => Passed::On(pdu),
        // The first Keep Alive.
        _ => Passed::Last(Vec::new()),
    };
    let device = hostile.connect(NONE, Box::new(rule)).expect("it can be used");
    assert_eq!(device.info().cache, VolatileCache::Absent);
    let ends = Instant::now() + PATIENCE;
    while !matches!(device.state(), LinkState::Down(Reason::Lesser, _)) {
        assert!(Instant::now() < ends, "it is not noticed");
        std::thread::yield_now();
    }
}

/// The access state of the namespace comes from the page of its group.
#[test]
fn a_target_says_how_its_namespace_is_reached() {
    // The offset of the state of the first group.
    const STATE: usize = 32;
    for (change, expected) in [
        (field(STATE, [1]), Access::Optimized),
        (field(STATE, [2]), Access::NonOptimized),
        (field(STATE, [0xf]), Access::Changing),
        (field(16, [77]), Access::Inaccessible),
    ] {
        let hostile = Hostile::new();
        let rule = move |at, mut pdu: Vec<u8>| {
            if at == ACCESS {
                change(&mut pdu);
            }
            Passed::On(pdu)
        };
        let device = hostile.connect(NONE, Box::new(rule)).expect("it can be connected");
        assert_eq!(device.paths()[0].state, PathState::Up(Some(expected)));
    }
}

/// Invalid namespaces.
#[test]
fn namespaces_that_cannot_be() {
    refused(NONE, NAMESPACE, field(0, [0; 8]), "no such namespace");
    refused(NONE, NAMESPACE, field(0, [0xff; 8]), "more blocks than");
    refused(NONE, NAMESPACE, field(130, [8]), "neither 512 nor 4096");
    refused(NONE, NAMESPACE, field(130, [255]), "neither 512 nor 4096");
    refused(NONE, NAMESPACE, field(128, [8]), "metadata");
    refused(NONE, CONTROLLER, field(1800, [1, 0]), "behind a gap");
    refused(NONE, CONTROLLER, field(386, u16::MAX.to_le_bytes()), "too long to stop");
}

/// A target that disconnects at any point of the setup, between PDUs or inside one.
#[test]
fn cve_2024_53169_the_end_comes_during_a_sign_of_life() {
    for (times, answers) in [(1, Some(1)), (2, None), (0, Some(0))] {
        let hostile = Hostile::new();
        let (asked, is_asked) = channel();
        let (gone, is_gone) = channel();
        let (reported, later) = channel();
        let rule = move |at, pdu: Vec<u8>| {
            if at == ALL {
                asked.send(()).expect("the test waits");
                is_gone.recv_timeout(PATIENCE).expect("the test drops the drive");
                return match times {
                    0 => Passed::Last(Vec::new()),
                    _ => Passed::On(pdu.repeat(times)),
                };
            }
            if at > ALL {
                reported.send(()).expect("the test waits");
            }
            Passed::On(pdu)
        };
        let device = hostile.connect(NONE, Box::new(rule)).expect("an honest target");
        is_asked.recv_timeout(PATIENCE).expect("a sign of life");
        // The completion is held back until this returns, so this does not wait for it.
        drop(device);
        gone.send(()).expect("the answer is held back");
        let mut count = 0;
        let end = loop {
            match later.recv_timeout(PATIENCE) {
                Ok(()) => count += 1,
                Err(end) => break end,
            }
        };
        assert_eq!(end, RecvTimeoutError::Disconnected, "the host has closed its connection");
        assert!(answers.is_none_or(|answers| answers == count), "{count} answers after it");
    }
}

#[test]
fn a_target_may_go_at_any_time() {
    for number in 0..ALL {
        for part in [0, CAPSULE_RESP_BYTES - 1] {
            let hostile = Hostile::new();
            let rule = move |at, pdu: Vec<u8>| match at == number {
                true => Passed::Last(pdu[..part].to_vec()),
                false => Passed::On(pdu),
            };
            let error = hostile.connect(BOTH, Box::new(rule)).expect_err("it went");
            assert_eq!(error.kind, IoErrorKind::Gone, "{error}");
        }
    }
}

/// Random changes of the responses: the host connects or returns an error.
#[test]
fn random_conversations_connect_or_end() {
    let hostile = Hostile::new();
    runs(100, |seed| {
        let mut chance = Chance::new(seed);
        let digests = if chance.one_in(2) { BOTH } else { NONE };
        let number = chance.below(ALL);
        let mut own = Chance::new(chance.bits());
        let seal = chance.one_in(2);
        let rule = move |at, mut pdu: Vec<u8>| {
            if at != number {
                return Passed::On(pdu);
            }
            let whole = pdu.clone();
            (0..=own.below(3)).for_each(|_| damage(&mut pdu, &mut own));
            if seal {
                seal_again(&mut pdu, digests);
            }
            // With an unchanged length the exchange continues; the host would wait for the rest of a longer PDU.
            if pdu.get(..8) == whole.get(..8) && pdu.len() == whole.len() {
                Passed::On(pdu)
            } else {
                Passed::Last(pdu)
            }
        };
        let case = Case::of("setup", vec![vec![number as u8]]);
        let shown = Shown::new(&case);
        match hostile.connect(digests, Box::new(rule)) {
            Ok(device) => assert!(device.info().blocks > 0),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        drop(shown);
    });
}

/// Gives damaged data a matching digest.
fn seal_again(pdu: &mut [u8], digests: Digests) {
    let lead = DATA_BYTES + digests.header.bytes();
    let end = pdu.len().saturating_sub(digests.data.bytes());
    if digests.data == Use::On && pdu.first() == Some(&7) && end > lead {
        let (data, place) = pdu.split_at_mut(end);
        place.copy_from_slice(&digest::of(&data[lead..]));
    }
}
