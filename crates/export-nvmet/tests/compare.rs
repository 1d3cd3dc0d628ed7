//! Compare: equal and different data, from capsules and transfers, without a deadlock.

mod common;

use common::{BLOCK, BLOCKS, Host, Machine, code, h2c, u32_of};
use strake_dev_mem::{Effect, Ops, RamDevice, Rule};
use strake_export_nvmet::limits::{LARGE_BUFFERS, SMALL_BUFFERS, STOCK};
use strake_export_nvmet::{PoolSizes, TargetConfig};
use strake_nvme_wire::{Sgl, Status};
use strake_units::BlockSize;

const COMPARE: u8 = 5;
const FUA: u32 = 1 << 30;

/// Compares a block with data in the capsule.
fn compare(io: &mut Host, block: u32, flags: u32, data: &[u8]) -> u16 {
    let sgl = Sgl::InCapsule { offset: 0, length: data.len() as u32 };
    let count = (data.len() / BLOCK) as u32 - 1;
    io.send(COMPARE, sgl, &[(1, 1), (10, block), (12, count | flags)], data);
    let (sent, _, status) = io.finish();
    assert_eq!(sent.len(), 0, "nothing is sent");
    status
}

/// Sends the data that the target requests, in pieces.
fn supply(io: &mut Host, header: &[u8], data: &[u8]) {
    let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let (cid, tag, length) = (number(0), number(2), u32_of(&header[8..]) as usize);
    assert_eq!(length, data.len());
    let piece = 128 << 10;
    for (at, part) in data.chunks(piece).enumerate() {
        let last = if (at + 1) * piece >= length { 4 } else { 0 };
        io.put(&h2c(cid, tag, (at * piece) as u32, part.len() as u32, last, part));
    }
}

#[test]
fn what_is_there_is_distinguished_from_what_is_not() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    let mut data: Vec<u8> = (0..2 * BLOCK).map(|at| (at / 7) as u8).collect();
    assert_eq!(io.write(3, &data), 0);
    let differs = code(Status::COMPARE_FAILURE);
    for flags in [0, FUA] {
        assert_eq!(compare(&mut io, 3, flags, &data), 0);
        assert_eq!(compare(&mut io, 4, flags, &data), differs);
    }
    for at in [0, BLOCK, 2 * BLOCK - 1] {
        data[at] ^= 1;
        assert_eq!(compare(&mut io, 3, 0, &data), differs, "byte {at}");
        data[at] ^= 1;
    }
    assert_eq!(io.read(3, 2), (data, 0), "nothing was changed");
}

/// Each command takes twice its size, and together they exceed the memory: a command that held one half while it waited
/// for the other would block all.
#[test]
fn more_than_fits_is_compared_one_after_another() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    let length = 1 << 20;
    let words = [(1, 1), (10, 0), (12, length / BLOCK as u32 - 1)];
    let (zeroes, mut ended) = (vec![0; length as usize], 0);
    for _ in 0..6 {
        io.send(COMPARE, Sgl::Transport { length }, &words, &[]);
    }
    while ended < 6 {
        let pdu = io.pdu().expect("the connection stays");
        match pdu.kind {
            9 => supply(&mut io, &pdu.header, &zeroes),
            5 => {
                assert_eq!(pdu.header[14..16], [0, 0], "the blocks are zeroes");
                ended += 1;
            }
            other => panic!("PDU {other} is not expected"),
        }
    }
}

/// More commands than there is memory for, with their data in the capsules and on a slow drive: a command without
/// memory gets a retryable status, and all memory is returned.
#[test]
fn room_that_lacks_is_said_and_comes_back() {
    let ram = RamDevice::new(BLOCKS, BlockSize::B4096);
    let stock = PoolSizes { small_buffers: 2, large_buffers: 2, ..STOCK };
    let config = TargetConfig { stock, ..TargetConfig::default() };
    let (machine, plan) = Machine::planned_with(ram, config);
    let (_admin, mut io) = machine.controller();
    let sgl = Sgl::InCapsule { offset: 0, length: 2 * BLOCK as u32 };
    // The read holds the only small buffer of the pool; each compare takes two of the remaining buffers.
    let fit = (SMALL_BUFFERS + LARGE_BUFFERS) / 2;
    for _ in 0..3 {
        plan.add(Rule::new(Ops::READ, Effect::Hang));
        let read = Sgl::Transport { length: BLOCK as u32 };
        io.send(2, read, &[(1, 1)], &[]);
        for _ in 0..126 {
            io.send(COMPARE, sgl, &[(1, 1), (10, 0), (12, 1)], &[0; 2 * BLOCK]);
        }
        for place in fit..126 {
            assert_eq!(io.finish().2, code(Status::INTERRUPTED), "{place}");
        }
        plan.clear();
        plan.release();
        for place in 0..=fit {
            assert_eq!(io.finish().2, 0, "{place}");
        }
    }
}
