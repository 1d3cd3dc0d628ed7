//! The SQ head in completions (Base, sections 3.3.2.5 and 3.3.2.6 of revision 2.1).

mod common;

use common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, connect_data};
use strake_dev_mem::{Effect, Ops, RamDevice, Rule};
use strake_nvme_wire::{Cqe, Sgl};
use strake_units::BlockSize;

/// Entries of the queue.
const ENTRIES: u16 = 4;

/// Connect attribute: the host does not use the SQ head.
const FLOW_CONTROL_OFF: u32 = 1 << 18;

fn completion(host: &mut Host) -> Cqe {
    loop {
        let pdu = host.pdu().expect("the connection stays");
        if pdu.kind == 5 {
            return Cqe::parse(&pdu.header[..].try_into().expect("a completion"));
        }
    }
}

/// An I/O queue with this number of entries, and the completion of its Connect.
fn queue(machine: &Machine, controller: u16, attributes: u32) -> (Host, Cqe) {
    let mut io = Host::asked(machine);
    let size = u32::from(ENTRIES - 1) | attributes;
    let data = connect_data((HOST, SUBSYSTEM), controller);
    let sgl = Sgl::InCapsule { offset: 0, length: 1024 };
    io.send(0x7f, sgl, &[(1, 1), (10, 1 << 16), (11, size)], &data);
    let answer = completion(&mut io);
    assert!(answer.status.is_success());
    (io, answer)
}

fn admin(machine: &Machine) -> (Host, u16) {
    let mut admin = Host::asked(machine);
    let id = admin.connect(0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    (admin, id)
}

fn flush(io: &mut Host) -> u16 {
    io.send(0, Sgl::Transport { length: 0 }, &[(1, 1)], &[])
}

/// A host may send while the queue is not full according to the last reported head. Commands that are still in flight
/// count: a host with commands in flight for longer was disconnected.
#[test]
fn a_host_that_goes_by_the_head_of_its_queue_never_sends_too_much() {
    let (machine, plan) = Machine::planned(RamDevice::new(64, BlockSize::B4096));
    plan.add(Rule::new(Ops::READ, Effect::Hang));
    let (_admin, id) = admin(&machine);
    let (mut io, connected) = queue(&machine, id, 0);
    // The position of the next command: Connect took the first entry.
    let (mut tail, mut head) = (1, connected.head);
    assert_eq!(head, 1);
    let mut reads = 0;
    let room = |tail: u16, head: u16| (head + ENTRIES - tail - 1) % ENTRIES;
    for _ in 0..2 * ENTRIES {
        while room(tail, head) > 1 {
            io.send(2, Sgl::Transport { length: BLOCK as u32 }, &[(1, 1)], &[]);
            (tail, reads) = ((tail + 1) % ENTRIES, reads + 1);
        }
        let last = flush(&mut io);
        tail = (tail + 1) % ENTRIES;
        let ended = completion(&mut io);
        assert_eq!(ended.cid, last, "reads hang");
        head = ended.head;
    }
    assert_eq!(reads, 2, "as many as leave a place for a flush");
    plan.clear();
    plan.release();
    for _ in 0..reads {
        assert!(completion(&mut io).status.is_success());
    }
}

#[test]
fn a_host_that_does_not_watch_the_head_is_notified_nothing_of_it() {
    let machine = Machine::start();
    let (_admin, id) = admin(&machine);
    let (mut io, connected) = queue(&machine, id, FLOW_CONTROL_OFF);
    assert_eq!(connected.head, u16::MAX, "that is how it learns that it need not");
    for _ in 0..2 {
        let last = flush(&mut io);
        let ended = completion(&mut io);
        assert_eq!((ended.cid, ended.head), (last, 0));
    }
}
