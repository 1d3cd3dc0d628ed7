//! Compare and Write as one atomic operation: its effect, its atomicity towards other hosts, and the outcome of single
//! halves.

mod common;

use common::faults::while_it_goes;
use common::{BLOCK, BLOCKS, Host, Machine, SUBSYSTEM, code, export, h2c, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, FaultPlan, Ops, RamDevice, Rule, RuleId};
use strake_export_nvmet::Export;
use strake_nvme_tcp::digest;
use strake_nvme_tcp::pdu::{Digests, IcReq, Use};
use strake_nvme_wire::nvm::{Range, SourceRange, opcode};
use strake_nvme_wire::{Sgl, Status};
use strake_units::{BlockSize, Lba, LbaRange};

const DIFFERS: u16 = code(Status::COMPARE_FAILURE);
const FAILED: u16 = code(Status::FAILED_FUSED);
const MISSING: u16 = code(Status::MISSING_FUSED);
const INVALID: u16 = code(Status::INVALID_FIELD);
/// The block of all commands.
const LOCK: u32 = 5;
const FUA: u32 = 1 << 30;

fn full(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK]
}

/// A target whose drive follows a fault plan.
fn planned() -> (Machine, FaultPlan, RamDevice) {
    let ram = RamDevice::new(BLOCKS, BlockSize::B4096);
    let (machine, plan) = Machine::planned(ram.clone());
    (machine, plan, ram)
}

/// Hangs these operations on the block.
fn hang(plan: &FaultPlan, ops: Ops) -> RuleId {
    plan.add(Rule::new(ops, Effect::Hang).within(LbaRange::new(Lba(LOCK.into()), 1)))
}

fn release(plan: &FaultPlan) {
    plan.clear();
    plan.release();
}

/// Waits until the target has processed all commands that were sent on a queue.
fn is_taken_in(io: &mut Host) {
    assert_eq!(io.read(100, 1).1, 0);
}

/// The opcodes besides Write that change the block, with the new content; [`SOURCE`] must have this content.
const CHANGES: [(u8, u8); 4] = [(1, 9), (8, 0), (9, 0), (opcode::COPY, 9)];
const SOURCE: u32 = 50;

fn change(io: &mut Host, opcode: u8) -> u16 {
    let in_capsule = |length: usize| Sgl::InCapsule { offset: 0, length: length as u32 };
    match opcode {
        1 => io.send(1, in_capsule(BLOCK), &[(1, 1), (10, LOCK)], &full(9)),
        8 => io.send(8, Sgl::Transport { length: 0 }, &[(1, 1), (10, LOCK)], &[]),
        9 => {
            let range = Range { start: LOCK.into(), count: 1 }.bytes();
            io.send(9, in_capsule(range.len()), &[(1, 1), (11, 4)], &range)
        }
        _ => {
            let source = SourceRange { start: SOURCE.into(), count: 1 }.bytes();
            io.send(opcode, in_capsule(source.len()), &[(1, 1), (10, LOCK)], &source)
        }
    }
}

#[test]
fn it_is_announced_for_one_block() {
    let machine = Machine::start();
    let (mut admin, _io) = machine.controller();
    admin.send(6, Sgl::Transport { length: 4096 }, &[(10, 1)], &[]);
    let (page, _, _) = admin.finish();
    assert_eq!((page[522..524].to_vec(), page[532..534].to_vec()), (vec![1, 0], vec![0, 0]));
}

#[test]
fn what_is_as_expected_is_written_and_nothing_else() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    assert_eq!(io.compare_and_write(LOCK, &full(0), &full(1)), (0, 0));
    assert_eq!(io.read(LOCK, 1), (full(1), 0));
    assert_eq!(io.compare_and_write(LOCK, &full(0), &full(2)), (DIFFERS, FAILED));
    assert_eq!(io.read(LOCK, 1), (full(1), 0));
    for flags in [(FUA, 0), (0, FUA), (FUA, FUA)] {
        let words = |flags| [(1, 1), (10, LOCK), (12, flags)];
        io.send_half(1, 5, &words(flags.0), &full(1));
        io.send_half(2, 1, &words(flags.1), &full(1));
        assert_eq!(io.endings(2).into_values().collect::<Vec<_>>(), [0, 0], "{flags:?}");
    }
    assert_eq!(io.read(LOCK, 1), (full(1), 0));
    assert_eq!(io.read(LOCK + 1, 1), (full(0), 0), "its neighbours are as they were");
}

/// Sends a capsule whose data is transferred after an R2T.
fn announce_half(io: &mut Host, half: u8, opcode: u8, cid: u16) {
    let sgl = Sgl::Transport { length: BLOCK as u32 };
    let mut capsule = common::capsule(opcode, cid, sgl, &[(1, 1), (10, LOCK)], &[]);
    capsule[9] |= half;
    io.put(&capsule);
}

/// The CID and the tag of an R2T.
fn asked(io: &mut Host) -> (u16, u16) {
    let pdu = io.pdu().expect("the connection stays");
    assert_eq!(pdu.kind, 9, "R2T");
    let number = |at: usize| u16::from_le_bytes([pdu.header[at], pdu.header[at + 1]]);
    (number(0), number(2))
}

/// The data of the halves may arrive after the capsules, in any order, and between them.
#[test]
fn data_that_is_asked_for_may_come_in_any_order() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    for (round, second_first) in [(0, false), (1, true)] {
        announce_half(&mut io, 1, 5, 1000);
        let one = asked(&mut io);
        announce_half(&mut io, 2, 1, 1001);
        let other = asked(&mut io);
        let (old, new) = (full(round), full(round + 1));
        let mut sent = [(one, &old), (other, &new)];
        assert_eq!((one.0, other.0), (1000, 1001));
        if second_first {
            sent.reverse();
        }
        for ((cid, tag), data) in sent {
            io.put(&h2c(cid, tag, 0, BLOCK as u32, 4, data));
        }
        assert_eq!(io.endings(2).into_values().collect::<Vec<_>>(), [0, 0]);
        assert_eq!(io.read(LOCK, 1), (new, 0));
    }
    // The data of the first half arrives between the capsules, and the data of the second in its capsule.
    announce_half(&mut io, 1, 5, 1000);
    let (cid, tag) = asked(&mut io);
    io.put(&h2c(cid, tag, 0, BLOCK as u32, 4, &full(2)));
    io.send_half(2, 1, &[(1, 1), (10, LOCK)], &full(3));
    assert_eq!(io.endings(2).into_values().collect::<Vec<_>>(), [0, 0]);
}

/// Numbers in a block: its counter, and the last plain write.
fn numbers(block: &[u8]) -> (u64, u64) {
    let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("8 bytes"));
    (number(0), number(8))
}

fn block(count: u64, tag: u64) -> Vec<u8> {
    let mut bytes = full(0);
    bytes[..8].copy_from_slice(&count.to_le_bytes());
    bytes[8..16].copy_from_slice(&tag.to_le_bytes());
    bytes
}

/// Increments the block with retries; each failure means that another host has changed the block.
fn count_up(io: &mut Host) {
    let mut known = io.read(LOCK, 1).0;
    for _ in 0..TRIES_MAX {
        let (count, tag) = numbers(&known);
        match io.compare_and_write(LOCK, &known, &block(count + 1, tag)) {
            (0, 0) => return,
            (DIFFERS, FAILED) => known = io.read(LOCK, 1).0,
            other => panic!("{other:x?}"),
        }
    }
    panic!("somebody else is always first");
}

/// The maximum number of retries.
const TRIES_MAX: u32 = 100_000;

const COUNTERS: u64 = 6;
const ROUNDS: u64 = 60;

/// Every host has a controller of its own, and the controllers are on two cores.
#[test]
fn no_count_of_many_hosts_is_lost() {
    let machine = Machine::start();
    thread::scope(|scope| {
        for _ in 0..COUNTERS {
            scope.spawn(|| {
                let (_admin, mut io) = machine.controller();
                (0..ROUNDS).for_each(|_| count_up(&mut io));
            });
        }
    });
    let (_admin, mut io) = machine.controller();
    assert_eq!(numbers(&io.read(LOCK, 1).0), (COUNTERS * ROUNDS, 0));
}

/// Sets the flag when dropped, also if a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Every later compare sees a completed plain write, so none of these writes is undone.
#[test]
fn no_plain_write_is_undone_by_those_who_compare() {
    let machine = Machine::start();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (_admin, mut io) = machine.controller();
                while !done.load(Ordering::Relaxed) {
                    count_up(&mut io);
                }
            });
        }
        // The other hosts stop even if this thread fails.
        let _over = Over(&done);
        let (_admin, mut io) = machine.controller();
        for tag in 1..=4 * ROUNDS {
            assert_eq!(io.write(LOCK, &block(0, tag)), 0);
            assert_eq!(numbers(&io.read(LOCK, 1).0).1, tag, "a write was undone");
        }
    });
}

/// Every command that changes the block waits until the write of the pair has completed.
#[test]
fn a_write_that_arrives_during_the_compare_waits() {
    for (opcode, after) in CHANGES {
        let (machine, plan, ram) = planned();
        let ((_a, mut io), (_b, mut other)) = (machine.controller(), machine.controller());
        assert_eq!(other.write(SOURCE, &full(9)), 0);
        let rule = hang(&plan, Ops::READ);
        let pair = io.send_pair(LOCK, &full(0), &full(1));
        until("it is compared", || plan.struck(rule) == Some(1));
        let cid = change(&mut other, opcode);
        is_taken_in(&mut other);
        release(&plan);
        let ended = io.endings(2);
        assert_eq!((ended[&pair.0], ended[&pair.1]), (0, 0), "opcode {opcode:#x}");
        assert_eq!(other.endings(1)[&cid], 0, "opcode {opcode:#x}");
        let mut found = full(7);
        ram.read_at(u64::from(LOCK) * BLOCK as u64, &mut found).expect("on the drive");
        assert!(found == full(after), "opcode {opcode:#x}");
    }
}

/// A compare waits for I/O that was in flight before the pair.
#[test]
fn what_was_begun_before_is_waited_for() {
    for (opcode, after) in CHANGES {
        let (machine, plan, _ram) = planned();
        let ((_a, mut io), (_b, mut other)) = (machine.controller(), machine.controller());
        assert_eq!(other.write(SOURCE, &full(9)), 0);
        assert_eq!(other.write(LOCK, &full(3)), 0);
        let rule = hang(&plan, Ops::WRITE.and(Ops::ZEROES).and(Ops::DEALLOCATE));
        let cid = change(&mut other, opcode);
        until("it is at the drive", || plan.struck(rule) == Some(1));
        let pair = io.send_pair(LOCK, &full(after), &full(1));
        is_taken_in(&mut io);
        release(&plan);
        assert_eq!(other.endings(1)[&cid], 0, "opcode {opcode:#x}");
        let ended = io.endings(2);
        assert_eq!((ended[&pair.0], ended[&pair.1]), (0, 0), "opcode {opcode:#x}");
    }
}

#[test]
fn of_two_pairs_that_expect_the_same_one_is_notified_that_it_is_late() {
    let (machine, plan, _ram) = planned();
    let ((_a, mut io), (_b, mut other)) = (machine.controller(), machine.controller());
    let rule = hang(&plan, Ops::READ);
    let pair = io.send_pair(LOCK, &full(0), &full(1));
    until("the first is compared", || plan.struck(rule) == Some(1));
    let late = other.send_pair(LOCK, &full(0), &full(2));
    is_taken_in(&mut other);
    release(&plan);
    let (ended, late_ended) = (io.endings(2), other.endings(2));
    assert_eq!((ended[&pair.0], ended[&pair.1]), (0, 0));
    assert_eq!((late_ended[&late.0], late_ended[&late.1]), (DIFFERS, FAILED));
}

/// Other blocks are not locked meanwhile, not even for pairs, and the locked block can be read.
#[test]
fn no_host_waits_that_writes_elsewhere() {
    let (machine, plan, _ram) = planned();
    let ((_a, mut io), (_b, mut other)) = (machine.controller(), machine.controller());
    let rule = hang(&plan, Ops::READ);
    let pair = io.send_pair(LOCK, &full(0), &full(1));
    until("it is compared", || plan.struck(rule) == Some(1));
    plan.clear();
    for host in [&mut other, &mut io] {
        assert_eq!(host.write(LOCK + 1, &full(4)), 0);
        assert_eq!(host.read(LOCK, 1), (full(0), 0));
    }
    assert_eq!(other.compare_and_write(LOCK + 1, &full(4), &full(5)), (0, 0));
    plan.release();
    let ended = io.endings(2);
    assert_eq!((ended[&pair.0], ended[&pair.1]), (0, 0));
}

/// A host that withholds the data of one half, or omits the second half, delays no other host.
#[test]
fn a_host_that_does_not_continue_delays_no_other() {
    let machine = Machine::start();
    let (_a, mut other) = machine.controller();
    let (_b, mut silent) = machine.controller();
    silent.send_half(1, 5, &[(1, 1), (10, LOCK)], &full(0));
    announce_half(&mut silent, 2, 1, 1001);
    asked(&mut silent);
    assert_eq!(other.write(LOCK, &full(1)), 0);
    assert_eq!(other.compare_and_write(LOCK, &full(1), &full(2)), (0, 0));
    let (admin, mut half) = machine.controller();
    half.send_half(1, 5, &[(1, 1), (10, LOCK)], &full(0));
    drop((admin, half, silent));
    assert_eq!(other.compare_and_write(LOCK, &full(2), &full(3)), (0, 0));
    until("they are gone", || machine.target.exports()[0].connections == 3);
}

/// A host that disconnects while its pair waits, or during the compare, leaves no range lock and no write behind.
#[test]
fn a_host_that_goes_in_the_middle_lets_the_block_go() {
    for (ops, begins) in [(Ops::WRITE, false), (Ops::READ, true)] {
        let (machine, plan, ram) = planned();
        let ((_a, mut other), (admin, mut io)) = (machine.controller(), machine.controller());
        let rule = hang(&plan, ops);
        if !begins {
            change(&mut other, 1);
            until("another writes", || plan.struck(rule) == Some(1));
        }
        io.send_pair(LOCK, &full(0), &full(1));
        if begins {
            until("it is compared", || plan.struck(rule) == Some(1));
        } else {
            is_taken_in(&mut io);
        }
        drop((admin, io));
        let left = if begins { 3 } else { 2 };
        until("the host is gone", || machine.target.exports()[0].connections == left);
        release(&plan);
        if !begins {
            assert_eq!(other.endings(1).into_values().next(), Some(0));
        }
        let expected = if begins { full(0) } else { full(9) };
        assert_eq!(other.compare_and_write(LOCK, &expected, &full(2)), (0, 0));
        until("nothing is left", || machine.target.exports()[0].connections == 2);
        let mut found = full(7);
        ram.read_at(u64::from(LOCK) * BLOCK as u64, &mut found).expect("on the drive");
        assert!(found == full(2));
    }
}

#[test]
fn a_pair_whose_device_goes_is_not_carried_out() {
    let (machine, plan, ram) = planned();
    let second = Export { namespace: 2, uuid: [2; 16], ..export(Arc::new(ram.clone())) };
    machine.target.add_export(&second).expect("a second namespace");
    let ((_a, mut io), (_b, mut other)) = (machine.controller(), machine.controller());
    let rule = hang(&plan, Ops::WRITE);
    change(&mut other, 1);
    until("another writes", || plan.struck(rule) == Some(1));
    let pair = io.send_pair(LOCK, &full(0), &full(1));
    while_it_goes(&machine, 1, || {
        let ended = io.endings(2);
        let inaccessible = code(Status::INACCESSIBLE);
        assert_eq!(ended[&pair.0], inaccessible);
        assert!([inaccessible, FAILED].contains(&ended[&pair.1]));
        release(&plan);
    });
    let mut found = full(7);
    ram.read_at(u64::from(LOCK) * BLOCK as u64, &mut found).expect("on the drive");
    assert!(found == full(9), "only the plain write was carried out");
}

#[test]
fn a_drive_that_fails_fails_the_pair() {
    let (machine, plan, _ram) = planned();
    let (_admin, mut io) = machine.controller();
    plan.add(Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium)).limit(1));
    let unread = code(Status::UNRECOVERED_READ);
    assert_eq!(io.compare_and_write(LOCK, &full(0), &full(1)), (unread, FAILED));
    plan.add(Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Medium)).limit(1));
    let fault = code(Status::WRITE_FAULT);
    assert_eq!(io.compare_and_write(LOCK, &full(0), &full(1)), (0, fault));
    assert_eq!(io.compare_and_write(LOCK, &full(0), &full(1)), (0, 0), "the block is free again");
}

/// Halves in the order of sending: the fuse bits, opcode, block, blocks less one and namespace of each, and its status.
type Row<'a> = (&'a str, &'a [(u8, u8, u32, u32, u32, u16)]);

/// Base, section 3.4.2: halves that are not adjacent, and invalid pairs.
#[test]
fn halves_that_do_not_fit_are_refused_and_change_nothing() {
    const PROTECTED: u16 = code(Status::WRITE_PROTECTED);
    const BEYOND: u16 = code(Status::OUT_OF_RANGE);
    let rows: [Row<'_>; 15] = [
        ("a second alone", &[(2, 1, LOCK, 0, 1, MISSING)]),
        (
            "a second after an ordinary command",
            &[(0, 5, LOCK, 0, 1, 0), (2, 1, LOCK, 0, 1, MISSING)],
        ),
        ("a first alone", &[(1, 5, LOCK, 0, 1, MISSING), (0, 5, LOCK, 0, 1, 0)]),
        (
            "two firsts",
            &[(1, 5, LOCK, 0, 1, MISSING), (1, 5, LOCK, 0, 1, 0), (2, 1, LOCK, 0, 1, 0)],
        ),
        (
            "two seconds",
            &[(1, 5, LOCK, 0, 1, 0), (2, 1, LOCK, 0, 1, 0), (2, 1, LOCK, 0, 1, MISSING)],
        ),
        ("the wrong way round", &[(1, 1, LOCK, 0, 1, INVALID), (2, 5, LOCK, 0, 1, FAILED)]),
        ("two comparisons", &[(1, 5, LOCK, 0, 1, FAILED), (2, 5, LOCK, 0, 1, INVALID)]),
        ("another block", &[(1, 5, LOCK, 0, 1, INVALID), (2, 1, LOCK + 1, 0, 1, INVALID)]),
        ("another namespace", &[(1, 5, LOCK, 0, 1, INVALID), (2, 1, LOCK, 0, 3, INVALID)]),
        ("two blocks", &[(1, 5, LOCK, 1, 1, INVALID), (2, 1, LOCK, 1, 1, FAILED)]),
        ("two blocks to write", &[(1, 5, LOCK, 0, 1, FAILED), (2, 1, LOCK, 1, 1, INVALID)]),
        ("behind the end", &[(1, 5, 4096, 0, 1, BEYOND), (2, 1, 4096, 0, 1, FAILED)]),
        ("to be written behind the end", &[(1, 5, LOCK, 0, 1, FAILED), (2, 1, 4096, 0, 1, BEYOND)]),
        ("what may not be written", &[(1, 5, LOCK, 0, 2, FAILED), (2, 1, LOCK, 0, 2, PROTECTED)]),
        ("a third half", &[(1, 5, LOCK, 0, 1, MISSING), (3, 1, LOCK, 0, 1, INVALID)]),
    ];
    let machine = Machine::start();
    let ram = || Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096));
    for (namespace, read_only) in [(2, true), (3, false)] {
        let uuid = [namespace as u8; 16];
        let more = Export { namespace, uuid, read_only, ..export(ram()) };
        machine.target.add_export(&more).expect("a namespace");
    }
    let (_admin, mut io) = machine.controller();
    for (what, halves) in rows {
        let mut expected = Vec::new();
        for &(half, opcode, block, more, namespace, status) in halves {
            let words = [(1, namespace), (10, block), (12, more)];
            let data = vec![0; BLOCK * (more as usize + 1)];
            expected.push((io.send_half(half, opcode, &words, &data), status));
        }
        let ended = io.endings(halves.len());
        assert_eq!(ended.into_iter().collect::<Vec<_>>(), expected, "{what}");
        assert_eq!(io.read(LOCK, 2), (vec![0; 2 * BLOCK], 0), "{what}");
    }
    assert_eq!(io.compare_and_write(LOCK, &full(0), &full(1)), (0, 0));
}

#[test]
fn halves_with_too_little_data_are_refused() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    let short = code(Status::SGL_LENGTH);
    assert_eq!(io.compare_and_write(LOCK, &[0; 512], &full(1)), (short, FAILED));
    assert_eq!(io.compare_and_write(LOCK, &full(0), &[1; 512]), (FAILED, short));
    assert_eq!(io.compare_and_write(LOCK, &full(0), &full(1)), (0, 0));
}

/// A data digest mismatch fails one half, and so the other.
#[test]
fn a_half_whose_data_was_damaged_fails_the_other() {
    let machine = Machine::start();
    let mut admin = Host::asked(&machine);
    let id = admin.connect(0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut io = machine.dial();
    let digests = Digests { header: Use::Off, data: Use::On };
    io.put(&IcReq { alignment: 0, digests, r2ts_max: 0 }.bytes());
    assert_eq!(io.pdu().map(|pdu| pdu.kind), Some(1), "ICResp");
    let send = |io: &mut Host, (opcode, cid, half), words: &[(usize, u32)], data: &[u8], damage| {
        let sgl = Sgl::InCapsule { offset: 0, length: data.len() as u32 };
        let mut bytes = common::capsule(opcode, cid, sgl, words, data);
        (bytes[1], bytes[9]) = (2, bytes[9] | half);
        let total = bytes.len() as u32 + 4;
        bytes[4..8].copy_from_slice(&total.to_le_bytes());
        let mut end = digest::of(data);
        end[0] ^= damage;
        io.put(&[bytes, end.to_vec()].concat());
    };
    let data = common::connect_data((common::HOST, SUBSYSTEM), id);
    send(&mut io, (0x7f, 0, 0), &[(1, 1), (10, 1 << 16), (11, 127)], &data, 0);
    assert_eq!(io.endings(1)[&0], 0, "Connect");
    let damaged = code(Status::TRANSIENT_TRANSPORT);
    for (damage, expected) in
        [([1, 0], [damaged, FAILED]), ([0, 1], [FAILED, damaged]), ([1, 1], [damaged, damaged])]
    {
        let words = [(1, 1), (10, LOCK)];
        send(&mut io, (5, 1, 1), &words, &full(0), damage[0]);
        send(&mut io, (1, 2, 2), &words, &full(1), damage[1]);
        let ended = io.endings(2);
        let found = [ended[&1], ended[&2]];
        // The first half may have completed before the second was processed.
        assert!(found == expected || damage == [1, 1] && found == [damaged, FAILED], "{damage:?}");
        let (_a, mut other) = machine.controller();
        assert_eq!(other.read(LOCK, 1), (full(0), 0), "{damage:?}");
    }
}

#[test]
fn halves_on_an_admin_queue_are_refused() {
    let machine = Machine::start();
    let (mut admin, mut io) = machine.controller();
    for half in [1, 2, 3] {
        for opcode in [6, 5, 1, 0x18] {
            admin.send_half(half, opcode, &[(1, 1), (10, 1)], &[]);
            assert_eq!(admin.endings(1).into_values().next(), Some(INVALID), "{half}, {opcode}");
        }
    }
    admin.send(0x18, Sgl::Transport { length: 0 }, &[], &[]);
    assert_eq!(admin.finish().2, 0, "Keep Alive");
    assert_eq!(io.read(0, 1).1, 0);
}

/// A full queue of first halves, repeatedly: each fails with the next one.
#[test]
fn a_flood_of_halves_is_answered() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    for _ in 0..10 {
        let sent: Vec<u16> =
            (0..60).map(|_| io.send_half(1, 5, &[(1, 1), (10, LOCK)], &full(0))).collect();
        let last = io.send_half(2, 1, &[(1, 1), (10, LOCK)], &full(0));
        let ended = io.endings(61);
        assert!(sent[..59].iter().all(|cid| ended[cid] == MISSING));
        assert_eq!((ended[&sent[59]], ended[&last]), (0, 0));
    }
}

/// More pairs than there is memory for, three buffers each: a pair without memory gets a retryable status, all others
/// are executed in some order, and each sees the write of another. All memory is returned.
#[test]
fn a_flood_of_pairs_is_answered() {
    let again = code(Status::INTERRUPTED);
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    for pairs in [40, 60, 40] {
        let sent: Vec<_> = (0..pairs).map(|_| io.send_pair(LOCK, &full(0), &full(1))).collect();
        let ended = io.endings(2 * pairs);
        let count = |ways: &[(u16, u16)]| {
            sent.iter().filter(|pair| ways.contains(&(ended[&pair.0], ended[&pair.1]))).count()
        };
        let without_room = count(&[(again, FAILED), (FAILED, again)]);
        assert_eq!((count(&[(0, 0)]), count(&[(DIFFERS, FAILED)])), (1, pairs - 1 - without_room));
        assert!(pairs > 48 || without_room == 0);
        assert_eq!(io.write(LOCK, &full(0)), 0);
    }
}
