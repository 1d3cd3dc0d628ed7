//! A host does not lose a notice when its command to read the notice fails.

mod common;

use common::{BLOCKS, Host, Machine, SUBSYSTEM, export};
use std::sync::Arc;
use strake_block::BlockDevice;
use strake_dev_mem::RamDevice;
use strake_export_nvmet::Export;
use strake_nvme_wire::feature::event;
use strake_nvme_wire::log::page;
use strake_nvme_wire::reservation::{Action, Keys, Persistence};
use strake_nvme_wire::{Sgl, Status};
use strake_units::BlockSize;

const SHORT: u16 = (Status::SGL_LENGTH.code_type() as u16) << 8 | Status::SGL_LENGTH.code() as u16;

/// Requests 64 bytes of a log page with a buffer of this size.
fn log(admin: &mut Host, page: u8, room: u32) -> Result<Vec<u8>, u16> {
    let words = [(10, 15 << 16 | u32::from(page))];
    admin.send(2, Sgl::Transport { length: room }, &words, &[]);
    match admin.finish() {
        (data, _, 0) => Ok(data),
        (_, _, status) => Err(status),
    }
}

/// Sends an Asynchronous Event Request, which completes when there is an event.
fn ask(admin: &mut Host) {
    admin.send(0x0c, Sgl::Transport { length: 0 }, &[], &[]);
}

/// A command that failed because its buffer was too small removed a notice.
#[test]
fn a_refused_look_takes_no_notice() {
    let machine = Machine::start();
    let (mut admin, mut io) = machine.controller();
    let sgl = Sgl::InCapsule { offset: 0, length: 16 };
    let sqe = Action::Register(Persistence::Unchanged).command(1, sgl);
    let keys = Keys { current: 0, other: 1 }.bytes();
    io.send(sqe.opcode(), sgl, &[(1, 1), (10, sqe.dword(10))], &keys);
    assert_eq!(io.finish().2, 0, "registration");
    machine.target.clear_reservations(SUBSYSTEM, 1).expect("it is ended");
    assert_eq!(log(&mut admin, page::RESERVATION, 60), Err(SHORT));
    ask(&mut admin);
    assert_eq!(admin.finish().1, event::RESERVATION_RESULT, "it is news yet");
    let notice = log(&mut admin, page::RESERVATION, 64).expect("there is room");
    assert_eq!((notice[0], notice[8], notice[12]), (1, 3, 1));
}

/// The same bug affected pages that report changes since the last read.
#[test]
fn a_refused_look_sees_no_change() {
    let machine = Machine::start();
    let (mut admin, _io) = machine.controller();
    let device: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096));
    let second = Export { namespace: 2, uuid: [2; 16], ..export(device) };
    machine.target.add_export(&second).expect("a second namespace");
    assert_eq!(log(&mut admin, page::CHANGED_NAMESPACES, 60), Err(SHORT));
    let changed = log(&mut admin, page::CHANGED_NAMESPACES, 64).expect("there is room");
    assert_eq!(changed[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    let changed = log(&mut admin, page::CHANGED_NAMESPACES, 64).expect("there is room");
    assert_eq!(changed[..4], [0; 4], "it has looked");
}
