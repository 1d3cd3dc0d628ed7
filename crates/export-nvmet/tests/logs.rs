//! The log pages and features about failures, health and settings.

mod common;

use common::{BLOCK, BLOCKS, Host, Machine, code, u32_of};
use std::sync::Arc;
use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, FaultPlan, Faulty, Ops, RamDevice, Rule};
use strake_export_nvmet::limits::{DATASET_BLOCKS_MAX, QUEUES_MAX};
use strake_nvme_wire::nvm::{RANGE_BYTES, Range};
use strake_nvme_wire::{Sgl, Status};
use strake_units::{BlockSize, Lba, LbaRange};

fn log(admin: &mut Host, page: u32, length: u32) -> Vec<u8> {
    let words = [(10, (length / 4 - 1) << 16 | page)];
    admin.send(2, Sgl::Transport { length }, &words, &[]);
    let (data, _, status) = admin.finish();
    assert_eq!(status, 0, "log page {page:#x}");
    data
}

/// An Identify data structure.
fn identify(admin: &mut Host, cns: u32) -> Vec<u8> {
    admin.send(6, Sgl::Transport { length: 4096 }, &[(10, cns)], &[]);
    let (data, _, status) = admin.finish();
    assert_eq!(status, 0, "Identify {cns:#x}");
    data
}

fn verify(io: &mut Host, block: u32, blocks: u32) -> u16 {
    io.send(0xc, Sgl::Transport { length: 0 }, &[(1, 1), (10, block), (12, blocks - 1)], &[]);
    let (data, _, status) = io.finish();
    assert_eq!(data.len(), 0, "nothing is sent");
    status
}

/// A RAM drive whose block 7 cannot be read.
fn machine() -> Machine {
    let plan = FaultPlan::new(1);
    let medium = Effect::Fail(IoErrorKind::Medium);
    plan.add(Rule::new(Ops::READ, medium).within(LbaRange::new(Lba(7), 1)));
    let ram = RamDevice::new(BLOCKS, BlockSize::B4096);
    Machine::with(Arc::new(Faulty::new(ram, plan)))
}

#[test]
fn verify_finds_what_cannot_be_read_and_sends_nothing() {
    let machine = machine();
    let (_admin, mut io) = machine.controller();
    assert_eq!(verify(&mut io, 8, 256), 0);
    assert_eq!(verify(&mut io, 0, 256), code(Status::UNRECOVERED_READ));
    assert_eq!(verify(&mut io, 0, 257), code(Status::INVALID_FIELD), "more than VSL");
    assert_eq!(verify(&mut io, BLOCKS as u32 - 1, 2), code(Status::OUT_OF_RANGE));
    // The memory of failed commands is returned: repeats this more often than the queue has entries.
    for _ in 0..256 {
        assert_eq!(verify(&mut io, 8, 256), 0);
    }
}

#[test]
fn the_error_log_has_the_last_failures_newest_first() {
    let machine = machine();
    let (mut admin, mut io) = machine.controller();
    assert_eq!(log(&mut admin, 1, 64), [0; 64], "nothing has failed");
    assert_eq!(io.read(7, 1).1, code(Status::UNRECOVERED_READ));
    let length = BLOCK as u32;
    let failed = io.send(2, Sgl::Transport { length }, &[(1, 1), (10, 0), (11, 1)], &[]);
    assert_eq!(io.finish().2, code(Status::OUT_OF_RANGE));
    let page = log(&mut admin, 1, 192);
    let (newest, oldest) = (&page[..64], &page[64..128]);
    assert_eq!((newest[0], oldest[0], &page[128..]), (2, 1, &[0; 64][..]));
    assert_eq!((newest[8], newest[10]), (1, failed as u8), "the queue and the command");
    let status = u16::from_le_bytes([oldest[12], oldest[13]]) >> 1 & 0x7ff;
    assert_eq!((status, oldest[16], oldest[24]), (code(Status::UNRECOVERED_READ), 7, 1));

    // The log keeps the last failures, and counts all of them.
    for _ in 0..70 {
        assert_eq!(io.read(7, 1).1, code(Status::UNRECOVERED_READ));
    }
    let page = log(&mut admin, 1, 64 * 64);
    assert_eq!((page[0], page[63 * 64]), (72, 9));
    // A Compare failure is a failed command, but no media error.
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    io.send(5, sgl, &[(1, 1), (10, 8)], &[1; BLOCK]);
    assert_eq!(io.finish().2, code(Status::COMPARE_FAILURE));
    let health = log(&mut admin, 2, 512);
    assert_eq!((health[160], health[176]), (71, 73), "media errors and failures");
}

#[test]
fn health_counts_what_hosts_did() {
    let machine = machine();
    let (mut admin, mut io) = machine.controller();
    for block in 0..126 {
        assert_eq!(io.write(block, &[1; BLOCK]), 0);
    }
    assert_eq!(io.read(8, 1).1, 0);
    let health = log(&mut admin, 2, 512);
    let count = |at: usize| u32_of(&health[at..]);
    // 126 blocks of 4 KiB are a little more than one unit of 512000 bytes.
    assert_eq!((count(32), count(48), count(64), count(80)), (1, 2, 1, 126));
}

#[test]
fn every_feature_that_must_be_there_has_a_value() {
    let machine = Machine::start();
    let (mut admin, _io) = machine.controller();
    let queues = u64::from(QUEUES_MAX - 1) * 0x1_0001;
    for (feature, value) in
        [(1, 7), (2, 0), (4, 0), (5, 0), (6, 1), (7, queues), (0xa, 0), (0xb, 0), (0xf, 0)]
    {
        admin.send(0xa, Sgl::Transport { length: 0 }, &[(10, feature)], &[]);
        let (_, result, status) = admin.finish();
        assert_eq!((result, status), (value, 0), "feature {feature:#x}");
    }
    for feature in [1, 2, 4, 5, 6, 0xa] {
        admin.send(9, Sgl::Transport { length: 0 }, &[(10, feature), (11, 1)], &[]);
        assert_eq!(admin.finish().2, code(Status::NOT_CHANGEABLE), "feature {feature:#x}");
    }
}

/// The page of supported commands lists exactly the commands that are executed.
#[test]
fn commands_that_are_named_are_there() {
    let machine = Machine::start();
    let (mut admin, mut io) = machine.controller();
    let page = log(&mut admin, 5, 4096);
    let named = |from: usize, opcode: u8| page[from + usize::from(opcode) * 4] & 1 == 1;
    let identified = identify(&mut admin, 1);
    let optional = u16::from_le_bytes([identified[520], identified[521]]);
    for (bit, opcode) in [(0, 5), (1, 4), (2, 9), (3, 8), (5, 0xd), (7, 0xc), (8, 0x19)] {
        assert_eq!(optional & 1 << bit != 0, named(1024, opcode), "optional command {opcode:#x}");
    }
    // This length is too small for every command with data, which then fails with a status other than invalid opcode.
    let short = Sgl::Transport { length: 4 };
    for opcode in 0..=0x7e {
        // An Asynchronous Event Request stays outstanding.
        if opcode != 0x0c {
            admin.send(opcode, short, &[(1, 1)], &[]);
            let known = admin.finish().2 != code(Status::INVALID_OPCODE);
            assert_eq!(known, named(0, opcode), "admin command {opcode:#x}");
        }
        io.send(opcode, short, &[(1, 1)], &[]);
        let known = io.finish().2 != code(Status::INVALID_OPCODE);
        assert_eq!(known, named(1024, opcode), "I/O command {opcode:#x}");
    }
}

/// The controller reports the recommended limit of one deallocation, and larger deallocations are executed too.
#[test]
fn deallocations_have_a_limit_that_is_recommended() {
    let blocks = 2 * u64::from(DATASET_BLOCKS_MAX);
    let machine = Machine::with(Arc::new(RamDevice::new(blocks, BlockSize::B512)));
    let (mut admin, mut io) = machine.controller();
    let page = identify(&mut admin, 6);
    let all = u64::from_le_bytes(page[8..16].try_into().expect("8 bytes"));
    assert_eq!((page[3], u32_of(&page[4..]), all), (255, 1 << 24, 1 << 24));
    let range = Range { start: 0, count: blocks as u32 };
    let sgl = Sgl::InCapsule { offset: 0, length: RANGE_BYTES as u32 };
    io.send(9, sgl, &[(1, 1), (10, 0), (11, 1 << 2)], &range.bytes());
    assert_eq!(io.finish().2, 0);
}
