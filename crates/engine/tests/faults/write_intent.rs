//! The write-intent bitmap: it is set before data, and cleared after a flush. The tests crash at any point.

use strake_block::Op;
use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_engine::{AssemblePolicy, Consistency, Outcome};
use strake_raid::{Level, MemberState};

use crate::stage::{DATA, DEGRADED, STRICTLY, Seen, Set, needs_consent};

/// Bitmap pages are in the second MiB.
fn is_bitmap(seen: &Seen) -> bool {
    seen.op == 'w' && (1 << 20..2 << 20).contains(&seen.byte)
}

#[test]
fn the_bit_is_on_every_member_before_the_first_data_write_leaves() {
    let mut stage = Set::new(Level::Raid6, 6).build().expect("sound");
    stage.watch();
    assert_eq!(stage.write(5, 3, 1), Ok(()));
    let seen = stage.seen();
    let first = seen.iter().position(|s| s.op == 'w' && s.byte >= DATA).expect("data was written");
    for disk in 0..6 {
        let persisted =
            seen[..first].iter().filter(|s| is_bitmap(s) && s.done && s.drive == disk).count();
        assert_eq!(persisted, 2, "intent and written planes are on drive {disk} before data");
    }
}

/// An idle region is flushed on every member before its bit is cleared; a later crash needs no resync.
#[test]
fn an_idle_region_is_flushed_and_then_forgotten() {
    let mut stage = Set { cores: 2, ..Set::new(Level::Raid6, 6) }.build().expect("sound");
    stage.disks.iter().for_each(|disk| drop(disk.plan.clone().with_cache()));
    stage.restart();
    stage.fill(500, 50, 3);
    stage.watch();
    stage.pass(10);
    let seen = stage.seen();
    let cleared = seen.iter().position(is_bitmap).expect("the bit is cleared");
    for disk in 0..6 {
        assert!(
            seen[..cleared].iter().any(|s| s.op == 'f' && s.done && s.drive == disk),
            "drive {disk} was flushed"
        );
    }
    assert_eq!(stage.again(STRICTLY), 0, "a crash now leaves nothing to do");
    stage.verify(500);
}

/// During a write of any duration, its region is not idle: sweeps do not clear the bit.
#[test]
fn a_region_is_not_idle_while_a_write_is_under_way() {
    let mut stage = Set::new(Level::Raid5, 4).filled(100, 50, 3);
    let (member, byte) = stage.home(7);
    let delay = Effect::Delay(strake_units::Nanos(8_000_000_000));
    let rule = Rule::new(Ops::WRITE, delay).within(stage.on_disk(byte, 1));
    stage.disks[member].plan.add(rule);
    let id = stage.submit_write(0, 7, 1, 9);
    stage.pass(7);
    assert!(!stage.answers.contains_key(&id));
    assert_eq!(stage.state(member), MemberState::InSync, "slow, and no more");
    assert_eq!(stage.again(STRICTLY), 1, "the write may have been cut short");
}

/// In any phase of a sweep, no write runs in a region whose bit is not on the media.
#[test]
fn writes_race_the_sweep_and_win() {
    for offset in (0..20u64).step_by(2) {
        let mut stage = Set { cores: 2, ..Set::new(Level::Raid5, 4) }.filled(100, 50, 3);
        // The second sweep after the writes clears the bit.
        stage.step = strake_units::Nanos(500_000_000);
        stage.rounds(4);
        // The sweep that finds the region idle starts in the first of these rounds.
        stage.now = stage.now.plus(strake_units::Nanos(2_000_000_000));
        stage.step = strake_units::Nanos(1000);
        stage.rounds(offset);
        let id = stage.submit_write(0, 7, 1, offset);
        assert_eq!(stage.result(id), Ok(()));
        stage.expect(7, 1, offset);
        let regions = stage.again(STRICTLY);
        assert_eq!(regions, 1, "the write of a moment ago is dirty");
        stage.verify(100);
    }
}

/// Crashes after 0 to 42 rounds of a short history, in steps of three.
#[test]
fn a_crash_at_any_round_is_survived() {
    for rounds in (0..45).step_by(3) {
        let set = Set { cores: 1 + (rounds % 2) as u16, ..Set::new(Level::Raid6, 6) };
        let mut stage = set.filled(100, 50, 3);
        stage.submit_write(0, 40_000 >> 1, 9, 1);
        let mut pending = stage.array().begin_fail(strake_units::MemberIndex(2)).expect("a member");
        stage.rounds(rounds);
        let failed = pending.poll().is_some();
        // For any content of the label, no acknowledged write is lost.
        let policy = AssemblePolicy { accept_loss: true, ..STRICTLY };
        let regions = stage.again(policy);
        assert!(regions <= 2, "{regions} regions after {rounds} rounds");
        assert!(!failed || stage.state(2) != MemberState::InSync, "a recorded failure stays");
        stage.verify(100);
        stage.until("resynchronizing", |stage| stage.status().resync.is_none());
        if stage.state(2) == MemberState::InSync {
            stage.check_parity(8);
        }
        stage.verify(100);
    }
}

#[test]
fn a_dirty_degraded_array_is_refused_with_its_ranges() {
    let set = Set { consistency: Consistency::Resync, ..Set::new(Level::Raid5, 4) };
    let mut stage = set.filled(500, 100, 3);
    stage.fail(1).expect("allowed");
    stage.fill(100, 10, 4);
    let Outcome::Refused { what, remedy, .. } = stage.find(STRICTLY) else {
        panic!("a crash while degraded must not go unnoticed")
    };
    assert!(what.contains("0+") && needs_consent(remedy), "{what}");
    stage.again(AssemblePolicy { accept_loss: true, ..STRICTLY });
    stage.verify(500);
    stage.restart();
    stage.verify(500);
}

/// An unfinished initialization is not a crash.
#[test]
fn a_clean_stop_while_degraded_and_initializing_is_no_crash() {
    let mut set = Set::new(Level::Raid6, 6);
    set.deallocate = strake_block::DeallocateReads::Unspecified;
    set.garbage = Some(0xa5);
    set.disk_bytes = 60 << 20;
    let mut stage = set.filled(100, 10, 4);
    stage.fail(1).expect("allowed");
    assert!(stage.status().resync.is_some());
    stage.stop().expect("clean");
    assert!(stage.again(STRICTLY) > 0);
    stage.verify(100);
}

/// Drives without a deallocation guarantee are initialized in the background: parity becomes consistent, writes are
/// safe meanwhile, and a restart continues at the last position.
#[test]
fn initialization_is_safe_to_write_over_and_resumes() {
    let mut set = Set::new(Level::Raid6, 6);
    set.cores = 2;
    set.deallocate = strake_block::DeallocateReads::Unspecified;
    set.garbage = Some(0xa5);
    set.disk_bytes = 60 << 20;
    let mut stage = set.build().expect("sound");
    let total = stage.status().resync.expect("it initializes").total_bytes;
    stage.fill(3000, 13, 4);
    stage.until("some progress", |stage| {
        stage.status().resync.is_none_or(|p| p.done_bytes > total / 3)
    });
    stage.fill(2000, 170, 5);
    stage.pass(6);
    stage.stop().expect("clean");
    let left = stage.again(STRICTLY);
    assert!((left as u64) < total >> 24, "{left} regions are left");
    stage.fill(1000, 3, 6);
    stage.until("initializing", |stage| stage.status().resync.is_none());
    stage.verify(3000);
    stage.check_all_parity();
}

/// Zeroes and deallocations keep parity consistent and skip regions that were never written.
#[test]
fn zeroes_and_deallocations_keep_parity_true() {
    for level in [Level::Raid5, Level::Raid6] {
        let mut stage = Set::new(level, 6).build().expect("sound");
        let range = |at, blocks| strake_units::LbaRange::new(strake_units::Lba(at), blocks);
        stage.watch();
        assert_eq!(
            stage.run(0, Op::WriteZeroes { range: range(0, 9999), durability: Default::default() }),
            Ok(())
        );
        assert_eq!(stage.run(0, Op::Deallocate { range: range(3, 9999) }), Ok(()));
        assert_eq!(stage.seen().len(), 0, "nothing was written there");
        stage.fill(4000, 170, 4);
        for (at, blocks) in [(3, 1), (100, 1000), (1280, 32), (2000, 77)] {
            assert_eq!(
                stage.run(
                    0,
                    Op::WriteZeroes { range: range(at, blocks), durability: Default::default() }
                ),
                Ok(())
            );
            let bytes = (at as usize) << 9..(at as usize + blocks as usize) << 9;
            stage.model[bytes].fill(0);
        }
        stage.verify(4000);
        assert_eq!(stage.run(0, Op::Deallocate { range: range(2500, 1000) }), Ok(()));
        stage.check_parity(40);
        stage.verify(2500);
        let before: Vec<u8> = stage.read(0, 2500, 1000).expect("readable");
        stage.fail(2).expect("allowed");
        assert_eq!(
            stage.read(0, 2500, 1000).expect("readable"),
            before,
            "degraded reads say the same"
        );
        stage.verify(2500);
    }
}

/// If a member is lost at any single I/O of a history, including metadata, only the member is lost.
#[test]
fn a_member_may_vanish_at_any_io() {
    for nth in (1..60).step_by(4) {
        let mut stage = Set::new(Level::Raid6, 6).build().expect("sound");
        stage.disks[3].plan.add(Rule::new(Ops::ANY, Effect::Vanish).when(When::Nth(nth)));
        stage.fill(300, 50, 3);
        assert_eq!(stage.run(0, Op::Flush), Ok(()));
        if nth % 3 == 0 {
            stage.pass(6);
        }
        let _ = stage.fail(1);
        stage.fill(200, 30, 5);
        stage.verify(300);
        stage.stop().expect("a clean stop");
        stage.disks[3].plan.clear();
        stage.disks[3].plan.return_device();
        let policy = DEGRADED;
        assert_eq!(stage.again(policy), 0);
        stage.verify(300);
        stage.down();
    }
}

/// The loss also covers the last I/Os: those of the stop.
#[test]
fn a_member_may_vanish_while_stopping() {
    for nth in 1..8 {
        let mut stage = Set::new(Level::Raid6, 6).filled(300, 50, 3);
        stage.disks[3].plan.add(Rule::new(Ops::ANY, Effect::Vanish).when(When::Nth(nth)));
        stage.stop().expect("five are enough");
        stage.disks[3].plan.clear();
        stage.disks[3].plan.return_device();
        assert_eq!(stage.again(DEGRADED), 0);
        stage.verify(300);
    }
}

/// The history of the bug: a sweep had found a region idle, and waited for a flush before it cleared the mark. During
/// the flush, a new write to the region started.
#[test]
fn a_mark_that_is_asked_for_again_is_not_taken_back() {
    let mut stage = Set { cached: true, ..Set::new(Level::Raid5, 4) }.filled(500, 50, 3);
    stage.disks[0].hang(Ops::FLUSH);
    stage.pass(12);
    let data = stage.on_disk(DATA, 1000);
    stage.disks[1].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(data));
    stage.submit_write(0, 5, 90, 99);
    stage.rounds(300);
    stage.disks[0].answer();
    stage.rounds(300);
    stage.down();
    stage.disks[1].plan.clear();
    assert_eq!(stage.again(STRICTLY), 1);
}
