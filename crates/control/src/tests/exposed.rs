//! NVMe/TCP exports on a network. History: an export on any address accepted hosts by their names, without encryption
//! and without a warning.

use super::nvme::{HOST, SECRET, host, only_export, request};
use super::{Testbed, check_refused, exports};
use crate::error::ControlError;
use crate::error::ControlErrorKind::{State, Usage};
use crate::record::store::{Config, Covered, HostRecord};
use strake_api::v1::{
    AddHostRequest, CreateExportRequest, DoctorCheck, Export, ExportChange, HostChange,
    SetExportRequest,
};

const OTHER: &str = "nqn.2014-08.org.example:other";

/// A request for an export that other hosts can reach.
fn on_network() -> CreateExportRequest {
    CreateExportRequest { listen: "0.0.0.0:0".into(), ..request() }
}

fn insecure() -> CreateExportRequest {
    CreateExportRequest { insecure: true, ..on_network() }
}

fn offer(bed: &Testbed, request: &CreateExportRequest) -> Result<Export, ControlError> {
    let change = bed.run(|m| m.create_export(request))?;
    Ok(change.export.expect("it says which"))
}

fn add(bed: &Testbed, request: &AddHostRequest) -> Result<HostChange, ControlError> {
    bed.run(|m| m.add_host(request))
}

fn tls_key(nqn: &str) -> AddHostRequest {
    AddHostRequest { nqn: nqn.into(), new_tls_key: true, ..AddHostRequest::default() }
}

fn set() -> SetExportRequest {
    SetExportRequest { name: "tank".into(), ..SetExportRequest::default() }
}

fn allow(bed: &Testbed, nqn: &str) -> Result<ExportChange, ControlError> {
    bed.set_export(&SetExportRequest { allow_hosts: vec![nqn.into()], ..set() })
}

fn doctor(bed: &Testbed) -> Option<DoctorCheck> {
    let report = bed.doctor().expect("it answers");
    report.checks.into_iter().find(|check| check.name == "export/tank network")
}

#[test]
fn an_export_on_a_network_needs_tls_or_authentication_and_consent() {
    let (control, _) = Testbed::raid6(4);
    let key = format!("strake host add {HOST} --new-tls-key");
    check_refused(offer(&control, &on_network()), State, &key);
    check_refused(offer(&control, &insecure()), State, "no TLS key and no secret");
    add(&control, &host(SECRET, "")).expect("a secret");
    check_refused(offer(&control, &on_network()), State, "--insecure");
    let both = CreateExportRequest { secure: true, ..insecure() };
    check_refused(offer(&control, &both), Usage, "cannot both require TLS");
    let nbd = CreateExportRequest { via: "nbd".into(), allow_hosts: Vec::new(), ..insecure() };
    check_refused(offer(&control, &nbd), Usage, "NBD has no");
    assert!(offer(&control, &insecure()).expect("it is offered").insecure);
    assert_eq!(doctor(&control), None, "the operator accepted it");
}

#[test]
fn a_tls_key_of_every_host_is_enough_on_a_network() {
    let (control, _) = Testbed::raid6(4);
    add(&control, &tls_key(HOST)).expect("a key");
    let two = vec![HOST.to_owned(), OTHER.to_owned()];
    let two = CreateExportRequest { allow_hosts: two, ..on_network() };
    check_refused(offer(&control, &two), State, OTHER);
    offer(&control, &on_network()).expect("it is offered");
    check_refused(allow(&control, OTHER), State, "has no TLS key and no secret");
    add(&control, &tls_key(OTHER)).expect("a key");
    assert_eq!(allow(&control, OTHER).expect("it has a key").result, "changed");
}

#[test]
fn the_last_protection_of_a_host_is_kept() {
    let (control, _) = Testbed::raid6(4);
    let both = AddHostRequest { new_tls_key: true, ..host(SECRET, "") };
    add(&control, &both).expect("a secret and a key");
    offer(&control, &on_network()).expect("it is offered");
    let no_tls = AddHostRequest { no_tls: true, nqn: HOST.into(), ..AddHostRequest::default() };
    check_refused(add(&control, &no_tls), State, "strake export set tank --insecure");
    let accept = SetExportRequest { insecure: true, ..set() };
    let planned = SetExportRequest { dry_run: true, ..accept.clone() };
    let plan = control.set_export(&planned).expect("it is possible").plan;
    assert_eq!(plan, ["accept data without encryption"]);
    assert!(!only_export(&control).insecure, "nothing was changed");
    assert_eq!(control.set_export(&accept).expect("it is possible").result, "changed");
    assert_eq!(control.set_export(&accept).expect("again").result, "unchanged");
    assert!(only_export(&control).insecure);
    add(&control, &no_tls).expect("its secret is enough");
}

#[test]
fn a_secure_export_cannot_become_insecure() {
    let (control, _) = Testbed::raid6(4);
    add(&control, &tls_key(HOST)).expect("a key");
    offer(&control, &CreateExportRequest { secure: true, ..request() }).expect("it is offered");
    let accept = SetExportRequest { insecure: true, ..set() };
    check_refused(control.set_export(&accept), State, "requires TLS");
}

/// A daemon that an earlier version left with an export on a network, without TLS and without secrets.
fn upgraded() -> Testbed {
    let (mut control, _) = Testbed::raid6(4);
    let hosts = vec![HOST.to_owned(), OTHER.to_owned()];
    offer(&control, &CreateExportRequest { allow_hosts: hosts, ..request() }).expect("offered");
    let open = |config: &mut Config| {
        let listen = &mut config.exports[0].listen;
        *listen = listen.replace("127.0.0.1", "0.0.0.0");
    };
    control.run(|m| m.records.change(open)).expect("it is recorded");
    control.restart();
    control
}

#[test]
fn an_upgrade_keeps_an_exposed_export_and_reports_it() {
    let control = upgraded();
    let [export] = exports(&control).try_into().expect("one export");
    assert_eq!((export.state.as_str(), export.insecure), ("online", false));
    let [event] = control.reported("export_exposed").try_into().expect("one event");
    assert!(event.cause.contains("no TLS key and no secret"), "{}", event.cause);
    assert!(event.next_action.contains("--new-tls-key"), "{}", event.next_action);
    let check = doctor(&control).expect("it is checked");
    assert_eq!(check.state, "warning");
    assert!(check.next_action.contains("strake export set tank --insecure"), "{check:?}");

    let again =
        CreateExportRequest { allow_hosts: export.allow_hosts, listen: export.listen, ..request() };
    assert_eq!(control.run(|m| m.create_export(&again)).expect("as it is").result, "unchanged");
    check_refused(allow(&control, "nqn.2014-08.org.example:third"), State, "no TLS key");
    let deny = SetExportRequest { deny_hosts: vec![OTHER.into()], ..set() };
    assert_eq!(control.set_export(&deny).expect("it is possible").result, "changed");
    let accept = SetExportRequest { insecure: true, ..set() };
    check_refused(control.set_export(&accept), State, "no TLS key and no secret");
    add(&control, &host(SECRET, "")).expect("a secret");
    assert_eq!(control.set_export(&accept).expect("it authenticates").result, "changed");
    assert_eq!(doctor(&control), None, "it is mended");
}

/// A refused export once locked the hosts of the array that had to authenticate elsewhere, and with that their
/// connections to other exports.
#[test]
fn a_refused_export_locks_no_host() {
    let (control, _) = Testbed::raid6(4);
    let covered = Covered { secret: true, ..Covered::default() };
    let kept = HostRecord { nqn: HOST.into(), covered, ..HostRecord::default() };
    let keep = |config: &mut Config| config.arrays[0].kept_hosts.push(kept.clone());
    control.run(|m| m.records.change(keep)).expect("it is recorded");
    let hosts = || control.with(|m| m.list_hosts().hosts).expect("it answers");
    check_refused(offer(&control, &on_network()), State, "--insecure");
    assert_eq!(hosts(), []);
    offer(&control, &insecure()).expect("the host will have a secret");
    assert_eq!(hosts()[0].state, "locked");
}
