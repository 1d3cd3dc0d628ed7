//! A state directory that cannot be written, from the start.

use super::reported::has;
use super::{Testbed, check_refused, exports, fail, folder, raid6, readd, sample, tick_until};
use crate::error::ControlErrorKind::{self, State};
use crate::events::EventKind;
use crate::record::store::Store;
use crate::state::offline::Offline;
use std::fs;
use strake_api::v1::{Array, CreateArrayRequest, Daemon, Member};

/// History: the state directory became full. After the next boot straked did not start, and no array was served,
/// although every drive was present.
#[test]
fn f37_a_directory_that_is_full_at_the_start_stops_no_array() {
    let (mut control, drives) = Testbed::raid6(8);
    control.export_nbd();
    control.shut_down();
    // These directories prevent the creation of every file that is written. They have this effect for root too, which
    // may write everywhere.
    let state = control.path("state");
    for name in ["state.json.next", "running", "newest.json.next"] {
        fs::create_dir(state.join(name)).expect("it can be made");
    }

    control.start();
    let view = control.tank();
    assert_eq!((view.states, view.redundancy_left), (vec!["online".to_owned()], 2));
    assert_eq!(exports(&control)[0].state, "online");
    assert!(has(&control, EventKind::StateTrouble));
    let status = control.with(|m| m.status(Daemon::default())).expect("it answers");
    assert_eq!((status.health.as_str(), status.problems.len()), ("degraded", 1), "{status:?}");
    assert!(status.problems[0].what.contains("state.json.next"), "{:?}", status.problems);
    let other = CreateArrayRequest { name: "other".into(), ..raid6(drives[4..].to_vec()) };
    check_refused(control.create_array(&other), ControlErrorKind::Store, "nothing was done");
    // Operations without a record still work: a member goes out and is re-added to its slot.
    control.fail_member(&fail("tank", 1)).expect("redundancy is left");
    control.readd_member(&readd(Some(1))).expect("nothing is to be recorded");

    for name in ["state.json.next", "running", "newest.json.next"] {
        fs::remove_dir(state.join(name)).expect("it is empty");
    }
    tick_until(&control, "the end of the trouble", || has(&control, EventKind::StateDirRecovered));
    control.create_array(&other).expect("there is room");
}

/// If no lock file can be created, the directory itself is locked.
#[test]
fn a_directory_without_room_for_its_lock_is_used_by_one_daemon() {
    let folder = folder();
    // A socket cannot be opened as a file.
    let _socket = std::os::unix::net::UnixListener::bind(folder.join("lock")).expect("it is new");
    let (_store, _) = Store::open(&folder).expect("it opens");
    check_refused(Store::open(&folder), State, "another straked");
}

/// History: a full file system under the members failed an array. Its status advised to return the drives, and showed
/// neither the reason nor the members.
#[test]
fn a_failed_array_shows_its_members_and_the_reasons() {
    let record = sample().arrays.remove(0);
    let member = |position, cause: &str| Member {
        position,
        state: if cause.is_empty() { "in_sync" } else { "faulty" }.into(),
        cause: cause.into(),
        ..Default::default()
    };
    let members = vec![member(0, ""), member(1, "no space left on the device")];
    let last = Array { level: "0".into(), members, ..Default::default() };
    let view = Offline::after_loss(&record, &last).view(&record, Vec::new());
    assert_eq!((view.level.as_str(), view.members.len()), ("0", 2));
    assert!(view.reason.ends_with(": member 1: no space left on the device"), "{}", view.reason);
    assert_eq!(view.states, ["offline"]);
}
