//! Write Zeroes and deallocations: a few bytes order much work, so a host has only a part of it at a device.

mod common;

use common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, code, export, until};
use std::sync::Arc;
use strake_block::BlockDevice;
use strake_dev_mem::{Effect, FaultPlan, Ops, RamDevice, Rule, RuleId};
use strake_export_nvmet::limits::EFFECT_BYTES_MAX;
use strake_export_nvmet::{Export, TargetConfig};
use strake_nvme_wire::nvm::{RANGE_BYTES, Range, opcode};
use strake_nvme_wire::{Sgl, Status};
use strake_units::{BlockSize, CoreIndex};

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:another";
/// Blocks of the largest Write Zeroes.
const PART: u32 = (EFFECT_BYTES_MAX / BLOCK as u64) as u32;

fn drive() -> RamDevice {
    RamDevice::new(8 * u64::from(PART), BlockSize::B4096)
}

/// A machine for two hosts, on whose drive Write Zeroes and deallocations hang until they are released. A second
/// namespace does not hang.
fn machine() -> (Machine, FaultPlan, RuleId) {
    let (machine, plan) = Machine::planned(drive());
    let hosts = vec![HOST.to_owned(), OTHER.to_owned()];
    assert!(machine.target.set_hosts(SUBSYSTEM, &hosts).expect("it is there").wait());
    let device: Arc<dyn BlockDevice> = Arc::new(drive());
    let second = Export { namespace: 2, uuid: [2; 16], hosts, ..export(device) };
    machine.target.add_export(&second).expect("a second namespace");
    let rule = plan.add(Rule::new(Ops::ZEROES.and(Ops::DEALLOCATE), Effect::Hang));
    (machine, plan, rule)
}

/// A controller of a host with `count` I/O queues on this core.
fn queues(machine: &Machine, host: &str, core: CoreIndex, count: usize) -> (Vec<Host>, Vec<Host>) {
    let mut admin = Host::asked_by(machine, host);
    let id = admin.connect_as((host, SUBSYSTEM), 0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let (mut others, mut here) = (vec![admin], Vec::new());
    while here.len() < count {
        let mut io = Host::asked_by(machine, host);
        let number = (others.len() + here.len()) as u16;
        io.connect_as((host, SUBSYSTEM), number, id, 0).expect("an I/O queue");
        let from = io.stream.local_addr().ok();
        let known = machine.target.controllers(SUBSYSTEM).into_iter().flat_map(|c| c.queues);
        let facts = known.map(|queue| queue.facts).find(|facts| facts.from == from);
        let is_here = facts.expect("it is connected").core == core;
        if is_here { here.push(io) } else { others.push(io) }
    }
    (others, here)
}

fn send_zeroes(io: &mut Host, namespace: u32, blocks: u32) -> u16 {
    io.send(
        opcode::WRITE_ZEROES,
        Sgl::Transport { length: 0 },
        &[(1, namespace), (12, blocks - 1)],
        &[],
    )
}

fn send_deallocation(io: &mut Host, parts: u32) -> u16 {
    let sgl = Sgl::InCapsule { offset: 0, length: RANGE_BYTES as u32 };
    let range = Range { start: 0, count: parts * PART };
    io.send(opcode::DATASET_MANAGEMENT, sgl, &[(1, 1), (11, 1 << 2)], &range.bytes())
}

/// True if the queue has taken in everything: it answers a read of the second namespace.
fn has_taken_in(io: &mut Host) -> bool {
    io.send(opcode::READ, Sgl::Transport { length: BLOCK as u32 }, &[(1, 2)], &[]);
    io.finish().2 == 0
}

/// A queue of a host had 127 Write Zeroes of 64 MiB at the device, and so had its other queues.
#[test]
fn a_host_has_few_bytes_of_zeroes_at_a_device() {
    let (machine, plan, rule) = machine();
    let core = CoreIndex(0);
    let (_admin, mut own) = queues(&machine, HOST, core, 2);
    let (_other_admin, mut others) = queues(&machine, OTHER, core, 1);
    for io in &mut own {
        for _ in 0..8 {
            send_zeroes(io, 1, PART);
        }
        send_deallocation(io, 4);
        assert!(has_taken_in(io));
    }
    assert_eq!(plan.struck(rule), Some(1), "one command of the largest size, of all its queues");
    let theirs = send_zeroes(&mut others[0], 1, 1);
    until("another host has its own budget", || plan.struck(rule) == Some(2));
    assert_eq!(own[0].write(0, &[1; BLOCK]), 0, "other commands of the host continue");
    plan.clear();
    plan.release();
    assert_eq!(others[0].endings(1)[&theirs], 0);
    for io in &mut own {
        assert!(io.endings(9).values().all(|status| *status == 0), "all are executed");
    }
}

/// Short commands start together, and none of them keeps a long one waiting.
#[test]
fn short_commands_share_a_budget() {
    let (machine, plan, rule) = machine();
    let (_admin, mut own) = queues(&machine, HOST, CoreIndex(0), 1);
    for _ in 0..16 {
        send_zeroes(&mut own[0], 1, 1);
    }
    send_zeroes(&mut own[0], 1, PART);
    until("all have started", || plan.struck(rule) == Some(17));
    send_zeroes(&mut own[0], 1, 1);
    assert!(has_taken_in(&mut own[0]));
    assert_eq!(plan.struck(rule), Some(17), "the budget is exhausted");
    plan.clear();
    plan.release();
    assert!(own[0].endings(18).values().all(|status| *status == 0));
}

/// A deallocation of many parts takes turns with the other queues of its host.
#[test]
fn a_long_deallocation_lets_another_queue_of_its_host_start() {
    let (machine, plan, rule) = machine();
    let (_admin, mut own) = queues(&machine, HOST, CoreIndex(0), 2);
    let long = send_deallocation(&mut own[0], 8);
    until("its first part is at the device", || plan.struck(rule) == Some(1));
    let short = send_zeroes(&mut own[1], 1, PART);
    assert!(has_taken_in(&mut own[1]));
    assert_eq!(plan.struck(rule), Some(1));
    // Every release lets one I/O complete, and the next one hang.
    for struck in 2..=3 {
        plan.release();
        until("the next one is at the device", || plan.struck(rule) == Some(struck));
    }
    assert_eq!(own[1].endings(1)[&short], 0, "it was the second or third of nine");
    plan.clear();
    plan.release();
    assert_eq!(own[0].endings(1)[&long], 0);
}

/// A device that does not answer delays no change at another device.
#[test]
fn each_device_has_a_budget() {
    let (machine, plan, rule) = machine();
    let (_admin, mut own) = queues(&machine, HOST, CoreIndex(0), 1);
    for _ in 0..2 {
        send_zeroes(&mut own[0], 1, PART);
    }
    until("the budget is exhausted", || plan.struck(rule) == Some(1));
    let second = send_zeroes(&mut own[0], 2, PART);
    assert_eq!(own[0].endings(1)[&second], 0);
    plan.clear();
    plan.release();
    assert_eq!(own[0].endings(2).len(), 2);
}

/// Commands that wait for the budget end when their device is removed, and a host that leaves returns its budget.
#[test]
fn waiting_commands_end_with_their_device_and_with_their_host() {
    let (machine, plan, _) = machine();
    let (admins, mut own) = queues(&machine, HOST, CoreIndex(0), 2);
    for io in &mut own {
        for _ in 0..4 {
            send_zeroes(io, 1, PART);
        }
        send_deallocation(io, 4);
        assert!(has_taken_in(io));
    }
    drop(own.remove(1));
    until("one queue is gone", || {
        machine.target.controllers(SUBSYSTEM)[0].queues.len() == admins.len() + 1
    });
    let leaving = machine.target.detach_device(SUBSYSTEM, 1);
    let ended = own[0].endings(4);
    assert!(ended.values().all(|status| *status == code(Status::INACCESSIBLE)), "{ended:?}");
    plan.clear();
    plan.release();
    assert_eq!(own[0].finish().2, 0, "it was at the device");
    assert!(leaving.is_over(TargetConfig::default().drain_time_max));

    let hosts = vec![HOST.to_owned(), OTHER.to_owned()];
    machine.target.keep_instance(SUBSYSTEM, 1);
    machine.target.add_export(&Export { hosts, ..export(Arc::new(drive())) }).expect("again");
    until("it has the device", || {
        let cid = send_zeroes(&mut own[0], 1, PART);
        own[0].endings(1)[&cid] == 0
    });
}
