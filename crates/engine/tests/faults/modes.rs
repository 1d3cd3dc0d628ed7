//! Tests of the guarantees of each consistency mode: every cell of the table of docs/guarantees.md.
//!
//! Every test has one small write in progress on a RAID 5 at the crash, and a bystander: blocks in the same columns
//! that were not written. The part of the write for one member has not reached the drive.

use strake_block::DeallocateReads;
use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::{AssemblePolicy, Consistency, Maintenance, Outcome};
use strake_raid::{Level, MemberState};

use crate::stage::{DATA, DEGRADED, LOSSY, STRICTLY, Set, Stage, needs_consent};

/// The written blocks: first block and number of blocks.
const WRITE: (u64, u64) = (5, 3);

/// Blocks of a strip.
const STRIP: u64 = 32;

/// The number of all written blocks.
const WRITTEN: u64 = 2000;

/// The guarantee of a mode after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// Every block is unchanged, or new if it was being written; parity is consistent.
    Everything,
    /// The array does not start, and the refusal lists the regions. If the operator accepts the loss, only columns that
    /// were being written may have other content.
    Named,
    /// The array starts, and blocks in the columns that were being written may be wrong as soon as a member is out.
    Unsaid,
}

use Consistency::{None as Careless, Resync, Safe, Strict};
use Holds::{Everything, Named, Unsaid};

/// Returns the member with the bystander.
fn bystander(stage: &Stage) -> usize {
    stage.home(WRITE.0 + STRIP).0
}

fn built(mode: Consistency) -> Stage {
    let set = Set { consistency: mode, ..Set::new(Level::Raid5, 4) };
    set.filled(WRITTEN, 170, 3)
}

/// Puts the member with the bystander out of use, and waits until a mode with a log relies on the log.
fn take_out(stage: &mut Stage) -> usize {
    let out = bystander(stage);
    stage.fail(out as u8).expect("allowed");
    let logs = matches!(stage.set.consistency, Safe | Strict);
    stage.until("the log", |stage| !logs || stage.status().logged.contains(out));
    out
}

/// Crashes during the write. The part of the write for `stuck` has not reached the drive.
fn cut_short(stage: &mut Stage, stuck: usize) {
    stage.cut_write(stuck, WRITE.0, WRITE.1);
    stage.down();
}

fn lose(stage: &Stage, member: usize) {
    stage.disks[member].vanish();
}

/// Starts the array after the crash, and accepts only a loss that `holds` requires.
fn start(stage: &mut Stage, policy: AssemblePolicy, holds: Holds) {
    match (stage.find(policy), holds) {
        (Outcome::Ready(assembled), Everything | Unsaid) => stage.start(*assembled),
        (Outcome::Refused { what, remedy, .. }, Named) => {
            assert!(what.contains("0+") && needs_consent(remedy), "{what}");
            stage.again(LOSSY);
        }
        (Outcome::Ready(_), Named) => panic!("it starts"),
        (Outcome::Refused { what, .. } | Outcome::Waiting { what, .. }, _) => panic!("{what}"),
    }
}

/// Reads all blocks: outside of the columns that were being written, no block may differ, and blocks that were being
/// written are old or new. Returns true if the bystander is unchanged.
fn read_all(stage: &mut Stage) -> bool {
    let block = 1_usize << stage.size.shift();
    let new = Stage::pattern(WRITE.1 as usize * block, 99);
    let (mut at, mut sound) = (0, true);
    while at < WRITTEN {
        let found = stage.read(0, at, 1).expect("readable");
        let old = &stage.model[at as usize * block..(at as usize + 1) * block];
        let columns = WRITE.0..WRITE.0 + WRITE.1;
        let column = at % STRIP;
        match at < 3 * STRIP && columns.contains(&column) {
            true if columns.contains(&at) => {
                let nth = (at - WRITE.0) as usize * block;
                sound &= found == old || found == new[nth..nth + block];
            }
            true => sound &= found == old,
            false => assert!(found == old, "block {at} was not being written"),
        }
        at += 1;
    }
    sound
}

/// Reads all blocks with all members, and without each member in turn. Returns false if a block in the columns that
/// were being written is neither old nor new.
fn sound_without_any(stage: &mut Stage) -> bool {
    let mut sound = read_all(stage);
    let out = |stage: &Stage| (0..4).find(|at| stage.state(*at) != MemberState::InSync);
    match out(stage) {
        Some(member) => stage.replace(member as u8).expect("replaceable"),
        None => {
            let member = bystander(stage) as u8;
            stage.fail(member).expect("allowed");
            sound &= read_all(stage);
            stage.replace(member).expect("replaceable");
        }
    }
    stage.healthy();
    sound & read_all(stage)
}

fn resynced(stage: &mut Stage) {
    stage.until("resynchronizing", |stage| stage.status().resync.is_none());
}

/// Runs `story` for each member that may lack its part, and compares the result with the guarantee of each mode. If a
/// mode guarantees nothing, an error must occur; otherwise the table is too weak.
fn check(promises: [(Consistency, Holds); 4], story: impl Fn(&mut Stage, usize, Holds) -> bool) {
    for (mode, holds) in promises {
        let mut harmed = 0;
        for stuck in 0..4 {
            let mut stage = built(mode);
            let sound = story(&mut stage, stuck, holds);
            assert!(sound || holds != Everything, "{mode:?}, {stuck} stuck");
            if holds == Everything {
                stage.check_parity(4);
            }
            harmed += u32::from(!sound);
        }
        assert!(harmed > 0 || holds != Unsaid, "{mode:?} holds more than {holds:?}");
    }
}

#[test]
fn a_crash_of_a_healthy_array() {
    let promises =
        [(Resync, Everything), (Safe, Everything), (Strict, Everything), (Careless, Unsaid)];
    check(promises, |stage, stuck, holds| {
        cut_short(stage, stuck);
        start(stage, STRICTLY, holds);
        let sound = read_all(stage);
        resynced(stage);
        sound_without_any(stage) & sound
    });
}

#[test]
fn a_crash_while_degraded() {
    let promises = [(Resync, Named), (Safe, Everything), (Strict, Everything), (Careless, Unsaid)];
    check(promises, |stage, stuck, holds| {
        let out = take_out(stage);
        if stuck == out {
            return true;
        }
        cut_short(stage, stuck);
        start(stage, STRICTLY, holds);
        sound_without_any(stage)
    });
}

/// The member may return: the array does not start without it before a decision of the operator.
#[test]
fn a_crash_that_costs_a_member() {
    let promises = [(Resync, Named), (Safe, Named), (Strict, Everything), (Careless, Unsaid)];
    check(promises, |stage, stuck, holds| {
        let lost = bystander(stage);
        cut_short(stage, stuck);
        lose(stage, lost);
        assert!(matches!(stage.find(STRICTLY), Outcome::Waiting { .. }));
        start(stage, DEGRADED, holds);
        stage.disks[lost].plan.clear();
        sound_without_any(stage)
    });
}

/// The next start completes a recovery that another crash interrupted.
#[test]
fn a_crash_while_a_crash_is_made_up_for() {
    let promises =
        [(Resync, Everything), (Safe, Everything), (Strict, Everything), (Careless, Unsaid)];
    for rounds in [0, 3, 20] {
        check(promises, |stage, stuck, holds| {
            cut_short(stage, stuck);
            for _ in 0..3 {
                start(stage, STRICTLY, holds);
                stage.rounds(rounds);
                stage.down();
            }
            start(stage, STRICTLY, holds);
            let sound = read_all(stage);
            resynced(stage);
            sound_without_any(stage) & sound
        });
    }
}

/// The write is to a stripe that the new member already has or does not have yet.
#[test]
fn a_crash_during_a_rebuild() {
    let promises = [(Resync, Named), (Safe, Everything), (Strict, Everything), (Careless, Unsaid)];
    for rebuilt in [false, true] {
        check(promises, |stage, stuck, holds| {
            let out = take_out(stage);
            stage.array().set_maintenance(Maintenance { priority: 50, paused: !rebuilt });
            stage.replace(out as u8).expect("replaceable");
            if rebuilt {
                let lacked = |stage: &Stage| stage.status().members[out].stale_bytes;
                let all = lacked(stage);
                stage.until("a region rebuilt", |stage| lacked(stage) < all);
                stage.array().set_maintenance(Maintenance { priority: 50, paused: true });
            }
            assert!(matches!(stage.state(out), MemberState::Rebuilding { .. }));
            cut_short(stage, stuck);
            start(stage, STRICTLY, holds);
            let sound = read_all(stage);
            stage.healthy();
            sound_without_any(stage) & sound
        });
    }
}

/// The regions in doubt remain in doubt, and reads of a member that is out may return wrong data without an error.
/// Another crash reports this state; a clean shutdown does not. If writes are logged, no region is in doubt.
#[test]
fn a_member_lost_during_the_resync_after_a_crash() {
    let promises = [(Resync, Unsaid), (Safe, Unsaid), (Strict, Everything), (Careless, Unsaid)];
    for orderly in [false, true] {
        check(promises, |stage, stuck, holds| {
            cut_short(stage, stuck);
            start(stage, STRICTLY, holds);
            stage.array().set_maintenance(Maintenance { priority: 50, paused: true });
            stage.rounds(10);
            let doubtful = matches!(stage.set.consistency, Resync | Safe);
            assert_eq!(stage.status().resync.is_some(), doubtful);
            let lost = bystander(stage);
            stage.fail(lost as u8).expect("allowed");
            let sound = read_all(stage);
            if orderly {
                stage.stop().expect("it stops in order");
            }
            stage.down();
            let holds = if doubtful { Named } else { holds };
            start(stage, STRICTLY, holds);
            sound_without_any(stage) & sound
        });
    }
}

#[test]
fn an_orderly_stop_while_degraded() {
    for mode in [Resync, Safe, Strict, Careless] {
        for parity_out in [false, true] {
            let mut stage = built(mode);
            let out = if parity_out { stage.home(3 * STRIP).0 } else { take_out(&mut stage) };
            if parity_out {
                stage.fail(out as u8).expect("allowed");
            }
            assert_eq!(stage.write(WRITE.0, WRITE.1, 99), Ok(()));
            stage.stop().expect("it stops in order");
            assert_eq!(stage.again(STRICTLY), 0, "{mode:?}: nothing is in doubt");
            stage.verify(WRITTEN);
            stage.replace(out as u8).expect("replaceable");
            stage.verify_rebuilt(WRITTEN);
            stage.check_parity(40);
        }
    }
}

/// No member is out and no write was in progress, so that no mode has anything to recover.
#[test]
fn a_crash_when_nothing_was_being_written() {
    for mode in [Resync, Safe, Strict, Careless] {
        for degraded in [false, true] {
            let mut stage = built(mode);
            let out = degraded.then(|| take_out(&mut stage));
            // The time is sufficient to clear the bits of the bitmap.
            stage.pass(10);
            assert_eq!(stage.again(STRICTLY), 0, "{mode:?}, {out:?} is out");
            stage.verify(WRITTEN);
            if let Some(out) = out {
                stage.replace(out as u8).expect("replaceable");
                stage.healthy();
            }
            stage.verify(WRITTEN);
            stage.check_parity(40);
        }
    }
}

/// Submits a write of the block at `at` that waits for a drive, and returns the write and the drive.
fn stuck_write(stage: &mut Stage, at: u64) -> (u64, usize) {
    let (stuck, byte) = stage.home(at);
    let place = stage.on_disk(byte, 1);
    stage.disks[stuck].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(place));
    let id = stage.submit_write(0, at, 1, 99);
    stage.rounds(100);
    (id, stuck)
}

fn let_go(stage: &mut Stage, (id, stuck): (u64, usize)) {
    stage.disks[stuck].answer();
    assert_eq!(stage.result(id), Ok(()));
}

/// The history of the bug: a rebuilding member had received all its missing data while a write was still in progress
/// that had started before another member went out. The member had to wait for this write before it became in sync,
/// because a record of the log might be replayed on it. Then the array changed to a mode without a log, and the member
/// was not checked again: its rebuild never finished. The simulator found this case.
#[test]
fn a_member_that_waits_for_the_log_is_in_sync_when_there_is_none_any_more() {
    for mode in [Resync, Careless] {
        let mut set = Set::new(Level::Raid6, 5);
        (set.disk_bytes, set.strip, set.consistency) = (84 << 20, 64 << 10, Strict);
        let mut stage = set.filled(WRITTEN, 170, 3);
        stage.fail(1).expect("allowed");
        stage.fill(WRITTEN, 50, 4);
        // The write is in a separate region, as is the next one. Member 1 lacks nothing of the next one.
        let older = stuck_write(&mut stage, 300_000);
        stage.readd(1).expect("it can come back");
        let newer = stuck_write(&mut stage, 150_000);
        let out = (2..5).find(|member| ![older.1, newer.1].contains(member)).expect("five");
        stage.fail(out as u8).expect("allowed");
        let_go(&mut stage, older);
        stage.until("everything to be copied", |stage| stage.status().members[1].stale_bytes == 0);
        stage.rounds(200);
        assert!(matches!(stage.state(1), MemberState::Rebuilding { .. }), "it waits for the write");
        let pending = stage.array().begin_set_consistency(mode);
        stage.asked(pending).expect("the array serves");
        let_go(&mut stage, newer);
        stage.until("the end", |stage| stage.state(1) == MemberState::InSync);
        stage.verify(WRITTEN);
    }
}

/// The history of the bug: a small write had its partial-write record and was in progress when a member went out and
/// the mode was changed from strict to safe. The label continued to record that member as logged, so that after a crash
/// the array started as if the log contained every write: blocks next to the written one were reconstructed from
/// inconsistent parity. The simulator found this case.
#[test]
fn a_write_with_a_partial_write_record_is_not_called_logged_when_the_mode_becomes_safe() {
    check_strict_becomes_safe(Level::Raid6, 6);
}

/// The same case with one parity, where the log contains complete records: the record did not contain the member that
/// went out later, so that it did not count. The simulator found this case.
#[test]
fn a_record_that_does_not_name_the_absent_member_is_not_relied_on_when_the_mode_becomes_safe() {
    check_strict_becomes_safe(Level::Raid5, 5);
}

fn check_strict_becomes_safe(level: Level, members: usize) {
    for stuck in 0..members {
        for out in (0..members).filter(|out| *out != stuck) {
            let set = Set { consistency: Strict, ..Set::new(level, members) };
            let mut stage = set.filled(WRITTEN, 170, 3);
            let area = strake_units::LbaRange::new(stage.on_disk(DATA, 1).start, 8192);
            stage.disks[stuck].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(area));
            stage.submit_write(0, WRITE.0, WRITE.1, 99);
            stage.rounds(300);
            stage.fail(out as u8).expect("allowed");
            let pending = stage.array().begin_set_consistency(Safe);
            stage.asked(pending).expect("the array serves");
            stage.down();
            stage.disks[stuck].plan.clear();
            if let Outcome::Ready(assembled) = stage.find(DEGRADED) {
                stage.start(*assembled);
                assert!(read_all(&mut stage), "member {out} out, {stuck} behind: not said");
            }
        }
    }
}

/// Parity was still being initialized at a crash and at a second crash. By the second crash, every new write was in the
/// log, but the write before the first crash was not, and a member is lost whose blocks can be reconstructed only from
/// parity.
#[test]
fn no_log_is_relied_on_while_parity_is_being_made() {
    for stuck in 0..4 {
        let mut set = Set::new(Level::Raid5, 4);
        set.consistency = Strict;
        set.deallocate = DeallocateReads::Unspecified;
        set.garbage = Some(0xa5);
        let mut stage = set.build().expect("sound");
        stage.array().set_maintenance(Maintenance { priority: 50, paused: true });
        stage.fill(WRITTEN, 170, 3);
        let lost = bystander(&stage);
        cut_short(&mut stage, stuck);
        assert!(matches!(stage.find(STRICTLY), Outcome::Ready(_)));
        lose(&stage, lost);
        start(&mut stage, DEGRADED, Named);
    }
}

/// The mode is changed during writes: a crash at any time finds the guarantee of the label.
#[test]
fn the_mode_can_be_changed_while_the_array_serves() {
    check_changes_of_the_mode(Level::Raid6, 6);
}

/// The history of the bug: copies have no log, and a stronger mode of copies was therefore never recorded: `none` was
/// permanent, and `safe` was lost at the next start.
#[test]
fn the_mode_of_copies_can_be_changed_while_the_array_serves() {
    check_changes_of_the_mode(Level::Raid1, 3);
    check_changes_of_the_mode(Level::Raid10, 4);
}

fn check_changes_of_the_mode(level: Level, members: usize) {
    let mut stage = Set { cores: 2, ..Set::new(level, members) }.filled(2000, 170, 3);
    for (nth, mode) in
        [Strict, Safe, Resync, Strict, Careless, Safe, Strict, Resync].into_iter().enumerate()
    {
        let mut ids = Vec::new();
        for at in (0..1000).step_by(40) {
            ids.push(stage.begin_write(at, 30, at + nth as u64));
        }
        let pending = stage.array().begin_set_consistency(mode);
        stage.asked(pending).expect("the array serves");
        stage.done(ids);
        stage.until("the mode", |stage| stage.status().consistency == mode);
        assert_eq!(stage.status().consistency_wanted, None);
        stage.again(STRICTLY);
        assert_eq!(stage.status().consistency, mode, "it outlives a crash");
        stage.until("resynchronizing", |stage| stage.status().resync.is_none());
        stage.verify(2000);
    }
}
