//! The commands of a host as they reach the device: position, pieces, and durability.

mod common;

use common::{BLOCK, BLOCKS, Host, Machine, h2c};
use std::sync::Arc;
use strake_block::Durability::{Fua, Normal};
use strake_dev_mem::{RamDevice, Record, Recorder, Seen};
use strake_nvme_wire::Sgl;
use strake_nvme_wire::nvm::{Range, SourceRange, opcode};
use strake_units::{BlockSize, Lba, LbaRange};

const FUA: u32 = 1 << 30;

/// A machine whose drive records its I/O, with the two queues of a controller.
fn recorded() -> (Machine, Host, Host, Record) {
    let (device, record) = Recorder::new(RamDevice::new(BLOCKS, BlockSize::B4096));
    let machine = Machine::with(Arc::new(device));
    let (admin, io) = machine.controller();
    // Discards the I/O of the target itself.
    let _ = record.take();
    (machine, admin, io, record)
}

fn blocks(at: u64, count: u64) -> LbaRange {
    LbaRange::new(Lba(at), count)
}

/// Data arrives in the capsule, and after an R2T.
#[test]
fn a_write_is_as_durable_as_it_asked_to_be() {
    let (_machine, _admin, mut io, record) = recorded();
    for (flags, durability) in [(0, Normal), (FUA, Fua), (0, Normal)] {
        let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
        io.send(opcode::WRITE, sgl, &[(1, 1), (10, 3), (12, flags)], &[1; BLOCK]);
        assert_eq!(io.finish().2, 0);
        assert_eq!(record.take(), [Seen::Write(blocks(3, 1), durability)]);

        let length = 1 << 20;
        let words = [(1, 1), (10, 8), (12, 255 | flags)];
        let cid = io.send(opcode::WRITE, Sgl::Transport { length }, &words, &[]);
        let asked = io.pdu().expect("the connection stays");
        assert_eq!(asked.kind, 9, "R2T");
        let tag = u16::from_le_bytes([asked.header[2], asked.header[3]]);
        let piece = 128 << 10;
        for at in (0..length).step_by(piece) {
            let last = if at + piece as u32 == length { 4 } else { 0 };
            io.put(&h2c(cid, tag, at, piece as u32, last, &vec![2; piece]));
        }
        assert_eq!(io.finish().2, 0);
        let (mut next, seen) = (8, record.take());
        for piece in seen {
            let Seen::Write(range, said) = piece else { panic!("{piece:?} is no write") };
            assert_eq!((range.start.0, said), (next, durability));
            next = range.end().0;
        }
        assert_eq!(next, 8 + 256, "all of it");
    }
}

#[test]
fn zeroes_are_as_durable_as_they_asked_to_be() {
    let (_machine, _admin, mut io, record) = recorded();
    for (flags, durability) in [(0, Normal), (FUA, Fua), (0, Normal)] {
        let words = [(1, 1), (10, 5), (12, 999 | flags)];
        io.send(opcode::WRITE_ZEROES, Sgl::Transport { length: 0 }, &words, &[]);
        assert_eq!(io.finish().2, 0);
        assert_eq!(record.changes(), [Seen::Zeroes(blocks(5, 1000), durability)]);
    }
}

/// Every piece of a Copy is stable: an omitted piece would leave a gap in acknowledged data.
#[test]
fn every_piece_of_a_copy_is_as_durable_as_it_asked_to_be() {
    let (_machine, _admin, mut io, record) = recorded();
    let sources = [(0, 1), (100, 700), (7, 3)];
    let total = 704;
    let bytes: Vec<u8> =
        sources.iter().flat_map(|&(start, count)| SourceRange { start, count }.bytes()).collect();
    for (flags, durability) in [(0, Normal), (FUA, Fua), (0, Normal)] {
        let sgl = Sgl::InCapsule { offset: 0, length: bytes.len() as u32 };
        let words = [(1, 1), (10, 2000), (12, (sources.len() as u32 - 1) | flags)];
        io.send(opcode::COPY, sgl, &words, &bytes);
        assert_eq!(io.finish().2, 0);
        let (mut next, seen) = (2000, record.changes());
        assert!(seen.len() > sources.len(), "one of them is cut: {seen:?}");
        for piece in seen {
            let Seen::Write(range, said) = piece else { panic!("{piece:?} is no write") };
            assert_eq!((range.start.0, said), (next, durability));
            next = range.end().0;
        }
        assert_eq!(next, 2000 + total, "all of it");
    }
}

/// The second half of a fused pair is stable.
#[test]
fn a_compare_and_write_is_as_durable_as_it_asked_to_be() {
    let (_machine, _admin, mut io, record) = recorded();
    let mut old = [0; BLOCK];
    for (byte, flags, durability) in [(1, 0, Normal), (2, FUA, Fua), (3, 0, Normal)] {
        let new = [byte; BLOCK];
        io.send_half(1, opcode::COMPARE, &[(1, 1), (10, 9)], &old);
        io.send_half(2, opcode::WRITE, &[(1, 1), (10, 9), (12, flags)], &new);
        assert!(io.endings(2).values().all(|status| *status == 0));
        assert_eq!(record.changes(), [Seen::Write(blocks(9, 1), durability)]);
        old = new;
    }
}

#[test]
fn flushes_and_deallocations_reach_the_device_each_time() {
    let (_machine, _admin, mut io, record) = recorded();
    for _ in 0..2 {
        io.send(opcode::FLUSH, Sgl::Transport { length: 0 }, &[(1, 1)], &[]);
        assert_eq!(io.finish().2, 0);
        assert_eq!(record.take(), [Seen::Flush]);
    }
    let ranges: Vec<u8> = [(64, 8), (512, 256)]
        .iter()
        .flat_map(|&(start, count)| Range { start, count }.bytes())
        .collect();
    let sgl = Sgl::InCapsule { offset: 0, length: ranges.len() as u32 };
    io.send(opcode::DATASET_MANAGEMENT, sgl, &[(1, 1), (10, 1), (11, 4)], &ranges);
    assert_eq!(io.finish().2, 0);
    let wanted = [Seen::Deallocate(blocks(64, 8)), Seen::Deallocate(blocks(512, 256))];
    assert_eq!(record.take(), wanted);
}

/// A read with FUA must return stable data: the target flushes first.
#[test]
fn a_stable_read_flushes_first() {
    let (_machine, _admin, mut io, record) = recorded();
    let length = BLOCK as u32;
    io.send(opcode::READ, Sgl::Transport { length }, &[(1, 1), (10, 3), (12, 0)], &[]);
    assert_eq!(io.finish().2, 0);
    assert_eq!(record.take(), [Seen::Read(blocks(3, 1))]);
    io.send(opcode::READ, Sgl::Transport { length }, &[(1, 1), (10, 3), (12, FUA)], &[]);
    assert_eq!(io.finish().2, 0);
    assert_eq!(record.take(), [Seen::Flush, Seen::Read(blocks(3, 1))]);
}
