//! The effect of the reservations of one export of an array on the clients of another export.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use strake_api::v1::{
    CreateExportRequest, ImportArraysRequest, ReleaseExportRequest, RemoveExportRequest,
    UnloadArrayRequest,
};
use strake_export_nbd::{Removal, Rights};
use strake_export_nvmet::{Held, Ledger, Registrant, ReservationType, Reservations};

use super::nvme::{HOST, request};
use super::{Testbed, check_refused, drives_in, exports, folder, nbd, raid6, stop, unload};
use crate::commands::exports::offer_or_report;
use crate::control::Control;
use crate::error::ControlErrorKind::Usage;
use crate::manager::{Manager, Options};
use crate::record::files::{Disk, Kernel, StateFolder, Step};
use crate::record::reserved::ReservationFile;
use crate::upkeep::starting::start_in;

/// The UUID of array tank.
fn tank(control: &Control) -> String {
    control.with(|m| m.records.arrays[0].uuid.clone()).expect("it answers")
}

fn rights(control: &Control) -> Rights {
    let array = tank(control);
    control.with(|m| m.exports.rights(&array)).expect("it answers")
}

/// Returns the file of the reservations of the array.
fn ledger(control: &Control) -> Arc<ReservationFile> {
    let array = tank(control);
    let file = |m: &mut _| Ok(of_array(m, &array));
    Arc::new(control.run(file).expect("it answers"))
}

fn of_array(manager: &mut Manager, array: &str) -> ReservationFile {
    ReservationFile::of_array(manager.records.store.folder(), array)
}

/// A host reserves the array against writes, and disconnects.
fn reserve(file: &ReservationFile) {
    let registrants = vec![Registrant { host: [1; 16], name: HOST.into(), key: 1 }];
    let held = Some(Held { kind: ReservationType::WriteExclusive, holder: Some([1; 16]) });
    let reserved = Reservations { persists: true, registrants, held, ..Reservations::default() };
    file.write(Some(&reserved)).expect("it can be written");
}

/// Damages the file of the reservations and returns its path.
fn damage(bed: &Testbed) -> PathBuf {
    let path = bed.path("state").join(format!("reservations/{}.json", tank(bed)));
    fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
    fs::write(&path, "{").expect("it can be written");
    path
}

/// Creates array tank with an NBD export that is named other.
fn over_nbd() -> (Testbed, Vec<String>) {
    let (control, drives) = Testbed::raid6(4);
    offer_nbd(&control);
    (control, drives)
}

fn offer_nbd(bed: &Testbed) {
    bed.export(&CreateExportRequest {
        array: "tank".into(),
        via: "nbd".into(),
        listen: format!("unix:{}", bed.path("nbd").display()),
        name: "other".into(),
        ..CreateExportRequest::default()
    });
}

fn release(control: &Control, name: &str) {
    let release = ReleaseExportRequest { name: name.into() };
    control.run(|m| m.release_export(&release)).expect("the operator may");
}

/// Returns the state of an export and its reason, as shown.
fn shown(control: &Control, name: &str) -> (String, String) {
    let export = exports(control).into_iter().find(|export| export.name == name);
    export.map(|export| (export.state, export.reason)).expect("it is recorded")
}

/// A host reserves the array, the daemon restarts, and the operator ends the reservation.
#[test]
fn nbd_clients_obey_reservations_of_hosts() {
    let (mut control, _) = over_nbd();
    control.export(&request());
    let record = control.with(|m| m.records.exports[1].clone()).expect("two exports");
    assert_eq!(rights(&control), Rights::All);

    let file = ledger(&control);
    reserve(&file);
    // The NBD export is first in the order of the records, and applies the recorded reservations.
    control.restart();
    assert_eq!(rights(&control), Rights::Read);
    let (state, reason) = shown(&control, "other");
    assert!(state == "online" && reason.starts_with("writes are refused"), "{state}: {reason}");

    release(&control, "tank");
    assert_eq!(rights(&control), Rights::All);
    assert_eq!(shown(&control, "other"), ("online".into(), String::new()));

    // The reservations are read when an export is offered, and not when it is withdrawn.
    reserve(&file);
    let offer_again = |m: &mut Manager| {
        m.exports.withdraw(&record, Removal::Force)?;
        offer_or_report(m, &record);
        Ok(())
    };
    control.run(offer_again).expect("it goes on");
    assert_eq!(rights(&control), Rights::Read);
    // The removal of an export removes its reservations.
    control.remove_export("tank");
    assert_eq!(rights(&control), Rights::All);

    // Reservations that cannot be read may reserve the array.
    control.export(&request());
    control.shut_down();
    control.start();
    let path = damage(&control);
    control.restart();
    assert_eq!(rights(&control), Rights::Nothing);
    let (state, reason) = shown(&control, "other");
    assert!(state == "online" && reason.contains("cannot be read"), "{state}: {reason}");
    assert_eq!(shown(&control, "tank").0, "offline");

    // The release concerns one export, and reports nothing about the other export.
    release(&control, "tank");
    assert_eq!(rights(&control), Rights::All);
    assert!(!path.exists(), "the file is put aside");
    for name in ["other", "tank"] {
        assert_eq!(shown(&control, name), ("online".into(), String::new()), "{name}");
    }
    let offline = control.reported("export_offline");
    assert!(offline.iter().all(|event| event.object != "export/other"), "{offline:?}");
}

/// The file of the reservations survives the unload of the array. The reservations are in force after the import, with
/// any exports.
#[test]
fn nbd_clients_obey_reservations_of_an_array_that_was_imported() {
    let (mut control, drives) = over_nbd();
    control.export(&request());
    let file = ledger(&control);
    reserve(&file);
    let unload = UnloadArrayRequest { force: true, ..unload("tank") };
    control.unload_array(&unload).expect("it goes");
    let import = ImportArraysRequest { name: "tank".into(), drives, ..Default::default() };
    control.import_arrays(&import).expect("it comes back");
    offer_nbd(&control);
    assert_eq!(rights(&control), Rights::Read);
    control.restart();
    assert_eq!(rights(&control), Rights::Read);

    // No NVMe/TCP export has these reservations, so the name of the other export is accepted.
    release(&control, "other");
    assert_eq!(rights(&control), Rights::All);
    assert!(file.read().expect("it can be read").is_none(), "they are recorded no more");

    damage(&control);
    control.restart();
    assert_eq!(rights(&control), Rights::Nothing);
    let (_, reason) = shown(&control, "other");
    assert!(reason.contains("strake export release other"), "{reason}");
    release(&control, "other");
    assert_eq!(rights(&control), Rights::All);
}

/// A layer that refuses to rename files while it is set.
#[derive(Debug, Default)]
struct Refuses(AtomicBool);

impl Disk for Refuses {
    fn carry_out(&self, step: Step<'_>) -> io::Result<()> {
        match step {
            Step::Rename(..) if self.0.load(Ordering::Relaxed) => Err(io::Error::other("refused")),
            step => Kernel.carry_out(step),
        }
    }
}

/// History: an export was withdrawn before its removal could not be recorded. Until the next start, the export was not
/// offered, and NBD clients had all rights.
#[test]
fn an_export_whose_removal_cannot_be_recorded_is_offered_again() {
    let folder = folder();
    let disk = Arc::new(Refuses::default());
    let state = StateFolder::on(&folder.join("state"), Arc::clone(&disk) as _);
    let control = start_in(state, Options::default()).expect("the control plane starts");
    control.create_array(&raid6(drives_in(&folder, 4))).expect("it is created");
    for request in
        [&nbd(&folder.join("nbd")), &CreateExportRequest { name: "net".into(), ..request() }]
    {
        control.run(|m| m.create_export(request)).expect("it is offered");
    }
    let record = control.with(|m| m.records.exports[1].clone()).expect("two exports");
    reserve(&ledger(&control));
    let again = |m: &mut Manager| {
        m.exports.withdraw(&record, Removal::Force)?;
        offer_or_report(m, &record);
        Ok(())
    };
    control.run(again).expect("it goes on");
    assert_eq!(rights(&control), Rights::Read);
    disk.0.store(true, Ordering::Relaxed);
    let request = RemoveExportRequest { name: "net".into(), force: true };
    control.remove_export(&request).expect_err("it cannot be recorded");
    assert_eq!(rights(&control), Rights::Read);
    let (state, reason) = shown(&control, "net");
    assert!(state == "offline" && reason.contains("refused"), "{state}: {reason}");
    disk.0.store(false, Ordering::Relaxed);
    control.tick().expect("it answers");
    assert_eq!(shown(&control, "net").0, "online");
    stop(&control);
}

/// The address of the NVMe/TCP export is in use when the daemon starts.
#[test]
fn reservations_of_an_export_that_is_not_offered_can_be_ended() {
    let (mut control, _) = over_nbd();
    let address = control.export(&request()).listen;
    let wrong = ReleaseExportRequest { name: "other".into() };
    let refused = control.run(|m| m.release_export(&wrong));
    check_refused(refused, Usage, "strake export release tank");
    for end in [release, |control: &Control, name: &str| {
        let request = RemoveExportRequest { name: name.into(), force: false };
        control.run(|m| m.remove_export(&request)).expect("it goes");
    }] {
        let file = ledger(&control);
        reserve(&file);
        control.shut_down();
        let in_use = std::net::TcpListener::bind(&address).expect("its port is free");
        control.start();
        assert_eq!(shown(&control, "tank").0, "offline");
        assert_eq!(rights(&control), Rights::Read);
        end(&control, "tank");
        assert_eq!(rights(&control), Rights::All);
        assert!(file.read().expect("it can be read").is_none(), "they are recorded no more");
        drop(in_use);
    }
}
