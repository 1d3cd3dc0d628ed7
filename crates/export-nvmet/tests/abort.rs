//! A panic of the reservation thread aborts the process with a message. The child process is this test binary with an
//! environment variable.

mod common;

use common::{BLOCK, Machine, SUBSYSTEM, export};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{Export, Ledger, Removal, Reservations};
use strake_nvme_wire::Sgl;
use strake_nvme_wire::reservation::{Action, Keys, Persistence};
use strake_units::BlockSize;

const CHILD: &str = "STRAKE_TEST_PANIC_OF_RESERVATIONS";

/// A record that panics when it is written.
struct Broken;

impl Ledger for Broken {
    fn read(&self) -> Result<Option<Reservations>, String> {
        Ok(None)
    }

    fn write(&self, _: Option<&Reservations>) -> Result<(), String> {
        panic!("a registrant was there twice")
    }
}

/// The child: a host registers, and the thread panics.
#[test]
fn child() {
    if std::env::var(CHILD).is_err() {
        return;
    }
    let machine = Machine::start();
    machine.target.remove_export(SUBSYSTEM, 1, Removal::Force).expect("it is there");
    let device = Arc::new(RamDevice::new(16, BlockSize::B4096));
    let export = Export { ledger: Some(Arc::new(Broken)), ..export(device) };
    machine.target.add_export(&export).expect("the name is free");
    let (_admin, mut io) = machine.controller();
    assert_eq!(io.write(0, &[1; BLOCK]), 0, "hosts are served");
    let action = Action::Register(Persistence::On);
    let sgl = Sgl::InCapsule { offset: 0, length: action.data_bytes() };
    let sqe = action.command(1, sgl);
    let keys = Keys { current: 0, other: 1 }.bytes();
    io.send(sqe.opcode(), sgl, &[(1, 1), (10, sqe.dword(10))], &keys[..]);
    eprintln!("the host was answered: {:?}", io.pdu());
}

/// The thread ended silently, and reservation commands waited forever.
#[test]
fn a_panic_of_the_reservation_thread_aborts_the_process_and_says_why() {
    let child = Command::new(std::env::current_exe().expect("this file"))
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.signal(), Some(6), "not aborted but {}: {said}", child.status);
    for part in ["a registrant was there twice", "the reservation thread panicked", "aborting"] {
        assert!(said.contains(part), "'{part}' is missing: {said}");
    }
    assert!(!said.contains("the host was answered"), "no answer precedes the abort: {said}");
}
