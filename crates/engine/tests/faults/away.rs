//! Tests with members that are absent during events of the array, and return.

use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::Consistency;
use strake_raid::{Level, MemberState};
use strake_units::{Lba, LbaRange, MemberIndex};

use crate::redo::verify_old_or_new;
use crate::stage::{DEGRADED, Set, Stage};

/// Starts without a member, and re-adds the member.
fn back(stage: &mut Stage, member: usize) {
    let disk = stage.disks.remove(member);
    stage.again(DEGRADED);
    stage.disks.insert(member, disk);
    stage.readd(member as u8).expect("it is the member");
    stage.until("filling it", |stage| stage.state(member) == MemberState::InSync);
}

/// A write was cut short, and who had not got its part was not here at the next start. Nothing was written there since,
/// but that start had executed the rest of it.
#[test]
fn who_is_away_after_a_crash_lacks_what_was_being_written() {
    for out in 0..4 {
        let mut stage = Set::strict(Level::Raid5, 4).filled(2000, 170, 3);
        stage.cut_write(out, 5, 50);
        stage.down();
        back(&mut stage, out);
        verify_old_or_new(&mut stage, 5, 50, 99);
        stage.check_parity(40);
    }
}

/// A label was cut short before one member had it, and that one was away at the next start: it need not have what it
/// never got.
#[test]
fn who_missed_a_label_that_was_cut_short_is_taken_back() {
    let mut stage = Set::new(Level::Raid6, 6).filled(2000, 170, 3);
    let heads = LbaRange::new(Lba((64 << 10) >> 9), (256 << 10) >> 9);
    stage.disks[1].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(heads));
    let failing = stage.array().begin_fail(MemberIndex(3)).expect("allowed");
    stage.rounds(300);
    drop(failing);
    stage.down();
    stage.disks[1].plan.clear();
    back(&mut stage, 1);
    stage.verify(2000);
    assert_eq!(stage.state(3), MemberState::Faulty);
}

/// Mode `none` does not record what is written, so a member that was out when that began lacks everything.
#[test]
fn a_member_that_is_absent_without_a_record_lacks_everything() {
    let set = Set { disk_bytes: 60 << 20, ..Set::new(Level::Raid5, 4) };
    let mut stage = set.build().expect("sound");
    let elsewhere = 40_000;
    stage.fill(2000, 170, 3);
    stage.write(elsewhere, 50, 4).expect("works");
    // The time suffices for the bits to be cleared.
    stage.pass(10);
    stage.fail(2).expect("allowed");
    let pending = stage.array().begin_set_consistency(Consistency::None);
    stage.asked(pending).expect("the array serves");
    stage.write(elsewhere, 50, 5).expect("works");
    stage.readd(2).expect("it is the member");
    stage.verify_rebuilt(elsewhere + 100);
    stage.check_all_parity();
}
