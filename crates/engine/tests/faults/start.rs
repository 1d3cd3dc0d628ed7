//! Drives that fail while an array is put together.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_engine::{Consistency, Outcome};
use strake_raid::{Level, MemberState};

use crate::cut_short::what;
use crate::redo::until_logged;
use crate::stage::{DATA, DEGRADED, LOSSY, STRICTLY, Set};

/// A drive that has turned read-only, or dies at the n-th write of the start, counts as not here.
#[test]
fn a_drive_that_cannot_be_written_does_not_keep_the_others_down() {
    for nth in 1..10 {
        let mut stage = Set::new(Level::Raid6, 6).filled(500, 50, 3);
        stage.stop().expect("clean");
        let rule = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
        stage.disks[2].plan.add(if nth == 1 { rule } else { rule.when(When::Nth(nth)) });
        if let Outcome::Ready(_) = stage.find(STRICTLY) {
            continue;
        }
        assert!(matches!(stage.find(STRICTLY), Outcome::Waiting { .. } | Outcome::Ready(_)));
        stage.disks[2].plan.clear();
        stage.disks[2].plan.add(Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device)));
        stage.again(DEGRADED);
        assert_eq!(stage.state(2), MemberState::Missing);
        stage.verify(500);
        stage.fill(500, 70, 9);
        stage.stop().expect("clean");
        // The drive is well again, but was left behind.
        stage.disks[2].plan.clear();
        stage.again(DEGRADED);
        assert_ne!(stage.state(2), MemberState::InSync);
        stage.verify(500);
    }
}

/// Whether it is its labels that cannot be read, or it dies at the n-th read of the start, after a crash that left a
/// log.
#[test]
fn a_drive_that_cannot_be_read_counts_as_not_here() {
    let failing = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
    let dying = |nth| Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Device)).when(When::Nth(nth));
    let mut at_once = 0;
    for nth in 0..24 {
        let mut stage = crate::redo::degraded(Set::new(Level::Raid6, 6), &[4]);
        let head = stage.on_disk(0, (1 << 20) >> stage.size.shift());
        let tail = stage.set.disk_bytes - (4 << 20);
        let tail = stage.on_disk(tail, (4 << 20) >> stage.size.shift());
        let rules = match nth {
            0 => vec![failing.within(head), failing.within(tail)],
            nth => vec![dying(nth)],
        };
        for rule in rules {
            stage.disks[2].plan.add(rule);
        }
        let here = matches!(stage.find(STRICTLY), Outcome::Ready(_));
        assert!(nth != 0 || !here, "it waits for a drive without labels");
        at_once += u64::from(here);
        if nth != 0 {
            stage.disks[2].plan.clear();
            stage.disks[2].plan.add(Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Device)));
        }
        stage.again(DEGRADED);
        assert_eq!(stage.state(2), MemberState::Missing, "read {nth}");
        stage.verify(2000);
    }
    assert!(at_once < 23, "some reads of the start are those of the drive");
}

#[test]
fn an_unreadable_bitmap_slot_on_one_member_is_no_obstacle() {
    let mut stage = Set::new(Level::Raid5, 4).filled(500, 50, 3);
    let range = stage.on_disk(1 << 20, (DATA >> 10) >> 9);
    stage.disks[0].plan.add(Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium)).within(range));
    assert_eq!(stage.again(STRICTLY), 1, "only what is dirty by the others");
    stage.verify(500);
}

/// Everything stopped when all but one drive had a page, and what that one held before cannot be read: it shows the
/// copy before that, and was taken for an older picture of itself.
#[test]
fn a_drive_with_an_unreadable_page_is_no_older_picture() {
    for slot in 0..2 {
        let mut stage = Set::new(Level::Raid5, 4).filled(500, 50, 3);
        stage.pass(6);
        let pages = stage.on_disk(1 << 20, 32);
        stage.disks[1].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(pages));
        stage.submit_write(0, 20, 4, 9);
        stage.rounds(300);
        stage.down();
        stage.disks[1].plan.clear();
        let range = stage.on_disk((1 << 20) + slot * 4096, 8);
        let medium = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
        stage.disks[1].plan.add(medium.within(range));
        stage.again(STRICTLY);
        stage.verify(500);
    }
}

/// The array stopped while it was resynchronizing, and then a member was lost: that is the crash's damage still.
#[test]
fn a_member_lost_before_its_resync_was_through_is_not_passed_over() {
    let mut set = Set::new(Level::Raid5, 4);
    set.deallocate = strake_block::DeallocateReads::Unspecified;
    set.disk_bytes = 60 << 20;
    let mut stage = set.filled(100, 10, 4);
    assert!(stage.status().resync.is_some());
    stage.stop().expect("clean");
    let disk = stage.disks.remove(1);
    assert!(matches!(stage.find(DEGRADED), Outcome::Refused { .. }));
    stage.disks.insert(1, disk);
    stage.again(STRICTLY);
    stage.verify(100);
}

/// A block of a redo log that nothing was written to cost the member, and the array where no other could be spared.
#[test]
fn an_unreadable_block_of_a_log_costs_no_member_that_others_speak_for() {
    for out in [None, Some(0)] {
        let mut set = Set::new(Level::Raid5, 4);
        set.consistency = if out.is_none() { Consistency::Strict } else { Consistency::Safe };
        let mut stage = set.filled(2000, 170, 3);
        if let Some(out) = out {
            stage.fail(out).expect("allowed");
            until_logged(&mut stage);
        }
        stage.write(5, 3, 8).expect("works");
        let medium = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
        stage.disks[1].plan.add(medium.within(stage.on_disk(12 << 20, 8)));
        let outcome = stage.find(if out.is_none() { STRICTLY } else { LOSSY });
        assert_eq!(what(outcome), "ready", "{out:?}");
    }
}

/// What no other member may have of a log cannot be read: that is the owner's to decide.
#[test]
fn what_only_one_may_have_of_a_log_cannot_be_read() {
    let mut stage = Set::new(Level::Raid5, 4).filled(2000, 170, 3);
    stage.fail(0).expect("allowed");
    until_logged(&mut stage);
    stage.write(5, 3, 8).expect("works");
    let medium = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
    stage.disks[1].plan.add(medium.within(stage.on_disk(12 << 20, 8)));
    assert_ne!(what(stage.find(DEGRADED)), "ready");
    let resync = stage.again(LOSSY);
    assert!(resync > 0, "parity is not believed where a record may be missing");
    stage.verify(2000);
    stage.disks[1].plan.clear();
    assert_ne!(what(stage.find(DEGRADED)), "ready", "nor after one more crash");
}

/// At either end.
#[test]
fn an_unreadable_block_among_labels_costs_nothing() {
    for at in [(64 << 10) + 40 * 4096, (28 << 20) - (512 << 10) + 40 * 4096] {
        let mut stage = Set::new(Level::Raid5, 4).filled(2000, 170, 3);
        stage.stop().expect("clean");
        let medium = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
        stage.disks[1].plan.add(medium.within(stage.on_disk(at, 8)));
        let outcome = stage.find(STRICTLY);
        assert_eq!(what(outcome), "ready");
    }
}
