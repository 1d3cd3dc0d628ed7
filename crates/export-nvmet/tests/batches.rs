//! In which order what belongs to several commands goes out, where success needs a completion: hosts of the test
//! machine have flow control on.

mod common;

use common::{BLOCK, Host, Machine, capsule};
use strake_nvme_wire::{Cqe, Sgl};

const DATA: u8 = 7;
const COMPLETION: u8 = 5;
const REQUEST_TO_END: u8 = 3;

/// Reads of so many blocks each, in one piece: the target finds all of them in one turn.
fn read_together(io: &mut Host, blocks: &[u32]) {
    let read = |(cid, &blocks): (usize, &u32)| {
        let sgl = Sgl::Transport { length: blocks * BLOCK as u32 };
        let start = cid as u32 * blocks;
        capsule(2, cid as u16, sgl, &[(1, 1), (10, start), (12, blocks - 1)], &[])
    };
    io.put(&blocks.iter().enumerate().flat_map(read).collect::<Vec<_>>());
}

/// The kind of a PDU and the command it belongs to, and how many places of the queue are free again by then.
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

/// Nor behind the data of one large command, which is more than all that it may wait for.
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
