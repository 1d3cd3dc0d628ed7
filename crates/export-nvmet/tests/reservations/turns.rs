//! The order of reservation changes of several hosts, and the time of notifications.

use crate::common::faults::Released;
use crate::common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, export, until};
use crate::gated::Gated;
use crate::{ask_of, controller, controller_as, core_of, queues_until, ram, register, when};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use strake_dev_mem::{FaultPlan, Ops};
use strake_export_nvmet::limits::RESERVATIONS_ASKED_MAX;
use strake_export_nvmet::{Export, ExportErrorKind, Ledger, Reservations, TargetConfig};
use strake_nvme_wire::feature::{self, event};
use strake_nvme_wire::nvm::opcode as nvm;
use strake_nvme_wire::reservation::{Acquire, Action, Persistence, ReservationType as T, opcode};
use strake_nvme_wire::{Cqe, Sgl, Status};
use strake_units::CoreIndex;

const SECOND: &str = "nqn.2014-08.org.nvmexpress:uuid:second-host";
const SHARED: &str = "nqn.2014-08.org.nvmexpress:uuid:shared";
const PREEMPT: Action = Action::Acquire(Acquire::PreemptAndAbort, T::WriteExclusive);

/// A record whose writes block until a test releases them one by one.
struct Turnstile {
    passes: Mutex<Receiver<()>>,
    /// The number of registrants of each write that arrived here.
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
        // A test that has finished or failed lets every write pass.
        let _ = self.passes.lock().expect("no panic").recv();
        Ok(())
    }
}

/// A second namespace with this record.
fn recorded(ledger: &Arc<Turnstile>) -> Export {
    let ledger: Arc<dyn Ledger> = Arc::clone(ledger) as _;
    Export { ledger: Some(ledger), namespace: 2, uuid: [2; 16], ..export(ram()) }
}

/// Sends a Reservation Report, which does not wait, and so checks that all earlier commands were received.
fn is_taken_in(io: &mut Host, namespace: u32) {
    let words = [(1, namespace), (10, 15), (11, 1)];
    io.send(opcode::REPORT, Sgl::Transport { length: 64 }, &words, &[]);
    assert_eq!(io.finish().2, 0, "Reservation Report");
}

/// A host waits for at most one command of another host, even if the other host has sent many.
#[test]
fn hosts_take_turns() {
    let machine = Machine::start();
    let (ledger, pass) = Turnstile::new();
    let hosts = vec![HOST.to_owned(), SECOND.to_owned()];
    let shared = Export { nqn: SHARED.to_owned(), hosts, ..recorded(&ledger) };
    machine.target.add_export(&shared).expect("another subsystem");
    let (_admin, mut many) = controller_as(&machine, (HOST, SHARED), 1);
    let (_other, mut one) = controller_as(&machine, (SECOND, SHARED), 2);
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

/// A request for all namespaces is executed for one namespace in each turn of its host.
#[test]
fn others_have_turns_between_the_namespaces_of_a_command() {
    let machine = Machine::start();
    let (ledger, pass) = Turnstile::new();
    for namespace in [2, 3] {
        let hosts = vec![HOST.to_owned(), SECOND.to_owned()];
        let uuid = [namespace as u8; 16];
        let shared = Export { nqn: SHARED.to_owned(), hosts, namespace, uuid, ..recorded(&ledger) };
        machine.target.add_export(&shared).expect("a namespace");
    }
    let (mut admin, _io) = controller_as(&machine, (HOST, SHARED), 1);
    let (_other, mut one) = controller_as(&machine, (SECOND, SHARED), 2);
    let words = [(1, u32::MAX), (10, feature::RESERVATION_PERSISTENCE.into()), (11, 1)];
    admin.send(9, Sgl::Transport { length: 0 }, &words, &[]);
    until("the first is written down", || ledger.seen() == [0]);
    ask_of(&mut one, 2, Action::Register(Persistence::On), 0, 2);
    is_taken_in(&mut one, 2);
    drop(pass);
    assert_eq!((admin.finish().2, one.finish().2), (0, 0));
    assert_eq!(ledger.seen(), [0, 1, 0], "the other host's, and then the second namespace");
}

/// As [`when::contested`], with a write of the second host that hangs.
fn contested() -> (Machine, FaultPlan, [(Host, Host); 2]) {
    contested_with(Machine::patient())
}

/// As [`contested`], with a configuration.
fn contested_with(config: TargetConfig) -> (Machine, FaultPlan, [(Host, Host); 2]) {
    let (machine, plan, rule, mut hosts) = when::contested_with(Ops::WRITE, config);
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    hosts[1].1.send(nvm::WRITE, sgl, &[(1, 1)], &[7; BLOCK]);
    until("the write is at the device", || plan.struck(rule) == Some(1));
    (machine, plan, hosts)
}

/// True if the registration of the other registrant of [`contested`] was removed.
fn is_preempted(machine: &Machine) -> bool {
    machine.target.reservations(SUBSYSTEM, 1).is_some_and(|known| known.registrants.len() == 1)
}

/// Preempt and Abort completes as soon as the aborted commands have completed, even if other hosts send requests.
#[test]
fn a_preemption_is_answered_between_commands_of_others() {
    let (machine, plan, [(_admin, mut taker), (_other, mut victim)]) = contested();
    let (ledger, pass) = Turnstile::new();
    machine.target.add_export(&recorded(&ledger)).expect("a second namespace");
    ask_of(&mut taker, 1, PREEMPT, 1, 2);
    until("it is preempted", || is_preempted(&machine));
    let (_third, mut many) = controller(&machine, 3);
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

/// A namespace could not be preempted while the device of another namespace did not answer, from which the same host
/// had been excluded before.
#[test]
fn a_preemption_waits_for_no_device_of_another_namespace() {
    let (machine, plan, [(_admin, mut taker), (_other, mut victim)]) = contested();
    let second = Export { namespace: 2, uuid: [2; 16], ..export(ram()) };
    machine.target.add_export(&second).expect("a second namespace");
    ask_of(&mut taker, 1, PREEMPT, 1, 2);
    until("it is preempted", || is_preempted(&machine));
    for (io, key) in [(&mut taker, 1), (&mut victim, 2)] {
        ask_of(io, 2, Action::Register(Persistence::Unchanged), 0, key);
        assert_eq!(io.finish().2, 0, "registration");
    }
    ask_of(&mut taker, 2, PREEMPT, 1, 2);
    let first = taker.endings(1);
    plan.release();
    assert_eq!(victim.finish().2, 0, "the write is over");
    let all: Vec<_> = first.into_iter().chain(taker.endings(1)).collect();
    assert!(all[0].0 > all[1].0, "that of the first namespace waits");
    assert_eq!((all[0].1, all[1].1), (0, 0));
}

/// I/O in flight of a third host does not delay a preemption.
#[test]
fn a_preemption_waits_for_commands_of_no_other_host() {
    let (machine, plan, [(_admin, mut taker), (_other, mut victim)]) = contested();
    let (_third, mut idle) = controller(&machine, 3);
    register(&mut idle, 3);
    ask_of(&mut taker, 1, PREEMPT, 1, 2);
    until("it is preempted", || {
        machine.target.reservations(SUBSYSTEM, 1).is_some_and(|known| known.registrants.len() == 2)
    });
    ask_of(&mut taker, 1, PREEMPT, 1, 3);
    let first = taker.endings(1);
    plan.release();
    assert_eq!(victim.finish().2, 0, "the write is over");
    let all: Vec<_> = first.into_iter().chain(taker.endings(1)).collect();
    assert!(all[0].0 > all[1].0, "the one whose write hangs is waited for");
    assert_eq!((all[0].1, all[1].1), (0, 0));
}

/// A queue whose host has disconnected remains while I/O is in flight, but no longer waits for the reservation thread:
/// a later answer is dropped.
#[test]
fn an_answer_to_a_host_that_is_gone_is_dropped() {
    let (machine, plan, [_taker, (admin, mut gone)]) = contested();
    let (ledger, pass) = Turnstile::new();
    machine.target.add_export(&recorded(&ledger)).expect("a second namespace");
    ask_of(&mut gone, 2, Action::Register(Persistence::On), 0, 2);
    until("it is written down", || ledger.seen().len() == 1);
    drop((admin, gone));
    let connections = || machine.target.exports()[0].connections;
    until("its admin queue is gone", || connections() == 3);
    drop(pass);
    let is_in_force = || {
        let known = machine.target.reservations(SUBSYSTEM, 2);
        known.is_some_and(|known| known.registrants.len() == 1)
    };
    until("it is in force", is_in_force);
    let (_third, mut next) = controller(&machine, 3);
    ask_of(&mut next, 2, Action::Register(Persistence::On), 0, 3);
    assert_eq!(next.finish().2, 0);
    plan.release();
    until("its other queue is gone", || connections() == 4);
}

/// A core that waits for an unresponsive device sleeps.
#[test]
fn a_preemption_that_waits_for_a_device_lets_cores_sleep() {
    let (machine, plan, [(_admin, mut taker), (_other, mut victim)]) = contested();
    ask_of(&mut taker, 1, PREEMPT, 1, 2);
    until("it is preempted", || is_preempted(&machine));
    is_taken_in(&mut taker, 1);
    is_taken_in(&mut victim, 1);
    until("both cores sleep", || (0..2).all(|core| machine.is_asleep(CoreIndex(core))));
    plan.release();
    assert_eq!((taker.finish().2, victim.finish().2), (0, 0));
}

/// A preempted host is notified when the preemption takes effect, not when the command completes: the completion may
/// come much later, when the core of the admin queue already sleeps.
#[test]
fn a_host_is_notified_before_the_preemption_is_answered() {
    let (machine, plan, [_taker, (mut reported, mut victim)]) = contested();
    let gated = Gated::new();
    let (gate, knocks) = (Arc::clone(&gated.gate), Arc::clone(&gated.knocks));
    let second = Export { namespace: 2, uuid: [2; 16], ..export(Arc::new(gated)) };
    machine.target.add_export(&second).expect("a second namespace");
    let asleep = core_of(&machine, &reported);
    let (_others, mut slow) = queues_until(&machine, 3, |core| core != asleep);
    let (_more, mut taker) = queues_until(&machine, 1, |core| core == asleep);
    reported.send(0x0c, Sgl::Transport { length: 0 }, &[], &[]);
    reported.send(0x18, Sgl::Transport { length: 0 }, &[], &[]);
    assert_eq!(reported.finish().2, 0, "the event is asked for");

    let held = gate.lock().expect("no panic");
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    slow.send(nvm::WRITE, sgl, &[(1, 2)], &[1; BLOCK]);
    until("a core is held up", || knocks.load(Ordering::SeqCst) == 1);
    ask_of(&mut taker, 1, PREEMPT, 1, 2);
    until("it is preempted", || is_preempted(&machine));
    until("the other core sleeps", || machine.is_asleep(asleep));
    drop(held);
    assert_eq!(reported.finish().1, event::RESERVATION_RESULT);
    plan.release();
    assert_eq!((taker.finish().2, victim.finish().2, slow.finish().2), (0, 0, 0));
}

/// A target that stops waits for the device up to the configured time, and for nothing else: neither for the completion
/// of a Preempt and Abort, nor for later writes of the record.
#[test]
fn a_target_that_stops_waits_for_no_answer() {
    let (ledger, pass) = Turnstile::new();
    let config = TargetConfig { drain_time_max: Duration::ZERO, ..TargetConfig::default() };
    let (machine, plan, mut hosts) = contested_with(config);
    machine.target.add_export(&recorded(&ledger)).expect("a second namespace");
    ask_of(&mut hosts[0].1, 1, PREEMPT, 1, 2);
    until("it is preempted", || is_preempted(&machine));
    for _ in 0..2 {
        ask_of(&mut hosts[0].1, 2, Action::Register(Persistence::On), 0, 1);
    }
    until("something is to be written down", || ledger.seen().len() == 1);
    let released = Released(plan);
    thread::scope(|scope| {
        let stop = scope.spawn(|| machine.target.stop());
        // Commands that were not started may still complete before the host is disconnected.
        while let Some(pdu) = hosts[0].1.pdu() {
            let bytes = pdu.header[..].try_into().expect("a completion");
            assert_eq!(Cqe::parse(&bytes).status, Status::INTERNAL);
        }
        drop(pass);
        let stopped = stop.join().expect("no panic").map_err(|error| error.kind);
        assert_eq!(stopped, Err(ExportErrorKind::DrainTimeout), "the device does not answer");
    });
    released.0.release();
}
