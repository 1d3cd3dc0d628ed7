//! Exports whose address is in use when they must be offered.

use std::net::TcpListener;
use std::time::Instant;

use strake_api::v1::CreateExportRequest;

use super::{Testbed, check_refused, exports};
use crate::commands::exports::{RETRY, retry_exports};
use crate::error::ControlErrorKind::State;

/// An array with an export, after a restart during which another program uses the address of the export.
fn address_in_use() -> (Testbed, TcpListener, CreateExportRequest) {
    let (mut control, _) = Testbed::raid6(4);
    let request = CreateExportRequest {
        array: "tank".into(),
        via: "nbd".into(),
        listen: "127.0.0.1:0".into(),
        ..CreateExportRequest::default()
    };
    let listen = control.export(&request).listen;
    control.shut_down();
    let other = TcpListener::bind(&listen).expect("the export released it");
    control.start();
    assert_eq!(exports(&control)[0].state, "offline");
    assert_eq!(control.reported("export_offline").len(), 1);
    (control, other, CreateExportRequest { listen, ..request })
}

#[test]
fn an_export_is_offered_when_its_address_is_free() {
    let (control, other, _) = address_in_use();
    let mut now = Instant::now();
    let mut retry = || {
        now += RETRY;
        control.with(|m| retry_exports(m, now)).expect("it answers");
        exports(&control)[0].state.clone()
    };
    assert_eq!(retry(), "offline");
    drop(other);
    assert_eq!(retry(), "online");
    assert_eq!(retry(), "online");
    assert_eq!(control.reported("export_offline").len(), 1, "once");
    assert_eq!(control.reported("export_online").len(), 1, "once");
}

#[test]
fn the_same_request_offers_an_export_at_once() {
    let (control, other, request) = address_in_use();
    check_refused(control.run(|m| m.create_export(&request)), State, "in use");
    drop(other);
    let change = control.run(|m| m.create_export(&request)).expect("the address is free");
    assert_eq!(change.result, "changed");
    assert_eq!(change.export.expect("it is shown").state, "online");
    assert_eq!(control.run(|m| m.create_export(&request)).expect("as it is").result, "unchanged");
}
