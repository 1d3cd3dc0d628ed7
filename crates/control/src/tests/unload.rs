//! The report of an unload about the data of the array.

use super::{Testbed, mirror, unload};
use std::fs;
use strake_api::v1::{ArrayChange, ImportArraysRequest, UnloadArrayRequest};

fn planned(bed: &Testbed) -> ArrayChange {
    let dry = UnloadArrayRequest { dry_run: true, ..unload("tank") };
    bed.unload_array(&dry).expect("it is planned")
}

/// History: the unload of an array in memory reported that its data remain on its drives.
#[test]
fn an_unload_says_that_data_in_memory_are_lost() {
    let bed = Testbed::new();
    let ram = "ram:64MiB".to_owned();
    let create = |drives: &[String]| bed.create_array(&mirror(drives)).expect("it is created");
    create(&[ram.clone(), ram.clone()]);
    let plan = planned(&bed);
    assert!(plan.plan.join("; ").contains("LOST with members 0, 1, in memory"), "{:?}", plan.plan);
    assert_eq!(plan.undo, "");
    let done = bed.unload_array(&unload("tank")).expect("it is unloaded");
    assert_eq!(done.undo, "");
    let [event] = bed.reported("array_unloaded").try_into().expect("one event");
    assert!(event.what.contains("data are lost"), "{}", event.what);

    let drive = bed.drive_of("drive", 64);
    create(&[drive.clone(), ram]);
    let plan = planned(&bed);
    assert!(plan.plan.contains(&"lose member 1, in memory".to_owned()), "{:?}", plan.plan);
    let undo = format!("strake array import tank --drives {drive} --degraded");
    let done = bed.unload_array(&unload("tank")).expect("it is unloaded");
    assert_eq!([&plan.undo, &done.undo], [&undo, &undo]);
    let again = ImportArraysRequest {
        name: "tank".into(),
        drives: vec![drive],
        allow_degraded: true,
        ..ImportArraysRequest::default()
    };
    let again = bed.import_arrays(&again).expect("the undo is a command that works");
    assert_eq!(again.arrays[0].states, ["online", "degraded", "no_redundancy"]);
}

#[test]
fn an_unload_claims_nothing_about_drives_that_were_not_found() {
    let (mut bed, drives) = Testbed::mirror(2);
    let plan = planned(&bed).plan.join("; ");
    assert!(plan.contains("its data stay on its drives"), "{plan}");
    bed.shut_down();
    drives.iter().for_each(|drive| fs::remove_file(drive).expect("it can be removed"));
    bed.start();
    let plan = planned(&bed);
    assert_eq!(plan.plan, ["delete the record of the array; its drives were not found"]);
    assert_ne!(plan.undo, "", "nothing is lost by that");
}
