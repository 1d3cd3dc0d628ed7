use crate::ControlError;
use crate::control::Control;
use crate::cores::CoreChoice;
use crate::error::ControlErrorKind::{self, NotFound, Refused, State, Usage};
use crate::record::member::{Due, store_side_by_side};
use crate::record::store::{ArrayRecord, Config, ExportRecord, ScrubRecord, Settings, Store};
use crate::upkeep::member_config::record_before_leaving;
use std::fs;
use std::path::Path;
use strake_api::v1::{
    AddSpareRequest, Array, ChangeJobRequest, CreateArrayRequest, CreateExportRequest,
    DestroyArrayRequest, Export, FailMemberRequest, ImportArraysRequest, ListEventsRequest,
    ReaddMemberRequest, RemoveExportRequest, ReplaceMemberRequest, UnloadArrayRequest,
};

mod access;
mod allow;
mod copies;
mod doubt;
mod ends;
mod exposed;
mod full;
mod gone;
mod grow;
mod halves;
mod hints;
mod hooks;
mod importable;
mod life;
mod lights;
mod names;
mod nvme;
mod offline_exports;
mod power;
mod qos;
mod queues;
mod recalled;
mod remote;
mod reported;
mod reservation;
mod reserved;
mod rotation;
mod scrub;
mod spares;
mod taken;
mod testbed;
mod torn;
mod unload;
mod upgrade;
mod upkeep;
mod volumes;

use testbed::{Testbed, control_in, drives_in, folder, impatient};

fn array(control: &Control, name: &str) -> Result<Array, ControlError> {
    control.run(|m| m.array(name))
}

fn exports(control: &Control) -> Vec<Export> {
    control.with(|m| m.exports()).expect("it answers")
}

fn stop(control: &Control) {
    let errors = control.stop();
    assert!(errors.is_empty(), "{errors:?}");
}

fn fail(name: &str, member: u32) -> FailMemberRequest {
    let accept = vec!["redundancy".to_owned()];
    FailMemberRequest { name: name.into(), member, accept, ..Default::default() }
}

/// Runs rounds of upkeep until `done`, as the daemon does periodically.
fn tick_until(control: &Control, what: &str, done: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if done() {
            return;
        }
        control.tick().expect("it answers");
        std::thread::yield_now();
    }
    let reported = control.events().list(&ListEventsRequest::default());
    let reported: Vec<String> = reported
        .expect("the request is fine")
        .iter()
        .map(|e| format!("{} {}: {} ({})", e.number, e.kind, e.what, e.cause))
        .collect();
    panic!("{what} does not happen; events:\n{}", reported.join("\n"));
}

/// Pauses or resumes the copies, rebuilds and scrubs of the array in the engine. This is not recorded: the operator
/// sees no paused job.
fn hold(control: &Control, held: bool) {
    let done = control.run(|m| {
        let at = m.find_running("tank")?;
        let uuid = m.running[at].uuid();
        let mut maintenance = m.records.settings(&uuid).maintenance();
        maintenance.paused = held;
        m.running[at].array.set_maintenance(maintenance);
        Ok(())
    });
    done.expect("it runs");
}

fn raid6(drives: Vec<String>) -> CreateArrayRequest {
    CreateArrayRequest {
        name: "tank".into(),
        level: "6".into(),
        drives,
        strip_bytes: 64 << 10,
        ..Default::default()
    }
}

fn mirror(drives: &[String]) -> CreateArrayRequest {
    let (name, level) = ("tank".to_owned(), "1".to_owned());
    CreateArrayRequest { name, level, drives: drives.to_vec(), ..Default::default() }
}

/// Returns a request for an export of array tank over NBD.
fn nbd(socket: &Path) -> CreateExportRequest {
    let listen = format!("unix:{}", socket.display());
    CreateExportRequest { array: "tank".into(), listen, ..Default::default() }
}

/// Returns a request for an export of array tank over NVMe/TCP, on a free port.
fn nvme_tcp(host: &str) -> CreateExportRequest {
    CreateExportRequest {
        array: "tank".into(),
        via: "nvme-tcp".into(),
        listen: "127.0.0.1:0".into(),
        allow_hosts: vec![host.into()],
        ..Default::default()
    }
}

fn replace(member: u32, drive: &str) -> ReplaceMemberRequest {
    let (name, drive) = ("tank".to_owned(), drive.to_owned());
    ReplaceMemberRequest { name, member, drive, ..Default::default() }
}

/// Returns a request to re-add the members of array tank that are out, or one of them.
fn readd(member: Option<u32>) -> ReaddMemberRequest {
    ReaddMemberRequest { name: "tank".into(), member, ..Default::default() }
}

fn spare(drive: &str) -> AddSpareRequest {
    AddSpareRequest { drive: drive.into(), ..Default::default() }
}

fn unload(name: &str) -> UnloadArrayRequest {
    UnloadArrayRequest { name: name.into(), ..Default::default() }
}

fn change_job(id: &str, action: &str) -> ChangeJobRequest {
    ChangeJobRequest { id: id.into(), action: action.into(), priority: None }
}

fn check_refused<T>(result: Result<T, ControlError>, kind: ControlErrorKind, words: &str) {
    let error = result.err().expect("it is refused");
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.what.contains(words), "{error:?} does not mention {words:?}");
}

fn sample() -> Config {
    Config {
        arrays: vec![ArrayRecord {
            uuid: "u".into(),
            name: "tank".into(),
            drives: vec!["/dev/x".into()],
            settings: Settings::default(),
            scrub: ScrubRecord::default(),
            kept_exports: Vec::new(),
            kept_hosts: Vec::new(),
            copies: Vec::new(),
            silent: Vec::new(),
            left_alone: Vec::new(),
        }],
        exports: vec![ExportRecord {
            volume: None,
            name: "tank".into(),
            array: "u".into(),
            listen: "unix:/x".into(),
            read_only: true,
            nvme: None,
        }],
        ..Config::default()
    }
}

fn read_back(dir: &Path) -> Result<Config, ControlError> {
    Store::open(dir).map(|(_, config)| config)
}

#[test]
fn only_what_is_committed_outlasts_a_restart() {
    let folder = folder();
    let (store, first) = Store::open(&folder).expect("a new directory opens");
    assert_eq!(first, Config::default());
    drop(store.prepare(&sample()).expect("there is room"));
    drop(store);
    assert_eq!(read_back(&folder).expect("it opens"), Config::default());
    let (store, _) = Store::open(&folder).expect("it opens");
    store
        .prepare(&sample())
        .and_then(crate::record::store::Prepared::commit)
        .expect("there is room");
    drop(store);
    // A crash during the next change leaves an incomplete file beside the valid file.
    fs::write(folder.join("state.json.next"), b"{\"version\":").expect("it can be written");
    assert_eq!(read_back(&folder).expect("it opens"), sample());
}

#[test]
fn a_damaged_or_foreign_state_is_refused_by_name() {
    let folder = folder();
    fs::write(folder.join("state.json"), b"{\"version\":1,").expect("it can be written");
    check_refused(read_back(&folder), ControlErrorKind::Store, "state.json");
    fs::write(folder.join("state.json"), b"{\"version\":9,\"volumes\":[]}")
        .expect("it can be written");
    check_refused(read_back(&folder), ControlErrorKind::Store, "use the version of Strake");
}

#[test]
fn two_daemons_do_not_share_a_state_directory() {
    let folder = folder();
    let (_store, _) = Store::open(&folder).expect("it opens");
    check_refused(Store::open(&folder), State, &std::process::id().to_string());
}

#[test]
fn a_directory_that_cannot_be_written_refuses_before_anything_is_done() {
    let folder = folder();
    let (store, _) = Store::open(&folder).expect("it opens");
    // This directory prevents the creation of the file that every change writes first. It has this effect for root too,
    // which ignores permissions.
    fs::create_dir(folder.join("state.json.next")).expect("it can be made");
    check_refused(store.prepare(&sample()), ControlErrorKind::Store, "nothing was done");
}

#[test]
fn an_array_lives_through_failure_replacement_and_restart() {
    let mut control = Testbed::new();
    let drives = control.drives(7);
    let request = raid6(drives[..6].to_vec());
    assert_eq!(control.create_array(&request).expect("it is created").result, "created");
    assert_eq!(control.create_array(&request).expect("it is there").result, "unchanged");
    assert_eq!(control.fail_member(&fail("tank", 2)).expect("it fails").result, "changed");
    let view = control.tank();
    assert!(view.states.contains(&"degraded".to_owned()), "{:?}", view.states);
    assert_eq!(view.redundancy_left, 1);
    assert_eq!(
        control.replace_member(&replace(2, &drives[6])).expect("it is replaced").result,
        "changed"
    );
    let export = nbd(&control.path("nbd.sock"));
    assert_eq!(
        control.run(|m| m.create_export(&export)).expect("it is exported").result,
        "created"
    );
    assert_eq!(control.run(|m| m.create_export(&export)).expect("it is there").result, "unchanged");
    control.restart();
    let view = control.tank();
    assert!(view.states.contains(&"online".to_owned()), "{:?}: {}", view.states, view.reason);
    assert_eq!(view.members[2].path, drives[6]);
    assert_eq!(exports(&control)[0].state, "online");
    let destroy = DestroyArrayRequest { name: "tank".into(), ..Default::default() };
    check_refused(control.destroy_array(&destroy), Refused, "exported");
    let unforced = RemoveExportRequest { name: "tank".into(), force: false };
    control.run(|m| m.remove_export(&unforced)).expect("nobody uses it");
    control.destroy_array(&destroy).expect("it is destroyed");
    check_refused(array(&control, "tank"), NotFound, "tank");
}

#[test]
fn an_unloaded_array_stays_away_until_it_is_imported() {
    let (control, drives) = Testbed::raid6(4);
    control.unload_array(&unload("tank")).expect("it is unloaded");
    check_refused(control.create_array(&raid6(drives.clone())), Refused, "member of array tank");
    let import = ImportArraysRequest {
        name: "tank".into(),
        drives: drives[..3].to_vec(),
        ..Default::default()
    };
    check_refused(control.import_arrays(&import), Refused, "member 3");
    let import = ImportArraysRequest { drives, ..import };
    assert_eq!(control.import_arrays(&import).expect("it is imported").result, "changed");
    assert_eq!(control.import_arrays(&import).expect("it is there").result, "unchanged");
}

/// History: the array was unloaded within a second of `export create`, before the export was recorded on its members.
/// On the other host, the array was imported without its export.
#[test]
fn f36_what_was_set_just_before_unloading_comes_along() {
    let (control, drives) = Testbed::raid6(4);
    control.export_nbd();
    let unload = UnloadArrayRequest { name: "tank".into(), force: true, ..Default::default() };
    control.unload_array(&unload).expect("it is unloaded");
    let import =
        ImportArraysRequest { name: "tank".into(), drives, exports: true, ..Default::default() };
    control.import_arrays(&import).expect("it is imported");
    let exports = exports(&control);
    assert_eq!(exports.len(), 1, "the members remember the export: {exports:?}");
}

/// History: exports and settings from the record on a drive were kept without checks, even if their fields were too
/// long or unprintable.
#[test]
fn f36_what_no_request_could_set_is_not_taken_from_a_drive() {
    let (mut control, drives) = Testbed::raid6(4);
    let uuid = control.tank().uuid;
    record_before_leaving(&control, &uuid).expect("the members take the real one");
    let exports = serde_json::json!([
        { "name": "fine", "listen": "127.0.0.1:0" },
        { "name": "x\u{1b}[2J", "listen": "127.0.0.1:0" },
        { "name": "b", "listen": "unix:relative" },
        { "name": "c", "listen": "127.0.0.1:0",
          "nvme": { "nqn": "not\nan nqn", "hosts": ["nqn.2014-08.a:b"], "namespace": 1 } },
        { "name": "d", "listen": "127.0.0.1:0",
          "nvme": { "nqn": "nqn.2014-08.a:b", "hosts": [], "namespace": 1 } },
        { "name": "e", "listen": "127.0.0.1:0",
          "nvme": { "nqn": "nqn.2014-08.a:b", "hosts": ["h".repeat(9000)], "namespace": 1 } },
    ]);
    let settings =
        serde_json::json!({ "rebuild_priority": 200, "scrub_every_s": 1, "auto_readd": false });
    let record = serde_json::json!({ "version": 1, "settings": settings, "exports": exports });
    let due = control.with(|m| Due {
        array: uuid.clone(),
        uuid: uuid.parse().expect("a UUID"),
        content: serde_json::to_vec(&record).expect("it has a JSON form"),
        drives: m.running[0].drives.iter().flatten().cloned().collect(),
    });
    store_side_by_side(&due.expect("it answers")).expect("the members take it");
    control.lose_state();
    control.start();
    let import = ImportArraysRequest { name: "tank".into(), drives, ..Default::default() };
    let warnings = control.import_arrays(&import).expect("it is imported").warnings;
    let [invalid, offer] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        offer.contains("export fine on 127.0.0.1:0, which this daemon does not offer"),
        "{offer}"
    );
    let events = control.reported("record_invalid");
    let [event] = &events[..] else { panic!("{events:?}") };
    assert!(invalid.ends_with(&event.cause) && event.what.contains("/drive"), "{event:?}");
    let cause = &event.cause;
    for field in ["rebuild_priority", "scrub_every_s", "exports[1]: export name"] {
        assert!(cause.contains(&format!("{field}: ")), "{field}: {cause}");
    }
    for at in 2..=5 {
        assert!(cause.contains(&format!("exports[{at}]: ")), "{at}: {cause}");
    }
    assert!(cause.len() < 2000 && !cause.contains(char::is_control), "{cause}");
    let settings = control.tank().settings.expect("it has settings");
    assert!(settings.rebuild_priority <= 100 && !settings.auto_readd, "{settings:?}");
    stop(&control);
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let control = Testbed::new();
    let drives = control.drives(4);
    let link = control.path("link");
    std::os::unix::fs::symlink(&drives[0], &link).expect("a link can be made");
    let good = raid6(drives.clone());
    let check = |request: CreateArrayRequest, words: &str| {
        check_refused(control.create_array(&request), Usage, words);
    };
    check(CreateArrayRequest { name: "a/b".into(), ..good.clone() }, "name");
    check(CreateArrayRequest { name: "x".repeat(300), ..good.clone() }, "300");
    check(CreateArrayRequest { level: "4".into(), ..good.clone() }, "level");
    check(CreateArrayRequest { drives: Vec::new(), ..good.clone() }, "--drives");
    check(CreateArrayRequest { drives: drives[..2].to_vec(), ..good.clone() }, "");
    check(CreateArrayRequest { strip_bytes: 5000, ..good.clone() }, "5000");
    check(
        CreateArrayRequest { strip_bytes: 64_000, ..good.clone() },
        "the nearest valid size is 64KiB",
    );
    check(
        CreateArrayRequest { strip_bytes: 96 << 10, ..good.clone() },
        "(4KiB, 8KiB, 16KiB, 32KiB, 64KiB, 128KiB, 256KiB, 512KiB, 1MiB)",
    );
    check(CreateArrayRequest { block_bytes: Some(520), ..good.clone() }, "520");
    check(CreateArrayRequest { drives: vec!["relative".into(); 4], ..good.clone() }, "absolute");
    check(CreateArrayRequest { drives: vec!["ram:lots".into(); 4], ..good.clone() }, "ram:lots");
    let twice = vec![drives[0].clone(), drives[1].clone(), drives[2].clone(), drives[0].clone()];
    check(CreateArrayRequest { drives: twice, ..good.clone() }, "twice");
    let aliased =
        vec![drives[0].clone(), drives[1].clone(), drives[2].clone(), link.display().to_string()];
    check(CreateArrayRequest { drives: aliased, ..good.clone() }, "same drive");
    assert!(control.with(|m| m.arrays()).expect("it answers").is_empty());
    assert_eq!(control.create_array(&good).expect("the drives are untouched").result, "created");
    stop(&control);
}

/// The content of a drive must not be overwritten without the consent of the operator.
#[test]
fn data_on_a_drive_is_not_written_over_unasked() {
    let control = Testbed::new();
    let drives = control.drives(4);
    // XFS begins with its magic number (XFS Algorithms and Data Structures, "Superblocks").
    let mut data = vec![7; 64 << 10];
    data[..4].copy_from_slice(b"XFSB");
    let write = |data: &[u8]| {
        let file = fs::File::options().write(true).open(&drives[2]).expect("it is there");
        std::os::unix::fs::FileExt::write_all_at(&file, data, 0).expect("it can be written");
    };
    write(&data);
    check_refused(control.create_array(&raid6(drives.clone())), Refused, "XFS");
    let whole = fs::read(&drives[2]).expect("it can be read");
    assert!(whole[..data.len()] == data && whole[data.len()..].iter().all(|byte| *byte == 0));
    let asked = CreateArrayRequest { overwrite: true, ..raid6(drives.clone()) };
    assert_eq!(control.create_array(&asked).expect("it is not needed").result, "created");
}

#[test]
fn cores_are_read_as_people_write_them() {
    let check = |text: &str, cpus: Option<&[usize]>| {
        let read = text.parse::<CoreChoice>().ok();
        assert_eq!(read, cpus.map(|c| CoreChoice::Cpus(c.to_vec())), "{text}");
    };
    check("0", Some(&[0]));
    check("0,2,4-6", Some(&[0, 2, 4, 5, 6]));
    check("1,1", None);
    check("3-1", None);
    check("0-99999999999", None);
    check("", None);
    check("a", None);
}
