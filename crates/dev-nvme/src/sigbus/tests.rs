//! Tests with real faults: a shortened file stands for revoked registers.

use crate::memory::{Doorbell, Mapping, Registers};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::ptr;
use std::sync::Arc;

const BYTES: usize = 8192;
const CSTS: usize = 0x1c;
const DOORBELL: usize = 0x1000;

/// Returns registers with a status of 1, and the file behind them.
fn registers() -> (OwnedFd, Arc<Registers>) {
    let file = memfd_create("registers", MemfdFlags::CLOEXEC).expect("there is memory");
    ftruncate(&file, BYTES as u64).expect("there is memory");
    pwrite(&file, &1_u32.to_le_bytes(), CSTS as u64).expect("it is a file");
    let mapping = Mapping::of_device(file.as_fd(), 0, BYTES).expect("it can be mapped");
    let registers = Registers::of_device(mapping).expect("they can be watched");
    (file, registers)
}

#[test]
fn registers_that_were_taken_away_read_as_ones_and_take_writes() {
    let (file, pulled) = registers();
    let (_other_file, other) = registers();
    let doorbell = Doorbell::new(&pulled, DOORBELL);
    ftruncate(&file, 0).expect("it can be shorter");
    assert_eq!(pulled.read(CSTS), u32::MAX);
    assert_eq!(pulled.read_long(0), u64::MAX);
    pulled.write(0x14, 0);
    doorbell.ring(7);
    assert_eq!(pulled.read(CSTS), u32::MAX);
    assert!(pulled.was_cut());
    assert_eq!((other.read(CSTS), other.was_cut()), (1, false), "it is another drive");
}

/// If only the page of a doorbell faulted, its loss would not be noticed, because the status would still be readable.
#[test]
fn all_registers_are_cut_when_one_is() {
    let (file, registers) = registers();
    ftruncate(&file, DOORBELL as u64).expect("it can be shorter");
    assert_eq!(registers.read(CSTS), 1);
    Doorbell::new(&registers, DOORBELL).ring(7);
    assert_eq!(registers.read(CSTS), u32::MAX);
}

#[test]
fn registers_that_return_are_restored() {
    let (file, registers) = registers();
    let doorbell = Doorbell::new(&registers, DOORBELL);
    ftruncate(&file, 0).expect("it can be shorter");
    doorbell.ring(7);
    ftruncate(&file, BYTES as u64).expect("it can be longer");
    assert_eq!(registers.read(CSTS), u32::MAX, "not before they are mapped");
    registers.restore(file.as_fd(), 0).expect("they can be mapped");
    assert_eq!((registers.read(CSTS), registers.was_cut()), (0, false));
    doorbell.ring(9);
    let mut word = [0; 4];
    pread(&file, &mut word, DOORBELL as u64).expect("it is a file");
    assert_eq!(word, [9, 0, 0, 0]);
    // The process survives a second loss as the first.
    ftruncate(&file, 0).expect("it can be shorter");
    assert_eq!((registers.read(CSTS), registers.was_cut()), (u32::MAX, true));
}

/// The environment variable with the role of the child of a test.
const ROLE: &str = "STRAKE_SIGBUS_ROLE";

extern "C" fn with_information(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` with the address of the fault.
    let is_somewhere = !unsafe { (*info).si_addr() }.is_null();
    // SAFETY: it ends the process.
    unsafe { libc::_exit(if is_somewhere { 42 } else { 1 }) }
}

extern "C" fn plain(signal: c_int) {
    // SAFETY: it ends the process.
    unsafe { libc::_exit(if signal == libc::SIGBUS { 43 } else { 1 }) }
}

fn install(handler: usize, flags: c_int) {
    // SAFETY: all zeroes are a `sigaction`.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    // SAFETY: the type of the handler matches the flags, and the handler only ends the process.
    let installed = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) };
    assert_eq!(installed, 0);
}

/// Causes a fault outside of all registers, after registers were mapped and one of them has faulted.
fn fault_elsewhere(role: &str) {
    match role {
        "information" => install(with_information as *const () as usize, libc::SA_SIGINFO),
        "plain" => install(plain as *const () as usize, 0),
        "ignored" => install(libc::SIG_IGN, 0),
        _ => install(libc::SIG_DFL, 0),
    }
    let (file, watched) = registers();
    ftruncate(&file, 0).expect("it can be shorter");
    assert_eq!(watched.read(CSTS), u32::MAX);
    if role == "dropped" {
        drop(watched);
    }
    if role == "sent" {
        // SAFETY: it sends a signal to this process.
        unsafe { libc::raise(libc::SIGBUS) };
        std::process::exit(2);
    }
    let file = memfd_create("elsewhere", MemfdFlags::CLOEXEC).expect("there is memory");
    let mapping = Mapping::of_device(file.as_fd(), 0, BYTES).expect("it can be mapped");
    mapping.touch();
}

fn child(role: &str) -> ExitStatus {
    let program = std::env::current_exe().expect("it runs");
    let name = "sigbus::tests::a_fault_elsewhere_does_what_it_did_before";
    let mut child = Command::new(program);
    child
        .args(["--exact", name, "--test-threads", "1"])
        .env(ROLE, role)
        .output()
        .expect("it runs")
        .status
}

#[test]
fn a_fault_elsewhere_does_what_it_did_before() {
    if let Ok(role) = std::env::var(ROLE) {
        return fault_elsewhere(&role);
    }
    assert_eq!(child("information").code(), Some(42));
    assert_eq!(child("plain").code(), Some(43));
    for role in ["default", "ignored", "dropped", "sent"] {
        assert_eq!(child(role).signal(), Some(libc::SIGBUS), "{role}");
    }
}
