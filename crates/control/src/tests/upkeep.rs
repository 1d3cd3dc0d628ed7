//! Upkeep beside what a person asks for: neither undoes or hinders the other.

use crate::actions::Pace;
use crate::upkeep::member_config::record_on_members;
use crate::upkeep::prospects::look_at_prospects;

use super::{Folder, array, fail, raid6, stop};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use strake_api::v1::{
    CreateExportRequest, ImportArraysRequest, ReaddMemberRequest, UnloadArrayRequest,
};

/// An array was imported into an empty state directory after a power loss, and had lost its exports, once in fifty
/// times: between its start and the look at what its members know, the upkeep of that second had found an array without
/// exports, and had written that to the members as the newest there is.
#[test]
fn f36_upkeep_beside_an_import_forgets_nothing() {
    let folder = Folder::new();
    let drives = folder.drives(4);
    let control = folder.control();
    control.create_array(&raid6(drives.clone())).expect("it is created");
    let listen = format!("unix:{}", folder.path("nbd.sock").display());
    let request = CreateExportRequest {
        array: "tank".into(),
        name: "first".into(),
        listen,
        ..Default::default()
    };
    control.run(|m| m.create_export(&request)).expect("it is offered");
    control.tick().expect("it answers");
    stop(&control);
    drop(control);

    for _ in 0..5 {
        fs::remove_dir_all(folder.path("state")).expect("it can be removed");
        let control = folder.control();
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
        let view = array(&control, "tank").expect("it is there");
        assert_eq!(view.exports, ["first"]);
        stop(&control);
    }
}

/// Once in hundreds of times `readd` right after `fail` said that no drive was there: upkeep was looking at that very
/// drive, to find out whether it could be taken back.
#[test]
fn a_member_is_taken_back_while_upkeep_looks_at_its_drive() {
    let folder = Folder::new();
    let control = folder.control();
    control.create_array(&raid6(folder.drives(4))).expect("it is created");
    let done = AtomicBool::new(false);
    let readd = ReaddMemberRequest { name: "tank".into(), ..Default::default() };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                look_at_prospects(&control, Pace::InTurn).expect("it answers");
            }
        });
        let taken_back = (0..20).try_for_each(|_| {
            control.fail_member(&fail("tank", 1))?;
            control.readd_member(&readd).map(drop)
        });
        done.store(true, Ordering::Relaxed);
        taken_back.expect("its drive is here");
    });
    stop(&control);
}

/// Objections against drives, and what was looked at, stayed in seven maps: the same array, imported again, was shown
/// with what had been found out about it before.
#[test]
fn an_array_that_was_unloaded_leaves_no_record_behind() {
    let folder = Folder::new();
    let control = folder.control();
    control.create_array(&raid6(folder.drives(4))).expect("it is created");
    control.tick().expect("it answers");
    let uuid = array(&control, "tank").expect("it is there").uuid;
    let is_known = || control.with(|m| m.entries.get_mut(&uuid).is_some()).expect("it answers");
    assert!(is_known());
    let unload = UnloadArrayRequest { name: "tank".into(), ..Default::default() };
    control.unload_array(&unload).expect("it is unloaded");
    control.tick().expect("it answers");
    assert!(!is_known());
    stop(&control);
}
