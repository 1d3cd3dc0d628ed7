//! Tests of records of the redo log after later changes of members or of the logged writes.

use strake_block::Op;
use strake_dev_mem::{Effect, Fate, Ops, Rule};
use strake_engine::{Maintenance, Outcome};
use strake_raid::{Level, MemberState};

use crate::redo::{check_rebuilt, degraded, until_logged, verify_old_or_new};
use crate::replace::begin;
use crate::stage::{DEGRADED, STRICTLY, Set, Stage};

/// A member was out, and a write was logged. Then all members were in sync, and a newer write was not logged. When a
/// member is out again, the array relies on the log again, which still has the older write as the newest record of its
/// blocks.
#[test]
fn a_record_from_before_writes_went_without_the_log_is_not_carried_out() {
    for again_out in [2, 4] {
        let mut stage = degraded(Set::new(Level::Raid6, 6), &[2]);
        assert_eq!(stage.write(64, 8, 300), Ok(()));
        stage.replace(2).expect("replaceable");
        stage.healthy();
        stage.rounds(300);
        assert_eq!(stage.write(60, 20, 301), Ok(()));
        stage.fail(again_out).expect("allowed");
        until_logged(&mut stage);
        assert_eq!(stage.again(STRICTLY), 0);
        stage.verify(2000);
        check_rebuilt(&mut stage, &[again_out]);
    }
}

/// A write with a record was in progress when the drive of a member was replaced. The new drive has no part of that
/// record, which must nevertheless be replayed on the other members.
#[test]
fn f03_a_record_counts_though_a_drive_has_been_replaced_since() {
    for stuck in 0..6 {
        for replaced in (0..6).filter(|replaced| *replaced != stuck) {
            let mut stage = Set::strict(Level::Raid6, 6).filled(2000, 170, 3);
            let area = stage.data_area();
            stage.disks[stuck].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(area));
            stage.submit_write(0, 35, 50, 99);
            stage.rounds(400);
            stage.fail(replaced as u8).expect("allowed");
            stage.replace(replaced as u8).expect("replaceable");
            stage.down();
            stage.disks[stuck].plan.clear();
            assert_eq!(stage.again(STRICTLY), 0, "{stuck} behind, {replaced} replaced");
            verify_old_or_new(&mut stage, 35, 50, 99);
            check_rebuilt(&mut stage, &[]);
        }
    }
}

/// While an older write is in progress, its record and all later records of the log count. Of records of the same
/// blocks, the newest determines the content.
#[test]
fn of_records_about_the_same_blocks_the_newest_counts() {
    let mut stage = degraded(Set::new(Level::Raid6, 6), &[2]);
    let (stuck, byte) = stage.home(1000);
    let place = stage.on_disk(byte, 1);
    stage.disks[stuck].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(place));
    stage.submit_write(0, 1000, 1, 99);
    stage.rounds(300);
    for seed in 100..103 {
        assert_eq!(stage.write(64, 8, seed), Ok(()));
    }
    stage.down();
    stage.disks[stuck].plan.clear();
    assert_eq!(stage.again(STRICTLY), 0);
    verify_old_or_new(&mut stage, 1000, 1, 99);
    check_rebuilt(&mut stage, &[2]);
}

/// A write from before a member went out was complete, but only in the cache of a drive, when the array started to rely
/// on the log: no record contains the write.
#[test]
fn a_log_is_relied_on_when_what_is_not_in_it_is_stable() {
    for member in 0..4 {
        let mut stage = Set { cached: true, ..Set::new(Level::Raid5, 4) }.filled(2000, 170, 3);
        assert_eq!(stage.run(0, Op::Flush), Ok(()));
        let (stuck, byte) = stage.home(5);
        if member == stuck {
            continue;
        }
        let place = stage.on_disk(byte, 3);
        stage.disks[stuck].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(place));
        let id = stage.submit_write(0, 5, 3, 99);
        stage.rounds(300);
        stage.fail(member as u8).expect("allowed");
        stage.disks[stuck].answer();
        assert_eq!(stage.result(id), Ok(()));
        until_logged(&mut stage);
        stage.down();
        stage.disks[stuck].plan.power_cut_with(|_| Fate::Drop);
        stage.again(STRICTLY);
        verify_old_or_new(&mut stage, 5, 3, 99);
    }
}

/// A write to one group was logged while a member of this group was being filled. A newer write was not logged, because
/// that member was in sync by then. A member of the other group was always out.
#[test]
fn records_of_a_group_that_is_whole_are_not_carried_out() {
    let set = Set { group: Some(4), ..Set::new(Level::Raid60, 8) };
    let mut stage = degraded(set, &[1, 5]);
    let block = (0..2000).find(|at| stage.home(*at).0 == 6).expect("every member has data");
    stage.array().set_maintenance(Maintenance { priority: 50, paused: true });
    stage.replace(5).expect("replaceable");
    stage.rounds(300);
    assert_eq!(stage.write(block, 8, 300), Ok(()));
    stage.array().set_maintenance(Maintenance { priority: 100, paused: false });
    stage.until("filling it", |stage| stage.state(5) == MemberState::InSync);
    stage.rounds(300);
    assert_eq!(stage.write(block, 8, 301), Ok(()));
    assert_eq!(stage.again(STRICTLY), 1, "the other group has no log");
    stage.verify(2000);
    check_rebuilt(&mut stage, &[1]);
}

/// A member went out, missed a write whose only record is on one drive, and was re-added and rebuilt. Meanwhile the
/// copy to another member started, and an older write in progress kept all records valid. If the first member had
/// become in sync then, a start without that drive would have used this member, and an older record would have been the
/// newest one of its block.
#[test]
fn who_came_back_is_in_sync_when_records_from_before_count_no_more() {
    let others = |not: [usize; 2]| (0..4).filter(move |at| !not.contains(at));
    for (out, lost) in others([0, 0]).flat_map(|out| others([0, out]).map(move |lost| (out, lost)))
    {
        let set = Set { group: Some(4), ..Set::new(Level::Raid60, 8) };
        let mut stage = degraded(set, &[out as u8]);
        let on = |stage: &Stage, member| {
            let mut held = (0..2000).filter(|at| stage.home(*at).0 == member);
            let first = held.next().expect("every member has data");
            (first, held.next_back().expect("and not in one block"))
        };
        let ((block, _), (_, before), (after, _)) = (on(&stage, 0), on(&stage, 5), on(&stage, 7));
        let stuck = |stage: &mut Stage, at| {
            let (member, byte) = stage.home(at);
            let place = stage.on_disk(byte, 1);
            stage.disks[member].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(place));
            let id = stage.submit_write(0, at, 1, 99);
            stage.rounds(300);
            id
        };
        assert_eq!(stage.write(block, 1, 300), Ok(()));
        // The first member lacks the writes to this region, so that its rebuild does not finish before this write
        // completes.
        let first = stuck(&mut stage, before);
        stage.fail(0).expect("allowed");
        assert_eq!(stage.write(block, 1, 301), Ok(()));
        stage.readd(0).expect("it can come back");
        stage.array().set_maintenance(Maintenance { priority: 100, paused: false });
        stage.rounds(2000);
        stuck(&mut stage, after);
        let (_replacing, _replacement) = begin(&mut stage, 6);
        stage.rounds(300);
        stage.disks[5].answer();
        assert_eq!(stage.result(first), Ok(()));
        stage.expect(before, 1, 99);
        stage.until("filling it", |stage| stage.status().members[0].stale_bytes == 0);
        stage.rounds(300);
        stage.down();
        stage.disks[7].plan.clear();
        let disk = stage.disks.remove(lost);
        let without = stage.find(DEGRADED);
        stage.disks.insert(lost, disk);
        match without {
            Outcome::Ready(assembled) => stage.start(*assembled),
            Outcome::Refused { .. } | Outcome::Waiting { .. } => drop(stage.again(DEGRADED)),
        }
        verify_old_or_new(&mut stage, after, 1, 99);
    }
}
