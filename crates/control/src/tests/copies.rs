//! Tests of the replacement of serving members.

use super::reported::has;
use super::{
    Testbed, change_job, check_refused, fail, hold, impatient, replace, spare, tick_until, unload,
};
use crate::actions::Wish;
use crate::drives::health::tests::read_only;
use crate::error::ControlErrorKind::{NotFound, State};
use crate::events::EventKind;
use crate::policy::sick::Subject;
use crate::upkeep::spares::use_spare;
use std::fs;
use std::sync::Arc;
use strake_api::v1::{
    DestroyArrayRequest, Event, ListEventsRequest, ReplaceMemberRequest, SetArrayRequest,
    UndeleteArrayRequest,
};
use strake_nvme_wire::health::Smart;

/// A RAID 6 of four drives whose copies are paused in the engine, and two more drives.
fn stage() -> (Testbed, Vec<String>) {
    let (control, drives) = Testbed::raid6(6);
    hold(&control, true);
    (control, drives)
}

fn predicts() -> Smart {
    Smart { warnings: 0b1000, ..Smart::default() }
}

fn worn() -> Smart {
    Smart { wear_percent: 95, ..Smart::default() }
}

fn few_spare_blocks() -> Smart {
    Smart { spare_percent: 13, spare_threshold_percent: 10, ..Smart::default() }
}

/// The drive of a member.
fn subject(control: &Testbed, slot: usize) -> Subject {
    Subject::Member(control.tank().members[slot].uuid.parse().expect("an identity"))
}

fn events(control: &Testbed, kind: &str) -> Vec<Event> {
    let request = ListEventsRequest { kind: kind.into(), ..Default::default() };
    control.events().list(&request).expect("the request is fine")
}

/// Gives a drive this health page.
fn report(control: &Testbed, subject: &Subject, page: Smart) {
    control.with(|m| m.sick.keep_page(subject.clone(), page)).expect("it answers");
}

#[test]
fn a_member_that_serves_is_copied_and_redundancy_never_drops() {
    let (control, drives) = stage();
    let dry = ReplaceMemberRequest { dry_run: true, ..replace(1, &drives[4]) };
    let plan = control.replace_member(&dry).expect("it is planned").plan;
    assert!(plan[0].contains("while the member serves"), "{plan:?}");
    assert_eq!(control.replace_member(&replace(1, &drives[4])).expect("it fits").result, "changed");
    let same = control.replace_member(&replace(1, &drives[4])).expect("it is in progress");
    assert_eq!(same.result, "unchanged");
    let other = control.replace_member(&replace(1, &drives[5]));
    check_refused(other, State, "being replaced");
    let view = control.tank();
    assert_eq!((view.redundancy_left, view.progress[0].job.as_str()), (2, "replace"));
    assert_eq!((&view.members[1].path, &view.members[1].replacement), (&drives[1], &drives[4]));
    // The drive cannot be used for another purpose in the meantime.
    assert!(control.add_spare(&spare(&drives[4])).is_err());
    hold(&control, false);
    tick_until(&control, "the end", || has(&control, EventKind::ReplaceFinished));
    tick_until(&control, "the new drive", || control.tank().members[1].path == drives[4]);
    control.tick().expect("it answers");
    assert_eq!(
        (control.tank().redundancy_left, control.tank().states),
        (2, vec!["online".to_owned()])
    );
    assert!(!has(&control, EventKind::RebuildFinished) && !has(&control, EventKind::ArrayDegraded));
}

#[test]
fn the_new_drive_is_the_member_after_a_restart_and_the_old_one_is_not() {
    let (mut control, drives) = stage();
    hold(&control, false);
    control.replace_member(&replace(1, &drives[4])).expect("it fits");
    tick_until(&control, "the new drive", || control.tank().members[1].path == drives[4]);
    control.restart();
    let view = control.tank();
    assert_eq!((&view.members[1].path, view.redundancy_left), (&drives[4], 2), "{view:?}");
    control.ticks(5);
    assert_eq!(control.tank().members[1].path, drives[4]);
}

#[test]
fn a_copy_that_a_restart_breaks_off_waits_and_leaves_the_member_in_its_place() {
    let (mut control, drives) = stage();
    control.replace_member(&replace(1, &drives[4])).expect("it fits");
    control.restart();
    let view = control.tank();
    assert_eq!((&view.members[1].path, view.redundancy_left), (&drives[1], 2), "{view:?}");
    assert_eq!(view.members[1].replacement, drives[4], "it is to go on");
    let copy = view.progress.iter().find(|job| job.job == "replace");
    assert_eq!(copy.map(|job| job.state.as_str()), Some("waiting"), "{view:?}");
    let again = control.replace_member(&replace(1, &drives[4])).expect("nobody has the drive");
    assert_eq!(again.result, "changed");
    hold(&control, false);
    tick_until(&control, "the new drive", || control.tank().members[1].path == drives[4]);
}

/// History: the copy remained a job that waited forever, because only members in sync and faulty members were
/// considered. `array rebuild` required a spare although the operator had already given a drive.
#[test]
fn a_member_that_is_missing_after_a_restart_is_rebuilt_on_the_drive_of_its_copy() {
    let (mut control, drives) = stage();
    control.replace_member(&replace(1, &drives[4])).expect("it fits");
    control.shut_down();
    fs::rename(&drives[1], control.path("away")).expect("it can be moved");
    control.start_with(impatient());
    assert_eq!(control.tank().members[1].state, "missing");
    tick_until(&control, "the rebuild", || {
        let tank = control.tank();
        tank.states == ["online"] && tank.members[1].path == drives[4]
    });
    assert_eq!(control.tank().progress, []);
}

#[test]
fn a_copy_is_cancelled_as_a_job() {
    let (control, drives) = stage();
    control.replace_member(&replace(1, &drives[4])).expect("it fits");
    let cancel = change_job("tank/replace", "cancel");
    assert_eq!(control.change_job(&cancel).expect("it can be").job, None);
    check_refused(control.change_job(&cancel), NotFound, "no job");
    control.tick().expect("it answers");
    assert!(has(&control, EventKind::ReplaceAbandoned));
    let view = control.tank();
    assert_eq!((&view.members[1].path, view.redundancy_left), (&drives[1], 2));
    // The drive is free now.
    control.add_spare(&spare(&drives[4])).expect("nobody has the drive");
}

#[test]
fn a_member_that_fails_while_it_is_copied_continues_with_its_replacement() {
    let (control, drives) = stage();
    control.replace_member(&replace(1, &drives[4])).expect("it fits");
    control.fail_member(&fail("tank", 1)).expect("redundancy is left");
    tick_until(&control, "the new drive", || control.tank().members[1].path == drives[4]);
    let member = control.tank().members[1].clone();
    // The member is never shown with the state of the previous member.
    assert_eq!(member.state, "rebuilding", "{member:?}");
    hold(&control, false);
    tick_until(&control, "the rebuild", || control.tank().states == ["online"]);
}

#[test]
fn an_array_is_unloaded_in_the_middle_of_a_copy() {
    let (control, drives) = stage();
    control.replace_member(&replace(1, &drives[4])).expect("it fits");
    control.unload_array(&unload("tank")).expect("it stops");
    control.add_spare(&spare(&drives[4])).expect("nobody has the drive");
}

/// History: if an array was destroyed just after a replacement became a member, the label of the previous drive was
/// marked instead. If another member was replaced at the same moment, this was permanent. The destruction could not be
/// undone, because the label of a member seemed to be missing.
#[test]
fn an_array_destroyed_right_after_two_copies_is_brought_back_whole() {
    let (control, drives) = stage();
    hold(&control, false);
    for (member, drive) in [(1, &drives[4]), (2, &drives[5])] {
        control.replace_member(&replace(member, drive)).expect("it fits");
        // Upkeep does not run: only the array knows the new drive.
        while control.tank().members[member as usize].path != *drive {
            std::thread::yield_now();
        }
    }
    let uuid = control.tank().uuid;
    let destroy = DestroyArrayRequest { name: "tank".into(), ..Default::default() };
    control.destroy_array(&destroy).expect("it is destroyed");
    let now = [0, 4, 5, 3].map(|at: usize| drives[at].clone()).to_vec();
    let undelete = UndeleteArrayRequest { name: uuid, drives: now, ..Default::default() };
    control.undelete_array(&undelete).expect("it comes back");
    let view = control.tank();
    assert_eq!((&view.members[1].path, view.redundancy_left), (&drives[4], 2), "{view:?}");
}

#[test]
fn a_sick_member_is_copied_to_a_spare_unless_the_operator_cancelled_that() {
    let (mut control, drives) = stage();
    control.add_spare(&spare(&drives[4])).expect("it is a spare");
    let member = subject(&control, 1);
    report(&control, &member, predicts());
    tick_until(&control, "the copy", || control.tank().members[1].replacement == drives[4]);
    assert!(has(&control, EventKind::SpareUsed));
    let cancel = change_job("tank/replace", "cancel");
    control.change_job(&cancel).expect("it can be");
    control.add_spare(&spare(&drives[5])).expect("it is a spare");
    control.ticks(5);
    assert!(control.tank().members[1].replacement.is_empty());
    // The decision of the operator outlasts the daemon.
    control.restart();
    report(&control, &member, predicts());
    control.ticks(5);
    assert!(control.tank().members[1].replacement.is_empty());
}

#[test]
fn d22_a_spare_that_predicts_its_failure_replaces_only_a_member_that_is_out() {
    let (control, drives) = stage();
    control.add_spare(&spare(&drives[4])).expect("it is a spare");
    let health = Arc::new(read_only());
    control.with(|m| m.drives.give_health(&drives[4], health)).expect("it answers");
    control.tick().expect("it answers");
    report(&control, &subject(&control, 1), predicts());
    control.ticks(5);
    assert!(control.tank().members[1].replacement.is_empty());
    let none: Vec<String> = events(&control, "spare_none").into_iter().map(|e| e.cause).collect();
    assert_eq!(none.len(), 1, "it is reported once: {none:?}");
    assert!(none[0].contains("read-only"), "{none:?}");
    control.add_spare(&spare(&drives[5])).expect("it is a spare");
    tick_until(&control, "the copy", || control.tank().members[1].replacement == drives[5]);
    hold(&control, false);
    tick_until(&control, "the end", || has(&control, EventKind::ReplaceFinished));
    control.fail_member(&fail("tank", 0)).expect("redundancy is left");
    tick_until(&control, "the rebuild", || control.tank().members[0].path == drives[4]);
}

/// Drives may serve for years beyond their rated endurance.
#[test]
fn a_member_that_is_only_watched_is_reported_and_stays() {
    for page in [worn(), few_spare_blocks()] {
        let (control, drives) = stage();
        for drive in &drives[4..] {
            control.add_spare(&spare(drive)).expect("it is a spare");
        }
        report(&control, &subject(&control, 1), page);
        control.ticks(5);
        assert!(has(&control, EventKind::MemberSick));
        assert!(!has(&control, EventKind::SpareUsed) && !has(&control, EventKind::SpareNone));
        // It becomes urgent, and is reported again.
        report(&control, &subject(&control, 1), predicts());
        tick_until(&control, "the copy", || !control.tank().members[1].replacement.is_empty());
        assert_eq!(events(&control, "member_sick").len(), 2);
    }
}

#[test]
fn a_drive_that_predicts_its_failure_now_and_then_is_reported_once() {
    let (control, _) = stage();
    let member = subject(&control, 1);
    for page in [predicts(), Smart::default(), predicts(), Smart::default(), predicts()] {
        report(&control, &member, page);
        control.tick().expect("it answers");
    }
    assert_eq!(events(&control, "member_sick").len(), 1);
}

/// A copy that a restart interrupted waits for its own drive, and not for a spare.
#[test]
fn a_copy_that_waits_takes_no_other_spare() {
    let (mut control, drives) = stage();
    control.replace_member(&replace(1, &drives[4])).expect("it fits");
    control.add_spare(&spare(&drives[5])).expect("it is a spare");
    fs::rename(&drives[4], format!("{}.away", drives[4])).expect("it is a file");
    control.restart();
    report(&control, &subject(&control, 1), predicts());
    control.ticks(5);
    assert_eq!(control.tank().members[1].replacement, drives[4]);
    let spares = control.with(|m| m.list_spares()).expect("it answers").spares;
    assert_eq!(spares.len(), 1, "{spares:?}");
    // The operator gives this drive up.
    control.change_job(&change_job("tank/replace", "cancel")).expect("it can be");
    tick_until(&control, "the copy", || control.tank().members[1].replacement == drives[5]);
}

/// History: upkeep decided to use two spares, and used the second one after auto-replace was switched off.
#[test]
fn no_spare_is_used_once_auto_replace_is_off() {
    let (control, drives) = stage();
    let off =
        SetArrayRequest { name: "tank".into(), auto_replace: Some(false), ..Default::default() };
    control.set_array(&off).expect("it is set");
    control.add_spare(&spare(&drives[4])).expect("it is a spare");
    control.fail_member(&fail("tank", 0)).expect("redundancy is left");
    let uuid = control.tank().uuid;
    use_spare(&control, &uuid, 0, Wish::Upkeep).expect("it does nothing");
    assert_eq!(control.tank().members[0].path, drives[0]);
    use_spare(&control, &uuid, 0, Wish::Command).expect("an operator may");
    assert_eq!(control.tank().members[0].path, drives[4]);
}

/// History: the spare was prepared before the array refused it, in every round.
#[test]
fn a_replacement_that_the_array_refuses_writes_nothing() {
    let (control, drives) = stage();
    control.replace_member(&replace(1, &drives[4])).expect("it fits");
    control.add_spare(&spare(&drives[5])).expect("it is a spare");
    control.fail_member(&fail("tank", 0)).expect("redundancy is left");
    let before = fs::read(&drives[5]).expect("it is a file");
    let uuid = control.tank().uuid;
    use_spare(&control, &uuid, 0, Wish::Command).expect_err("a member is being copied");
    assert!(fs::read(&drives[5]).expect("it is a file") == before, "it was written");
}

/// History: an array refused a spare while another member was being copied. The spare was therefore marked as failed,
/// and was never tried again.
#[test]
fn a_spare_waits_until_a_copy_of_another_member_has_ended() {
    let (control, drives) = stage();
    control.replace_member(&replace(1, &drives[4])).expect("it fits");
    control.fail_member(&fail("tank", 0)).expect("redundancy is left");
    control.add_spare(&spare(&drives[5])).expect("it is a spare");
    control.ticks(5);
    // A refused request for the spare at this moment does not mark the spare as failed.
    let uuid = control.tank().uuid;
    use_spare(&control, &uuid, 0, Wish::Upkeep).expect_err("a member is being copied");
    let states = control.with(|m| m.list_spares()).expect("it answers").spares;
    assert_eq!(states[0].state, "ready", "{states:?}");
    assert!(!has(&control, EventKind::SpareMissing));
    hold(&control, false);
    tick_until(&control, "the rebuild", || control.tank().states == ["online"]);
    assert_eq!(control.tank().members[0].path, drives[5]);
}
