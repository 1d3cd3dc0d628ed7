//! Faults of the drive below, and damage to its content.

use std::sync::Arc;

use strake_block::{BlockDevice, Durability, IoErrorKind};
use strake_dev_mem::{Effect, Ops, Rule};
use strake_ondisk::POOL_BLOCK_BYTES;
use strake_units::{Lba, LbaRange};
use strake_volume_map::ErrorKind;

use super::world::{BLOCK, Drive, World, drive, name, small, wait};
use crate::request::Request;
use crate::{Layout, PoolErrorKind, store};

const CACHED: Durability = Durability::Normal;

fn world() -> (World, Layout) {
    let device = drive(64, 1);
    let layout = small(&*device, 64, 64);
    (World::create(device, &layout), layout)
}

/// Blocks of bytes of the pool.
fn blocks(at: u64, bytes: u64) -> LbaRange {
    LbaRange::new(Lba(at / BLOCK as u64), bytes / BLOCK as u64)
}

fn fail(world: &World, ops: Ops, range: LbaRange) -> strake_dev_mem::RuleId {
    let effect = Effect::Fail(IoErrorKind::Device);
    world.device.plan().add(Rule::new(ops, effect).within(range))
}

#[test]
fn a_failed_write_of_data_is_reported_and_leaves_the_old_content() {
    let (mut world, layout) = world();
    let volume = world.create_volume("vm1", 640);
    world.write(volume, 0, &[1, 2], CACHED).expect("written");
    let snapshot = world.snapshot(volume, "before");
    let all = blocks(layout.header.data_at, layout.header.bytes - layout.header.data_at);
    let rule = fail(&world, Ops::WRITE, all);
    // In place of nothing, a copy, and a first touch.
    for block in [0, 64, 200] {
        let error = world.write(volume, block, &[9], CACHED).expect_err("the drive fails");
        assert_eq!(error.kind, IoErrorKind::Device);
    }
    world.device.plan().remove(rule);
    assert_eq!(world.read(volume, 0, 3), [1, 2, 0]);
    assert_eq!(world.read(volume, 200, 1), [0]);
    assert_eq!(world.settle().space.in_use, 1, "taken clusters return");
    world.write(volume, 0, &[9], CACHED).expect("written");
    assert_eq!(world.read(snapshot, 0, 2), [1, 2]);
    let read = fail(&world, Ops::READ, all);
    let op = super::world::read_op(0, 1);
    assert_eq!(world.run(volume, op).expect_err("unreadable").kind, IoErrorKind::Device);
    world.device.plan().remove(read);
    assert_eq!(world.read(volume, 0, 2), [9, 2]);
}

#[test]
fn a_log_that_cannot_be_written_makes_the_pool_read_only_until_the_next_start() {
    let (mut world, layout) = world();
    let volume = world.create_volume("vm1", 640);
    world.write(volume, 0, &[1], CACHED).expect("written");
    let rule = fail(&world, Ops::WRITE, blocks(layout.header.log_at, layout.header.log_bytes));
    let error = world.write(volume, 64, &[2], CACHED).expect_err("the log fails");
    assert_eq!(error.kind, IoErrorKind::ReadOnly);
    let in_place = world.write(volume, 0, &[3], CACHED).expect_err("only reads are served");
    assert_eq!(in_place.kind, IoErrorKind::ReadOnly);
    let create =
        Request::Create { name: name("x"), blocks: 1, policy: crate::SpacePolicy::default() };
    assert_eq!(world.ask(create).expect_err("only reads").kind, ErrorKind::LogFailed);
    assert_eq!(world.read(volume, 0, 1), [1]);
    assert!(world.status().is_read_only);
    world.device.plan().remove(rule);
    let stop = world.pool().begin_stop();
    world.until(|_| stop.poll().expect("it stops"));
    let mut world = world.reopen().expect("it opens");
    world.write(volume, 64, &[4], CACHED).expect("written");
    assert_eq!((world.read(volume, 0, 1), world.read(volume, 64, 1)), (vec![1], vec![4]));
}

#[test]
fn a_root_that_cannot_be_written_is_repeated_and_the_log_goes_on() {
    let (mut world, layout) = world();
    let volume = world.create_volume("vm1", 640);
    let roots = blocks(layout.header.root_at, 2 * layout.header.root_bytes);
    let rule = fail(&world, Ops::WRITE, roots);
    for round in 1..14 {
        world.write(volume, round % 4 * 64, &[round], CACHED).expect("written");
        world.discard(volume, round % 4 * 64, 64);
    }
    let failed = world.ask(Request::Checkpoint).expect_err("the root cannot be written");
    assert!(matches!(failed.kind, ErrorKind::StepFailed { .. }));
    world.device.plan().remove(rule);
    for round in 1..60 {
        world.write(volume, round % 4 * 64, &[round], CACHED).expect("written");
        world.discard(volume, round % 4 * 64, 64);
    }
    world.write(volume, 1, &[77], CACHED).expect("written");
    let mut world = world.reopen().expect("it opens");
    assert_eq!(world.read(volume, 0, 3), [0, 77, 0]);
}

#[test]
fn a_pool_whose_roots_cannot_be_written_for_long_serves_only_reads() {
    let (mut world, layout) = world();
    let volume = world.create_volume("vm1", 640);
    world.write(volume, 600, &[6], CACHED).expect("written");
    let roots = blocks(layout.header.root_at, 2 * layout.header.root_bytes);
    let rule = fail(&world, Ops::WRITE, roots);
    let refused = (0..100).find_map(|round| world.write(volume, round * 5, &[1], CACHED).err());
    assert_eq!(refused.expect("the log is full").kind, IoErrorKind::ReadOnly);
    assert_eq!(world.read(volume, 600, 1), [6]);
    world.device.plan().remove(rule);
    let mut world = world.reopen().expect("it opens");
    world.write(volume, 601, &[7], CACHED).expect("written");
    assert_eq!(world.read(volume, 600, 2), [6, 7]);
}

#[test]
fn a_full_log_gets_free_after_roots_failed_during_a_deletion() {
    for failing in (0..400).step_by(20) {
        let device = drive(64, 1);
        let layout = small(&*device, 64, 16);
        let mut world = World::create(device, &layout);
        let leaf = 64 * 1008;
        let volume = world.create_volume("vm1", 50 * leaf);
        let other = world.create_volume("vm2", 640);
        for at in 0..50 {
            world.write(volume, at * leaf, &[at + 1], CACHED).expect("written");
        }
        // The log has room for the deletion.
        world.ask(Request::Checkpoint).expect("a root is written");
        world.ask(Request::Checkpoint).expect("a root is written");
        let roots = blocks(layout.header.root_at, 2 * layout.header.root_bytes);
        let rule = fail(&world, Ops::WRITE, roots);
        world.ask(Request::Delete { volume }).expect("deleted");
        (0..failing).for_each(|_| world.turn());
        world.device.plan().remove(rule);
        world.write(other, 0, &[9], CACHED).expect("the log gets free");
        assert_eq!(world.settle().space.in_use, 1, "failing for {failing} turns");
        world.write(other, 64, &[8], CACHED).expect("written");
    }
}

#[test]
fn a_write_that_waits_for_space_fails_in_time_although_space_is_used_by_others() {
    let (mut world, _) = world();
    let [one, two] = ["one", "two"].map(|text| world.create_volume(text, 64 * 64));
    for index in 0..64 {
        world.write(one, index * 64, &[1], CACHED).expect("written");
    }
    let starved = world.submit(two, super::world::write_op(0, &[1], CACHED));
    let mut answered = None;
    for round in 0..40_000 {
        // Each discard wakes the waiting write, and the next write of the other volume is older in the queue.
        let _ =
            world.send(Request::SetPolicy { volume: one, policy: crate::SpacePolicy::default() });
        world.turn();
        answered = world.take(starved);
        if answered.is_some() {
            assert!(round < 8_000, "it waits for one second of 200 us per turn");
            break;
        }
    }
    let answered = answered.expect("it does not wait forever");
    assert_eq!(answered.result.expect_err("no space").kind, IoErrorKind::NoSpace);
}

#[test]
fn a_full_log_gets_free_beside_checkpoints_of_operators() {
    let device = drive(64, 1);
    let layout = small(&*device, 64, 16);
    let mut world = World::create(device, &layout);
    let volume = world.create_volume("vm1", 64 * 64);
    // A root takes 50 turns, in which others are requested and the log fills.
    let roots = blocks(layout.header.root_at, 2 * layout.header.root_bytes);
    let slow = Effect::Delay(strake_units::Nanos(10_000_000));
    world.device.plan().add(Rule::new(Ops::WRITE, slow).within(roots));
    let mut answers = Vec::new();
    for round in 0..20 {
        let mut writes = Vec::new();
        for at in 0..40 {
            writes
                .push(world.submit(volume, super::world::write_op(at * 64 + round, &[7], CACHED)));
            if at % 10 == 0 {
                answers.push(world.send(Request::Checkpoint));
            }
            world.turn();
        }
        for token in writes {
            world.until(|world| world.take(token)).result.expect("written");
        }
    }
    for answer in answers {
        world.until(|_| answer.poll().expect("the pool runs")).expect("a root was written");
    }
}

#[test]
fn a_pool_that_ends_waits_only_for_the_device() {
    // A copy is read when the pool ends: its write must not begin.
    for turns in 0..8 {
        let (mut world, layout) = world();
        let volume = world.create_volume("vm1", 640);
        world.write(volume, 0, &[1, 2], CACHED).expect("written");
        world.snapshot(volume, "before");
        let all = blocks(layout.header.data_at, layout.header.bytes - layout.header.data_at);
        let slow = Effect::Delay(strake_units::Nanos(1_000_000));
        world.device.plan().add(Rule::new(Ops::READ, slow).within(all));
        world.submit(volume, super::world::write_op(1, &[9], CACHED));
        (0..turns).for_each(|_| world.turn());
        let quit = world.pool().begin_quit();
        for _ in 0..100 {
            world.turn();
        }
        assert_eq!(quit.poll().expect("it answers"), Some(()), "after {turns} turns");
    }
}

#[test]
fn a_write_that_a_lost_device_may_execute_later_ends_all_changes() {
    let (mut world, layout) = world();
    let volume = world.create_volume("vm1", 640);
    world.write(volume, 0, &[1; 64], CACHED).expect("written");
    let all = blocks(layout.header.data_at, layout.header.bytes - layout.header.data_at);
    let timeout = Effect::Fail(IoErrorKind::Timeout);
    let read = world.device.plan().add(Rule::new(Ops::READ, timeout).within(all));
    world.run(volume, super::world::read_op(0, 1)).expect_err("the read fails");
    assert!(!world.status().is_read_only, "a read changes nothing");
    world.device.plan().remove(read);
    world.device.plan().add(Rule::new(Ops::WRITE, timeout).within(all));
    let error = world.write(volume, 3, &[2], CACHED).expect_err("the write fails");
    assert_eq!(error.kind, IoErrorKind::Timeout);
    assert!(world.status().is_read_only, "its cluster must not be used again");
}

#[test]
fn every_request_is_answered_when_the_pool_ends() {
    let (mut world, layout) = world();
    let volume = world.create_volume("vm1", 640);
    world.write(volume, 0, &[1], CACHED).expect("written");
    let all = blocks(layout.header.data_at, layout.header.bytes - layout.header.data_at);
    world.device.plan().add(Rule::new(Ops::ANY, Effect::Hang).within(all));
    let mut tokens = vec![
        world.submit(volume, super::world::read_op(0, 1)),
        world.submit(volume, super::world::write_op(0, &[2], CACHED)),
        world.submit(volume, super::world::write_op(64, &[2], CACHED)),
        world.submit(volume, super::world::read_op(0, 100)),
    ];
    (0..10).for_each(|_| world.turn());
    // This one is not accepted yet.
    tokens.push(world.submit(volume, super::world::write_op(1, &[2], CACHED)));
    world.end_pool();
    world.turn();
    for token in tokens {
        let done = world.take(token).expect("it is answered");
        assert_eq!(done.result.expect_err("the pool ended").kind, IoErrorKind::Aborted);
    }
    let late = world.submit(volume, super::world::write_op(1, &[2], CACHED));
    world.turn();
    let late = world.take(late).expect("it is answered");
    assert_eq!(late.result.expect_err("the pool ended").kind, IoErrorKind::Aborted);
}

#[test]
fn hostile_headers_are_refused() {
    let (mut world, layout) = world();
    world.end();
    let put = |header: &strake_ondisk::PoolHeader| {
        let bytes = strake_ondisk::encode_pool_header(header, 2);
        let queue = world.device.open_queue(strake_units::CoreIndex(0), 1).expect("the drive");
        let mut wait = wait();
        let mut blocking = strake_block::blocking::Blocking::new(queue, &mut wait);
        let mut block = strake_block::BufMut::alone(BLOCK);
        block.as_mut_slice().copy_from_slice(&bytes);
        blocking.write_stable(Lba(0), block.freeze().into()).expect("written");
    };
    let open = || {
        let device = Arc::clone(&world.device) as Arc<dyn BlockDevice>;
        store::open(device, 9, &mut wait()).map(drop)
    };
    put(&layout.header);
    open().expect("it opens");
    let mut short = layout.header.clone();
    short.log_bytes = 2 * POOL_BLOCK_BYTES as u64;
    put(&short);
    assert_eq!(open().expect_err("too short a log").kind, PoolErrorKind::Damaged);
    let mut foreign = layout.header.clone();
    foreign.device = strake_ondisk::device_mark("array:another");
    put(&foreign);
    assert_eq!(open().expect_err("a pool of another array").kind, PoolErrorKind::NoPool);
    let mut long = layout.header.clone();
    (long.bytes, long.clusters) = (u64::MAX, u32::MAX);
    put(&long);
    assert_eq!(open().expect_err("beyond the device").kind, PoolErrorKind::Damaged);
}

fn read_bytes(device: &Drive, at: u64, bytes: usize) -> Vec<u8> {
    let queue = device.open_queue(strake_units::CoreIndex(0), 1).expect("the drive is there");
    let mut wait = wait();
    let mut blocking = strake_block::blocking::Blocking::new(queue, &mut wait);
    let lba = Lba(at / BLOCK as u64);
    let read = blocking.read(lba, strake_block::BufMut::alone(bytes)).expect("readable");
    read.as_slice().to_vec()
}

/// Changes bytes of the drive.
fn damage(device: &Drive, at: u64, bytes: usize) {
    let queue = device.open_queue(strake_units::CoreIndex(0), 1).expect("the drive is there");
    let mut wait = wait();
    let mut blocking = strake_block::blocking::Blocking::new(queue, &mut wait);
    let lba = Lba(at / BLOCK as u64);
    let mut block = blocking.read(lba, strake_block::BufMut::alone(BLOCK)).expect("readable");
    let from = at as usize % BLOCK;
    block.as_mut_slice()[from..from + bytes].iter_mut().for_each(|byte| *byte ^= 0x55);
    blocking.write_stable(lba, block.freeze().into()).expect("written");
}

#[test]
fn a_damaged_root_or_header_is_replaced_by_the_other_one() {
    let (mut world, layout) = world();
    let volume = world.create_volume("vm1", 640);
    for round in 0..30 {
        world.write(volume, round % 4 * 64, &[round + 1], CACHED).expect("written");
        if round % 10 == 9 {
            world.ask(Request::Checkpoint).expect("a root is written");
        }
        world.discard(volume, round % 4 * 64, 64);
    }
    world.write(volume, 5, &[5], CACHED).expect("written");
    for place in 0..2 {
        for offset in [20, POOL_BLOCK_BYTES as u64 + 30] {
            damage(&world.device, layout.root(place) + offset, 4);
            damage(&world.device, 0, 4);
            world = world.reopen().expect("the other root and header remain");
            assert_eq!(world.read(volume, 4, 3), [0, 5, 0]);
            damage(&world.device, 0, 4);
            damage(&world.device, layout.root(place) + offset, 4);
        }
    }
    world.end();
    for place in 0..2 {
        damage(&world.device, layout.root(place) + 20, 4);
    }
    let device = Arc::clone(&world.device) as Arc<dyn BlockDevice>;
    let refused = store::open(device, 99, &mut wait()).map(drop).expect_err("no root");
    assert_eq!(refused.kind, PoolErrorKind::Damaged);
}

#[test]
fn the_older_root_has_its_whole_log_wherever_the_log_is() {
    for rounds in 1..24 {
        let device = drive(64, 1);
        let layout = small(&*device, 64, 24);
        let mut world = World::create(device, &layout);
        let volume = world.create_volume("vm1", 640);
        for round in 0..rounds {
            world.write(volume, round % 4 * 64, &[round + 1], CACHED).expect("written");
            world.discard(volume, round % 4 * 64, 64);
        }
        world.write(volume, 7, &[7], CACHED).expect("written");
        // A root in progress becomes whole.
        (0..200).for_each(|_| world.turn());
        world.end();
        let header = |place| {
            let mut block = vec![0; POOL_BLOCK_BYTES];
            let bytes = read_bytes(&world.device, layout.root(place), POOL_BLOCK_BYTES);
            block.copy_from_slice(&bytes);
            strake_ondisk::decode_root_header(&block, layout.header.pool)
        };
        let [Some(even), Some(odd)] = [header(0), header(1)] else { panic!("two roots") };
        let newest = u8::from(odd.sequence > even.sequence);
        damage(&world.device, layout.root(newest) + 20, 4);
        let mut world = world.start().expect("the older root is complete");
        assert_eq!(world.read(volume, 6, 3), [0, 7, 0], "after {rounds} rounds");
    }
}

#[test]
fn a_snapshot_found_by_a_start_never_changes() {
    let (mut world, _) = world();
    let volume = world.create_volume("vm1", 640);
    world.write(volume, 0, &[2; 64], Durability::Fua).expect("written");
    world.write(volume, 3, &[3], CACHED).expect("written in place");
    // The snapshot is recorded, and killed before its flush is executed: the write is in the cache of the drive.
    let rule = world.device.plan().add(Rule::new(Ops::FLUSH, Effect::Hang));
    let _answer = world.send(Request::Snapshot { volumes: vec![(volume, name("s"))] });
    (0..30).for_each(|_| world.turn());
    world.end();
    world.device.plan().remove(rule);
    let mut world = world.start().expect("it opens");
    let rows = world.status().volumes;
    let snapshot = rows.iter().find(|row| row.id != volume).expect("it is recorded").id;
    assert_eq!(world.read(snapshot, 3, 1), [3]);
    world.end();
    world.device.plan().power_cut_with(|_| strake_dev_mem::Fate::Drop);
    let mut world = world.start().expect("it opens");
    assert_eq!(world.read(snapshot, 3, 1), [3]);
}

#[test]
fn the_log_from_the_older_root_on_is_kept() {
    let (mut world, _) = world();
    let volume = world.create_volume("vm1", 640);
    for _ in 0..2 {
        world.ask(Request::Checkpoint).expect("a root is written");
    }
    assert_eq!(world.status().log_blocks.0, 0, "both roots have all records");
    for block in 0..3 {
        world.write(volume, block * 64, &[1], CACHED).expect("written");
    }
    world.ask(Request::Checkpoint).expect("a root is written");
    assert!(world.status().log_blocks.0 >= 3, "the older root needs them");
    world.ask(Request::Checkpoint).expect("a root is written");
    assert_eq!(world.status().log_blocks.0, 0);
}

#[test]
fn a_damaged_log_is_refused_when_changes_would_be_lost() {
    let (mut world, layout) = world();
    let volume = world.create_volume("vm1", 640);
    for round in 0..6 {
        world.write(volume, round * 64, &[round + 1], CACHED).expect("written");
    }
    damage(&world.device, layout.log_block(3) + 200, 8);
    let refused = world.reopen().map(drop).expect_err("the log is damaged");
    assert_eq!(refused.kind, PoolErrorKind::Damaged);
    assert!(refused.to_string().contains("block 3 of its log is damaged"), "{refused}");
}

#[test]
fn a_device_without_a_pool_has_none_and_an_erased_pool_is_gone() {
    let device = drive(64, 1);
    let found = store::find(&*device, &mut wait()).expect("readable");
    assert_eq!(found, None);
    let absent = store::open(Arc::clone(&device) as Arc<dyn BlockDevice>, 1, &mut wait());
    assert_eq!(absent.map(drop).expect_err("no pool").kind, PoolErrorKind::NoPool);
    let layout = small(&*device, 64, 64);
    let mut world = World::create(Arc::clone(&device), &layout);
    world.end();
    let found = store::find(&*device, &mut wait()).expect("readable").expect("a pool");
    assert_eq!(found, layout.header);
    store::erase(&*device, &mut wait()).expect("erased");
    assert_eq!(store::find(&*device, &mut wait()).expect("readable"), None);
}

#[test]
fn an_interrupted_creation_leaves_no_pool() {
    let device = drive(64, 1);
    let layout = small(&*device, 64, 64);
    let rule = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
    for (range, finds) in [
        (blocks(layout.root(1), BLOCK as u64), false),
        (blocks(0, BLOCK as u64), false),
        (blocks(BLOCK as u64, BLOCK as u64), true),
    ] {
        let id = device.plan().add(rule.within(range));
        let below = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let created = store::create_as(below, layout.clone(), 1, &mut wait());
        created.map(drop).expect_err("the drive fails");
        device.plan().remove(id);
        let found = store::find(&*device, &mut wait()).expect("readable");
        assert_eq!(found.is_some(), finds, "a header is written after all roots");
    }
}
