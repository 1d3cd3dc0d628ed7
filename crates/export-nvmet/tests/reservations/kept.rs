//! Records of reservations: durability, commands during a write, and failed writes.

use crate::common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, code, export, until};
use crate::{CONFLICT, KEPT, ask_of, controller, notice, ram, registrants, report, reported};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use strake_block::BlockDevice;
use strake_export_nvmet::limits::RESERVATIONS_ASKED_MAX;
use strake_export_nvmet::{Export, ExportErrorKind, Ledger, Registrant, Removal, Reservations};
use strake_nvme_wire::feature::event;
use strake_nvme_wire::nvm::opcode as nvm;
use strake_nvme_wire::reservation::{Acquire, Action, KeyCheck, Persistence, ReservationType as T};
use strake_nvme_wire::{Sgl, Status};

/// A record that survives the target; its writes can be made to fail.
#[derive(Default)]
pub struct Book {
    page: Mutex<Option<Reservations>>,
    fails: Mutex<Option<&'static str>>,
    /// A test holds this lock to block writes.
    gate: Mutex<()>,
    /// The number of started writes.
    knocks: AtomicU32,
}

impl Book {
    pub fn page(&self) -> Option<Reservations> {
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
        // A failed test lets every write pass.
        let _open = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.verdict()?;
        *self.page.lock().expect("no panic") = reservations.cloned();
        Ok(())
    }
}

pub fn with_book(device: Arc<dyn BlockDevice>, book: &Arc<Book>) -> Export {
    let ledger: Arc<dyn Ledger> = Arc::clone(book) as _;
    Export { ledger: Some(ledger), namespace: 2, uuid: [2; 16], ..export(device) }
}

/// Acknowledged reservations are in force after a restart of the target, if the host requested persistence.
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

/// Reservations without a record stay with their namespace while its device is detached, even if it is exported without
/// a device meanwhile.
#[test]
fn reservations_stay_while_their_device_is_away() {
    let machine = Machine::start();
    let away = Export { device: None, ..with_book(ram(), &Arc::default()) };
    let here = || Export { device: Some(ram()), ..away.clone() };
    machine.target.add_export(&here()).expect("a second namespace");
    let (_admin, mut io) = controller(&machine, 1);
    ask_of(&mut io, 2, Action::Register(KEPT), 0, 1);
    assert_eq!(io.finish().2, 0);
    let before = machine.target.reservations(SUBSYSTEM, 2);
    assert_eq!(before.as_ref().map(|known| known.registrants.len()), Some(1));
    drop(machine.target.detach_device(SUBSYSTEM, 2));
    for export in [&away, &here()] {
        machine.target.add_export(export).expect("it comes back");
        assert_eq!(machine.target.reservations(SUBSYSTEM, 2), before);
    }
}

/// A command that cannot be recorded has no effect; and an unreadable record is not treated as empty.
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
    assert_eq!(machine.target.reservation_trouble(SUBSYSTEM, 2), None);
    let cleared = machine.target.clear_reservations(SUBSYSTEM, 2);
    let refused = cleared.expect_err("it cannot be recorded");
    assert_eq!(refused.kind, ExportErrorKind::BadReservations);
    assert!(refused.what.contains("the page is torn"), "{refused}");
    let trouble = machine.target.reservation_trouble(SUBSYSTEM, 2);
    assert_eq!(trouble.as_deref(), Some("the page is torn"));
    assert_eq!(registrants(&mut io, 2).1.len(), 1);

    let other = Machine::start();
    let refused = other.target.add_export(&export).expect_err("it cannot be known");
    assert_eq!(refused.kind, ExportErrorKind::BadReservations);
    assert!(refused.what.contains("the page is torn"), "{refused}");
    book.fail(None);
    let zero = Registrant { host: [1; 16], name: String::new(), key: 0 };
    let senseless = Reservations { registrants: vec![zero], ..Reservations::default() };
    *book.page.lock().expect("no panic") = Some(senseless);
    let refused = other.target.add_export(&export).expect_err("it makes no sense");
    assert!(refused.what.contains("no key"), "{refused}");
}

/// An operator clears the reservations of a removed cluster.
#[test]
fn an_operator_ends_what_no_host_does() {
    let machine = Machine::start();
    let book = Arc::new(Book::default());
    machine.target.add_export(&with_book(ram(), &book)).expect("a second namespace");
    let (mut admin, mut io) = controller(&machine, 1);
    ask_of(&mut io, 2, Action::Register(Persistence::On), 0, 5);
    assert_eq!(io.finish().2, 0);
    ask_of(&mut io, 2, Action::Acquire(Acquire::Free, T::ExclusiveAccess), 5, 0);
    assert_eq!(io.finish().2, 0);
    let seen = machine.target.reservations(SUBSYSTEM, 2).expect("it is served");
    assert_eq!((seen.registrants[0].name.as_str(), seen.registrants[0].key), (HOST, 5));
    assert_eq!(seen.held.map(|held| held.kind), Some(T::ExclusiveAccess));
    let (_other, mut shut_out) = controller(&machine, 2);
    let read = |io: &mut Host| {
        io.send(nvm::READ, Sgl::Transport { length: BLOCK as u32 }, &[(1, 2)], &[]);
        io.finish().2
    };
    assert_eq!(read(&mut shut_out), CONFLICT);
    machine.target.clear_reservations(SUBSYSTEM, 2).expect("it is ended");
    assert_eq!((read(&mut shut_out), book.page()), (0, None));
    assert_eq!(reported(&mut admin), event::RESERVATION_RESULT);
    assert_eq!(notice(&mut admin, 0), (1, 3, 0, 2));
    let unknown = machine.target.clear_reservations(SUBSYSTEM, 9);
    assert_eq!(unknown.map_err(|e| e.kind), Err(ExportErrorKind::Unknown));
}

/// A host that sends many reservation commands while no write completes gets a retryable status, and its queue
/// continues.
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

/// A host that disconnects while its command is executed delays no other host.
#[test]
fn a_host_that_leaves_in_the_middle_of_it_delays_no_other() {
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

/// An export and its record were removed while the reservation thread was writing: the thread created the record again,
/// and the next export of the array had a reservation of hosts that no longer existed.
#[test]
fn nothing_is_written_down_after_a_namespace_was_removed() {
    let machine = Machine::start();
    let book = Arc::new(Book::default());
    machine.target.add_export(&with_book(ram(), &book)).expect("a second namespace");
    let (_admin, mut io) = controller(&machine, 1);
    let gate = book.gate.lock().expect("no panic");
    ask_of(&mut io, 2, Action::Register(Persistence::On), 0, 1);
    ask_of(&mut io, 2, Action::Acquire(Acquire::Free, T::WriteExclusive), 1, 0);
    assert_eq!(registrants(&mut io, 1).1, [], "both are taken in");
    until("the first is to be written", || book.knocks.load(Ordering::SeqCst) == 1);
    thread::scope(|scope| {
        let removal = scope.spawn(|| {
            let gone = machine.target.remove_export(SUBSYSTEM, 2, Removal::Force);
            let is_written = book.gate.try_lock().is_ok();
            (gone, is_written)
        });
        until("it is gone", || !machine.target.offers(SUBSYSTEM, 2));
        assert_eq!(registrants(&mut io, 1).1, []);
        drop(gate);
        let (gone, is_written) = removal.join().expect("no panic");
        gone.expect("the namespace goes");
        assert!(is_written, "what was being written was waited for");
    });
    assert_eq!(io.finish().2, 0);
    assert_eq!(io.finish().2, code(Status::INTERNAL), "the second is refused");
    assert_eq!(book.knocks.load(Ordering::SeqCst), 1);
}
