//! Upkeep concurrent with commands: neither undoes nor delays the other.

use crate::actions::{Pace, Wish};
use crate::commands::readd::readd_now;
use crate::drives::label::labelled;
use crate::error::ControlErrorKind;
use crate::limits::LOOK_LIMIT;
use crate::names::array_key;
use crate::upkeep::check_readd::check_return;
use crate::upkeep::member_config::record_on_members;
use crate::upkeep::prospects::look_at_prospects;
use crate::upkeep::slow::compare;

use super::{Testbed, check_refused, fail, nbd, readd, unload};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use strake_api::v1::{CreateExportRequest, ImportArraysRequest, SetArrayRequest};

/// History: in one of fifty imports into an empty state directory after a power loss, an array lost its exports.
/// Between its start and the read of the record on its members, upkeep found an array without exports, and wrote this
/// configuration to the members as the newest.
#[test]
fn f36_upkeep_beside_an_import_forgets_nothing() {
    let (mut control, drives) = Testbed::raid6(4);
    let request = CreateExportRequest { name: "first".into(), ..nbd(&control.path("nbd.sock")) };
    control.export(&request);
    control.tick().expect("it answers");
    for _ in 0..5 {
        control.lose_state();
        control.start();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    record_on_members(&control, Pace::InTurn).expect("it answers");
                }
            });
            let import =
                ImportArraysRequest { drives: drives.clone(), exports: true, ..Default::default() };
            control.import_arrays(&import).expect("its drives are here");
            done.store(true, Ordering::Relaxed);
        });
        let view = control.tank();
        assert_eq!(view.exports, ["first"]);
    }
}

/// History: in one of some hundred cases, `readd` immediately after `fail` reported that no drive was present, because
/// upkeep was inspecting this drive at that moment.
#[test]
fn a_member_is_taken_back_while_upkeep_looks_at_its_drive() {
    let (control, _) = Testbed::raid6(4);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                look_at_prospects(&control, Pace::InTurn).expect("it answers");
            }
        });
        let taken_back = (0..20).try_for_each(|_| {
            control.fail_member(&fail("tank", 1))?;
            control.readd_member(&readd(None)).map(drop)
        });
        done.store(true, Ordering::Relaxed);
        taken_back.expect("its drive is here");
    });
}

/// History: objections against drives, and inspected paths, remained in seven maps. After a second import, the same
/// array was shown with the earlier observations.
#[test]
fn an_array_that_was_unloaded_leaves_no_record_behind() {
    let (control, _) = Testbed::raid6(4);
    control.tick().expect("it answers");
    let uuid = control.tank().uuid;
    let is_known = || control.with(|m| m.entries.get_mut(&uuid).is_some()).expect("it answers");
    assert!(is_known());
    control.unload_array(&unload("tank")).expect("it is unloaded");
    control.tick().expect("it answers");
    assert!(!is_known());
}

/// History: a member was re-added 190 ms after the command that switched auto-readd off had returned, because upkeep
/// had decided before.
#[test]
fn no_member_is_taken_back_once_auto_readd_is_off() {
    let (control, drives) = Testbed::raid6(4);
    control.fail_member(&fail("tank", 1)).expect("the array has redundancy");
    let array = control.tank().uuid;
    let (_, mut reserved) =
        control.reserve(|_| Ok(((), vec![array_key(&array)]))).expect("it is free");
    let drive = reserved.open(&drives[1]).expect("it is a file");
    let found = labelled(drive, LOOK_LIMIT).expect("it answers").expect("it has a label");
    let decided = control.run(|m| check_return(m, &array, Some(1), found)).expect("it is clean");
    let off =
        SetArrayRequest { name: "tank".into(), auto_readd: Some(false), ..Default::default() };
    control.set_array(&off).expect("it is set");
    let late = readd_now(&control, &decided, Wish::Upkeep);
    check_refused(late, ControlErrorKind::State, "switched off");
    assert_eq!(control.tank().members[1].state, "faulty");
    readd_now(&control, &decided, Wish::Command).expect("an operator may");
}

#[test]
fn only_members_in_sync_with_a_known_model_are_compared() {
    let (control, drives) = Testbed::raid6(4);
    let compared = |models: &BTreeMap<String, String>| {
        control.with(|m| {
            compare(m, models);
            m.slow.observed()
        })
    };
    let mut models = BTreeMap::new();
    assert_eq!(compared(&models).expect("it answers"), 0, "files have no model");
    models.extend(drives.iter().map(|path| (path.clone(), "P5800X".to_owned())));
    assert_eq!(compared(&models).expect("it answers"), 4);
    control.fail_member(&fail("tank", 1)).expect("the array has redundancy");
    assert_eq!(compared(&models).expect("it answers"), 3);
}
