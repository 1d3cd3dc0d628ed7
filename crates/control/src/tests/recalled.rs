//! Records on members of which this version does not support a part.

use super::nvme::{OTHER, SECRET, asks_for_proof, host, only_export, request};
use super::{Testbed, check_refused};
use crate::error::ControlErrorKind::State;
use crate::record::member::{Due, Recalled, newest_side_by_side, store_side_by_side};
use crate::upkeep::member_config::record_before_leaving;
use serde_json::{Value, json};
use strake_api::v1::{
    ImportArraysRequest, RemoveExportRequest, RemoveHostRequest, RestoreConfigRequest,
    SetArrayRequest,
};
use strake_engine::Drive;
use strake_units::Uuid;

fn members(control: &Testbed) -> (Uuid, Vec<Drive>) {
    let members = control.with(|m| {
        let running = &m.running[0];
        (running.array.uuid(), running.drives.iter().flatten().cloned().collect())
    });
    members.expect("it answers")
}

fn put(control: &Testbed, record: &Value) {
    let (uuid, drives) = members(control);
    record_before_leaving(control, &uuid.to_string()).expect("the members take the real one");
    let content = serde_json::to_vec(record).expect("it has a JSON form");
    let due = Due { array: uuid.to_string(), uuid, content, drives };
    store_side_by_side(&due).expect("the members take it");
}

fn on_members(control: &Testbed) -> Value {
    let (uuid, drives) = members(control);
    let content = newest_side_by_side(uuid, &drives).expect("the members hold a record");
    serde_json::from_slice(&content).expect("it is JSON")
}

/// Writes `record` to the members, imports the array, and runs rounds of upkeep and restarts.
fn check_kept(record: &Value, cause: &str) {
    let (mut control, drives) = Testbed::raid6(4);
    put(&control, record);
    control.lose_state();
    control.start();
    let import = ImportArraysRequest { name: "tank".into(), drives, ..Default::default() };
    control.import_arrays(&import).expect("it is imported");
    let events = control.reported("record_invalid");
    let [event] = &events[..] else { panic!("{events:?}") };
    assert!(event.cause.contains(cause) && event.what.contains("is kept"), "{event:?}");
    control.ticks(3);
    assert_eq!(on_members(&control), *record);
    control.restart();
    control.ticks(3);
    assert_eq!(on_members(&control), *record);
    let settings = control.tank().settings.expect("it has settings");
    let set = SetArrayRequest {
        name: "tank".into(),
        auto_readd: Some(!settings.auto_readd),
        ..Default::default()
    };
    control.set_array(&set).expect("it is set");
    control.ticks(3);
    let own = on_members(&control);
    assert_eq!(own["settings"]["auto_readd"], json!(!settings.auto_readd));
    assert_ne!(own, *record);
    let overwritten = |e: &strake_api::v1::Event| e.what.contains("was overwritten");
    assert!(control.reported("record_invalid").iter().any(overwritten));
}

/// History: an import reported invalid exports as ignored, and removed them from all members within a second.
#[test]
fn f36_a_record_with_invalid_parts_stays_until_something_is_set() {
    let exports = json!([{ "name": "b", "listen": "unix:relative", "read_only": false }]);
    check_kept(&json!({ "version": 1, "exports": exports }), "exports[0]");
}

/// History: an import overwrote a record of a later version with defaults, without a warning.
#[test]
fn f36_a_record_of_a_later_version_stays_until_something_is_set() {
    check_kept(&json!({ "version": 2, "new": ["x"] }), "version 2 is not supported");
}

/// History: fields of later versions were removed. A field among the settings also removed the rest of the record.
#[test]
fn f36_a_record_with_unknown_fields_stays_until_something_is_set() {
    let settings = json!({ "rebuild_priority": 70, "later": 1 });
    check_kept(&json!({ "version": 1, "settings": settings }), "settings.later: unknown field");
}

/// History: the plan of a restore used settings that the import then ignored.
#[test]
fn a_dry_restore_ignores_what_an_import_ignores() {
    let (mut control, _) = Testbed::raid6(4);
    let document = control.document();
    put(&control, &json!({ "version": 1, "settings": { "rebuild_priority": 200 } }));
    control.lose_state();
    control.start();
    let plan = control
        .restore_config(&RestoreConfigRequest { json: document, dry_run: true })
        .expect("it is planned")
        .plan;
    assert_eq!(plan, ["start array tank"]);
}

/// History: after the loss of the state directory, an import offered exports to hosts that no longer had to
/// authenticate.
#[test]
fn f36_a_host_that_had_to_authenticate_is_locked_after_an_import() {
    let (mut control, drives) = Testbed::raid6(4);
    control.run(|m| m.add_host(&host(SECRET, OTHER))).expect("a secret");
    control.run(|m| m.create_export(&request())).expect("it is offered");
    control.ticks(3);
    control.lose_state();
    control.start();
    let import = ImportArraysRequest { drives, exports: true, ..ImportArraysRequest::default() };
    let imported = control.import_arrays(&import).expect("it is imported");
    assert!(imported.warnings.iter().any(|w| w.contains("cannot connect until")), "{imported:?}");
    let listed = control.with(|m| m.list_hosts()).expect("hosts").hosts.remove(0);
    assert_eq!((listed.state.as_str(), listed.proof, listed.bidirectional), ("locked", true, true));
    let checks = control.doctor().expect("it answers").checks;
    let of_host = checks.iter().find(|check| check.name == format!("host {}", listed.nqn));
    assert_eq!(of_host.expect("it is checked").state, "warning");
    let export = only_export(&control);
    assert!(asks_for_proof(&export.listen, &export.nqn), "its name is not enough");
    // The record of the host on the members survives the import.
    control.ticks(3);
    control.restart();
    let export = only_export(&control);
    assert!(asks_for_proof(&export.listen, &export.nqn), "after a restart");
    assert_eq!(control.run(|m| m.add_host(&host(SECRET, OTHER))).expect("both").result, "changed");
    let listed = control.with(|m| m.list_hosts()).expect("hosts").hosts.remove(0);
    assert_eq!(listed.state, "ready");
}

/// History: the lock of an import was removed, and the export that the import kept then admitted the host by its name.
#[test]
fn a_host_of_an_export_that_is_not_offered_yet_is_not_removed() {
    let (mut control, drives) = Testbed::raid6(4);
    control.run(|m| m.add_host(&host(SECRET, OTHER))).expect("a secret");
    let offered = control.run(|m| m.create_export(&request())).expect("it is offered");
    control.ticks(3);
    control.lose_state();
    control.start();
    let import = ImportArraysRequest { drives, ..ImportArraysRequest::default() };
    control.import_arrays(&import).expect("it is imported");
    assert_eq!(control.with(|m| m.list_hosts()).expect("hosts").hosts, [], "nothing is offered");
    control.ticks(3);
    let nqn = host(SECRET, OTHER).nqn;
    assert_eq!(on_members(&control)["hosts"][0]["nqn"], json!(nqn), "members still record it");
    control.run(|m| m.add_host(&host(SECRET, OTHER))).expect("a secret");
    let remove = || control.run(|m| m.remove_host(&RemoveHostRequest { nqn: nqn.clone() }));
    check_refused(remove(), State, "identified only by its name");
    let name = offered.export.expect("it is there").name;
    let forget = RemoveExportRequest { name, ..RemoveExportRequest::default() };
    control.run(|m| m.remove_export(&forget)).expect("it is forgotten");
    remove().expect("no export names it");
}

/// History: a record of an earlier version lists no hosts, and an import admitted all hosts by their names.
#[test]
fn hosts_of_a_record_that_does_not_list_them_are_locked_when_it_is_offered() {
    for hosts in [None, Some(json!(1)), Some(json!([{ "needs": {} }]))] {
        let (mut control, drives) = Testbed::raid6(4);
        control.run(|m| m.create_export(&request())).expect("it is offered");
        control.ticks(3);
        let mut record = on_members(&control);
        let fields = record.as_object_mut().expect("it has fields");
        fields.remove("hosts").expect("this version lists them");
        fields.extend(hosts.map(|hosts| ("hosts".to_owned(), hosts)));
        put(&control, &record);
        control.lose_state();
        control.start();
        let import = ImportArraysRequest { drives, exports: true, ..Default::default() };
        let imported = control.import_arrays(&import).expect("it is imported");
        let warned = |what: &str| imported.warnings.iter().any(|w| w.contains(what));
        assert!(warned("do not record whether these hosts need"), "{imported:?}");
        assert!(warned("cannot connect until its secret"), "{imported:?}");
        let export = only_export(&control);
        assert!(asks_for_proof(&export.listen, &export.nqn), "its name is not enough");
    }
}

/// A host is locked even if a later version records needs that this version does not know.
#[test]
fn a_host_whose_needs_are_not_understood_is_locked() {
    for needs in [json!({ "later": true }), json!({ "secret": "yes" }), json!(1)] {
        let record = json!({ "version": 1, "hosts": [{ "nqn": "nqn.x", "needs": needs }] });
        let recalled = Recalled::of(serde_json::to_vec(&record).expect("it has a JSON form"));
        assert_eq!(recalled.ignored.len(), 1, "{:?}", recalled.ignored);
        let [host] = recalled.hosts.try_into().expect("one host");
        assert!(host.nqn == "nqn.x" && host.locked().is_locked(), "{host:?}");
    }
}
