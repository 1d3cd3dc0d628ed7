//! The order of the PDUs of several commands if success needs a completion: the hosts of the test machine use SQ flow
//! control.

mod common;

use common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, capsule, connect_data, h2c, u32_of, until};
use std::collections::VecDeque;
use std::io::Read;
use strake_nvme_tcp::digest::{self, DIGEST_BYTES};
use strake_nvme_tcp::pdu::{Digests, IcReq, Use};
use strake_nvme_wire::{Cqe, Sgl};

const DATA: u8 = 7;
const COMPLETION: u8 = 5;
const REQUEST_TO_END: u8 = 3;

/// Reads of these numbers of blocks, sent at once, so that the target finds all of them in one turn.
fn read_together(io: &mut Host, blocks: &[u32]) {
    let read = |(cid, &blocks): (usize, &u32)| {
        let sgl = Sgl::Transport { length: blocks * BLOCK as u32 };
        let start = cid as u32 * blocks;
        capsule(2, cid as u16, sgl, &[(1, 1), (10, start), (12, blocks - 1)], &[])
    };
    io.put(&blocks.iter().enumerate().flat_map(read).collect::<Vec<_>>());
}

/// The kind of a PDU, the command it belongs to, and the SQ head that it reports.
fn next(host: &mut Host) -> (u8, u16, u16) {
    let pdu = host.pdu().expect("the connection stays");
    match pdu.kind {
        COMPLETION => {
            let cqe = Cqe::parse(&pdu.header[..].try_into().expect("a completion"));
            assert!(cqe.status.is_success());
            (pdu.kind, cqe.cid, cqe.head)
        }
        kind => (kind, u16::from_le_bytes([pdu.header[0], pdu.header[1]]), 0),
    }
}

#[test]
fn completions_go_out_together_behind_the_data_of_all() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    read_together(&mut io, &[1; 16]);
    for cid in 0..16 {
        assert_eq!(next(&mut io), (DATA, cid, 0));
    }
    for cid in 0..16 {
        // Connect was the first command of the queue.
        assert_eq!(next(&mut io), (COMPLETION, cid, cid + 2));
    }
}

#[test]
fn a_completion_does_not_wait_behind_much_data_of_others() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    read_together(&mut io, &[32; 4]);
    for cid in 0..4 {
        assert_eq!(next(&mut io), (DATA, cid, 0));
        assert_eq!(next(&mut io), (COMPLETION, cid, cid + 2));
    }
}

/// A completion also does not wait for the data of one large command, which exceeds the limit.
#[test]
fn a_small_read_does_not_wait_for_a_large_one() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    read_together(&mut io, &[1, 1, 256, 1, 30, 2]);
    let order = [(DATA, 0), (DATA, 1), (COMPLETION, 0), (COMPLETION, 1)];
    let order = order.into_iter().chain([(DATA, 2), (COMPLETION, 2)]);
    let order = order.chain([(DATA, 3), (DATA, 4), (COMPLETION, 3), (COMPLETION, 4)]);
    for (kind, cid) in order.chain([(DATA, 5), (COMPLETION, 5)]) {
        let (found, whose, _) = next(&mut io);
        assert_eq!((found, whose), (kind, cid));
    }
}

#[test]
fn what_was_answered_before_a_breach_is_complete() {
    let machine = Machine::start();
    let (mut admin, _io) = machine.controller();
    let mut bytes = capsule(6, 77, Sgl::Transport { length: 4096 }, &[(10, 1)], &[]);
    bytes.extend_from_slice(&[0xee; 8]);
    admin.put(&bytes);
    assert_eq!(next(&mut admin).0, DATA);
    assert_eq!(next(&mut admin).1, 77);
    assert_eq!(next(&mut admin).0, REQUEST_TO_END);
}

/// A host that requests both digests, and data that starts at multiples of 64 bytes.
struct Careful(Host);

impl Careful {
    const BEGINS_AT: usize = 64;

    fn asked(machine: &Machine) -> Self {
        let mut host = machine.dial();
        let digests = Digests { header: Use::On, data: Use::On };
        let alignment = (Self::BEGINS_AT / 4 - 1) as u8;
        host.put(&IcReq { alignment, digests, r2ts_max: 0 }.bytes());
        assert_eq!(host.pdu().map(|pdu| pdu.kind), Some(1), "ICResp");
        Self(host)
    }

    /// A command with digests.
    fn capsule(opcode: u8, cid: u16, sgl: Sgl, words: &[(usize, u32)], data: &[u8]) -> Vec<u8> {
        let bare = capsule(opcode, cid, sgl, words, data);
        let (mut header, data) = (bare[..72].to_vec(), &bare[72..]);
        header[1] = if data.is_empty() { 1 } else { 3 };
        let begins = if data.is_empty() { 0 } else { header.len() + DIGEST_BYTES };
        header[3] = begins as u8;
        let ends = if data.is_empty() { Vec::new() } else { digest::of(data).to_vec() };
        let total = header.len() + DIGEST_BYTES + data.len() + ends.len();
        header[4..8].copy_from_slice(&(total as u32).to_le_bytes());
        let digest = digest::of(&header);
        [header, digest.to_vec(), data.to_vec(), ends].concat()
    }

    /// The next PDU, with correct digests: its kind, the tag of its command, and its data.
    fn next(&mut self) -> (u8, u16, Vec<u8>) {
        let mut bytes = vec![0; 24];
        self.0.stream.read_exact(&mut bytes).expect("the target answers");
        let total = u32_of(&bytes[4..8]) as usize;
        bytes.resize(total, 0);
        self.0.stream.read_exact(&mut bytes[24..]).expect("a PDU is sent whole");
        assert_eq!(bytes[24..28], digest::of(&bytes[..24]), "the digest of the header");
        if bytes[0] == COMPLETION {
            let cqe = Cqe::parse(&bytes[8..24].try_into().expect("a completion"));
            assert!(cqe.status.is_success() && total == 28);
            return (COMPLETION, cqe.cid, Vec::new());
        }
        assert_eq!(usize::from(bytes[3]), Self::BEGINS_AT, "where its data begins");
        let (data, end) = bytes[Self::BEGINS_AT..].split_at(total - Self::BEGINS_AT - 4);
        assert_eq!(end, digest::of(data), "the digest of the data");
        (bytes[0], u16::from_le_bytes([bytes[8], bytes[9]]), data.to_vec())
    }
}

#[test]
fn data_and_completions_have_digests_of_their_own() {
    let machine = Machine::start();
    let mut admin = Host::asked(&machine);
    let (mut io, id) = careful_queue(&machine, &mut admin);
    let mut bare = machine.queue(2, id);
    let blocks: Vec<_> = (0..4).map(|block| vec![block as u8 + 1; BLOCK]).collect();
    blocks.iter().zip(0..).for_each(|(data, block)| assert_eq!(bare.write(block, data), 0));
    let sgl = Sgl::Transport { length: BLOCK as u32 };
    let read = |cid: u16| Careful::capsule(2, cid, sgl, &[(1, 1), (10, cid.into())], &[]);
    io.0.put(&(0..4).flat_map(read).collect::<Vec<_>>());
    for (cid, data) in (0..4).zip(blocks) {
        assert_eq!(io.next(), (DATA, cid, data));
    }
    (0..4).for_each(|cid| assert_eq!(io.next(), (COMPLETION, cid, vec![])));
}

/// A host with digests, connected to a queue of a controller whose admin queue has none.
fn careful_queue(machine: &Machine, admin: &mut Host) -> (Careful, u16) {
    let id = admin.connect(0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut io = Careful::asked(machine);
    let data = connect_data((HOST, SUBSYSTEM), id);
    let sgl = Sgl::InCapsule { offset: 0, length: 1024 };
    io.0.put(&Careful::capsule(0x7f, 9, sgl, &[(1, 1), (10, 1 << 16), (11, 127)], &data));
    assert_eq!(io.next(), (COMPLETION, 9, vec![]));
    (io, id)
}

/// The wrong digest of a transfer's second PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    Header,
    Data,
}

/// Writes a few blocks in two PDUs behind the capsule; returns the kind of the response, and the status of a
/// completion.
fn write_in_two(io: &mut Careful, fill: u8, wrong: Wrong) -> (u8, u16) {
    const HALF: usize = 4 * BLOCK;
    let sgl = Sgl::Transport { length: 2 * HALF as u32 };
    io.0.put(&Careful::capsule(1, 5, sgl, &[(1, 1), (10, 0), (12, 7)], &[]));
    let asked = io.0.pdu().expect("it is asked for the data");
    assert_eq!(asked.kind, 9, "R2T");
    let tag = u16::from_le_bytes([asked.header[2], asked.header[3]]);
    for (half, flags) in [(0, 3), (1, 7)] {
        let data = vec![fill; HALF];
        let bare = h2c(5, tag, (half * HALF) as u32, HALF as u32, flags, &[]);
        let mut header = bare[..24].to_vec();
        header[3] = (24 + DIGEST_BYTES) as u8;
        header[4..8].copy_from_slice(&((24 + HALF + 2 * DIGEST_BYTES) as u32).to_le_bytes());
        let mut ends = [digest::of(&header), digest::of(&data)];
        if half == 1 && wrong != Wrong::Nothing {
            ends[usize::from(wrong == Wrong::Data)][3] ^= 1;
        }
        io.0.put(&[&header[..], &ends[0], &data, &ends[1]].concat());
    }
    let answer = io.0.pdu().expect("it is answered");
    let status = match answer.kind {
        COMPLETION => Cqe::parse(&answer.header[..16].try_into().expect("16 bytes")).status.word(),
        _ => 0,
    };
    (answer.kind, status >> 1 & 0x7ff)
}

/// Every PDU of a write has digests that are checked: a data digest mismatch fails the command without a change, and a
/// header digest mismatch ends the connection, because the PDU cannot be assigned to a command.
#[test]
fn every_pdu_of_a_write_is_judged_by_its_digests() {
    const TRANSPORT_ERROR: u16 = 0x22;
    let machine = Machine::start();
    let mut admin = Host::asked(&machine);
    let (mut io, id) = careful_queue(&machine, &mut admin);
    let mut bare = machine.queue(2, id);
    assert_eq!(write_in_two(&mut io, 1, Wrong::Nothing), (COMPLETION, 0));
    assert_eq!(write_in_two(&mut io, 2, Wrong::Data), (COMPLETION, TRANSPORT_ERROR));
    assert_eq!(bare.read(0, 8), (vec![1; 8 * BLOCK], 0), "damaged data is not written");
    assert_eq!(write_in_two(&mut io, 3, Wrong::Nothing), (COMPLETION, 0), "the stream is in step");
    assert_eq!(write_in_two(&mut io, 4, Wrong::Header), (REQUEST_TO_END, 0));
    assert_eq!(bare.read(0, 8), (vec![3; 8 * BLOCK], 0), "nor what a damaged header was of");
}

/// PDUs for a host that does not read wait in their order, and use no more entries than the queue has.
#[test]
fn a_host_that_reads_late_finds_everything() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    for round in 1..=2 {
        read_together(&mut io, &[32; 127]);
        let taken =
            || machine.target.controllers(SUBSYSTEM)[0].queues[1].counts.reads == round * 127;
        until("all reads were taken in", taken);
        let mut owed = VecDeque::new();
        for _ in 0..2 * 127 {
            match next(&mut io) {
                (COMPLETION, cid, _) => assert_eq!(owed.pop_front(), Some(cid), "behind its data"),
                (_, cid, _) => owed.push_back(cid),
            }
        }
        assert!(owed.is_empty());
    }
}
