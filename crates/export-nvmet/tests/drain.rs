//! Commands in flight when an export is removed or the target stops: they complete, and nothing further is started.

mod common;

use common::faults::{Released, while_it_goes};
use common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, code, export, until};
use std::thread;
use std::time::Duration;
use strake_dev_mem::{Effect, FaultPlan, Ops, RamDevice, Rule, RuleId};
use strake_export_nvmet::Export;
use strake_nvme_wire::nvm::{RANGE_BYTES, Range};
use strake_nvme_wire::{Cqe, Sgl, Status, nqn};
use strake_units::BlockSize;

/// Blocks of a drive whose deallocation takes many parts.
const BLOCKS: u64 = 1 << 20;

fn drive() -> RamDevice {
    RamDevice::new(BLOCKS, BlockSize::B4096)
}

/// A machine on whose drives these operations hang until they are released.
fn hanging(ops: Ops) -> (Machine, FaultPlan, RuleId) {
    let (machine, plan) = Machine::planned(drive());
    let rule = plan.add(Rule::new(ops, Effect::Hang));
    (machine, plan, rule)
}

/// Deallocates these blocks.
fn deallocate(io: &mut Host, namespace: u32, range: Range) {
    let sgl = Sgl::InCapsule { offset: 0, length: RANGE_BYTES as u32 };
    io.send(9, sgl, &[(1, namespace), (10, 0), (11, 1 << 2)], &range.bytes());
}

/// A controller whose I/O queue has a write in flight at the device of a machine.
fn writing(machine: &Machine, plan: &FaultPlan, rule: RuleId) -> (Host, Host) {
    let (admin, mut io) = machine.controller();
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    io.send(1, sgl, &[(1, 1)], &[7; BLOCK]);
    until("the write is at the device", || plan.struck(rule) == Some(1));
    (admin, io)
}

/// A caller that detaches the device of a namespace waits for commands in flight, and these succeed.
#[test]
fn a_device_that_is_detached_is_over_when_its_last_command_is() {
    let (machine, plan, rule) = hanging(Ops::WRITE);
    let (_admin, mut io) = writing(&machine, &plan, rule);
    let leaving = machine.target.detach_device(SUBSYSTEM, 1);
    assert!(!leaving.is_over(Duration::ZERO), "a write is in flight");
    plan.release();
    assert_eq!(io.finish().2, 0, "it was done");
    assert!(leaving.is_over(Duration::from_secs(60)), "nothing is left");
}

/// A command of many I/Os ends with the current one: otherwise the removal of a namespace would take hours.
#[test]
fn a_deallocation_does_not_go_on_at_a_device_that_goes() {
    let (machine, plan, rule) = hanging(Ops::DEALLOCATE);
    let second = Export { namespace: 2, uuid: [2; 16], ..export(machine.planned_drive(drive())) };
    machine.target.add_export(&second).expect("a second namespace");
    let (_admin, mut io) = machine.controller();
    deallocate(&mut io, 2, Range { start: 0, count: BLOCKS as u32 });
    until("its first part is at the device", || plan.struck(rule) == Some(1));
    while_it_goes(&machine, 2, || {
        until("the queue knows that the device goes", || {
            io.send(2, Sgl::Transport { length: BLOCK as u32 }, &[(1, 2)], &[]);
            io.finish().2 == code(Status::INACCESSIBLE)
        });
        plan.release();
        assert_eq!(io.finish().2, code(Status::INACCESSIBLE), "it did not do all");
    });
    assert_eq!(plan.struck(rule), Some(1), "no other part was begun");
}

/// The same holds for the whole subsystem; and a deallocation that was fully executed succeeds.
#[test]
fn a_deallocation_that_was_done_is_answered_so_when_its_subsystem_goes() {
    for (count, expected) in [(1, 0), (BLOCKS as u32, code(Status::INACCESSIBLE))] {
        let (machine, plan, rule) = hanging(Ops::DEALLOCATE);
        let (mut admin, mut io) = machine.controller();
        deallocate(&mut io, 1, Range { start: 0, count });
        until("it is at the device", || plan.struck(rule) == Some(1));
        while_it_goes(&machine, 1, || {
            assert!(admin.pdu().is_none(), "the admin queue has nothing to wait for");
            until("the controller is over", || machine.target.exports()[0].connections == 1);
            plan.release();
            assert_eq!(io.finish().2, expected, "{count} blocks");
            assert!(io.pdu().is_none(), "nothing follows");
        });
    }
}

/// The admin queue is closed at once, because it has no I/O in flight. The write still completes.
#[test]
fn a_write_is_answered_when_its_subsystem_goes() {
    let (machine, plan, rule) = hanging(Ops::WRITE);
    let (mut admin, mut io) = writing(&machine, &plan, rule);
    while_it_goes(&machine, 1, || {
        assert!(admin.pdu().is_none(), "the admin queue is closed");
        until("the controller is over", || machine.target.exports()[0].connections == 1);
        plan.release();
        assert_eq!(io.finish().2, 0, "it was written");
        assert!(io.pdu().is_none(), "nothing follows");
    });
}

/// A disconnecting host may next write the same blocks through another queue: its Disconnect completes when none of its
/// writes can overwrite those.
#[test]
fn a_host_that_leaves_hears_so_when_its_last_command_is_over() {
    let (machine, plan, rule) = hanging(Ops::WRITE);
    let (_admin, mut io) = machine.controller();
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    let write = io.send(1, sgl, &[(1, 1)], &[7; BLOCK]);
    until("the write is at the device", || plan.struck(rule) == Some(1));
    let leave = io.send(0x7f, Sgl::Transport { length: 0 }, &[(1, 8)], &[]);
    until("it was taken", || machine.target.controllers(SUBSYSTEM)[0].queues[1].counts.others == 1);
    plan.release();
    for cid in [write, leave] {
        let pdu = io.pdu().expect("the connection stays");
        let ended = Cqe::parse(&pdu.header[..].try_into().expect("a completion"));
        assert_eq!((pdu.kind, ended.cid), (5, cid));
        assert!(ended.status.is_success());
    }
    assert!(io.pdu().is_none(), "that was the last");
}

/// Base, section 6.4: Disconnect deletes one I/O queue. The controller reports that it supports the command.
#[test]
fn disconnect_closes_one_queue_whose_number_is_then_free() {
    let machine = Machine::start();
    let (mut admin, mut io) = machine.controller();
    let id = machine.target.controllers(SUBSYSTEM)[0].id;
    let mut second = machine.queue(2, id);
    let length = 4096;
    admin.send(6, Sgl::Transport { length }, &[(10, 1)], &[]);
    assert_eq!(admin.finish().0[1804..1806], [1, 0], "OFCS");

    let none = Sgl::Transport { length: 0 };
    let disconnect = |host: &mut Host, format| {
        host.send(0x7f, none, &[(1, 8), (10, format)], &[]);
        host.finish().2
    };
    assert_eq!(disconnect(&mut admin, 0), code(Status::INVALID_QUEUE), "not an admin queue");
    assert_eq!(disconnect(&mut second, 1), code(Status::INCOMPATIBLE_FORMAT));
    assert_eq!(disconnect(&mut second, 0), 0);
    assert!(second.pdu().is_none(), "the connection is closed");
    let mut again = None;
    until("the number is free", || {
        let mut host = Host::asked(&machine);
        let connected = host.connect(2, id, 0).is_ok();
        again = connected.then_some(host);
        connected
    });
    assert_eq!(again.map(|mut host| host.write(0, &[1; BLOCK])), Some(0));
    assert_eq!(io.read(0, 1), (vec![1; BLOCK], 0), "the other queue continues");
    admin.send(0x18, none, &[], &[]);
    assert_eq!(admin.finish().2, 0, "Keep Alive");
}

/// A discovery controller has no I/O queue to disconnect.
#[test]
fn a_discovery_controller_does_not_report_disconnect() {
    let machine = Machine::start();
    let mut host = Host::asked(&machine);
    host.connect_as((HOST, nqn::DISCOVERY), 0, 0xffff, 0).expect("discovery");
    host.enable();
    host.send(6, Sgl::Transport { length: 4096 }, &[(10, 1)], &[]);
    assert_eq!(host.finish().0[1804..1806], [0, 0], "OFCS");
}

#[test]
fn a_write_is_answered_when_the_target_stops() {
    let (machine, plan, rule) = hanging(Ops::WRITE);
    let (mut admin, mut io) = writing(&machine, &plan, rule);
    thread::scope(|scope| {
        let _released = Released(plan.clone());
        let stop = scope.spawn(|| drop(machine));
        assert!(admin.pdu().is_none(), "the admin queue is closed");
        plan.release();
        assert_eq!(io.finish().2, 0, "it was written");
        assert!(io.pdu().is_none(), "nothing follows");
        stop.join().expect("no panic");
    });
}
