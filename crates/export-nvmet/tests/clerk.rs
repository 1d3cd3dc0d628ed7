//! Who waits for whom when several hosts change reservations, and who hears of it when.

mod common;

use common::{BLOCK, BLOCKS, HOST, Host, Machine, SUBSYSTEM, export, until};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use strake_block::{BlockDevice, CompletionBatch, DeviceError, DeviceInfo, Io, IoQueue, Readiness};
use strake_dev_mem::{Effect, FaultPlan, Ops, RamDevice, Rule, RuleId};
use strake_export_nvmet::limits::RESERVATIONS_ASKED_MAX;
use strake_export_nvmet::{Export, Ledger, Reservations};
use strake_nvme_wire::Sgl;
use strake_nvme_wire::feature::event;
use strake_nvme_wire::nvm::opcode as nvm;
use strake_nvme_wire::reservation::{
    Acquire, Action, Keys, Persistence, ReservationType as T, opcode,
};
use strake_units::{BlockSize, CoreIndex, Nanos};

const SECOND: &str = "nqn.2014-08.org.nvmexpress:uuid:second-host";
const SHARED: &str = "nqn.2014-08.org.nvmexpress:uuid:shared";
const PREEMPT: Action = Action::Acquire(Acquire::PreemptAndAbort, T::WriteExclusive);

/// A record that lets one write after another through, when a test says so.
struct Turnstile {
    passes: Mutex<Receiver<()>>,
    /// How many registrants there were with each write that came here.
    seen: Mutex<Vec<usize>>,
}

impl Turnstile {
    fn new() -> (Arc<Self>, Sender<()>) {
        let (pass, passes) = mpsc::channel();
        (Arc::new(Self { passes: Mutex::new(passes), seen: Mutex::new(Vec::new()) }), pass)
    }

    fn seen(&self) -> Vec<usize> {
        self.seen.lock().expect("no panic").clone()
    }
}

impl Ledger for Turnstile {
    fn read(&self) -> Result<Option<Reservations>, String> {
        Ok(None)
    }

    fn write(&self, reservations: Option<&Reservations>) -> Result<(), String> {
        let registrants = reservations.map_or(0, |known| known.registrants.len());
        self.seen.lock().expect("no panic").push(registrants);
        // A test that is over, or has failed, lets everybody through.
        let _ = self.passes.lock().expect("no panic").recv();
        Ok(())
    }
}

fn ram() -> Arc<dyn BlockDevice> {
    Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096))
}

/// A second namespace with this record.
fn recorded(ledger: &Arc<Turnstile>) -> Export {
    let ledger: Arc<dyn Ledger> = Arc::clone(ledger) as _;
    Export { ledger: Some(ledger), namespace: 2, uuid: [2; 16], ..export(ram()) }
}

/// A controller of a host, with one I/O queue.
fn controller(machine: &Machine, names: (&str, &str), id: u8) -> (Host, Host) {
    let mut admin = Host::asked(machine);
    admin.id = id;
    let number = admin.connect_as(names, 0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut io = Host::asked(machine);
    io.id = id;
    io.connect_as(names, 1, number, 0).expect("an I/O queue");
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

/// Asks who is a registrant, which waits for nothing, and sees that everything sent before has been taken in.
fn is_taken_in(io: &mut Host, namespace: u32) {
    let words = [(1, namespace), (10, 15), (11, 1)];
    io.send(opcode::REPORT, Sgl::Transport { length: 64 }, &words, &[]);
    assert_eq!(io.finish().2, 0, "Reservation Report");
}

/// Whatever one host asks for, another one waits for one command of it: however many were there before.
#[test]
fn hosts_take_turns() {
    let machine = Machine::start();
    let (ledger, pass) = Turnstile::new();
    let hosts = vec![HOST.to_owned(), SECOND.to_owned()];
    let shared = Export { nqn: SHARED.to_owned(), hosts, ..recorded(&ledger) };
    machine.target.add_export(&shared).expect("another subsystem");
    let (_admin, mut many) = controller(&machine, (HOST, SHARED), 1);
    let (_other, mut one) = controller(&machine, (SECOND, SHARED), 2);
    let register = Action::Register(Persistence::On);
    for _ in 0..RESERVATIONS_ASKED_MAX {
        ask_of(&mut many, 2, register, 0, 1);
    }
    is_taken_in(&mut many, 2);
    until("the first is written down", || ledger.seen() == [1]);
    ask_of(&mut one, 2, register, 0, 2);
    is_taken_in(&mut one, 2);
    for _ in 0..2 {
        pass.send(()).expect("somebody waits for it");
    }
    until("more is written down", || ledger.seen().len() == 3);
    assert_eq!(ledger.seen(), [1, 1, 2], "one more, and then the other host's");
    drop(pass);
    assert_eq!(one.finish().2, 0);
    for _ in 0..RESERVATIONS_ASKED_MAX {
        assert_eq!(many.finish().2, 0);
    }
}

/// A machine on whose drive writes hang, with two registrants: who preempts, and whose write hangs.
fn contested() -> (Machine, FaultPlan, RuleId, [(Host, Host); 2]) {
    let (machine, plan) = Machine::planned(RamDevice::new(BLOCKS, BlockSize::B4096));
    let rule = plan.add(Rule::new(Ops::WRITE, Effect::Hang));
    let mut hosts = [1, 2].map(|id| controller(&machine, (HOST, SUBSYSTEM), id));
    for ((_, io), key) in hosts.iter_mut().zip(1..) {
        ask_of(io, 1, Action::Register(Persistence::Unchanged), 0, key);
        assert_eq!(io.finish().2, 0, "registration");
    }
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    hosts[1].1.send(nvm::WRITE, sgl, &[(1, 1)], &[7; BLOCK]);
    until("the write is at the device", || plan.struck(rule) == Some(1));
    (machine, plan, rule, hosts)
}

/// Whether the other registrant of [`contested`] was taken its registration.
fn is_preempted(machine: &Machine) -> bool {
    machine.target.reservations(SUBSYSTEM, 1).is_some_and(|known| known.registrants.len() == 1)
}

/// The data core that serves a queue.
fn core_of(machine: &Machine, host: &Host) -> CoreIndex {
    let from = host.stream.local_addr().ok();
    let queues = machine.target.controllers(SUBSYSTEM).into_iter().flat_map(|known| known.queues);
    let found = queues.map(|queue| queue.facts).find(|facts| facts.from == from);
    found.expect("it is connected").core
}

/// A controller of a host, and as many I/O queues as it takes until one is on such a core.
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

/// Preempt and Abort is answered when what it waits for is over, not when nobody else asks for anything.
#[test]
fn a_preemption_is_answered_between_commands_of_others() {
    let (machine, plan, _rule, [(_admin, mut taker), (_other, mut victim)]) = contested();
    let (ledger, pass) = Turnstile::new();
    machine.target.add_export(&recorded(&ledger)).expect("a second namespace");
    ask_of(&mut taker, 1, PREEMPT, 1, 2);
    until("it is preempted", || is_preempted(&machine));
    let (_third, mut many) = controller(&machine, (HOST, SUBSYSTEM), 3);
    for _ in 0..2 {
        ask_of(&mut many, 2, Action::Register(Persistence::On), 0, 1);
    }
    is_taken_in(&mut many, 2);
    until("one of another host is written down", || ledger.seen().len() == 1);
    plan.release();
    assert_eq!(victim.finish().2, 0, "the write is over");
    is_taken_in(&mut victim, 1);
    pass.send(()).expect("somebody waits for it");
    assert_eq!(taker.finish().2, 0, "answered before the next of the other host is written down");
    drop(pass);
    assert_eq!((many.finish().2, many.finish().2), (0, 0));
}

/// A core that waits for a device which does not answer has nothing to do.
#[test]
fn a_preemption_that_waits_for_a_device_lets_cores_sleep() {
    let (machine, plan, _rule, [(_admin, mut taker), (_other, mut victim)]) = contested();
    ask_of(&mut taker, 1, PREEMPT, 1, 2);
    until("it is preempted", || is_preempted(&machine));
    is_taken_in(&mut taker, 1);
    is_taken_in(&mut victim, 1);
    until("both cores sleep", || (0..2).all(|core| machine.is_asleep(CoreIndex(core))));
    plan.release();
    assert_eq!((taker.finish().2, victim.finish().2), (0, 0));
}

/// A drive that holds up the core of whoever submits to it, for as long as a test holds the gate.
struct Gated {
    drive: RamDevice,
    gate: Arc<Mutex<()>>,
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

/// Who is preempted hears of it when it is so, not when somebody is answered: that may be a long time after, and the
/// core of the admin queue sleeps since before.
#[test]
fn a_host_is_told_before_the_preemption_is_answered() {
    let (machine, plan, _rule, [_taker, (mut told, mut victim)]) = contested();
    let (gate, knocks) = <(Arc<Mutex<()>>, Arc<AtomicU32>)>::default();
    let drive = RamDevice::new(BLOCKS, BlockSize::B4096);
    let gated = Gated { drive, gate: Arc::clone(&gate), knocks: Arc::clone(&knocks) };
    let second = Export { namespace: 2, uuid: [2; 16], ..export(Arc::new(gated)) };
    machine.target.add_export(&second).expect("a second namespace");
    let asleep = core_of(&machine, &told);
    let (_others, mut slow) = queues_until(&machine, 3, |core| core != asleep);
    let (_more, mut taker) = queues_until(&machine, 1, |core| core == asleep);
    told.send(0x0c, Sgl::Transport { length: 0 }, &[], &[]);
    told.send(0x18, Sgl::Transport { length: 0 }, &[], &[]);
    assert_eq!(told.finish().2, 0, "the event is asked for");

    let held = gate.lock().expect("no panic");
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    slow.send(nvm::WRITE, sgl, &[(1, 2)], &[1; BLOCK]);
    until("a core is held up", || knocks.load(Ordering::SeqCst) == 1);
    ask_of(&mut taker, 1, PREEMPT, 1, 2);
    until("it is preempted", || is_preempted(&machine));
    until("the other core sleeps", || machine.is_asleep(asleep));
    drop(held);
    assert_eq!(told.finish().1, event::RESERVATION_RESULT);
    plan.release();
    assert_eq!((taker.finish().2, victim.finish().2, slow.finish().2), (0, 0, 0));
}
