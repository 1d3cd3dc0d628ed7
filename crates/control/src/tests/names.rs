//! Names of arrays in the form of a UUID: commands acted on one array and reported about the other.

use super::{Testbed, array, check_refused, mirror, unload};
use crate::error::ControlErrorKind::Usage;
use strake_api::v1::{CreateArrayRequest, ImportArraysRequest, RenameArrayRequest};

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

#[test]
fn labels_with_such_a_name_are_not_imported() {
    let (mut bed, tank, drives) = two_arrays();
    bed.lose_state();
    bed.start();
    let import = ImportArraysRequest { drives, ..ImportArraysRequest::default() };
    let refused = bed.import_arrays(&import).expect_err("its name is refused");
    assert!(refused.what.contains(&format!("{tank} has the form of a UUID")), "{refused}");
}
