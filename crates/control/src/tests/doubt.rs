//! Members that are computed from stripes which a scrub found inconsistent.

use std::fs::File;
use std::os::unix::fs::FileExt;

use strake_api::v1::{
    Array, CreateArrayRequest, FailMemberRequest, ReplaceMemberRequest, Scrub, StartScrubRequest,
};

use super::life::write;
use super::reported::has;
use super::{Testbed, check_refused, replace, tick_until};
use crate::control::Control;
use crate::error::ControlErrorKind::Refused;
use crate::events::EventKind;

/// Where the data area of a drive begins.
const DATA: u64 = 16 << 20;

/// Array tank, a RAID 5 of the first three of four drives, with 4 KiB on member 1 that are wrong.
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
    assert!(plan.iter().any(|step| step.contains("may be wrong afterwards")), "{plan:?}");
    control.fail_member(&both).expect("both are accepted");
    assert!(is_suspect(&control.tank()), "at once");

    let dry = ReplaceMemberRequest { dry_run: true, ..replace(0, &drives[3]) };
    let plan = control.replace_member(&dry).expect("it fits").plan;
    assert!(plan.iter().any(|step| step.contains("may be computed wrongly")), "{plan:?}");
    control.replace_member(&replace(0, &drives[3])).expect("it fits");
    tick_until(&control, "the rebuild", || {
        control.tank().members.iter().all(|member| member.state == "in_sync")
    });
    assert!(has(&control, EventKind::Suspect));
    let found = control.tank();
    assert!(is_suspect(&found) && found.next_action.contains("--trust-data"), "{found:?}");

    // Everything is consistent now, and may be consistently wrong.
    assert_eq!(scrub(&control, "check").left_bytes, 0);
    assert!(is_suspect(&control.tank()));
    control.restart();
    tick_until(&control, "the array", || control.tank().states.iter().any(|s| s == "online"));
    assert_eq!(control.tank().suspect_ranges, found.suspect_ranges);
    scrub(&control, "trust_data");
    assert!(!is_suspect(&control.tank()), "the operator accepted it");
}

/// A drive fails by itself, and a scrub, which has nothing to compare with, forgets what the one before found.
#[test]
fn what_is_suspect_outlasts_a_scrub_without_redundancy() {
    let (control, _) = spoiled();
    scrub(&control, "check");
    control.fail_member(&fail(&["redundancy", "data"])).expect("both are accepted");
    let clean = scrub(&control, "check");
    assert_eq!((clean.checked_bytes, clean.left_bytes), (0, 0));
    assert!(is_suspect(&control.tank()));
}

/// A copy reads what the member holds.
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
