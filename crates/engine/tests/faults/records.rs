//! Records of the redo log that are about what has changed since: members, and what is logged at all.

use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::Consistency;
use strake_raid::Level;

use crate::redo::{STRICTLY, check_rebuilt, data, degraded, until_logged, verify_old_or_new};
use crate::stage::Set;

/// A member was out, and a write went through the log. Then everybody was there, and a newer write went without it.
/// When a member is out again the log is relied on again, and still has the older write as the newest of its blocks.
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

/// A write was on record and under way when the drive of a member was replaced. The new drive has no part of that
/// record, which has to be carried out on the others all the same.
#[test]
fn f03_a_record_counts_though_a_drive_has_been_replaced_since() {
    for stuck in 0..6 {
        for replaced in (0..6).filter(|replaced| *replaced != stuck) {
            let mut set = Set::new(Level::Raid6, 6);
            set.consistency = Consistency::Strict;
            let mut stage = set.build().expect("sound");
            stage.fill(2000, 170, 3);
            let area = data(&stage);
            stage.disks[stuck].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(area));
            let op = stage.write_op(35, 50, 99);
            stage.submit(0, op);
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

/// While an older write is under way, its record and all that follow in the log count. Of those about the same blocks
/// the newest tells.
#[test]
fn of_records_about_the_same_blocks_the_newest_counts() {
    let mut stage = degraded(Set::new(Level::Raid6, 6), &[2]);
    let (stuck, byte) = stage.home(1000);
    let place = stage.on_disk(byte, 1);
    stage.disks[stuck].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(place));
    let op = stage.write_op(1000, 1, 99);
    stage.submit(0, op);
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
