//! Reservations over the wire: which hosts are excluded and from when on, persistence, and rejected requests.

#[path = "../common/mod.rs"]
mod common;
mod gated;
mod identifiers;
mod kept;
mod said;
mod turns;
mod when;
mod who;

use common::{BLOCKS, HOST, Host, Machine, SUBSYSTEM, code};
use std::sync::Arc;
use strake_dev_mem::RamDevice;
use strake_nvme_wire::reservation::{Action, Keys, Persistence, opcode};
use strake_nvme_wire::{Sgl, Status};
use strake_units::{BlockSize, CoreIndex};

const CONFLICT: u16 = code(Status::RESERVATION_CONFLICT);
const KEPT: Persistence = Persistence::Unchanged;

fn ram() -> Arc<RamDevice> {
    Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096))
}

/// A controller of a host, with one I/O queue.
fn controller(machine: &Machine, id: u8) -> (Host, Host) {
    controller_as(machine, (HOST, SUBSYSTEM), id)
}

/// As [`controller`], with other names of the host and the subsystem.
fn controller_as(machine: &Machine, names: (&str, &str), id: u8) -> (Host, Host) {
    let mut admin = Host::asked(machine);
    admin.id = id;
    let number = admin.connect_as(names, 0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut io = Host::asked(machine);
    io.id = id;
    io.connect_as(names, 1, number, 0).expect("an I/O queue");
    (admin, io)
}

/// The data core that serves a queue.
fn core_of(machine: &Machine, host: &Host) -> CoreIndex {
    let from = host.stream.local_addr().ok();
    let queues = machine.target.controllers(SUBSYSTEM).into_iter().flat_map(|known| known.queues);
    let found = queues.map(|queue| queue.facts).find(|facts| facts.from == from);
    found.expect("it is connected").core
}

/// A controller of a host, with I/O queues until one is on a core with the given property.
fn queues_until(
    machine: &Machine,
    id: u8,
    is_meant: impl Fn(CoreIndex) -> bool,
) -> (Vec<Host>, Host) {
    let mut admin = Host::asked(machine);
    admin.id = id;
    let number = admin.connect(0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut others = vec![admin];
    loop {
        let mut io = Host::asked(machine);
        io.id = id;
        io.connect(others.len() as u16, number, 0).expect("an I/O queue");
        if is_meant(core_of(machine, &io)) {
            return (others, io);
        }
        others.push(io);
    }
}

/// Sends a reservation command for a namespace.
fn ask_of(io: &mut Host, namespace: u32, action: Action, current: u64, other: u64) {
    let length = action.data_bytes();
    let sgl = Sgl::InCapsule { offset: 0, length };
    let sqe = action.command(namespace, sgl);
    let keys = Keys { current, other }.bytes();
    io.send(sqe.opcode(), sgl, &[(1, namespace), (10, sqe.dword(10))], &keys[..length as usize]);
}

/// As [`ask_of`], for the first namespace; returns the status.
fn act(io: &mut Host, action: Action, current: u64, other: u64) -> u16 {
    ask_of(io, 1, action, current, other);
    io.finish().2
}

fn register(io: &mut Host, key: u64) {
    assert_eq!(act(io, Action::Register(KEPT), 0, key), 0, "registration");
}

fn report(io: &mut Host, namespace: u32, length: u32) -> Vec<u8> {
    let words = [(1, namespace), (10, length / 4 - 1), (11, 1)];
    io.send(opcode::REPORT, Sgl::Transport { length }, &words, &[]);
    let (data, _, status) = io.finish();
    assert_eq!(status, 0, "Reservation Report");
    data
}

/// The type of the reservation, and the registrants of a report: identifier, key, and whether they hold the
/// reservation.
fn registrants(io: &mut Host, namespace: u32) -> (u8, Vec<(u8, u8, u8)>) {
    let report = report(io, namespace, 4096);
    let count = usize::from(report[5]);
    let all = report[64..].chunks(64).take(count).map(|one| (one[16], one[8], one[2]));
    (report[4], all.collect())
}

/// Sends an Asynchronous Event Request; returns its result.
fn reported(admin: &mut Host) -> u64 {
    admin.send(0x0c, Sgl::Transport { length: 0 }, &[], &[]);
    let (_, result, status) = admin.finish();
    assert_eq!(status, 0, "an event");
    result
}

/// The notification log page: number, kind, number of further notices, namespace.
fn notice(admin: &mut Host, flags: u32) -> (u8, u8, u8, u8) {
    let words = [(10, 15 << 16 | flags | 0x80)];
    admin.send(2, Sgl::Transport { length: 64 }, &words, &[]);
    let (page, _, status) = admin.finish();
    assert_eq!((status, page.len()), (0, 64));
    (page[0], page[8], page[9], page[12])
}

fn set_feature(admin: &mut Host, feature: u32, namespace: u32, value: u32) -> u16 {
    let words = [(1, namespace), (10, feature), (11, value)];
    admin.send(9, Sgl::Transport { length: 0 }, &words, &[]);
    admin.finish().2
}

fn get_feature(admin: &mut Host, feature: u32, namespace: u32) -> (u64, u16) {
    admin.send(0x0a, Sgl::Transport { length: 0 }, &[(1, namespace), (10, feature)], &[]);
    let (_, result, status) = admin.finish();
    (result, status)
}
