//! Changes of the hosts that may connect to an export.

use super::nvme::{HOST, SECRET, connect_as, host, only_export, request};
use super::{Testbed, check_refused, exports, nvme_tcp, raid6};
use crate::control::Control;
use crate::error::ControlError;
use crate::error::ControlErrorKind::{NotFound, State, Usage};
use crate::record::store::{Config, Covered, HostRecord};
use strake_api::v1::{
    AddHostRequest, CreateArrayRequest, CreateExportRequest, DisconnectHostRequest, ExportChange,
    SetExportRequest,
};

const OTHER: &str = "nqn.2014-08.org.example:other";

fn set(
    control: &Control,
    allow: &[&str],
    deny: &[&str],
    dry_run: bool,
) -> Result<ExportChange, ControlError> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let (allow_hosts, deny_hosts) = (names(allow), names(deny));
    control.set_export(&SetExportRequest {
        name: "tank".into(),
        allow_hosts,
        deny_hosts,
        dry_run,
        insecure: false,
    })
}

/// Whether a host may connect to the export now.
fn is_admitted(control: &Control, host: &str) -> bool {
    let export = only_export(control);
    connect_as(&export.listen, host, &export.nqn)[14..] == [0, 0]
}

#[test]
fn hosts_are_allowed_and_denied_while_the_export_is_offered() {
    let (mut control, _) = Testbed::raid6(4);
    control.run(|m| m.create_export(&request())).expect("it is offered");
    assert!(!is_admitted(&control, OTHER));
    let planned = set(&control, &[OTHER], &[HOST], true).expect("it is possible");
    assert_eq!(planned.result, "planned");
    assert_eq!(
        planned.plan,
        [
            format!("allow host {OTHER}"),
            format!("disconnect host {HOST}, and reject it from now on")
        ]
    );
    assert!(is_admitted(&control, HOST) && !is_admitted(&control, OTHER), "nothing was changed");

    let changed = set(&control, &[OTHER], &[], false).expect("it is allowed");
    assert_eq!(changed.result, "changed");
    assert_eq!(changed.export.expect("it says which").allow_hosts, [OTHER, HOST]);
    assert!(is_admitted(&control, HOST) && is_admitted(&control, OTHER));
    assert_eq!(set(&control, &[OTHER], &[], false).expect("again").result, "unchanged");
    let mistyped =
        set(&control, &[], &["nqn.2014-08.org.example:othre"], false).expect("unchanged");
    assert_eq!(mistyped.result, "unchanged");
    assert!(mistyped.plan[0].ends_with("check its name"), "{:?}", mistyped.plan);
    assert_eq!(set(&control, &[], &[HOST], false).expect("it is denied").result, "changed");
    assert!(!is_admitted(&control, HOST) && is_admitted(&control, OTHER));

    control.restart();
    assert_eq!(only_export(&control).allow_hosts, [OTHER]);
    assert!(!is_admitted(&control, HOST) && is_admitted(&control, OTHER), "after a restart");
}

#[test]
fn changes_that_leave_no_host_or_contradict_themselves_are_refused() {
    let (control, _) = Testbed::raid6(4);
    check_refused(set(&control, &[OTHER], &[], false), NotFound, "tank");
    control.run(|m| m.create_export(&request())).expect("it is offered");
    check_refused(set(&control, &[], &[], false), Usage, "--allow-host NQN");
    check_refused(set(&control, &[OTHER], &[OTHER], false), Usage, "allowed and denied");
    check_refused(set(&control, &["host"], &[], false), Usage, "is not a valid NQN");
    check_refused(set(&control, &[], &[HOST], true), State, "the last allowed host");
    check_refused(set(&control, &[], &[HOST], false), State, "the last allowed host");
    assert!(is_admitted(&control, HOST), "nothing was changed");
    let many: Vec<String> = (0..256).map(|nth| format!("nqn.2014-08.org.example:h{nth}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    check_refused(set(&control, &many, &[], false), State, "the limit is 256");
}

#[test]
fn a_host_without_a_key_is_not_allowed_on_a_secure_export() {
    let (control, _) = Testbed::raid6(4);
    let key = AddHostRequest { nqn: HOST.into(), new_tls_key: true, ..Default::default() };
    control.run(|m| m.add_host(&key)).expect("a key");
    let secure = CreateExportRequest { secure: true, ..request() };
    control.run(|m| m.create_export(&secure)).expect("it is offered");
    for dry_run in [true, false] {
        check_refused(set(&control, &[OTHER], &[], dry_run), State, "has no TLS key");
    }
    let key = AddHostRequest { nqn: OTHER.into(), ..key };
    control.run(|m| m.add_host(&key)).expect("a key");
    assert_eq!(set(&control, &[OTHER], &[], false).expect("it has a key").result, "changed");
}

/// All namespaces of a subsystem have the same hosts.
#[test]
fn the_change_applies_to_all_exports_of_the_subsystem() {
    let (control, drives) = Testbed::raid6(8);
    control.run(|m| m.create_export(&request())).expect("it is offered");
    let first = only_export(&control);
    let array = CreateArrayRequest { name: "second".into(), ..raid6(drives[4..].to_vec()) };
    control.create_array(&array).expect("a second array");
    let second = CreateExportRequest {
        array: "second".into(),
        listen: first.listen.clone(),
        nqn: first.nqn.clone(),
        ..nvme_tcp(HOST)
    };
    control.run(|m| m.create_export(&second)).expect("it is offered");
    let changed = set(&control, &[OTHER], &[HOST], false).expect("it is possible");
    assert!(changed.plan.iter().any(|step| step.contains("export second")), "{:?}", changed.plan);
    let lists: Vec<Vec<String>> = exports(&control).into_iter().map(|e| e.allow_hosts).collect();
    assert_eq!(lists, [[OTHER], [OTHER]]);
}

/// The array came from another host, where this host had to authenticate.
#[test]
fn a_host_whose_secrets_are_elsewhere_is_allowed_and_locked() {
    let (control, _) = Testbed::raid6(4);
    control.run(|m| m.create_export(&request())).expect("it is offered");
    let covered = Covered { secret: true, ..Covered::default() };
    let kept = HostRecord { nqn: OTHER.into(), covered, ..HostRecord::default() };
    let keep = |config: &mut Config| config.arrays[0].kept_hosts.push(kept.clone());
    control.run(|m| m.records.change(keep)).expect("it is recorded");
    let planned = set(&control, &[OTHER], &[], true).expect("it is possible");
    let step = format!("host {OTHER} cannot connect until its secret or key is given");
    assert!(planned.plan.contains(&step), "{:?}", planned.plan);
    let hosts = || control.with(|m| m.list_hosts().hosts).expect("it answers");
    assert_eq!(hosts(), []);
    let changed = set(&control, &[OTHER], &[], false).expect("it is possible");
    assert_eq!((changed.result.as_str(), changed.plan), ("changed", planned.plan));
    assert_eq!(hosts()[0].state, "locked");
    let export = only_export(&control);
    let answer = connect_as(&export.listen, OTHER, &export.nqn);
    assert_ne!(answer[2] & 2, 0, "its name alone does not suffice");
}

#[test]
fn a_disconnect_keeps_the_host_allowed() {
    let (control, _) = Testbed::raid6(4);
    control.run(|m| m.create_export(&request())).expect("it is offered");
    control.run(|m| m.add_host(&host(SECRET, ""))).expect("a secret");
    let disconnect =
        |nqn: &str| control.disconnect_host(&DisconnectHostRequest { nqn: nqn.into() });
    check_refused(disconnect(OTHER), NotFound, "no export allows host");
    let change = disconnect(HOST).expect("it is not connected");
    assert_eq!(change.result, "unchanged");
    assert!(change.host.expect("it says which").proof, "its secret is known");
    check_refused(disconnect("host"), Usage, "is not a valid NQN");
    assert!(is_admitted(&control, HOST));
}
