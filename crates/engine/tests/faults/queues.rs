//! Tests of queues: invalid requests, dropped queues, stops, and many requests.

use std::collections::{BTreeMap, VecDeque};

use strake_block::{BufMut, CompletionBatch, Io, IoErrorKind, Op, Sg, SgMut, Token};
use strake_dev_mem::{Effect, Ops, Profile, Rule};
use strake_raid::{Level, MemberState};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange};

use crate::stage::{Set, Stage, bytes_of};

#[test]
fn bad_requests_are_answered_and_change_nothing() {
    let mut stage = Set::new(Level::Raid5, 4).filled(500, 100, 3);
    let blocks = stage.array().device().info().blocks;
    let data = |bytes: usize| Sg::from(BufMut::alone(bytes).freeze());
    let write = |at: u64, bytes: usize| Op::Write {
        at: Lba(at),
        data: data(bytes),
        durability: Default::default(),
    };
    let read =
        |at: u64, bytes: usize| Op::Read { at: Lba(at), data: SgMut::from(BufMut::alone(bytes)) };
    let zeroes = |at, blocks| Op::WriteZeroes {
        range: LbaRange::new(Lba(at), blocks),
        durability: Default::default(),
    };
    let bad = [
        (write(0, 100), IoErrorKind::Misaligned),
        (
            Op::Write { at: Lba(0), data: Sg::default(), durability: Default::default() },
            IoErrorKind::Misaligned,
        ),
        (read(0, 513), IoErrorKind::Misaligned),
        (read(0, (1 << 20) + 512), IoErrorKind::Misaligned),
        (write(blocks, 512), IoErrorKind::OutOfRange),
        (write(u64::MAX, 1024), IoErrorKind::OutOfRange),
        (read(blocks - 1, 1024), IoErrorKind::OutOfRange),
        (zeroes(blocks - 1, 2), IoErrorKind::OutOfRange),
        (zeroes(1, u64::MAX), IoErrorKind::OutOfRange),
        (Op::Deallocate { range: LbaRange::new(Lba(u64::MAX), u64::MAX) }, IoErrorKind::OutOfRange),
    ];
    for (op, kind) in bad {
        let what = format!("{op:?}");
        assert_eq!(stage.run(0, op), Err(kind), "{what}");
    }
    assert_eq!(stage.run(0, zeroes(5, 0)), Ok(()), "nothing is done well");
    stage.verify(500);
}

#[test]
fn block_sizes_fit_or_are_refused() {
    let mut set = Set::new(Level::Raid5, 4);
    set.disk_block = BlockSize::B4096;
    set.array_block = Some(BlockSize::B512);
    assert!(set.clone().build().is_err(), "an array cannot have smaller blocks than its drives");
    set.disk_block = BlockSize::B512;
    set.array_block = Some(BlockSize::B4096);
    let mut stage = set.filled(300, 7, 3);
    stage.fail(1).expect("allowed");
    stage.fill(100, 3, 4);
    let mut coarse = Set::new(Level::Raid5, 4);
    coarse.disk_block = BlockSize::B4096;
    let disk = coarse.disk(9, &stage.log.clone());
    stage.replace_with(1, disk).expect("4096 over 4096");
    stage.verify_rebuilt(300);
    stage.check_parity(20);
    let mut fine = Set::new(Level::Raid5, 4).build().expect("sound");
    fine.fail(1).expect("allowed");
    let disk = coarse.disk(9, &fine.log.clone());
    assert!(fine.replace_with(1, disk).is_err(), "4096 under 512");
}

#[test]
fn any_strip_size_works_degraded_and_rebuilt() {
    for strip in [4 << 10, 1 << 20] {
        let mut stage = Set { strip, ..Set::new(Level::Raid6, 6) }.filled(16_000, 2000, 3);
        stage.fill(5000, 13, 4);
        stage.fail(2).expect("allowed");
        stage.fill(6000, 137, 5);
        stage.verify(16_000);
        stage.replace(2).expect("replaceable");
        stage.verify_rebuilt(16_000);
        stage.check_parity(3);
    }
}

#[test]
fn a_queue_in_the_place_of_another_gets_only_its_own_answers() {
    let mut stage = Set::new(Level::Raid5, 4).filled(500, 100, 3);
    let device = stage.array().device();
    for turns in 0..6 {
        let mut first = device.open_queue(CoreIndex(0), 32).expect("opens");
        for at in 0..20 {
            let op =
                if at % 2 == 0 { stage.read_op(at, 3) } else { stage.write_op(at * 10, 3, at) };
            if at % 2 == 1 {
                stage.expect(at * 10, 3, at);
            }
            first.submit(Io { token: Token(at), op }).expect("room");
        }
        first.ring_doorbell(stage.now);
        stage.rounds(turns);
        drop(first);
        stage.rounds(1);
        let mut second = device.open_queue(CoreIndex(0), 32).expect("opens");
        let mut batch = CompletionBatch::new(64);
        let op = stage.read_op(1, 1);
        second.submit(Io { token: Token(7), op }).expect("room");
        for _ in 0..200 {
            stage.rounds(1);
            second.poll(stage.now, &mut batch);
        }
        let tokens: Vec<Token> = batch.drain().map(|done| done.token).collect();
        assert_eq!(tokens, [Token(7)]);
    }
    stage.verify(400);
    stage.stop().expect("nothing is left over");
}

#[test]
fn a_batch_is_taken_in_order_as_far_as_there_is_room() {
    let mut stage = Set::new(Level::Raid5, 4).filled(500, 100, 3);
    let mut queue = stage.array().device().open_queue(CoreIndex(0), 6).expect("opens");
    let misaligned = Op::Read { at: Lba(0), data: SgMut::from(BufMut::alone(513)) };
    let mut ops = vec![stage.read_op(0, 1), stage.read_op(1, 2), misaligned];
    ops.extend([stage.read_op(7, 200), Op::Flush, stage.read_op(3, 1), stage.read_op(4, 1)]);
    ops.extend([stage.write_op(450, 3, 9), stage.read_op(5, 1), stage.read_op(6, 1)]);
    stage.expect(450, 3, 9);
    let io = |(number, op)| Io { token: Token(number), op };
    let mut batch: VecDeque<Io> = (0..).zip(ops).map(io).collect();
    queue.submit_batch(&mut batch);
    let left: Vec<u64> = batch.iter().map(|io| io.token.0).collect();
    assert_eq!(left, [6, 7, 8, 9]);
    queue.submit_batch(&mut batch);
    assert_eq!(batch.len(), 4, "there is still no room");
    let mut done = CompletionBatch::new(6);
    let mut answers = BTreeMap::new();
    for _ in 0..1000 {
        queue.ring_doorbell(stage.now);
        stage.round();
        queue.poll(stage.now, &mut done);
        for done in done.drain() {
            let number = done.token.0;
            let bytes = if let Op::Read { .. } = done.op { bytes_of(done) } else { Ok(Vec::new()) };
            assert_eq!(answers.insert(number, bytes), None, "{number} is answered once");
        }
        queue.submit_batch(&mut batch);
    }
    assert_eq!(answers.len(), 10, "all are answered");
    assert_eq!(answers.remove(&2), Some(Err(IoErrorKind::Misaligned)));
    for (number, at, blocks) in [(0, 0, 1), (1, 1, 2), (3, 7, 200), (5, 3, 1), (6, 4, 1), (9, 6, 1)]
    {
        let expected = stage.model[at << 9..(at + blocks) << 9].to_vec();
        assert_eq!(answers[&number], Ok(expected), "{number}");
    }
    stage.verify(500);
}

/// Reads of one batch complete together, except reads that failed, were slow, or found the queue of their member full.
#[test]
fn a_batch_of_reads_is_answered_though_some_fail_or_wait() {
    let mut stage = Set::new(Level::Raid6, 6).filled(2000, 100, 3);
    for at in [40, 700, 1300] {
        let (member, byte) = stage.home(at);
        let range = stage.on_disk(byte, 1);
        let unreadable = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium)).within(range);
        stage.disks[member].plan.add(unreadable);
    }
    let silent = stage.home(900).0;
    stage.disks[silent].hang(Ops::READ);
    let before = stage.status().counters.reads;
    let mut queue = stage.array().device().open_queue(CoreIndex(0), 512).expect("opens");
    // The content of this list wraps around its end.
    let mut batch = VecDeque::with_capacity(400);
    let io = |stage: &Stage, at: u64| Io { token: Token(at), op: stage.read_op(at * 5, 1) };
    batch.extend((0..200).map(|at| io(&stage, at)));
    let first: Vec<Io> = batch.drain(..150).collect();
    batch.extend((200..400).map(|at| io(&stage, at)));
    batch.extend(first);
    let mut done = CompletionBatch::new(64);
    let mut answers = BTreeMap::new();
    for turn in 0..2000 {
        if turn == 400 {
            stage.disks[silent].answer();
        }
        queue.submit_batch(&mut batch);
        queue.ring_doorbell(stage.now);
        stage.round();
        queue.poll(stage.now, &mut done);
        for done in done.drain() {
            let number = done.token.0;
            assert_eq!(answers.insert(number, bytes_of(done)), None, "{number} is answered once");
        }
    }
    assert_eq!(answers.len(), 400, "all are answered");
    for (number, bytes) in answers {
        let at = number as usize * 5;
        assert_eq!(bytes, Ok(stage.model[at << 9..(at + 1) << 9].to_vec()), "{number}");
    }
    assert_eq!(stage.status().counters.reads - before, 400, "each is counted once");
    drop(queue);
    stage.verify(2000);
    stage.stop().expect("nothing is left over");
}

/// A reader without pauses does not delay a stop, and receives a completion of every read.
#[test]
fn a_stop_ends_in_spite_of_a_busy_reader() {
    let mut stage = Set::new(Level::Raid5, 4).filled(500, 100, 3);
    let mut quiet = stage.array().begin_quiesce();
    let mut aborted = 0;
    for round in 0..2000u64 {
        for at in 0..8 {
            stage.submit_read(0, (round * 8 + at) % 400, 4);
        }
        stage.round();
        aborted += stage.answers.values().filter(|a| a.result.is_err()).count();
        stage.answers.clear();
        quiet.retain(|q| q.try_recv().is_err());
    }
    assert!(quiet.is_empty(), "the array never fell quiet");
    assert!(aborted > 100);
    let mut pending = stage.array().begin_stop();
    stage.until("stopping", |_| pending.poll().is_some());
    assert_eq!(stage.write(0, 1, 5), Err(IoErrorKind::Aborted));
}

#[test]
fn everything_is_answered_when_the_array_is_dropped() {
    let mut stage = Set::new(Level::Raid5, 4).filled(500, 100, 3);
    for disk in &stage.disks {
        disk.hang(Ops::ANY);
    }
    for at in 0..50 {
        let op = if at % 2 == 0 { stage.read_op(at, 3) } else { stage.write_op(at, 3, at) };
        stage.submit(0, op);
        stage.rounds(at % 3);
    }
    stage.array = None;
    stage.pollers.clear();
    stage.answers.clear();
    stage.rounds(5);
    assert_eq!(stage.answers.len(), 50);
    assert!(
        stage.answers.values().all(|a| a.result.map_err(|e| e.kind) == Err(IoErrorKind::Aborted))
    );
    let op = stage.read_op(0, 1);
    assert_eq!(stage.run(0, op), Err(IoErrorKind::Aborted));
}

fn flood(stage: &mut Stage, requests: u64) {
    let blocks = stage.model.len() as u64 >> 9;
    let mut ids = Vec::new();
    let queues = stage.queues.len();
    for at in 0..requests {
        let place = at * 7919 % (blocks - 300);
        let op = match at % 5 {
            0 => Op::Flush,
            1 | 2 => stage.read_op(place, 1 + at % 200),
            _ => stage.write_op(place, 1 + at % 64, at),
        };
        ids.push(stage.submit(at as usize % queues, op));
    }
    stage.done(ids);
}

#[test]
fn deep_queues_over_shallow_drives_come_to_an_end() {
    let mut set = Set::new(Level::Raid6, 6);
    set.cores = 3;
    set.queues = vec![0, 1, 2];
    set.depth = 1024;
    set.profile = Some(Profile { queue_depth: 4, ..Profile::SN861.slower(20) });
    let mut stage = set.build().expect("sound");
    stage.step = strake_units::Nanos(20_000);
    flood(&mut stage, 6000);
    stage.stop().expect("pools are whole");
}

/// Flushes use all task slots and wait for a member that only the task of the leader can put out of use.
#[test]
fn flushes_and_writes_waiting_for_a_failing_member_leave_room_for_the_leader() {
    let mut set = Set::new(Level::Raid60, 60);
    set.group = Some(5);
    set.disk_bytes = 22 << 20;
    set.depth = 1024;
    let mut stage = set.build().expect("sound");
    stage.disks.iter().for_each(|disk| drop(disk.plan.clone().with_cache()));
    let mut stage = {
        // The caches must exist when the array opens its members.
        stage.restart();
        stage
    };
    stage.disks[7]
        .plan
        .add(Rule::new(Ops::FLUSH.and(Ops::WRITE), Effect::Fail(IoErrorKind::Device)));
    let mut ids: Vec<u64> = (0..600).map(|_| stage.submit(0, Op::Flush)).collect();
    for at in 0..400 {
        ids.push(stage.submit_write(0, at * 100, 9, at));
    }
    stage.done(ids);
    assert_eq!(stage.state(7), MemberState::Faulty);
}

/// Thousands of normal reads fail at the same time while the band table is full of writes.
#[test]
fn reads_that_fail_by_the_thousand_wait_for_room() {
    let mut set = Set::new(Level::Raid1, 2);
    set.strip = 4 << 10;
    set.depth = 1024;
    set.profile = Some(Profile { queue_depth: 64, ..Profile::SN861.slower(50) });
    let mut stage = set.filled(1000, 100, 2);
    let victim = 1;
    let mut ids = Vec::new();
    for at in 0..24 {
        ids.push(stage.submit_read(0, at % 4 * 2048, 2048));
        stage.rounds(2);
    }
    for at in 0..60 {
        ids.push(stage.submit_write(0, at % 6 * 2048, 2048, at));
    }
    stage.rounds(5);
    stage.disks[victim].plan.vanish();
    stage.done(ids);
    assert_eq!(stage.state(victim), MemberState::Missing);
}

/// Adjacent writes that wait for one band become one plan.
#[test]
fn merging_saves_member_ios() {
    let count = |merge: bool| {
        let mut set = Set::new(Level::Raid6, 6);
        set.options.merge = merge;
        let mut stage = set.filled(1000, 100, 3);
        stage.watch();
        let ids: Vec<u64> = (0..16).map(|at| stage.submit_write(0, at * 8, 8, at)).collect();
        for (at, id) in ids.into_iter().enumerate() {
            assert_eq!(stage.result(id), Ok(()));
            stage.expect(at as u64 * 8, 8, at as u64);
        }
        let seen = stage.seen().iter().filter(|s| !s.done && s.byte >= crate::stage::DATA).count();
        stage.verify(1000);
        stage.check_parity(5);
        seen
    };
    let (with, without) = (count(true), count(false));
    assert!(with * 4 < without, "{with} I/Os with merging, {without} without");
}

#[test]
fn scatter_lists_are_written_and_read_in_parts() {
    let mut stage = Set::new(Level::Raid6, 6).build().expect("sound");
    for (nth, parts) in
        [[1usize, 2, 3, 4], [31, 1, 40, 2], [64, 64, 64, 64]].into_iter().enumerate()
    {
        let at = 20 + nth as u64 * 333;
        let total: usize = parts.iter().sum();
        let bytes = Stage::pattern(total << 9, 50 + nth as u64);
        let mut list = Sg::default();
        let mut from = 0;
        for blocks in parts {
            let mut buf = BufMut::alone(blocks << 9);
            buf.as_mut_slice().copy_from_slice(&bytes[from..from + (blocks << 9)]);
            from += blocks << 9;
            list.push(buf.freeze()).expect("four fit");
        }
        let op = Op::Write { at: Lba(at), data: list, durability: Default::default() };
        assert_eq!(stage.run(0, op), Ok(()));
        stage.expect(at, total as u64, 50 + nth as u64);
        let mut data = SgMut::default();
        for blocks in parts.into_iter().rev() {
            data.push(BufMut::alone(blocks << 9)).expect("four fit");
        }
        let id = stage.submit(0, Op::Read { at: Lba(at), data });
        assert_eq!(bytes_of(stage.answer(id)).expect("readable"), bytes);
    }
    stage.verify(1500);
    stage.check_parity(12);
}

/// A request that zeroes all blocks takes a long time; other requests are served during this time.
#[test]
fn zeroing_the_whole_array_does_not_hold_others_up() {
    let mut set = Set::new(Level::Raid5, 4);
    set.strip = 4 << 10;
    set.disk_bytes = 60 << 20;
    set.queues = vec![0, 0];
    set.profile = Some(Profile { queue_depth: 64, ..Profile::SN861.slower(20) });
    let mut stage = set.build().expect("sound");
    stage.step = strake_units::Nanos(10_000);
    let blocks = stage.array().device().info().blocks;
    // Every region must have been written; otherwise the request has no work.
    for at in (0..blocks).step_by(16 << 11) {
        let op = stage.write_op(at, 1, at);
        assert_eq!(stage.run(0, op), Ok(()));
    }
    let range = LbaRange::new(Lba(1), blocks - 1);
    let zeroing = stage.submit(0, Op::WriteZeroes { range, durability: Default::default() });
    stage.rounds(20);
    let mut served = 0;
    for at in 0..50 {
        assert!(stage.read(1, blocks - 1 - at * 99, 1).is_ok());
        let op = stage.write_op(0, 1, at);
        assert_eq!(stage.run(1, op), Ok(()));
        served += u64::from(!stage.answers.contains_key(&zeroing));
    }
    assert!(served > 5, "only {served} requests were served while zeroing");
    assert_eq!(stage.result(zeroing), Ok(()));
    assert!(stage.read(0, 1, 2000).expect("readable").iter().all(|byte| *byte == 0));
    stage.check_parity(200);
}
