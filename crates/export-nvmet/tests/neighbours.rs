//! A namespace whose device does not answer holds up no other one of the same queue.

mod common;

use common::{BLOCK, BLOCKS, Host, Machine, export, until};
use std::collections::BTreeMap;
use std::sync::Arc;
use strake_block::BlockDevice;
use strake_dev_mem::{Effect, FaultPlan, Faulty, Ops, RamDevice, Rule, RuleId};
use strake_export_nvmet::Export;
use strake_nvme_wire::nvm::{SOURCE_BYTES, SourceRange, opcode};
use strake_nvme_wire::{Sgl, Status};
use strake_units::BlockSize;

fn ram() -> RamDevice {
    RamDevice::new(BLOCKS, BlockSize::B4096)
}

/// Three namespaces, of whose first reads hang, and the queues of a host.
fn with_neighbours() -> (Machine, FaultPlan, RuleId, (Host, Host)) {
    let plan = FaultPlan::new(1);
    let rule = plan.add(Rule::new(Ops::READ, Effect::Hang));
    let machine = Machine::with(Arc::new(Faulty::new(ram(), plan.clone())));
    for namespace in 2..=3 {
        let device: Arc<dyn BlockDevice> = Arc::new(ram());
        let neighbour = Export { namespace, uuid: [namespace as u8; 16], ..export(device) };
        machine.target.add_export(&neighbour).expect("another namespace");
    }
    let hosts = machine.controller();
    (machine, plan, rule, hosts)
}

/// Sends a Compare and a Write of the first block of a namespace that are fused.
fn send_pair(io: &mut Host, namespace: u32, old: u8, new: u8) -> [u16; 2] {
    let words = [(1, namespace)];
    let first = io.send_half(1, opcode::COMPARE, &words, &[old; BLOCK]);
    [first, io.send_half(2, opcode::WRITE, &words, &[new; BLOCK])]
}

/// How commands ended.
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
    // Of those that wait for another one nothing is begun after their namespace went.
    let rule = plan.add(Rule::new(Ops::READ, Effect::Hang));
    let stuck = send_copy(&mut io, 1, 0, 1);
    until("it is read", || plan.struck(rule) == Some(1));
    let behind = send_copy(&mut io, 1, 1, 2);
    assert_eq!(io.write(0, &[1; BLOCK]), 0, "both are taken in");
    machine.target.detach_device(common::SUBSYSTEM, 1);
    let gone = (Status::INACCESSIBLE.code_type() as u16) << 8 | Status::INACCESSIBLE.code() as u16;
    until("the queue knows", || io.write(0, &[1; BLOCK]) == gone);
    plan.release();
    let ended = io.endings(2);
    assert_eq!(of(&ended, [stuck, behind]), [gone; 2]);
    assert_eq!(plan.struck(rule), Some(1));
}
