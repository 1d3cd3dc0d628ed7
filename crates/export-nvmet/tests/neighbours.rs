//! A namespace whose device does not answer delays no other namespace of the same queue.

mod common;

use common::{BLOCK, BLOCKS, Host, Machine, SUBSYSTEM, code, export, until};
use std::collections::BTreeMap;
use std::sync::Arc;
use strake_block::BlockDevice;
use strake_dev_mem::{Effect, FaultPlan, Ops, RamDevice, Rule, RuleId};
use strake_export_nvmet::limits::TRANSFER_BYTES_MAX;
use strake_export_nvmet::{Export, PoolSizes, Removal, TargetConfig};
use strake_nvme_wire::nvm::{SOURCE_BYTES, SourceRange, opcode};
use strake_nvme_wire::reservation::opcode as reservation;
use strake_nvme_wire::{Sgl, Status};
use strake_units::BlockSize;

fn ram() -> RamDevice {
    RamDevice::new(BLOCKS, BlockSize::B4096)
}

/// Three namespaces; reads of the first one hang. Returns them with the queues of a host.
fn with_neighbours() -> (Machine, FaultPlan, RuleId, (Host, Host)) {
    let (machine, plan) = Machine::planned(ram());
    let rule = plan.add(Rule::new(Ops::READ, Effect::Hang));
    for namespace in 2..=3 {
        let device: Arc<dyn BlockDevice> = Arc::new(ram());
        let neighbour = Export { namespace, uuid: [namespace as u8; 16], ..export(device) };
        machine.target.add_export(&neighbour).expect("another namespace");
    }
    let hosts = machine.controller();
    (machine, plan, rule, hosts)
}

/// Sends a fused Compare and Write of the first block of a namespace.
fn send_pair(io: &mut Host, namespace: u32, old: u8, new: u8) -> [u16; 2] {
    let words = [(1, namespace)];
    let first = io.send_half(1, opcode::COMPARE, &words, &[old; BLOCK]);
    [first, io.send_half(2, opcode::WRITE, &words, &[new; BLOCK])]
}

/// The status words of two commands.
fn of(ended: &BTreeMap<u16, u16>, commands: [u16; 2]) -> [u16; 2] {
    commands.map(|cid| ended[&cid])
}

#[test]
fn a_comparison_that_hangs_holds_up_none_of_another_namespace() {
    let (_machine, plan, rule, (_admin, mut io)) = with_neighbours();
    let stuck = send_pair(&mut io, 1, 0, 1);
    until("it is compared", || plan.struck(rule) == Some(1));
    let behind = send_pair(&mut io, 1, 1, 2);
    let others = [2, 3].map(|namespace| send_pair(&mut io, namespace, 0, 1));
    let ended = io.endings(4);
    assert_eq!(others.map(|pair| of(&ended, pair)), [[0, 0]; 2]);
    plan.clear();
    plan.release();
    let ended = io.endings(4);
    assert_eq!([stuck, behind].map(|pair| of(&ended, pair)), [[0, 0]; 2], "in their order");
}

fn send_copy(io: &mut Host, namespace: u32, from: u64, to: u32) -> u16 {
    let sgl = Sgl::InCapsule { offset: 0, length: SOURCE_BYTES as u32 };
    let source = SourceRange { start: from, count: 1 }.bytes();
    io.send(opcode::COPY, sgl, &[(1, namespace), (10, to)], &source)
}

#[test]
fn a_copy_that_hangs_holds_up_none_of_another_namespace() {
    let (machine, plan, rule, (_admin, mut io)) = with_neighbours();
    let stuck = send_copy(&mut io, 1, 0, 1);
    until("it is read", || plan.struck(rule) == Some(1));
    let behind = send_copy(&mut io, 1, 1, 2);
    let others = [2, 3].map(|namespace| send_copy(&mut io, namespace, 0, 1));
    let ended = io.endings(2);
    assert_eq!(of(&ended, others), [0, 0]);
    assert_eq!(machine.target.exports()[0].effects, 0, "one after another of a namespace");
    plan.clear();
    plan.release();
    let ended = io.endings(2);
    assert_eq!(of(&ended, [stuck, behind]), [0, 0]);
    // Copies that wait for another one are not started after the removal of their namespace.
    let rule = plan.add(Rule::new(Ops::READ, Effect::Hang));
    let stuck = send_copy(&mut io, 1, 0, 1);
    until("it is read", || plan.struck(rule) == Some(1));
    let behind = send_copy(&mut io, 1, 1, 2);
    assert_eq!(io.write(0, &[1; BLOCK]), 0, "both are taken in");
    machine.target.detach_device(SUBSYSTEM, 1);
    let gone = code(Status::INACCESSIBLE);
    until("the queue knows", || io.write(0, &[1; BLOCK]) == gone);
    plan.release();
    let ended = io.endings(2);
    assert_eq!(of(&ended, [stuck, behind]), [gone; 2]);
    assert_eq!(plan.struck(rule), Some(1));
}

/// A Reservation Report that waited for memory during the removal of its namespace reported no reservations.
#[test]
fn a_report_of_a_namespace_that_went_meanwhile_says_so() {
    const LARGEST: u32 = TRANSFER_BYTES_MAX;
    // The pool of the core has almost no buffers: two commands of the largest size take all buffers of a queue.
    let stock = PoolSizes { small_buffers: 1, large_buffers: 1, ..TargetConfig::default().stock };
    let config = TargetConfig { stock, ..TargetConfig::default() };
    let (machine, plan) = Machine::planned_with(ram(), config);
    plan.add(Rule::new(Ops::READ, Effect::Hang));
    let second = Export { namespace: 2, uuid: [2; 16], ..export(Arc::new(ram())) };
    machine.target.add_export(&second).expect("a second namespace");
    let (_admin, mut io) = machine.controller();
    let room = Sgl::Transport { length: LARGEST };
    let blocks = LARGEST / BLOCK as u32;
    for _ in 0..2 {
        io.send(opcode::READ, room, &[(1, 1), (12, blocks - 1)], &[]);
    }
    let words = [(1, 2), (10, LARGEST / 4 - 1), (11, 1)];
    io.send(reservation::REPORT, room, &words, &[]);
    assert_eq!(flush(&mut io), 0, "all of it is taken in");
    machine.target.remove_export(SUBSYSTEM, 2, Removal::Force).expect("nothing is at its device");
    plan.clear();
    plan.release();
    for _ in 0..2 {
        assert_eq!(io.finish().2, 0, "a read");
    }
    let gone = code(Status::INVALID_NAMESPACE);
    assert_eq!(io.finish(), (vec![], 0, gone));
}

fn flush(io: &mut Host) -> u16 {
    io.send(opcode::FLUSH, Sgl::Transport { length: 0 }, &[(1, 1)], &[]);
    io.finish().2
}
