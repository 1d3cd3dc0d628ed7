//! Host identifiers belong to one host name: another name gets no rights from them.

use crate::common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, code, until};
use crate::kept::{Book, with_book};
use crate::{CONFLICT, KEPT, act, ask_of, controller_as, ram, register, registrants};
use std::sync::Arc;
use strake_export_nvmet::{Export, Reason, TargetConfig};
use strake_nvme_wire::nvm::opcode as nvm;
use strake_nvme_wire::reservation::{Acquire, Action, Persistence, ReservationType as T};
use strake_nvme_wire::{Sgl, Status};
use strake_units::Nanos;

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:other-host";
const TAKE: Action = Action::Acquire(Acquire::Free, T::ExclusiveAccess);
const REFUSED: u16 = code(Status::INVALID_PARAMETERS);

fn both() -> Vec<String> {
    vec![HOST.to_owned(), OTHER.to_owned()]
}

/// A machine whose subsystem two hosts may use.
fn machine() -> Machine {
    let machine = Machine::set_up(ram(), TargetConfig::default());
    assert!(machine.target.set_hosts(SUBSYSTEM, &both()).expect("it is there").wait());
    machine
}

/// The outcome of a Connect of an admin queue: the status word, and the result of the completion.
fn connect(machine: &Machine, nqn: &str, id: u8) -> (u16, u64, Host) {
    let mut admin = Host::asked(machine);
    admin.id = id;
    admin.send_connect((nqn, SUBSYSTEM), 0, 0xffff, 0);
    let (_, result, status) = admin.finish();
    (status, result, admin)
}

/// The status of a read from the second namespace.
fn read_second(io: &mut Host) -> u16 {
    io.send(nvm::READ, Sgl::Transport { length: BLOCK as u32 }, &[(1, 2)], &[]);
    io.finish().2
}

/// The identifier of the holder is in every Reservation Report. Another host used it and had the rights of the holder.
#[test]
fn a_host_cannot_connect_with_the_identifier_of_a_connected_host() {
    let machine = machine();
    let (admin, mut io) = controller_as(&machine, (HOST, SUBSYSTEM), 7);
    register(&mut io, 1);
    assert_eq!(act(&mut io, TAKE, 1, 0), 0);

    // The result names the data of Connect, and the offset of the identifier.
    let (status, result, _) = connect(&machine, OTHER, 7);
    assert_eq!((status, result), (REFUSED, 1 << 16));
    let [rejection] = &machine.target.take_rejections(Nanos(1))[..] else { panic!("one") };
    assert_eq!((rejection.reason, rejection.host.as_str()), (Reason::IdInUse, OTHER));

    let _again = controller_as(&machine, (HOST, SUBSYSTEM), 7);
    let _second_identifier = controller_as(&machine, (HOST, SUBSYSTEM), 8);
    let _other = controller_as(&machine, (OTHER, SUBSYSTEM), 9);
    drop((admin, io));
}

/// The registration outlasts the connections of its host.
#[test]
fn a_host_cannot_connect_with_the_identifier_of_a_registrant_until_it_is_cleared() {
    let machine = machine();
    let (admin, mut io) = controller_as(&machine, (HOST, SUBSYSTEM), 7);
    register(&mut io, 1);
    drop((admin, io));
    until("the host is gone", || machine.target.exports()[0].connections == 0);
    assert_eq!(connect(&machine, OTHER, 7).0, REFUSED);
    let (_admin, mut io) = controller_as(&machine, (HOST, SUBSYSTEM), 7);
    assert_eq!(registrants(&mut io, 1).1, [(7, 1, 0)], "the host has its registration");
    drop((_admin, io));
    until("the host is gone", || machine.target.exports()[0].connections == 0);
    // This is the remedy for a host with a new name.
    machine.target.clear_reservations(SUBSYSTEM, 1).expect("an operator clears them");
    assert_eq!(connect(&machine, OTHER, 7).0, 0);
}

/// The record of a namespace is read when its array starts, which may follow the Connect of the other host.
#[test]
fn a_host_that_connected_before_the_record_was_read_gets_no_rights_of_its_registrant() {
    let book = Arc::new(Book::default());
    {
        let machine = machine();
        let with_both = Export { hosts: both(), ..with_book(ram(), &book) };
        machine.target.add_export(&with_both).expect("a second namespace");
        let (_admin, mut io) = controller_as(&machine, (HOST, SUBSYSTEM), 7);
        ask_of(&mut io, 2, Action::Register(Persistence::On), 0, 1);
        assert_eq!(io.finish().2, 0);
        ask_of(&mut io, 2, TAKE, 1, 0);
        assert_eq!(io.finish().2, 0);
    }
    let machine = machine();
    let (_admin, mut io) = controller_as(&machine, (OTHER, SUBSYSTEM), 7);
    let restored = Export { hosts: both(), ..with_book(ram(), &book) };
    machine.target.add_export(&restored).expect("a second namespace");
    assert_eq!(read_second(&mut io), CONFLICT, "the holder is the host of the other name");
    ask_of(&mut io, 2, Action::Register(KEPT), 0, 1);
    assert_eq!(io.finish().2, CONFLICT, "nor is it a registrant");
    // A new connect is rejected, and the recorded host has its rights.
    drop((_admin, io));
    until("the host is gone", || machine.target.exports()[0].connections == 0);
    assert_eq!(connect(&machine, OTHER, 7).0, REFUSED);
    let (_admin, mut io) = controller_as(&machine, (HOST, SUBSYSTEM), 7);
    assert_eq!(read_second(&mut io), 0);
}

/// Hosts without an identifier cannot register, so they exclude no other host.
#[test]
fn the_identifier_zero_belongs_to_no_host() {
    let machine = machine();
    let (_admin, mut io) = controller_as(&machine, (HOST, SUBSYSTEM), 0);
    let _other = controller_as(&machine, (OTHER, SUBSYSTEM), 0);
    assert_eq!(act(&mut io, Action::Register(KEPT), 0, 1), code(Status::INVALID_FIELD));
}
