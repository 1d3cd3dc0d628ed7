//! Spares, and drives that go and come back.

use super::reported::has;
use super::{Folder, array, check_refused, fail, raid6, stop, tick_until};
use crate::control::Control;
use crate::error::ControlErrorKind;
use crate::events::EventKind;
use std::fs;
use strake_api::v1::{AddSpareRequest, CreateArrayRequest, RemoveSpareRequest, Spare};

fn add(drive: &str, array: &str) -> AddSpareRequest {
    AddSpareRequest { drive: drive.into(), array: array.into(), ..Default::default() }
}

fn spares(control: &Control) -> Vec<Spare> {
    control.run(|m| Ok(m.list_spares())).expect("it answers").spares
}

fn sized(folder: &Folder, name: &str, mib: u64) -> String {
    let path = folder.path(name);
    let file = fs::File::create(&path).expect("a file can be made");
    file.set_len(mib << 20).expect("a sparse file can be made");
    path.display().to_string()
}

fn path_of(control: &Control, member: usize) -> String {
    array(control, "tank").expect("it is there").members[member].path.clone()
}

#[test]
fn the_smallest_spare_that_fits_is_used_and_the_arrays_own_first() {
    let folder = Folder::new();
    let control = folder.control();
    control.create_array(&raid6(folder.drives(5))).expect("it is created");
    let small = sized(&folder, "small", 48);
    let medium = sized(&folder, "medium", 64);
    let large = sized(&folder, "large", 96);
    let own = sized(&folder, "own", 128);
    check_refused(control.add_spare(&add(&small, "tank")), ControlErrorKind::Usage, "needs");
    for (drive, whom) in [(&large, ""), (&small, ""), (&medium, ""), (&own, "tank")] {
        let change = control.add_spare(&add(drive, whom)).expect("it is a spare");
        assert_eq!(change.result, "created");
        assert_eq!(change.warnings.is_empty(), *drive != small, "{:?}", change.warnings);
    }
    assert_eq!(control.add_spare(&add(&own, "tank")).expect("it is one").result, "unchanged");
    for (member, expected) in [(0, &own), (1, &medium)] {
        control.fail_member(&fail("tank", member)).expect("it fails");
        tick_until(&control, "a spare", || path_of(&control, member as usize) == *expected);
        tick_until(&control, "the rebuild", || {
            array(&control, "tank").expect("it is there").redundancy_left == 2
        });
    }
    let mut left: Vec<String> = spares(&control).into_iter().map(|s| s.path).collect();
    left.sort();
    assert_eq!(left, [large, small]);
    assert!(has(&control, EventKind::SpareUsed) && !has(&control, EventKind::SpareNone));
    stop(&control);
}

#[test]
fn a_spare_that_is_too_small_is_not_used_and_that_is_reported_once() {
    let folder = Folder::new();
    let control = folder.control();
    control.create_array(&raid6(folder.drives(4))).expect("it is created");
    control.add_spare(&add(&sized(&folder, "small", 48), "")).expect("it is one of the pool");
    control.fail_member(&fail("tank", 3)).expect("it fails");
    (0..5).for_each(|_| control.tick().expect("it answers"));
    let none =
        strake_api::v1::ListEventsRequest { kind: "spare_none".into(), ..Default::default() };
    let reported = control.events().list(&none).expect("the request is fine");
    assert_eq!(reported.len(), 1, "{reported:#?}");
    assert_eq!(array(&control, "tank").expect("it is there").members[3].state, "faulty");
    stop(&control);
}

#[test]
fn a_spare_is_never_a_drive_with_content_and_never_in_two_places() {
    let folder = Folder::new();
    let drives = folder.drives(8);
    let control = folder.control();
    control.create_array(&raid6(drives[..4].to_vec())).expect("it is created");
    let unloaded = CreateArrayRequest {
        name: "old".into(),
        level: "1".into(),
        ..raid6(drives[4..6].to_vec())
    };
    control.create_array(&unloaded).expect("it is created");
    let unload = strake_api::v1::UnloadArrayRequest { name: "old".into(), ..Default::default() };
    control.unload_array(&unload).expect("it is unloaded");
    check_refused(
        control.add_spare(&add(&drives[0], "")),
        ControlErrorKind::Refused,
        "member 0 of array tank",
    );
    check_refused(
        control.add_spare(&add(&drives[4], "")),
        ControlErrorKind::Refused,
        "member of array old",
    );
    check_refused(control.add_spare(&add("ram:64MiB", "")), ControlErrorKind::Usage, "outlasts");
    check_refused(
        control.add_spare(&add(&drives[6], "nowhere")),
        ControlErrorKind::NotFound,
        "there is: tank",
    );
    let dry = AddSpareRequest { dry_run: true, overwrite: true, ..add(&drives[4], "") };
    assert_eq!(control.add_spare(&dry).expect("it is planned").result, "planned");
    let forced = AddSpareRequest { overwrite: true, ..add(&drives[4], "") };
    control.add_spare(&forced).expect("it was asked for");
    let create = CreateArrayRequest {
        name: "new".into(),
        level: "1".into(),
        ..raid6(vec![drives[4].clone(), drives[7].clone()])
    };
    check_refused(control.create_array(&create), ControlErrorKind::Refused, "is a spare");
    let remove = RemoveSpareRequest { drive: drives[4].clone() };
    control.remove_spare(&remove).expect("it is one");
    check_refused(control.remove_spare(&remove), ControlErrorKind::NotFound, "there is none yet");
    control.create_array(&create).expect("it is free");
    stop(&control);
}

#[test]
fn spares_outlast_a_restart_and_a_missing_one_is_reported() {
    let folder = Folder::new();
    let control = folder.control();
    control.create_array(&raid6(folder.drives(4))).expect("it is created");
    let spare = sized(&folder, "spare", 64);
    control.add_spare(&add(&spare, "tank")).expect("it is a spare");
    stop(&control);
    drop(control);
    let away = folder.path("away");
    fs::rename(&spare, &away).expect("it can be moved");
    let control = folder.control();
    control.tick().expect("it answers");
    assert_eq!(spares(&control)[0].state, "missing");
    assert!(has(&control, EventKind::SpareMissing));
    // Another medium under the same path is no spare.
    sized(&folder, "spare", 64);
    control.tick().expect("it answers");
    assert!(spares(&control)[0].note.contains("another drive"), "{:?}", spares(&control));
    fs::rename(&away, &spare).expect("it can be moved");
    tick_until(&control, "its return", || has(&control, EventKind::SpareReturned));
    control.fail_member(&fail("tank", 0)).expect("it fails");
    tick_until(&control, "its use", || path_of(&control, 0) == spare);
    stop(&control);
}

/// F14: a drive is pulled. Though an open file would still answer, its path is gone: the member is missing, and a spare
/// takes its place at once.
#[test]
fn f14_a_pulled_drive_is_missing_and_a_spare_takes_its_place() {
    let folder = Folder::new();
    let drives = folder.drives(5);
    let control = folder.control();
    control.create_array(&raid6(drives[..4].to_vec())).expect("it is created");
    fs::rename(&drives[2], folder.path("pulled")).expect("it can be moved");
    tick_until(&control, "the loss", || has(&control, EventKind::MemberMissing));
    let view = array(&control, "tank").expect("it is there");
    assert_eq!(view.members[2].state, "missing");
    control.add_spare(&add(&drives[4], "")).expect("it is a spare");
    tick_until(&control, "a spare", || path_of(&control, 2) == drives[4]);
    tick_until(&control, "recovery", || has(&control, EventKind::ArrayRecovered));
    stop(&control);
}

/// Stops everything and starts it again.
fn restarted(folder: &Folder, control: Control) -> Control {
    stop(&control);
    drop(control);
    folder.control()
}

/// mdadm's test: a member fails and a spare takes its place. The spare is the member from then on, also after a
/// restart, and the drive that failed is not.
#[test]
fn md_10ddf_fail_spare() {
    for (level, members, slot) in [("1", 2, 1), ("10", 4, 2), ("5", 3, 0), ("6", 5, 4)] {
        let folder = Folder::new();
        let drives = folder.drives(members + 1);
        let (spare, first) = (drives[members].clone(), drives[..members].to_vec());
        let control = folder.control();
        let request = CreateArrayRequest { level: level.into(), ..raid6(first) };
        control.create_array(&request).expect("it is created");
        control.add_spare(&add(&spare, "")).expect("it is a spare");
        control.fail_member(&fail("tank", slot)).expect("it fails");
        let whole = |control: &Control| {
            array(control, "tank").is_ok_and(|a| a.members.iter().all(|m| m.state == "in_sync"))
        };
        tick_until(&control, "the rebuild", || whole(&control));
        let control = restarted(&folder, control);
        tick_until(&control, "the start", || whole(&control));
        assert_eq!(path_of(&control, slot as usize), spare, "level {level}");
        assert_eq!(spares(&control), [], "level {level}: it was removed as a spare");
        stop(&control);
    }
}

/// mdadm's test: a spare of a group of arrays goes to whichever needs it, and one that belongs to an array stays there.
#[test]
fn md_11spare_migration() {
    let folder = Folder::new();
    let drives = folder.drives(10);
    let control = folder.control();
    control.create_array(&raid6(drives[..4].to_vec())).expect("it is created");
    let other = CreateArrayRequest { name: "vault".into(), ..raid6(drives[4..8].to_vec()) };
    control.create_array(&other).expect("it is created");
    control.add_spare(&add(&drives[8], "vault")).expect("it is vault's");
    control.fail_member(&fail("tank", 1)).expect("it fails");
    tick_until(&control, "the news", || has(&control, EventKind::SpareNone));
    (0..5).for_each(|_| control.tick().expect("it answers"));
    assert_eq!(array(&control, "tank").expect("it is there").members[1].state, "faulty");
    assert_eq!(spares(&control).len(), 1, "vault's own stays");
    control.add_spare(&add(&drives[9], "")).expect("it is everybody's");
    tick_until(&control, "the use of the pool", || path_of(&control, 1) == drives[9]);
    // Of two arrays in need, each takes what it may.
    control.fail_member(&fail("vault", 0)).expect("it fails");
    let vault = || array(&control, "vault").expect("it is there").members[0].path.clone();
    tick_until(&control, "the use of its own", || vault() == drives[8]);
    assert_eq!(spares(&control), []);
    stop(&control);
}

/// mdadm's test: an array is created while a member of another one fails. Both commands change what is recorded, and
/// neither may undo the other.
#[test]
fn md_10ddf_fail_create_race() {
    for round in 0..4 {
        let folder = Folder::new();
        let drives = folder.drives(8);
        let control = folder.control();
        control.create_array(&raid6(drives[..4].to_vec())).expect("it is created");
        let other = CreateArrayRequest { name: "vault".into(), ..raid6(drives[4..].to_vec()) };
        std::thread::scope(|scope| {
            let created = scope.spawn(|| control.create_array(&other));
            let failed = scope.spawn(|| control.fail_member(&fail("tank", round)));
            failed.join().expect("it ends").expect("it fails");
            created.join().expect("it ends").expect("it is created");
        });
        let control = restarted(&folder, control);
        for (name, out) in [("tank", vec![round as usize]), ("vault", vec![])] {
            tick_until(&control, "the start", || {
                array(&control, name).is_ok_and(|a| a.states.contains(&"online".to_owned()))
            });
            let members = array(&control, name).expect("it is there").members;
            let faulty = members.iter().enumerate().filter(|(_, m)| m.state != "in_sync");
            let faulty: Vec<usize> = faulty.map(|(at, _)| at).collect();
            assert_eq!(faulty, out, "{name}");
        }
        stop(&control);
    }
}

/// The errors that the array counts are the drive's in every listing, for as long as it has its place.
#[test]
fn errors_of_members_are_shown_with_their_drives() {
    let folder = Folder::new();
    let drives = folder.drives(5);
    let control = folder.control();
    control.create_array(&raid6(drives[..4].to_vec())).expect("it is created");
    let errors = |at: usize| control.drive(&drives[at]).expect("it is there").errors;
    assert_eq!(errors(2).map(|e| e.device), Some(0));
    assert_eq!(errors(4), None, "it is nobody's member");
    // The drive ends before its data does: reads and writes beyond fail.
    let file = fs::File::options().write(true).open(&drives[2]).expect("it opens");
    file.set_len(1 << 20).expect("it can be cut");
    super::life::write(&control, "tank", 2);
    super::life::read(&control, "tank", 2);
    let counted = |e: &strake_api::v1::DriveErrors| e.device + e.medium + e.timeouts;
    tick_until(&control, "the errors", || errors(2).is_some_and(|e| counted(&e) > 0));
    let of_member = array(&control, "tank").expect("it is there").members[2].errors;
    let listed = control.list_drives().expect("it answers");
    let listed = listed.into_iter().find(|d| d.path == drives[2]).expect("it is listed");
    assert_eq!((listed.errors, listed.errors), (of_member, errors(2)));
    stop(&control);
}
