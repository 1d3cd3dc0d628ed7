//! The model with a host of a few lines.

use crate::bus::{Bus, Unmapped};
use crate::{
    Breach, Controller, Fault, NamespaceSpec, PERMANENT, Pace, Protection, Spec, csts, offset,
};
use std::cell::RefCell;
use strake_nvme_wire::nvm::opcode;
use strake_nvme_wire::{Cqe, Sqe, Status};
use strake_units::Nanos;

/// Where the host's memory begins for the controller, and how much there is.
const BASE: u64 = 0x10_0000;
const BYTES: usize = 64 << 12;
const PAGE: u64 = 4096;
/// Entries of both queues.
const ENTRIES: u64 = 8;

struct Host {
    registers: RefCell<Vec<u32>>,
    memory: RefCell<Vec<u8>>,
}

impl Host {
    fn range(address: u64, bytes: usize) -> Result<std::ops::Range<usize>, Unmapped> {
        let at = address.checked_sub(BASE).ok_or(Unmapped)? as usize;
        if at + bytes <= BYTES { Ok(at..at + bytes) } else { Err(Unmapped) }
    }
}

impl Bus for Host {
    fn register(&self, offset: usize) -> u32 {
        self.registers.borrow()[offset / 4]
    }

    fn set_register(&self, offset: usize, value: u32) {
        self.registers.borrow_mut()[offset / 4] = value;
    }

    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Unmapped> {
        out.copy_from_slice(&self.memory.borrow()[Self::range(address, out.len())?]);
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        self.memory.borrow_mut()[Self::range(address, bytes.len())?].copy_from_slice(bytes);
        Ok(())
    }

    fn interrupt(&self, _vector: u16) {}
}

/// A controller that is enabled, with an admin queue at the beginning of memory and a pair of I/O queues behind it.
struct World {
    host: Host,
    model: Controller,
    tails: [u32; 2],
    heads: [u64; 2],
    now: Nanos,
}

impl World {
    fn new(spec: Spec) -> Self {
        let host =
            Host { registers: RefCell::new(vec![0; 0x800]), memory: RefCell::new(vec![0; BYTES]) };
        let mut model = Controller::new(spec, Pace::Prompt);
        model.connect(&host);
        let mut world = Self { host, model, tails: [0; 2], heads: [0; 2], now: Nanos(0) };
        world.enable();
        world
    }

    fn enable(&mut self) {
        let host = &self.host;
        host.set_register(offset::AQA, 0x0007_0007);
        host.set_register(offset::ASQ, BASE as u32);
        host.set_register(offset::ACQ, (BASE + PAGE) as u32);
        host.set_register(offset::CC, 1 | 6 << 16 | 4 << 20);
        self.step();
        self.step();
        assert_eq!(self.host.register(offset::CSTS), csts::RDY);
        for (opcode, page, dword_11) in [(0x05, 3, 1), (0x01, 2, 1 << 16 | 1)] {
            let sqe = command(opcode, 0, (BASE + page * PAGE, 0))
                .with(10, 7 << 16 | 1)
                .with(11, dword_11);
            assert_eq!(self.run(0, sqe), Status::SUCCESS);
        }
    }

    fn step(&mut self) {
        self.now = self.now.plus(Nanos::MILLI);
        self.model.step(&self.host, self.now);
    }

    fn send(&mut self, queue: usize, sqe: Sqe) {
        let tail = u64::from(self.tails[queue]);
        let at = BASE + queue as u64 * 2 * PAGE + tail * 64;
        self.host.write(at, &sqe.named(tail as u16).0).expect("it is mapped");
        self.tails[queue] = ((tail + 1) % ENTRIES) as u32;
        self.host.set_register(offset::DOORBELLS + queue * 8, self.tails[queue]);
    }

    fn next(&mut self, queue: usize) -> Option<Cqe> {
        let head = self.heads[queue];
        let mut bytes = [0; 16];
        let at = BASE + queue as u64 * 2 * PAGE + PAGE + head % ENTRIES * 16;
        self.host.read(at, &mut bytes).expect("it is mapped");
        let is_new = (bytes[14] & 1 != 0) == (head / ENTRIES).is_multiple_of(2);
        is_new.then(|| {
            self.heads[queue] += 1;
            let doorbell = offset::DOORBELLS + queue * 8 + 4;
            self.host.set_register(doorbell, (self.heads[queue] % ENTRIES) as u32);
            Cqe::parse(&bytes)
        })
    }

    fn run(&mut self, queue: usize, sqe: Sqe) -> Status {
        self.send(queue, sqe);
        self.step();
        self.next(queue).expect("it is answered").status
    }
}

fn command(opcode: u8, nsid: u32, (prp1, prp2): (u64, u64)) -> Sqe {
    let mut sqe = Sqe([0; 64]);
    sqe.0[0] = opcode;
    sqe.0[4..8].copy_from_slice(&nsid.to_le_bytes());
    sqe.0[24..32].copy_from_slice(&prp1.to_le_bytes());
    sqe.0[32..40].copy_from_slice(&prp2.to_le_bytes());
    sqe
}

fn blocks(opcode: u8, start: u32, count: u32, prps: (u64, u64)) -> Sqe {
    command(opcode, 1, prps).with(10, start).with(12, count - 1)
}

/// A page of the host that no queue is in.
const fn page(number: u64) -> u64 {
    BASE + (8 + number) * PAGE
}

#[test]
fn what_is_written_is_read() {
    let mut world = World::new(Spec::new(16));
    world.host.write(page(0), &[7; 4096]).expect("it is mapped");
    for round in 0..20 {
        assert_eq!(
            world.run(1, blocks(opcode::WRITE, round % 16, 1, (page(0), 0))),
            Status::SUCCESS
        );
        assert_eq!(
            world.run(1, blocks(opcode::READ, round % 16, 1, (page(1), 0))),
            Status::SUCCESS
        );
        let mut read = [0; 4096];
        world.host.read(page(1), &mut read).expect("it is mapped");
        assert_eq!(read, [7; 4096]);
        world.host.write(page(1), &[0; 4096]).expect("it is mapped");
    }
    assert_eq!(world.model.breaches(), []);
}

/// The last entry of a page of a list points to the rest of it, unless it is the last of all.
#[test]
fn lists_continue_in_another_page() {
    let mut world = World::new(Spec { transfer_pages_log2: 0, ..Spec::new(16) });
    for at in 0..6 {
        world.host.write(page(at), &[at as u8 + 1; 4096]).expect("it is mapped");
    }
    let list = page(10) + PAGE - 16;
    for (at, entry) in
        [(list, page(1)), (list + 8, page(11)), (page(11), page(2)), (page(11) + 8, page(3))]
    {
        world.host.write(at, &entry.to_le_bytes()).expect("it is mapped");
    }
    assert_eq!(world.run(1, blocks(opcode::WRITE, 0, 4, (page(0), list))), Status::SUCCESS);
    let first: Vec<u8> = (0..4).map(|at| world.model.block(1, at)[0]).collect();
    assert_eq!(first, [1, 2, 3, 4]);
    world.host.write(list + 8, &page(5).to_le_bytes()).expect("it is mapped");
    assert_eq!(world.run(1, blocks(opcode::WRITE, 0, 3, (page(0), list))), Status::SUCCESS);
    assert_eq!(world.model.block(1, 2)[0], 6);
    for bad in [page(0) + 1, page(0) + 2] {
        assert!(!world.run(1, blocks(opcode::WRITE, 0, 1, (bad, 0))).is_success());
    }
    assert!(!world.run(1, blocks(opcode::WRITE, 0, 2, (page(0), page(1) + 512))).is_success());
}

#[test]
fn what_the_host_does_wrong_is_found() {
    let check = |wrong: fn(&mut World), breach: Breach| {
        let mut world = World::new(Spec::new(16));
        wrong(&mut world);
        world.step();
        assert_eq!(world.model.breaches(), [breach]);
    };
    check(|world| world.host.set_register(offset::DOORBELLS + 8, 8), Breach::Tail(1));
    check(|world| world.host.set_register(offset::DOORBELLS + 12, 3), Breach::Head(1));
    check(|world| world.send(1, blocks(opcode::WRITE, 0, 1, (0x1000, 0))), Breach::Unmapped(1));
    check(|world| world.send(1, blocks(opcode::READ, 0, 1, (page(0) + 1, 0))), Breach::Field(1, 2));
    check(|world| world.send(0, command(0x99, 0, (0, 0))), Breach::Field(0, 0x99));
    let twice = |world: &mut World| {
        world.model.arm(Fault::SilentIo, PERMANENT);
        (0..9).for_each(|_| {
            world.send(1, blocks(opcode::READ, 0, 1, (page(0), 0)));
            world.step();
        });
    };
    check(twice, Breach::CidInUse(1, 0));
}

/// After CC.EN = 0, and while it is silent, a random pace executes what was fetched, and answers nothing; once it
/// is not ready, nothing changes.
#[test]
fn random_paces_execute_what_was_fetched_until_it_is_not_ready() {
    let (mut changed_late, mut answered) = (0, 0);
    for seed in 0..200 {
        let mut world = World::new(Spec { disable_time: Nanos(20_000_000), ..Spec::new(16) });
        world.model.set_pace(Pace::random(seed));
        world.model.arm(Fault::Silent, PERMANENT);
        world.host.write(page(0), &[7; 4096]).expect("it is mapped");
        world.send(1, blocks(opcode::WRITE, 3, 1, (page(0), 0)));
        world.step();
        world.host.set_register(offset::CC, 0);
        let before = world.model.block(1, 3)[0];
        (0..19).for_each(|_| world.step());
        changed_late += u32::from(before != world.model.block(1, 3)[0]);
        answered += u32::from(world.next(1).is_some());
        (0..3).for_each(|_| world.step());
        assert_eq!(world.host.register(offset::CSTS), 0);
        let then = world.model.block(1, 3)[0];
        (0..50).for_each(|_| world.step());
        assert_eq!(world.model.block(1, 3)[0], then, "seed {seed}");
    }
    assert!(
        changed_late > 20 && answered == 0,
        "{changed_late} changed late, {answered} were answered"
    );
}

#[test]
fn a_power_loss_takes_what_only_the_cache_had() {
    let mut world = World::new(Spec::new(16));
    world.host.write(page(0), &[7; 4096]).expect("it is mapped");
    world.run(1, blocks(opcode::WRITE, 1, 1, (page(0), 0)));
    world.run(1, command(opcode::FLUSH, 1, (0, 0)));
    world.run(1, blocks(opcode::WRITE, 2, 1, (page(0), 0)));
    let fua = blocks(opcode::WRITE, 3, 1, (page(0), 0)).with(12, 1 << 30);
    world.run(1, fua);
    world.model.lose_power(&world.host);
    let first: Vec<u8> = (0..4).map(|at| world.model.block(1, at)[0]).collect();
    assert_eq!(first, [0, 7, 0, 7]);
}

#[test]
fn a_format_changes_blocks_and_protection() {
    let mut world = World::new(Spec::new(16));
    let format = command(0x80, 1, (0, 0)).with(10, 2 | 1 << 5);
    assert_eq!(world.run(0, format), Status::SUCCESS);
    let plain = blocks(opcode::WRITE, 120, 1, (page(0), 0));
    assert!(!world.run(1, plain).is_success(), "it does not ask for protection information");
    let protected = plain.with(12, 1 << 29 | 1 << 28 | 1 << 26).with(14, 120);
    assert_eq!(world.run(1, protected), Status::SUCCESS);
    world.model.damage(1, 120);
    let read = blocks(opcode::READ, 120, 1, (page(0), 0)).with(12, 1 << 29 | 1 << 28).with(14, 120);
    assert_eq!(world.run(1, read).code_type(), 2);
    assert_eq!(world.run(0, command(0x84, 0, (0, 0)).with(10, 2)), Status::SUCCESS, "it sanitizes");
    assert!(world.model.block(1, 120).iter().all(|byte| *byte == 0));
}

/// The information of zeroes is generated if the command asks for it; otherwise it is zero, which no block but the
/// first has.
#[test]
fn zeroes_are_protected_only_if_that_is_asked_for() {
    let namespace = NamespaceSpec { protection: Protection::Type1, ..NamespaceSpec::new(16, 12) };
    let mut world = World::new(Spec { namespaces: vec![namespace], ..Spec::new(0) });
    let (checked, acts) = (1 << 29 | 1 << 28 | 1 << 26, 1 << 29 | 1);
    let read = |at| blocks(opcode::READ, at, 1, (page(0), 0)).with(12, checked).with(14, at);
    let zeroes = |at| blocks(opcode::WRITE_ZEROES, at, 2, (0, 0));
    assert_eq!(world.run(1, zeroes(4)), Status::SUCCESS);
    assert_eq!(world.run(1, read(4)), crate::status::REFERENCE_TAG);
    assert_eq!(world.run(1, zeroes(4).with(12, acts).with(14, 4)), Status::SUCCESS);
    assert_eq!([4, 5].map(|at| world.run(1, read(at))), [Status::SUCCESS; 2]);
    assert_eq!(world.model.breaches(), []);
    assert!(!world.run(1, zeroes(4).with(12, acts)).is_success(), "the reference tag is wrong");
}

#[test]
fn namespaces_of_every_format_have_their_blocks() {
    for (block_log2, protection) in [
        (9, Protection::None),
        (12, Protection::None),
        (9, Protection::Type1),
        (12, Protection::Type1),
    ] {
        let namespace = NamespaceSpec { protection, ..NamespaceSpec::new(16, block_log2) };
        let mut world = World::new(Spec { namespaces: vec![namespace], ..Spec::new(0) });
        let identify = command(0x06, 1, (page(0), 0));
        assert_eq!(world.run(0, identify), Status::SUCCESS);
        let mut bytes = [0; 4096];
        world.host.read(page(0), &mut bytes).expect("it is mapped");
        let facts = strake_nvme_wire::identified::NamespaceFacts::parse(&bytes);
        assert_eq!((facts.blocks, facts.block_log2), (16, block_log2));
        assert_eq!(facts.metadata_bytes, if protection == Protection::None { 0 } else { 8 });
    }
}
