//! Drives whose registers raise SIGBUS: a shortened file stands for them.

use super::world::{BAR, Client, Drive, World, drive_with};
use crate::error::Reason;
use crate::lifecycle::Phase;
use crate::memory::{Mapping, Registers};
use crate::transport::memory::{Endpoint, MemoryFunction, MemorySpace};
use crate::transport::{Function, Signals};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use strake_block::{BufPool, IoErrorKind, Token};
use strake_nvme_model::{Pace, Spec};
use strake_units::Nanos;

/// A function whose reset maps the registers again, as with VFIO.
struct Mapped {
    file: Arc<OwnedFd>,
    function: MemoryFunction,
    drive: Arc<Drive>,
}

impl Function for Mapped {
    fn registers(&self) -> &Arc<Registers> {
        self.function.registers()
    }

    fn reset(&self) -> io::Result<()> {
        ftruncate(&*self.file, BAR as u64)?;
        self.registers().restore(self.file.as_fd(), 0)?;
        self.drive.reset()
    }

    fn is_present(&self) -> bool {
        self.drive.is_present()
    }

    fn signals(&self) -> Signals {
        self.function.signals()
    }
}

/// Returns a ready drive after a successful read, and the file of its registers.
fn world() -> (World, Client, Arc<OwnedFd>) {
    let file = memfd_create("registers", MemfdFlags::CLOEXEC).expect("there is memory");
    let file = Arc::new(file);
    ftruncate(&*file, BAR as u64).expect("there is memory");
    let mapping = Mapping::of_device(file.as_fd(), 0, BAR).expect("it can be mapped");
    let registers = Registers::of_device(mapping).expect("they can be watched");
    let space = Arc::new(MemorySpace::default());
    let (drive, function) = drive_with(Spec::new(64), Pace::Prompt, &space, registers);
    let mapped = Mapped { file: Arc::clone(&file), function, drive: Arc::clone(&drive) };
    let world = World::of(drive, Box::new(mapped), space, BufPool::new(64, 128 << 10));
    let mut world = world.expect("the controller can be used");
    world.run_until("ready", |world| world.phase() == Phase::Live);
    let mut client = world.open(16);
    let op = world.read(0, 4096);
    world.run(&mut client, op).result.expect("it works at first");
    (world, client, file)
}

/// Sends writes whose doorbell raises SIGBUS. Returns their results and the elapsed time.
fn write(world: &mut World, client: &mut Client) -> (Vec<Result<(), IoErrorKind>>, Nanos) {
    let start = world.now;
    for number in 0..8 {
        let op = world.write(number, 7, 4096);
        client.submit(Token(number), op);
    }
    client.turn(world.now);
    world.run_with(client, 8);
    (client.results().into_iter().map(|(_, result)| result).collect(), world.now.since(start))
}

#[test]
fn a_doorbell_of_a_pulled_drive_fails_its_requests_and_nothing_else() {
    let (mut world, mut client, file) = world();
    world.drive.remove();
    ftruncate(&*file, 0).expect("it can be shorter");
    let (results, time) = write(&mut world, &mut client);
    assert_eq!(results, [Err(IoErrorKind::Gone); 8]);
    assert!(time <= Nanos::SECOND, "{time:?}");
}

/// Replaces pages of ones by pages of zeroes.
fn read_as_zeroes(registers: &OwnedFd) {
    ftruncate(registers, 0).expect("it can be shorter");
    ftruncate(registers, BAR as u64).expect("there is memory");
}

/// QEMU behaves like this. The history of the bug: the driver treated the drive as stopped, and tried to reset it.
#[test]
fn d15_a_pulled_drive_whose_registers_read_as_zeroes_is_gone() {
    let (mut world, mut client, file) = world();
    world.drive.remove();
    read_as_zeroes(&file);
    let (results, time) = write(&mut world, &mut client);
    assert_eq!(results, [Err(IoErrorKind::Gone); 8]);
    assert!(time <= Nanos::SECOND, "{time:?}");
    assert_eq!(world.device().stats().resets, 0);
}

/// The bug: zeroes counted as a stopped controller. Commands that it could still execute were sent again.
#[test]
fn d13_registers_without_memory_decoding_that_read_as_zeroes_are_repaired_by_a_reset() {
    let (mut world, mut client, file) = world();
    world.drive.stop_decoding();
    read_as_zeroes(&file);
    let (results, time) = write(&mut world, &mut client);
    assert_eq!(results, [Ok(()); 8]);
    assert!(time <= Nanos::SECOND, "{time:?}");
    assert_eq!(world.device().reason(), Some(Reason::NoRegisters));
    world.assert_clean();
}

#[test]
fn a_doorbell_without_memory_decoding_is_repaired_by_a_reset() {
    let (mut world, mut client, file) = world();
    world.drive.stop_decoding();
    ftruncate(&*file, 0).expect("it can be shorter");
    let (results, time) = write(&mut world, &mut client);
    assert_eq!(results, [Ok(()); 8]);
    assert!(time <= Nanos::SECOND, "{time:?}");
    assert_eq!(world.device().stats().resets, 1);
    assert!(world.drive.model().block(1, 3).iter().all(|byte| *byte == 7));
    world.assert_clean();
}
