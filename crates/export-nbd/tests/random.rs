//! Random sequences of requests: one at a time against a model of the bytes, and many at once against the rule
//! that each is answered exactly once.

mod common;

use common::Host;
use common::client::{Client, Message, request};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;
use strake_export_nbd::wire::{self, Request, command, command_flag};
use strake_units::BlockSize;

const MIB: u64 = 8;
const BYTES: u64 = MIB << 20;

/// An operation of a client on the bytes of an export.
#[derive(Clone, Debug)]
enum Act {
    Write { offset: u64, length: u32, seed: u8 },
    Zero { offset: u64, length: u32 },
    Trim { offset: u64, length: u32 },
    Read { offset: u64, length: u32, flags: u16 },
    Flush,
}

/// A range of whole blocks inside the export; short ones are as likely as long ones.
fn range() -> impl Strategy<Value = (u64, u32)> {
    (0..BYTES / 512, 0u32..13, any::<u32>()).prop_map(|(block, shift, salt)| {
        let blocks = u64::from(1 + salt % (1 << shift));
        (block * 512, (blocks.min(BYTES / 512 - block) * 512) as u32)
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (range(), any::<u8>())
            .prop_map(|((offset, length), seed)| Act::Write { offset, length, seed }),
        1 => range().prop_map(|(offset, length)| Act::Zero { offset, length }),
        1 => range().prop_map(|(offset, length)| Act::Trim { offset, length }),
        4 => (range(), any::<bool>()).prop_map(|((offset, length), whole)| Act::Read {
            offset,
            length,
            flags: if whole { command_flag::DF } else { 0 },
        }),
        1 => Just(Act::Flush),
    ]
}

fn perform(client: &mut Client, model: &mut [u8], act: &Act) {
    let span = |offset: u64, length: u32| offset as usize..offset as usize + length as usize;
    match *act {
        Act::Write { offset, length, seed } => {
            let data: Vec<u8> =
                (0..length).map(|i| (i >> 7) as u8 ^ (i as u8).wrapping_mul(seed | 1)).collect();
            assert_eq!(client.write(0, offset, &data), 0);
            model[span(offset, length)].copy_from_slice(&data);
        }
        // The RAM drive returns zeroes for deallocated blocks.
        Act::Zero { offset, length } | Act::Trim { offset, length } => {
            let command = match act {
                Act::Zero { .. } => command::WRITE_ZEROES,
                _ => command::TRIM,
            };
            assert_eq!(client.ask(&request(command, command_flag::FUA, 1, offset, length)), 0);
            model[span(offset, length)].fill(0);
        }
        Act::Read { offset, length, flags } => {
            let (data, _) = client.read_chunks(flags, offset, length).expect("it is inside");
            assert!(data == model[span(offset, length)], "{act:?}");
        }
        Act::Flush => assert_eq!(client.ask(&request(command::FLUSH, 0, 2, 0, 0)), 0),
    }
}

/// A request, with a payload if its command has one; it is mostly valid.
fn any_request() -> impl Strategy<Value = Request> {
    let flags = prop_oneof![8 => Just(0u16), 2 => 0u16..32, 1 => any::<u16>()];
    let wild = (any::<u64>(), 0u32..1 << 20);
    (0u16..10, flags, prop_oneof![6 => range(), 1 => wild]).prop_map(
        |(command, flags, (offset, length))| {
            // Another test covers an early disconnect.
            let command = if command == command::DISC { command::FLUSH } else { command };
            let (offset, length) =
                if command == command::FLUSH { (0, 0) } else { (offset, length) };
            Request { flags, command, cookie: 0, offset, length }
        },
    )
}

/// Sends `requests` without waiting, while another thread reads. Returns the number of final answers for each cookie.
fn answers(host: &Host, requests: &[Request]) -> BTreeMap<u64, u32> {
    let mut client = Client::structured(&host.socket(), "ram");
    let mut writer = client.stream.try_clone().expect("a socket can be cloned");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (cookie, request) in requests.iter().enumerate() {
                let request = Request { cookie: cookie as u64, ..*request };
                writer.write_all(&request.bytes()).expect("the server takes requests");
                if request.command == command::WRITE {
                    let payload = vec![cookie as u8; request.length as usize];
                    writer.write_all(&payload).expect("the server takes payloads");
                }
            }
        });
        let mut finals = BTreeMap::new();
        while (finals.len() as u64) < requests.len() as u64 {
            let message = client.message();
            let is_final = match &message {
                Message::Simple { .. } => true,
                Message::Chunk { flags, .. } => flags & wire::REPLY_FLAG_DONE != 0,
            };
            if is_final {
                *finals.entry(message.cookie()).or_insert(0) += 1;
            }
        }
        client.put(&request(command::DISC, 0, 0, 0, 0).bytes());
        assert!(client.is_closed(), "nothing comes after the last answer");
        finals
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn an_export_holds_what_was_written(acts in proptest::collection::vec(act(), 1..40)) {
        let (host, ram) = Host::with_ram(MIB, BlockSize::B512);
        let mut model = vec![0; BYTES as usize];
        let mut client = Client::structured(&host.socket(), "ram");
        for act in &acts {
            perform(&mut client, &mut model, act);
        }
        drop(client);
        host.stop();
        let mut there = vec![0; BYTES as usize];
        ram.read_at(0, &mut there).expect("it is on the drive");
        prop_assert!(there == model);
    }

    #[test]
    fn every_request_is_answered_once(
        requests in proptest::collection::vec(any_request(), 1..300),
    ) {
        let (host, _ram) = Host::with_ram(MIB, BlockSize::B512);
        let finals = answers(&host, &requests);
        prop_assert!(finals.values().all(|&count| count == 1), "{:?}", finals);
        prop_assert_eq!(finals.len(), requests.len());
        host.stop();
    }
}
