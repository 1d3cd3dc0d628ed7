//! A namespace with a limit delays no other namespace of the same queue, and its removal does not wait for the limit.

mod common;

use common::{BLOCK, BLOCKS, Host, Machine, SUBSYSTEM, export, until};
use std::sync::Arc;
use strake_block::BlockDevice;
use strake_dev_mem::RamDevice;
use strake_export_net::{LimitGate, LimitHomes};
use strake_export_nvmet::{Export, Removal};
use strake_nvme_wire::Sgl;
use strake_nvme_wire::nvm::opcode;
use strake_qos::{Aspect, Counts, Limit, Measure};
use strake_units::BlockSize;

fn send_write(io: &mut Host, namespace: u32, block: u32) -> u16 {
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    io.send(opcode::WRITE, sgl, &[(1, namespace), (10, block)], &[7; BLOCK])
}

/// One byte per second: the first write passes with the burst, and the next one would wait for more than an hour.
#[test]
fn a_limit_delays_neither_another_namespace_nor_a_removal() {
    let machine = Machine::start();
    let homes = LimitHomes::new(machine.handles());
    let slow = Limit::new(1, 100).expect("a valid limit");
    let limit = homes.start(Aspect::new(Measure::Bytes, Counts::Total), slow);
    let gate = Arc::new(LimitGate::default());
    gate.set(limit.into_iter().collect());
    let device: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096));
    let second =
        Export { namespace: 2, uuid: [2; 16], limits: Some(Arc::clone(&gate)), ..export(device) };
    machine.target.add_export(&second).expect("another namespace");
    let (_admin, mut io) = machine.controller();
    let limited: Vec<u16> = (0..3).map(|block| send_write(&mut io, 2, block)).collect();
    let others: Vec<u16> = (0..3).map(|block| send_write(&mut io, 1, block)).collect();
    let ended = io.endings(4);
    assert!(others.iter().all(|cid| ended.get(cid) == Some(&0)), "{ended:?}");
    assert_eq!(ended.get(&limited[0]), Some(&0), "{ended:?}");
    machine.target.remove_export(SUBSYSTEM, 2, Removal::Force).expect("it is there");
    let ended = io.endings(2);
    assert!(limited[1..].iter().all(|cid| ended.get(cid) == Some(&0)), "{ended:?}");
}

#[test]
fn writes_of_a_lost_connection_that_wait_for_a_limit_are_not_executed() {
    let machine = Machine::start();
    let homes = LimitHomes::new(machine.handles());
    let slow = Limit::new(1, 100).expect("a valid limit");
    let limit = homes.start(Aspect::new(Measure::Bytes, Counts::Total), slow);
    let gate = Arc::new(LimitGate::default());
    gate.set(limit.into_iter().collect());
    let ram = RamDevice::new(BLOCKS, BlockSize::B4096);
    let device: Arc<dyn BlockDevice> = Arc::new(ram.clone());
    let second = Export { namespace: 2, uuid: [2; 16], limits: Some(gate), ..export(device) };
    machine.target.add_export(&second).expect("another namespace");
    let (admin, mut io) = machine.controller();
    let writes: Vec<u16> = (0..3).map(|block| send_write(&mut io, 2, block)).collect();
    // The answer of the last command shows that the queue has all of them.
    let other = send_write(&mut io, 1, 0);
    let ended = io.endings(2);
    assert!(ended.contains_key(&writes[0]) && ended.contains_key(&other), "{ended:?}");
    drop(io);
    // The queue ends when its last command has.
    until("the queue has ended", || {
        machine.target.controllers(SUBSYSTEM).iter().all(|controller| controller.queues.len() < 2)
    });
    drop(admin);
    drop(machine);
    let mut blocks = vec![0; 3 * BLOCK];
    ram.read_at(0, &mut blocks).expect("it is readable");
    let is_written = |block: usize| blocks[block * BLOCK] == 7;
    assert_eq!([0, 1, 2].map(is_written), [true, false, false]);
}
