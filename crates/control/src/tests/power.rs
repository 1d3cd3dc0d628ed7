//! After a power loss, an acknowledged change is present, and a removed object does not reappear.

use super::{array, drives_in, exports, folder, nbd, nvme_tcp, raid6, stop, unload};
use crate::control::Control;
use crate::events::{Events, WallClock};
use crate::manager::{Manager, Options};
use crate::record::files::StateFolder;
use crate::record::files::tests::{Fate, Forgetful, Left};
use crate::record::reserved::ReservationFile;
use crate::record::store::{Config, ExportRecord, Settings, Store};
use crate::upkeep::scrubs::keep_scrubs;
use crate::upkeep::starting::start_in;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use strake_api::v1::{
    AddHookRequest, AddHostRequest, AddReferralRequest, AddSpareRequest, CreateExportRequest,
    DestroyArrayRequest, ImportArraysRequest, RemoveExportRequest, RemoveHookRequest,
    RemoveHostRequest, RemoveReferralRequest, RemoveSpareRequest, RenameArrayRequest,
    SetArrayRequest, StartScrubRequest, UndeleteArrayRequest,
};
use strake_export_nvmet::{Ledger, Registrant, Reservations};
use strake_testkit::Folder;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";

/// A control plane whose state directory loses at a power loss the changes that were not made durable.
struct Bench {
    folder: Folder,
    disk: Arc<Forgetful>,
    control: Control,
    /// The number of power losses so far.
    cuts: u32,
}

impl Bench {
    fn new() -> Self {
        let folder = folder();
        let disk = Arc::new(Forgetful::default());
        let control = start(&folder, &disk);
        Self { folder, disk, control, cuts: 0 }
    }

    /// Creates a bench with array tank, a RAID 6 of four drives.
    fn tank() -> Self {
        let bench = Self::new();
        bench.control.create_array(&raid6(drives_in(&bench.folder, 4))).expect("it is created");
        bench
    }

    /// Creates a bench with array tank and an NVMe/TCP export. Returns also the record of the export and the file of
    /// its reservations.
    fn exported() -> (Self, ExportRecord, Arc<ReservationFile>) {
        let bench = Self::tank();
        let record = bench.export(&over_nvme("net"));
        let ledger = bench.control.with(|m| m.records.ledger_of(&record)).expect("it answers");
        (bench, record, Arc::new(ledger))
    }

    /// Returns the configuration after a power loss at this moment, and whether the previous daemon counts as not
    /// stopped.
    fn cut(&mut self, fate: Fate) -> (Config, bool) {
        self.cuts += 1;
        let to = self.folder.join(format!("cut{}", self.cuts));
        self.disk.leave(&self.folder.join("state"), &to, fate);
        let (store, config) = Store::open(&to).expect("what is left can be read");
        (config, store.was_unclean())
    }

    /// Checks `holds` for the configuration after a power loss at this moment, for several outcomes of the changes that
    /// are not durable.
    fn check(&mut self, what: &str, holds: impl Fn(&Config) -> bool) {
        for fate in Fate::some() {
            let (config, was_unclean) = self.cut(fate);
            assert!(holds(&config), "{what}, {fate:?}: {config:?}");
            assert!(was_unclean, "{what}, {fate:?}: the daemon ran");
        }
    }

    /// Simulates a power loss in which all changes that are not durable are lost, and starts the daemon again.
    fn restart(&mut self) {
        let (state, left) = (self.folder.join("state"), self.folder.join("left"));
        self.disk.leave(&state, &left, Fate::Lost);
        // The array stops cleanly: other tests cover the effect of a power loss on drives.
        stop(&self.control);
        fs::remove_dir_all(&state).expect("it can be removed");
        fs::rename(&left, &state).expect("it is there");
        self.disk = Arc::new(Forgetful::over(&state));
        self.control = start(&self.folder, &self.disk);
    }

    fn export(&self, request: &CreateExportRequest) -> ExportRecord {
        let change = self.control.run(|m| m.create_export(request)).expect("it is offered");
        let name = change.export.expect("it is told").name;
        let find = |m: &mut Manager| Ok(m.records.exports.iter().find(|e| e.name == name).cloned());
        self.control.run(find).expect("it answers").expect("it is recorded")
    }

    fn remove_export(&self, name: &str) {
        let request = RemoveExportRequest { name: name.into(), force: true };
        self.control.run(|m| m.remove_export(&request)).expect("it goes");
    }
}

fn start(folder: &Folder, disk: &Arc<Forgetful>) -> Control {
    let state = StateFolder::on(&folder.join("state"), Arc::clone(disk) as _);
    start_in(state, Options::default()).expect("the control plane starts")
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            stop(&self.control);
        }
    }
}

/// Returns the reservations of one host that registered `key`.
fn registered(key: u64) -> Reservations {
    let registrants = vec![Registrant { host: [1; 16], name: HOST.into(), key }];
    Reservations { persists: true, registrants, ..Reservations::default() }
}

fn over_nvme(name: &str) -> CreateExportRequest {
    CreateExportRequest { name: name.into(), ..nvme_tcp(HOST) }
}

fn over_nbd(folder: &Folder, name: &str) -> CreateExportRequest {
    CreateExportRequest { name: name.into(), ..nbd(&folder.join(name)) }
}

fn names(config: &Config) -> Vec<&str> {
    config.exports.iter().map(|export| export.name.as_str()).collect()
}

#[test]
fn arrays_and_exports_are_there_or_gone_after_a_power_cut() {
    let mut bench = Bench::new();
    let drives = drives_in(&bench.folder, 4);
    bench.control.create_array(&raid6(drives.clone())).expect("it is created");
    bench.check("created", |config| config.arrays.iter().any(|array| array.name == "tank"));
    bench.export(&over_nbd(&bench.folder, "block"));
    bench.check("exported", |config| names(config) == ["block"]);
    bench.export(&over_nvme("net"));
    bench.check("exported twice", |config| names(config) == ["block", "net"]);
    bench.restart();
    assert_eq!(exports(&bench.control).len(), 2);
    bench.remove_export("block");
    bench.check("removed", |config| names(config) == ["net"]);
    bench.remove_export("net");
    bench.check("both removed", |config| config.exports.is_empty());
    bench.restart();
    assert!(exports(&bench.control).is_empty(), "{:?}", exports(&bench.control));

    let rename =
        RenameArrayRequest { name: "tank".into(), new_name: "pond".into(), dry_run: false };
    bench.control.rename_array(&rename).expect("it is renamed");
    bench.check("renamed", |config| config.arrays[0].name == "pond");
    let set = SetArrayRequest {
        name: "pond".into(),
        rebuild_priority: Some(7),
        auto_replace: Some(false),
        ..Default::default()
    };
    bench.control.set_array(&set).expect("it is set");
    let is_set = |s: &Settings| (s.rebuild_priority, s.auto_replace) == (7, false);
    bench.check("set", |config| is_set(&config.arrays[0].settings));
    let destroy = DestroyArrayRequest { name: "pond".into(), ..Default::default() };
    bench.control.destroy_array(&destroy).expect("it is destroyed");
    let is_gone = |c: &Config| c.arrays.is_empty() && c.destroyed.len() == 1;
    bench.check("destroyed", is_gone);
    bench.restart();
    assert!(array(&bench.control, "pond").is_err(), "it stays destroyed");
    let undelete = UndeleteArrayRequest { name: "pond".into(), ..Default::default() };
    bench.control.undelete_array(&undelete).expect("it is brought back");
    let is_back = |c: &Config| c.destroyed.is_empty() && is_set(&c.arrays[0].settings);
    bench.check("brought back", is_back);
    bench.restart();
    array(&bench.control, "pond").expect("it is there");

    bench.control.unload_array(&unload("pond")).expect("it is unloaded");
    bench.check("unloaded", |config| config.arrays.is_empty());
    let import = ImportArraysRequest { drives, ..Default::default() };
    bench.control.import_arrays(&import).expect("its drives are here");
    bench.check("imported", |config| config.arrays.iter().any(|array| array.name == "pond"));
}

#[test]
fn hosts_hooks_spares_and_referrals_are_there_or_gone_after_a_power_cut() {
    let mut bench = Bench::new();
    let spare = drives_in(&bench.folder, 1).remove(0);
    let host = AddHostRequest { nqn: HOST.into(), new_secret: true, ..Default::default() };
    bench.control.run(|m| m.add_host(&host)).expect("it is added");
    bench.check("a host", |config| config.hosts.iter().any(|host| !host.secret.is_empty()));
    let hook = AddHookRequest {
        name: "ops".into(),
        kind: "webhook".into(),
        target: "http://127.0.0.1:9/".into(),
        severity: "critical".into(),
        ..Default::default()
    };
    bench.control.add_hook(&hook).expect("it is added");
    bench.check("a hook", |config| config.hooks.iter().any(|hook| hook.name == "ops"));
    let add = AddSpareRequest { drive: spare.clone(), ..Default::default() };
    bench.control.add_spare(&add).expect("it is added");
    bench.check("a spare", |config| config.spares.iter().any(|known| known.path == spare));
    let address = "nvme-tcp://192.0.2.7:8009";
    let referral = AddReferralRequest { address: address.into() };
    bench.control.run(|m| m.add_referral(&referral)).expect("it is added");
    bench.check("a referral", |config| config.referrals.len() == 1);
    bench.restart();

    let host = RemoveHostRequest { nqn: HOST.into() };
    bench.control.run(|m| m.remove_host(&host)).expect("it is removed");
    bench.check("no host", |config| config.hosts.is_empty());
    let hook = RemoveHookRequest { name: "ops".into() };
    bench.control.remove_hook(&hook).expect("it is removed");
    bench.check("no hook", |config| config.hooks.is_empty());
    bench.control.remove_spare(&RemoveSpareRequest { drive: spare }).expect("it is removed");
    bench.check("no spare", |config| config.spares.is_empty());
    let referral = RemoveReferralRequest { address: address.into() };
    bench.control.run(|m| m.remove_referral(&referral)).expect("it is removed");
    bench.check("no referral", |config| config.referrals.is_empty());
}

/// The reservations of an export are in a separate file, and are removed with their export.
#[test]
fn reservations_are_there_or_gone_after_a_power_cut() {
    let (mut bench, record, ledger) = Bench::exported();
    let check = |bench: &mut Bench, wanted: Option<Reservations>| {
        for fate in Fate::some() {
            bench.cut(fate);
            let cut = StateFolder::of(&bench.folder.join(format!("cut{}", bench.cuts)));
            assert_eq!(ReservationFile::new(&cut, &record).read(), Ok(wanted.clone()), "{fate:?}");
        }
    };
    for key in [1, 2] {
        ledger.write(Some(&registered(key))).expect("it is recorded");
        check(&mut bench, Some(registered(key)));
    }
    ledger.write(None).expect("it is recorded");
    check(&mut bench, None);
    ledger.write(Some(&registered(3))).expect("it is recorded");
    bench.remove_export("net");
    check(&mut bench, None);
}

/// An export that is created again, as after an unload and an import, keeps the persistent reservations of its array
/// (decision 24): a host that was fenced must not write because an operator imported the array on another host.
#[test]
fn an_export_that_is_made_again_keeps_the_reservations_of_its_array() {
    let (bench, _, ledger) = Bench::exported();
    bench.remove_export("net");
    let kept = registered(1);
    ledger.write(Some(&kept)).expect("it is recorded");
    bench.export(&over_nvme("net"));
    assert_eq!(ledger.read(), Ok(Some(kept)));
    assert!(exports(&bench.control)[0].reservation.is_some(), "in force again");
}

/// History: the file of the reservations was removed after the record of the export. A crash in between left the file,
/// and the next export of the array had the reservations of the removed export: it refused hosts that were never fenced
/// there.
#[test]
fn a_removal_cut_short_at_any_step_takes_the_reservations_along_exhaustive() {
    let (bench, record, ledger) = Bench::exported();
    let kept = registered(1);
    ledger.write(Some(&kept)).expect("it is recorded");
    let first = bench.disk.steps();
    bench.remove_export("net");
    let steps = first..=bench.disk.steps();
    // The control planes that start from the remaining state need the drives.
    stop(&bench.control);
    let state = bench.folder.join("state");
    let mut seen = Vec::new();
    for (steps, fate) in steps.flat_map(|steps| Fate::some().map(move |fate| (steps, fate))) {
        let mut left = bench.disk.left(&state, steps, fate);
        left.retain(|name, _| name.starts_with("reservations") || name.ends_with("state.json"));
        if seen.contains(&left) {
            continue;
        }
        let folder = bench.folder.join(format!("left{}", seen.len()));
        write_left(&folder, &left);
        let (is_kept, found) = start_and_export(&folder, &record);
        assert_eq!(found, is_kept.then(|| kept.clone()), "{steps} {fate:?}");
        seen.push(left);
    }
    assert!(seen.len() > 3, "the steps differ");
}

fn write_left(folder: &Path, left: &Left) {
    for (name, bytes) in left {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it can be made");
        fs::write(path, bytes).expect("it can be written");
    }
}

/// Starts on `folder`, and exports the array again if it is not exported. Returns whether it was exported, and the
/// reservations in force.
fn start_and_export(folder: &Path, record: &ExportRecord) -> (bool, Option<Reservations>) {
    let control = Control::start(folder, Options::default()).expect("the control plane starts");
    let was_kept = !exports(&control).is_empty();
    if !was_kept {
        control.run(|m| m.create_export(&over_nvme("net"))).expect("it is offered");
    }
    let server = |m: &mut Manager| {
        let record = m.records.exports.iter().find(|export| export.name == record.name).cloned();
        let record = record.expect("it is recorded");
        assert!(m.records.ended_reservations.is_empty(), "nothing is left to be done");
        Ok(m.exports.at(&record.listen).and_then(|server| server.reservations(&record)))
    };
    let found = control.run(server).expect("it answers");
    stop(&control);
    (was_kept, found.filter(|found| !found.registrants.is_empty()))
}

/// A clean stop is still recorded after a power loss, and flushed events are not lost.
#[test]
fn an_orderly_end_and_its_events_outlast_a_power_cut() {
    let mut bench = Bench::new();
    assert!(bench.control.events().flush());
    let last = bench.control.events().last();
    for fate in Fate::some() {
        let (_, was_unclean) = bench.cut(fate);
        assert!(was_unclean, "{fate:?}: it runs");
        let cut = bench.folder.join(format!("cut{}", bench.cuts));
        let events = Events::open(&cut, WallClock::default()).expect("events open");
        assert_eq!(events.last(), last, "{fate:?}");
    }
    stop(&bench.control);
    for fate in Fate::some() {
        let (_, was_unclean) = bench.cut(fate);
        assert!(!was_unclean, "{fate:?}: it was stopped in order");
    }
}

/// The mark is durable without the event that is recorded after it.
#[test]
fn the_mark_of_an_orderly_stop_is_durable_by_itself() {
    let folder = folder();
    let disk = Arc::new(Forgetful::default());
    let state = StateFolder::on(&folder.join("state"), Arc::clone(&disk) as _);
    let (store, _) = Store::open_in(state.clone()).expect("a new directory opens");
    let is_marked = |fate| {
        let left = disk.left(state.path(), disk.steps(), fate);
        left.contains_key(Path::new("running"))
    };
    assert!(Fate::some().all(is_marked), "a daemon runs");
    store.mark_clean().expect("it can be written");
    assert!(!Fate::some().any(is_marked), "it stopped in order");
}

/// The position of a scrub is removed with its array. A file that reappears would belong to no array and use space.
#[test]
fn what_is_forgotten_of_a_scrub_stays_forgotten() {
    let bench = Bench::tank();
    let uuid = array(&bench.control, "tank").expect("it is there").uuid;
    let scrub = StartScrubRequest { name: "tank".into(), mode: "check".into() };
    bench.control.run(|m| m.start_scrub(&scrub)).expect("it is begun");
    let file = format!("scrub-{uuid}.json");
    let is_left = |bench: &Bench, fate| {
        let state = bench.folder.join("state");
        let left = bench.disk.left(&state, bench.disk.steps(), fate);
        left.contains_key(Path::new(&file))
    };
    bench.control.with(keep_scrubs).expect("it answers");
    assert!(Fate::some().all(|fate| is_left(&bench, fate)), "it is recorded");
    let destroy = DestroyArrayRequest { name: "tank".into(), ..Default::default() };
    bench.control.destroy_array(&destroy).expect("it is destroyed");
    assert!(!Fate::some().any(|fate| is_left(&bench, fate)), "it went with the array");
}

/// After a power loss at any step of a command, the old or the new configuration is read, and never a mixed or an empty
/// configuration.
#[test]
fn a_power_cut_in_the_middle_of_a_command_leaves_the_old_or_the_new_exhaustive() {
    let bench = Bench::new();
    let state = bench.folder.join("state");
    let hosts = |steps, fate| {
        let left = bench.disk.left(&state, steps, fate);
        let text = left.get(Path::new("state.json"));
        text.map_or(0, |text| {
            let config: Config = serde_json::from_slice(text).expect("it is whole");
            config.hosts.len()
        })
    };
    for number in 1..=3 {
        let first = bench.disk.steps();
        let nqn = format!("{HOST}{number}");
        let host = AddHostRequest { nqn, new_secret: true, ..Default::default() };
        bench.control.run(|m| m.add_host(&host)).expect("it is added");
        for steps in first..=bench.disk.steps() {
            for fate in Fate::some() {
                let found = hosts(steps, fate);
                assert!([number - 1, number].contains(&found), "{steps} {fate:?}: {found}");
            }
        }
    }
}

/// Only the owner can access the keys of hosts, the secrets of hooks, and NBD exports, with any umask.
#[test]
fn state_files_and_sockets_are_for_their_owner_alone() {
    let (bench, _, ledger) = Bench::exported();
    let mode = |path: &Path| {
        let meta = fs::symlink_metadata(path).expect("it is there");
        std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o7777
    };
    bench.export(&over_nbd(&bench.folder, "block"));
    ledger.write(Some(&Reservations::default())).expect("it is recorded");
    assert!(bench.control.events().flush());
    assert_eq!(mode(&bench.folder.join("block")), 0o600, "the socket of NBD");
    let mut folders = vec![bench.folder.join("state")];
    while let Some(folder) = folders.pop() {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in fs::read_dir(&folder).expect("it is ours") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
        }
    }
}
