use crate::control::Control;
use crate::cores::CoreChoice;
use crate::manager::Options;
use crate::record::store::{ArrayRecord, Config, ExportRecord, ScrubRecord, Settings, Store};
use crate::{ControlError, ControlErrorKind};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use strake_api::v1::{
    Array, CreateArrayRequest, CreateExportRequest, DestroyArrayRequest, Export, FailMemberRequest,
    ImportArraysRequest, ListEventsRequest, RemoveExportRequest, ReplaceMemberRequest,
    UnloadArrayRequest,
};

mod copies;
mod ends;
mod full;
mod grow;
mod halves;
mod hooks;
mod life;
mod nvme;
mod power;
mod queues;
mod remote;
mod reported;
mod reservation;
mod scrub;
mod spares;
mod torn;
mod upgrade;
mod upkeep;

/// A directory that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("strake-control-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory can be made");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn drives(&self, count: usize) -> Vec<String> {
        let make = |number| {
            let path = self.path(&format!("drive{number}"));
            let file = fs::File::create(&path).expect("a file can be made");
            file.set_len(64 << 20).expect("a sparse file can be made");
            path.display().to_string()
        };
        (0..count).map(make).collect()
    }

    fn control(&self) -> Control {
        self.control_with(Options::default())
    }

    fn control_with(&self, options: Options) -> Control {
        Control::start(&self.path("state"), options).expect("the control plane starts")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The next run of the tests uses another name.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn array(control: &Control, name: &str) -> Result<Array, ControlError> {
    control.run(|m| m.array(name))
}

fn exports(control: &Control) -> Vec<Export> {
    control.run(|m| Ok(m.exports())).expect("it answers")
}

fn stop(control: &Control) {
    let errors = control.stop();
    assert!(errors.is_empty(), "{errors:?}");
}

fn fail(name: &str, member: u32) -> FailMemberRequest {
    let accept = vec!["redundancy".to_owned()];
    FailMemberRequest { name: name.into(), member, accept, ..Default::default() }
}

/// Does rounds of upkeep until `done`, as the daemon does while time passes.
fn tick_until(control: &Control, what: &str, done: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if done() {
            return;
        }
        control.tick().expect("it answers");
        std::thread::yield_now();
    }
    let reported =
        control.events().list(&ListEventsRequest::default()).expect("the request is fine");
    let reported: Vec<String> = reported
        .iter()
        .map(|e| format!("{} {}: {} ({})", e.number, e.kind, e.what, e.cause))
        .collect();
    panic!("{what} does not happen; events:\n{}", reported.join("\n"));
}

/// Holds copies, rebuilds and scrubs of the array up in the engine, or lets them go on. Nothing is recorded: for the
/// operator no job is paused.
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
            copies: Vec::new(),
            silent: Vec::new(),
        }],
        exports: vec![ExportRecord {
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
    let folder = Folder::new();
    let (store, first) = Store::open(&folder.0).expect("a new directory opens");
    assert_eq!(first, Config::default());
    drop(store.prepare(&sample()).expect("there is room"));
    drop(store);
    assert_eq!(read_back(&folder.0).expect("it opens"), Config::default());
    let (store, _) = Store::open(&folder.0).expect("it opens");
    store
        .prepare(&sample())
        .and_then(crate::record::store::Prepared::commit)
        .expect("there is room");
    drop(store);
    // A crash in the middle of the next change leaves half a file beside the one in force.
    fs::write(folder.path("state.json.next"), b"{\"version\":").expect("it can be written");
    assert_eq!(read_back(&folder.0).expect("it opens"), sample());
}

#[test]
fn a_damaged_or_foreign_state_is_refused_by_name() {
    let folder = Folder::new();
    fs::write(folder.path("state.json"), b"{\"version\":1,").expect("it can be written");
    check_refused(read_back(&folder.0), ControlErrorKind::Store, "state.json");
    fs::write(folder.path("state.json"), b"{\"version\":9,\"arrays\":[],\"exports\":[]}")
        .expect("it can be written");
    check_refused(read_back(&folder.0), ControlErrorKind::Store, "version 9");
}

#[test]
fn two_daemons_do_not_share_a_state_directory() {
    let folder = Folder::new();
    let (_store, _) = Store::open(&folder.0).expect("it opens");
    check_refused(Store::open(&folder.0), ControlErrorKind::State, &std::process::id().to_string());
}

#[test]
fn a_directory_that_cannot_be_written_refuses_before_anything_is_done() {
    let folder = Folder::new();
    let (store, _) = Store::open(&folder.0).expect("it opens");
    // In the way of the file that every change begins with; works for root too, which ignores permissions.
    fs::create_dir(folder.path("state.json.next")).expect("it can be made");
    check_refused(store.prepare(&sample()), ControlErrorKind::Store, "nothing was done");
}

#[test]
fn an_array_lives_through_failure_replacement_and_restart() {
    let folder = Folder::new();
    let drives = folder.drives(7);
    let control = folder.control();
    let request = raid6(drives[..6].to_vec());
    assert_eq!(control.create_array(&request).expect("it is created").result, "created");
    assert_eq!(control.create_array(&request).expect("it is there").result, "unchanged");
    assert_eq!(control.fail_member(&fail("tank", 2)).expect("it fails").result, "changed");
    let view = array(&control, "tank").expect("it is there");
    assert!(view.states.contains(&"degraded".to_owned()), "{:?}", view.states);
    assert_eq!(view.redundancy_left, 1);
    let replace = ReplaceMemberRequest {
        name: "tank".into(),
        member: 2,
        drive: drives[6].clone(),
        ..Default::default()
    };
    assert_eq!(control.replace_member(&replace).expect("it is replaced").result, "changed");
    let listen = format!("unix:{}", folder.path("nbd.sock").display());
    let export = CreateExportRequest { array: "tank".into(), listen, ..Default::default() };
    assert_eq!(
        control.run(|m| m.create_export(&export)).expect("it is exported").result,
        "created"
    );
    assert_eq!(control.run(|m| m.create_export(&export)).expect("it is there").result, "unchanged");
    stop(&control);
    drop(control);

    let control = folder.control();
    let view = array(&control, "tank").expect("it is there");
    assert!(view.states.contains(&"online".to_owned()), "{:?}: {}", view.states, view.reason);
    assert_eq!(view.members[2].path, drives[6]);
    assert_eq!(exports(&control)[0].state, "online");
    let destroy = DestroyArrayRequest { name: "tank".into(), ..Default::default() };
    check_refused(control.destroy_array(&destroy), ControlErrorKind::Refused, "exported");
    control
        .run(|m| m.remove_export(&RemoveExportRequest { name: "tank".into(), force: false }))
        .expect("nobody uses it");
    control.destroy_array(&destroy).expect("it is destroyed");
    check_refused(array(&control, "tank"), ControlErrorKind::NotFound, "tank");
    stop(&control);
}

#[test]
fn an_unloaded_array_stays_away_until_it_is_imported() {
    let folder = Folder::new();
    let drives = folder.drives(4);
    let control = folder.control();
    control.create_array(&raid6(drives.clone())).expect("it is created");
    control
        .unload_array(&UnloadArrayRequest { name: "tank".into(), ..Default::default() })
        .expect("it is unloaded");
    check_refused(
        control.create_array(&raid6(drives.clone())),
        ControlErrorKind::Refused,
        "member of array tank",
    );
    let import = ImportArraysRequest {
        name: "tank".into(),
        drives: drives[..3].to_vec(),
        ..Default::default()
    };
    check_refused(control.import_arrays(&import), ControlErrorKind::Refused, "member 3");
    let import = ImportArraysRequest { drives, ..import };
    assert_eq!(control.import_arrays(&import).expect("it is imported").result, "changed");
    assert_eq!(control.import_arrays(&import).expect("it is there").result, "unchanged");
    stop(&control);
}

/// The array was unloaded within a second of `export create`, before the export was recorded on its members; on the
/// other machine it came back without.
#[test]
fn f36_what_was_set_just_before_unloading_comes_along() {
    let folder = Folder::new();
    let drives = folder.drives(4);
    let control = folder.control();
    control.create_array(&raid6(drives.clone())).expect("it is created");
    let listen = format!("unix:{}", folder.path("late.sock").display());
    let export = CreateExportRequest { array: "tank".into(), listen, ..Default::default() };
    control.run(|m| m.create_export(&export)).expect("it is offered");
    let unload = UnloadArrayRequest { name: "tank".into(), force: true, ..Default::default() };
    control.unload_array(&unload).expect("it is unloaded");
    let import =
        ImportArraysRequest { name: "tank".into(), drives, exports: true, ..Default::default() };
    control.import_arrays(&import).expect("it is imported");
    let exports = exports(&control);
    assert_eq!(exports.len(), 1, "the members remember the export: {exports:?}");
    stop(&control);
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let folder = Folder::new();
    let drives = folder.drives(4);
    let link = folder.path("link");
    std::os::unix::fs::symlink(&drives[0], &link).expect("a link can be made");
    let control = folder.control();
    let good = raid6(drives.clone());
    let check = |request: CreateArrayRequest, words: &str| {
        check_refused(control.create_array(&request), ControlErrorKind::Usage, words);
    };
    check(CreateArrayRequest { name: "a/b".into(), ..good.clone() }, "name");
    check(CreateArrayRequest { name: "x".repeat(300), ..good.clone() }, "300");
    check(CreateArrayRequest { level: "4".into(), ..good.clone() }, "level");
    check(CreateArrayRequest { drives: Vec::new(), ..good.clone() }, "--drives");
    check(CreateArrayRequest { drives: drives[..2].to_vec(), ..good.clone() }, "");
    check(CreateArrayRequest { strip_bytes: 5000, ..good.clone() }, "5000");
    check(CreateArrayRequest { block_bytes: Some(520), ..good.clone() }, "520");
    check(CreateArrayRequest { drives: vec!["relative".into(); 4], ..good.clone() }, "absolute");
    check(CreateArrayRequest { drives: vec!["ram:lots".into(); 4], ..good.clone() }, "ram:lots");
    let twice = vec![drives[0].clone(), drives[1].clone(), drives[2].clone(), drives[0].clone()];
    check(CreateArrayRequest { drives: twice, ..good.clone() }, "twice");
    let aliased =
        vec![drives[0].clone(), drives[1].clone(), drives[2].clone(), link.display().to_string()];
    check(CreateArrayRequest { drives: aliased, ..good.clone() }, "same drive");
    assert!(control.run(|m| Ok(m.arrays())).expect("it answers").is_empty());
    assert_eq!(control.create_array(&good).expect("the drives are untouched").result, "created");
    stop(&control);
}

/// What a drive holds is data that is needed until an operator says that it is not.
#[test]
fn data_on_a_drive_is_not_written_over_unasked() {
    let folder = Folder::new();
    let drives = folder.drives(4);
    let control = folder.control();
    // XFS begins with its magic number (XFS Algorithms and Data Structures, "Superblocks").
    let mut data = vec![7; 64 << 10];
    data[..4].copy_from_slice(b"XFSB");
    let write = |data: &[u8]| {
        let file = fs::File::options().write(true).open(&drives[2]).expect("it is there");
        std::os::unix::fs::FileExt::write_all_at(&file, data, 0).expect("it can be written");
    };
    write(&data);
    check_refused(control.create_array(&raid6(drives.clone())), ControlErrorKind::Refused, "XFS");
    let whole = fs::read(&drives[2]).expect("it can be read");
    assert!(whole[..data.len()] == data && whole[data.len()..].iter().all(|byte| *byte == 0));
    let asked = CreateArrayRequest { overwrite: true, ..raid6(drives.clone()) };
    assert_eq!(control.create_array(&asked).expect("it is not needed").result, "created");
    stop(&control);
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
