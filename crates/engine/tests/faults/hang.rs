//! Tests of drives that never respond, or respond much later.

use strake_block::{DeallocateReads, DeviceKind, IoErrorKind, Op};
use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::{Consistency, MemberCause};
use strake_raid::{Level, MemberState};
use strake_units::{MemberIndex, Nanos};

use crate::stage::{DEGRADED, Set, Stage, bytes_of};

/// Returns a RAID 6 with data and a hung member, with the member and its first array block.
fn hung(set: Set) -> (Stage, usize) {
    let stage = set.filled(2000, 100, 3);
    let (victim, _) = stage.home(0);
    stage.disks[victim].hang(Ops::ANY);
    (stage, victim)
}

#[test]
fn reads_and_writes_in_flight_survive_a_drive_that_hangs() {
    let (mut stage, victim) = hung(Set::new(Level::Raid6, 6));
    let mut ids = Vec::new();
    for at in (0..1000).step_by(10) {
        let op = stage.read_op(at, 10);
        ids.push((at, stage.submit(0, op)));
    }
    let mut writes = Vec::new();
    for at in (1000..2000).step_by(20) {
        let op = stage.write_op(at, 5, at);
        writes.push(stage.submit(0, op));
        stage.expect(at, 5, at);
    }
    stage.pass(7);
    assert_eq!(stage.state(victim), MemberState::InSync, "it has 8 seconds");
    stage.pass(3);
    stage.done(writes);
    for (at, id) in ids {
        let bytes = bytes_of(stage.answer(id)).expect("there is redundancy");
        assert_eq!(bytes, stage.model[(at as usize) << 9..(at as usize + 10) << 9], "block {at}");
    }
    assert_eq!(stage.state(victim), MemberState::Faulty);
    stage.verify(2000);
    // The hung I/Os are executed long after other writes to the same blocks.
    stage.fill(2000, 100, 77);
    stage.disks[victim].answer();
    stage.rounds(1000);
    stage.verify(2000);
    stage.restart();
    stage.verify(2000);
}

/// The history of the bug: a member that hung during the stop of its array was not recorded as hung, and was not
/// re-added by the next daemon.
#[test]
fn a_stop_reports_a_member_that_hangs_meanwhile() {
    let (mut stage, victim) = hung(Set::new(Level::Raid6, 6));
    let quiet = stage.array().begin_quiesce();
    stage.pass(1);
    assert!(quiet.iter().all(|quiet| quiet.try_recv().is_ok()), "nothing was under way");
    let stopping = stage.array().begin_stop();
    stage.pass(20);
    stage.asked(stopping).expect("redundancy covers it");
    let member = &stage.status().members[victim];
    assert_eq!(member.state, MemberState::Faulty);
    assert_eq!(member.cause, Some(MemberCause::Error(IoErrorKind::Timeout)));
}

/// Hundreds of late completions of the old device must not count against the new device, and must not change it.
#[test]
fn a_replacement_is_not_blamed_for_the_drive_before_it() {
    let set = Set { depth: 1024, ..Set::new(Level::Raid6, 6) };
    let (mut stage, victim) = hung(set);
    let old = stage.disks[victim].clone();
    let mut ids = Vec::new();
    // The number exceeds the queue of the member, so that some reads wait outside.
    for at in 0..600 {
        ids.push(stage.submit_read(0, at % 30, 1));
        stage.rounds(1);
    }
    stage.fail(victim as u8).expect("allowed");
    stage.pass(5);
    stage.replace(victim as u8).expect("replaceable");
    stage.fill(2000, 100, 78);
    // The turns are a quarter of a second apart, because a rebuild with client I/O pauses in every second turn.
    stage.pass(160);
    stage.done(ids);
    assert_eq!(stage.state(victim), MemberState::InSync, "the time-outs were its predecessor's");
    old.answer();
    stage.rounds(1000);
    stage.verify(2000);
    stage.check_parity(15);
    stage.stop().expect("a clean stop");
}

/// The history of the bug: a write was planned while the member was in use, and was issued after the member went out,
/// to a drive that no longer responded. The time limit of that write was counted against the drive that replaced it:
/// the new drive received no more I/O, and the replacement failed at the write of its label (simulator, seed
/// 205666569956360). Now the drive is closed.
#[test]
fn a_write_planned_before_its_member_went_out_does_not_reach_its_drive() {
    for cores in [1, 2] {
        let set = Set { cores, consistency: Consistency::Resync, ..Set::new(Level::Raid6, 6) };
        let mut stage = set.filled(2000, 100, 3);
        let (victim, byte) = stage.home(0);
        let old = stage.disks[victim].clone();
        let write = Rule::new(Ops::WRITE, Effect::Hang).within(stage.on_disk(byte, 32));
        let write = old.plan.add(write);
        let others: Vec<usize> = (0..6).filter(|at| *at != victim).collect();
        others.iter().for_each(|at| stage.disks[*at].hang(Ops::READ));
        // The write covers two strips of four, so that the other strips are read first.
        let id = stage.begin_write(0, 64, 8);
        stage.rounds(100);
        stage.fail(victim as u8).expect("redundancy is left");
        assert_eq!(old.plan.struck(write), Some(0));
        others.iter().for_each(|at| stage.disks[*at].answer());
        stage.rounds(100);
        assert_eq!(old.plan.struck(write), Some(0), "no core uses the drive any more");
        stage.replace(victim as u8).expect("the new drive works");
        stage.pass(40);
        assert_eq!(stage.result(id), Ok(()));
        assert_eq!(stage.state(victim), MemberState::InSync, "the old drive hung, not this one");
        old.answer();
        stage.rounds(1000);
        stage.verify(2000);
        stage.check_parity(15);
        stage.stop().expect("a clean stop");
    }
}

/// Two members hang at the same time while writes wait at each of them: labels must still be written.
#[test]
fn two_hanging_members_do_not_wait_for_each_other() {
    let set = Set { depth: 1024, ..Set::new(Level::Raid6, 6) };
    let (mut stage, victim) = hung(set);
    let second = (victim + 1) % 6;
    stage.disks[second].hang(Ops::ANY);
    let mut ids = Vec::new();
    for at in 0..900 {
        let at = at * 2;
        let op = if at % 4 == 0 { stage.read_op(at, 1) } else { stage.write_op(at, 1, at) };
        if at % 4 != 0 {
            stage.expect(at, 1, at);
        }
        ids.push(stage.submit(0, op));
    }
    stage.pass(100);
    stage.done(ids);
    assert_eq!(stage.state(victim), MemberState::Faulty);
    assert_eq!(stage.state(second), MemberState::Faulty);
    stage.verify(2000);
}

/// A slow drive with a long queue is not unresponsive.
#[test]
fn waiting_in_line_is_not_hanging() {
    let mut profile = strake_dev_mem::Profile::INSTANT;
    profile.read_iops = 20;
    let set = Set { profile: Some(profile), depth: 1024, ..Set::new(Level::Raid0, 2) };
    let mut stage = set.build().expect("sound");
    let ids: Vec<u64> = (0..1000).map(|at| stage.submit_read(0, at, 1)).collect();
    stage.step = Nanos(10_000_000);
    stage.rounds(6000);
    stage.done(ids);
    assert!(!stage.status().lost);
    assert_eq!(stage.run(0, Op::Flush), Ok(()));
}

/// The history of the bug: a write hung, its member went out, and the drive recovered and was re-added. Then the drive
/// executed the write over newer data, and a read returned data that had been overwritten long before (simulator, seed
/// 1000012).
#[test]
fn f15_a_drive_that_owes_an_answer_is_not_taken_back() {
    for cores in [1, 2] {
        let mut stage = Set { cores, ..Set::new(Level::Raid6, 6) }.filled(2000, 100, 3);
        let (victim, _) = stage.home(0);
        let slot = victim as u8;
        stage.disks[victim].hang(Ops::WRITE);
        let id = stage.begin_write(0, 1, 5);
        stage.pass(35);
        assert_eq!(stage.result(id), Ok(()));
        assert_eq!(stage.state(victim), MemberState::Faulty);
        stage.disks[victim].plan.clear();
        stage.step = Nanos(1_000_000);
        if let Err(error) = stage.readd(slot) {
            assert!(error.what.contains("has not answered"), "{}", error.what);
            assert_eq!(stage.state(victim), MemberState::Faulty);
        } else {
            // The late write makes a re-add of the drive wrong.
            stage.healthy();
            stage.fill(2000, 100, 77);
            stage.disks[victim].plan.release();
            stage.rounds(1000);
            stage.verify(2000);
            panic!("it was taken back");
        }
        stage.fill(2000, 100, 78);
        // A re-add that is requested shortly before the drive responds only has to wait.
        let label = stage.label(&stage.disks[victim]);
        let drive = stage.disks[victim].drive.clone();
        let again = stage.array().begin_readd(MemberIndex(slot), &drive, &label);
        let mut again = again.expect("it is the member");
        stage.rounds(10);
        assert!(again.poll().is_none(), "it is waited for");
        stage.disks[victim].plan.release();
        let mut answer = None;
        stage.until("taking back", |_| {
            answer = again.poll();
            answer.is_some()
        });
        answer.expect("waited for").expect("it owes nothing any more");
        stage.verify_rebuilt(2000);
        stage.check_parity(15);
        stage.stop().expect("a clean stop");
    }
}

/// Small writes use all memory, every task waits for memory, and then all drives fail: every request completes,
/// although no task is free for this work.
#[test]
fn everything_is_answered_when_all_goes_while_memory_is_waited_for() {
    let mut set = Set::new(Level::Raid6, 6);
    set.options.scratch_bytes = 0;
    set.strip = 4096;
    set.depth = 1024;
    let mut stage = set.build().expect("sound");
    stage.step = Nanos(1000);
    // The regions are then marked, so that requests wait only for memory.
    for at in 0..500 {
        stage.write(at * 32, 1, at).expect("all is well");
    }
    for disk in &stage.disks {
        disk.hang(Ops::WRITE);
    }
    let ids: Vec<u64> = (0..500).map(|at| stage.submit_write(0, at * 32, 1, at)).collect();
    stage.rounds(200);
    for disk in &stage.disks {
        disk.plan.vanish();
    }
    for id in ids {
        assert!(stage.result(id).is_err());
    }
    assert!(stage.status().lost);
}

/// The history of the bug: a resync used all memory for writes to one drive when that drive hung. The drive went out,
/// but its memory was not available until the drive responded: writes to bands in resync and the stop of the array
/// waited for it. (Seeds 6463 and 8900 of the simulator.)
#[test]
fn memory_that_a_drive_keeps_which_hangs_is_replaced() {
    let mut set = Set::new(Level::Raid1, 2);
    set.options.scratch_bytes = 0;
    set.deallocate = DeallocateReads::Unspecified;
    let mut stage = set.build().expect("sound");
    stage.disks[1].hang(Ops::WRITE);
    stage.pass(1);
    let ids: Vec<u64> = (0..2000).step_by(40).map(|at| stage.begin_write(at, 40, at)).collect();
    stage.pass(10);
    assert_eq!(stage.state(1), MemberState::Faulty);
    for id in ids {
        assert_eq!(stage.answers.get(&id).map(|answer| answer.result), Some(Ok(())));
    }
    stage.verify(2000);
    // The late completions return the memory, and no memory is missing when the array stops.
    stage.disks[1].answer();
    stage.rounds(1000);
    stage.fill(2000, 100, 5);
    stage.stop().expect("a clean stop");
    stage.again(DEGRADED);
    stage.verify(2000);
}

/// The history of the bug: writes that a failed member missed were acknowledged only after the flush of another member,
/// because the task of the labels waited for this flush. Further members that the operator failed also waited for it.
#[test]
fn a_flush_that_hangs_does_not_hold_up_what_other_members_fail() {
    let mut stage = Set { cached: true, ..Set::new(Level::Raid73, 7) }.filled(2000, 100, 3);
    let (slow, asked, later, broken) = (0, 1, 2, stage.home(0).0.max(3));
    stage.disks[slow].hang(Ops::FLUSH);
    let mut first = stage.array().begin_fail(MemberIndex(asked)).expect("allowed");
    stage.pass(2);
    assert!(first.poll().is_none(), "marks are cleared before, which takes a flush");
    let failing = Effect::Fail(IoErrorKind::Device);
    stage.disks[broken].plan.add(Rule::new(Ops::WRITE, failing));
    let ids: Vec<u64> = (0..1000).step_by(50).map(|at| stage.begin_write(at, 50, at)).collect();
    let mut second = stage.array().begin_fail(MemberIndex(later)).expect("allowed");
    stage.pass(3);
    assert_eq!(stage.state(slow), MemberState::InSync, "its flush still has time");
    assert_eq!(stage.state(broken), MemberState::Faulty);
    stage.done(ids);
    second.poll().expect("it got through").expect("there is redundancy for two");
    assert_eq!(stage.state(usize::from(later)), MemberState::Faulty);
    assert!(first.poll().is_none(), "this one waits for the flush");
    stage.disks[slow].answer();
    stage.until("the first one", |_| first.poll().is_some());
    stage.verify(2000);
    stage.restart();
    stage.verify(2000);
}

/// The history of the bug: a flush was in progress during a rebuild when the drive of another member vanished. This
/// failure was refused, because the array needed the member, but the member counted as failed from then on: the next
/// hung drive was one too many.
#[test]
fn a_failure_that_is_refused_during_a_flush_does_not_count_later() {
    let mut stage = Set { cached: true, ..Set::new(Level::Raid5, 4) }.filled(2000, 100, 3);
    let (needed, rebuilt, slow, later) = (0, 1, 2, 3);
    stage.fail(rebuilt).expect("redundancy is left");
    stage.disks[slow].hang(Ops::FLUSH);
    stage.replace(rebuilt).expect("it is out");
    stage.pass(2);
    let error = stage.vanish(needed).expect_err("the rebuild needs it");
    assert!(error.what.contains("would lose data without it"), "{error}");
    assert!(matches!(stage.state(usize::from(rebuilt)), MemberState::Rebuilding { .. }));
    stage.disks[slow].answer();
    stage.healthy();
    stage.disks[later].hang(Ops::ANY);
    let id = stage.begin_write(0, 500, 8);
    stage.pass(10);
    assert_eq!(stage.state(later), MemberState::Faulty, "redundancy covers it");
    assert_eq!(stage.result(id), Ok(()));
    stage.verify(2000);
}

/// I/Os that were submitted to a drive shortly before it went out are failed together with it. A task with several
/// consecutive I/Os therefore waits for only one time limit.
#[test]
fn a_drive_that_hangs_is_waited_for_once() {
    let (mut stage, victim) = hung(Set::new(Level::Raid6, 6));
    let first = stage.submit_read(0, 0, 10);
    let second = stage.begin_write(1000, 500, 9);
    stage.pass(6);
    let third = stage.begin_write(0, 500, 8);
    stage.pass(3);
    assert_eq!(stage.state(victim), MemberState::Faulty);
    for id in [first, second, third] {
        assert!(stage.answers.contains_key(&id), "answered within nine seconds of the first");
    }
    stage.verify(2000);
}

/// The history of the bug: a core failed a drive to which the leader was writing a page of the bitmap. The failure of
/// the drive could not be recorded before the leader also failed it. Then the write that had waited for the page
/// continued to the same drive on a third core, and waited once more: 60 s for a remote drive (simulator, seed
/// 202611262336253).
#[test]
fn a_drive_that_one_core_gave_up_is_not_waited_for_by_the_others() {
    // The first blocks of the regions of the cores: that of the leader, and the other two.
    let [first, second, third] = [0, 16 << 11, 32 << 11];
    for region in [first, third] {
        for seconds in [1, 6] {
            let set = Set { cores: 3, disk_bytes: 32 << 20, ..Set::new(Level::Raid5, 4) };
            let mut stage = Set { queues: vec![0, 1], ..set }.build().expect("sound");
            stage.pass(10);
            let (victim, _) = stage.home(second);
            stage.disks[victim].hang(Ops::ANY);
            let read = stage.submit_read(1, second, 10);
            stage.pass(seconds);
            let write = stage.submit_write(0, region, 500, 9);
            stage.pass(7 - seconds);
            assert!(stage.answers.contains_key(&read), "reconstructed");
            assert_eq!(stage.state(victim), MemberState::InSync, "it has 8 seconds");
            stage.pass(4);
            assert_eq!(stage.state(victim), MemberState::Faulty);
            let once = stage.answers.contains_key(&write);
            assert!(once, "written at {region}, {seconds} s after the read");
        }
    }
}

/// A file shares its drive with other files, and a remote drive may reconnect over another path: each kind of drive has
/// its own limit.
#[test]
fn the_limit_follows_the_kind_of_the_drive() {
    for (kind, seconds) in
        [(DeviceKind::Block, 8), (DeviceKind::File, 15), (DeviceKind::Remote, 30)]
    {
        let set = Set { kind, ..Set::new(Level::Raid6, 6) };
        let (mut stage, victim) = hung(set);
        let id = stage.begin_write(0, 500, 8);
        stage.pass(seconds - 1);
        assert_eq!(stage.state(victim), MemberState::InSync, "{kind:?}");
        stage.pass(2);
        assert_eq!(stage.state(victim), MemberState::Faulty, "{kind:?}");
        assert_eq!(stage.result(id), Ok(()));
        stage.verify(2000);
    }
}

/// A requested limit is used.
#[test]
fn a_limit_that_was_asked_for_is_kept() {
    let mut set = Set::new(Level::Raid6, 6);
    set.options.io_limits.block = Nanos::SECOND.times(20);
    let (mut stage, victim) = hung(set);
    let id = stage.begin_write(0, 500, 8);
    stage.pass(19);
    assert_eq!(stage.state(victim), MemberState::InSync);
    stage.pass(2);
    assert_eq!(stage.state(victim), MemberState::Faulty);
    assert_eq!(stage.result(id), Ok(()));
    stage.verify(2000);
}
