//! The number of queues that hosts get in a subsystem.

mod common;

use common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, export, until};
use std::sync::Arc;
use strake_dev_mem::RamDevice;
use strake_export_nvmet::limits::{CONNECTIONS_PER_HOST_MAX, QUEUES_MAX};
use strake_export_nvmet::{Export, Removal, TargetConfig};
use strake_nvme_wire::{Sgl, Status, feature};
use strake_units::BlockSize;

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:another";

/// A controller of a host: its admin queue, its ID, and the number of I/O queues that it is granted if it requests the
/// maximum.
fn controller(machine: &Machine, host: &str) -> (Host, u16, u16) {
    let mut admin = Host::asked_by(machine, host);
    let id = admin.connect_as((host, SUBSYSTEM), 0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let asked = feature::queues_asked(QUEUES_MAX);
    admin.send(9, Sgl::Transport { length: 0 }, &[(10, 7), (11, asked)], &[]);
    let (_, granted, status) = admin.finish();
    assert_eq!(status, 0, "Number of Queues");
    admin.send(0xa, Sgl::Transport { length: 0 }, &[(10, 7)], &[]);
    assert_eq!(admin.finish().1, granted, "it is what the feature says from now on");
    (admin, id, feature::queues_of(granted as u32) as u16)
}

/// Connects a queue; returns the status on a failure.
fn queue(machine: &Machine, host: &str, number: u16, id: u16) -> Result<Host, Status> {
    let mut io = Host::asked_by(machine, host);
    match io.connect_as((host, SUBSYSTEM), number, id, 0) {
        Ok(_) => Ok(io),
        Err(_) => Err(io.said),
    }
}

/// A host can connect all queues that it was granted, and one host leaves room for another.
#[test]
fn what_is_granted_is_there_and_no_host_has_all() {
    let connection_slots = CONNECTIONS_PER_HOST_MAX + u32::from(QUEUES_MAX) + 1 + 13;
    let config =
        TargetConfig { connections_per_export_max: connection_slots, ..TargetConfig::default() };
    let machine = Machine::set_up(Arc::new(RamDevice::new(16, BlockSize::B4096)), config);
    machine.target.remove_export(SUBSYSTEM, 1, Removal::Force).expect("it is there");
    let device = Arc::new(RamDevice::new(16, BlockSize::B4096));
    let hosts = vec![HOST.to_owned(), OTHER.to_owned()];
    machine.target.add_export(&Export { hosts, ..export(device) }).expect("the name is free");
    let mut kept = Vec::new();
    let mut connect_all = |host: &str, expected: u16| {
        let (admin, id, granted) = controller(&machine, host);
        assert_eq!(granted, expected);
        kept.push(admin);
        kept.extend((1..=granted).map(|number| {
            queue(&machine, host, number, id).unwrap_or_else(|why| panic!("queue {number}: {why}"))
        }));
        id
    };
    connect_all(HOST, QUEUES_MAX);
    connect_all(HOST, QUEUES_MAX);
    let mut third = Host::asked(&machine);
    third.connect(0, 0xffff, 0).expect_err("one host has all that it may have");
    assert_eq!(third.said, Status::BUSY);

    connect_all(OTHER, QUEUES_MAX);
    let id = connect_all(OTHER, 12);
    let more = queue(&machine, OTHER, 13, id);
    assert_eq!(more.err(), Some(Status::BUSY), "there is no seat");
}

/// A host that reconnects gets a retryable status while its old connection is being closed.
#[test]
fn a_queue_that_is_taken_can_be_asked_for_again() {
    let machine = Machine::start();
    let (_admin, id, _) = controller(&machine, HOST);
    let old = queue(&machine, HOST, 1, id).expect("an I/O queue");
    let refused = queue(&machine, HOST, 1, id).err().expect("the number is taken");
    assert_eq!((refused.code(), refused.is_final()), (0x0c, false));
    drop(old);
    let mut again = queue(&machine, HOST, 1, id);
    until("it is free", || {
        again.is_ok() || {
            again = queue(&machine, HOST, 1, id);
            false
        }
    });
    assert_eq!(again.expect("it was seen").write(0, &[1; BLOCK]), 0);
}
