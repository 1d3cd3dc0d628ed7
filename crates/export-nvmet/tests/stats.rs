//! Stats of queues as the operator sees them.

mod common;

use common::{BLOCK, BLOCKS, HOST, Host, Machine, SUBSYSTEM, until};
use std::sync::Arc;
use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, FaultPlan, Faulty, Ops, RamDevice, Rule};
use strake_export_nvmet::{ControllerStats, Digests, QueueCounts, QueueStats};
use strake_nvme_wire::Sgl;
use strake_units::{BlockSize, Lba, LbaRange};

/// A RAM drive whose block 7 cannot be read.
fn machine() -> Machine {
    let plan = FaultPlan::new(1);
    let medium = Effect::Fail(IoErrorKind::Medium);
    plan.add(Rule::new(Ops::READ, medium).within(LbaRange::new(Lba(7), 1)));
    let ram = RamDevice::new(BLOCKS, BlockSize::B4096);
    Machine::with(Arc::new(Faulty::new(ram, plan)))
}

fn only(machine: &Machine) -> ControllerStats {
    let [controller] = machine.target.controllers(SUBSYSTEM).try_into().expect("one controller");
    controller
}

/// The counters: reads, writes, others, bytes from and to the host in blocks, failures.
fn counts(queue: &QueueStats) -> [u64; 6] {
    let blocks = |bytes| bytes / BLOCK as u64;
    let QueueCounts { reads, writes, others, bytes_in, bytes_out, failures } = queue.counts;
    [reads, writes, others, blocks(bytes_in), blocks(bytes_out), failures]
}

#[test]
fn queues_count_commands_data_and_failures_each_for_itself() {
    let machine = machine();
    let (mut admin, mut io) = machine.controller();
    let other = machine.queue(2, only(&machine).id);

    assert_eq!(io.write(1, &[5; 2 * BLOCK]), 0, "with the data in the capsule");
    let (cid, tag) = io.announce(100, 16);
    io.put(&common::h2c(cid, tag, 0, 16 * BLOCK as u32, 4, &[6; 16 * BLOCK]));
    assert_eq!(io.finish().2, 0, "with data that was asked for");
    assert_eq!(io.read(100, 8).1, 0);
    assert_ne!(io.read(7, 1).1, 0, "it cannot be read");
    assert_ne!(io.read(BLOCKS as u32, 1).1, 0, "there is no such block");
    io.send(0, Sgl::Transport { length: 0 }, &[(1, 1)], &[]);
    assert_eq!(io.finish().2, 0, "a flush");
    admin.send(6, Sgl::Transport { length: 4096 }, &[(10, 1)], &[]);
    assert_eq!(admin.finish().2, 0, "Identify");

    let controller = only(&machine);
    let [of_admin, of_io, of_other] = &controller.queues[..] else { panic!("{controller:?}") };
    // The second command of an admin queue enabled the controller; Connect preceded the queue.
    assert_eq!(counts(of_admin), [0, 0, 2, 0, 1, 0]);
    assert_eq!(counts(of_io), [3, 2, 1, 18, 8, 2]);
    assert_eq!(counts(of_other), [0; 6]);
    drop(other);
}

#[test]
fn controllers_tell_who_is_connected_and_forget_who_left() {
    let machine = machine();
    assert!(machine.target.controllers(SUBSYSTEM).is_empty(), "nobody came");
    assert!(machine.target.controllers("nqn.2014-08.com.example:none").is_empty());
    let (mut admin, io) = machine.controller();
    let at = |host: &Host| host.stream.local_addr().ok();

    let controller = only(&machine);
    assert_eq!((controller.host.as_str(), controller.host_id), (HOST, [1; 16]));
    assert_eq!(controller.keep_alive_ms, 0);
    let facts: Vec<_> = controller.queues.iter().map(|queue| queue.facts).collect();
    assert_eq!(facts.iter().map(|of| of.number).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(facts.iter().map(|of| of.from).collect::<Vec<_>>(), [at(&admin), at(&io)]);
    assert!(facts.iter().all(|of| !of.is_secure && of.digests == Digests::default()));

    admin.send(9, Sgl::Transport { length: 0 }, &[(10, 0xf), (11, 7000)], &[]);
    assert_eq!(admin.finish().2, 0, "Set Features, Keep Alive Timer");
    assert_eq!(only(&machine).keep_alive_ms, 7000);

    drop(io);
    until("the queue is gone", || only(&machine).queues.len() == 1);
    drop(admin);
    until("the controller is gone", || machine.target.controllers(SUBSYSTEM).is_empty());
}
