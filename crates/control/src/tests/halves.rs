//! Two halves of one array that continued separately.

use super::{Testbed, array, check_refused, impatient, mirror, replace, tick_until};
use crate::error::ControlErrorKind::{Refused, Usage};
use std::fs;
use strake_api::v1::{CreateArrayRequest, Daemon, Event, ImportArraysRequest, StopDaemonRequest};

/// A mirror whose first half was pulled while it ran. Then the daemon was stopped, the second half was removed, and the
/// first half was returned.
fn stale_half_alone() -> (Testbed, [String; 2], std::path::PathBuf) {
    let (mut control, drives) = Testbed::mirror(2);
    let (away, newer) = (control.path("away"), control.path("newer"));
    fs::rename(&drives[0], &away).expect("it can be moved");
    tick_until(&control, "the loss", || {
        array(&control, "tank").is_ok_and(|view| view.members[0].state == "missing")
    });
    control.shut_down();
    fs::rename(&drives[1], &newer).expect("it can be moved");
    fs::rename(&away, &drives[0]).expect("it can be moved");
    control.start_with(impatient());
    (control, drives.try_into().expect("there are two"), newer)
}

/// History: one half of a mirror was pulled, the other half continued alone, and the daemon was stopped. Then the other
/// half was removed and the first half was returned. Its label recorded no failure, so after the assemble timeout the
/// array started automatically, served old data without a report, and offered the newer half as a drive to overwrite,
/// although the records of this host showed a newer state.
#[test]
fn a_half_older_than_this_machine_has_seen_never_starts_by_itself() {
    let (control, [first, second], newer) = stale_half_alone();
    control.ticks(3);
    let view = control.tank();
    assert_eq!(view.states, ["offline"]);
    for words in ["do not continue the newest state", "member 1", &second, "--accept-loss"] {
        assert!(view.reason.contains(words), "{words}: {}", view.reason);
    }
    assert!(view.next_action.contains("--degraded --accept-loss"), "{}", view.next_action);
    let degraded =
        ImportArraysRequest { name: "tank".into(), allow_degraded: true, ..Default::default() };
    check_refused(control.import_arrays(&degraded), Refused, "--accept-loss");
    // The half that this host saw last is still accepted.
    fs::rename(&newer, &second).expect("it can be moved");
    control.import_arrays(&degraded).expect("the newer half is here");
    let view = control.tank();
    let states: Vec<&str> = view.members.iter().map(|m| m.state.as_str()).collect();
    assert!(states[1] == "in_sync", "{states:?} {first}");
}

/// History: the operator accepted the loss, and then the newer half returned. Only this half holds the last
/// acknowledged writes. It was nevertheless reported without emphasis, and the advice was to replace the member with a
/// drive.
#[test]
fn the_half_left_behind_on_purpose_is_reported_loudly_and_not_overwritten() {
    let (mut control, [_, second], newer) = stale_half_alone();
    let accepted = ImportArraysRequest {
        name: "tank".into(),
        allow_degraded: true,
        accept_loss: true,
        ..Default::default()
    };
    control.import_arrays(&accepted).expect("the loss is accepted");
    control.tick().expect("it answers");
    fs::rename(&newer, &second).expect("it can be moved");
    let view = || control.tank();
    tick_until(&control, "the news", || view().reason.contains("contains writes"));
    let view = view();
    assert!(view.next_action.starts_with("keep "), "{}", view.next_action);
    assert!(!view.members[1].returned && view.members[1].cause.contains(&second), "{view:#?}");
    let reported = control.reported("member_returned");
    let is_loud = |e: &Event| e.severity == "critical" && e.next_action.starts_with("keep ");
    assert!(reported.iter().any(is_loud), "{reported:#?}");
    let status = control.run(|m| {
        let daemon = m.daemon("", 0, 0);
        Ok(m.status(daemon))
    });
    let status = status.expect("it answers");
    assert!(status.problems.iter().any(|p| p.what.contains("contains writes")), "{status:#?}");
    let doctor = control.doctor().expect("it answers");
    assert!(doctor.checks.iter().any(|c| c.what.contains("contains writes")), "{doctor:#?}");
    check_refused(control.replace_member(&replace(1, &second)), Refused, "on no other drive");
    control.shut_down();
    // The accepted loss remains accepted.
    fs::remove_file(&second).expect("it is there");
    control.start_with(impatient());
    assert!(array(&control, "tank").is_ok_and(|view| view.states[0] != "offline"));
}

/// History: while a drive served, the operator copied it and moved the copy over it (`cp d1 t; mv t d1`). The path
/// existed at every check, so no problem was reported. Writes went to a file that could no longer be opened. After a
/// restart, the copy was used as the member, and old data was served.
#[test]
fn another_drive_at_the_path_of_a_member_is_noticed_and_not_taken_for_it() {
    let control = Testbed::new();
    let drives = control.drives(3);
    let raid5 = CreateArrayRequest { level: "5".into(), ..mirror(&drives) };
    control.create_array(&raid5).expect("it is created");
    let copy = control.path("copy");
    fs::copy(&drives[1], &copy).expect("it can be copied");
    fs::hard_link(&drives[1], control.path("own")).expect("it can be kept");
    fs::rename(&copy, &drives[1]).expect("it can be moved");
    let view = || control.tank();
    tick_until(&control, "the loss", || view().members[1].state == "missing");
    control.ticks(5);
    let member = view().members[1].clone();
    assert_eq!(member.state, "missing");
    assert!(member.cause.contains("another drive is at its path"), "{member:?}");
    let reported = control.reported("member_missing");
    assert!(reported.iter().any(|e| e.cause.contains("another drive")), "{reported:#?}");
    let listed = control.list_drives().expect("it answers");
    assert!(listed.iter().any(|d| d.note.contains("another drive is at its path")), "{listed:#?}");
    // The own drive of the member is still accepted.
    fs::rename(control.path("own"), &drives[1]).expect("it can be moved");
    tick_until(&control, "the return", || view().states == ["online"]);
}

/// History: a RAID 5 with no redundancy left lost the paths of two more members. Both correctly remained in use,
/// because the data depends on them. But no event reported that the data was reachable only through open files, and the
/// next restart lost the array.
#[test]
fn data_behind_open_files_alone_is_reported_loudly() {
    let control = Testbed::new();
    let drives = control.drives(3);
    let raid5 = CreateArrayRequest { level: "5".into(), ..mirror(&drives) };
    control.create_array(&raid5).expect("it is created");
    let view = || control.tank();
    let away = control.path("away");
    fs::rename(&drives[0], control.path("gone")).expect("it can be moved");
    tick_until(&control, "the loss", || view().members[0].state == "missing");
    fs::rename(&drives[1], &away).expect("it can be moved");
    control.ticks(3);
    assert_eq!(view().members[1].state, "in_sync");
    assert!(view().reason.contains("depend on member 1"), "{}", view().reason);
    assert!(view().next_action.contains("do not restart"), "{}", view().next_action);
    let reported = control.reported("member_unreachable");
    let critical = reported.iter().filter(|event| event.severity == "critical");
    assert_eq!(critical.count(), 1, "{reported:#?}");
    let doctor = control.doctor().expect("it answers");
    assert!(doctor.checks.iter().any(|c| c.what.contains("depend on member 1")), "{doctor:#?}");
    let stop = |accept: &[&str]| {
        let accept = accept.iter().map(|loss| (*loss).to_owned()).collect();
        control.check_stop(&StopDaemonRequest { accept }).map(drop)
    };
    check_refused(stop(&[]), Refused, "daemon stop --accept data");
    check_refused(stop(&["redundancy"]), Usage, "not a loss that a stop can cause");
    stop(&["data"]).expect("the loss is accepted");
    fs::rename(&away, &drives[1]).expect("it can be moved");
    control.tick().expect("it answers");
    assert!(!view().reason.contains("depends on"), "{}", view().reason);
    stop(&[]).expect("the path is back");
}

/// A missing configuration is not taken for a new directory, if arrays ran there.
#[test]
fn a_lost_configuration_is_reported_until_the_arrays_are_imported() {
    let (mut control, drives) = Testbed::raid6(4);
    control.tick().expect("it answers");
    control.restart();
    assert_eq!(control.reported("state_lost").len(), 0);
    control.shut_down();
    fs::remove_file(control.path("state/state.json")).expect("it is there");
    control.start();
    control.tick().expect("it answers");
    // It is not forgotten by a further start.
    control.restart();
    control.tick().expect("it answers");
    let reported = control.reported("state_lost");
    let [_, event] = &reported[..] else { panic!("{reported:?}") };
    assert!(event.what.contains("state.json was missing"), "{event:?}");
    assert!(event.next_action.contains("strake array importable"), "{event:?}");
    let status = || control.with(|m| m.status(Daemon::default())).expect("it answers");
    assert_eq!(status().health, "failed");
    let doctor = || control.doctor().expect("it answers").checks;
    assert!(doctor().iter().any(|check| check.name == "daemon configuration"));
    let import = ImportArraysRequest { drives, ..Default::default() };
    control.import_arrays(&import).expect("its drives are there");
    assert_eq!(status().health, "ok");
    assert!(doctor().iter().all(|check| check.name != "daemon configuration"));

    let new = Testbed::new();
    assert_eq!(new.reported("state_lost").len(), 0, "nothing ran there");
}

/// The protection against older copies is disabled in this case. This is reported to the operator, and the content of
/// the file is kept.
#[test]
fn a_file_of_generations_that_cannot_be_read_is_reported_and_put_aside() {
    let (mut control, _) = Testbed::raid6(4);
    control.shut_down();
    let file = control.path("state/newest.json");
    fs::write(&file, "{").expect("it can be written");
    control.start();
    let reported = control.reported("newest_unknown");
    let [event] = &reported[..] else { panic!("{reported:?}") };
    assert!(event.cause.contains("newest.json.damaged"), "{event:?}");
    let aside = control.path("state/newest.json.damaged");
    assert_eq!(fs::read(aside).expect("it is kept"), b"{");
    control.restart();
    assert_eq!(control.reported("newest_unknown").len(), 1, "the next file can be read");
}
