//! Hosts that are disconnected by the operator: their queues close, their I/O completes, and other hosts continue.

mod common;

use common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, export, until};
use std::sync::Arc;
use std::thread;
use strake_dev_mem::{Effect, Ops, RamDevice, Rule};
use strake_export_nvmet::{Export, Removal, TargetConfig};
use strake_nvme_wire::{Sgl, Status, nqn};
use strake_units::BlockSize;

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:another";

fn drive() -> RamDevice {
    RamDevice::new(4096, BlockSize::B4096)
}

/// A machine that two hosts may use.
fn machine() -> Machine {
    let machine = Machine::set_up(Arc::new(drive()), TargetConfig::default());
    machine.target.remove_export(SUBSYSTEM, 1, Removal::Force).expect("it is there");
    let hosts = vec![HOST.to_owned(), OTHER.to_owned()];
    machine.target.add_export(&Export { hosts, ..export(Arc::new(drive())) }).expect("free");
    machine
}

/// A controller of a host with one I/O queue.
fn controller(machine: &Machine, host: &str) -> (Host, Host) {
    let mut admin = Host::asked_by(machine, host);
    let id = admin.connect_as((host, SUBSYSTEM), 0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut io = Host::asked_by(machine, host);
    io.connect_as((host, SUBSYSTEM), 1, id, 0).expect("an I/O queue");
    (admin, io)
}

/// The status of a Connect of a host to the subsystem.
fn connect(machine: &Machine, host: &str, subsystem: &str) -> Option<Status> {
    let mut admin = Host::asked_by(machine, host);
    admin.connect_as((host, subsystem), 0, 0xffff, 0).err().map(|_| admin.said)
}

/// The queues that are connected, of all hosts.
fn queues(machine: &Machine) -> usize {
    machine.target.controllers(SUBSYSTEM).iter().map(|host| host.queues.len()).sum()
}

#[test]
fn a_denied_host_is_disconnected_and_rejected_and_the_other_continues() {
    let machine = machine();
    let (mut admin, mut io) = controller(&machine, HOST);
    let (_other_admin, mut other) = controller(&machine, OTHER);
    assert_eq!(io.write(1, &[7; BLOCK]), 0);
    let denied = machine.target.set_hosts(SUBSYSTEM, &[OTHER.to_owned()]).expect("it is there");
    assert!(denied.wait(), "no I/O is in flight");
    assert_eq!(queues(&machine), 2, "those of the other host");
    assert!(io.pdu().is_none() && admin.pdu().is_none(), "both queues are closed");
    assert_eq!(other.read(1, 1), (vec![7; BLOCK], 0), "the other host continues");
    assert_eq!(connect(&machine, HOST, SUBSYSTEM), Some(Status::INVALID_HOST));
    assert_eq!(connect(&machine, HOST, nqn::DISCOVERY), Some(Status::INVALID_HOST));

    let both = [HOST.to_owned(), OTHER.to_owned()];
    assert!(machine.target.set_hosts(SUBSYSTEM, &both).expect("it is there").wait());
    assert_eq!(other.read(1, 1).1, 0, "the other host was not disconnected");
    let (_admin, mut io) = controller(&machine, HOST);
    assert_eq!(io.read(1, 1), (vec![7; BLOCK], 0), "the host may connect again");
    assert!(machine.target.set_hosts("nqn.2014-08.org.example:none", &both).is_none());
}

/// The next connect of the host requires its current secrets.
#[test]
fn a_disconnected_host_may_connect_again() {
    let machine = machine();
    let (mut admin, mut io) = controller(&machine, HOST);
    let (_other_admin, mut other) = controller(&machine, OTHER);
    assert!(machine.target.disconnect_host(HOST).expect("it is connected").wait());
    assert!(io.pdu().is_none() && admin.pdu().is_none(), "both queues are closed");
    assert_eq!(other.write(1, &[9; BLOCK]), 0, "the other host continues");
    assert!(machine.target.disconnect_host(HOST).is_none(), "it has no queue");
    let (_admin, mut io) = controller(&machine, HOST);
    assert_eq!(io.read(1, 1), (vec![9; BLOCK], 0));
}

/// After the wait, nothing of the host reaches the drive any more.
#[test]
fn the_wait_ends_with_the_last_io_of_the_host() {
    let (machine, plan) = Machine::planned(drive());
    let rule = plan.add(Rule::new(Ops::WRITE, Effect::Hang));
    let (_admin, mut io) = machine.controller();
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    io.send(1, sgl, &[(1, 1)], &[7; BLOCK]);
    until("the write is at the device", || plan.struck(rule) == Some(1));
    let gone = machine.target.disconnect_host(HOST).expect("it is connected");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| gone.wait());
        until("the admin queue is closed", || queues(&machine) == 1);
        assert!(!waiting.is_finished(), "a write is in flight");
        plan.release();
        assert!(waiting.join().expect("no panic"), "nothing is left");
    });
    assert_eq!(queues(&machine), 0);
}

/// A connection that began before the disconnect may have authenticated with a key that was replaced since.
#[test]
fn a_connection_in_progress_is_rejected_after_a_disconnect() {
    let machine = machine();
    let (mut early, mut late) = (Host::asked_by(&machine, HOST), Host::asked_by(&machine, OTHER));
    assert!(machine.target.disconnect_host(HOST).is_none(), "it has no queue");
    assert!(early.connect_as((HOST, SUBSYSTEM), 0, 0xffff, 0).is_err());
    assert_eq!(early.said, Status::INVALID_HOST);
    assert!(late.connect_as((OTHER, SUBSYSTEM), 0, 0xffff, 0).is_ok(), "another host may go on");
    let (_admin, mut io) = controller(&machine, HOST);
    assert_eq!(io.read(1, 1).1, 0, "a new connection is accepted");
}

/// The controller remains while a write is in flight, and its host connects one more queue.
#[test]
fn a_dismissed_controller_gets_no_further_queue() {
    let (machine, plan) = Machine::planned(drive());
    let rule = plan.add(Rule::new(Ops::WRITE, Effect::Hang));
    let mut admin = Host::asked(&machine);
    let id = admin.connect(0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut io = machine.queue(1, id);
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    io.send(1, sgl, &[(1, 1)], &[7; BLOCK]);
    until("the write is at the device", || plan.struck(rule) == Some(1));
    let gone = machine.target.disconnect_host(HOST).expect("it is connected");
    until("the admin queue is closed", || queues(&machine) == 1);
    let mut more = Host::asked(&machine);
    assert!(more.connect(2, id, 0).is_err(), "the controller is dismissed");
    plan.release();
    assert!(gone.wait(), "nothing is left");
}
