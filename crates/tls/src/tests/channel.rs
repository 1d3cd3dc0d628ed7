//! A channel after the handshake.

use super::{LONG, Nothing, SHORT, connect, received, sent};
use crate::channel::Failure;
use crate::limits::{
    CONTROL_RECORD_PRICE, CREDIT_MAX, DATA_BYTES_MAX, MESSAGE_PRICE, OVERHEAD_BYTES,
    READS_PER_TURN, RECORDS_PER_SEND, RECORDS_PER_TURN,
};
use crate::{Alert, Channel, TlsError};
use proptest::prelude::*;
use std::io::{IoSlice, IoSliceMut};

/// A KeyUpdate in its record.
const UPDATE_BYTES: usize = 5 + OVERHEAD_BYTES;

fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn data_of_any_size_arrives_as_it_was() {
    let (mut client, mut server) = connect(LONG);
    for count in [1, 4096, DATA_BYTES_MAX, DATA_BYTES_MAX + 1, 5 * DATA_BYTES_MAX + 17] {
        let data = pattern(count);
        let wire = sent(&mut client, &data);
        assert!(wire.len() >= count + OVERHEAD_BYTES * count.div_ceil(DATA_BYTES_MAX));
        let mut rest = &wire[..];
        let mut got = Vec::new();
        while got.len() < count {
            got.extend(received(&mut server, &mut rest, 3000).expect("data"));
        }
        assert!(got == data, "{count} bytes");
    }
}

#[test]
fn one_call_fills_all_slices_and_says_how_much_came() {
    let (mut client, mut server) = connect(SHORT);
    let data = pattern(40_000);
    let wire = sent(&mut client, &data);
    let (mut one, mut two, mut three) = ([0; 5], [0; 30_000], [0; 20_000]);
    let mut rest = Some(&wire[..]);
    server.begin_turn();
    let count = server.receive(
        &mut [
            IoSliceMut::new(&mut one),
            IoSliceMut::new(&mut []),
            IoSliceMut::new(&mut two),
            IoSliceMut::new(&mut three),
        ],
        |room| {
            let bytes = rest.take().ok_or(Nothing)?;
            room[..bytes.len()].copy_from_slice(bytes);
            Ok::<_, Nothing>(bytes.len())
        },
    );
    assert_eq!(count, Ok(40_000));
    assert!([&one[..], &two, &three[..9_995]].concat() == data);
}

/// A socket takes part of what is sealed: data counts when its record has gone out whole, because the other side
/// answers nothing that it has only in part, and what is sent again is not sealed again.
#[test]
fn data_counts_as_sent_when_its_record_has_gone_out() {
    let (mut client, mut server) = connect(SHORT);
    let data = pattern(3 * DATA_BYTES_MAX);
    let record = DATA_BYTES_MAX + OVERHEAD_BYTES;
    let mut wire: Vec<u8> = Vec::new();
    let mut turn = |room: usize, done: usize| {
        let mut left = room;
        client.send(&[IoSlice::new(&data[done..])], |bytes| {
            let count = bytes.len().min(left);
            if count == 0 {
                return Err(Nothing);
            }
            left -= count;
            wire.extend(&bytes[..count]);
            Ok(count)
        })
    };
    assert_eq!(turn(record - 1, 0), Err(Failure::Socket(Nothing)));
    assert_eq!(turn(0, 0), Err(Failure::Socket(Nothing)));
    assert_eq!(turn(record, 0), Ok(DATA_BYTES_MAX));
    assert_eq!(turn(usize::MAX, DATA_BYTES_MAX), Ok(2 * DATA_BYTES_MAX));
    let got = received(&mut server, &mut &wire[..], data.len());
    assert!(got == Ok(data), "each byte once");
}

#[test]
fn a_call_seals_no_more_than_there_are_records_for() {
    let (mut client, _) = connect(SHORT);
    let data = pattern(10 * DATA_BYTES_MAX);
    let count = client.send(&[IoSlice::new(&data)], |bytes| Ok::<_, Nothing>(bytes.len()));
    assert_eq!(count, Ok(RECORDS_PER_SEND * DATA_BYTES_MAX));
}

#[test]
fn any_changed_byte_of_a_record_is_noticed_exhaustive() {
    for at in 0..100 + OVERHEAD_BYTES {
        let (mut client, mut server) = connect(SHORT);
        let mut wire = sent(&mut client, &[5; 100]);
        // The second byte of the length makes a longer record, which then never ends, so a part of it is missing.
        wire[at] ^= 1;
        wire.extend([0; 600]);
        let result = received(&mut server, &mut &wire[..], 100);
        assert!(matches!(result, Err(TlsError::Breach(_))), "byte {at}: {result:?}");
    }
}

#[test]
fn a_record_that_is_repeated_left_out_or_moved_is_noticed() {
    let bad = Err(TlsError::Breach(Alert::BadRecordMac));
    let (mut client, mut server) = connect(SHORT);
    let (one, two) = (sent(&mut client, b"one"), sent(&mut client, b"two"));
    assert_eq!(received(&mut server, &mut &two[..], 10), bad);
    let (mut client, mut server) = connect(SHORT);
    let first = sent(&mut client, b"one");
    assert_eq!(received(&mut server, &mut &first[..], 3), Ok(b"one".to_vec()));
    assert_eq!(received(&mut server, &mut &first[..], 3), bad);
    assert_eq!(received(&mut server, &mut &one[..], 3), bad, "it does not recover");
}

/// Commands that were sealed and not sent once followed the breach out of the door, in front of the alert.
#[test]
fn data_that_was_not_sent_does_not_go_with_an_alert() {
    let (mut client, mut server) = connect(SHORT);
    let kept = client.send(&[IoSlice::new(&[7; 10])], |_| Err(Nothing));
    assert_eq!(kept, Err(Failure::Socket(Nothing)));
    let mut wire = sent(&mut server, b"x");
    *wire.last_mut().expect("a tag") ^= 1;
    assert!(received(&mut client, &mut &wire[..], 10).is_err());
    let mut said = 0;
    client.say_farewell(|bytes| {
        said += bytes.len();
        Ok::<_, Nothing>(bytes.len())
    });
    assert_eq!(said, 0);
}

#[test]
fn more_is_there_while_data_or_an_end_is_not_received_yet() {
    let (mut client, mut server) = connect(SHORT);
    assert!(!server.has_more());
    let mut wire = sent(&mut client, b"one");
    wire.extend(sent(&mut client, b"two"));
    assert_eq!(received(&mut server, &mut &wire[..], 1), Ok(b"o".to_vec()));
    assert!(server.has_more(), "of the same record, and another");
    assert_eq!(received(&mut server, &mut &[][..], 2), Ok(b"ne".to_vec()));
    assert!(server.has_more(), "another record");
    assert_eq!(received(&mut server, &mut &[][..], 9), Ok(b"two".to_vec()));
    assert!(!server.has_more());
    let wire = sent(&mut client, b"three");
    let (part, rest) = wire.split_at(wire.len() / 2);
    assert_eq!(received(&mut server, &mut &part[..], 9), Ok(Vec::new()));
    assert!(!server.has_more(), "a part of a record is nothing yet");
    let mut wire = rest.to_vec();
    client.say_farewell(|bytes| {
        wire.extend(bytes);
        Ok::<_, Nothing>(bytes.len())
    });
    assert_eq!(received(&mut server, &mut &wire[..], 9), Ok(b"three".to_vec()));
    assert!(server.has_more(), "the end");
}

#[test]
fn an_end_is_distinguished_from_a_cut() {
    let (mut client, mut server) = connect(SHORT);
    let mut wire = sent(&mut client, b"last");
    client.say_farewell(|bytes| {
        wire.extend(bytes);
        Ok::<_, Nothing>(bytes.len())
    });
    let mut rest = &wire[..];
    assert_eq!(received(&mut server, &mut rest, 100), Ok(b"last".to_vec()));
    let mut data = [0; 10];
    for _ in 0..2 {
        server.begin_turn();
        let end = server.receive(&mut [IoSliceMut::new(&mut data)], |_| Err(Nothing));
        assert_eq!(end, Ok(0), "it has ended, and says so as often as it is asked");
    }
    let (mut client, mut server) = connect(SHORT);
    let wire = sent(&mut client, b"last");
    let mut rest = &wire[..wire.len() - 1];
    server.begin_turn();
    let cut = server.receive(&mut [IoSliceMut::new(&mut data)], |room| {
        let count = rest.len();
        room[..count].copy_from_slice(rest);
        rest = &[];
        Ok::<_, Nothing>(count)
    });
    assert_eq!(cut, Err(Failure::Tls(TlsError::Truncated)));
}

#[test]
fn a_breach_is_reported_to_its_peer() {
    let (mut client, mut server) = connect(SHORT);
    let mut wire = sent(&mut client, b"one");
    wire[9] ^= 1;
    let bad = TlsError::Breach(Alert::BadRecordMac);
    assert_eq!(received(&mut server, &mut &wire[..], 10), Err(bad));
    let mut back = Vec::new();
    server.say_farewell(|bytes| {
        back.extend(bytes);
        Ok::<_, Nothing>(bytes.len())
    });
    let reported = received(&mut client, &mut &back[..], 10);
    assert_eq!(reported, Err(TlsError::PeerAlert(Alert::BadRecordMac as u8)));
    client.say_farewell(|_| -> Result<usize, Nothing> { panic!("an alert is not answered") });
}

#[test]
fn keys_are_changed_when_either_side_wants_to() {
    let (mut client, mut server) = connect(LONG);
    for wanted in [0, 1, 1, 0] {
        let mut wire = client.updates_for_test(wanted);
        wire.extend(sent(&mut client, b"after"));
        assert_eq!(received(&mut server, &mut &wire[..], 5), Ok(b"after".to_vec()));
        let back = sent(&mut server, b"back");
        // What changes the keys goes in front, when it was asked for.
        assert_eq!(back.len(), 4 + OVERHEAD_BYTES + wanted * UPDATE_BYTES);
        assert_eq!(received(&mut client, &mut &back[..], 4), Ok(b"back".to_vec()));
    }
}

#[test]
fn keys_are_changed_before_they_are_worn_out() {
    let (mut client, mut server) = connect(LONG);
    client.wear_out_for_test();
    let wire = sent(&mut client, b"one");
    assert_eq!(wire.len(), 3 + OVERHEAD_BYTES + UPDATE_BYTES, "new keys are announced");
    assert_eq!(received(&mut server, &mut &wire[..], 3), Ok(b"one".to_vec()));
    let wire = sent(&mut client, b"two");
    assert_eq!(wire.len(), 3 + OVERHEAD_BYTES);
    assert_eq!(received(&mut server, &mut &wire[..], 3), Ok(b"two".to_vec()));
}

/// Records without data that a peer may send one after the other, and data records that pay for a KeyUpdate.
const CONTROL_RECORDS_MAX: usize = CREDIT_MAX / CONTROL_RECORD_PRICE;
const DATA_RECORDS_PER_UPDATE: usize = CONTROL_RECORD_PRICE + MESSAGE_PRICE;

/// Receives all of `wire`. Returns the bytes of each turn, and the outcome.
fn turns(server: &mut Channel, mut wire: &[u8]) -> (Vec<usize>, Result<(), TlsError>) {
    let mut counts = Vec::new();
    loop {
        match received(server, &mut wire, 1 << 20) {
            Ok(data) => counts.push(data.len()),
            Err(error) => return (counts, Err(error)),
        }
        assert!(server.has_more() || !server.is_paused(), "the kernel reports no event for it");
        if !server.has_more() {
            return (counts, Ok(()));
        }
    }
}

#[test]
fn a_turn_decrypts_a_limited_number_of_records() {
    let (mut client, mut server) = connect(SHORT);
    let wire: Vec<u8> = (0..50).flat_map(|_| sent(&mut client, b"x")).collect();
    let (counts, end) = turns(&mut server, &wire);
    assert_eq!(
        (counts, end),
        (vec![RECORDS_PER_TURN, RECORDS_PER_TURN, RECORDS_PER_TURN, 2], Ok(()))
    );
}

#[test]
fn a_turn_reads_the_socket_a_limited_number_of_times() {
    let (mut client, mut server) = connect(SHORT);
    let wire = sent(&mut client, &pattern(DATA_BYTES_MAX));
    let mut at = 0;
    server.begin_turn();
    let mut data = vec![0; DATA_BYTES_MAX];
    let mut into = [IoSliceMut::new(&mut data)];
    let got = server.receive(&mut into, |room| {
        room[0] = wire[at];
        at += 1;
        Ok::<_, Nothing>(1)
    });
    assert_eq!((got, at), (Err(Failure::Paused), READS_PER_TURN));
    assert!(server.has_more());
    let mut rest = &wire[at..];
    assert!(received(&mut server, &mut rest, DATA_BYTES_MAX) == Ok(pattern(DATA_BYTES_MAX)));
}

/// 33 KB of KeyUpdates and one byte of data, again and again, once occupied a data core for minutes.
#[test]
fn a_peer_that_only_changes_keys_is_ended_however_it_mixes_in_data() {
    for updates in [1, 2, 10, 1200] {
        let (mut client, mut server) = connect(SHORT);
        let mut wire = Vec::new();
        for _ in 0..2 + CONTROL_RECORDS_MAX / updates {
            wire.extend(client.updates_for_test(updates));
            wire.extend(sent(&mut client, b"x"));
        }
        let (counts, end) = turns(&mut server, &wire);
        assert_eq!(end, Err(TlsError::Breach(Alert::UnexpectedMessage)), "{updates}");
        let records = counts.len() * RECORDS_PER_TURN;
        assert!(records <= 2 * CONTROL_RECORDS_MAX + RECORDS_PER_TURN, "{updates}: {counts:?}");
    }
}

#[test]
fn a_peer_that_changes_keys_for_its_data_stays_connected() {
    let (mut client, mut server) = connect(SHORT);
    for _ in 0..3 * CONTROL_RECORDS_MAX {
        let mut wire = client.updates_for_test(1);
        for _ in 0..DATA_RECORDS_PER_UPDATE {
            wire.extend(sent(&mut client, b"x"));
        }
        let (counts, end) = turns(&mut server, &wire);
        assert_eq!((counts.iter().sum(), end), (DATA_RECORDS_PER_UPDATE, Ok(())));
    }
}

proptest! {
    #[test]
    fn random_bytes_in_a_channel_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (_, mut server) = connect(SHORT);
        let got = received(&mut server, &mut &bytes[..], 100);
        prop_assert!(got.map_or(true, |data| data.is_empty()));
    }
}
