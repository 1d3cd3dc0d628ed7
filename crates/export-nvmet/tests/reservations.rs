//! Reservations over the wire: whom they keep out and from when on, what outlasts a restart, and what is refused.

mod common;

use common::{BLOCK, BLOCKS, Host, Machine, SUBSYSTEM, export, h2c, until};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use strake_block::{BlockDevice, CompletionBatch, DeviceError, DeviceInfo, Io, IoQueue, Readiness};
use strake_dev_mem::{Effect, FaultPlan, Faulty, Ops, RamDevice, Rule};
use strake_export_nvmet::limits::RESERVATIONS_ASKED_MAX;
use strake_export_nvmet::{Export, Ledger, Registrant, Reservations, TargetErrorKind};
use strake_nvme_wire::feature::event;
use strake_nvme_wire::nvm::{SOURCE_BYTES, SourceRange, opcode as nvm};
use strake_nvme_wire::reservation::{
    Acquire, Action, KeyCheck, Keys, Persistence, ReservationType as T, opcode,
};
use strake_nvme_wire::{Sgl, Status};
use strake_units::{BlockSize, CoreIndex, Nanos};

const fn code(status: Status) -> u16 {
    (status.code_type() as u16) << 8 | status.code() as u16
}

const CONFLICT: u16 = code(Status::RESERVATION_CONFLICT);
const KEPT: Persistence = Persistence::Unchanged;

/// A record that stays when the target goes; it can be made to fail.
#[derive(Default)]
struct Book {
    page: Mutex<Option<Reservations>>,
    fails: Mutex<Option<&'static str>>,
    /// Held by a test for as long as nothing is to be written.
    gate: Mutex<()>,
    /// How often something was to be written.
    knocks: AtomicU32,
}

impl Book {
    fn page(&self) -> Option<Reservations> {
        self.page.lock().expect("no panic").clone()
    }

    fn fail(&self, why: Option<&'static str>) {
        *self.fails.lock().expect("no panic") = why;
    }

    fn verdict(&self) -> Result<(), String> {
        self.fails.lock().expect("no panic").map_or(Ok(()), |why| Err(why.to_owned()))
    }
}

impl Ledger for Book {
    fn read(&self) -> Result<Option<Reservations>, String> {
        self.verdict().map(|()| self.page())
    }

    fn write(&self, reservations: Option<&Reservations>) -> Result<(), String> {
        self.knocks.fetch_add(1, Ordering::SeqCst);
        // A test that fails lets everybody through.
        let _open = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.verdict()?;
        *self.page.lock().expect("no panic") = reservations.cloned();
        Ok(())
    }
}

fn with_book(device: Arc<dyn BlockDevice>, book: &Arc<Book>) -> Export {
    let ledger: Arc<dyn Ledger> = Arc::clone(book) as _;
    Export { ledger: Some(ledger), namespace: 2, uuid: [2; 16], ..export(device) }
}

fn ram() -> Arc<dyn BlockDevice> {
    Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096))
}

/// A controller of a host, with one I/O queue.
fn controller(machine: &Machine, id: u8) -> (Host, Host) {
    let mut admin = Host::asked(machine);
    admin.id = id;
    let number = admin.connect(0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut io = Host::asked(machine);
    io.id = id;
    io.connect(1, number, 0).expect("an I/O queue");
    (admin, io)
}

/// Sends a command about the reservations of a namespace.
fn ask_of(io: &mut Host, namespace: u32, action: Action, current: u64, other: u64) {
    let length = action.data_bytes();
    let sgl = Sgl::InCapsule { offset: 0, length };
    let sqe = action.command(namespace, sgl);
    let keys = Keys { current, other }.bytes();
    io.send(sqe.opcode(), sgl, &[(1, namespace), (10, sqe.dword(10))], &keys[..length as usize]);
}

/// The same for the first namespace, with its status.
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

/// Registrants as in a report: identifier, key, and whether they hold the reservation; before that its type.
fn registrants(io: &mut Host, namespace: u32) -> (u8, Vec<(u8, u8, u8)>) {
    let report = report(io, namespace, 4096);
    let count = usize::from(report[5]);
    let all = report[64..].chunks(64).take(count).map(|one| (one[16], one[8], one[2]));
    (report[4], all.collect())
}

/// Copies the first block behind it.
fn copy(io: &mut Host) -> u16 {
    let sgl = Sgl::InCapsule { offset: 0, length: SOURCE_BYTES as u32 };
    io.send(nvm::COPY, sgl, &[(1, 1), (10, 1)], &SourceRange { start: 0, count: 1 }.bytes());
    io.finish().2
}

/// What became of each command that the table of the specification names.
fn access(io: &mut Host) -> (Vec<u16>, Vec<u16>) {
    let capsule = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    let status = |io: &mut Host, opcode, sgl, data: &[u8], word| {
        io.send(opcode, sgl, &[(1, 1), (11, word)], data);
        io.finish().2
    };
    let none = Sgl::Transport { length: 0 };
    let room = Sgl::Transport { length: BLOCK as u32 };
    let block = vec![0; BLOCK];
    let reads = vec![
        status(io, nvm::READ, room, &[], 0),
        status(io, nvm::COMPARE, capsule, &block, 0),
        status(io, nvm::VERIFY, none, &[], 0),
    ];
    let range = Sgl::InCapsule { offset: 0, length: 16 };
    let writes = vec![
        status(io, nvm::WRITE, capsule, &block, 0),
        status(io, nvm::WRITE_ZEROES, none, &[], 0),
        status(io, nvm::FLUSH, none, &[], 0),
        status(io, nvm::DATASET_MANAGEMENT, range, &[0; 16], 0),
        status(io, nvm::DATASET_MANAGEMENT, range, &[0; 16], 4),
        copy(io),
    ];
    (reads, writes)
}

/// Base, section 8.19.3: all types, for the holder, another registrant and anybody else, each command.
#[test]
fn each_type_keeps_out_whom_it_should() {
    let machine = Machine::start();
    let (_admins, mut ios): (Vec<_>, Vec<_>) = (1..=3).map(|id| controller(&machine, id)).unzip();
    let (free, shut) = ([0; 6], [CONFLICT; 6]);
    for (kind, registrant, other) in [
        (T::WriteExclusive, (true, false), (true, false)),
        (T::ExclusiveAccess, (false, false), (false, false)),
        (T::WriteExclusiveRegistrants, (true, true), (true, false)),
        (T::ExclusiveAccessRegistrants, (true, true), (false, false)),
        (T::WriteExclusiveAll, (true, true), (true, false)),
        (T::ExclusiveAccessAll, (true, true), (false, false)),
    ] {
        register(&mut ios[0], 1);
        register(&mut ios[1], 2);
        assert_eq!(act(&mut ios[0], Action::Acquire(Acquire::Free, kind), 1, 0), 0);
        for (number, (reads, writes)) in [(true, true), registrant, other].into_iter().enumerate() {
            let (read, written) = access(&mut ios[number]);
            let expected = |may: bool| if may { &free[..] } else { &shut[..] };
            assert_eq!(read, expected(reads)[..3], "{kind:?}, host {number} reads");
            assert_eq!(written, expected(writes), "{kind:?}, host {number} writes");
        }
        assert_eq!(act(&mut ios[0], Action::Clear, 1, 0), 0);
        assert_eq!(access(&mut ios[2]).1, free, "nobody is kept out any more");
    }
}

/// Base, section 8.19: identifiers of hosts count, not controllers.
#[test]
fn all_controllers_of_a_host_are_one_registrant() {
    let machine = Machine::start();
    let (_first, mut io) = controller(&machine, 1);
    let (_second, mut other) = controller(&machine, 1);
    register(&mut io, 7);
    let take = Action::Acquire(Acquire::Free, T::ExclusiveAccess);
    assert_eq!(act(&mut other, take, 7, 0), 0, "by the other one");
    assert_eq!(registrants(&mut io, 1), (2, vec![(1, 7, 1)]));
    assert_eq!((io.write(0, &[1; BLOCK]), other.write(0, &[2; BLOCK])), (0, 0));
    let (_admin, mut stranger) = controller(&machine, 2);
    assert_eq!(stranger.write(0, &[3; BLOCK]), CONFLICT);
    assert_eq!(stranger.read(0, 1).1, CONFLICT);
}

/// Whoever was let in before an Acquire, and sends its data after the answer, changes nothing: a check on arrival alone
/// would let it.
#[test]
fn a_write_whose_data_comes_after_the_answer_is_not_carried_out() {
    let machine = Machine::start();
    let (_admin, mut holder) = controller(&machine, 1);
    let (_other, mut late) = controller(&machine, 2);
    register(&mut holder, 1);
    let (cid, tag) = late.announce(0, 4);
    let take = Action::Acquire(Acquire::Free, T::WriteExclusive);
    assert_eq!(act(&mut holder, take, 1, 0), 0);
    let length = 4 * BLOCK as u32;
    late.put(&h2c(cid, tag, 0, length, 4, &vec![0xee; length as usize]));
    assert_eq!(late.finish().2, CONFLICT);
    assert_eq!(holder.read(0, 4), (vec![0; 4 * BLOCK], 0));
}

/// A drive that holds up the core of whoever submits to it, for as long as a test holds the gate.
struct Gated {
    drive: RamDevice,
    gate: Arc<Mutex<()>>,
    /// Cores of queues, in the order in which they were opened.
    cores: Arc<Mutex<Vec<CoreIndex>>>,
    /// How often somebody came to the gate.
    knocks: Arc<AtomicU32>,
}

struct GatedQueue {
    queue: Box<dyn IoQueue>,
    gate: Arc<Mutex<()>>,
    knocks: Arc<AtomicU32>,
}

impl BlockDevice for Gated {
    fn info(&self) -> DeviceInfo {
        self.drive.info()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        self.cores.lock().expect("no panic").push(core);
        let queue = self.drive.open_queue(core, depth)?;
        let (gate, knocks) = (Arc::clone(&self.gate), Arc::clone(&self.knocks));
        Ok(Box::new(GatedQueue { queue, gate, knocks }))
    }
}

impl IoQueue for GatedQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        self.knocks.fetch_add(1, Ordering::SeqCst);
        // A test that fails lets everybody through.
        let _open = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue.submit(io)
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.queue.ring_doorbell(now);
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        self.queue.poll(now, batch);
    }

    fn readiness(&self) -> Readiness {
        self.queue.readiness()
    }
}

/// A queue of another core that has checked a write, and has not handed it over yet, is waited for: otherwise the
/// write would follow the answer.
#[test]
fn the_answer_waits_for_a_core_that_has_not_seen_it() {
    let (gate, cores, knocks) = <(Arc<Mutex<()>>, Arc<Mutex<Vec<_>>>, Arc<AtomicU32>)>::default();
    let device = Gated {
        drive: RamDevice::new(BLOCKS, BlockSize::B4096),
        gate: Arc::clone(&gate),
        cores: Arc::clone(&cores),
        knocks: Arc::clone(&knocks),
    };
    let machine = Machine::with(Arc::new(device));
    let last_core = || *cores.lock().expect("no panic").last().expect("a queue");
    let (_admin, mut slow) = controller(&machine, 2);
    let slow_core = last_core();
    let mut admins = Vec::new();
    let mut holder = loop {
        let (admin, io) = controller(&machine, 1);
        admins.push(admin);
        if last_core() != slow_core {
            break io;
        }
    };
    register(&mut holder, 1);
    let held = gate.lock().expect("no panic");
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    slow.send(nvm::WRITE, sgl, &[(1, 1)], &[0xee; BLOCK]);
    until("the write was checked", || knocks.load(Ordering::SeqCst) == 1);
    ask_of(&mut holder, 1, Action::Acquire(Acquire::Free, T::WriteExclusive), 1, 0);
    let is_held = || {
        let known = machine.target.reservations(SUBSYSTEM, 1);
        known.is_some_and(|known| known.held.is_some())
    };
    until("it is in force", is_held);
    // The answer to this comes first, so there is none to the other yet.
    assert_eq!(registrants(&mut holder, 1), (1, vec![(1, 1, 1)]));
    drop(held);
    assert_eq!(slow.finish().2, 0, "it was before");
    assert_eq!(holder.finish().2, 0, "now it is answered");
}

/// Many times over, on queues of different cores: a write that is sent after the answer is refused every time.
#[test]
fn nothing_that_is_sent_after_the_answer_is_carried_out() {
    let machine = Machine::start();
    let (_admin, mut holder) = controller(&machine, 1);
    let others: Vec<_> = (2..=5).map(|id| controller(&machine, id)).collect();
    let (_admins, mut others): (Vec<_>, Vec<_>) = others.into_iter().unzip();
    register(&mut holder, 1);
    for round in 0..100 {
        let take = Action::Acquire(Acquire::Free, T::WriteExclusiveRegistrants);
        assert_eq!(act(&mut holder, take, 1, 0), 0);
        for other in &mut others {
            assert_eq!(other.write(0, &[0xee; BLOCK]), CONFLICT, "round {round}");
        }
        let release = Action::Release(T::WriteExclusiveRegistrants);
        assert_eq!(act(&mut holder, release, 1, 0), 0);
        assert_eq!(others[round % 4].write(1, &[0x11; BLOCK]), 0, "round {round}");
    }
    assert_eq!(holder.read(0, 1), (vec![0; BLOCK], 0));
}

/// A machine on whose drive these operations hang, and two registrants, of whom the second has what all may have.
fn contested(ops: Ops) -> (Machine, FaultPlan, strake_dev_mem::RuleId, [(Host, Host); 2]) {
    let plan = FaultPlan::new(1);
    let rule = plan.add(Rule::new(ops, Effect::Hang));
    let drive = RamDevice::new(1 << 20, BlockSize::B4096);
    let machine = Machine::with(Arc::new(Faulty::new(drive, plan.clone())));
    let mut hosts = [controller(&machine, 1), controller(&machine, 2)];
    register(&mut hosts[0].1, 1);
    register(&mut hosts[1].1, 2);
    (machine, plan, rule, hosts)
}

/// Preempt and Abort: what is at a device is waited for, what is not there yet ends with a word of its own.
#[test]
fn a_preemption_with_abort_is_answered_when_commands_of_the_other_are_over() {
    let (_machine, plan, rule, [(_admin, mut taker), (_other, mut victim)]) = contested(Ops::WRITE);
    let take = Action::Acquire(Acquire::Free, T::WriteExclusive);
    assert_eq!(act(&mut victim, take, 2, 0), 0, "it is the other's until then");
    let (late, tag) = victim.announce(8, 4);
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    let stuck = victim.send(1, sgl, &[(1, 1)], &[7; BLOCK]);
    until("the write is at the device", || plan.struck(rule) == Some(1));

    ask_of(&mut taker, 1, Action::Acquire(Acquire::PreemptAndAbort, T::WriteExclusive), 1, 2);
    until("the other one is shut out", || {
        victim.send(nvm::FLUSH, Sgl::Transport { length: 0 }, &[(1, 1)], &[]);
        victim.finish().2 == CONFLICT
    });
    // The answer to this comes first, so there is none to the other yet.
    assert_eq!(registrants(&mut taker, 1), (1, vec![(1, 1, 1)]));
    let length = 4 * BLOCK as u32;
    victim.put(&h2c(late, tag, 0, length, 4, &vec![0xee; length as usize]));
    assert_eq!(victim.finish().2, code(Status::PREEMPTED), "it had not reached the device");

    plan.release();
    let (_, _, status) = taker.finish();
    assert_eq!(status, 0, "now it is answered");
    assert_eq!(victim.finish().2, 0, "command {stuck} could not be called back");
    assert_eq!(taker.read(8, 4), (vec![0; 4 * BLOCK], 0));
}

/// A deallocation and a Copy take many I/Os: the next one is not begun.
#[test]
fn a_command_of_many_parts_does_not_go_on_after_it_was_shut_out() {
    let mut range = [0; 16];
    range[4..8].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    let source = |start| SourceRange { start, count: 1 }.bytes();
    let sources = [source(0), source(1)].concat();
    let conflict = (Acquire::Preempt, CONFLICT);
    let preempted = (Acquire::PreemptAndAbort, code(Status::PREEMPTED));
    for (ops, opcode, word, data) in [
        (Ops::DEALLOCATE, nvm::DATASET_MANAGEMENT, [(1, 1), (11, 4), (12, 0)], &range[..]),
        (Ops::READ, nvm::COPY, [(1, 1), (10, 8), (12, 1)], &sources),
    ] {
        for (how, status) in [conflict, preempted] {
            let (machine, plan, rule, [(_admin, mut taker), (_other, mut victim)]) = contested(ops);
            let sgl = Sgl::InCapsule { offset: 0, length: data.len() as u32 };
            victim.send(opcode, sgl, &word, data);
            until("its first part is at the device", || plan.struck(rule) == Some(1));
            let take = Action::Acquire(Acquire::Free, T::WriteExclusive);
            assert_eq!(act(&mut taker, take, 1, 0), 0);
            ask_of(&mut taker, 1, Action::Acquire(how, T::WriteExclusive), 1, 2);
            until("the other one is no registrant", || {
                act(&mut victim, Action::Release(T::WriteExclusive), 2, 0) == CONFLICT
            });
            plan.release();
            assert_eq!(taker.finish().2, 0);
            assert_eq!(victim.finish().2, status, "{how:?} of {opcode:#x}");
            assert_eq!(plan.struck(rule), Some(1), "no other part was begun");
            assert_eq!(machine.target.exports()[0].effects, 0, "nothing was done");
        }
    }
}

/// Asks to be told, and what it is told.
fn told(admin: &mut Host) -> u64 {
    admin.send(0x0c, Sgl::Transport { length: 0 }, &[], &[]);
    let (_, result, status) = admin.finish();
    assert_eq!(status, 0, "an event");
    result
}

/// The page of notices: number, kind, how many more, namespace.
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

/// Base, section 8.19.1.
#[test]
fn hosts_are_told_of_what_others_did_to_them() {
    const RETAIN: u32 = 1 << 15;
    let machine = Machine::start();
    let (mut first, mut io) = controller(&machine, 1);
    let (mut second, mut other) = controller(&machine, 2);
    register(&mut io, 1);
    register(&mut other, 2);
    let only = T::WriteExclusiveRegistrants;
    assert_eq!(notice(&mut second, 0), (0, 0, 0, 0), "nothing happened");

    assert_eq!(act(&mut io, Action::Acquire(Acquire::Free, only), 1, 0), 0);
    assert_eq!(act(&mut io, Action::Release(only), 1, 0), 0);
    assert_eq!(act(&mut io, Action::Acquire(Acquire::Preempt, only), 1, 2), 0);
    assert_eq!(told(&mut second), event::RESERVATION_RESULT);
    assert_eq!(notice(&mut second, RETAIN), (1, 2, 1, 1), "it looks and leaves it there");
    assert_eq!(notice(&mut second, 0), (1, 2, 1, 1), "released");
    assert_eq!(told(&mut second), event::RESERVATION_RESULT, "there is more");
    assert_eq!(notice(&mut second, 0), (2, 1, 0, 1), "its registration was taken");
    assert_eq!(notice(&mut second, 0), (0, 0, 0, 0), "that was all");
    assert_eq!(notice(&mut first, 0), (0, 0, 0, 0), "whoever did it knows");

    // What is masked is not noted either.
    register(&mut other, 2);
    assert_eq!(set_feature(&mut first, 0x82, 1, 0b1000), 0);
    assert_eq!(get_feature(&mut second, 0x82, 1), (0b1000, 0), "it is the namespace's");
    assert_eq!(act(&mut io, Action::Clear, 1, 0), 0);
    assert_eq!(notice(&mut second, 0), (0, 0, 0, 0));
    assert_eq!(set_feature(&mut first, 0x82, u32::MAX, 0), 0, "for all namespaces");
    register(&mut io, 1);
    register(&mut other, 2);
    assert_eq!(act(&mut io, Action::Clear, 1, 0), 0);
    assert_eq!(told(&mut second), event::RESERVATION_RESULT);
    assert_eq!(notice(&mut second, 0), (3, 3, 0, 1));
}

#[test]
fn features_say_who_a_host_is_and_what_lasts() {
    let machine = Machine::start();
    let book = Arc::new(Book::default());
    machine.target.add_export(&with_book(ram(), &book)).expect("a second namespace");
    let (mut admin, mut io) = controller(&machine, 9);
    let mut host_id = |flags| {
        admin.send(0x0a, Sgl::Transport { length: 16 }, &[(10, 0x81), (11, flags)], &[]);
        let (data, _, status) = admin.finish();
        (data, status)
    };
    assert_eq!(host_id(1), (vec![9; 16], 0));
    assert_eq!(host_id(0), (vec![], code(Status::INVALID_FIELD)), "64 bits are too few");
    let sequence = code(Status::SEQUENCE_ERROR);
    assert_eq!(set_feature(&mut admin, 0x81, 0, 0), sequence, "it was said in Connect");

    assert_eq!(get_feature(&mut admin, 0x83, 2), (0, 0));
    assert_eq!(set_feature(&mut admin, 0x83, 2, 1), 0);
    assert_eq!(get_feature(&mut admin, 0x83, 2), (1, 0));
    assert!(book.page().is_some_and(|page| page.persists), "it was written down");
    assert_eq!(report(&mut io, 2, 64)[9], 1, "PTPLS");
    assert_eq!(set_feature(&mut admin, 0x83, 2, 0), 0);
    assert_eq!(book.page(), None);
    let field = code(Status::INVALID_FIELD);
    assert_eq!(set_feature(&mut admin, 0x83, 1, 1), field, "there is nowhere to write it down");
    let (bad, gone) = (code(Status::INVALID_NAMESPACE), code(Status::INACCESSIBLE));
    let away = Export { device: None, namespace: 3, uuid: [3; 16], ..with_book(ram(), &book) };
    machine.target.add_export(&away).expect("one without a device");
    for (what, namespace, status) in
        [("none", 0, bad), ("not there", 7, bad), ("too high", 33, bad), ("away", 3, gone)]
    {
        for feature in [0x82, 0x83] {
            assert_eq!(set_feature(&mut admin, feature, namespace, 0), status, "{what}");
            assert_eq!(get_feature(&mut admin, feature, namespace).1, status, "{what}");
        }
    }
    for (what, feature, value) in [
        ("no such notice", 0x82, 1),
        ("more than on", 0x83, 2),
        ("kept over a reset", 0x82 | 1 << 31, 0),
    ] {
        assert_eq!(set_feature(&mut admin, feature, 2, value), field, "{what}");
    }
    assert_eq!(get_feature(&mut admin, 0x82 | 1 << 8, 2).1, field, "there is no default");
}

#[test]
fn everything_is_announced() {
    let machine = Machine::start();
    machine.target.add_export(&with_book(ram(), &Arc::default())).expect("a second namespace");
    let (mut admin, _io) = controller(&machine, 1);
    let mut identify = |cns, namespace| {
        let sgl = Sgl::Transport { length: 4096 };
        admin.send(6, sgl, &[(1, namespace), (10, cns)], &[]);
        admin.finish().0
    };
    let page = identify(1, 0);
    assert_eq!((page[520] & 1 << 5, page[96] & 1), (1 << 5, 1), "ONCS, CTRATT");
    assert_eq!((identify(0, 1)[30], identify(0, 1)[31]), (1, 0xfe), "shared; nothing lasts");
    assert_eq!(identify(0, 2)[31], 0xff, "RESCAP");
    admin.send(2, Sgl::Transport { length: 4096 }, &[(10, 1023 << 16 | 5)], &[]);
    let effects = admin.finish().0;
    for opcode in [opcode::REGISTER, opcode::REPORT, opcode::ACQUIRE, opcode::RELEASE] {
        assert_eq!(effects[1024 + usize::from(opcode) * 4], 1, "{opcode:#x}");
    }
}

/// What a host was told of is in force after the target was gone, if it asked for that.
#[test]
fn reservations_outlast_the_target_if_they_shall() {
    let book = Arc::new(Book::default());
    let serve = || {
        let machine = Machine::start();
        machine.target.add_export(&with_book(ram(), &book)).expect("a second namespace");
        let hosts = [controller(&machine, 1), controller(&machine, 2)];
        (machine, hosts)
    };
    let on = Action::Register(Persistence::On);
    let take = Action::Acquire(Acquire::Free, T::WriteExclusive);
    let (machine, [(_a, mut one), (_b, mut two)]) = serve();
    ask_of(&mut two, 2, Action::Register(KEPT), 0, 0x22);
    assert_eq!((two.finish().2, book.page()), (0, None), "nobody asked for it");
    ask_of(&mut one, 2, on, 0, 0x11);
    assert_eq!(one.finish().2, 0);
    let written = book.page().expect("it is written down when it is answered");
    assert_eq!(written.registrants.len(), 2, "all registrants are");
    ask_of(&mut one, 2, take, 0x11, 0);
    assert_eq!(one.finish().2, 0);
    let before = report(&mut one, 2, 192);
    drop((machine, _a, _b));

    let (machine, [(_a, mut one), (_b, mut two)]) = serve();
    assert_eq!(report(&mut one, 2, 192), before);
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    two.send(nvm::WRITE, sgl, &[(1, 2)], &[1; BLOCK]);
    assert_eq!(two.finish().2, CONFLICT, "it is kept out yet");
    ask_of(&mut one, 2, Action::Replace(KeyCheck::On, Persistence::Off), 0x11, 0x12);
    assert_eq!((one.finish().2, book.page()), (0, None), "not any longer");
    drop((machine, _a, _b));
    let (_machine, [(_a, mut one), _two]) = serve();
    assert_eq!(registrants(&mut one, 2), (0, vec![]));
}

/// A command that cannot be written down has not happened; and a record that cannot be read is not taken for none.
#[test]
fn what_cannot_be_recorded_is_refused() {
    let machine = Machine::start();
    let book = Arc::new(Book::default());
    let export = with_book(ram(), &book);
    machine.target.add_export(&export).expect("a second namespace");
    let (_admin, mut io) = controller(&machine, 1);
    book.fail(Some("the page is torn"));
    ask_of(&mut io, 2, Action::Register(Persistence::On), 0, 1);
    assert_eq!(io.finish().2, code(Status::INTERNAL));
    assert_eq!(registrants(&mut io, 2), (0, vec![]));
    book.fail(None);
    ask_of(&mut io, 2, Action::Register(Persistence::On), 0, 1);
    assert_eq!(io.finish().2, 0, "another time it works");
    book.fail(Some("the page is torn"));
    let cleared = machine.target.clear_reservations(SUBSYSTEM, 2);
    assert_eq!(cleared.map_err(|e| e.kind), Err(TargetErrorKind::BadReservations));
    assert_eq!(registrants(&mut io, 2).1.len(), 1);

    let other = Machine::start();
    let refused = other.target.add_export(&export).expect_err("it cannot be known");
    assert_eq!(refused.kind, TargetErrorKind::BadReservations);
    assert!(refused.what.contains("the page is torn"), "{refused}");
    book.fail(None);
    let zero = Registrant { host: [1; 16], name: String::new(), key: 0 };
    let senseless = Reservations { registrants: vec![zero], ..Reservations::default() };
    *book.page.lock().expect("no panic") = Some(senseless);
    let refused = other.target.add_export(&export).expect_err("it makes no sense");
    assert!(refused.what.contains("no key"), "{refused}");
}

/// The operator's way out of a cluster that is gone.
#[test]
fn an_operator_ends_what_nobody_else_does() {
    let machine = Machine::start();
    let book = Arc::new(Book::default());
    machine.target.add_export(&with_book(ram(), &book)).expect("a second namespace");
    let (mut admin, mut io) = controller(&machine, 1);
    ask_of(&mut io, 2, Action::Register(Persistence::On), 0, 5);
    assert_eq!(io.finish().2, 0);
    ask_of(&mut io, 2, Action::Acquire(Acquire::Free, T::ExclusiveAccess), 5, 0);
    assert_eq!(io.finish().2, 0);
    let seen = machine.target.reservations(SUBSYSTEM, 2).expect("it is served");
    assert_eq!((seen.registrants[0].name.as_str(), seen.registrants[0].key), (common::HOST, 5));
    assert_eq!(seen.held.map(|held| held.kind), Some(T::ExclusiveAccess));
    let (_other, mut shut_out) = controller(&machine, 2);
    let read = |io: &mut Host| {
        io.send(nvm::READ, Sgl::Transport { length: BLOCK as u32 }, &[(1, 2)], &[]);
        io.finish().2
    };
    assert_eq!(read(&mut shut_out), CONFLICT);
    machine.target.clear_reservations(SUBSYSTEM, 2).expect("it is ended");
    assert_eq!((read(&mut shut_out), book.page()), (0, None));
    assert_eq!(told(&mut admin), event::RESERVATION_RESULT);
    assert_eq!(notice(&mut admin, 0), (1, 3, 0, 2));
    let unknown = machine.target.clear_reservations(SUBSYSTEM, 9);
    assert_eq!(unknown.map_err(|e| e.kind), Err(TargetErrorKind::Unknown));
}

#[test]
fn reservation_commands_that_make_no_sense_are_refused() {
    let machine = Machine::start();
    let (_admin, mut io) = controller(&machine, 1);
    let field = code(Status::INVALID_FIELD);
    let (short, odd) = (code(Status::SGL_LENGTH), code(Status::INVALID_NAMESPACE));
    let capsule = |length| Sgl::InCapsule { offset: 0, length };
    let room = |length| Sgl::Transport { length };
    for (what, opcode, sgl, words, length, status) in [
        ("half a pair of keys", opcode::REGISTER, capsule(8), [(1, 1), (10, 0)], 8, short),
        ("no keys", opcode::ACQUIRE, capsule(0), [(1, 1), (10, 1 << 8)], 0, short),
        ("three keys", opcode::ACQUIRE, capsule(24), [(1, 1), (10, 1 << 8)], 24, short),
        ("less than a key", opcode::RELEASE, capsule(4), [(1, 1), (10, 1)], 4, short),
        ("a way that is reserved", opcode::REGISTER, capsule(16), [(1, 1), (10, 7)], 16, field),
        (
            "a type that is reserved",
            opcode::ACQUIRE,
            capsule(16),
            [(1, 1), (10, 7 << 8)],
            16,
            field,
        ),
        ("any key will do", opcode::ACQUIRE, capsule(16), [(1, 1), (10, 8 | 1 << 8)], 16, field),
        ("a key of zero", opcode::REGISTER, capsule(16), [(1, 1), (10, 0)], 16, field),
        ("what cannot last", opcode::REGISTER, capsule(16), [(1, 1), (10, 3 << 30)], 16, field),
        ("all namespaces", opcode::REGISTER, capsule(16), [(1, u32::MAX), (10, 0)], 16, odd),
        ("no namespace", opcode::REPORT, room(64), [(1, 0), (10, 15)], 0, odd),
        ("too long a report", opcode::REPORT, room(2 << 20), [(1, 1), (10, 1 << 19)], 0, field),
        (
            "identifiers of 64 bits",
            opcode::REPORT,
            room(64),
            [(1, 1), (10, 15)],
            0,
            code(Status::HOST_ID_FORMAT),
        ),
        ("less room than asked for", opcode::REPORT, room(4), [(1, 1), (10, 15)], 0, short),
    ] {
        // Every key is zero, and a report is one with identifiers of 128 bits unless it is about that.
        let eds = u32::from(status != code(Status::HOST_ID_FORMAT));
        let words = [words[0], words[1], (11, eds)];
        io.send(opcode, sgl, &words, &vec![0; length]);
        assert_eq!(io.finish().2, status, "{what}");
    }
    let nobody = &mut controller(&machine, 0).1;
    assert_eq!(act(nobody, Action::Register(KEPT), 0, 1), field, "a host without an identity");
    assert_eq!(registrants(&mut io, 1), (0, vec![]), "none of it did anything");
    assert_eq!(report(&mut io, 1, 4).len(), 4, "the beginning of a report");
}

/// Some hosts bring two keys for a release, too; and keys may come as any data.
#[test]
fn keys_come_in_any_way_that_data_comes() {
    let machine = Machine::start();
    let (_admin, mut io) = controller(&machine, 1);
    register(&mut io, 3);
    let keys = Keys { current: 3, other: 0 }.bytes();
    let sgl = Sgl::InCapsule { offset: 0, length: 16 };
    let cid = io.send(opcode::ACQUIRE, Sgl::Transport { length: 16 }, &[(1, 1), (10, 1 << 8)], &[]);
    let asked = io.pdu().expect("the connection stays");
    let tag = u16::from_le_bytes([asked.header[2], asked.header[3]]);
    io.put(&h2c(cid, tag, 0, 16, 4, &keys));
    assert_eq!(io.finish().2, 0);
    assert_eq!(registrants(&mut io, 1), (1, vec![(1, 3, 1)]));
    io.send(opcode::RELEASE, sgl, &[(1, 1), (10, 1 << 8)], &keys);
    assert_eq!(io.finish().2, 0);
    assert_eq!(registrants(&mut io, 1), (0, vec![(1, 3, 0)]));
}

/// A host that sends many of them while nothing can be written is told to try again, and its queue goes on.
#[test]
fn reservation_commands_that_wait_are_few_and_hold_up_nothing() {
    let machine = Machine::start();
    let book = Arc::new(Book::default());
    machine.target.add_export(&with_book(ram(), &book)).expect("a second namespace");
    let (_admin, mut io) = controller(&machine, 1);
    let gate = book.gate.lock().expect("no panic");
    for _ in 0..=RESERVATIONS_ASKED_MAX {
        ask_of(&mut io, 2, Action::Register(Persistence::On), 0, 1);
    }
    assert_eq!(io.finish().2, code(Status::INTERRUPTED), "one too many");
    assert_eq!(io.write(0, &[1; BLOCK]), 0, "the queue goes on");
    drop(gate);
    for _ in 0..RESERVATIONS_ASKED_MAX {
        assert_eq!(io.finish().2, 0);
    }
}

/// A host that leaves while its command is being carried out is not waited for, and a target that stops waits for
/// nobody.
#[test]
fn whoever_goes_in_the_middle_of_it_holds_up_nobody() {
    let machine = Machine::start();
    let book = Arc::new(Book::default());
    machine.target.add_export(&with_book(ram(), &book)).expect("a second namespace");
    let (admin, mut io) = controller(&machine, 1);
    let gate = book.gate.lock().expect("no panic");
    ask_of(&mut io, 2, Action::Register(Persistence::On), 0, 1);
    until("it is to be written", || book.knocks.load(Ordering::SeqCst) == 1);
    drop((admin, io));
    let seen = || machine.target.exports()[0].connections;
    until("the host is gone", || seen() == 0);
    drop(gate);
    let (_admin, mut io) = controller(&machine, 2);
    ask_of(&mut io, 2, Action::Register(KEPT), 0, 2);
    assert_eq!(io.finish().2, 0);
    assert_eq!(registrants(&mut io, 2).1, [(1, 1, 0), (2, 2, 0)], "it came into force");
}

/// What waits for a guard has not reached the device either, nor has the second half of a pair of which the first is
/// being compared.
#[test]
fn what_waits_for_a_comparison_is_not_carried_out_after_it_was_shut_out() {
    let (machine, plan, rule, [(_admin, mut taker), (_other, mut victim)]) = contested(Ops::READ);
    let (first, second) = victim.send_pair(0, &[0; BLOCK], &[1; BLOCK]);
    until("it is compared", || plan.struck(rule) == Some(1));
    let in_capsule = |length: usize| Sgl::InCapsule { offset: 0, length: length as u32 };
    let write = victim.send(nvm::WRITE, in_capsule(BLOCK), &[(1, 1)], &[2; BLOCK]);
    let mut range = [0; 16];
    range[4] = 1;
    let words = [(1, 1), (11, 4)];
    let deallocation = victim.send(nvm::DATASET_MANAGEMENT, in_capsule(16), &words, &range);
    let zeroes = victim.send(nvm::WRITE_ZEROES, Sgl::Transport { length: 0 }, &[(1, 1)], &[]);
    let take = Action::Acquire(Acquire::Free, T::WriteExclusive);
    assert_eq!(act(&mut taker, take, 1, 0), 0);
    let (ended, all) = (victim.endings(4), [second, write, deallocation, zeroes]);
    assert_eq!(all.map(|cid| ended[&cid]), [CONFLICT; 4]);
    plan.clear();
    plan.release();
    assert_eq!(victim.endings(1)[&first], code(Status::FAILED_FUSED));
    assert_eq!(taker.read(0, 1), (vec![0; BLOCK], 0));
    assert_eq!(taker.compare_and_write(0, &[0; BLOCK], &[3; BLOCK]), (0, 0));
    assert_eq!(machine.target.exports()[0].effects, 0, "nothing was done");
}
