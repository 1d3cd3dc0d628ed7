//! The next command that an operator is offered. History: a paused rebuild advised to wait for it, an array that could
//! not be destroyed named no way to remove it, and the drives of an offline array and the target of a copy looked free.

use super::{Testbed, check_refused, fail, hold, impatient, readd, replace};
use crate::error::ControlErrorKind::State;
use std::fs;
use strake_api::v1::{CleanDriveRequest, DestroyArrayRequest, Drive, UnloadArrayRequest};

fn drives(bed: &Testbed) -> Vec<Drive> {
    bed.list_drives().expect("it answers")
}

fn drive(bed: &Testbed, path: &str) -> Drive {
    let found = drives(bed).into_iter().find(|drive| drive.path == path);
    found.unwrap_or_else(|| panic!("{path} is listed"))
}

/// An array whose members are absent, except the first.
fn offline() -> (Testbed, Vec<String>) {
    let (mut bed, drives) = Testbed::raid6(4);
    bed.shut_down();
    for absent in &drives[1..] {
        fs::remove_file(absent).expect("it is ours");
    }
    bed.start_with(impatient());
    (bed, drives)
}

#[test]
fn a_paused_job_is_to_be_resumed_and_not_awaited() {
    let (bed, _) = Testbed::raid6(4);
    hold(&bed, true);
    bed.fail_member(&fail("tank", 1)).expect("it fails");
    bed.readd_member(&readd(None)).expect("its drive is here");
    assert_eq!(bed.tank().next_action, "strake job resume tank/rebuild");
    let status = bed.with(|m| m.status(Default::default())).expect("it answers");
    let what = &status.problems[0].what;
    assert!(what.starts_with("the rebuild is paused, "), "{what}");
    hold(&bed, false);
    assert!(!bed.tank().next_action.contains("resume"), "{}", bed.tank().next_action);
}

#[test]
fn the_target_of_a_copy_is_not_free() {
    let (bed, _) = Testbed::raid6(4);
    let target = bed.drive_of("target", 128);
    hold(&bed, true);
    bed.replace_member(&replace(1, &target)).expect("the copy starts");
    let shown = drive(&bed, &target);
    let place = (shown.state.as_str(), shown.array.as_str(), shown.member);
    assert_eq!(place, ("replacement", "tank", Some(1)), "{}", shown.note);
    assert_eq!(bed.tank().next_action, "strake job resume tank/replace");
}

#[test]
fn the_drives_of_an_offline_array_are_listed() {
    let (bed, paths) = offline();
    let here = drive(&bed, &paths[0]);
    let place = (here.state.as_str(), here.array.as_str(), here.member);
    assert_eq!(place, ("occupied", "tank", Some(0)), "{}", here.note);
    for absent in &paths[1..] {
        let shown = drive(&bed, absent);
        assert_eq!((shown.state.as_str(), shown.array.as_str()), ("failed", "tank"));
        assert!(!shown.note.is_empty());
    }
}

#[test]
fn an_array_that_cannot_be_destroyed_can_be_removed_otherwise() {
    let (bed, paths) = offline();
    let next = bed.tank().next_action;
    assert!(
        next.contains("will not return") && next.ends_with("strake array unload tank"),
        "{next}"
    );
    let destroy = DestroyArrayRequest { name: "tank".into(), ..Default::default() };
    check_refused(bed.destroy_array(&destroy), State, "strake array unload tank, and then");
    check_refused(bed.destroy_array(&destroy), State, "strake drive clean DRIVE --accept-loss");
    let unload = UnloadArrayRequest { name: "tank".into(), ..Default::default() };
    assert_eq!(bed.unload_array(&unload).expect("it is removed").result, "changed");
    let clean = CleanDriveRequest { path: paths[0].clone(), accept_loss: true, dry_run: false };
    assert_eq!(bed.clean_drive(&clean).expect("it is cleaned").result, "changed");
    assert!(drives(&bed).iter().all(|drive| drive.array.is_empty()));
    let none = DestroyArrayRequest { name: "none".into(), ..Default::default() };
    let error = bed.destroy_array(&none).expect_err("there is none");
    assert!(!error.what.contains("unload"), "{error}");
}
