//! The list of arrays on drives that do not run.

use super::{
    Testbed, check_refused, drives_in, fail, folder, impatient, raid6, replace, stop, tick_until,
    unload,
};
use crate::control::Control;
use crate::error::ControlErrorKind::State;
use strake_api::v1::{
    Array, CreateArrayRequest, DestroyArrayRequest, ImportArraysRequest, ListImportableRequest,
    UndeleteArrayRequest,
};
use strake_testkit::Folder;

fn listed(control: &Control, drives: &[String]) -> Vec<Array> {
    let request = ListImportableRequest { drives: drives.to_vec() };
    let answer = control.list_importable(&request).expect("the drives answer");
    assert_eq!(answer.warnings, [""; 0]);
    answer.arrays
}

fn destroy(control: &Control, name: &str) {
    let request = DestroyArrayRequest { name: name.into(), ..Default::default() };
    control.destroy_array(&request).expect("it is destroyed");
}

/// The paths of the members that were found.
fn paths(array: &Array) -> Vec<String> {
    let paths = array.members.iter().map(|member| member.path.clone());
    paths.filter(|path| !path.is_empty()).collect()
}

/// The import or the undelete that an array names, with its drives.
fn next(array: &Array) -> (String, Vec<String>) {
    use strake_api::v1::text_part::Part;
    let parts = array.remedy.iter().filter_map(|part| part.part.clone());
    let mut named = parts.filter_map(|part| match part {
        Part::ImportArrays(ImportArraysRequest { name, drives, .. })
        | Part::UndeleteArray(UndeleteArrayRequest { name, drives, .. }) => Some((name, drives)),
        _ => None,
    });
    named.next_back().expect("it names what to do")
}

#[test]
fn an_array_that_was_unloaded_can_be_imported_with_the_named_command() {
    let (control, drives) = Testbed::raid6(4);
    assert_eq!(listed(&control, &drives), [], "it runs");
    control.unload_array(&unload("tank")).expect("nobody uses it");
    assert_eq!(listed(&control, &[]), [], "files are scanned only if they are named");
    let [found] = listed(&control, &drives).try_into().expect("one array");
    assert_eq!(
        (found.name.as_str(), found.states.as_slice()),
        ("tank", &["importable".to_owned()][..])
    );
    assert_eq!((found.level.as_str(), found.reason.as_str()), ("6", ""));
    assert_eq!(paths(&found), drives);
    let (name, drives) = next(&found);
    let import = ImportArraysRequest { name, drives, ..Default::default() };
    assert_eq!(control.import_arrays(&import).expect("it is whole").result, "changed");
    assert_eq!(listed(&control, &[]), [], "it runs again");
}

#[test]
fn an_array_that_lacks_members_says_so_and_names_its_drives() {
    let (control, drives) = Testbed::raid6(4);
    control.unload_array(&unload("tank")).expect("nobody uses it");
    let here = drives[1..].to_vec();
    let [found] = listed(&control, &here).try_into().expect("one array");
    assert_eq!(found.states, ["importable", "incomplete"]);
    assert!(found.reason.contains("0"), "{}", found.reason);
    assert_eq!(next(&found).1, here, "the daemon does not know where its drives are");
    // The same holds for the import itself.
    let import =
        ImportArraysRequest { drives: here.clone(), name: "tank".into(), ..Default::default() };
    let refused = control.import_arrays(&import).expect_err("a member is missing").what;
    assert!(refused.contains("--degraded") && refused.contains(&here[0]), "{refused}");
}

/// The import by the name would show the running array.
#[test]
fn an_array_whose_name_is_in_use_is_imported_by_its_uuid() {
    let (control, drives) = Testbed::raid6(8);
    control.unload_array(&unload("tank")).expect("nobody uses it");
    control.create_array(&raid6(drives[4..].to_vec())).expect("the name is free");
    let [found] = listed(&control, &drives).try_into().expect("one array");
    assert!(found.reason.contains("has the same name as another array"), "{}", found.reason);
    assert_eq!(next(&found), (found.uuid.clone(), drives[..4].to_vec()));
}

#[test]
fn a_destroyed_array_is_listed_until_its_drives_are_used() {
    let (control, drives) = Testbed::raid6(8);
    destroy(&control, "tank");
    let [found] = listed(&control, &[]).try_into().expect("one array: its drives are recorded");
    assert_eq!(
        (found.name.as_str(), found.states.as_slice()),
        ("tank", &["destroyed".to_owned()][..])
    );
    assert_eq!(paths(&found), drives[..4]);
    // Another array of the same name on other drives.
    control.create_array(&raid6(drives[4..].to_vec())).expect("the name is free");
    destroy(&control, "tank");
    let both = listed(&control, &[]);
    assert_eq!(both.len(), 2);
    let (name, _) = next(&found);
    let undelete = UndeleteArrayRequest { name, ..Default::default() };
    assert_eq!(control.undelete_array(&undelete).expect("it is whole").result, "changed");
    let [other] = listed(&control, &[]).try_into().expect("one array");
    assert_eq!(paths(&other), drives[4..]);

    let name = "second".to_owned();
    let used = CreateArrayRequest { name, ..raid6(drives[4..].to_vec()) };
    control.create_array(&used).expect("the drives are free");
    assert_eq!(listed(&control, &drives), [], "nothing is left of it");
}

#[test]
fn a_destroyed_array_without_enough_drives_cannot_be_restored() {
    let (control, drives) = Testbed::raid6(4);
    destroy(&control, "tank");
    for path in &drives[..3] {
        std::fs::remove_file(path).expect("it is there");
    }
    let [found] = listed(&control, &[]).try_into().expect("one array");
    assert_eq!(found.states, ["destroyed", "incomplete"]);
    assert!(!found.reason.is_empty(), "it is said why");
}

#[test]
fn a_former_member_is_no_array_of_its_own() {
    let (control, drives) = Testbed::raid6(5);
    control.fail_member(&fail("tank", 1)).expect("one is allowed");
    control.replace_member(&replace(1, &drives[4])).expect("the drive is free");
    tick_until(&control, "the rebuild", || {
        let array = super::array(&control, "tank").expect("it runs");
        array.members.iter().all(|member| member.state == "in_sync")
    });
    assert_eq!(listed(&control, &drives), [], "the array runs without it");
    destroy(&control, "tank");
    let [found] = listed(&control, &drives).try_into().expect("one array");
    assert_eq!(found.states, ["destroyed"]);
}

/// A daemon that never saw the array.
#[test]
fn another_daemon_finds_an_array_on_named_drives() {
    let (control, drives) = Testbed::raid6(4);
    destroy(&control, "tank");
    stop(&control);
    let folder: Folder = folder();
    let other = crate::tests::control_in(&folder, impatient());
    let [found] = listed(&other, &drives).try_into().expect("one array");
    assert_eq!(found.states, ["destroyed"]);
    let (name, named) = next(&found);
    assert_eq!(named, drives);
    let undelete = UndeleteArrayRequest { name, drives: named, ..Default::default() };
    assert_eq!(other.undelete_array(&undelete).expect("it is whole").result, "changed");
    let none = ListImportableRequest { drives: vec![drives_in(&folder, 1)[0].clone() + "x"] };
    check_refused(other.list_importable(&none).map(drop), State, "nothing at this path");
    stop(&other);
}
