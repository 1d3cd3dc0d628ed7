//! Names of arrays in the form of a UUID. History: commands acted on one array and reported the other array.

use super::{Testbed, array, check_refused, mirror, unload};
use crate::error::ControlErrorKind::Usage;
use crate::manager::Manager;
use strake_api::v1::{
    CreateArrayRequest, DestroyArrayRequest, ImportArraysRequest, RenameArrayRequest,
    RestoreConfigRequest, UndeleteArrayRequest,
};

/// Array tank, its UUID, and the drives of another array whose labels have this UUID as name.
fn two_arrays() -> (Testbed, String, Vec<String>) {
    let (bed, drives) = Testbed::mirror(4);
    let tank = bed.tank().uuid;
    let other = CreateArrayRequest { name: "other".into(), ..mirror(&drives[2..]) };
    bed.create_array(&other).expect("it is created");
    let renamed = bed.run(|m| {
        let at = m.find_running("other")?;
        Ok(m.running[at].array.begin_rename(tank.parse().expect("it was a name")))
    });
    renamed.expect("it runs").wait().expect("it is renamed");
    (bed, tank, drives[2..].to_vec())
}

#[test]
fn no_array_gets_a_name_in_the_form_of_a_uuid() {
    let (bed, drives) = Testbed::mirror(4);
    for name in [bed.tank().uuid, "01234567-89AB-cdef-0123-456789abcdef".to_owned()] {
        let create = CreateArrayRequest { name: name.clone(), ..mirror(&drives[2..]) };
        check_refused(bed.create_array(&create), Usage, "has the form of a UUID");
        let rename = RenameArrayRequest { name: "tank".into(), new_name: name, dry_run: false };
        check_refused(bed.rename_array(&rename), Usage, "has the form of a UUID");
    }
}

#[test]
fn every_look_up_by_a_uuid_finds_the_array_with_it() {
    let (bed, tank, _) = two_arrays();
    assert_eq!(array(&bed, &tank).expect("it is there").name, "tank");
    let at = bed.with(|m| m.find(&tank).map(|at| m.running[at].uuid()));
    assert_eq!(at.expect("it answers"), Some(tank.clone()));
    bed.unload_array(&unload("tank")).expect("it is unloaded");
    assert!(array(&bed, &tank).is_err(), "the other array is not it");
    assert_eq!(bed.with(|m| m.find(&tank)).expect("it answers"), None);
}

/// History: such an array could not be imported again after an unload, a destruction or the loss of the state
/// directory.
#[test]
fn an_array_with_such_a_name_comes_back_with_a_warning_that_renames_it() {
    let (mut bed, tank, drives) = two_arrays();
    let listed = |bed: &Testbed| bed.with(Manager::arrays).expect("it answers");
    let own = listed(&bed).into_iter().find(|a| a.name == tank).expect("it is there").uuid;
    let warned = |warnings: &[String]| {
        let rename = format!("strake array rename {own} ");
        assert!(warnings.iter().any(|w| w.contains(&rename)), "{warnings:?}");
    };
    let undo = bed.unload_array(&unload(&own)).expect("it is unloaded").undo;
    assert!(undo.starts_with(&format!("strake array import {own} ")), "{undo}");
    let import = ImportArraysRequest { drives, ..ImportArraysRequest::default() };
    warned(&bed.import_arrays(&import).expect("it is imported").warnings);
    let destroy = DestroyArrayRequest { name: own.clone(), ..DestroyArrayRequest::default() };
    let undo = bed.destroy_array(&destroy).expect("it is destroyed").undo;
    assert!(undo.ends_with(&own), "{undo}");
    for dry_run in [true, false] {
        let undelete =
            UndeleteArrayRequest { name: own.clone(), dry_run, ..UndeleteArrayRequest::default() };
        warned(&bed.undelete_array(&undelete).expect("it is undeleted").warnings);
    }
    let json = bed.document();
    bed.lose_state();
    bed.start();
    let restore = RestoreConfigRequest { json, dry_run: false };
    warned(&bed.restore_config(&restore).expect("it is restored").warnings);
    let rename = RenameArrayRequest { name: own.clone(), new_name: "other".into(), dry_run: false };
    bed.rename_array(&rename).expect("its UUID finds it");
    assert_eq!(array(&bed, "other").expect("it is there").uuid, own);
}
