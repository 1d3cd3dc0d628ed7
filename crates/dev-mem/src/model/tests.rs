//! Tests of the model. Time is an argument, so that all values are exact.

use super::*;
use crate::{NullDevice, RamDevice};
use strake_block::{
    BufMut, Completion, CompletionBatch, Durability, Io, Op, Readiness, Sg, SgMut, Token,
};
use strake_units::{BlockSize, Lba};

const SIZE: BlockSize = BlockSize::B4096;

fn read(bytes: usize) -> Op {
    Op::Read { at: Lba(0), data: SgMut::from(BufMut::alone(bytes)) }
}

fn write(bytes: usize) -> Op {
    let data = Sg::from(BufMut::alone(bytes).freeze());
    Op::Write { at: Lba(0), data, durability: Durability::Normal }
}

fn open(profile: Profile, depth: u32) -> Box<dyn IoQueue> {
    let device = Modelled::new(NullDevice::new(1 << 20, SIZE), profile).expect("a sound profile");
    device.open_queue(CoreIndex(0), depth).expect("memory drives always open")
}

fn submit(queue: &mut dyn IoQueue, token: u64, op: Op) {
    queue.submit(Io { token: Token(token), op }).expect("the queue has room");
}

fn poll(queue: &mut dyn IoQueue, now: u64) -> Vec<Completion> {
    let mut batch = CompletionBatch::new(64);
    queue.poll(Nanos(now), &mut batch);
    batch.drain().collect()
}

/// Keeps `queue` full with operations of `make` and returns the number of completions within `span`. Only `readiness`
/// determines the times of polls.
fn throughput(queue: &mut dyn IoQueue, depth: u64, span: Nanos, make: &dyn Fn() -> Op) -> u64 {
    let mut count = 0;
    let mut now = Nanos(0);
    (0..depth).for_each(|token| submit(queue, token, make()));
    queue.ring_doorbell(now);
    while now < span {
        for done in poll(queue, now.0) {
            count += 1;
            assert_eq!(done.result, Ok(()));
            submit(queue, done.token.0, make());
        }
        queue.ring_doorbell(now);
        now = match queue.readiness() {
            Readiness::At(due) => due.max(now),
            Readiness::Poll => now,
            other => panic!("a busy model is {other:?}"),
        };
    }
    count
}

#[test]
fn nothing_completes_before_its_time() {
    let check = |op: Op, latency: u64| {
        let mut queue = open(Profile::SN861, 4);
        submit(&mut *queue, 1, op);
        assert_eq!(queue.readiness(), Readiness::Poll, "the doorbell has not been rung");
        assert!(poll(&mut *queue, 1_000_000).is_empty());
        queue.ring_doorbell(Nanos(1_000_000));
        assert_eq!(queue.readiness(), Readiness::At(Nanos(1_000_000 + latency)));
        assert!(poll(&mut *queue, 1_000_000 + latency - 1).is_empty());
        assert_eq!(poll(&mut *queue, 1_000_000 + latency).len(), 1);
        assert_eq!(queue.readiness(), Readiness::Idle);
    };
    check(read(4096), 63_000);
    check(write(4096), 9_700);
    check(Op::Flush, 10_000);
    // The transfer of 1 MiB takes longer than the latency: 77.1 us at 13.6 GB/s, 145.6 us at 7.2 GB/s.
    check(read(1 << 20), 77_101);
    check(write(1 << 20), 145_635);
}

#[test]
fn the_published_limits_hold_at_depth() {
    let check = |make: &dyn Fn() -> Op, want: u64| {
        let mut queue = open(Profile::SN861, 512);
        let found = throughput(&mut *queue, 512, Nanos::MILLI.times(10), make);
        let (low, high) = (want - want / 50, want + want / 50);
        assert!((low..=high).contains(&found), "{found} I/Os in 10 ms, not about {want}");
    };
    check(&|| read(4096), 30_000);
    check(&|| write(4096), 3_620);
    check(&|| read(128 << 10), 1_037);
    check(&|| write(128 << 10), 549);
}

#[test]
fn depth_one_is_limited_by_latency() {
    let mut queue = open(Profile::SN861, 1);
    let found = throughput(&mut *queue, 1, Nanos::MILLI.times(10), &|| read(4096));
    // In 10 ms, each read takes 63 us, and one in 64 takes 75 us.
    assert_eq!(found, 158);
}

#[test]
fn the_tail_is_one_in_64() {
    let mut queue = open(Profile { read_iops: 0, ..Profile::SN861 }, 128);
    (0..128).for_each(|token| submit(&mut *queue, token, read(4096)));
    queue.ring_doorbell(Nanos(0));
    let at = |queue: &mut dyn IoQueue, now| poll(queue, now).len() + poll(queue, now).len();
    // The bandwidth limit spreads 128 reads over 38.5 us. After this time and 63 us, all reads except the two slow ones
    // have completed.
    assert_eq!(at(&mut *queue, 63_000 + 38_600), 126 + 1, "the first slow one began 18 us early");
    assert_eq!(at(&mut *queue, 75_000 + 38_600), 1);
}

#[test]
fn reads_can_cost_writes_their_time() {
    let check = |percent: u32, want: std::ops::RangeInclusive<u64>| {
        let profile = Profile { read_cost_to_writes_percent: percent, ..Profile::SN861 };
        let mut queue = open(profile, 512);
        (0..256).for_each(|token| submit(&mut *queue, 1000 + token, read(4096)));
        (0..64).for_each(|token| submit(&mut *queue, token, write(4096)));
        queue.ring_doorbell(Nanos(0));
        let mut last = 0;
        while let Readiness::At(due) = queue.readiness() {
            if poll(&mut *queue, due.0).iter().any(|done| done.token.0 < 1000) {
                last = due.0;
            }
        }
        assert!(want.contains(&last), "writes end after {last} ns, not within {want:?}");
    };
    // The last write waits for 63 writes of 2762 ns each; 256 reads of 333 ns each take 85 us.
    check(0, 174_000 + 9_700..=174_100 + 12_000);
    check(100, 259_000 + 9_700..=259_500 + 12_000);
}

#[test]
fn writes_can_cost_reads_their_time() {
    let check = |percent: u32, want: u64| {
        let profile = Profile { write_cost_to_reads_percent: percent, ..Profile::SN861 };
        let mut queue = open(profile, 32);
        // Ten writes of 64 KiB occupy 9102 ns each.
        (0..10).for_each(|token| submit(&mut *queue, token, write(64 << 10)));
        submit(&mut *queue, 1000, read(4096));
        queue.ring_doorbell(Nanos(0));
        let mut found = 0;
        while let Readiness::At(due) = queue.readiness() {
            if poll(&mut *queue, due.0).iter().any(|done| done.token.0 == 1000) {
                found = due.0;
            }
        }
        assert_eq!(found, want);
    };
    check(0, 63_000);
    check(50, 63_000 + 45_511);
}

#[test]
fn latencies_vary_by_seed_and_grow_with_depth() {
    // The test submits 2048 reads one after another, and then with 64 reads in the drive at a time.
    let latencies = |seed: u64, depth: u64| {
        let mut queue = open(Profile::SN861.slower(16).mixed(seed), depth as u32);
        let (mut now, mut found) = (0, Vec::new());
        for _ in 0..2048 / depth {
            (0..depth).for_each(|token| submit(&mut *queue, token, read(4096)));
            queue.ring_doorbell(Nanos(now));
            let began = now;
            while let Readiness::At(due) = queue.readiness() {
                now = due.0;
                poll(&mut *queue, now).iter().for_each(|_| found.push(now - began));
            }
        }
        found.sort_unstable();
        found
    };
    let (a, b) = (latencies(1, 1), latencies(2, 1));
    assert_eq!(a, latencies(1, 1));
    assert_ne!(a, b);
    let share =
        |of: &[u64], low: u64, high: u64| of.iter().filter(|l| (low..high).contains(l)).count();
    // The latencies are within 15 % of 63 us, with the tail of 75 us in one of 64 reads and four times the tail in one
    // of 2048.
    assert!((1900..=2040).contains(&share(&a, 53_000, 72_500)), "{a:?}");
    assert!((10..=70).contains(&share(&a, 75_000, 75_001)));
    assert_eq!(
        share(&a, 53_000, 72_500) + share(&a, 75_000, 75_001) + share(&a, 300_000, 300_001),
        2048
    );
    // With 64 reads of 5.3 us each, the median read waits for 32 others.
    let deep = latencies(1, 64);
    assert!((200_000..=250_000).contains(&deep[1024]), "median of {} ns", deep[1024]);
}

#[test]
fn a_drive_takes_no_more_than_its_depth() {
    let profile = Profile { queue_depth: 2, ..Profile::INSTANT };
    let profile = Profile { write_latency: Nanos(100), write_latency_tail: Nanos(100), ..profile };
    let mut queue = open(profile, 5);
    (0..5).for_each(|token| submit(&mut *queue, token, write(4096)));
    let full = Io { token: Token(9), op: Op::Flush };
    assert!(queue.submit(full).is_err());
    queue.ring_doorbell(Nanos(0));
    let tokens = |done: Vec<Completion>| done.iter().map(|d| d.token.0).collect::<Vec<_>>();
    assert_eq!(tokens(poll(&mut *queue, 99)), []);
    assert_eq!(tokens(poll(&mut *queue, 100)), [0, 1]);
    // The queue is polled late, but the next two I/Os entered at 100, not at 350.
    assert_eq!(queue.readiness(), Readiness::At(Nanos(200)));
    // The last I/O entered at 200, so that it is also due.
    assert_eq!(tokens(poll(&mut *queue, 350)), [2, 3, 4]);
    assert_eq!(queue.readiness(), Readiness::Idle);
}

#[test]
fn queues_share_one_drive() {
    let device = Modelled::new(NullDevice::new(1 << 20, SIZE), Profile::SN861).expect("sound");
    let mut queues = [0, 1]
        .map(|core| device.open_queue(CoreIndex(core), 64).expect("memory drives always open"));
    for queue in &mut queues {
        (0..64).for_each(|token| submit(&mut **queue, token, write(4096)));
        queue.ring_doorbell(Nanos(0));
    }
    let mut last = Nanos(0);
    for queue in &mut queues {
        while let Readiness::At(due) = queue.readiness() {
            last = last.max(due);
            poll(&mut **queue, due.0);
        }
    }
    assert!((360_000..=365_000).contains(&last.0), "128 writes of 2762 ns end at {last:?}");
}

#[test]
fn data_arrives_through_the_model() {
    let ram = RamDevice::new(1024, SIZE);
    ram.write_at(4096, &[6; 4096]).expect("on the drive");
    let device = Modelled::new(ram, Profile::SN861).expect("sound");
    assert_eq!(device.info().blocks, 1024);
    let mut queue = device.open_queue(CoreIndex(0), 1).expect("memory drives always open");
    submit(&mut *queue, 3, Op::Read { at: Lba(1), data: SgMut::from(BufMut::alone(4096)) });
    queue.ring_doorbell(Nanos(0));
    assert!(poll(&mut *queue, 0).is_empty());
    let done = poll(&mut *queue, 63_000).pop().expect("it is due");
    assert_eq!((done.token, done.result), (Token(3), Ok(())));
    let Op::Read { data, .. } = done.op else { panic!("a read came back as {:?}", done.op) };
    assert_eq!(data.parts()[0].as_slice(), [6; 4096]);
}

#[test]
fn profiles_that_contradict_themselves_are_refused() {
    let check = |profile: Profile, want: ProfileError| {
        let found = Modelled::new(NullDevice::new(1, SIZE), profile).map(drop);
        assert_eq!(found, Err(want));
    };
    check(Profile { queue_depth: 0, ..Profile::SN861 }, ProfileError::NoDepth);
    let tail = Profile { read_latency_tail: Nanos(1), ..Profile::SN861 };
    check(tail, ProfileError::TailBelowLatency);
    assert_eq!(Profile::SN861.slower(16).write_iops, 22_625);
    assert_eq!(Profile::SN861.slower(0), Profile::SN861);
}
