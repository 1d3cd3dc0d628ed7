//! Limits of volumes, exports and pools: what is recorded, what holds after a restart, and how limits end.

use strake_api::v1::{
    ClearQosRequest, CreateExportRequest, CreatePoolRequest, CreateVolumeRequest,
    DestroyPoolRequest, DestroyVolumeRequest, GetQosRequest, GetVolumeRequest, QosChange,
    SetQosRequest,
};

use super::{Testbed, check_refused, exports, nbd};
use crate::control::Control;
use crate::error::ControlErrorKind::{NotFound, Usage};
use crate::{ControlError, Limits, Pools};

/// Array tank with pool p, volume p/v of 16 MiB, and its export v.
fn bed() -> Testbed {
    let (bed, _) = Testbed::raid6(4);
    let pool = CreatePoolRequest { name: "p".into(), array: "tank".into(), ..Default::default() };
    Pools::of(&bed).create_pool(&pool).expect("it is created");
    let size_bytes = 16 << 20;
    let volume = CreateVolumeRequest { name: "p/v".into(), size_bytes, ..Default::default() };
    Pools::of(&bed).create_volume(&volume).expect("it is created");
    export(&bed);
    bed
}

fn export(bed: &Testbed) {
    let request = CreateExportRequest { array: "p/v".into(), ..nbd(&bed.path("v.sock")) };
    crate::create_export(bed, &request).expect("it is offered");
}

fn iops(kind: &str, name: &str, iops: u64) -> SetQosRequest {
    SetQosRequest { kind: kind.into(), name: name.into(), iops: Some(iops), ..Default::default() }
}

fn set(control: &Control, request: &SetQosRequest) -> Result<QosChange, ControlError> {
    Limits::of(control).set(request)
}

/// The limited objects, each with its rates.
fn limits(control: &Control) -> Vec<(String, Vec<(String, u64)>)> {
    let objects = Limits::of(control).list().expect("it answers").objects;
    let rates = |limits: Vec<strake_api::v1::QosLimit>| {
        limits.into_iter().map(|limit| (limit.aspect, limit.rate)).collect()
    };
    objects
        .into_iter()
        .map(|object| (format!("{} {}", object.kind, object.name), rates(object.limits)))
        .collect()
}

fn rate(name: &str, iops: u64) -> (String, Vec<(String, u64)>) {
    (name.into(), vec![("iops".into(), iops)])
}

#[test]
fn limits_are_there_after_a_restart_and_end_with_their_objects() {
    let mut bed = bed();
    for (kind, name, number) in [("volume", "p/v", 10_001), ("export", "v", 7), ("pool", "p", 9)] {
        assert_eq!(set(&bed, &iops(kind, name, number)).expect("it is set").result, "changed");
    }
    let again = set(&bed, &iops("pool", "p", 9)).expect("nothing changes");
    assert_eq!(again.result, "unchanged");
    assert_eq!(bed.reported("limits_changed").len(), 3);
    bed.restart();
    let all = [rate("export v", 7), rate("pool p", 9), rate("volume p/v", 10_001)];
    assert_eq!(limits(&bed), all);
    let volume = Pools::of(&bed).volume(&GetVolumeRequest { name: "p/v".into() }).expect("there");
    assert_eq!((volume.limits.len(), volume.limits[0].rate), (1, 10_001));
    assert_eq!(exports(&bed)[0].limits[0].rate, 7);
    assert_eq!(Pools::of(&bed).pool("p").expect("there").limits[0].rate, 9);
    bed.remove_export("v");
    export(&bed);
    assert_eq!(limits(&bed), all[1..], "another export of the name has no limit");
    bed.remove_export("v");
    let volume = DestroyVolumeRequest { name: "p/v".into(), dry_run: false };
    Pools::of(&bed).destroy_volume(&volume).expect("it is destroyed");
    assert_eq!(limits(&bed), all[1..2]);
    let pool = DestroyPoolRequest { name: "p".into(), ..Default::default() };
    Pools::of(&bed).destroy_pool(&pool).expect("it is destroyed");
    assert_eq!(limits(&bed), []);
}

#[test]
fn refused_and_planned_changes_of_limits_change_nothing() {
    let bed = bed();
    set(&bed, &iops("volume", "p/v", 5)).expect("it is set");
    let planned = SetQosRequest { dry_run: true, ..iops("volume", "p/v", 6) };
    assert_eq!(set(&bed, &planned).expect("a plan").result, "planned");
    check_refused(set(&bed, &iops("array", "tank", 5)), Usage, "volume, export or pool");
    check_refused(set(&bed, &iops("volume", "v", 5)), Usage, "POOL/NAME");
    check_refused(set(&bed, &iops("volume", "p/x", 5)), NotFound, "no volume x");
    check_refused(set(&bed, &iops("export", "x", 5)), NotFound, "x");
    check_refused(set(&bed, &iops("pool", "x", 5)), NotFound, "x");
    check_refused(set(&bed, &iops("volume", "p/v", u64::MAX)), Usage, "iops");
    let short = SetQosRequest { burst_ms: 1, ..iops("volume", "p/v", 6) };
    check_refused(set(&bed, &short), Usage, "burst");
    assert_eq!(limits(&bed), [rate("volume p/v", 5)]);
    let (kind, name) = ("volume".to_owned(), "p/v".to_owned());
    let clear = ClearQosRequest { kind: kind.clone(), name: name.clone(), dry_run: false };
    assert_eq!(Limits::of(&bed).clear(&clear).expect("it is cleared").result, "changed");
    assert_eq!(limits(&bed), []);
    let shown = Limits::of(&bed).get(&GetQosRequest { kind, name }).expect("there is a volume");
    assert!(shown.limits.is_empty());
}
