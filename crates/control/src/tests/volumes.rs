//! Pools and volumes: from the creation to a restart, and every refusal.

use crate::Pools;
use strake_api::v1::{
    CloneSnapshotRequest, CompareVolumesRequest, CreateExportRequest, CreatePoolRequest,
    CreateSnapshotsRequest, CreateVolumeRequest, DestroyArrayRequest, DestroyPoolRequest,
    DestroyVolumeRequest, GetVolumeRequest, ListVolumesRequest, NewSnapshot, ResizeVolumeRequest,
    RollbackVolumeRequest, SetVolumeRequest, Volume,
};
use strake_block::blocking::Blocking;
use strake_block::{BlockDevice, BufMut, Sg};
use strake_dev_fabrics::{FabricsDevice, HostName, Options};
use strake_dev_uring::control_wait;
use strake_units::{CoreIndex, Lba};

use super::grow::connect_nbd;
use super::{Testbed, check_refused, exports, nbd, nvme_tcp, tick_until};
use crate::control::Control;
use crate::error::ControlErrorKind::{Exists, NotFound, Refused, State, Usage};
use crate::state::pool::{OfflinePool, PoolSlot};

const MIB: u64 = 1 << 20;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111";

fn pool() -> CreatePoolRequest {
    CreatePoolRequest { name: "p".into(), array: "tank".into(), ..Default::default() }
}

fn volume(name: &str, mib: u64) -> CreateVolumeRequest {
    CreateVolumeRequest { name: name.into(), size_bytes: mib * MIB, ..Default::default() }
}

fn snapshot(volume: &str, name: &str) -> CreateSnapshotsRequest {
    let new = NewSnapshot { volume: volume.into(), name: name.into() };
    CreateSnapshotsRequest { snapshots: vec![new], dry_run: false }
}

fn get(control: &Control, name: &str) -> Volume {
    Pools::of(control).volume(&GetVolumeRequest { name: name.into() }).expect("it is there")
}

fn names(control: &Control) -> Vec<String> {
    let all = Pools::of(control).list_volumes(&ListVolumesRequest::default()).expect("it answers");
    all.volumes.into_iter().map(|volume| volume.name).collect()
}

/// Array tank with pool p and volume p/v of 16 MiB.
fn bed() -> Testbed {
    let (bed, _) = Testbed::raid6(4);
    assert_eq!(Pools::of(&bed).create_pool(&pool()).expect("it is created").result, "created");
    assert_eq!(
        Pools::of(&bed).create_volume(&volume("p/v", 16)).expect("it is created").result,
        "created"
    );
    bed
}

/// Writes or reads the first block of a volume, through its device.
fn io(control: &Control, name: &str, write: Option<u8>) -> u8 {
    let pool = Pools::of(control).in_pool("p").expect("it is online");
    let id = get(control, name).id;
    let device = pool.handle.device(strake_volume::VolumeId(id)).expect("it is there");
    let mut wait = control_wait();
    let queue = device.open_queue(CoreIndex(0), 1).expect("it serves");
    let mut io = Blocking::new(queue, &mut wait);
    let size = device.info().block_size.bytes() as usize;
    if let Some(byte) = write {
        let mut data = BufMut::alone(size);
        data.as_mut_slice().fill(byte);
        io.write_stable(Lba(0), Sg::from(data.freeze())).expect("it is written");
    }
    let data = io.read(Lba(0), BufMut::alone(size)).expect("it is read");
    let first = data.as_slice()[0];
    assert!(data.as_slice().iter().all(|byte| *byte == first));
    first
}

#[test]
fn a_volume_is_there_after_a_restart_with_its_data_and_its_exports() {
    let mut bed = bed();
    assert_eq!(io(&bed, "p/v", None), 0, "a new volume is zero");
    assert_eq!(io(&bed, "p/v", Some(7)), 7);
    let socket = nbd(&bed.path("v.sock"));
    let request = CreateExportRequest { array: "p/v".into(), ..socket };
    let export =
        crate::create_export(&bed, &request).expect("it is offered").export.expect("shown");
    let shown = (export.name.as_str(), export.array.as_str(), export.size_bytes);
    assert_eq!(shown, ("v", "p/v", 16 * MIB));
    let request = CreateExportRequest { array: "p/v".into(), name: "n".into(), ..nvme_tcp(HOST) };
    let nvme = crate::create_export(&bed, &request).expect("it is offered").export.expect("shown");
    bed.restart();
    assert_eq!(io(&bed, "p/v", None), 7, "acknowledged data survive");
    let after = exports(&bed);
    assert!(after.iter().all(|export| export.state == "online"), "{after:?}");
    assert!(after.iter().all(|export| export.array == "p/v"), "{after:?}");
    let again = after.iter().find(|export| export.name == "n").expect("it is recorded");
    assert_eq!(again.nqn, nvme.nqn, "hosts find the same namespace");
    assert!(bed.tank().uuid != nvme.nqn.rsplit(':').next().expect("a UUID"), "{}", nvme.nqn);
    let mut names = get(&bed, "p/v").exports;
    names.sort();
    assert_eq!(names, ["n", "v"]);
    assert_eq!(bed.reported("pool_online").len(), 2, "after the creation and the restart");
}

#[test]
fn snapshots_clones_and_rollbacks_keep_their_content() {
    let bed = bed();
    io(&bed, "p/v", Some(1));
    let made = Pools::of(&bed).create_snapshots(&snapshot("p/v", "before")).expect("it is taken");
    assert_eq!((made.result.as_str(), made.snapshots[0].name.as_str()), ("created", "p/before"));
    io(&bed, "p/v", Some(2));
    assert_eq!((io(&bed, "p/v", None), io(&bed, "p/before", None)), (2, 1));
    let (from, to) = ("p/before".to_owned(), "p/v".to_owned());
    let compare = CompareVolumesRequest { from, to, first_byte: 0 };
    let found = Pools::of(&bed).compare_volumes(&compare).expect("it answers");
    assert_eq!((found.ranges[0].offset_bytes, found.next_byte), (0, None));
    let snapshot = "p/before".to_owned();
    let clone = CloneSnapshotRequest { snapshot, name: "copy".into(), dry_run: false };
    let copy =
        Pools::of(&bed).clone_snapshot(&clone).expect("it is made").volume.expect("it is shown");
    assert_eq!((copy.name.as_str(), copy.origin.as_str()), ("p/copy", "p/before"));
    assert_eq!((io(&bed, "p/copy", Some(3)), io(&bed, "p/before", None)), (3, 1));
    let (name, snapshot) = ("p/v".to_owned(), "p/before".to_owned());
    let back = RollbackVolumeRequest { name, snapshot, dry_run: false };
    assert_eq!(Pools::of(&bed).rollback_volume(&back).expect("it is done").result, "changed");
    assert_eq!(io(&bed, "p/v", None), 1);
    assert_eq!(names(&bed), ["p/before", "p/copy", "p/v"]);
    let space = get(&bed, "p/copy");
    assert!(space.exclusive_bytes.is_some() && space.shared_bytes.is_some());
}

#[test]
fn a_dry_run_changes_nothing() {
    let bed = bed();
    Pools::of(&bed).create_snapshots(&snapshot("p/v", "s")).expect("it is taken");
    let now = || {
        let pool = Pools::of(&bed).pool("p").expect("it is there");
        (pool.volumes, pool.snapshots, pool.used_bytes, get(&bed, "p/v").size_bytes, names(&bed))
    };
    let before = now();
    let dry = CreateVolumeRequest { dry_run: true, ..volume("p/w", 1) };
    assert_eq!(Pools::of(&bed).create_volume(&dry).expect("it is planned").result, "planned");
    let dry = CreateSnapshotsRequest { dry_run: true, ..snapshot("p/v", "t") };
    assert_eq!(Pools::of(&bed).create_snapshots(&dry).expect("it is planned").result, "planned");
    let (name, size_bytes) = ("p/v".to_owned(), MIB);
    let dry = ResizeVolumeRequest { name, size_bytes, discard_tail: true, dry_run: true };
    assert_eq!(Pools::of(&bed).resize_volume(&dry).expect("it is planned").result, "planned");
    let dry = DestroyVolumeRequest { name: "p/v".into(), dry_run: true };
    assert_eq!(Pools::of(&bed).destroy_volume(&dry).expect("it is planned").result, "planned");
    let (name, snapshot) = ("p/v".to_owned(), "p/s".to_owned());
    let dry = RollbackVolumeRequest { name, snapshot: snapshot.clone(), dry_run: true };
    assert_eq!(Pools::of(&bed).rollback_volume(&dry).expect("it is planned").result, "planned");
    let dry = CloneSnapshotRequest { snapshot, name: "c".into(), dry_run: true };
    assert_eq!(Pools::of(&bed).clone_snapshot(&dry).expect("it is planned").result, "planned");
    let dry = DestroyPoolRequest { name: "p".into(), dry_run: true, force: true };
    assert_eq!(Pools::of(&bed).destroy_pool(&dry).expect("it is planned").result, "planned");
    assert_eq!(now(), before);
}

#[test]
fn volumes_are_created_resized_and_set_within_their_limits() {
    let bed = bed();
    check_refused(Pools::of(&bed).create_volume(&volume("p/v", 1)), Exists, "already exists");
    check_refused(Pools::of(&bed).create_volume(&volume("p/w", 0)), Usage, "at least one block");
    check_refused(Pools::of(&bed).create_volume(&volume("p/a b", 1)), Usage, "volume name");
    check_refused(Pools::of(&bed).create_volume(&volume("w", 1)), Usage, "POOL/NAME");
    check_refused(Pools::of(&bed).create_volume(&volume("q/w", 1)), NotFound, "no pool");
    let huge = CreateVolumeRequest { size_bytes: u64::MAX, ..volume("p/w", 1) };
    check_refused(Pools::of(&bed).create_volume(&huge), Usage, "too large");
    let thick = CreateVolumeRequest { thick: true, ..volume("p/w", 10_000) };
    check_refused(Pools::of(&bed).create_volume(&thick), State, "unreserved free space");
    let odd = CreateVolumeRequest { size_bytes: MIB + 1, ..volume("p/w", 1) };
    let made = Pools::of(&bed).create_volume(&odd).expect("it is rounded up");
    assert!(made.warnings[0].contains("rounded up"), "{:?}", made.warnings);
    assert!(made.volume.expect("it is shown").size_bytes > MIB);
    let resize = |mib: u64, discard_tail| ResizeVolumeRequest {
        name: "p/v".into(),
        size_bytes: mib * MIB,
        discard_tail,
        dry_run: false,
    };
    check_refused(Pools::of(&bed).resize_volume(&resize(8, false)), Refused, "--discard-tail");
    assert_eq!(
        Pools::of(&bed).resize_volume(&resize(32, false)).expect("it grows").result,
        "changed"
    );
    assert_eq!(
        Pools::of(&bed).resize_volume(&resize(32, false)).expect("as it is").result,
        "unchanged"
    );
    assert_eq!(
        Pools::of(&bed).resize_volume(&resize(8, true)).expect("it shrinks").result,
        "changed"
    );
    assert_eq!(get(&bed, "p/v").size_bytes, 8 * MIB);
    let set = |thick, quota_bytes| SetVolumeRequest { name: "p/v".into(), thick, quota_bytes };
    check_refused(Pools::of(&bed).set_volume(&set(None, None)), Usage, "name a setting");
    assert_eq!(
        Pools::of(&bed).set_volume(&set(Some(true), None)).expect("it fits").result,
        "changed"
    );
    assert_eq!(
        Pools::of(&bed).set_volume(&set(Some(true), None)).expect("as it is").result,
        "unchanged"
    );
    assert!(get(&bed, "p/v").thick);
    let changed = Pools::of(&bed).set_volume(&set(Some(false), Some(4 * MIB))).expect("it is set");
    assert_eq!(changed.volume.expect("it is shown").quota_bytes, 4 * MIB);
}

/// A host that is connected is notified and uses the new size; an NBD client has it at its next connection.
#[test]
fn a_volume_grows_under_its_clients() {
    let bed = bed();
    let socket = bed.path("v.sock");
    let request = CreateExportRequest { array: "p/v".into(), name: "tank".into(), ..nbd(&socket) };
    crate::create_export(&bed, &request).expect("it is offered");
    let request = CreateExportRequest { array: "p/v".into(), name: "n".into(), ..nvme_tcp(HOST) };
    let uri =
        crate::create_export(&bed, &request).expect("it is offered").export.expect("shown").uri;
    let name = HostName { nqn: HOST.into(), id: [7; 16], keys: None, tls: None };
    let address = uri.parse().expect("an address");
    let host = FabricsDevice::connect(&address, &name, Options::default()).expect("it is admitted");
    let mut wait = control_wait();
    let mut old = Blocking::new(host.open_queue(CoreIndex(0), 1).expect("connected"), &mut wait);
    let block = || BufMut::alone(host.info().block_size.bytes() as usize);
    let last = |mib: u64| Lba(((mib * MIB) >> host.info().block_size.shift()) - 1);
    let (_client, before) = connect_nbd(&socket);
    assert_eq!((before, host.info().bytes()), (16 * MIB, 16 * MIB));
    old.write_stable(last(16), Sg::from(block().freeze())).expect("it is written");

    let (name, size_bytes) = ("p/v".to_owned(), 32 * MIB);
    let grow = ResizeVolumeRequest { name, size_bytes, discard_tail: false, dry_run: false };
    assert_eq!(Pools::of(&bed).resize_volume(&grow).expect("it grows").result, "changed");
    let (_client, after) = connect_nbd(&socket);
    assert_eq!(after, 32 * MIB);
    tick_until(&bed, "the news", || host.info().bytes() == 32 * MIB);
    old.write_stable(last(16), Sg::from(block().freeze())).expect("the host sees no error");
    drop(old);
    // A queue of our own host keeps the size that the namespace had when the queue was opened.
    let queue = host.open_queue(CoreIndex(0), 1).expect("it is connected");
    let mut new = Blocking::new(queue, &mut wait);
    new.write_stable(last(32), Sg::from(block().freeze())).expect("the new space is used");
}

#[test]
fn an_exported_volume_keeps_its_content() {
    let bed = bed();
    Pools::of(&bed).create_snapshots(&snapshot("p/v", "s")).expect("it is taken");
    let request = CreateExportRequest { array: "p/v".into(), ..nbd(&bed.path("v.sock")) };
    crate::create_export(&bed, &request).expect("it is offered");
    let exported = "exported as v; first remove the export";
    let gone = DestroyVolumeRequest { name: "p/v".into(), dry_run: false };
    check_refused(Pools::of(&bed).destroy_volume(&gone), Refused, exported);
    let (name, size_bytes) = ("p/v".to_owned(), MIB);
    let small = ResizeVolumeRequest { name, size_bytes, discard_tail: true, dry_run: false };
    check_refused(Pools::of(&bed).resize_volume(&small), Refused, exported);
    let (name, snapshot) = ("p/v".to_owned(), "p/s".to_owned());
    let back = RollbackVolumeRequest { name, snapshot, dry_run: false };
    check_refused(Pools::of(&bed).rollback_volume(&back), Refused, exported);
    let all = DestroyPoolRequest { name: "p".into(), force: true, dry_run: false };
    check_refused(Pools::of(&bed).destroy_pool(&all), Refused, exported);
    assert_eq!(crate::create_export(&bed, &request).expect("as it is").result, "unchanged");
    let request = CreateExportRequest { array: "p/s".into(), ..nbd(&bed.path("s.sock")) };
    let export =
        crate::create_export(&bed, &request).expect("it is offered").export.expect("shown");
    assert!(export.read_only, "a snapshot is read-only");
    bed.remove_export("v");
    bed.remove_export("s");
    assert_eq!(Pools::of(&bed).destroy_volume(&gone).expect("nothing uses it").result, "destroyed");
    check_refused(Pools::of(&bed).destroy_volume(&gone), NotFound, "no volume v");
}

#[test]
fn an_array_with_a_pool_is_not_used_otherwise() {
    let mut bed = bed();
    check_refused(crate::create_export(&bed, &nbd(&bed.path("t.sock"))), Refused, "it has pool p");
    let destroy = DestroyArrayRequest { name: "tank".into(), force: true, ..Default::default() };
    check_refused(bed.destroy_array(&destroy), Refused, "pool destroy p");
    let grow = strake_api::v1::GrowArrayRequest { name: "tank".into(), ..Default::default() };
    check_refused(bed.grow_array(&grow), Refused, "it has pool p");
    assert_eq!(Pools::of(&bed).create_pool(&pool()).expect("as it is").result, "unchanged");
    let other = CreatePoolRequest { name: "q".into(), ..pool() };
    check_refused(Pools::of(&bed).create_pool(&other), Refused, "it has pool p");
    bed.restart();
    check_refused(crate::create_export(&bed, &nbd(&bed.path("t.sock"))), Refused, "it has pool p");
    let destroy = DestroyPoolRequest { name: "p".into(), ..Default::default() };
    check_refused(Pools::of(&bed).destroy_pool(&destroy), Refused, "has 1 volumes");
    let force = DestroyPoolRequest { force: true, ..destroy };
    assert_eq!(Pools::of(&bed).destroy_pool(&force).expect("nothing uses it").result, "destroyed");
    check_refused(Pools::of(&bed).pool("p"), NotFound, "no pool");
    bed.restart();
    check_refused(Pools::of(&bed).pool("p"), NotFound, "no pool");
    crate::create_export(&bed, &nbd(&bed.path("t.sock"))).expect("the array is free");
}

#[test]
fn a_pool_needs_an_array_without_data_and_exports() {
    let (bed, _) = Testbed::raid6(4);
    let bad = CreatePoolRequest { name: "a/b".into(), ..pool() };
    check_refused(Pools::of(&bed).create_pool(&bad), Usage, "pool name");
    let bad = CreatePoolRequest { array: "other".into(), ..pool() };
    check_refused(Pools::of(&bed).create_pool(&bad), NotFound, "no array");
    let dry = CreatePoolRequest { dry_run: true, ..pool() };
    assert_eq!(Pools::of(&bed).create_pool(&dry).expect("it is planned").result, "planned");
    assert!(Pools::of(&bed).list_pools().expect("it answers").pools.is_empty());
    crate::create_export(&bed, &nbd(&bed.path("t.sock"))).expect("it is offered");
    check_refused(Pools::of(&bed).create_pool(&pool()), Refused, "first remove the export");
    bed.remove_export("tank");
    super::life::write(&bed, "tank", 1);
    check_refused(Pools::of(&bed).create_pool(&pool()), Refused, "was written");
    let overwrite = CreatePoolRequest { overwrite: true, ..pool() };
    assert_eq!(Pools::of(&bed).create_pool(&overwrite).expect("the data may go").result, "created");
}

#[test]
fn snapshots_and_clones_are_refused_for_wrong_objects() {
    let bed = bed();
    Pools::of(&bed).create_snapshots(&snapshot("p/v", "s")).expect("it is taken");
    check_refused(
        Pools::of(&bed).create_snapshots(&snapshot("p/v", "s")),
        Exists,
        "already exists",
    );
    check_refused(
        Pools::of(&bed).create_snapshots(&snapshot("p/s", "t")),
        Refused,
        "is a snapshot",
    );
    check_refused(Pools::of(&bed).create_snapshots(&snapshot("p/x", "t")), NotFound, "no volume x");
    check_refused(
        Pools::of(&bed).create_snapshots(&CreateSnapshotsRequest::default()),
        Usage,
        "at least one",
    );
    let mut twice = snapshot("p/v", "t");
    twice.snapshots.push(twice.snapshots[0].clone());
    check_refused(Pools::of(&bed).create_snapshots(&twice), Usage, "twice");
    let mut others = snapshot("p/v", "t");
    others.snapshots.push(NewSnapshot { volume: "q/v".into(), name: "u".into() });
    check_refused(Pools::of(&bed).create_snapshots(&others), Usage, "different pools");
    let clone = |snapshot: &str, name: &str| CloneSnapshotRequest {
        snapshot: snapshot.into(),
        name: name.into(),
        dry_run: false,
    };
    check_refused(Pools::of(&bed).clone_snapshot(&clone("p/v", "c")), Usage, "no snapshot");
    check_refused(Pools::of(&bed).clone_snapshot(&clone("p/s", "v")), Exists, "already exists");
    check_refused(
        Pools::of(&bed).clone_snapshot(&clone("p/s", "q/c")),
        Usage,
        "stay in their pool",
    );
    let back = |name: &str, snapshot: &str| RollbackVolumeRequest {
        name: name.into(),
        snapshot: snapshot.into(),
        dry_run: false,
    };
    check_refused(Pools::of(&bed).rollback_volume(&back("p/v", "p/v")), Usage, "no snapshot");
    check_refused(Pools::of(&bed).rollback_volume(&back("p/v", "q/s")), Usage, "different pools");
    let (name, size_bytes) = ("p/v".to_owned(), 32 * MIB);
    let grow = ResizeVolumeRequest { name, size_bytes, discard_tail: false, dry_run: false };
    Pools::of(&bed).resize_volume(&grow).expect("it grows");
    check_refused(Pools::of(&bed).rollback_volume(&back("p/v", "p/s")), State, "different sizes");
    let (from, to) = ("p/s".to_owned(), "p/v".to_owned());
    let compare = CompareVolumesRequest { from, to, first_byte: 1 };
    check_refused(Pools::of(&bed).compare_volumes(&compare), Usage, "multiple of the block size");
    let beyond = CompareVolumesRequest { first_byte: 64 * MIB, ..compare };
    check_refused(Pools::of(&bed).compare_volumes(&beyond), Usage, "has only");
}

#[test]
fn an_array_is_unloaded_with_its_pool_and_comes_back_with_it() {
    let bed = bed();
    io(&bed, "p/v", Some(9));
    let request = CreateExportRequest { array: "p/v".into(), ..nbd(&bed.path("v.sock")) };
    crate::create_export(&bed, &request).expect("it is offered");
    let drives: Vec<String> = bed.tank().members.into_iter().map(|m| m.path).collect();
    let unload = super::unload("tank");
    check_refused(bed.unload_array(&unload), Refused, "is exported as v");
    bed.remove_export("v");
    bed.unload_array(&unload).expect("nothing uses it");
    check_refused(Pools::of(&bed).pool("p"), NotFound, "no pool");
    let import = strake_api::v1::ImportArraysRequest { drives, ..Default::default() };
    bed.import_arrays(&import).expect("it comes back");
    assert_eq!(io(&bed, "p/v", None), 9);
}

#[test]
fn an_array_that_may_have_a_pool_is_not_used_otherwise() {
    let (bed, _) = Testbed::raid6(4);
    for is_unread in [false, true] {
        let slot = |is_unread| match is_unread {
            false => PoolSlot::Unknown,
            true => PoolSlot::Unread { why: "a drive is slow".into() },
        };
        bed.with(|m| m.running[0].pool = slot(is_unread)).expect("the lock is free");
        check_refused(crate::create_export(&bed, &nbd(&bed.path("t.sock"))), State, "yet");
        check_refused(Pools::of(&bed).create_pool(&pool()), State, "yet");
        let destroy = DestroyArrayRequest { name: "tank".into(), ..Default::default() };
        check_refused(bed.destroy_array(&destroy), State, "yet");
    }
}

#[test]
fn the_doctor_checks_each_pool() {
    let bed = bed();
    let check = |name: &str| {
        let found = bed.doctor().expect("it answers").checks;
        found.into_iter().find(|check| check.name == name).expect("it is checked")
    };
    assert_eq!(check("pool/p").state, "ok");
    let why = "both headers of its pool are damaged".to_owned();
    let offline = PoolSlot::Offline(OfflinePool { known: None, why, is_stuck: false });
    let online = bed.with(|m| std::mem::replace(&mut m.running[0].pool, offline));
    let found = check("pool of array/tank");
    assert_eq!(found.state, "failed");
    assert!(found.what.contains("both headers"), "{found:?}");
    bed.with(|m| m.running[0].pool = online.expect("the lock is free")).expect("the lock is free");
}

fn destroy(name: &str) -> DestroyPoolRequest {
    DestroyPoolRequest { name: name.into(), force: true, ..Default::default() }
}

fn put_slot(bed: &Testbed, known: Option<(String, String)>, is_stuck: bool) {
    let why = "both headers of its pool are damaged".to_owned();
    let offline = PoolSlot::Offline(OfflinePool { known, why, is_stuck });
    let before = bed.with(|m| std::mem::replace(&mut m.running[0].pool, offline));
    drop(before.expect("the lock is free"));
}

#[test]
fn a_pool_whose_header_is_unreadable_is_destroyed_by_the_name_of_its_array() {
    let bed = bed();
    put_slot(&bed, None, false);
    let unforced = DestroyPoolRequest { force: false, ..destroy("tank") };
    check_refused(Pools::of(&bed).destroy_pool(&unforced), Refused, "its volumes are not known");
    // The header can be read again.
    check_refused(Pools::of(&bed).destroy_pool(&destroy("tank")), State, "can be read again");
    assert_eq!(names(&bed), ["p/v"], "the pool serves");

    let device = bed.with(|m| m.running[0].array.device()).expect("the lock is free");
    put_slot(&bed, None, false);
    {
        let mut wait = control_wait();
        let queue = device.open_queue(CoreIndex(0), 1).expect("it serves");
        let mut io = Blocking::new(queue, &mut wait);
        let mut data = BufMut::alone(8192);
        let bytes = data.as_mut_slice();
        bytes.fill(0x5a);
        // The magic remains, so that there is a header, and nothing else of it.
        let mut header = BufMut::alone(8192);
        header = io.read(Lba(0), header).expect("it is readable");
        for at in [0, 4096] {
            bytes[at..at + 8].copy_from_slice(&header.as_slice()[at..at + 8]);
        }
        io.write_stable(Lba(0), Sg::from(data.freeze())).expect("it is written");
    }
    let planned = DestroyPoolRequest { dry_run: true, ..destroy("tank") };
    assert_eq!(Pools::of(&bed).destroy_pool(&planned).expect("a plan").result, "planned");
    let done = Pools::of(&bed).destroy_pool(&destroy("tank")).expect("it is destroyed");
    assert_eq!(done.result, "destroyed");
    let again = CreatePoolRequest { overwrite: true, ..pool() };
    assert_eq!(Pools::of(&bed).create_pool(&again).expect("the array is free").result, "created");
}

#[test]
fn a_pool_whose_io_may_still_be_executed_is_not_destroyed() {
    let bed = bed();
    put_slot(&bed, Some(("p".into(), "11111111-1111-4111-8111-111111111111".into())), true);
    for _ in 0..2 {
        let refused = Pools::of(&bed).destroy_pool(&destroy("p"));
        check_refused(refused, crate::error::ControlErrorKind::Silent, "does not complete");
    }
}
