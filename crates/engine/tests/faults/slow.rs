//! Drives that are slow, or stall for some time, without failing.

use std::sync::Arc;

use strake_block::{IoErrorKind, Op};
use strake_dev_mem::{Effect, FaultPlan, Faulty, Ops, RamDevice, Rule};
use strake_engine::{ArrayEventKind, Drive, MemberHealth, prepare_drive};
use strake_raid::{Level, MemberState};
use strake_units::{BlockSize, Lba, LbaRange, Nanos, Uuid};

use crate::stage::{STRICTLY, Set, Stage, bytes_of};

const BLOCKS: u64 = 2000;

fn staged(level: Level, members: usize) -> Stage {
    let mut set = Set::new(level, members);
    set.options.steer = true;
    set.filled(BLOCKS, 100, 3)
}

fn slow_reads(stage: &Stage, member: usize, millis: u64) {
    let delay = Effect::Delay(Nanos(millis * Nanos::MILLI.0));
    stage.disks[member].plan.add(Rule::new(Ops::READ, delay));
}

fn health(stage: &Stage, member: usize) -> MemberHealth {
    stage.status().members[member].health
}

/// Reads every block for `seconds` of simulated time, with one turn per millisecond and sixteen concurrent reads.
/// Returns the longest duration of a read, in milliseconds.
fn load(stage: &mut Stage, seconds: u64) -> u64 {
    let step = std::mem::replace(&mut stage.step, Nanos::MILLI);
    let (mut longest, end) = (0, stage.now.plus(Nanos(seconds * Nanos::SECOND.0)));
    let mut at = 0;
    while stage.now < end {
        let begun = stage.now;
        let ids: Vec<_> = (0..16)
            .map(|n| {
                let from = (at + n * 37) % (BLOCKS - 4);
                let op = stage.read_op(from, 4);
                (from, stage.submit(0, op))
            })
            .collect();
        for (from, id) in ids {
            let bytes = bytes_of(stage.answer(id)).expect("nothing fails");
            assert!(
                bytes == stage.model[(from as usize) << 9..(from as usize + 4) << 9],
                "block {from}"
            );
            longest = longest.max(stage.now.since(begun).0 / Nanos::MILLI.0);
        }
        at += 591;
    }
    stage.step = step;
    longest
}

/// F28: a drive that answers a hundred times later than its peers makes the whole array as slow as itself. Reads avoid
/// it while redundancy is left, writes continue, no member goes out, and the drive is read again after its recovery.
fn goes_around(level: Level, members: usize) {
    let mut stage = staged(level, members);
    load(&mut stage, 3);
    slow_reads(&stage, 1, 200);
    assert!(load(&mut stage, 8) >= 200, "at first everybody waits for it");
    assert!(health(&stage, 1).sitting_out, "{:?}", health(&stage, 1));
    assert!(health(&stage, 1).read_p99 >= Nanos(150 * Nanos::MILLI.0));
    assert_eq!(stage.state(1), MemberState::InSync);
    // Only an occasional probe still takes that long; most loads contain no probe.
    let quick = (0..20).filter(|_| one_round(&mut stage) < 50).count();
    assert!(quick >= 15, "only {quick} of 20 are quick");
    stage.fill(BLOCKS, 77, 8);
    stage.verify(BLOCKS);
    stage.disks[1].plan.clear();
    load(&mut stage, 25);
    assert!(!health(&stage, 1).sitting_out, "it is well again: {:?}", health(&stage, 1));
    assert_eq!(health(&stage, 1).sit_outs, 1);
    stage.verify(BLOCKS);
}

/// Returns the longest duration of sixteen reads, in milliseconds.
fn one_round(stage: &mut Stage) -> u64 {
    let step = std::mem::replace(&mut stage.step, Nanos::MILLI);
    let begun = stage.now;
    let ids: Vec<_> = (0..16).map(|n| stage.submit_read(0, n * 37, 4)).collect();
    for id in ids {
        bytes_of(stage.answer(id)).expect("nothing fails");
    }
    let took = stage.now.since(begun).0 / Nanos::MILLI.0;
    stage.step = step;
    took
}

#[test]
fn f28_reads_go_around_a_slow_drive_of_a_parity_array() {
    goes_around(Level::Raid6, 6);
}

#[test]
fn f28_reads_go_around_a_slow_copy() {
    goes_around(Level::Raid1, 3);
}

#[test]
fn f28_a_slow_drive_is_read_when_nothing_else_holds_the_data() {
    let mut stage = staged(Level::Raid5, 4);
    stage.fail(0).expect("covered");
    slow_reads(&stage, 1, 100);
    load(&mut stage, 6);
    assert!(!health(&stage, 1).sitting_out, "the array cannot do without it");
    stage.verify(BLOCKS);
}

/// F28, followed by the failure of another drive: the data of the slow drive are needed again immediately.
#[test]
fn f28_a_drive_that_sits_out_is_back_when_another_fails() {
    let mut stage = staged(Level::Raid5, 5);
    slow_reads(&stage, 1, 100);
    load(&mut stage, 6);
    assert!(health(&stage, 1).sitting_out);
    stage.disks[3].vanish();
    stage.fill(BLOCKS, 90, 5);
    stage.verify(BLOCKS);
    assert_eq!(stage.state(3), MemberState::Missing);
    load(&mut stage, 2);
    assert!(!health(&stage, 1).sitting_out);
}

/// F29: the first step of the escalation. A read without an answer is reconstructed from the rest of its stripe long
/// before its drive goes out; if the drive finally answers, it stays a member.
#[test]
fn f29_a_read_that_takes_long_is_answered_from_elsewhere() {
    let mut stage = staged(Level::Raid6, 6);
    let (victim, _) = stage.home(0);
    stage.disks[victim].hang(Ops::READ);
    let id = stage.submit_read(0, 0, 1);
    stage.pass(1);
    assert!(!stage.answers.contains_key(&id), "it is given a moment");
    stage.pass(2);
    let bytes = bytes_of(stage.answer(id)).expect("there is redundancy");
    assert_eq!(bytes, stage.model[..512]);
    assert_eq!(health(&stage, victim).slow, 1);
    assert_eq!(health(&stage, victim).timeouts, 0);
    assert_eq!(stage.write(0, 128, 99), Ok(()), "it takes writes");
    stage.pass(4);
    stage.disks[victim].answer();
    stage.pass(40);
    assert_eq!(stage.state(victim), MemberState::InSync);
    stage.verify(BLOCKS);
}

/// mdadm's test of "failfast": if another copy is left, a slow read is not waited for; otherwise the read waits for any
/// time, because the last copy must not go out.
#[test]
fn md_05r1_failfast() {
    let mut stage = staged(Level::Raid1, 2);
    stage.disks[0].hang(Ops::READ);
    let ids: Vec<u64> = (0..32).map(|at| stage.submit_read(0, at * 8, 8)).collect();
    stage.pass(3);
    for (at, id) in ids.into_iter().enumerate() {
        let bytes = bytes_of(stage.answer(id)).expect("there is another copy");
        assert_eq!(bytes, stage.model[at * 4096..][..4096]);
    }
    assert!(health(&stage, 0).slow > 0, "some of the reads were for the drive that hangs");
    assert_eq!(stage.write(0, 128, 99), Ok(()), "it takes writes");
    go_on(&stage);
    stage.pass(1);
    assert_eq!(stage.state(0), MemberState::InSync);
    stage.fail(1).expect("covered");
    stage.disks[0].hang(Ops::READ);
    let id = stage.submit_read(0, 0, 8);
    stage.pass(100);
    assert!(!stage.answers.contains_key(&id) && !stage.status().lost, "it is the last copy");
    go_on(&stage);
    assert!(bytes_of(stage.answer(id)).is_ok());
    assert_eq!(stage.state(0), MemberState::InSync);
    stage.verify(BLOCKS);
}

/// F29: the last step. A drive without an answer for thirty seconds goes out, even if no task waits for it.
#[test]
fn f29_a_drive_that_never_answers_is_out_although_its_read_went_around() {
    let mut stage = staged(Level::Raid6, 6);
    let (victim, _) = stage.home(0);
    stage.disks[victim].hang(Ops::READ);
    let _ = stage.submit_read(0, 0, 1);
    stage.pass(33);
    assert_eq!(stage.state(victim), MemberState::Faulty);
    stage.verify(BLOCKS);
}

/// Returns the events about common stalls since the last call.
fn standstills(stage: &Stage) -> Vec<ArrayEventKind> {
    let common = |kind: &ArrayEventKind| {
        matches!(kind, ArrayEventKind::MembersStalled | ArrayEventKind::MembersStalledEnded)
    };
    stage.array().drain_events().into_iter().map(|event| event.kind).filter(common).collect()
}

/// Makes all drives stall.
fn stand_still(stage: &Stage) {
    for disk in &stage.disks {
        disk.hang(Ops::ANY);
    }
}

fn go_on(stage: &Stage) {
    for disk in &stage.disks {
        disk.answer();
    }
}

/// F44: after a controller reset or a network failure, all drives stall for a minute. If as many drives as redundancy
/// allows went out, a pause would cause a degraded array, and the next pause a failed one.
#[test]
fn f44_a_common_stall_puts_no_member_out() {
    let mut stage = staged(Level::Raid6, 6);
    stand_still(&stage);
    let mut ids = Vec::new();
    for at in (0..1000).step_by(25) {
        ids.push(stage.submit_read(0, at, 5));
        ids.push(stage.begin_write(at + 5, 10, at));
    }
    stage.pass(120);
    assert_eq!(standstills(&stage), [ArrayEventKind::MembersStalled], "once, not every time");
    go_on(&stage);
    stage.done(ids);
    stage.pass(1);
    assert_eq!(standstills(&stage), [ArrayEventKind::MembersStalledEnded]);
    for member in 0..6 {
        assert_eq!(stage.state(member), MemberState::InSync, "member {member}");
    }
    stage.verify(BLOCKS);
}

/// As many members as redundancy covers stall: they finally go out, and no common stall is reported.
#[test]
fn f44_members_that_redundancy_covers_are_no_common_standstill() {
    let mut stage = staged(Level::Raid6, 6);
    for disk in &stage.disks[..2] {
        disk.hang(Ops::ANY);
    }
    let _ = stage.submit_read(0, 0, 1000);
    stage.pass(20);
    assert_eq!(standstills(&stage), []);
    // With one more member, redundancy is not sufficient.
    stage.disks[2].hang(Ops::ANY);
    let _ = stage.submit_read(0, 0, 1000);
    stage.pass(8);
    assert_eq!(standstills(&stage), [ArrayEventKind::MembersStalled]);
    go_on(&stage);
    stage.pass(2);
    assert_eq!(standstills(&stage), [ArrayEventKind::MembersStalledEnded]);
}

/// F44 on a degraded array: one stalled drive already exceeds the redundancy.
#[test]
fn f44_the_last_drive_that_counts_is_waited_for() {
    let mut stage = staged(Level::Raid5, 4);
    stage.fail(3).expect("covered");
    stage.disks[0].hang(Ops::ANY);
    let id = stage.begin_write(0, 200, 9);
    stage.pass(100);
    assert!(!stage.status().lost);
    go_on(&stage);
    assert_eq!(stage.result(id), Ok(()));
    assert_eq!(stage.state(0), MemberState::InSync);
    stage.verify(BLOCKS);
}

/// Removes the first `lost` members and stalls the others until the requests have waited for a minute.
fn lost_in_a_standstill(stage: &mut Stage, lost: usize, requests: Vec<Op>) {
    for disk in &stage.disks[..lost] {
        disk.plan.add(Rule::new(Ops::ANY, Effect::Fail(IoErrorKind::Gone)));
    }
    for disk in &stage.disks[lost..] {
        disk.hang(Ops::ANY);
    }
    let ids: Vec<u64> = requests.into_iter().map(|op| stage.submit(0, op)).collect();
    stage.pass(60);
    assert!(!stage.status().lost, "nothing is lost, all of it is late");
    for disk in &stage.disks[lost..] {
        disk.answer();
    }
    for id in ids {
        assert_eq!(stage.answer(id).result.map_err(|error| error.kind), Ok(()));
    }
    for member in 0..stage.disks.len() {
        let out = stage.state(member) != MemberState::InSync;
        assert_eq!(out, member < lost, "member {member}");
    }
    stage.verify(BLOCKS);
}

/// The history of the bug: after a controller reset some drives are absent, which is detected immediately, and the
/// others stall. The labels that record the absent members wait for the stalled ones, and until then the absent members
/// did not count: the others were failed after eight seconds as if redundancy covered them, and the array failed.
#[test]
fn f44_members_whose_failure_is_not_recorded_yet_count() {
    for (level, members, lost) in [(Level::Raid6, 4, 2), (Level::Raid5, 3, 1), (Level::Raid1, 2, 1)]
    {
        // All parts of a write are in progress at once: no failure is handled before all parts complete.
        let mut stage = staged(level, members);
        let write = stage.write_op(0, 200, 9);
        stage.expect(0, 200, 9);
        lost_in_a_standstill(&mut stage, lost, vec![write]);
        // A read fails independently: its member goes out, and only the labels wait.
        let mut stage = staged(level, members);
        let reads = (0..32).map(|at| stage.read_op(at * 8, 8)).collect();
        lost_in_a_standstill(&mut stage, lost, reads);
    }
}

/// F44 during a rebuild: the replacement does not hold all data yet, so that each drive that it is filled from exceeds
/// the redundancy.
#[test]
fn f44_a_drive_that_a_rebuild_needs_is_waited_for() {
    let mut stage = staged(Level::Raid5, 4);
    stage.fail_and_replace(3);
    stage.disks[0].hang(Ops::ANY);
    let id = stage.begin_write(0, 200, 9);
    stage.pass(60);
    assert!(!stage.status().lost);
    let state = stage.state(3);
    assert!(matches!(state, MemberState::Rebuilding { .. }), "the rebuild needs it: {state}");
    go_on(&stage);
    assert_eq!(stage.result(id), Ok(()));
    assert_eq!(stage.state(0), MemberState::InSync);
    stage.verify_rebuilt(BLOCKS);
}

/// F44 without an end: after five minutes the array stops, and its labels stay those of the last consistent state.
#[test]
fn f44_a_standstill_without_end_stops_the_array_and_records_nothing() {
    let mut stage = staged(Level::Raid6, 6);
    stand_still(&stage);
    let id = stage.submit_read(0, 0, 100);
    stage.pass(290);
    assert!(!stage.status().lost, "there is time left");
    stage.pass(20);
    assert!(stage.status().lost);
    assert_eq!(standstills(&stage), [ArrayEventKind::MembersStalled], "it has not ended well");
    assert!(stage.result(id).is_err());
    // The next start waits for the outstanding completions of the drives.
    let mut drained = stage.array().begin_drain();
    stage.pass(60);
    drained.retain(|shard| shard.try_recv().is_err());
    assert!(!drained.is_empty(), "they still owe answers");
    go_on(&stage);
    stage.pass(1);
    assert!(drained.iter().all(|shard| shard.try_recv().is_ok()), "they owe nothing");
    stage.again(STRICTLY);
    for member in 0..6 {
        assert_eq!(stage.state(member), MemberState::InSync, "member {member}");
    }
    stage.verify(BLOCKS);
}

/// Errors are counted by drive and by reason, and the counters are reset when another drive fills the slot.
#[test]
fn errors_are_counted_by_member_and_reason() {
    let mut stage = staged(Level::Raid6, 6);
    let (victim, byte) = stage.home(0);
    let bad = stage.on_disk(byte, 1);
    let medium = Effect::Fail(IoErrorKind::Medium);
    stage.disks[victim].plan.add(Rule::new(Ops::READ, medium).within(bad).limit(1));
    assert!(stage.read(0, 0, 1).is_ok());
    let seen = health(&stage, victim);
    assert_eq!((seen.medium, seen.repaired, seen.device), (1, 1, 0));
    let device = Effect::Fail(IoErrorKind::Device);
    stage.disks[victim].plan.add(Rule::new(Ops::WRITE, device));
    assert_eq!(stage.write(0, 1, 5), Ok(()));
    assert_eq!(stage.state(victim), MemberState::Faulty);
    assert!(health(&stage, victim).device >= 1);
    stage.replace(victim as u8).expect("replaceable");
    assert_eq!(health(&stage, victim).medium, 0, "those were the old drive's");
    stage.verify_rebuilt(BLOCKS);
}

/// With steering turned off, no member sits out: every read waits for the slow drive and returns its data.
#[test]
fn without_steering_every_read_waits_for_a_slow_drive() {
    for (level, members) in [(Level::Raid6, 6), (Level::Raid1, 2)] {
        let mut set = Set::new(level, members);
        set.options.steer = false;
        let mut stage = set.filled(BLOCKS, 100, 3);
        // Of two copies, reads use the first one, even if it is slow.
        let (slow, byte) = stage.home(0);
        slow_reads(&stage, slow, 20);
        load(&mut stage, 8);
        assert!(!health(&stage, slow).sitting_out);
        assert_eq!(health(&stage, slow).sit_outs, 0);
        stage.watch();
        assert!(load(&mut stage, 1) >= 20);
        let reads = |seen: &crate::stage::Seen| seen.op == 'r' && seen.drive == slow;
        assert!(stage.seen().iter().any(|seen| reads(seen) && seen.byte == byte));
        stage.verify(BLOCKS);
    }
}

/// A drive may need a command for each few hundred kilobytes that it zeroes, which takes many minutes for the whole
/// drive. The operator who adds it does not wait: the array is initialized in the background after its start instead.
#[test]
fn a_drive_that_is_slow_to_zero_is_left_to_the_initialization() {
    let prepared = |millis: u64| {
        let ram = RamDevice::new(16 << 21, BlockSize::B512);
        let plan = FaultPlan::new(1);
        let delay = Effect::Delay(Nanos(millis * Nanos::MILLI.0));
        let rule = plan.add(Rule::new(Ops::DEALLOCATE, delay));
        let drive = Drive { device: Arc::new(Faulty::new(ram, plan.clone())), path: "d".into() };
        let mut now = Nanos(0);
        let mut wait = || {
            now = now.plus(Nanos(50 * Nanos::MILLI.0));
            Some(now)
        };
        let zeroed = prepare_drive(&drive, Uuid([7; 16]), &mut wait);
        (zeroed.expect("it only is slow"), plan.struck(rule).expect("the rule is there"))
    };
    let (zeroed, all) = prepared(1);
    assert!(zeroed && all == 7, "{all} requests for 16 GiB, from 256 MiB on");
    let (zeroed, some) = prepared(2000);
    assert!(!zeroed && (3..6).contains(&some), "{some} requests of 2 s each");
}

/// Linux executes the deallocations of a drive sequentially. Far more deallocations than fit into the time limit cost
/// no member: the limit counts from the submission to the drive, and reads do not queue behind them.
#[test]
fn many_deallocations_of_a_slow_drive_cost_no_member() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid6, 6)] {
        let mut stage = staged(level, members);
        let slow = Effect::OneByOne(Nanos(2 * Nanos::SECOND.0));
        stage.disks[0].plan.add(Rule::new(Ops::DEALLOCATE, slow));
        let step = std::mem::replace(&mut stage.step, Nanos(10 * Nanos::MILLI.0));
        let whole = 3 * 4 * 32;
        let trims: Vec<_> = (0..16)
            .map(|n| {
                let range = LbaRange::new(Lba(n * whole), whole);
                stage.submit(0, Op::Deallocate { range })
            })
            .collect();
        let begun = stage.now;
        for at in 0..20 {
            let id = stage.submit_read(0, 1600 + at * 16, 4);
            assert!(bytes_of(stage.answer(id)).is_ok(), "{level:?}");
        }
        assert!(stage.now.since(begun) < Nanos::SECOND, "{level:?}: reads wait behind them");
        for trim in trims {
            assert_eq!(stage.result(trim), Ok(()), "{level:?}");
        }
        let took = stage.now.since(begun);
        assert!(took > Nanos(20 * Nanos::SECOND.0), "{level:?}: one after another, {took:?}");
        stage.step = step;
        assert_eq!(stage.state(0), MemberState::InSync, "{level:?}");
        assert_eq!(health(&stage, 0).timeouts, 0, "{level:?}");
    }
}
