//! Spares, and drives that are removed and return.

use super::reported::has;
use super::{Testbed, array, check_refused, fail, raid6, tick_until, unload};
use crate::actions::Wish;
use crate::control::Control;
use crate::error::ControlErrorKind::{NotFound, Refused, Usage};
use crate::events::EventKind;
use crate::names::drive_key;
use crate::upkeep::spares::use_spare;
use std::fs;
use strake_api::v1::{
    AddSpareRequest, CreateArrayRequest, DestroyArrayRequest, RemoveSpareRequest, Spare,
};

fn add(drive: &str, array: &str) -> AddSpareRequest {
    AddSpareRequest { drive: drive.into(), array: array.into(), ..Default::default() }
}

fn spares(control: &Control) -> Vec<Spare> {
    control.with(|m| m.list_spares()).expect("it answers").spares
}

fn path_of(control: &Control, member: usize) -> String {
    array(control, "tank").expect("it is there").members[member].path.clone()
}

#[test]
fn the_smallest_spare_that_fits_is_used_and_the_arrays_own_first() {
    let control = Testbed::new();
    control.create_array(&raid6(control.drives(5))).expect("it is created");
    let small = control.drive_of("small", 48);
    let medium = control.drive_of("medium", 64);
    let large = control.drive_of("large", 96);
    let own = control.drive_of("own", 128);
    check_refused(control.add_spare(&add(&small, "tank")), Usage, "needs");
    for (drive, whom) in [(&large, ""), (&small, ""), (&medium, ""), (&own, "tank")] {
        let change = control.add_spare(&add(drive, whom)).expect("it is a spare");
        assert_eq!(change.result, "created");
        assert_eq!(change.warnings.is_empty(), *drive != small, "{:?}", change.warnings);
    }
    assert_eq!(control.add_spare(&add(&own, "tank")).expect("it is one").result, "unchanged");
    for (member, expected) in [(0, &own), (1, &medium)] {
        control.fail_member(&fail("tank", member)).expect("it fails");
        tick_until(&control, "a spare", || path_of(&control, member as usize) == *expected);
        tick_until(&control, "the rebuild", || control.tank().redundancy_left == 2);
    }
    let mut left: Vec<String> = spares(&control).into_iter().map(|s| s.path).collect();
    left.sort();
    assert_eq!(left, [large, small]);
    assert!(has(&control, EventKind::SpareUsed) && !has(&control, EventKind::SpareNone));
}

#[test]
fn a_spare_that_is_too_small_is_not_used_and_that_is_reported_once() {
    let (control, _) = Testbed::raid6(4);
    control.add_spare(&add(&control.drive_of("small", 48), "")).expect("it is one of the pool");
    control.fail_member(&fail("tank", 3)).expect("it fails");
    control.ticks(5);
    let reported = control.reported("spare_none");
    assert_eq!(reported.len(), 1, "{reported:#?}");
    assert_eq!(control.tank().members[3].state, "faulty");
}

#[test]
fn a_spare_is_never_a_drive_with_content_and_never_in_two_places() {
    let (control, drives) = Testbed::raid6(8);
    let unloaded = CreateArrayRequest {
        name: "old".into(),
        level: "1".into(),
        ..raid6(drives[4..6].to_vec())
    };
    control.create_array(&unloaded).expect("it is created");
    control.unload_array(&unload("old")).expect("it is unloaded");
    check_refused(control.add_spare(&add(&drives[0], "")), Refused, "member 0 of array tank");
    check_refused(control.add_spare(&add(&drives[4], "")), Refused, "member of array old");
    check_refused(control.add_spare(&add("ram:64MiB", "")), Usage, "must survive");
    check_refused(control.add_spare(&add(&drives[6], "nowhere")), NotFound, "existing names: tank");
    let dry = AddSpareRequest { dry_run: true, overwrite: true, ..add(&drives[4], "") };
    assert_eq!(control.add_spare(&dry).expect("it is planned").result, "planned");
    let forced = AddSpareRequest { overwrite: true, ..add(&drives[4], "") };
    control.add_spare(&forced).expect("it was asked for");
    let create = CreateArrayRequest {
        name: "new".into(),
        level: "1".into(),
        ..raid6(vec![drives[4].clone(), drives[7].clone()])
    };
    check_refused(control.create_array(&create), Refused, "is a spare");
    let remove = RemoveSpareRequest { drive: drives[4].clone() };
    control.remove_spare(&remove).expect("it is one");
    check_refused(control.remove_spare(&remove), NotFound, "none exists yet");
    control.create_array(&create).expect("it is free");
}

/// History: drives of a destroyed array became spares without a report, and a degraded array used them within a second.
#[test]
fn a_new_spare_names_the_destroyed_array_it_belongs_to_and_the_member_it_replaces() {
    let (control, drives) = Testbed::raid6(6);
    let old =
        CreateArrayRequest { name: "old".into(), level: "1".into(), ..raid6(drives[4..].to_vec()) };
    control.create_array(&old).expect("it is created");
    let destroy = DestroyArrayRequest { name: "old".into(), ..Default::default() };
    control.destroy_array(&destroy).expect("it is destroyed");
    let request =
        |dry_run, overwrite| AddSpareRequest { dry_run, overwrite, ..add(&drives[4], "") };
    let plan = control.add_spare(&request(true, false)).expect("it is planned").plan.join("; ");
    assert!(plan.contains("when the spare is used: member 0 of the destroyed array old"), "{plan}");
    control.fail_member(&fail("tank", 1)).expect("it fails");
    for dry_run in [true, false] {
        let refused = control.add_spare(&request(dry_run, false));
        check_refused(refused, Refused, "member 0 of the destroyed array old");
    }
    for dry_run in [true, false] {
        let plan = control.add_spare(&request(dry_run, true)).expect("it is one").plan.join("; ");
        assert!(plan.contains("replace member 1 of array tank at once"), "{plan}");
    }
}

/// History: a spare that was used by another command at that moment was reported as unusable.
#[test]
fn a_spare_that_another_command_uses_is_not_reported() {
    let (control, drives) = Testbed::raid6(5);
    control.add_spare(&add(&drives[4], "")).expect("it is a spare");
    control.fail_member(&fail("tank", 1)).expect("it fails");
    let uuid = control.with(|m| m.running[0].uuid()).expect("it answers");
    let key = control.with(|m| drive_key(&m.records.spares[0].identity)).expect("it answers");
    let held = control.try_reserve(vec![key]).expect("it answers").expect("it is free");
    use_spare(&control, &uuid, 1, Wish::Upkeep).expect_err("another command uses the spare");
    assert!(!has(&control, EventKind::SpareMissing));
    drop(held);
    use_spare(&control, &uuid, 1, Wish::Upkeep).expect("it is free");
    assert_eq!(path_of(&control, 1), drives[4]);
}

#[test]
fn spares_outlast_a_restart_and_a_missing_one_is_reported() {
    let (mut control, _) = Testbed::raid6(4);
    let spare = control.drive_of("spare", 64);
    control.add_spare(&add(&spare, "tank")).expect("it is a spare");
    control.shut_down();
    let away = control.path("away");
    fs::rename(&spare, &away).expect("it can be moved");
    control.start();
    control.tick().expect("it answers");
    assert_eq!(spares(&control)[0].state, "missing");
    assert!(has(&control, EventKind::SpareMissing));
    // Another drive at the same path is no spare.
    control.drive_of("spare", 64);
    control.tick().expect("it answers");
    assert!(spares(&control)[0].note.contains("another drive"), "{:?}", spares(&control));
    fs::rename(&away, &spare).expect("it can be moved");
    tick_until(&control, "its return", || has(&control, EventKind::SpareReturned));
    control.fail_member(&fail("tank", 0)).expect("it fails");
    tick_until(&control, "its use", || path_of(&control, 0) == spare);
}

/// F14: a drive is pulled. Although the open file still answers, its path does not exist: the member is missing, and a
/// spare replaces it immediately.
#[test]
fn f14_a_pulled_drive_is_missing_and_a_spare_takes_its_place() {
    let (control, drives) = Testbed::raid6(5);
    fs::rename(&drives[2], control.path("pulled")).expect("it can be moved");
    tick_until(&control, "the loss", || has(&control, EventKind::MemberMissing));
    let view = control.tank();
    assert_eq!(view.members[2].state, "missing");
    control.add_spare(&add(&drives[4], "")).expect("it is a spare");
    tick_until(&control, "a spare", || path_of(&control, 2) == drives[4]);
    tick_until(&control, "recovery", || has(&control, EventKind::ArrayRecovered));
}

/// The test of mdadm: a member fails and a spare replaces it. From then on the spare is the member, also after a
/// restart, and the failed drive is not.
#[test]
fn md_10ddf_fail_spare() {
    for (level, members, slot) in [("1", 2, 1), ("10", 4, 2), ("5", 3, 0), ("6", 5, 4)] {
        let mut control = Testbed::new();
        let drives = control.drives(members + 1);
        let (spare, first) = (drives[members].clone(), drives[..members].to_vec());
        let request = CreateArrayRequest { level: level.into(), ..raid6(first) };
        control.create_array(&request).expect("it is created");
        control.add_spare(&add(&spare, "")).expect("it is a spare");
        control.fail_member(&fail("tank", slot)).expect("it fails");
        let whole = |control: &Control| {
            array(control, "tank").is_ok_and(|a| a.members.iter().all(|m| m.state == "in_sync"))
        };
        tick_until(&control, "the rebuild", || whole(&control));
        control.restart();
        tick_until(&control, "the start", || whole(&control));
        assert_eq!(path_of(&control, slot as usize), spare, "level {level}");
        assert_eq!(spares(&control), [], "level {level}: it was removed as a spare");
    }
}

/// The test of mdadm: a spare of a group of arrays replaces a member of any array of the group, and a spare of one
/// array is used only by this array.
#[test]
fn md_11spare_migration() {
    let (control, drives) = Testbed::raid6(10);
    let other = CreateArrayRequest { name: "vault".into(), ..raid6(drives[4..8].to_vec()) };
    control.create_array(&other).expect("it is created");
    control.add_spare(&add(&drives[8], "vault")).expect("it is vault's");
    control.fail_member(&fail("tank", 1)).expect("it fails");
    tick_until(&control, "the news", || has(&control, EventKind::SpareNone));
    control.ticks(5);
    assert_eq!(control.tank().members[1].state, "faulty");
    assert_eq!(spares(&control).len(), 1, "vault's own stays");
    control.add_spare(&add(&drives[9], "")).expect("it is everybody's");
    tick_until(&control, "the use of the pool", || path_of(&control, 1) == drives[9]);
    // Each of two degraded arrays uses a spare that it may use.
    control.fail_member(&fail("vault", 0)).expect("it fails");
    let vault = || array(&control, "vault").expect("it is there").members[0].path.clone();
    tick_until(&control, "the use of its own", || vault() == drives[8]);
    assert_eq!(spares(&control), []);
}

/// The test of mdadm: an array is created while a member of another array fails. Both commands change the records, and
/// neither may undo the change of the other.
#[test]
fn md_10ddf_fail_create_race() {
    for round in 0..4 {
        let (mut control, drives) = Testbed::raid6(8);
        let other = CreateArrayRequest { name: "vault".into(), ..raid6(drives[4..].to_vec()) };
        std::thread::scope(|scope| {
            let created = scope.spawn(|| control.create_array(&other));
            let failed = scope.spawn(|| control.fail_member(&fail("tank", round)));
            failed.join().expect("it ends").expect("it fails");
            created.join().expect("it ends").expect("it is created");
        });
        control.restart();
        for (name, out) in [("tank", vec![round as usize]), ("vault", vec![])] {
            tick_until(&control, "the start", || {
                array(&control, name).is_ok_and(|a| a.states.contains(&"online".to_owned()))
            });
            let members = array(&control, name).expect("it is there").members;
            let faulty = members.iter().enumerate().filter(|(_, m)| m.state != "in_sync");
            let faulty: Vec<usize> = faulty.map(|(at, _)| at).collect();
            assert_eq!(faulty, out, "{name}");
        }
    }
}

/// Every list shows the errors that the array counted with the drive, while the drive is a member.
#[test]
fn errors_of_members_are_shown_with_their_drives() {
    let (control, drives) = Testbed::raid6(5);
    let errors = |at: usize| control.drive(&drives[at]).expect("it is there").errors;
    assert_eq!(errors(2).map(|e| e.device), Some(0));
    assert_eq!(errors(4), None, "it is nobody's member");
    // The drive is shorter than its data area, so reads and writes beyond its end fail.
    let file = fs::File::options().write(true).open(&drives[2]).expect("it opens");
    file.set_len(1 << 20).expect("it can be cut");
    super::life::write(&control, "tank", 2);
    super::life::read(&control, "tank", 2);
    let counted = |e: &strake_api::v1::DriveErrors| e.device + e.medium + e.timeouts;
    tick_until(&control, "the errors", || errors(2).is_some_and(|e| counted(&e) > 0));
    let of_member = control.tank().members[2].errors;
    let listed = control.list_drives().expect("it answers");
    let listed = listed.into_iter().find(|d| d.path == drives[2]).expect("it is listed");
    assert_eq!((listed.errors, listed.errors), (of_member, errors(2)));
}
