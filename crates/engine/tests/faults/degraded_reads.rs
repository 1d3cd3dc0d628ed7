//! Tests of many concurrent small reads of a strip whose member cannot be read, with other events during the reads.

use strake_block::{IoErrorKind, Op};
use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_raid::{Level, MemberState};
use strake_units::Nanos;

use crate::stage::{DATA, Seen, Set, Stage, bytes_of};

const BLOCKS: u64 = 4000;

/// A submitted read: its first block, its number of blocks, and its identifier.
struct Sent {
    at: u64,
    blocks: u64,
    id: u64,
}

fn set(level: Level, members: usize, cores: u16) -> Set {
    let mut set = Set::new(level, members);
    (set.cores, set.depth) = (cores, 1024);
    set.queues = (0..cores).collect();
    set
}

/// Returns an array with data, without the members `lost`.
fn degraded(set: Set, lost: &[u8]) -> Stage {
    let mut stage = set.filled(BLOCKS, 100, 3);
    for member in lost {
        stage.fail(*member).expect("allowed");
    }
    stage
}

/// Submits `count` reads of 1 to 8 blocks of the members `lost`, from every queue in turn.
fn send(stage: &mut Stage, lost: &[u8], count: u64) -> Vec<Sent> {
    let on = |stage: &Stage, at: &u64| lost.contains(&(stage.home(*at).0 as u8));
    let places: Vec<u64> = (0..BLOCKS - 8).step_by(8).filter(|at| on(stage, at)).collect();
    assert!(places.len() > 20, "the strips of the lost members");
    let mut sent = Vec::new();
    for n in 0..count {
        let at = places[(n * 7) as usize % places.len()];
        let blocks = 1 + n % 8;
        let op = stage.read_op(at, blocks);
        let queue = n as usize % stage.queues.len();
        sent.push(Sent { at, blocks, id: stage.submit(queue, op) });
    }
    sent
}

/// Waits for the reads and compares them with the written data.
fn compare(stage: &mut Stage, sent: Vec<Sent>) {
    for Sent { at, blocks, id } in sent {
        let bytes = bytes_of(stage.answer(id)).unwrap_or_else(|e| panic!("block {at}: {e:?}"));
        let from = (at << 9) as usize;
        assert!(bytes == stage.model[from..from + (blocks << 9) as usize], "block {at}");
    }
}

/// Checks that no I/O is in progress at the end, and that all memory was returned.
fn end(mut stage: Stage) {
    for disk in &stage.disks {
        disk.answer();
    }
    stage.rounds(1000);
    stage.verify(BLOCKS);
    stage.stop().expect("a clean stop");
}

#[test]
fn many_reads_of_lost_strips_are_recovered() {
    for cores in [1, 2] {
        for (level, members, lost) in [
            (Level::Raid5, 4, &[1_u8][..]),
            (Level::Raid6, 8, &[2]),
            (Level::Raid6, 8, &[2, 3]),
            (Level::Raid73, 9, &[0, 4, 8]),
            (Level::Parity(4), 20, &[1, 2, 7, 11]),
            (Level::Raid6, 40, &[5, 6]),
        ] {
            let mut stage = degraded(set(level, members, cores), lost);
            let sent = send(&mut stage, lost, 900);
            compare(&mut stage, sent);
            assert!(stage.status().counters.degraded_reads >= 900, "{level:?} without {lost:?}");
            end(stage);
        }
    }
}

/// A degraded read of one strip needs one read of as many survivors as there are data strips, on any core.
#[test]
fn a_degraded_read_reads_each_survivor_once() {
    for cores in [1, 2, 3] {
        let mut stage = degraded(set(Level::Raid6, 8, cores), &[2]);
        for n in 0..40 {
            stage.watch();
            let sent = send(&mut stage, &[2], 1 + n % 3);
            let count = sent.len();
            compare(&mut stage, sent);
            let data_read = |seen: &&Seen| seen.op == 'r' && !seen.done && seen.byte >= DATA;
            assert_eq!(stage.seen().iter().filter(data_read).count(), 6 * count);
        }
        end(stage);
    }
}

/// Applies `effect` to every `nth` read of a survivor, at most `limit` times.
fn strike(stage: &Stage, member: usize, effect: Effect, nth: u64, limit: u64) {
    let rule = Rule::new(Ops::READ, effect).when(When::Every(nth)).limit(limit);
    stage.disks[member].plan.add(rule);
}

/// Checks reads with one missing member and a fault of another member: the second parity is still available.
fn check_survivor(effect: Effect, limit: u64, cores: u16, then: MemberState) {
    for nth in [1, 5, 40] {
        let mut stage = degraded(set(Level::Raid6, 8, cores), &[2]);
        strike(&stage, 4, effect, nth, limit);
        let sent = send(&mut stage, &[2], 500);
        let begun = stage.now;
        stage.pass(4);
        compare(&mut stage, sent);
        let took = stage.now.since(begun);
        assert!(took < Nanos(6 * Nanos::SECOND.0), "{effect:?}: nobody waits for long: {took:?}");
        assert_eq!(stage.state(4), then, "{effect:?}");
        end(stage);
    }
}

#[test]
fn a_survivor_that_fails_is_done_without() {
    for cores in [1, 2] {
        check_survivor(Effect::Fail(IoErrorKind::Device), 1, cores, MemberState::Faulty);
        check_survivor(Effect::Vanish, 1, cores, MemberState::Missing);
    }
}

#[test]
fn unreadable_blocks_of_a_survivor_are_done_without_and_mended() {
    for cores in [1, 2] {
        check_survivor(Effect::Fail(IoErrorKind::Medium), 3, cores, MemberState::InSync);
    }
}

/// F29, for recovered reads: reads avoid an unresponsive survivor long before it goes out.
#[test]
fn a_survivor_that_hangs_is_gone_around() {
    for cores in [1, 2] {
        check_survivor(Effect::Hang, 1, cores, MemberState::InSync);
        check_survivor(Effect::Hang, u64::MAX, cores, MemberState::InSync);
        check_survivor(Effect::Delay(Nanos(3 * Nanos::SECOND.0)), 9, cores, MemberState::InSync);
    }
}

/// If no other member has the data, the read waits for the drive for any time.
#[test]
fn a_survivor_that_cannot_be_done_without_is_waited_for() {
    let mut stage = degraded(set(Level::Raid5, 5, 1), &[2]);
    strike(&stage, 4, Effect::Hang, 1, u64::MAX);
    let sent = send(&mut stage, &[2], 100);
    stage.pass(60);
    assert!(!stage.status().lost && stage.state(4) == MemberState::InSync);
    stage.disks[4].answer();
    compare(&mut stage, sent);
    end(stage);
}

/// The array loses one member too many during reads. Each read completes with the correct data or with an error.
#[test]
fn a_lost_array_returns_no_wrong_data() {
    for cores in [1, 2] {
        for nth in [1, 7, 90] {
            let mut stage = degraded(set(Level::Raid5, 5, cores), &[2]);
            strike(&stage, 4, Effect::Vanish, nth, 1);
            let sent = send(&mut stage, &[2], 500);
            for Sent { at, blocks, id } in sent {
                match bytes_of(stage.answer(id)) {
                    Ok(bytes) => {
                        let from = (at << 9) as usize;
                        let want = &stage.model[from..from + (blocks << 9) as usize];
                        assert!(bytes == want, "block {at}");
                    }
                    Err(kind) => assert_eq!(kind, IoErrorKind::Lost, "block {at}"),
                }
            }
            assert!(stage.status().lost);
        }
    }
}

/// Delays every read of data, so that reads are in progress during other events.
fn slow_down(stage: &Stage, millis: u64) {
    for disk in &stage.disks {
        disk.plan.add(Rule::new(Ops::READ, Effect::Delay(Nanos(millis * Nanos::MILLI.0))));
    }
}

#[test]
fn the_lost_member_is_replaced_meanwhile() {
    for cores in [1, 2, 3] {
        let mut stage = degraded(set(Level::Raid6, 8, cores), &[2]);
        stage.step = Nanos(100_000);
        slow_down(&stage, 20);
        let before = send(&mut stage, &[2], 600);
        stage.rounds(30);
        stage.replace(2).expect("replaceable");
        let after = send(&mut stage, &[2], 300);
        compare(&mut stage, before);
        compare(&mut stage, after);
        stage.step = Nanos::MILLI;
        stage.healthy();
        end(stage);
    }
}

/// The history of the bug: only the owner of a region has the information whether a rebuilding member lacks the region.
/// Another core used its own table, which did not contain the region, and panicked.
#[test]
fn only_the_owner_asks_what_a_member_lacks() {
    let mut set = set(Level::Raid6, 8, 3);
    set.disk_bytes = 21 << 20;
    let mut stage = degraded(set, &[2]);
    stage.step = Nanos(100_000);
    slow_down(&stage, 20);
    stage.replace(2).expect("replaceable");
    let sent = send(&mut stage, &[2], 300);
    compare(&mut stage, sent);
    stage.step = Nanos::MILLI;
    stage.healthy();
    end(stage);
}

#[test]
fn another_member_is_taken_out_meanwhile() {
    for cores in [1, 2] {
        let mut stage = degraded(set(Level::Raid6, 8, cores), &[2]);
        stage.step = Nanos(100_000);
        slow_down(&stage, 20);
        let before = send(&mut stage, &[2], 600);
        stage.rounds(30);
        stage.fail(5).expect("allowed");
        let after = send(&mut stage, &[2, 5], 300);
        compare(&mut stage, before);
        compare(&mut stage, after);
        end(stage);
    }
}

/// Reads and writes of one band keep their order: a read that was submitted before a write returns the old data.
#[test]
fn writes_wait_for_the_reads_before_them() {
    for cores in [1, 2] {
        let mut stage = degraded(set(Level::Raid6, 8, cores), &[2]);
        slow_down(&stage, 1);
        let lost = |at: &u64| stage.home(*at).0 == 2;
        let at = (0..BLOCKS).find(lost).expect("a strip of the lost member");
        let model =
            |stage: &Stage| stage.model[(at as usize) << 9..(at as usize + 4) << 9].to_vec();
        for round in 0..20 {
            let before = model(&stage);
            let first = stage.submit_read(0, at, 4);
            let write = stage.begin_write(at, 4, 700 + round);
            let second = stage.submit_read(0, at, 4);
            assert_eq!(bytes_of(stage.answer(first)), Ok(before));
            assert_eq!(stage.result(write), Ok(()));
            assert_eq!(bytes_of(stage.answer(second)), Ok(model(&stage)));
        }
        end(stage);
    }
}

/// The memory is sufficient for little more than one stripe: reads wait for each other and for writes, and all
/// complete.
#[test]
fn too_little_memory_only_takes_longer() {
    for cores in [1, 2] {
        let mut set = set(Level::Raid6, 24, cores);
        set.options.scratch_bytes = 0;
        let mut stage = degraded(set, &[2, 9]);
        let reads = send(&mut stage, &[2, 9], 400);
        let writes: Vec<u64> = (0..60).map(|n| stage.submit_write(0, n * 64, 3, 900 + n)).collect();
        // The order of a read and a write of the same blocks has no effect here.
        for read in reads {
            assert_eq!(stage.result(read.id), Ok(()));
        }
        for (n, write) in (0..).zip(writes) {
            assert_eq!(stage.result(write), Ok(()));
            stage.expect(n * 64, 3, 900 + n);
        }
        let reads = send(&mut stage, &[2, 9], 400);
        compare(&mut stage, reads);
        end(stage);
    }
}

/// A core that stops completes all I/Os in progress and all waiting I/Os.
#[test]
fn reads_under_way_are_answered_when_the_array_goes() {
    for cores in [1, 2] {
        let mut stage = degraded(set(Level::Raid6, 8, cores), &[2]);
        strike(&stage, 4, Effect::Hang, 1, u64::MAX);
        let sent = send(&mut stage, &[2], 500);
        stage.rounds(20);
        assert_eq!(stage.run(0, Op::Flush), Ok(()), "others are served");
        stage.pollers.clear();
        stage.rounds(3);
        let mut aborted = 0;
        for Sent { at, blocks, id } in sent {
            let from = (at << 9) as usize;
            match bytes_of(stage.answers.remove(&id).expect("each is answered")) {
                Ok(bytes) => assert!(bytes == stage.model[from..from + (blocks << 9) as usize]),
                Err(kind) => {
                    assert_eq!(kind, IoErrorKind::Aborted);
                    aborted += 1;
                }
            }
        }
        assert!(aborted > 300, "most of them need the drive that hangs: {aborted}");
    }
}
