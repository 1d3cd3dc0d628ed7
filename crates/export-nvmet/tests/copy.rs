//! Copy: its effect, its errors, the result of a failed Copy, and its cost for others.

mod common;

use common::faults::while_it_goes;
use common::{BLOCK, BLOCKS, Host, Machine, code, export, h2c, until};
use std::sync::Arc;
use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, RamDevice, Rule};
use strake_export_nvmet::Export;
use strake_nvme_wire::nvm::{SOURCE_BYTES, SourceRange, opcode};
use strake_nvme_wire::{Sgl, Status};
use strake_units::{BlockSize, Lba, LbaRange};

const FUA: u32 = 1 << 30;

fn described(sources: &[(u64, u32)]) -> Vec<u8> {
    sources.iter().flat_map(|&(start, count)| SourceRange { start, count }.bytes()).collect()
}

/// Sends a Copy of `said` ranges with these bytes in its capsule.
fn ask(io: &mut Host, to: u64, said: u32, flags: u32, bytes: &[u8]) {
    let sgl = Sgl::InCapsule { offset: 0, length: bytes.len() as u32 };
    let words = [(1, 1), (10, to as u32), (11, (to >> 32) as u32), (12, (said - 1) | flags)];
    io.send(opcode::COPY, sgl, &words, bytes);
}

/// Copies blocks from these ranges to the blocks from `to` on; returns the result and the status.
fn copy(io: &mut Host, to: u64, sources: &[(u64, u32)], flags: u32) -> (u64, u16) {
    ask(io, to, sources.len() as u32, flags, &described(sources));
    let (data, result, status) = io.finish();
    assert_eq!(data.len(), 0, "nothing is sent");
    (result, status)
}

/// A drive whose block `n` is filled with the byte `n % 251 + 1`.
fn marked() -> RamDevice {
    let ram = RamDevice::new(BLOCKS, BlockSize::B4096);
    for block in 0..BLOCKS {
        ram.write_at(block * BLOCK as u64, &[mark(block); BLOCK]).expect("on the drive");
    }
    ram
}

const fn mark(block: u64) -> u8 {
    (block % 251) as u8 + 1
}

/// The byte that fills each block from `from` on.
fn marks(ram: &RamDevice, from: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * BLOCK];
    ram.read_at(from * BLOCK as u64, &mut bytes).expect("on the drive");
    bytes
        .chunks(BLOCK)
        .inspect(|block| assert!(block.iter().all(|b| *b == block[0])))
        .map(|b| b[0])
        .collect()
}

#[test]
fn what_was_there_is_where_it_was_to_be() {
    let ram = marked();
    let machine = Machine::with(Arc::new(ram.clone()));
    let (_admin, mut io) = machine.controller();
    // The second source takes several pieces, of which the last is short.
    let sources = [(100, 1), (1000, 200), (7, 3), (100, 1)];
    let expected: Vec<u8> =
        sources.iter().flat_map(|&(at, count)| (at..at + u64::from(count)).map(mark)).collect();
    for (to, flags) in [(2000, 0), (3000, FUA)] {
        assert_eq!(copy(&mut io, to, &sources, flags), (0, 0));
        assert_eq!(marks(&ram, to, 205), expected);
        assert_eq!(marks(&ram, to + 205, 1), [mark(to + 205)], "and nothing behind it");
        assert_eq!(marks(&ram, to - 1, 1), [mark(to - 1)], "and nothing before it");
    }
    assert_eq!(machine.target.exports()[0].effects, 2);
}

/// The largest number of ranges, sent after an R2T; additional data is permitted.
#[test]
fn as_many_ranges_as_are_announced_can_be_sent() {
    let ram = marked();
    let machine = Machine::with(Arc::new(ram.clone()));
    let (_admin, mut io) = machine.controller();
    let all: Vec<(u64, u32)> = (0..256).map(|n| (2 * n, 1)).collect();
    let bytes = described(&all);
    for said in [256_u32, 2] {
        let length = bytes.len() as u32;
        let to = 1000 * u64::from(said % 3 + 1);
        let words = [(1, 1), (10, to as u32), (12, said - 1)];
        let cid = io.send(opcode::COPY, Sgl::Transport { length }, &words, &[]);
        let asked = io.pdu().expect("the connection stays");
        assert_eq!(asked.kind, 9, "R2T");
        let tag = u16::from_le_bytes([asked.header[2], asked.header[3]]);
        io.put(&h2c(cid, tag, 0, length, 4, &bytes));
        assert_eq!(io.finish(), (Vec::new(), 0, 0));
        let expected: Vec<u8> = (0..u64::from(said)).map(|n| mark(2 * n)).collect();
        assert_eq!(marks(&ram, to, said as usize), expected);
    }
}

/// The limits in NVM, Figure 97, and Base, Figure 275.
#[test]
fn limits_are_announced() {
    let machine = Machine::start();
    let (mut admin, _io) = machine.controller();
    admin.send(6, Sgl::Transport { length: 4096 }, &[(1, 1), (10, 0)], &[]);
    let (page, _, _) = admin.finish();
    assert_eq!(page[74..81], [0, 64, 0, 64, 0, 0, 255], "64 MiB in 256 ranges");
    admin.send(6, Sgl::Transport { length: 4096 }, &[(10, 1)], &[]);
    let (page, _, _) = admin.finish();
    assert_eq!((page[521] & 1, page[534], page[535]), (1, 1, 0), "ONCS, OCFS");
}

/// Each Copy fails before anything is written, and the connection continues.
#[test]
fn copies_that_are_not_possible_are_refused_and_change_nothing() {
    let ram = marked();
    let machine = Machine::with(Arc::new(ram.clone()));
    let (_admin, mut io) = machine.controller();
    for (what, to, sources, status) in [
        ("a source behind the end", 0, vec![(9, 1), (BLOCKS, 1)], Status::OUT_OF_RANGE),
        ("a source over the end", 0, vec![(BLOCKS - 1, 2)], Status::OUT_OF_RANGE),
        ("a source around the end", 0, vec![(u64::MAX, 2)], Status::OUT_OF_RANGE),
        ("a place over the end", BLOCKS - 1, vec![(9, 1), (7, 1)], Status::OUT_OF_RANGE),
        ("a place around the end", u64::MAX, vec![(9, 1)], Status::OUT_OF_RANGE),
        ("onto itself", 9, vec![(9, 1)], Status::OVERLAP),
        ("over a later source", 20, vec![(9, 1), (21, 1)], Status::OVERLAP),
        ("too long a range", 0, vec![(9, 16385)], Status::SIZE_LIMIT),
        ("too much", 0, vec![(9, 4000); 256], Status::SIZE_LIMIT),
    ] {
        assert_eq!(copy(&mut io, to, &sources, 0), (0, code(status)), "{what}");
    }
    assert_eq!(copy(&mut io, 0, &[(9, 1)], 1 << 8), (0, code(Status::INVALID_FIELD)), "format 1");
    assert_eq!(copy(&mut io, 0, &[(9, 1)], 3 << 8), (0, code(Status::INVALID_FIELD)), "format 3");
    let all: Vec<u8> = (0..BLOCKS).map(mark).collect();
    assert!(marks(&ram, 0, BLOCKS as usize) == all, "nothing was written");
}

#[test]
fn a_copy_with_fewer_ranges_than_it_says_is_refused() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    for (said, bytes) in [(2, SOURCE_BYTES), (1, SOURCE_BYTES - 1), (256, SOURCE_BYTES), (1, 16)] {
        ask(&mut io, 0, said, 0, &vec![0xff; bytes]);
        assert_eq!(io.finish().2, code(Status::SGL_LENGTH), "{said} ranges in {bytes} bytes");
    }
    assert_eq!(copy(&mut io, 0, &[(9, 1)], 0), (0, 0));
}

#[test]
fn a_copy_to_a_namespace_that_cannot_be_written_is_refused() {
    let machine = Machine::start();
    let device = Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096));
    let second = Export { namespace: 2, uuid: [2; 16], read_only: true, ..export(device) };
    machine.target.add_export(&second).expect("a second namespace");
    let (_admin, mut io) = machine.controller();
    let sgl = Sgl::InCapsule { offset: 0, length: SOURCE_BYTES as u32 };
    io.send(opcode::COPY, sgl, &[(1, 2)], &described(&[(9, 1)]));
    assert_eq!(io.finish().2, code(Status::WRITE_PROTECTED));
}

/// The result is the first range that was not copied, 0 if nothing was written.
#[test]
fn a_copy_that_fails_tells_how_far_it_came() {
    let ram = marked();
    let (machine, plan) = Machine::planned(ram.clone());
    let (_admin, mut io) = machine.controller();
    let (read, write) = (Status::UNRECOVERED_READ, Status::WRITE_FAULT);
    for (ops, at, result, status) in [
        (Ops::READ, 10, 0, read),
        (Ops::READ, 200, 2, read),
        (Ops::WRITE, 1000, 0, write),
        (Ops::WRITE, 1001, 1, write),
        (Ops::WRITE, 1100, 1, write),
        (Ops::WRITE, 1101, 2, write),
    ] {
        let bad = LbaRange::new(Lba(at), 1);
        plan.add(Rule::new(ops, Effect::Fail(IoErrorKind::Medium)).within(bad));
        let ended = copy(&mut io, 1000, &[(10, 1), (50, 100), (200, 1), (300, 1)], 0);
        assert_eq!(ended, (result, code(status)), "block {at}");
        plan.clear();
    }
    assert_eq!(marks(&ram, 1102, 1), [mark(1102)], "what lies behind is not written");
}

/// A full queue of Copies, of which the first hangs: other commands get their memory, and each Copy is executed
/// eventually.
#[test]
fn a_flood_of_copies_delays_no_other_host() {
    let ram = marked();
    let (machine, plan) = Machine::planned(ram.clone());
    let (_admin, mut io) = machine.controller();
    let rule = plan.add(Rule::new(Ops::READ, Effect::Hang).within(LbaRange::new(Lba(0), 1)));
    for to in 0..100 {
        ask(&mut io, 1000 + to, 1, 0, &described(&[(to, 1)]));
    }
    until("the first is at the drive", || plan.struck(rule) == Some(1));
    for _ in 0..3 {
        assert_eq!(io.write(2000, &[7; 2 * BLOCK]), 0);
        let (data, status) = io.read(2000, 256);
        assert_eq!((data[..2 * BLOCK].to_vec(), status), (vec![7; 2 * BLOCK], 0));
    }
    plan.clear();
    plan.release();
    for _ in 0..100 {
        assert_eq!(io.finish(), (Vec::new(), 0, 0));
    }
    assert_eq!(marks(&ram, 1000, 100), (0..100).map(mark).collect::<Vec<_>>());
}

/// The Copy ends after its current piece, and later Copies are not started.
#[test]
fn a_copy_does_not_go_on_at_a_device_that_goes() {
    let (machine, plan) = Machine::planned(marked());
    let device = machine.planned_drive(marked());
    let second = Export { namespace: 2, uuid: [2; 16], ..export(device) };
    machine.target.add_export(&second).expect("a second namespace");
    let (_admin, mut io) = machine.controller();
    let rule = plan.add(Rule::new(Ops::WRITE, Effect::Hang));
    let sgl = Sgl::InCapsule { offset: 0, length: 2 * SOURCE_BYTES as u32 };
    for _ in 0..2 {
        let words = [(1, 2), (10, 1000), (12, 1)];
        io.send(opcode::COPY, sgl, &words, &described(&[(0, 1), (1, 1)]));
    }
    until("a first piece is at the drive", || plan.struck(rule) == Some(1));
    assert_eq!(io.read(0, 1).1, 0, "both are taken in");
    while_it_goes(&machine, 2, || {
        until("the queue knows that the device goes", || {
            io.send(2, Sgl::Transport { length: BLOCK as u32 }, &[(1, 2)], &[]);
            io.finish().2 == code(Status::INACCESSIBLE)
        });
        plan.release();
        let ended = [io.finish(), io.finish()].map(|(_, result, status)| (result, status));
        assert_eq!(ended, [(1, code(Status::INACCESSIBLE)), (0, code(Status::INACCESSIBLE))]);
    });
    assert_eq!(plan.struck(rule), Some(1), "no other piece was begun");
}

/// No further piece is started for a disconnected host, and the queue number becomes free.
#[test]
fn a_copy_of_a_host_that_goes_ends_with_the_piece_at_hand() {
    let (machine, plan) = Machine::planned(marked());
    let (admin, mut io) = machine.controller();
    let rule = plan.add(Rule::new(Ops::WRITE, Effect::Hang));
    for _ in 0..50 {
        ask(&mut io, 1000, 2, 0, &described(&[(0, 1), (1, 1)]));
    }
    until("a first piece is at the drive", || plan.struck(rule) == Some(1));
    drop((admin, io));
    until("only the drive is waited for", || machine.target.exports()[0].connections == 1);
    plan.release();
    until("the host is gone", || machine.target.exports()[0].connections == 0);
    assert_eq!(plan.struck(rule), Some(1), "no other piece was begun");
}
