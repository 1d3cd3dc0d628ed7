//! Members whose blocks are computed from stripes that a scrub found inconsistent.

use std::fs::File;
use std::os::unix::fs::FileExt;

use strake_api::v1::{
    Array, ChangeScrubRequest, CreateArrayRequest, DestroyArrayRequest, FailMemberRequest,
    ImportArraysRequest, ReplaceMemberRequest, Scrub, StartScrubRequest, UndeleteArrayRequest,
};

use super::life::write;
use super::reported::has;
use super::{Testbed, check_refused, readd, replace, tick_until, unload};
use crate::control::Control;
use crate::error::ControlErrorKind::Refused;
use crate::events::EventKind;
use crate::upkeep::doubt::note_crash;

/// The start of the data area of a drive.
const DATA: u64 = 16 << 20;

/// Array tank, a RAID 5 of the first three of four drives, with 4 KiB of wrong data on member 1.
fn spoiled() -> (Testbed, Vec<String>) {
    let control = Testbed::new();
    let drives = control.drives(4);
    let request = CreateArrayRequest {
        name: "tank".into(),
        level: "5".into(),
        drives: drives[..3].to_vec(),
        strip_bytes: 64 << 10,
        ..Default::default()
    };
    control.create_array(&request).expect("drives fit");
    write(&control, "tank", 4);
    let file = File::options().write(true).open(&drives[1]).expect("it is a file");
    file.write_all_at(&[0xa5; 4096], DATA + (64 << 10)).expect("there is room");
    file.sync_all().expect("it is stored");
    (control, drives)
}

fn scrub(control: &Control, mode: &str) -> Scrub {
    let request = StartScrubRequest { name: "tank".into(), mode: mode.into() };
    control.run(|m| m.start_scrub(&request)).expect("none is under way");
    let look = || control.run(|m| m.scrub("tank")).expect("it runs");
    tick_until(control, "the end of the scrub", || look().state == "finished");
    control.tick().expect("it answers");
    look()
}

fn fail(accept: &[&str]) -> FailMemberRequest {
    let accept = accept.iter().map(|&loss| loss.into()).collect();
    FailMemberRequest { name: "tank".into(), member: 0, accept, ..Default::default() }
}

fn is_suspect(array: &Array) -> bool {
    let has_state = array.states.iter().any(|state| state == "suspect");
    assert_eq!(has_state, array.suspect_bytes > 0, "{array:?}");
    assert_eq!(array.suspect_ranges.is_empty(), array.suspect_bytes == 0, "{array:?}");
    has_state
}

#[test]
fn a_rebuild_from_inconsistent_stripes_is_not_silent() {
    let (mut control, drives) = spoiled();
    assert_eq!(scrub(&control, "check").unsure_bytes, 4096);
    assert!(!is_suspect(&control.tank()), "all members serve");
    for losses in [&[][..], &["redundancy"], &["data"]] {
        check_refused(control.fail_member(&fail(losses)), Refused, "--accept redundancy,data");
    }
    let both = fail(&["redundancy", "data"]);
    let plan = control.fail_member(&FailMemberRequest { dry_run: true, ..both.clone() });
    let plan = plan.expect("both are accepted").plan;
    assert!(
        plan.iter().any(|step| step.contains("may be wrong, also after a rebuild")),
        "{plan:?}"
    );
    control.fail_member(&both).expect("both are accepted");
    assert!(is_suspect(&control.tank()), "at once");

    let dry = ReplaceMemberRequest { dry_run: true, ..replace(0, &drives[3]) };
    let plan = control.replace_member(&dry).expect("it fits").plan;
    assert!(plan.iter().any(|step| step.contains("may be reconstructed wrongly")), "{plan:?}");
    control.replace_member(&replace(0, &drives[3])).expect("it fits");
    tick_until(&control, "the rebuild", || {
        control.tank().members.iter().all(|member| member.state == "in_sync")
    });
    assert!(has(&control, EventKind::Suspect));
    let found = control.tank();
    assert!(is_suspect(&found) && found.next_action.contains("--trust-data"), "{found:?}");

    // All stripes are consistent now, but their content may still be wrong.
    assert_eq!(scrub(&control, "check").left_bytes, 0);
    assert!(is_suspect(&control.tank()));
    control.restart();
    tick_until(&control, "the array", || control.tank().states.iter().any(|s| s == "online"));
    assert_eq!(control.tank().suspect_ranges, found.suspect_ranges);
    scrub(&control, "trust_data");
    assert!(!is_suspect(&control.tank()), "the operator accepted it");
}

/// A scrub without redundancy to compare resolves no finding and removes none, in every mode.
#[test]
fn a_scrub_without_redundancy_settles_nothing() {
    for mode in ["check", "repair", "trust_data"] {
        let (control, _) = spoiled();
        scrub(&control, "check");
        let corrupt = control.tank().corrupt_bytes;
        control.fail_member(&fail(&["redundancy", "data"])).expect("both are accepted");
        let clean = scrub(&control, mode);
        assert_eq!((clean.checked_bytes, clean.findings.len()), (0, 1), "{mode}");
        let found = control.tank();
        assert!(is_suspect(&found) && found.corrupt_bytes == corrupt, "{mode}: {found:?}");
        control.readd_member(&readd(None)).expect("its drive is there");
        tick_until(&control, "the member", || {
            control.tank().members.iter().all(|member| member.state == "in_sync")
        });
        // The stripe is still inconsistent, so the failure of the next member needs consent again.
        let other = FailMemberRequest { member: 2, ..fail(&["redundancy"]) };
        check_refused(control.fail_member(&other), Refused, "--accept redundancy,data");
        scrub(&control, "trust_data");
        let settled = control.tank();
        assert!(!is_suspect(&settled) && settled.corrupt_bytes == 0, "{mode}: {settled:?}");
    }
}

/// An incomplete scrub may not have reached the earlier findings again.
#[test]
fn a_scrub_that_was_stopped_forgets_nothing() {
    let (control, _) = spoiled();
    scrub(&control, "check");
    super::hold(&control, true);
    let request = StartScrubRequest { name: "tank".into(), mode: "check".into() };
    control.run(|m| m.start_scrub(&request)).expect("none is under way");
    let refused = || check_refused(control.fail_member(&fail(&["redundancy"])), Refused, "data");
    refused();
    let stop = ChangeScrubRequest { name: "tank".into(), action: "stop".into() };
    control.run(|m| m.change_scrub(&stop)).expect("it is under way");
    control.tick().expect("it answers");
    refused();
    let shown = control.run(|m| m.scrub("tank")).expect("it runs");
    assert_eq!((shown.state.as_str(), shown.findings.len()), ("stopped", 1));
}

/// The contents of the array do not change by these commands.
#[test]
fn what_is_suspect_outlasts_an_unload_and_a_destruction() {
    let (mut control, drives) = spoiled();
    scrub(&control, "check");
    control.fail_member(&fail(&["redundancy", "data"])).expect("both are accepted");
    control.tick().expect("it answers");
    control.replace_member(&replace(0, &drives[3])).expect("it fits");
    tick_until(&control, "the rebuild", || {
        control.tank().members.iter().all(|member| member.state == "in_sync")
    });
    let before = control.tank();
    assert!(is_suspect(&before) && before.corrupt_bytes > 0);
    let same = |now: &Array| {
        assert_eq!(now.suspect_ranges, before.suspect_ranges);
        assert_eq!(now.corrupt_bytes, before.corrupt_bytes);
    };
    control.unload_array(&unload("tank")).expect("it goes");
    let import = ImportArraysRequest {
        name: "tank".into(),
        drives: drives[1..].to_vec(),
        ..Default::default()
    };
    control.import_arrays(&import).expect("it comes back");
    same(&control.tank());
    let destroy = DestroyArrayRequest { name: "tank".into(), ..Default::default() };
    control.destroy_array(&destroy).expect("it goes");
    let undelete = UndeleteArrayRequest { name: "tank".into(), ..Default::default() };
    control.undelete_array(&undelete).expect("it comes back");
    same(&control.tank());

    // An unreadable file may have recorded any doubt.
    control.shut_down();
    let state = std::fs::read_dir(control.path("state")).expect("it is there");
    let mut names = state.map(|entry| entry.expect("it can be read").path());
    let file = names.find(|path| path.to_string_lossy().contains("/doubt-"));
    std::fs::write(file.expect("it is recorded"), "{").expect("it can be written");
    control.start();
    let damaged = control.tank();
    assert!(damaged.states.contains(&"unverified".to_owned()), "{damaged:?}");
}

/// A crash in mode none is recorded when the state directory can be written again.
#[test]
fn a_crash_that_cannot_be_recorded_is_recorded_later() {
    let mut control = Testbed::new();
    let drives = control.drives(3);
    let request = CreateArrayRequest {
        name: "tank".into(),
        level: "5".into(),
        drives,
        consistency: "none".into(),
        ..Default::default()
    };
    control.create_array(&request).expect("drives fit");
    let is_unverified = |control: &Testbed| {
        let is_shown = control.tank().states.iter().any(|state| state == "unverified");
        (is_shown, control.reported("unverified").len())
    };
    let uuid = control.tank().uuid;
    let next = control.path("state").join(format!("doubt-{uuid}.json.next"));
    std::fs::create_dir(&next).expect("it can be made");
    control.with(|m| note_crash(m, 0)).expect("it answers");
    control.tick().expect("it answers");
    assert_eq!(is_unverified(&control), (false, 1));
    std::fs::remove_dir(&next).expect("it is empty");
    control.tick().expect("it answers");
    assert_eq!(is_unverified(&control), (true, 1), "it is reported once");
    control.restart();
    assert_eq!(is_unverified(&control), (true, 1));
}

/// A copy reads the content of the member and does not compute it.
#[test]
fn a_member_that_is_copied_is_not_suspect() {
    let (control, drives) = spoiled();
    scrub(&control, "check");
    let dry = ReplaceMemberRequest { dry_run: true, ..replace(0, &drives[3]) };
    let plan = control.replace_member(&dry).expect("it fits").plan;
    assert!(!plan.iter().any(|step| step.contains("wrongly")), "{plan:?}");
    control.replace_member(&replace(0, &drives[3])).expect("it fits");
    tick_until(&control, "the copy", || control.tank().members[0].path == drives[3]);
    assert!(!is_suspect(&control.tank()));
    assert!(!has(&control, EventKind::Suspect));
}
