//! Remote drives. The target is a separate control plane in this process.

use super::life::{try_write, write};
use super::{Testbed, check_refused, fail, nvme_tcp, raid6, spare, tick_until, unload};
use crate::commands::remote::{adopt_remote, check_remote};
use crate::control::Control;
use crate::error::ControlError;
use crate::error::ControlErrorKind::{Device, Exists, NotFound, Refused, State, Store, Usage};
use crate::exports::requests::request_of;
use crate::manager::Manager;
use crate::record::store::RemoteRecord;
use crate::upkeep::starting::begin_start;
use std::time::{Duration, Instant};
use strake_api::v1::{
    AddHostRequest, ConnectDriveRequest, CreateArrayRequest, CreateExportRequest,
    DisconnectDriveRequest, DiscoverDrivesRequest, Drive, DriveChange, RemoveSpareRequest,
    RestoreConfigRequest,
};
use strake_dev_fabrics::ReservationMode;
use strake_units::Nanos;

/// The time limit of a test for the answer of another host.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const HOST: &str =
    "nqn.2014-08.org.nvmexpress:uuid:6f1bd6b4-4bd2-4d55-a3a5-8c3a4f0a7e11";

/// A second host that the targets accept.
pub(super) const OTHER_HOST: &str =
    "nqn.2014-08.org.nvmexpress:uuid:0c8d6a2e-6c0f-4f0f-9d64-2b9c3f3f5a10";

/// Another host, which exports `count` namespaces.
pub(super) struct Machine {
    pub(super) control: Testbed,
    pub(super) addresses: Vec<String>,
}

impl Machine {
    pub(super) fn new(count: usize) -> Self {
        let control = Testbed::new();
        let mut listen = "127.0.0.1:0".to_owned();
        let mut addresses = Vec::new();
        for (number, drive) in control.drives(count).into_iter().enumerate() {
            let array = format!("lun{number}");
            let create = CreateArrayRequest {
                name: array.clone(),
                level: "0".into(),
                drives: vec![drive],
                block_bytes: Some(4096),
                ..Default::default()
            };
            control.create_array(&create).expect("it is created");
            let export = CreateExportRequest {
                array,
                listen,
                allow_hosts: vec![HOST.into(), OTHER_HOST.into()],
                ..nvme_tcp(HOST)
            };
            let made = control.export(&export);
            listen = made.listen;
            addresses.push(made.uri);
        }
        Self { control, addresses }
    }

    /// Returns the paths of its files.
    pub(super) fn drives(&self) -> Vec<String> {
        let path = |number| self.control.path(&format!("drive{number}")).display().to_string();
        (0..self.addresses.len()).map(path).collect()
    }

    /// Creates a host with `count` drives, and a control plane that is connected to all of them.
    pub(super) fn connected(count: usize) -> (Self, Testbed) {
        let (machine, control) = (Self::new(count), Testbed::new());
        for address in &machine.addresses {
            connect(&control, address).expect("it is connected");
        }
        (machine, control)
    }
}

pub(super) fn request(address: &str) -> ConnectDriveRequest {
    ConnectDriveRequest {
        address: address.into(),
        host_nqn: HOST.into(),
        hold_s: 12,
        ..Default::default()
    }
}

pub(super) fn connect(control: &Control, address: &str) -> Result<DriveChange, ControlError> {
    control.connect_drive(&request(address))
}

pub(super) fn disconnect(control: &Control, address: &str) -> Result<DriveChange, ControlError> {
    control.disconnect_drive(&DisconnectDriveRequest { address: address.into() })
}

pub(super) fn shown(control: &Control, address: &str) -> Drive {
    control.drive(address).expect("it is known")
}

/// Returns true if array tank runs and every member is in sync.
pub(super) fn is_whole(control: &Control) -> bool {
    let array = control.run(|m| m.array("tank"));
    // An array that waits for its start shows the states from its labels.
    array.is_ok_and(|a| {
        let whole = a.members.len() == 4 && a.members.iter().all(|m| m.state == "in_sync");
        whole && a.states.iter().any(|state| state == "online")
    })
}

#[test]
fn a_drive_of_another_machine_is_refused_with_what_to_do() {
    let machine = Machine::new(1);
    let address = machine.addresses[0].as_str();
    let control = Testbed::new();
    check_refused(connect(&control, "nvme-tcp://a"), Usage, "write it like nvme-tcp://");
    for hold_s in [11, 25] {
        let asked = ConnectDriveRequest { hold_s, ..request(address) };
        check_refused(control.connect_drive(&asked), Usage, "12 to 24 seconds");
    }
    let unnamed = ConnectDriveRequest { host_nqn: String::new(), ..request(address) };
    let refused = control.connect_drive(&unnamed);
    check_refused(refused, Device, "we connect as nqn.2014-08.org.nvmexpress:uuid:");
    let wrong = ConnectDriveRequest { host_nqn: "not-an-nqn".into(), ..request(address) };
    check_refused(control.connect_drive(&wrong), Usage, "is not a valid NQN");
    check_refused(disconnect(&control, address), NotFound, "is not connected");

    let made = connect(&control, address).expect("it is connected");
    let drive = made.drive.expect("it is told");
    assert_eq!((made.result.as_str(), drive.kind.as_str()), ("created", "nvme-tcp"));
    assert_eq!((drive.path.as_str(), drive.state.as_str()), (address, "free"));
    assert_eq!(connect(&control, address).expect("the same again").result, "unchanged");
    let otherwise = ConnectDriveRequest { hold_s: 20, ..request(address) };
    check_refused(control.connect_drive(&otherwise), Exists, "connected with other options");
    assert_eq!(disconnect(&control, address).expect("nothing uses it").result, "changed");
    assert!(control.list_drives().expect("drives").iter().all(|d| d.kind != "nvme-tcp"));
}

/// The same namespace at another address, which here is another name of the host, is another path.
#[test]
fn a_drive_of_another_machine_has_several_paths() {
    let mut machine = Machine::new(4);
    let addresses = machine.addresses.clone();
    let (address, second) = (&addresses[0], addresses[0].replace("127.0.0.1", "localhost"));
    let mut control = Testbed::new();
    connect(&control, address).expect("it is connected");
    let unreachable = address.replace("127.0.0.1", "127.83.13.1");
    check_refused(connect(&control, &unreachable), Device, "refused");
    for expected in ["changed", "unchanged"] {
        let change = connect(&control, &second).expect("it leads there");
        let drive = change.drive.expect("it is told");
        let paths: Vec<_> = drive.paths.iter().map(|path| path.address.clone()).collect();
        assert_eq!((change.result.as_str(), &drive.path), (expected, address));
        assert_eq!(paths, [address.clone(), second.clone()]);
    }
    let otherwise = ConnectDriveRequest { hold_s: 20, ..request(&second) };
    check_refused(control.connect_drive(&otherwise), Exists, "connected with other options");
    let paths = |path: &str| -> Vec<_> {
        let paths = shown(&control, path).paths;
        paths.into_iter().map(|path| (path.state, path.used, path.access)).collect()
    };
    let live = |used| ("live".to_owned(), used, "optimized".to_owned());
    assert_eq!(paths(&second), [live(true), live(false)]);

    for address in &addresses[1..] {
        connect(&control, address).expect("it is connected");
    }
    // Each path names the drive as the first path does, and a path can be removed while the drive is in use.
    let mut members = addresses.clone();
    members[0].clone_from(&second);
    control.create_array(&raid6(members)).expect("it is created");
    let in_the_way = control.path("state/state.json.next");
    std::fs::create_dir(&in_the_way).expect("it can be made");
    check_refused(disconnect(&control, &second), Store, "nothing was done");
    assert_eq!(paths(address).len(), 2, "what is recorded is what is used");
    std::fs::remove_dir(&in_the_way).expect("it is empty");
    assert_eq!(disconnect(&control, &second).expect("there is another").result, "changed");
    assert_eq!(paths(address), [live(true)]);
    connect(&control, &second).expect("it leads there again");
    control.shut_down();

    // Each of the paths is recorded.
    machine.control.shut_down();
    control.start();
    let away = shown(&control, &second);
    assert_eq!((&away.path, away.state.as_str()), (address, "failed"));
    machine.control.start();
    tick_until(&control, "the array is there again", || is_whole(&control));
    tick_until(&control, "so are both paths", || {
        let paths = shown(&control, address).paths;
        paths.len() == 2 && paths.iter().all(|path| path.state == "live")
    });
    control.unload_array(&unload("tank")).expect("nobody uses it");
    assert_eq!(disconnect(&control, address).expect("nothing uses it").result, "changed");
    check_refused(disconnect(&control, &second), NotFound, "is not connected");
}

/// The listed addresses are valid arguments of a command, and the list shows which of them are connected.
#[test]
fn another_machine_tells_what_it_offers() {
    let machine = Machine::new(2);
    let control = Testbed::new();
    let place = machine.addresses[0].rsplit_once('/').expect("a name is behind it").0.to_owned();
    let ask = |address: &str, host_nqn: &str| {
        let (address, host_nqn) = (address.to_owned(), host_nqn.to_owned());
        control.discover_drives(&DiscoverDrivesRequest { address, host_nqn, ..Default::default() })
    };
    check_refused(ask("store", HOST), Usage, "write it like nvme-tcp://");
    check_refused(ask(&place, "not-an-nqn"), Usage, "is not a valid NQN");
    let unknown = ask(&place, "");
    check_refused(unknown, Device, "we connect as nqn.2014-08.org.nvmexpress");

    let by_name = machine.addresses[1].replace("127.0.0.1", "localhost");
    connect(&control, &by_name).expect("it is connected");
    let answer = ask(&place, HOST).expect("it is allowed");
    assert_eq!(answer.host_nqn, HOST);
    for (offer, address) in answer.offers.iter().map(|offer| (offer, &offer.address)) {
        assert!(machine.addresses.contains(address), "{offer:?}");
        assert_eq!((offer.kind.as_str(), offer.transport.as_str()), ("subsystem", "tcp"));
        assert_eq!((offer.secure_channel.as_str(), offer.note.as_str()), ("not_required", ""));
        let known = if *address == machine.addresses[1] { vec![by_name.clone()] } else { vec![] };
        assert_eq!((&offer.drives, &offer.connected), (&known, &known), "{offer:?}");
    }
    assert_eq!(answer.offers.len(), 2);
    // A drive that is recorded and not connected is not listed as connected.
    control.with(|m| m.drives.close_unless(|_| false)).expect("it answers");
    let answer = ask(&place, HOST).expect("it is allowed");
    let known = answer.offers.iter().find(|offer| !offer.drives.is_empty()).expect("it is known");
    assert_eq!((&known.drives, &known.connected), (&vec![by_name], &vec![]));
    // Only the drive that was connected is recorded.
    assert_eq!(control.with(|m| m.records.remotes.len()).expect("it answers"), 1);
}

#[test]
fn a_dry_run_connects_nothing() {
    let machine = Machine::new(4);
    let control = Testbed::new();
    let dry = CreateArrayRequest { dry_run: true, ..raid6(machine.addresses.clone()) };
    let refused = control.create_array(&dry);
    check_refused(refused, State, "strake drive connect nvme-tcp://");
    assert_eq!(control.with(|m| m.records.remotes.len()).expect("it answers"), 0);
}

#[test]
fn drives_of_another_machine_are_connected_again_after_a_restart() {
    let (mut machine, mut control) = Machine::connected(5);
    let addresses = machine.addresses.clone();
    let (members, free) = addresses.split_at(4);
    control.create_array(&raid6(members.to_vec())).expect("it is created");
    control.add_spare(&spare(&free[0])).expect("it fits");
    check_refused(disconnect(&control, &members[0]), Refused, "is member 0 of array tank");
    check_refused(disconnect(&control, &free[0]), Refused, "is a spare");
    control.tick().expect("it answers");
    assert!(control.with(|m| m.list_spares()).expect("spares").spares[0].state == "ready");
    control.shut_down();

    // The start of the daemon does not wait for an absent host; an array that needs this host waits.
    machine.control.shut_down();
    control.start();
    control.tick().expect("it answers");
    let away = shown(&control, &members[1]);
    assert_eq!((away.state.as_str(), away.kind.as_str()), ("failed", "nvme-tcp"));
    assert!(away.note.starts_with("not connected"), "{}", away.note);
    check_refused(disconnect(&control, &members[1]), Refused, "belongs to array tank");
    check_refused(disconnect(&control, &free[0]), Refused, "is a spare");
    machine.control.start();
    tick_until(&control, "the array is there again", || is_whole(&control));
    tick_until(&control, "the spare is there again", || {
        shown(&control, &free[0]).spare_of == "pool"
    });
}

/// History: no event reported the restart of a host that returned before the next check.
#[test]
fn a_machine_that_restarts_quickly_is_reported() {
    let (mut machine, control) = Machine::connected(1);
    let address = machine.addresses[0].clone();
    control.tick().expect("it answers");
    machine.control.restart();
    let ends = Instant::now() + PATIENCE;
    while shown(&control, &address).paths[0].reconnects == 0 {
        assert!(Instant::now() < ends, "it is connected again");
        std::thread::yield_now();
    }
    control.tick().expect("it answers");
    let reported = control.reported("");
    let reported = reported.iter().filter(|event| event.kind.starts_with("drive_"));
    let reported: Vec<_> =
        reported.map(|event| (event.kind.as_str(), event.cause.is_empty())).collect();
    assert_eq!(reported, [("drive_lost", false), ("drive_back", true)]);
}

/// The other host removes drives for longer than I/O is held, and returns them. Hosts find the export of the array all
/// the time.
#[test]
fn an_array_that_is_lost_starts_again_when_its_drives_are_back() {
    let machine = Machine::new(2);
    let control = Testbed::new();
    let address = machine.addresses[0].clone();
    connect(&control, &address).expect("it is connected");
    let create = CreateArrayRequest { level: "0".into(), ..raid6(vec![address]) };
    control.create_array(&create).expect("it is created");
    control.export(&nvme_tcp(HOST));
    write(&control, "tank", 1);
    let states = || {
        let array = control.run(|m| m.array("tank")).expect("it is known");
        let export = control.with(|m| m.exports()[0].clone()).expect("it is known");
        let offers = |m: &mut Manager| {
            let record = &m.records.exports[0];
            Ok(m.exports.at(&record.listen).is_some_and(|server| server.offers(record)))
        };
        assert!(control.run(offers).expect("it answers"), "hosts find it");
        (array.states[0].clone(), export.state)
    };
    let both = |state: &str| (state.to_owned(), state.to_owned());

    let lent = machine.control.with(|m| m.records.exports[0].clone()).expect("it is offered");
    machine.control.remove_export(&lent.name);
    assert!(try_write(&control, "tank", 1).is_err(), "longer than I/O is held");
    tick_until(&control, "it is lost", || states() == both("offline"));
    machine.control.run(|m| m.create_export(&request_of(&lent))).expect("it is given back");
    tick_until(&control, "it runs", || states() == both("online"));
    write(&control, "tank", 1);
    let again = |m: &mut Manager| {
        let record = m.records.arrays[0].clone();
        Ok(begin_start(m, &record).is_some())
    };
    assert!(!control.run(again).expect("it answers"), "whoever was to start it comes too late");
    let reported = |kind| control.reported(kind).len();
    assert_eq!((reported("array_lost"), reported("array_started")), (1, 1));
}

/// A remote spare works like a local spare. Its presence is not determined with the file system.
#[test]
fn a_spare_of_another_machine_takes_the_place_of_a_member() {
    let (machine, control) = Machine::connected(5);
    let (members, free) = machine.addresses.split_at(4);
    control.create_array(&raid6(members.to_vec())).expect("it is created");
    let added = control.add_spare(&spare(&free[0])).expect("it fits");
    assert!(added.warnings.is_empty(), "{added:?}");
    control.tick().expect("it answers");
    control.fail_member(&fail("tank", 2)).expect("it may be failed");
    tick_until(&control, "the spare is a member", || shown(&control, &free[0]).member == Some(2));
    tick_until(&control, "it is rebuilt", || is_whole(&control));
    let remove = RemoveSpareRequest { drive: free[0].clone() };
    assert!(control.remove_spare(&remove).is_err(), "it is none any more");
}

#[test]
fn a_backup_brings_drives_of_other_machines_back() {
    let (machine, mut control) = Machine::connected(4);
    control.create_array(&raid6(machine.addresses.clone())).expect("it is created");
    let document = control.document();
    control.shut_down();

    let control = Testbed::new();
    let dry = RestoreConfigRequest { json: document.clone(), dry_run: true };
    let planned = control.restore_config(&dry).expect("it is understood").plan;
    assert!(planned.contains(&format!("connect {}", machine.addresses[3])), "{planned:?}");
    assert_eq!(control.with(|m| m.records.remotes.len()).expect("it answers"), 0);
    let restore = RestoreConfigRequest { json: document, dry_run: false };
    let restored = control.restore_config(&restore).expect("it is understood");
    assert!(is_whole(&control), "{restored:?}");
    control.unload_array(&unload("tank")).expect("nothing uses it");
    disconnect(&control, &machine.addresses[0]).expect("nothing uses it any more");
}

/// A drive that a command uses is not disconnected.
#[test]
fn a_drive_that_another_command_works_on_stays_connected() {
    let (machine, control) = Machine::connected(1);
    let address = machine.addresses[0].as_str();
    let (_, mut work) = control.reserve(|_| Ok(((), Vec::new()))).expect("it answers");
    work.open(address).expect("it is connected");
    check_refused(disconnect(&control, address), State, "by another command");
    drop(work);
    disconnect(&control, address).expect("nothing uses it");
}

/// The thread that connects recorded drives may connect a drive before a command that has another secret.
#[test]
fn a_secret_is_kept_although_the_drive_was_connected_meanwhile() {
    let (_machine, control) = Machine::connected(1);
    let known = control.with(|m| m.records.config.remotes[0].clone()).expect("it answers");
    let record = RemoteRecord { secret: SECRET.into(), ..known };
    for result in ["changed", "unchanged"] {
        let device =
            record.connect(ReservationMode::Claim, Nanos(0)).expect("the target asks nobody");
        let adopted = control.run(|m| adopt_remote(m, &record, device)).expect("it is the same");
        assert_eq!(adopted, result);
    }
    assert!(control.with(|m| m.records.remotes == [record.clone()]).expect("it answers"));
}

/// A path was recorded while the drive was being connected with its earlier record.
#[test]
fn a_path_that_is_recorded_and_not_used_is_connected_when_it_is_asked_for() {
    let (machine, control) = Machine::connected(1);
    let address = machine.addresses[0].as_str();
    let second = address.replace("127.0.0.1", "localhost");
    let known = control.with(|m| m.records.config.remotes[0].clone()).expect("it answers");
    let record = RemoteRecord { paths: vec![second.clone()], ..known.clone() };
    control.run(|m| m.records.put_remote(&record)).expect("it is recorded");
    assert_eq!(connect(&control, &second).expect("it leads there").result, "changed");
    assert_eq!(shown(&control, address).paths.len(), 2);
    let doubled = RemoteRecord { paths: vec![address.to_owned()], ..known };
    let refused = control.run(|m| check_remote(m, &doubled));
    check_refused(refused, Usage, "twice");
}

/// A document may come from an untrusted source.
#[test]
fn records_of_a_backup_are_looked_at() {
    let (machine, control) = Machine::connected(1);
    let address = machine.addresses[0].as_str();
    let document = control.document();
    disconnect(&control, address).expect("nothing uses it");
    let changed = |part: &str, to: &str| {
        assert!(document.contains(part), "{document}");
        document.replace(part, to)
    };
    let id = HOST.rsplit(':').next().expect("it ends with an identifier");
    for (json, why) in [
        (changed("\"hold_s\": 12", "\"hold_s\": 60"), "12 to 24 seconds"),
        (changed(HOST, "not-an-nqn"), "is not a valid NQN"),
        (changed(&format!("\"{id}\""), "\"me\""), "identifies no host"),
        (changed("nvme-tcp://", "nvme-rdma://"), "nvme-tcp://"),
    ] {
        for dry_run in [true, false] {
            let request = RestoreConfigRequest { json: json.clone(), dry_run };
            let restored = control.restore_config(&request).expect("it is understood");
            assert!(restored.warnings.iter().any(|warning| warning.contains(why)), "{restored:?}");
        }
        assert_eq!(control.with(|m| m.records.remotes.len()).expect("it answers"), 0);
    }
    let json = changed(address, &format!("{address}?nsid=1"));
    control.restore_config(&RestoreConfigRequest { json, dry_run: false }).expect("it is fine");
    assert_eq!(shown_state(&control, address), "free", "under the address in its usual form");
}

const SECRET: &str = "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:";
const OTHER: &str = "DHHC-1:00:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQlGwA0N:";

/// A drive is used over TLS, also after a restart. No output shows the key.
#[test]
fn a_drive_that_needs_tls_is_connected_with_its_key() {
    let machine = Machine::new(1);
    let address = machine.addresses[0].as_str();
    let known = AddHostRequest { nqn: HOST.into(), new_tls_key: true, ..Default::default() };
    let made = machine.control.run(|m| m.add_host(&known)).expect("a key is made");
    let mut control = Testbed::new();
    let with = |key: &str| ConnectDriveRequest { tls_key: key.into(), ..request(address) };
    check_refused(connect(&control, address), Device, "--tls-key-file");
    check_refused(control.connect_drive(&with("key")), Usage, "NVMeTLSkey-1");
    let other = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
    let refused = control.connect_drive(&with(other));
    check_refused(refused, Device, "does not know the key");
    let connected = control.connect_drive(&with(&made.tls_key)).expect("both know the key");
    assert_eq!(connected.result, "created");
    let again = control.connect_drive(&with("")).expect("the one it has").result;
    assert_eq!(again, "unchanged");
    let shown = format!(
        "{connected:?}{}{:?}",
        control.document(),
        control.with(|m| m.records.config.clone()).expect("it answers"),
    );
    assert!(shown.contains(address) && !shown.contains("NVMeTLSkey"), "{shown}");
    // A further path with a key that would not be used is refused.
    let path = address.replace("127.0.0.1", "localhost");
    let over = |key: &str| ConnectDriveRequest { address: path.clone(), ..with(key) };
    check_refused(control.connect_drive(&over("key")), Usage, "NVMeTLSkey-1");
    check_refused(control.connect_drive(&over(other)), Usage, "--tls-key-file");
    assert_eq!(
        control.connect_drive(&over(&made.tls_key)).expect("it is the one").result,
        "changed"
    );
    disconnect(&control, &path).expect("there is another path");
    control.restart();
    tick_until(&control, "it is connected", || shown_state(&control, address) == "free");
}

/// History: a drive was connected over a path without TLS, although a key had been given for that path.
#[test]
fn a_path_has_the_keys_of_its_drive() {
    let (machine, control) = Machine::connected(1);
    let address = machine.addresses[0].as_str();
    let path = address.replace("127.0.0.1", "localhost");
    let over = || ConnectDriveRequest { address: path.clone(), ..request(address) };
    let key = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
    let secret = || ConnectDriveRequest { secret: SECRET.into(), ..over() };
    for (refused, option) in [
        (ConnectDriveRequest { tls_key: key.into(), ..over() }, "--tls-key-file"),
        (secret(), "--secret-file"),
        (ConnectDriveRequest { controller_secret: OTHER.into(), ..secret() }, "--secret-file"),
    ] {
        check_refused(control.connect_drive(&refused), Usage, option);
    }
    assert!(control.with(|m| m.records.config.remotes[0].paths.is_empty()).expect("it answers"));
    assert_eq!(control.connect_drive(&over()).expect("another path").result, "changed");
}

/// History: a drive with a TLS key was connected without TLS after a restore from a backup, to any host at its address.
#[test]
fn a_drive_of_a_backup_waits_for_its_keys() {
    let (machine, mut control) = Machine::connected(1);
    let address = machine.addresses[0].as_str();
    let document = control.run(|m| {
        let key = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
        m.records.config.remotes[0].tls_key = key.into();
        m.records.config.remotes[0].secret = SECRET.into();
        m.config_document()
    });
    let json = document.expect("it can be encoded").json;
    control.shut_down();

    let control = Testbed::new();
    let restore = RestoreConfigRequest { json, dry_run: false };
    let restored = control.restore_config(&restore).expect("it is understood");
    let needed = format!("drive connect {address} --secret-file FILE --tls-key-file FILE");
    assert!(restored.warnings.iter().any(|warning| warning.contains(&needed)), "{restored:?}");
    check_refused(connect(&control, address), State, "give the secrets and keys again");
    tick_until(&control, "it says why", || shown(&control, address).note.contains(&needed));
    // The target may no longer require a secret or a key, and the operator may know this.
    let secret = ConnectDriveRequest { secret: SECRET.into(), ..request(address) };
    let refused = control.connect_drive(&secret);
    check_refused(refused, State, "drive connect");
    let known = AddHostRequest { nqn: HOST.into(), new_tls_key: true, ..Default::default() };
    let made = machine.control.run(|m| m.add_host(&known)).expect("a key is made");
    let both = ConnectDriveRequest { tls_key: made.tls_key, ..secret };
    assert_eq!(control.connect_drive(&both).expect("it is connected").result, "changed");
    let again = control.document();
    assert!(again.contains("\"tls_key\": true"), "{again}");
}

/// Both sides authenticate, also after a restart. No output shows the secrets.
#[test]
fn a_drive_that_asks_for_proof_is_connected_with_its_secret() {
    let machine = Machine::new(1);
    let address = machine.addresses[0].as_str();
    let known = AddHostRequest {
        nqn: HOST.into(),
        secret: SECRET.into(),
        controller_secret: OTHER.into(),
        ..Default::default()
    };
    machine.control.run(|m| m.add_host(&known)).expect("a secret");
    let mut control = Testbed::new();
    let with = |secret: &str, controller: &str| ConnectDriveRequest {
        secret: secret.into(),
        controller_secret: controller.into(),
        ..request(address)
    };
    check_refused(connect(&control, address), Device, "--secret-file");
    check_refused(control.connect_drive(&with("secret", "")), Usage, "DHHC-1");
    check_refused(control.connect_drive(&with(SECRET, SECRET)), Usage, "must not be the same");
    check_refused(control.connect_drive(&with("", OTHER)), Usage, "only with a host secret");
    check_refused(control.connect_drive(&with(OTHER, "")), Device, "does not accept our proof");
    let made = control.connect_drive(&with(SECRET, OTHER)).expect("both know the secrets");
    assert_eq!(made.result, "created");
    let connect_again = |secret: &str, controller: &str| {
        control.connect_drive(&with(secret, controller)).expect("it is connected").result
    };
    assert_eq!(connect_again(SECRET, OTHER), "unchanged");
    assert_eq!(connect_again("", ""), "unchanged", "the one it has");
    check_refused(control.connect_drive(&with(OTHER, SECRET)), Device, "has the same secrets");
    assert_eq!(
        connect_again(SECRET, OTHER),
        "unchanged",
        "a secret that does not work is not kept"
    );
    // History: from then on, the target was accepted without authentication, and this was not reported.
    let without = control.connect_drive(&with(SECRET, ""));
    check_refused(without, Usage, "--controller-secret-file");
    disconnect(&control, address).expect("nothing uses it");
    assert_eq!(connect_again(SECRET, ""), "created");
    assert_eq!(connect_again(SECRET, OTHER), "changed");
    let reported = control.reported("");
    let shown = format!(
        "{made:?}{reported:?}{}{:?}",
        control.document(),
        control.with(|m| m.records.config.clone()).expect("it answers"),
    );
    assert!(shown.contains(address) && !shown.contains("DHHC-1:00"), "{shown}");
    control.restart();
    tick_until(&control, "it is connected", || shown_state(&control, address) == "free");
}

fn shown_state(control: &Control, address: &str) -> String {
    shown(control, address).state
}
