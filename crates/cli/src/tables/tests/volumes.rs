use super::check;
use super::fixtures::LONG;
use crate::tables::{pool, qos, volume};
use strake_api::v1::{
    ByteRange, CompareVolumesResponse, ListPoolsResponse, ListQosResponse, ListVolumesResponse,
    Pool, PoolChange, Qos, QosChange, QosLimit, SnapshotsChange, Volume, VolumeChange,
};

fn data() -> Pool {
    Pool {
        name: "data".into(),
        uuid: "3f7420d0-d70f-46db-8f1d-75ebb959df7e".into(),
        array: "tank".into(),
        state: "online".into(),
        size_bytes: 20 << 40,
        used_bytes: 5 << 40,
        free_bytes: 15 << 40,
        reserved_bytes: 1 << 40,
        provisioned_bytes: 30 << 40,
        cluster_bytes: 768 << 10,
        volumes: 12,
        snapshots: 1,
        deleting: 2,
        log_bytes: 64 << 20,
        log_used_bytes: 3 << 20,
        ..Pool::default()
    }
}

fn offline() -> Pool {
    let reason = "the log of the pool cannot be read: too many members of array cold are missing";
    Pool {
        name: LONG.into(),
        array: "cold".into(),
        state: "offline".into(),
        reason: reason.into(),
        ..Pool::default()
    }
}

fn vm(name: &str) -> Volume {
    Volume {
        name: name.into(),
        pool: "data".into(),
        id: 7,
        kind: "volume".into(),
        size_bytes: 100 << 30,
        used_bytes: 7 << 30,
        ..Volume::default()
    }
}

fn thick() -> Volume {
    Volume {
        exclusive_bytes: Some(6 << 30),
        shared_bytes: Some(1 << 30),
        reserved_bytes: Some(93 << 30),
        thick: true,
        quota_bytes: 200 << 30,
        origin: "data/before".into(),
        exports: vec!["vm2".into(), "second".into()],
        ..vm("data/vm2")
    }
}

fn snapshot() -> Volume {
    Volume { kind: "snapshot".into(), origin: "data/vm1".into(), ..vm("data/before") }
}

#[test]
fn all_pools_and_one() {
    let answer = ListPoolsResponse { pools: vec![data(), offline()] };
    check("pool-list", |width| pool::list(&answer, width));
    check("pool-list-empty", |width| pool::list(&ListPoolsResponse::default(), width));
    check("pool-show", |width| pool::show(&data(), width));
    check("pool-show-offline", |width| pool::show(&offline(), width));
    let changed = |result: &str| PoolChange {
        result: result.into(),
        pool: Some(data()),
        plan: vec!["write two labels of 4 KiB at the start of array tank".into()],
        warnings: vec![],
    };
    check("pool-created", |width| pool::change(&changed("created"), width));
    check("pool-planned", |width| pool::change(&changed("planned"), width));
    check("pool-destroyed", |width| pool::change(&changed("destroyed"), width));
    let what = pool::loss(Some(&data()), "data");
    assert!(what.starts_with("12 volumes, 1 snapshot; "), "{what}");
    assert!(what.ends_with(" with 5 TiB of data are lost"), "{what}");
}

#[test]
fn volumes_and_snapshots() {
    let long = vm(&format!("{LONG}/{LONG}"));
    let answer = ListVolumesResponse { volumes: vec![vm("data/vm1"), thick(), long] };
    check("volume-list", |width| volume::list(&answer, width));
    let plain = ListVolumesResponse { volumes: vec![vm("data/vm1")] };
    check("volume-list-plain", |width| volume::list(&plain, width));
    check("volume-list-empty", |width| volume::list(&ListVolumesResponse::default(), width));
    check("volume-show", |width| volume::show(&thick(), width));
    let snapshots = ListVolumesResponse { volumes: vec![snapshot()] };
    check("snapshot-list", |width| volume::snapshots(&snapshots, width));
    let none = ListVolumesResponse::default();
    check("snapshot-list-empty", |width| volume::snapshots(&none, width));
    check("snapshot-show", |width| volume::show(&snapshot(), width));
    let changed = |result: &str, volume: Volume| VolumeChange {
        result: result.into(),
        volume: Some(volume),
        plan: vec!["reserve 93 GiB of pool data".into()],
        warnings: vec![],
    };
    check("volume-created", |width| volume::change(&changed("created", thick()), width));
    check("volume-planned", |width| volume::change(&changed("planned", thick()), width));
    check("volume-changed", |width| volume::change(&changed("changed", vm("data/vm1")), width));
    check("volume-destroyed", |width| volume::change(&changed("destroyed", snapshot()), width));
    let mut taken = SnapshotsChange {
        result: "created".into(),
        snapshots: vec![snapshot(), snapshot()],
        plan: vec![],
        warnings: vec![],
    };
    check("snapshot-created", |width| volume::snapshots_change(&taken, width));
    taken.result = "planned".into();
    taken.plan = vec!["take a snapshot of data/vm1 as data/before".into()];
    check("snapshot-planned", |width| volume::snapshots_change(&taken, width));
}

#[test]
fn ranges_that_differ() {
    let range = |offset_bytes, length_bytes| ByteRange { offset_bytes, length_bytes };
    let ranges = vec![range(0, 4096), range(107_374_178_304, 1 << 20)];
    let answer = CompareVolumesResponse { ranges, next_byte: None };
    check("snapshot-diff", |width| volume::diff(&answer, width));
    let none = CompareVolumesResponse::default();
    check("snapshot-diff-none", |width| volume::diff(&none, width));
}

fn limit(aspect: &str, rate: u64, throttled: u64) -> QosLimit {
    let (burst_ms, throttled_ns) = (100, throttled * 1_250_000);
    QosLimit {
        aspect: aspect.into(),
        rate,
        burst_ms,
        throttled,
        throttled_ns,
        ..QosLimit::default()
    }
}

#[test]
fn limits_of_objects() {
    let limits = vec![limit("iops", 10_001, 0), limit("write-bandwidth", 50 << 20, 4711)];
    let of = |kind: &str, name: &str| Qos {
        kind: kind.into(),
        name: name.into(),
        limits: limits.clone(),
    };
    let answer = ListQosResponse { objects: vec![of("pool", "data"), of("volume", "data/vm1")] };
    check("qos-list", |width| qos::list(&answer, width));
    check("qos-list-empty", |width| qos::list(&ListQosResponse::default(), width));
    check("qos-show", |width| qos::show(&of("volume", "data/vm1"), width));
    let changed = |result: &str| QosChange {
        result: result.into(),
        qos: Some(of("volume", "data/vm1")),
        plan: vec!["iops: 10001/s with a burst of 100 ms".into()],
        ..QosChange::default()
    };
    check("qos-planned", |width| qos::change(&changed("planned"), width));
    check("qos-changed", |width| qos::change(&changed("changed"), width));
    let limited = Volume { limits: limits.clone(), ..vm("data/vm1") };
    check("volume-show-limited", |width| volume::show(&limited, width));
}
