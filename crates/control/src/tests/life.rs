//! The life cycle of an array: returning members, names, settings, jobs, undeletion, and the restore of a
//! configuration.

use super::reported::has;
use super::{
    Testbed, array, change_job, check_refused, fail, hold, impatient, raid6, readd, replace, spare,
    tick_until, unload,
};
use crate::commands::backup::parse;
use crate::control::Control;
use crate::error::ControlErrorKind::{NotFound, Refused, State, Usage};
use crate::events::EventKind;
use crate::record::store::{ExportRecord, SpareRecord};
use crate::upkeep::settings::put_settings;
use std::fs;
use strake_api::v1::{
    AddHookRequest, AddSpareRequest, ChangeJobRequest, CreateArrayRequest, CreateExportRequest,
    DestroyArrayRequest, ImportArraysRequest, ReaddMemberRequest, RenameArrayRequest,
    RestoreConfigRequest, SetArrayRequest, UndeleteArrayRequest,
};
use strake_block::blocking::Blocking;
use strake_block::{BufMut, IoError, Sg};
use strake_dev_uring::control_wait;
use strake_units::{CoreIndex, Lba};

fn state_of(control: &Control, member: usize) -> String {
    array(control, "tank").expect("it is there").members[member].state.clone()
}

/// Writes to the first `mib` MiB of an array, as a client does.
pub(super) fn write(control: &Control, name: &str, mib: u64) {
    try_write(control, name, mib).expect("it is written");
}

pub(super) fn try_write(control: &Control, name: &str, mib: u64) -> Result<(), IoError> {
    each_mib(control, name, mib, |io, at| {
        let mut data = BufMut::alone(1 << 20);
        data.as_mut_slice().fill(0x5a);
        io.write_stable(at, Sg::from(data.freeze()))
    })
}

/// Reads the first `mib` MiB of an array.
pub(super) fn read(control: &Control, name: &str, mib: u64) {
    let read = each_mib(control, name, mib, |io, at| io.read(at, BufMut::alone(1 << 20)).map(drop));
    read.expect("it is read");
}

fn each_mib(
    control: &Control,
    name: &str,
    mib: u64,
    one: impl Fn(&mut Blocking<'_>, Lba) -> Result<(), IoError>,
) -> Result<(), IoError> {
    let device = control.run(|m| m.find_running(name).map(|at| m.running[at].array.device()));
    let device = device.expect("it runs");
    let mut wait = control_wait();
    let queue = device.open_queue(CoreIndex(0), 1).expect("it serves");
    let mut io = Blocking::new(queue, &mut wait);
    let block = u64::from(device.info().block_size.bytes());
    (0..mib).try_for_each(|at| one(&mut io, Lba((at << 20) / block)))
}

fn healthy(control: &Control) -> bool {
    array(control, "tank").is_ok_and(|view| view.states == ["online"])
}

#[test]
fn f15_a_pulled_drive_that_comes_back_is_taken_back_by_itself() {
    let (control, drives) = Testbed::raid6(4);
    let away = control.path("away");
    fs::rename(&drives[1], &away).expect("it can be moved");
    tick_until(&control, "the loss", || state_of(&control, 1) == "missing");
    fs::rename(&away, &drives[1]).expect("it can be moved");
    tick_until(&control, "the return", || healthy(&control));
    // The array has all members in sync before the next round of upkeep notices this.
    tick_until(&control, "the news", || has(&control, EventKind::RebuildFinished));
    assert!(has(&control, EventKind::MemberReturned));
    assert_eq!(control.tank().members[1].path, drives[1]);
}

#[test]
fn f15_a_member_missing_at_the_start_is_taken_back_when_it_appears() {
    let (mut control, drives) = Testbed::raid6(4);
    control.shut_down();
    let away = control.path("away");
    fs::rename(&drives[3], &away).expect("it can be moved");
    control.start_with(impatient());
    assert_eq!(state_of(&control, 3), "missing");
    control.tick().expect("it answers");
    fs::rename(&away, &drives[3]).expect("it can be moved");
    tick_until(&control, "the return", || healthy(&control));
}

#[test]
fn a_member_failed_by_hand_comes_back_when_asked_and_not_by_itself() {
    let (control, _) = Testbed::raid6(4);
    let readd = ReaddMemberRequest { name: "tank".into(), ..Default::default() };
    check_refused(control.readd_member(&readd), State, "no member");
    control.fail_member(&fail("tank", 2)).expect("it fails");
    control.ticks(5);
    assert_eq!(state_of(&control, 2), "faulty");
    assert!(control.tank().members[2].returned);
    let dry = ReaddMemberRequest { dry_run: true, ..readd.clone() };
    assert_eq!(control.readd_member(&dry).expect("it is planned").result, "planned");
    let other = ReaddMemberRequest { member: Some(1), ..readd.clone() };
    assert!(control.readd_member(&other).is_err());
    assert_eq!(control.readd_member(&readd).expect("its drive is here").result, "changed");
    tick_until(&control, "the rebuild", || healthy(&control));
}

#[test]
fn a_drive_that_comes_back_after_a_spare_took_its_place_is_reported_and_left_alone() {
    let (control, drives) = Testbed::raid6(5);
    control.add_spare(&spare(&drives[4])).expect("it is a spare");
    let away = control.path("away");
    fs::rename(&drives[0], &away).expect("it can be moved");
    tick_until(&control, "the rebuild", || {
        has(&control, EventKind::SpareUsed) && healthy(&control)
    });
    control.tick().expect("it answers");
    fs::rename(&away, &drives[0]).expect("it can be moved");
    tick_until(&control, "the news", || has(&control, EventKind::MemberSuperseded));
    assert_eq!(control.tank().members[0].path, drives[4]);
}

#[test]
fn names_and_settings_are_changed_live_and_outlast_a_restart() {
    let (mut control, _) = Testbed::raid6(4);
    let rename = |to: &str| RenameArrayRequest {
        name: "tank".into(),
        new_name: to.into(),
        ..Default::default()
    };
    check_refused(control.rename_array(&rename("a/b")), Usage, "name");
    assert_eq!(control.rename_array(&rename("tank")).expect("it is").result, "unchanged");
    control.rename_array(&rename("pond")).expect("it is free");
    check_refused(array(&control, "tank"), NotFound, "existing names: pond");
    let set = SetArrayRequest {
        name: "pond".into(),
        rebuild_priority: Some(80),
        auto_readd: Some(false),
        ..Default::default()
    };
    assert_eq!(control.set_array(&set).expect("it is set").result, "changed");
    assert_eq!(control.set_array(&set).expect("it is set").result, "unchanged");
    let strict = SetArrayRequest {
        name: "pond".into(),
        consistency: Some("strict".into()),
        ..Default::default()
    };
    assert_eq!(control.set_array(&strict).expect("it is set").result, "changed");
    assert_eq!(control.set_array(&strict).expect("it is set").result, "unchanged");
    let wrong = SetArrayRequest { consistency: Some("lax".into()), ..strict };
    check_refused(control.set_array(&wrong), Usage, "lax");
    let wrong = SetArrayRequest { rebuild_priority: Some(101), ..set };
    check_refused(control.set_array(&wrong), Usage, "101");
    control.restart();
    let view = array(&control, "pond").expect("it is there");
    let settings = view.settings.expect("it has settings");
    assert_eq!(
        (settings.rebuild_priority, settings.auto_readd, settings.auto_replace),
        (80, false, true)
    );
    assert_eq!(view.consistency, "strict");
    assert!(view.guarantees.iter().all(|line| !line.contains("damaged")), "{:?}", view.guarantees);
}

#[test]
fn jobs_are_paused_resumed_and_reprioritized_and_stay_so_over_a_restart() {
    let (mut control, _) = Testbed::raid6(4);
    let set =
        SetArrayRequest { name: "tank".into(), rebuild_priority: Some(10), ..Default::default() };
    control.set_array(&set).expect("it is set");
    let change = |id: &str, action: &str, priority| {
        control.change_job(&ChangeJobRequest { id: id.into(), action: action.into(), priority })
    };
    check_refused(change("tank/rebuild", "pause", None), NotFound, "no jobs exist");
    hold(&control, true);
    fail_and_readd(&control, 1);
    assert_eq!(change("tank/rebuild", "pause", None).expect("it is").result, "changed");
    let job = |control: &Control| {
        let jobs = control.with(|m| m.list_jobs().jobs).expect("it answers");
        let [job] = &jobs[..] else { panic!("{jobs:#?}") };
        (job.id.clone(), job.state.clone(), job.priority, job.members.clone())
    };
    let paused = |priority| ("tank/rebuild".to_owned(), "paused".to_owned(), priority, vec![1]);
    assert_eq!(job(&control), paused(10));
    check_refused(change("tank/rebuild", "cancel", None), Refused, "redundancy");
    check_refused(change("tank/rebuild", "set", None), Usage, "--priority");
    check_refused(change("tank/rebuild", "halt", None), Usage, "halt");
    let changed = change("tank/rebuild", "set", Some(90)).expect("it is live");
    assert_eq!(changed.job.expect("it waits").priority, 90);
    assert_eq!(change("tank/rebuild", "pause", None).expect("it is").result, "unchanged");
    control.restart();
    assert_eq!(job(&control), paused(90));
    let resumed = control.change_job(&change_job("tank/rebuild", "resume"));
    assert_eq!(resumed.expect("it can go on").result, "changed");
    tick_until(&control, "the rebuild", || healthy(&control));
    // The priority of the job ends with the job.
    hold(&control, true);
    fail_and_readd(&control, 1);
    assert_eq!(job(&control).2, 10);
}

/// Fails a member, writes, and re-adds the member, so that a rebuild is required.
fn fail_and_readd(control: &Control, member: u32) {
    control.fail_member(&fail("tank", member)).expect("it fails");
    write(control, "tank", 8);
    control.readd_member(&readd(None)).expect("its drive is here");
}

/// Pauses the rebuild of member 1 while its last bands are in flight, so that the rebuild finishes nevertheless.
fn pause_at_the_end(control: &Control) {
    hold(control, true);
    fail_and_readd(control, 1);
    let pause = change_job("tank/rebuild", "pause");
    assert_eq!(control.change_job(&pause).expect("it is listed").result, "changed");
    hold(control, false);
    while !healthy(control) {
        std::thread::yield_now();
    }
    hold(control, true);
}

/// History: a rebuild that the operator paused just before its end finished. No job was listed that could be resumed,
/// and the pause remained recorded for the array. The next rebuild did not start, and no message gave the reason.
#[test]
fn a_pause_ends_with_its_job_and_the_next_one_is_not_paused() {
    let (control, drives) = Testbed::raid6(5);
    tick_until(&control, "the initialization", || healthy(&control));
    let is_paused = || control.with(|m| m.records.settings(&m.running[0].uuid()).paused);
    // A round of upkeep ends the pause.
    pause_at_the_end(&control);
    control.tick().expect("it answers");
    assert!(!is_paused().expect("it answers"));
    assert!(has(&control, EventKind::JobChanged));
    // A command about a job that no longer exists ends the pause.
    pause_at_the_end(&control);
    let resume = change_job("tank/rebuild", "resume");
    check_refused(control.change_job(&resume), NotFound, "no job");
    assert!(!is_paused().expect("it answers"));
    // The next job ends the pause without a round in between; the next job is of the same kind or of another kind.
    pause_at_the_end(&control);
    fail_and_readd(&control, 2);
    assert!(!is_paused().expect("it answers"));
    tick_until(&control, "the rebuild", || healthy(&control));
    pause_at_the_end(&control);
    control.replace_member(&replace(1, &drives[4])).expect("it fits");
    tick_until(&control, "the copy", || {
        array(&control, "tank").is_ok_and(|tank| tank.members[1].path == drives[4])
    });
    // An earlier release recorded a pause without its jobs. The pause ends when there is no job.
    control
        .run(|m| {
            let uuid = m.running[0].uuid();
            let settings =
                crate::record::store::Settings { paused: true, ..m.records.settings(&uuid) };
            put_settings(m, &uuid, settings)
        })
        .expect("it is recorded");
    control.tick().expect("it answers");
    assert!(!is_paused().expect("it answers"));
}

/// Two jobs are paused separately. The pause of the job that ended does not delay the other job.
#[test]
fn a_pause_of_a_job_that_ended_does_not_hold_up_one_beside_it() {
    let (control, _) = Testbed::raid6(4);
    tick_until(&control, "the initialization", || healthy(&control));
    hold(&control, true);
    fail_and_readd(&control, 1);
    let pause = |kind: &str| {
        control.run(|m| {
            let uuid = m.running[0].uuid();
            let settings = m.records.settings(&uuid).with_pause_of(kind);
            put_settings(m, &uuid, settings)
        })
    };
    // The resync has ended, and the rebuild is listed.
    pause("resync").expect("it is recorded");
    tick_until(&control, "the rebuild", || healthy(&control));
    hold(&control, true);
    fail_and_readd(&control, 1);
    pause("resync").expect("it is recorded");
    pause("rebuild").expect("it is recorded");
    control.tick().expect("it answers");
    let jobs = control.with(|m| m.list_jobs().jobs).expect("it answers");
    assert_eq!(jobs[0].state, "paused", "{jobs:?}");
}

#[test]
fn a_destroyed_array_is_brought_back_with_exports_and_settings() {
    let (control, drives) = Testbed::raid6(4);
    control.export_nbd();
    let set =
        SetArrayRequest { name: "tank".into(), rebuild_priority: Some(7), ..Default::default() };
    control.set_array(&set).expect("it is set");
    let destroy = DestroyArrayRequest { name: "tank".into(), force: true, ..Default::default() };
    let undelete = UndeleteArrayRequest { name: "tank".into(), ..Default::default() };
    check_refused(control.undelete_array(&undelete), State, "not destroyed");
    control.destroy_array(&destroy).expect("it is destroyed");
    let dry = UndeleteArrayRequest { dry_run: true, ..undelete.clone() };
    assert_eq!(control.undelete_array(&dry).expect("it is planned").plan.len(), 6);
    let back = control.undelete_array(&undelete).expect("its drives were not used");
    assert_eq!(back.warnings, Vec::<String>::new());
    let view = control.tank();
    assert_eq!((view.states, view.exports), (vec!["online".to_owned()], vec!["tank".to_owned()]));
    assert_eq!(view.settings.expect("it has settings").rebuild_priority, 7);
    // One drive is used for another array. The destruction is undone without this drive, because enough drives remain.
    control.destroy_array(&destroy).expect("it is destroyed");
    let other = CreateArrayRequest {
        name: "other".into(),
        level: "0".into(),
        ..raid6(vec![drives[0].clone()])
    };
    control.create_array(&other).expect("the drive is free");
    control.undelete_array(&undelete).expect("three are left");
    assert_eq!(state_of(&control, 0), "missing");
}

/// F36: the state directory is lost. A backup restores the whole configuration. A second restore changes nothing, and a
/// restore never deletes anything.
#[test]
fn f36_a_backup_restores_what_a_lost_state_directory_held() {
    let (mut control, drives) = Testbed::raid6(5);
    control.export_nbd();
    let own = AddSpareRequest { array: "tank".into(), ..spare(&drives[4]) };
    control.add_spare(&own).expect("it is a spare");
    let hook = AddHookRequest {
        name: "nobody".into(),
        kind: "webhook".into(),
        target: "http://127.0.0.1:1/x".into(),
        ..Default::default()
    };
    control.add_hook(&hook).expect("it is recorded");
    let json = control.document();
    control.lose_state();
    control.start();
    let restore =
        |dry_run| control.restore_config(&RestoreConfigRequest { json: json.clone(), dry_run });
    let planned = restore(true).expect("it is understood");
    assert_eq!(planned.result, "planned");
    assert!(array(&control, "tank").is_err());
    let done = restore(false).expect("it is understood");
    // The document hides the secret in the address of the hook, so the restored hook differs.
    let [hook] = &done.warnings[..] else { panic!("{done:#?}") };
    assert!(done.result == "changed" && hook.contains("nobody"), "{done:#?}");
    assert_eq!((planned.plan, planned.warnings), (done.plan.clone(), done.warnings.clone()));
    assert_eq!(control.tank().exports, ["tank"]);
    assert_eq!(control.with(|m| m.list_spares()).expect("it answers").spares[0].state, "ready");
    let again = restore(false).expect("it is understood");
    assert_eq!((again.result.as_str(), again.plan.len()), ("unchanged", 0), "{again:#?}");
    let bad = RestoreConfigRequest { json: "{\"version\":1".into(), dry_run: false };
    check_refused(control.restore_config(&bad), Usage, "is invalid");
}

/// History: `config restore --dry-run` accepted every export, even if its address or name was in use. It left out the
/// objects that depend on an array that is not present yet, and it announced configuration that the members record
/// anyway.
#[test]
fn a_dry_restore_says_exactly_what_the_real_one_does() {
    let (mut control, drives) = Testbed::raid6(5);
    let listen = |name: &str| format!("unix:{}", control.path(name).display());
    let export =
        CreateExportRequest { array: "tank".into(), listen: listen("a"), ..Default::default() };
    control.export(&export);
    control.tick().expect("it answers");
    let json = control.document();
    let mut wanted = parse(&json).expect("it is a configuration");
    wanted.arrays[0].settings.rebuild_priority = 7;
    let known = wanted.exports[0].clone();
    for (name, array, address) in [
        ("second", known.array.as_str(), listen("b")),
        ("beside", &known.array, listen("a")),
        ("nowhere", &known.array, listen("no/such/folder")),
        ("tank", &known.array, listen("c")),
        ("other", "another array", listen("d")),
        ("bad name", &known.array, listen("e")),
    ] {
        let (name, array) = (name.to_owned(), array.to_owned());
        let (listen, read_only, nvme) = (address, false, None);
        wanted.exports.push(ExportRecord { name, array, volume: None, listen, read_only, nvme });
    }
    wanted.spares = [drives[4].clone(), "/no/such/drive".into()]
        .map(|path| SpareRecord { path, identity: String::new(), bytes: 0, array: String::new() })
        .to_vec();
    let json = serde_json::to_string(&wanted).expect("it can be encoded");
    let check = |control: &Control, steps: usize| {
        let restore = |dry_run| {
            let request = RestoreConfigRequest { json: json.clone(), dry_run };
            control.restore_config(&request).expect("it is understood")
        };
        let (planned, done) = (restore(true), restore(false));
        assert_eq!((&planned.plan, &planned.warnings), (&done.plan, &done.warnings));
        assert_eq!(done.plan.len(), steps, "{done:#?}");
    };
    control.lose_state();
    control.start();
    // The plan contains the array, its settings, two exports and a spare and three exports.
    check(&control, 6);
    check(&control, 0);
}

#[test]
fn a_dry_import_writes_nothing_and_says_what_would_be() {
    let (control, drives) = Testbed::raid6(4);
    let generation = control.tank().generation;
    control.unload_array(&unload("tank")).expect("it is unloaded");
    let before: Vec<Vec<u8>> =
        drives.iter().map(|d| fs::read(d).expect("it can be read")).collect();
    let import = ImportArraysRequest {
        name: "tank".into(),
        drives: drives.clone(),
        dry_run: true,
        ..Default::default()
    };
    let planned = control.import_arrays(&import).expect("it would start");
    assert_eq!(planned.result, "planned");
    assert!(planned.arrays[0].generation >= generation && planned.arrays[0].members.len() == 4);
    let fewer = ImportArraysRequest { drives: drives[1..].to_vec(), ..import };
    check_refused(control.import_arrays(&fewer), Refused, "member 0");
    let after: Vec<Vec<u8>> = drives.iter().map(|d| fs::read(d).expect("it can be read")).collect();
    assert!(before == after, "a dry run wrote to a drive");
}

/// F21: the whole drive of a member was copied. The array is refused until the operator chooses one of the copies.
#[test]
fn f21_a_copied_member_is_refused_until_one_is_chosen() {
    let (control, drives) = Testbed::raid6(4);
    control.unload_array(&unload("tank")).expect("it is unloaded");
    let copy = control.path("copy").display().to_string();
    fs::copy(&drives[2], &copy).expect("it can be copied");
    let mut all = drives.clone();
    all.push(copy.clone());
    let import = ImportArraysRequest { name: "tank".into(), drives: all, ..Default::default() };
    check_refused(control.import_arrays(&import), Refused, &copy);
    let chosen = ImportArraysRequest { use_drives: vec![drives[2].clone()], ..import };
    control.import_arrays(&chosen).expect("one was chosen");
    assert_eq!(control.tank().members[2].path, drives[2]);
}

#[test]
fn an_array_that_is_offline_keeps_its_shape_and_says_what_would_do() {
    let mut control = Testbed::new();
    let drives = control.drives(5);
    control.create_array(&raid6(drives.clone())).expect("it is created");
    let running = control.tank();
    control.shut_down();
    fs::rename(&drives[1], control.path("away")).expect("it can be moved");
    control.start();
    let view = control.tank();
    assert_eq!((view.states, &view.level), (vec!["offline".to_owned()], &running.level));
    assert_eq!((view.size_bytes, view.members.len()), (running.size_bytes, 5));
    assert_eq!((view.members[1].state.as_str(), view.redundancy_left), ("missing", 1));
    assert!(view.next_action.contains("--degraded"), "{}", view.next_action);
    let import =
        ImportArraysRequest { name: "tank".into(), allow_degraded: true, ..Default::default() };
    control.import_arrays(&import).expect("it was allowed");
}

/// F36: the state directory is lost and there is no backup. An import from the drives alone restores the array with its
/// name, its settings and its exports, including their sockets. An export whose name is in use now is reported.
#[test]
fn f36_drives_alone_bring_back_array_exports_and_settings() {
    let (mut control, drives) = Testbed::raid6(5);
    let listen = format!("unix:{}", control.path("nbd.sock").display());
    let offer = |control: &Testbed, array: &str, name: &str| {
        let request = CreateExportRequest {
            array: array.into(),
            name: name.into(),
            listen: listen.clone(),
            ..Default::default()
        };
        control.export(&request);
    };
    offer(&control, "tank", "first");
    offer(&control, "tank", "second");
    let set =
        SetArrayRequest { name: "tank".into(), rebuild_priority: Some(33), ..Default::default() };
    control.set_array(&set).expect("it is set");
    control.tick().expect("it answers");
    control.lose_state();
    control.start();
    let scratch = CreateArrayRequest {
        name: "scratch".into(),
        level: "0".into(),
        ..raid6(vec![drives[4].clone()])
    };
    control.create_array(&scratch).expect("the drive is free");
    offer(&control, "scratch", "second");
    let import = ImportArraysRequest { drives: drives[..4].to_vec(), ..Default::default() };
    let done = control.import_arrays(&import).expect("its drives are here");
    assert_eq!(done.warnings.len(), 2, "{done:#?}");
    assert!(done.warnings.iter().all(|w| w.contains("--exports")), "{done:#?}");
    let view = control.tank();
    assert_eq!(view.exports, Vec::<String>::new(), "no listener without being asked");
    let import = ImportArraysRequest { name: "tank".into(), exports: true, ..Default::default() };
    let done = control.import_arrays(&import).expect("it runs");
    let [conflict] = &done.warnings[..] else { panic!("{done:#?}") };
    assert!(conflict.contains("export second"), "{conflict}");
    let view = control.tank();
    assert_eq!((view.states, view.exports), (vec!["online".to_owned()], vec!["first".to_owned()]));
    assert_eq!(view.settings.expect("it has settings").rebuild_priority, 33);
    let offered = control.with(|m| m.exports()).expect("it answers");
    assert!(offered.iter().all(|e| e.state == "online" && e.listen == listen), "{offered:#?}");
}

#[test]
fn a_member_in_use_is_not_re_added() {
    let (control, _) = Testbed::raid6(4);
    let none = "no member of array tank is out of use";
    check_refused(control.readd_member(&readd(None)), State, none);
    control.fail_member(&fail("tank", 1)).expect("one is allowed");
    check_refused(control.readd_member(&readd(Some(2))), State, "member 2 of array tank is in use");
    assert_eq!(control.readd_member(&readd(Some(1))).expect("it is out").result, "changed");
}
