//! Tests of requests of every kind.

use super::world::{MILLI, World, bytes_of, range};
use crate::facts::Protection;
use strake_block::{
    BlockDevice, BufMut, DeallocateReads, Durability, IoErrorKind, Op, Readiness, Sg, SgMut, Token,
    VolatileCache,
};
use strake_nvme_model::{NamespaceSpec, Spec};
use strake_units::{BlockSize, CoreIndex, Lba, Nanos};

/// Writes, reads, and compares with the data in the model.
fn check(spec: Spec, block: usize) {
    let mut world = World::ready(spec);
    let mut client = world.open(32);
    for at in [0_u64, 5, 63] {
        let op = world.write(at, at as u8 + 1, block);
        world.run(&mut client, op).result.expect("a write works");
        assert!(world.drive.model().block(1, at).iter().all(|byte| *byte == at as u8 + 1));
        let op = world.read(at, block);
        let done = world.run(&mut client, op);
        done.result.expect("a read works");
        assert_eq!(bytes_of(done.op), vec![at as u8 + 1; block]);
    }
    assert_eq!(world.device().stats().bounces, 0);
    world.assert_clean();
}

#[test]
fn blocks_of_both_sizes_are_read_and_written() {
    check(Spec::new(64), 4096);
    check(Spec { namespaces: vec![NamespaceSpec::new(64, 9)], ..Spec::new(0) }, 512);
}

#[test]
fn blocks_with_protection_information_are_read_and_written() {
    for block_log2 in [9, 12] {
        let protection = strake_nvme_model::Protection::Type1;
        let namespace = NamespaceSpec { protection, ..NamespaceSpec::new(64, block_log2) };
        check(Spec { namespaces: vec![namespace], ..Spec::new(0) }, 1 << block_log2);
    }
}

#[test]
fn a_wrong_guard_is_a_medium_error() {
    let protection = strake_nvme_model::Protection::Type1;
    let namespace = NamespaceSpec { protection, ..NamespaceSpec::new(64, 12) };
    let mut world = World::ready(Spec { namespaces: vec![namespace], ..Spec::new(0) });
    assert_eq!(world.device().facts().expect("ready").namespace.protection, Protection::Type1);
    let mut client = world.open(4);
    world.drive.model().damage(1, 7);
    let op = world.read(7, 4096);
    let result = world.run(&mut client, op).result.expect_err("the guard is wrong");
    assert_eq!(result.kind, IoErrorKind::Medium);
    let op = world.read(8, 4096);
    world.run(&mut client, op).result.expect("others are fine");
}

#[test]
fn other_doorbell_strides_work() {
    for doorbell_stride_log2 in [1, 3] {
        check(Spec { doorbell_stride_log2, ..Spec::new(64) }, 4096);
    }
}

/// The history of the bug: QEMU was not notified of the first command of a queue whose number a longer queue had used:
/// the event index of that queue remained. The command had no answer for 10 s, and a read of labels failed.
#[test]
fn a_queue_does_not_find_the_shadow_doorbells_of_an_earlier_one() {
    let mut world = World::ready(Spec { shadow_doorbells: true, ..Spec::new(64) });
    for (depth, requests) in [(8, 6), (1, 3), (8, 5), (1, 1)] {
        let mut client = world.open(depth);
        for request in 0..requests {
            let op = world.write(request, depth as u8, 4096);
            world.run(&mut client, op).result.expect("a write works");
        }
        drop(client);
        (0..100).for_each(|_| _ = world.turn());
    }
    assert_eq!(world.device().stats().resets, 0);
    world.assert_clean();
}

/// The model reads a shadow doorbell only if the doorbell itself was written since it found the queue empty.
#[test]
fn shadow_doorbells_work_with_event_indices() {
    check(Spec { shadow_doorbells: true, ..Spec::new(64) }, 4096);
    let mut world = World::ready(Spec { shadow_doorbells: true, entries_max: 16, ..Spec::new(64) });
    let mut client = world.open(32);
    for round in 0..50 {
        let before = client.done.len();
        for token in 0..10 {
            let op = world.write(token, round, 4096);
            client.submit(Token(token), op);
        }
        world.run_with(&mut client, before + 10);
        client.done.drain(..).for_each(|done| done.result.expect("a write works"));
        world.pool = strake_block::BufPool::new(64, 4096);
        world.window.map_arena(world.pool.arena()).expect("the space has room");
    }
    world.assert_clean();
}

/// Writes of registers are slow. The doorbells get a mark in place of their values, which every write would replace.
#[test]
fn a_quiet_queue_rings_no_doorbell() {
    const MARK: u32 = 0x5eed;
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(8);
    for token in 0..3 {
        let op = world.write(token, 1, 4096);
        client.submit(Token(token), op);
    }
    world.run_with(&mut client, 3);
    // The controller gets the head of the last completions, and has nothing more to do.
    world.turn_with(&mut client);
    let offsets = || (0..8).map(|at| 0x1000 + at * 4);
    for offset in offsets() {
        world.drive.peer().registers().write(offset, MARK);
    }
    let rung = |world: &World| -> Vec<usize> {
        let registers = world.drive.peer().registers();
        offsets().filter(|at| registers.read(*at) != MARK).collect()
    };
    for turn in 0..100 {
        // Some turns are later than the next search for requests without a completion.
        client.turn(world.now.plus(Nanos(turn * MILLI.0)));
    }
    assert_eq!(rung(&world), [0_usize; 0], "nothing was submitted, and nothing completed");
    let op = world.read(0, 4096);
    client.submit(Token(9), op);
    client.turn(world.now);
    assert_eq!(rung(&world), [0x1008], "a command rings the doorbell of its submission queue");
    client.turn(world.now);
    world.drive.peer().registers().write(0x1008, MARK);
    client.turn(world.now);
    assert_eq!(rung(&world), [0_usize; 0], "the controller was notified of the command");
}

#[test]
fn flush_zeroes_and_deallocation_do_what_they_say() {
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(8);
    for at in 0..8 {
        let op = world.write(at, 9, 4096);
        world.run(&mut client, op).result.expect("a write works");
    }
    world.run(&mut client, Op::Flush).result.expect("a flush works");
    let op = Op::WriteZeroes { range: range(1, 2), durability: Durability::Fua };
    world.run(&mut client, op).result.expect("zeroes work");
    world.run(&mut client, Op::Deallocate { range: range(5, 2) }).result.expect("it deallocates");
    let first = |at| world.drive.model().block(1, at)[0];
    assert_eq!((0..8).map(first).collect::<Vec<_>>(), [9, 0, 0, 9, 9, 0, 0, 9]);
    world.assert_clean();
}

/// Zeroes are readable, with a correct guard and reference tag, whether the controller or the driver produces them.
#[test]
fn zeroes_with_protection_information_are_read_back() {
    let protection = strake_nvme_model::Protection::Type1;
    let namespace = NamespaceSpec { protection, ..NamespaceSpec::new(64, 12) };
    let spec = Spec { namespaces: vec![namespace], zeroes_pages_log2: 1, ..Spec::new(0) };
    for spec in [spec.clone(), Spec { commands: 0, ..spec }] {
        let mut world = World::ready(spec);
        let mut client = world.open(4);
        let op = world.write(8, 9, 16 << 10);
        world.run(&mut client, op).result.expect("a write works");
        let op = Op::WriteZeroes { range: range(7, 4), durability: Durability::Normal };
        world.run(&mut client, op).result.expect("zeroes work");
        let op = world.read(7, 20 << 10);
        let done = world.run(&mut client, op);
        done.result.expect("zeroes can be read");
        assert_eq!(bytes_of(done.op), [vec![0; 16 << 10], vec![9; 4096]].concat());
        world.assert_clean();
    }
}

/// Without Write Zeroes, the driver sends zeroes as data; a limit divides larger requests.
#[test]
fn zeroes_work_whatever_the_controller_has() {
    let without = Spec { commands: 0, ..Spec::new(300) };
    let limited = Spec { zeroes_pages_log2: 2, ..Spec::new(300) };
    for spec in [without, limited] {
        let mut world = World::ready(spec);
        let mut client = world.open(8);
        for at in (0..300).step_by(32) {
            let op = world.write(at, 9, 32.min(300 - at as usize) * 4096);
            let done = world.run(&mut client, op);
            done.result.expect("a write works");
        }
        let op = Op::WriteZeroes { range: range(3, 290), durability: Durability::Normal };
        world.run(&mut client, op).result.expect("zeroes work");
        let is_zero = |at| world.drive.model().block(1, at).iter().all(|byte| *byte == 0);
        let zeroes: Vec<u64> = (0..300).filter(|at| is_zero(*at)).collect();
        assert_eq!(zeroes, (3..293).collect::<Vec<_>>());
        world.assert_clean();
    }
}

#[test]
fn what_the_device_cannot_do_is_refused_without_a_command() {
    let mut world = World::ready(Spec { commands: 0, ..Spec::new(64) });
    let mut client = world.open(8);
    let cases = [
        (world.read(64, 4096), IoErrorKind::OutOfRange),
        (world.read(u64::MAX, 4096), IoErrorKind::OutOfRange),
        (world.read(0, 512), IoErrorKind::Misaligned),
        (
            Op::Read { at: Lba(0), data: SgMut::from(BufMut::alone(256 << 10)) },
            IoErrorKind::Misaligned,
        ),
        (Op::Deallocate { range: range(0, 1) }, IoErrorKind::Unsupported),
        (
            Op::WriteZeroes { range: range(60, 5), durability: Durability::Normal },
            IoErrorKind::OutOfRange,
        ),
    ];
    for (op, kind) in cases {
        let text = format!("{op:?}");
        let result = world.run(&mut client, op).result;
        assert_eq!(result.map_err(|error| error.kind), Err(kind), "{text}");
    }
    let op = Op::Read { at: Lba(3), data: SgMut::default() };
    world.run(&mut client, op).result.expect("nothing is read well");
    world.assert_clean();
}

#[test]
fn a_protected_namespace_is_read_only() {
    let namespace = NamespaceSpec { write_protected: true, ..NamespaceSpec::new(64, 12) };
    let mut world = World::ready(Spec { namespaces: vec![namespace], ..Spec::new(0) });
    assert!(world.device().info().read_only);
    let mut client = world.open(8);
    let op = world.write(0, 1, 4096);
    let error = world.run(&mut client, op).result.expect_err("it is read-only");
    assert_eq!(error.kind, IoErrorKind::ReadOnly);
}

/// Unmapped memory, and lists that PRPs cannot describe, are copied; the data are the same.
#[test]
fn unmapped_and_odd_memory_is_copied() {
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(8);
    let mut odd = BufMut::alone(3 * 4096);
    for (at, byte) in odd.as_mut_slice().iter_mut().enumerate() {
        *byte = (at % 251) as u8;
    }
    let expected = odd.as_slice()[1001..1001 + 8192].to_vec();
    let odd = odd.freeze();
    let mut data = Sg::from(odd.slice(1001, 3000));
    data.push(odd.slice(4001, 5192)).expect("room for two");
    let op = Op::Write { at: Lba(2), data, durability: Durability::Normal };
    world.run(&mut client, op).result.expect("a write works");
    let mut data = SgMut::from(BufMut::alone(700));
    data.push(BufMut::alone(8192 - 700)).expect("room for two");
    let done = world.run(&mut client, Op::Read { at: Lba(2), data });
    done.result.expect("a read works");
    assert_eq!(bytes_of(done.op), expected);
    assert_eq!(world.device().stats().bounces, 2);
    world.assert_clean();
}

#[test]
fn more_requests_than_chunks_wait_for_one() {
    let mut world = World::ready(Spec { latency: Nanos(5_000_000), ..Spec::new(64) });
    let mut client = world.open(64);
    for token in 0..40 {
        let data = Sg::from(BufMut::alone(4096).freeze());
        client.submit(
            Token(token),
            Op::Write { at: Lba(token), data, durability: Durability::Normal },
        );
    }
    world.run_with(&mut client, 40);
    assert!(client.done.iter().all(|done| done.result.is_ok()));
    assert_eq!(world.device().stats().bounces, 40);
    world.assert_clean();
}

/// The rings are smaller than the depth of the queue: further requests wait, and rings wrap at every entry.
#[test]
fn rings_of_every_size_carry_any_number_of_requests_exhaustive() {
    for entries_max in 2..=9 {
        let mut world = World::ready(Spec { entries_max, ..Spec::new(64) });
        let mut client = world.open(16);
        for round in 0..20 {
            for token in 0..16 {
                let op = world.write(token, round, 4096);
                client.submit(Token(token), op);
            }
            let Err(_) = client.queue.submit(strake_block::Io { token: Token(0), op: Op::Flush })
            else {
                panic!("16 requests are all");
            };
            world.run_with(&mut client, 16);
            for done in client.done.drain(..) {
                done.result.expect("a write works");
                if let Op::Write { data, .. } = done.op {
                    data.into_parts().for_each(|part| world.pool.put_frozen(part));
                }
            }
            assert!((0..16).all(|at| world.drive.model().block(1, at)[0] == round));
        }
        assert_eq!(client.queue.readiness(), Readiness::Idle);
        world.assert_clean();
    }
}

/// Requests of one command each, in rings with room for all of them: batches end at every entry of the ring, and
/// lengths change from request to request.
#[test]
fn usual_requests_of_two_lengths_fill_batches_of_every_size_exhaustive() {
    for (depth, room) in (1..=4).flat_map(|depth| (1..=5).map(move |room| (depth, room))) {
        let mut world = World::ready(Spec::new(64));
        let mut client = world.open_with(depth, room);
        for round in 0..20 {
            for token in 0..u64::from(depth) {
                let bytes = if (token + round) % 2 == 0 { 4096 } else { 8192 };
                let op = world.write(2 * token, 1 + round as u8, bytes);
                client.submit(Token(token), op);
            }
            world.run_with(&mut client, depth as usize);
            let results = client.results();
            let tokens = (0..u64::from(depth)).map(|token| (token, Ok(())));
            assert_eq!(results, tokens.collect::<Vec<_>>(), "{depth} {room} {round}");
            for done in client.done.drain(..) {
                if let Op::Write { data, .. } = done.op {
                    data.into_parts().for_each(|part| world.pool.put_frozen(part));
                }
            }
            let written = |token| world.drive.model().block(1, 2 * token)[0];
            assert!((0..u64::from(depth)).all(|token| written(token) == 1 + round as u8));
        }
        assert_eq!(client.queue.readiness(), Readiness::Idle);
        world.assert_clean();
    }
}

#[test]
fn the_device_is_described_as_the_drive_is() {
    let world = World::ready(Spec { shadow_doorbells: true, ..Spec::new(64) });
    let info = world.device().info();
    assert_eq!(info.identity, "wwid:eui.5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a");
    assert_eq!((info.blocks, info.block_size), (64, BlockSize::B4096));
    assert_eq!((info.io_bytes_max, info.cache), (128 << 10, VolatileCache::Present));
    assert_eq!((info.deallocate, info.fast_zeroes), (DeallocateReads::Zeroes, true));
    assert!(!info.read_only);
}

#[test]
fn there_are_as_many_queues_as_the_controller_grants() {
    let mut world = World::ready(Spec { queues_max: 3, ..Spec::new(64) });
    let queues: Vec<_> = (0..3).map(|_| world.open(4)).collect();
    assert!(world.device().open_queue(CoreIndex(0), 4).is_err());
    drop(queues);
    world.turn();
    let again: Vec<_> = (0..3).map(|_| world.open(4)).collect();
    for mut client in again {
        let op = world.read(0, 4096);
        world.run(&mut client, op).result.expect("a queue works");
    }
    world.assert_clean();
}
