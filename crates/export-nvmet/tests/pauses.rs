//! An array that is restarted: commands of hosts wait meanwhile.

mod common;

use common::{BLOCK, Host, Machine, SUBSYSTEM, code, export, h2c};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use strake_dev_mem::{Effect, Ops, RamDevice, Rule};
use strake_export_nvmet::{Export, TargetConfig};
use strake_nvme_wire::feature::event;
use strake_nvme_wire::{Sgl, Status};
use strake_units::{BlockSize, Nanos};

const PATIENCE: Duration = Duration::from_secs(60);
/// A pause that outlasts every test.
const LONG: Nanos = Nanos(600 * Nanos::SECOND.0);

/// Namespace 2 with this drive.
fn second(drive: &RamDevice) -> Export {
    let first = export(Arc::new(drive.clone()));
    Export { namespace: 2, uuid: [2; 16], ..first }
}

/// A machine whose pauses have this time limit.
fn machine(pause_time_max: Nanos) -> (Machine, RamDevice) {
    let config = TargetConfig { pause_time_max, ..Machine::patient() };
    let machine = Machine::set_up(Arc::new(RamDevice::new(64, BlockSize::B4096)), config);
    let drive = RamDevice::new(64, BlockSize::B4096);
    machine.target.add_export(&second(&drive)).expect("a second namespace");
    (machine, drive)
}

/// Detaches the device of namespace 2 with every acknowledged write, as a grow of an array does.
fn pause(machine: &Machine) {
    assert!(machine.target.pause_device(SUBSYSTEM, 2).is_over(PATIENCE), "its queues are closed");
    machine.target.keep_instance(SUBSYSTEM, 2);
}

fn send_read(io: &mut Host, namespace: u32, block: u32) -> u16 {
    let length = BLOCK as u32;
    io.send(2, Sgl::Transport { length }, &[(1, namespace), (10, block)], &[])
}

fn send_write(io: &mut Host, block: u32, byte: u8) -> u16 {
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    io.send(1, sgl, &[(1, 2), (10, block)], &[byte; BLOCK])
}

/// Waits until all earlier commands on this queue were processed: a command for another namespace completes.
fn settle(io: &mut Host) {
    send_read(io, 1, 0);
    assert_eq!(
        io.finish().2,
        0,
        "namespace 1 is served on, and nothing of namespace 2 was answered"
    );
}

fn block_of(drive: &RamDevice, block: u64) -> u8 {
    let mut bytes = [0; BLOCK];
    drive.read_at(block * BLOCK as u64, &mut bytes).expect("inside");
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a torn block");
    bytes[0]
}

/// The access state of namespace 2 in the ANA log page.
fn access(admin: &mut Host) -> u8 {
    let length = 16 + 2 * 36;
    let words = [(10, (length / 4 - 1) << 16 | 0x0c)];
    admin.send(2, Sgl::Transport { length }, &words, &[]);
    let (page, _, status) = admin.finish();
    assert_eq!(status, 0, "the log page");
    page[16 + 36 + 16]
}

#[test]
fn commands_wait_for_the_next_device_and_hosts_notice_nothing() {
    let (machine, drive) = machine(LONG);
    let (mut admin, mut io) = machine.controller();
    admin.send(9, Sgl::Transport { length: 0 }, &[(10, 0x0b), (11, event::ACCESS_CHANGED)], &[]);
    assert_eq!(admin.finish().2, 0, "Set Features");
    let asked = admin.send(0x0c, Sgl::Transport { length: 0 }, &[], &[]);
    // A write whose data was requested before the pause, and arrives during the pause.
    let length = 4 * BLOCK as u32;
    let large = io.send(1, Sgl::Transport { length }, &[(1, 2), (10, 8), (12, 3)], &[]);
    let request = io.pdu().expect("the target asks for its data");
    let tag = u16::from_le_bytes([request.header[2], request.header[3]]);

    pause(&machine);
    let data = vec![0x88; length as usize];
    io.stream.write_all(&h2c(large, tag, 0, length, 4, &data)).expect("the queue stays");
    let small = send_write(&mut io, 1, 0x11);
    let flush = io.send(0, Sgl::Transport { length: 0 }, &[(1, 2)], &[]);
    let zeroes = io.send(8, Sgl::Transport { length: 0 }, &[(1, 2), (10, 2)], &[]);
    settle(&mut io);
    assert_eq!((block_of(&drive, 1), block_of(&drive, 8)), (0, 0), "nothing has reached the drive");
    assert_eq!(access(&mut admin), 1, "to hosts it is optimized yet");

    machine.target.add_export(&second(&drive)).expect("it is back");
    let ended = io.endings(4);
    for cid in [large, small, flush, zeroes] {
        assert_eq!(ended.get(&cid), Some(&0), "command {cid}");
    }
    assert_eq!(
        (block_of(&drive, 1), block_of(&drive, 8), block_of(&drive, 11)),
        (0x11, 0x88, 0x88)
    );
    send_read(&mut io, 2, 1);
    assert_eq!(io.finish().0, vec![0x11; BLOCK], "over the same queue");
    machine.target.detach_device(SUBSYSTEM, 2);
    let (_, result, _) = admin.finish();
    assert_eq!(result, event::ACCESS_CHANGED_RESULT, "request {asked} was answered only now");
    assert_eq!(access(&mut admin), 3, "inaccessible");
}

#[test]
fn a_pause_ends_when_the_device_does_not_come() {
    for is_given_up in [true, false] {
        let time_max = if is_given_up { LONG } else { Nanos(100 * Nanos::MILLI.0) };
        let (machine, drive) = machine(time_max);
        let (mut admin, mut io) = machine.controller();
        pause(&machine);
        let (write, read) = (send_write(&mut io, 1, 0x11), send_read(&mut io, 2, 1));
        if is_given_up {
            settle(&mut io);
            machine.target.forget_instance(SUBSYSTEM, 2);
        }
        let ended = io.endings(2);
        let inaccessible = code(Status::INACCESSIBLE);
        assert_eq!((ended[&write], ended[&read]), (inaccessible, inaccessible));
        assert_eq!(access(&mut admin), 3, "inaccessible");
        send_read(&mut io, 2, 1);
        assert_eq!(io.finish().2, inaccessible, "it is not waited for again");
        assert_eq!(block_of(&drive, 1), 0, "it was refused");
        if !is_given_up {
            machine.target.add_export(&second(&drive)).expect("it comes late");
            send_read(&mut io, 2, 1);
            assert_eq!(io.finish(), (vec![0; BLOCK], 0, 0), "over the same queue");
        }
    }
}

/// Held I/O must not reach a device that lacks acknowledged writes of its predecessor, and must not be executed after
/// later commands of a host that has reconnected.
#[test]
fn what_is_held_reaches_no_other_device_and_nothing_behind_its_host() {
    for host_leaves in [true, false] {
        let (machine, drive) = machine(LONG);
        let (admin, mut io) = machine.controller();
        pause(&machine);
        send_write(&mut io, 1, 0x11);
        settle(&mut io);
        if host_leaves {
            drop((admin, io));
            let queues = || machine.target.exports().iter().map(|e| e.connections).max();
            common::until("the queues end", || queues() == Some(0));
            machine.target.add_export(&second(&drive)).expect("it is back");
        } else {
            machine.target.forget_instance(SUBSYSTEM, 2);
            machine.target.add_export(&second(&drive)).expect("another instance");
            while io.pdu().is_some() {}
        }
        let (_admin, mut io) = machine.controller();
        send_read(&mut io, 2, 1);
        assert_eq!(io.finish(), (vec![0; BLOCK], 0, 0));
        assert_eq!(block_of(&drive, 1), 0);
    }
}

#[test]
fn a_pause_waits_for_what_is_at_the_device() {
    let config = TargetConfig { pause_time_max: LONG, ..Machine::patient() };
    let (machine, plan) = Machine::planned_with(RamDevice::new(64, BlockSize::B4096), config);
    let drive = RamDevice::new(64, BlockSize::B4096);
    let faulty = || Export { device: Some(machine.planned_drive(drive.clone())), ..second(&drive) };
    machine.target.add_export(&faulty()).expect("a second namespace");
    let (_admin, mut io) = machine.controller();
    let rule = plan.add(Rule::new(Ops::WRITE, Effect::Hang));
    let before = send_write(&mut io, 1, 0x11);
    common::until("it is at the drive", || plan.struck(rule) == Some(1));
    let leaving = machine.target.pause_device(SUBSYSTEM, 2);
    assert!(!leaving.is_over(Duration::ZERO), "a write is in flight");
    let behind = send_write(&mut io, 2, 0x22);
    plan.remove(rule);
    plan.release();
    assert!(leaving.is_over(PATIENCE), "it ends");
    machine.target.keep_instance(SUBSYSTEM, 2);
    machine.target.add_export(&faulty()).expect("it is back");
    let ended = io.endings(2);
    assert_eq!((ended[&before], ended[&behind]), (0, 0));
    assert_eq!((block_of(&drive, 1), block_of(&drive, 2)), (0x11, 0x22));
}

#[test]
fn a_queue_that_connects_during_a_pause_waits_too() {
    let (machine, drive) = machine(LONG);
    drive.write_at(BLOCK as u64, &[0x11; BLOCK]).expect("inside");
    let (_first, _) = machine.controller();
    pause(&machine);
    let (_admin, mut io) = machine.controller();
    send_read(&mut io, 2, 1);
    settle(&mut io);
    machine.target.add_export(&second(&drive)).expect("it is back");
    assert_eq!(io.finish(), (vec![0x11; BLOCK], 0, 0));
}
