//! Two hosts that connect the drives of one target.

use super::life::{try_write, write};
use super::remote::{Machine, OTHER_HOST, connect, disconnect, is_whole, request, shown};
use super::{Testbed, check_refused, raid6, tick_until, unload};
use crate::control::Control;
use crate::error::ControlError;
use crate::error::ControlErrorKind::{Device, State};
use crate::upkeep::remotes::end_connecting;
use strake_api::v1::{ConnectDriveRequest, CreateArrayRequest, DriveChange};
use strake_dev_fabrics::ReservationMode;
use strake_units::Nanos;

/// Connects as the second host.
fn other(control: &Control, address: &str, take_over: bool) -> Result<DriveChange, ControlError> {
    let host_nqn = OTHER_HOST.to_owned();
    control.connect_drive(&ConnectDriveRequest { host_nqn, take_over, ..request(address) })
}

#[test]
fn f19_a_drive_is_used_by_one_host_until_another_takes_it_over() {
    let machine = Machine::new(4);
    let addresses = machine.addresses.clone();
    let (mut first, second) = (Testbed::new(), Testbed::new());
    for address in &addresses {
        connect(&first, address).expect("nobody has it");
    }
    // The array has copies: its members are taken over one after another, and a concurrent write may stop at any block.
    let create = CreateArrayRequest { level: "1".into(), ..raid6(addresses.clone()) };
    first.create_array(&create).expect("it is created");
    write(&first, "tank", 3);
    assert_eq!(shown(&first, &addresses[0]).reservation, "reserved");

    let refused = other(&second, &addresses[0], false);
    check_refused(refused, Device, "another host uses the drive");
    let known = second.with(|m| m.records.remotes.len()).expect("it answers");
    assert_eq!(known, 0, "what was refused is not remembered");
    write(&first, "tank", 4);

    for address in &addresses {
        let taken = other(&second, address, true).expect("whoever has it").drive;
        assert_eq!(taken.expect("it is told").reservation, "reserved");
    }
    tick_until(&first, "the first host hears of it", || {
        addresses.iter().all(|address| shown(&first, address).reservation == "taken_over")
    });
    let note = shown(&first, &addresses[0]).note;
    assert!(note.contains("another host may have written to it"), "{note}");
    assert!(try_write(&first, "tank", 5).is_err(), "the drives are another's");
    for take_over in [false, true] {
        let again = ConnectDriveRequest { take_over, ..request(&addresses[0]) };
        let refused = first.connect_drive(&again);
        check_refused(refused, State, "another host took over");
    }
    // A daemon that starts finds the drives taken over. The previous daemon cannot stop its array cleanly.
    let errors = first.stop();
    assert!(!errors.is_empty(), "its drives are another's");
    first.restart();
    tick_until(&first, "it is told why", || {
        shown(&first, &addresses[0]).note.contains("another host uses the drive")
    });

    // The first host connects the drives again that the second host released.
    for address in &addresses {
        let change = disconnect(&second, address).expect("nothing uses it");
        assert!(change.warnings.is_empty(), "{:?}", change.warnings);
    }
    tick_until(&first, "the array is there again", || is_whole(&first));
    write(&first, "tank", 6);
    first.unload_array(&unload("tank")).expect("nobody uses it");
}

#[test]
fn a_target_that_cannot_be_notified_is_reported() {
    let (mut machine, control) = Machine::connected(1);
    machine.control.shut_down();
    let warnings = disconnect(&control, &machine.addresses[0]).expect("nothing uses it").warnings;
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("--take-over"), "{}", warnings[0]);
}

/// The drive is forgotten while the thread that connects recorded drives connects it.
#[test]
fn a_drive_that_is_forgotten_while_it_is_connected_is_given_up() {
    let machine = Machine::new(1);
    let address = machine.addresses[0].as_str();
    let (first, second) = (Testbed::new(), Testbed::new());
    connect(&first, address).expect("nobody has it");
    let record = first.with(|m| m.records.remotes[0].clone()).expect("it answers");
    disconnect(&first, address).expect("nothing uses it");
    let late = || {
        let device = record.connect(ReservationMode::Claim, Nanos(0)).expect("nobody has it");
        first.with(|m| end_connecting(m, &record, Ok(device)))
    };
    late().expect("it answers");
    check_refused(other(&second, address, false), Device, "another host");
    tick_until(&first, "it is given up", || other(&second, address, false).is_ok());
    disconnect(&second, address).expect("nothing uses it");
    // A drive that is recorded again keeps its reservation.
    late().expect("it answers");
    connect(&first, address).expect("it is its own");
    first.tick().expect("it answers");
    check_refused(other(&second, address, false), Device, "another host");
}

/// The drive is not available because another host took it over. A connect over another path takes it over again.
#[test]
fn a_further_path_takes_a_drive_over() {
    let machine = Machine::new(1);
    let address = machine.addresses[0].as_str();
    let further = address.replace("127.0.0.1", "localhost");
    let (first, second) = (Testbed::new(), Testbed::new());
    connect(&first, address).expect("nobody has it");
    let record = first.with(|m| m.records.remotes[0].clone()).expect("it answers");
    disconnect(&first, address).expect("nothing uses it");
    other(&second, address, false).expect("nobody has it");
    first.run(|m| m.records.put_remote(&record)).expect("it is recorded");
    check_refused(connect(&first, &further), Device, "--take-over");
    let take_over = ConnectDriveRequest { take_over: true, ..request(&further) };
    first.connect_drive(&take_over).expect("whoever has it");
    assert_eq!(shown(&first, address).reservation, "reserved");
}
