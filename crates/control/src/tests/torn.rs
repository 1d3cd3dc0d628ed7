//! Drives that were partly overwritten, truncated or made smaller, and the reports about members that are out.

use super::{Testbed, check_refused, fail, raid6, readd, replace, tick_until};
use crate::error::ControlErrorKind::{Refused, State};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use strake_api::v1::{CreateArrayRequest, ImportArraysRequest};
use strake_ondisk::{AreaLayout, Bitmap, PAGE_BYTES};

const BYTES: u64 = 64 << 20;

fn overwrite(drive: &str, at: u64, bytes: u64) {
    let file = File::options().write(true).open(drive).expect("it is there");
    file.write_all_at(&vec![0; bytes as usize], at).expect("it can be written");
}

fn resize(drive: &str, sizes: &[u64]) {
    let file = File::options().write(true).open(drive).expect("it is there");
    sizes.iter().for_each(|bytes| file.set_len(*bytes).expect("it can be made so"));
}

fn import(allow_degraded: bool, accept_loss: bool) -> ImportArraysRequest {
    ImportArraysRequest { name: "tank".into(), allow_degraded, accept_loss, ..Default::default() }
}

/// Creates and stops the array, and calls `spoil` for drive 1. Checks that the array then waits and reports `words`
/// about this drive. After a start without the drive, it cannot be re-added, but its member can be rebuilt.
fn check_waits(spoil: impl Fn(&str), words: &str) {
    let (mut control, drives) = Testbed::raid6(4);
    control.shut_down();
    spoil(&drives[1]);
    control.start();
    let view = control.tank();
    assert_eq!((view.states, view.members[1].state.as_str()), (vec!["offline".into()], "missing"));
    for words in [words, &drives[1], "waits for member 1"] {
        assert!(view.reason.contains(words), "{words}: {}", view.reason);
    }
    assert!(view.members[1].cause.contains(words), "{:?}", view.members[1]);
    // No loss must be accepted, because the other members hold all data.
    assert_eq!(
        view.next_action,
        "return the missing members, or: strake array import tank --degraded"
    );
    let dry = ImportArraysRequest { dry_run: true, ..import(false, false) };
    check_refused(control.import_arrays(&dry), Refused, words);
    control.import_arrays(&import(true, false)).expect("the others suffice");
    control.ticks(5);
    let view = control.tank();
    let member = &view.members[1];
    assert!(member.state == "missing" && !member.returned, "{member:?}");
    assert!(view.next_action.contains("array replace"), "{}", view.next_action);
    assert!(control.readd_member(&readd(None)).is_err());
    resize(&drives[1], &[BYTES]);
    control.replace_member(&replace(1, &drives[1])).expect("it can be rebuilt");
    tick_until(&control, "the rebuild", || control.tank().states == ["online"]);
}

/// History: a member whose drive was present, but could not be opened, was missing without a reason.
#[test]
fn a_drive_that_cannot_be_opened_is_named_with_the_reason() {
    let (mut control, drives) = Testbed::raid6(4);
    control.shut_down();
    fs::remove_file(&drives[1]).expect("it can be removed");
    fs::create_dir(&drives[1]).expect("it can be made");
    control.start();
    let view = control.tank();
    assert!(view.reason.contains("waits for member 1"), "{}", view.reason);
    assert!(view.reason.contains(&drives[1]), "{}", view.reason);
}

/// History: after `dd if=/dev/zero` over the first half of a drive, the labels at its end remained, and the member
/// counted as in sync.
#[test]
fn a_member_whose_start_was_overwritten_is_not_used() {
    check_waits(|drive| overwrite(drive, 0, BYTES / 2), "labels at its start are missing");
}

#[test]
fn a_member_whose_end_was_overwritten_is_not_used() {
    check_waits(|drive| overwrite(drive, BYTES / 2, BYTES / 2), "labels at its end are missing");
}

#[test]
fn a_member_that_was_cut_short_and_has_grown_again_is_not_used() {
    check_waits(|drive| resize(drive, &[BYTES / 2, BYTES]), "labels at its end are missing");
}

/// History: the array waited for a member whose drive was present, and did not report why the drive was not used.
#[test]
fn f22_a_member_that_shrank_is_named_when_the_array_waits_for_it() {
    check_waits(|drive| resize(drive, &[BYTES - (1 << 20)]), "must not shrink");
}

/// If all drives lost their last labels, for example to a tool that clears the ends of drives, the data may be intact.
#[test]
fn drives_without_labels_at_their_ends_are_used_when_the_data_needs_them_and_the_operator_agrees() {
    let mut control = Testbed::new();
    let drives = control.drives(3);
    let raid5 = CreateArrayRequest { level: "5".into(), ..raid6(drives.clone()) };
    control.create_array(&raid5).expect("it is created");
    control.shut_down();
    for drive in &drives {
        overwrite(drive, BYTES - (1 << 20), 1 << 20);
    }
    control.start();
    assert_eq!(control.tank().states, ["offline"]);
    let next = control.tank().next_action;
    assert!(
        next.ends_with(
            "to accept possible loss: strake array import tank --degraded --accept-loss"
        ),
        "{next}"
    );
    check_refused(control.import_arrays(&import(true, false)), State, "--accept-loss");
    control.import_arrays(&import(true, true)).expect("the loss is accepted");
    assert_eq!(control.tank().redundancy_left, 1);
}

/// History: after `truncate -s 32M d; truncate -s 64M d` while the array ran, half of the member read as zeros without
/// a report.
#[test]
fn a_file_that_is_cut_short_and_grows_again_while_it_serves_is_out() {
    let (control, drives) = Testbed::raid6(4);
    control.tick().expect("it answers");
    resize(&drives[1], &[BYTES / 2, BYTES]);
    tick_until(&control, "the loss", || control.tank().members[1].state == "missing");
    control.ticks(5);
    let view = control.tank();
    let member = &view.members[1];
    assert!(member.state == "missing" && !member.returned, "{member:?}");
    assert!(member.cause.contains("truncated"), "{member:?}");
    assert!(view.next_action.contains("array replace"), "{}", view.next_action);
    control.replace_member(&replace(1, &drives[1])).expect("it can be rebuilt");
    tick_until(&control, "the rebuild", || control.tank().states == ["online"]);
}

/// History: the status advised `strake array replace` for every member that was out, and `array show` offered to re-add
/// drives that would have been refused.
#[test]
fn taking_a_member_back_is_offered_when_it_works_and_only_then() {
    let (mut control, drives) = Testbed::raid6(4);
    let failed = control.fail_member(&fail("tank", 1)).expect("redundancy is left").array;
    let view = failed.expect("it is shown");
    let member = &view.members[1];
    assert!(member.returned && member.cause == "failed by hand", "{member:?}");
    assert_eq!(view.next_action, "strake array readd tank --member 1");
    control.readd_member(&readd(Some(1))).expect("it was offered");
    tick_until(&control, "the rebuild", || control.tank().states == ["online"]);
    assert!(control.tank().next_action.is_empty(), "{}", control.tank().next_action);

    control.fail_member(&fail("tank", 1)).expect("redundancy is left");
    resize(&drives[1], &[BYTES - (1 << 20)]);
    control.tick().expect("it answers");
    let view = control.tank();
    let member = &view.members[1];
    assert!(!member.returned && member.cause.starts_with("failed by hand; "), "{member:?}");
    assert!(member.cause.contains(&drives[1]), "{member:?}");
    assert!(view.next_action.contains("array replace"), "{}", view.next_action);
    assert!(control.readd_member(&readd(Some(1))).is_err());
    control.fail_member(&fail("tank", 2)).expect("redundancy is left");
    control.restart();
    let view = control.tank();
    let member = &view.members[2];
    assert!(member.returned && member.cause == "failed before the array was started", "{member:?}");
    assert_eq!(view.next_action, "strake array readd tank --member 2");
}

/// Starts the array with damaged bitmap pages on the drives of `members`. Checks that these members report `words`.
fn check_lost_page(members: &[u32], words: &str) {
    let (mut control, drives) = Testbed::raid6(4);
    control.shut_down();
    let layout = AreaLayout::of(BYTES).expect("large enough");
    for (member, sequence) in members.iter().flat_map(|member| [(member, 0), (member, 1)]) {
        let at = layout.bitmap_page_offset(Bitmap::WriteIntent, 0, sequence);
        overwrite(&drives[*member as usize], at, PAGE_BYTES as u64);
    }
    control.start();
    control.ticks(5);
    let lost = control.reported("bitmap_lost");
    assert_eq!(lost.iter().filter_map(|event| event.member).collect::<Vec<_>>(), members);
    for event in lost {
        assert_eq!(event.severity, "warning");
        assert!(event.what.contains("cannot read 1 page(s) of its bitmaps"), "{event:?}");
        assert!(event.what.contains(words), "{event:?}");
        assert!(event.next_action.contains("array replace tank --member"), "{event:?}");
    }
}

#[test]
fn a_lost_bitmap_page_is_reported_with_its_consequence() {
    check_lost_page(&[2], "other members have these pages, so nothing is lost");
    check_lost_page(&[0, 1, 2, 3], "no member in sync has 1 of these pages");
}
