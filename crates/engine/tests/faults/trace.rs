//! Tests of recorded requests: the stages have the times that the drives take.

use strake_block::{Durability, IoErrorKind, Op};
use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::{SAMPLED_OF, Stage as Part, Trace, TraceOp, TraceReason};
use strake_raid::Level;
use strake_units::{Lba, LbaRange, MemberIndex, Nanos};

use crate::stage::{Set, Stage};

const MILLI: u64 = Nanos::MILLI.0;

/// A read takes 2 ms, a write 5 ms, and a flush 11 ms.
fn delay(stage: &mut Stage) {
    for disk in &stage.disks {
        disk.plan.add(Rule::new(Ops::READ, Effect::Delay(Nanos(2 * MILLI))));
        disk.plan.add(Rule::new(Ops::WRITE, Effect::Delay(Nanos(5 * MILLI))));
        disk.plan.add(Rule::new(Ops::FLUSH, Effect::Delay(Nanos(11 * MILLI))));
    }
    stage.step = Nanos(20_000);
}

fn staged(cores: u16) -> Stage {
    let mut set = Set::new(Level::Raid6, 6);
    set.cores = cores;
    set.queues = (0..cores).collect();
    set.cached = true;
    let mut stage = set.build().expect("sound");
    stage.fill(1000, 100, 3);
    delay(&mut stage);
    stage
}

/// The record of the slowest request since the last call.
fn slowest(stage: &mut Stage) -> Trace {
    let traces = stage.array().traces();
    let slowest = traces.into_iter().filter(|trace| trace.reason == TraceReason::Slowest);
    let last = slowest.max_by_key(|trace| trace.accepted).expect("a request was recorded");
    // The next request is the first of its second.
    stage.pass(1);
    last
}

/// The stages of a record in milliseconds, rounded.
fn stages(trace: &Trace) -> Vec<(Part, u64)> {
    let sum: u64 = trace.stages.iter().map(|time| time.took.0).sum();
    assert!(sum <= trace.took.0 && trace.took.0 < sum + 1_000, "{trace:?}");
    let rounded = trace.stages.iter().map(|time| (time.stage, (time.took.0 + MILLI / 2) / MILLI));
    rounded.filter(|(_, millis)| *millis > 0).collect()
}

fn member(trace: &Trace, stage: Part) -> Option<usize> {
    let time = trace.stages.iter().find(|time| time.stage == stage);
    time.unwrap_or_else(|| panic!("no stage {stage:?}: {trace:?}")).member.map(MemberIndex::at)
}

#[test]
fn a_small_write_reads_and_writes() {
    for cores in [1, 2] {
        let mut stage = staged(cores);
        for queue in 0..usize::from(cores) {
            slowest(&mut stage);
            let op = stage.write_op(40, 4, 9);
            assert_eq!(stage.run(queue, op), Ok(()));
            let trace = slowest(&mut stage);
            assert_eq!(stages(&trace), [(Part::Read, 2), (Part::Write, 5)], "core {queue}");
            assert_eq!((trace.op, trace.at, trace.bytes), (TraceOp::Write, Lba(40), 4 << 9));
            assert_eq!((usize::from(trace.core), trace.error), (queue, None));
        }
    }
}

/// Every drive has its own latency, so the slowest drive of the write is the last.
#[test]
fn the_last_member_of_each_stage_is_named() {
    let mut stage = staged(1);
    slowest(&mut stage);
    for (at, disk) in stage.disks.iter().enumerate() {
        disk.plan.clear();
        let millis = |base: u64| Effect::Delay(Nanos((base + at as u64) * MILLI));
        disk.plan.add(Rule::new(Ops::READ, millis(2)));
        disk.plan.add(Rule::new(Ops::WRITE, millis(10)));
    }
    let mut not_home = 0;
    for at in (0..900).step_by(100) {
        let counts = |stage: &Stage| -> Vec<u64> {
            stage.array().latencies().members.iter().map(|of| of.read.count()).collect()
        };
        let before = counts(&stage);
        let op = stage.write_op(at, 4, 9);
        assert_eq!(stage.run(0, op), Ok(()));
        let after = counts(&stage);
        let last = (0..6).rfind(|member| after[*member] > before[*member]);
        let trace = slowest(&mut stage);
        assert_eq!(member(&trace, Part::Read), last, "{trace:?}");
        assert_eq!(member(&trace, Part::Write), last, "{trace:?}");
        not_home += usize::from(last != Some(stage.home(at).0));
    }
    assert!(not_home > 0, "the drive with the data was always the slowest");
}

/// A write of parts of two stripes is executed by tasks.
#[test]
fn a_task_has_the_same_stages() {
    for cores in [1, 2] {
        let mut stage = staged(cores);
        for queue in 0..usize::from(cores) {
            slowest(&mut stage);
            let op = stage.write_op(3, 200, 9);
            assert_eq!(stage.run(queue, op), Ok(()));
            let trace = slowest(&mut stage);
            assert_eq!(stages(&trace), [(Part::Read, 2), (Part::Write, 5)], "core {queue}");
            assert!(member(&trace, Part::Read).is_some() && member(&trace, Part::Write).is_some());
        }
    }
}

#[test]
fn a_write_waits_for_its_band() {
    for blocks in [4, 200] {
        let mut stage = staged(1);
        slowest(&mut stage);
        let first = stage.submit_write(0, 40, blocks, 7);
        let second = stage.submit_write(0, 40, blocks, 8);
        stage.done([first, second]);
        let trace = slowest(&mut stage);
        let expected = [(Part::Band, 7), (Part::Read, 2), (Part::Write, 5)];
        assert_eq!(stages(&trace), expected, "{blocks} blocks");
    }
}

#[test]
fn the_first_write_of_a_region_waits_for_its_intent() {
    let mut set = Set::new(Level::Raid6, 6);
    set.cached = true;
    let mut stage = set.build().expect("sound");
    stage.rounds(1000);
    delay(&mut stage);
    stage.pass(1);
    let op = stage.write_op(40, 4, 9);
    assert_eq!(stage.run(0, op), Ok(()));
    let trace = slowest(&mut stage);
    let intent = stages(&trace).into_iter().find(|(part, _)| *part == Part::Intent);
    assert!(intent.is_some_and(|(_, millis)| millis >= 5), "{trace:?}");
}

#[test]
fn a_strict_write_waits_for_its_record() {
    for blocks in [4, 200] {
        let mut set = Set::strict(Level::Raid6, 6);
        set.cached = true;
        let mut stage = set.build().expect("sound");
        stage.fill(1000, 100, 3);
        delay(&mut stage);
        slowest(&mut stage);
        let op = stage.write_op(40, blocks, 9);
        assert_eq!(stage.run(0, op), Ok(()));
        let trace = slowest(&mut stage);
        let parts = stages(&trace);
        let millis = |part| parts.iter().find(|(at, _)| *at == part).map_or(0, |(_, took)| *took);
        assert_eq!((millis(Part::Read), millis(Part::Write)), (2, 5), "{trace:?}");
        assert!(millis(Part::Log) >= 5, "{trace:?}");
    }
}

#[test]
fn a_flush_a_read_and_writes_of_zeroes_are_named() {
    let mut stage = staged(1);
    slowest(&mut stage);
    assert_eq!(stage.run(0, Op::Flush), Ok(()));
    let trace = slowest(&mut stage);
    assert_eq!((trace.op, &stages(&trace)[..]), (TraceOp::Flush, &[(Part::Flush, 11)][..]));
    stage.read(0, 40, 4).expect("readable");
    let trace = slowest(&mut stage);
    assert_eq!((trace.op, &stages(&trace)[..]), (TraceOp::Read, &[(Part::Read, 2)][..]));
    // A read of several strips is an ordinary request.
    stage.read(0, 0, 400).expect("readable");
    let trace = slowest(&mut stage);
    assert_eq!((trace.op, &stages(&trace)[..]), (TraceOp::Read, &[(Part::Read, 2)][..]));
    let range = LbaRange::new(Lba(40), 4);
    let zeroes = Op::WriteZeroes { range, durability: Durability::Normal };
    assert_eq!(stage.run(0, zeroes), Ok(()));
    let trace = slowest(&mut stage);
    assert_eq!((trace.op, trace.bytes), (TraceOp::WriteZeroes, 4 << 9));
}

#[test]
fn a_degraded_read_reads_the_survivors() {
    let mut stage = staged(1);
    let (home, _) = stage.home(40);
    stage.fail(home as u8).expect("redundant");
    slowest(&mut stage);
    stage.read(0, 40, 4).expect("readable");
    let trace = slowest(&mut stage);
    assert_eq!(stages(&trace), [(Part::Read, 2)]);
    assert!(member(&trace, Part::Read).is_some_and(|member| member != home), "{trace:?}");
}

/// A drive does not answer a read. The read is executed from the rest of the stripe, and the time until then is a
/// failed attempt of that member.
#[test]
fn a_read_of_a_drive_that_hangs_is_retried() {
    let mut stage = staged(1);
    let (home, _) = stage.home(40);
    slowest(&mut stage);
    stage.disks[home].plan.clear();
    stage.disks[home].hang(Ops::READ);
    stage.read(0, 40, 4).expect("readable");
    let trace = slowest(&mut stage);
    assert_eq!(member(&trace, Part::Retried), Some(home), "{trace:?}");
    let parts = stages(&trace);
    let millis = |part| parts.iter().find(|(at, _)| *at == part).map_or(0, |(_, took)| *took);
    assert!(millis(Part::Retried) > 100, "{trace:?}");
    assert_eq!(millis(Part::Read), 2, "{trace:?}");
}

/// The same for a read that waits for its band on another core, for a small write, and for joined reads.
#[test]
fn each_kind_of_failed_attempt_is_named() {
    let hang = |stage: &mut Stage, member: usize| {
        stage.disks[member].plan.clear();
        stage.disks[member].hang(Ops::READ);
    };
    let check = |stage: &mut Stage, member_of: usize, what: &str| {
        let trace = slowest(stage);
        assert_eq!(member(&trace, Part::Retried), Some(member_of), "{what}: {trace:?}");
        let parts = stages(&trace);
        let retried = parts.iter().find(|(part, _)| *part == Part::Retried);
        assert!(retried.is_some_and(|(_, millis)| *millis > 100), "{what}: {trace:?}");
    };
    for queue in [0, 1] {
        let mut stage = staged(2);
        let (home, _) = stage.home(40);
        slowest(&mut stage);
        hang(&mut stage, home);
        stage.read(queue, 40, 4).expect("readable");
        check(&mut stage, home, "read");
    }
    let mut stage = staged(1);
    let (home, _) = stage.home(40);
    slowest(&mut stage);
    hang(&mut stage, home);
    let op = stage.write_op(40, 4, 9);
    assert_eq!(stage.run(0, op), Ok(()));
    check(&mut stage, home, "small write");
    // Two members of the stripe are needed for the strips of a third one.
    let mut stage = staged(1);
    let (home, _) = stage.home(40);
    stage.fail(home as u8).expect("redundant");
    slowest(&mut stage);
    let other = (home + 1) % 6;
    hang(&mut stage, other);
    stage.read(0, 0, 512).expect("readable");
    check(&mut stage, other, "joined reads");
}

/// A write whose old content is cached reads nothing.
#[test]
fn a_write_of_cached_content_does_not_read() {
    let mut set = Set::new(Level::Raid6, 6);
    set.options.cache = true;
    let mut stage = set.filled(1000, 100, 3);
    delay(&mut stage);
    let mut read_nothing = 0;
    for seed in 0..6 {
        slowest(&mut stage);
        let op = stage.write_op(40, 4, seed);
        assert_eq!(stage.run(0, op), Ok(()));
        let trace = slowest(&mut stage);
        let reads = trace.stages.iter().find(|time| time.stage == Part::Read);
        match stages(&trace)[..] {
            [(Part::Read, 2), (Part::Write, 5)] => assert!(reads.is_some()),
            [(Part::Write, 5)] => {
                assert_eq!(reads, None, "{trace:?}");
                read_nothing += 1;
            }
            _ => panic!("{trace:?}"),
        }
    }
    assert!(read_nothing > 0, "no write found its old content in the cache");
}

/// After a scrub, the members that it read are not named in later requests.
#[test]
fn a_write_after_maintenance_names_its_own_members() {
    let mut stage = staged(1);
    slowest(&mut stage);
    let first = stage.submit_write(0, 40, 200, 7);
    let second = stage.submit_write(0, 40, 200, 8);
    stage.done([first, second]);
    let trace = slowest(&mut stage);
    assert_eq!(member(&trace, Part::Band), None, "{trace:?}");
    assert!(trace.stages.iter().all(|time| time.stage != Part::Intent), "{trace:?}");
}

#[test]
fn a_failed_request_has_its_error() {
    let mut stage = Set::new(Level::Raid0, 3).filled(500, 100, 3);
    delay(&mut stage);
    slowest(&mut stage);
    let (home, _) = stage.home(40);
    stage.disks[home].plan.clear();
    stage.disks[home].plan.add(Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium)));
    assert!(stage.read(0, 40, 4).is_err());
    let trace = slowest(&mut stage);
    assert_eq!(trace.error, Some(IoErrorKind::Lost), "{trace:?}");
}

#[test]
fn one_of_4096_requests_is_sampled_on_each_core() {
    let mut stage = staged(2);
    let samples = |stage: &Stage, core| {
        let of = |trace: &&Trace| trace.core == core && trace.reason == TraceReason::Sampled;
        stage.array().traces().iter().filter(of).count()
    };
    for disk in &stage.disks {
        disk.plan.clear();
    }
    let before = [samples(&stage, 0), samples(&stage, 1)];
    for at in 0..3 * u64::from(SAMPLED_OF) {
        stage.read(1, at % 900, 4).expect("readable");
    }
    assert_eq!(samples(&stage, 0), before[0]);
    assert_eq!(samples(&stage, 1) - before[1], 3);
}
