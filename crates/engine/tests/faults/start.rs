//! Drives that fail during the assembly of an array.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_engine::{ArrayEventKind, Consistency, Outcome};
use strake_ondisk::{AreaLayout, Bitmap, PAGE_BYTES};
use strake_raid::{Level, MemberState};

use crate::cut_short::what;
use crate::redo::until_logged;
use crate::stage::{DATA, DEGRADED, LOSSY, STRICTLY, Set, Stage};

/// A drive that is read-only, or that fails at the n-th write of the start, counts as absent.
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
        // The drive works again, but its content is outdated.
        stage.disks[2].plan.clear();
        stage.again(DEGRADED);
        assert_ne!(stage.state(2), MemberState::InSync);
        stage.verify(500);
    }
}

/// A drive counts as absent if its labels are unreadable, or if it fails at the n-th read of the start. The start
/// follows a crash that left a log.
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

/// Damages both slots of the first page of `bitmap` on `members`.
fn damage_page(stage: &Stage, members: &[usize], bitmap: Bitmap) {
    let layout = AreaLayout::of(stage.set.disk_bytes).expect("large enough");
    for (member, sequence) in members.iter().flat_map(|member| [(member, 0), (member, 1)]) {
        let offset = layout.bitmap_page_offset(bitmap, 0, sequence);
        stage.disks[*member].ram.write_at(offset, &[0x55; PAGE_BYTES]).expect("inside");
    }
}

/// Returns the member, the lost pages, and the pages that no member has, for each report since the last call.
fn lost_pages(stage: &Stage) -> Vec<(u8, u64, u64)> {
    let events = stage.array().drain_events().into_iter();
    let lost = |event: strake_engine::ArrayEvent| match event.kind {
        ArrayEventKind::BitmapLost { pages, everywhere } => {
            Some((event.member.expect("it is about one").0, pages, everywhere))
        }
        _ => None,
    };
    events.filter_map(lost).collect()
}

#[test]
fn a_lost_bitmap_page_is_reported_once() {
    for bitmap in [Bitmap::WriteIntent, Bitmap::Written] {
        let mut stage = Set::new(Level::Raid5, 4).filled(500, 50, 3);
        stage.stop().expect("clean");
        damage_page(&stage, &[1], bitmap);
        assert_eq!(stage.again(STRICTLY), 0, "the others have it");
        assert_eq!(lost_pages(&stage), [(1, 1, 0)], "{bitmap:?}");
        assert_eq!((stage.restart(), lost_pages(&stage)), (0, vec![]), "{bitmap:?}: a start heals");
        stage.stop().expect("clean");
        damage_page(&stage, &[0, 1, 2, 3], bitmap);
        let resynced = stage.again(STRICTLY) > 0;
        assert_eq!(resynced, bitmap == Bitmap::WriteIntent);
        let all = [0, 1, 2, 3].map(|member| (member, 1, 1));
        assert_eq!(lost_pages(&stage), all, "{bitmap:?}");
        stage.until("the resync", |stage| stage.status().resync.is_none());
        assert_eq!((stage.restart(), lost_pages(&stage)), (0, vec![]), "{bitmap:?}");
        stage.verify(500);
    }
}

/// The start that found a lost page wrote the page, and then restarted without another drive that failed later.
#[test]
fn a_lost_page_is_reported_by_a_start_that_begins_again() {
    let mut stage = Set::new(Level::Raid6, 6).filled(500, 50, 3);
    stage.stop().expect("clean");
    damage_page(&stage, &[1], Bitmap::WriteIntent);
    let labels = stage.on_disk(64 << 10, 1920);
    let fail = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
    // The first label write is before the pages.
    stage.disks[3].plan.add(fail.within(labels).when(When::Nth(2)));
    stage.again(DEGRADED);
    assert_eq!(stage.state(3), MemberState::Missing);
    assert_eq!(lost_pages(&stage), [(1, 1, 0)]);
}

/// The regions that a member lacks are on a separate page; the start does not use the page of a member in sync.
#[test]
fn a_lost_page_of_what_a_member_lacks_is_reported_while_it_counts() {
    let mut stage = Set::new(Level::Raid6, 6).filled(500, 50, 3);
    stage.stop().expect("clean");
    let lacks = Bitmap::Member(strake_units::MemberIndex(2));
    damage_page(&stage, &[0, 1], lacks);
    stage.again(STRICTLY);
    assert_eq!(lost_pages(&stage), [], "it is in sync");
    stage.fail(2).expect("allowed");
    stage.stop().expect("clean");
    stage.again(DEGRADED);
    assert_eq!(lost_pages(&stage), [], "all pages are there");
    stage.stop().expect("clean");
    damage_page(&stage, &[0, 1, 3, 4, 5], lacks);
    stage.again(DEGRADED);
    assert_eq!(lost_pages(&stage), [0, 1, 3, 4, 5].map(|member| (member, 1, 1)));
    stage.fail_and_replace(3);
    stage.readd(2).expect("it is the member");
    stage.healthy();
    assert_eq!((stage.restart(), lost_pages(&stage)), (0, vec![]));
    stage.verify(500);
}

/// A drive is missing for the first time: no page for its member exists yet, and none is lost.
#[test]
fn a_page_that_was_never_written_is_not_lost() {
    let mut stage = Set::new(Level::Raid5, 4).filled(500, 50, 3);
    stage.stop().expect("clean");
    stage.disks[2].plan.add(Rule::new(Ops::ANY, Effect::Fail(IoErrorKind::Device)));
    stage.again(DEGRADED);
    assert_eq!(stage.state(2), MemberState::Missing);
    assert_eq!(lost_pages(&stage), []);
}

/// The history of the bug: the host failed when all drives except one had a page, and the previous slot of this drive
/// was unreadable. The drive returned an earlier copy, and counted as an older image of itself.
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

/// The array stopped during a resync, and then a member was lost: the damage of the crash still exists.
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

/// The bug: an unreadable log block that was never written cost the member, and the array if it needed the member.
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

/// An unreadable block of a log whose content no other member may have requires a decision of the owner.
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

/// The unreadable block is in the labels at either end of the drive.
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
