//! What reservations of one export of an array leave to the clients of another.

use std::sync::Arc;

use strake_api::v1::{CreateExportRequest, ReleaseExportRequest};
use strake_export_nbd::{Removal, Rights};
use strake_export_nvmet::{Held, Ledger, Registrant, ReservationType, Reservations};

use super::Testbed;
use super::nvme::{HOST, request};
use crate::commands::exports::offer_recorded_exports;
use crate::control::Control;

fn rights(control: &Control, array: &str) -> Rights {
    control.with(|m| m.exports.rights_of(array, &m.records).get()).expect("it answers")
}

/// A host reserves the array, the daemon starts again, and the operator ends the reservation.
#[test]
fn nbd_clients_obey_reservations_of_hosts() {
    let (mut control, _) = Testbed::raid6(4);
    let socket = format!("unix:{}", control.path("nbd").display());
    let nbd = CreateExportRequest {
        array: "tank".into(),
        via: "nbd".into(),
        listen: socket,
        name: "other".into(),
        ..CreateExportRequest::default()
    };
    control.run(|m| m.create_export(&nbd)).expect("it is offered");
    control.export(&request());
    let record = control.with(|m| m.records.exports[1].clone()).expect("two exports");
    assert_eq!(rights(&control, &record.array), Rights::All);

    let registrants = vec![Registrant { host: [1; 16], name: HOST.into(), key: 1 }];
    let held = Some(Held { kind: ReservationType::WriteExclusive, holder: Some([1; 16]) });
    let reserved = Reservations { persists: true, registrants, held, ..Reservations::default() };
    let file = control.with(|m| Arc::new(m.records.ledger_of(&record))).expect("it answers");
    file.write(Some(&reserved)).expect("it can be written");
    // NBD clients come first in the order of the records, and find what is recorded.
    control.stop();
    control.restart();
    assert_eq!(rights(&control, &record.array), Rights::Read);

    let release = ReleaseExportRequest { name: "tank".into() };
    control.run(|m| m.release_export(&release)).expect("the operator may");
    assert_eq!(rights(&control, &record.array), Rights::All);

    // An export that is removed reserves nothing.
    file.write(Some(&reserved)).expect("it can be written");
    let offer_again = |m: &mut crate::manager::Manager| {
        m.exports.withdraw(&record, Removal::Force)?;
        offer_recorded_exports(m, &record.array);
        Ok(())
    };
    control.run(offer_again).expect("it goes on");
    assert_eq!(rights(&control, &record.array), Rights::Read);
    control.remove_export("tank");
    assert_eq!(rights(&control, &record.array), Rights::All);

    // What cannot be read may reserve the array.
    control.export(&request());
    control.stop();
    let path = control.path("state").join(format!("reservations/{}.json", record.array));
    std::fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
    std::fs::write(&path, "{").expect("it can be written");
    control.restart();
    assert_eq!(rights(&control, &record.array), Rights::Nothing);
}
