use super::{Asker, Place, ReservationThread, Wish};
use crate::controller::Host;
use crate::kept::{Kept, Ledger};
use crate::namespace::Export;
use crate::reservation::Reservations;
use crate::subsystem::Subsystem;
use std::sync::{Arc, OnceLock};
use std::thread;
use strake_nvme_wire::Status;
use strake_nvme_wire::reservation::{Action, Keys, Persistence};

/// A ledger that stops the reservation thread during a write, and then consumes the unpark of the thread.
#[derive(Default)]
struct StopsMeanwhile {
    reservation_thread: OnceLock<ReservationThread>,
}

impl Ledger for StopsMeanwhile {
    fn read(&self) -> Result<Option<Reservations>, String> {
        Ok(None)
    }

    fn write(&self, _: Option<&Reservations>) -> Result<(), String> {
        self.reservation_thread.wait().close();
        thread::park();
        Ok(())
    }
}

/// The thread parked forever when another wait had consumed the unpark of the close.
#[test]
fn a_stop_is_noticed_whatever_became_of_its_unpark() {
    let ledger = Arc::new(StopsMeanwhile::default());
    let kept = Kept::open(Some(Arc::clone(&ledger) as Arc<dyn Ledger>)).expect("it is empty");
    let export = Export {
        nqn: String::new(),
        namespace: 1,
        uuid: [1; 16],
        device: None,
        read_only: false,
        ledger: None,
        hosts: Vec::new(),
        secure: false,
        limits: None,
    };
    let subsystem = Arc::new(Subsystem::of(&export, 4));
    let (reservation_thread, thread) = ReservationThread::start(Vec::new()).expect("a thread");
    assert!(ledger.reservation_thread.set(reservation_thread.clone()).is_ok(), "it is set once");
    let place = Place { subsystem, namespace: 1, kept: Arc::new(kept) };
    let host = Host { nqn: "a".to_owned(), id: [1; 16] };
    let wish = Wish::Act(host, Action::Register(Persistence::On), Keys { current: 0, other: 1 });
    let asker = Asker::Host("a".to_owned());
    let answer = reservation_thread.ask(&asker, vec![place.clone()], wish);
    // Yields rather than waits, so that a thread that never ends fails the test.
    assert!((0..50_000_000).any(|_| answer.get().is_some() || {
        thread::yield_now();
        false
    }));
    let ends = (0..50_000_000).any(|_| {
        thread.is_finished() || {
            thread::yield_now();
            false
        }
    });
    assert!(ends, "the thread is parked");
    let late = reservation_thread.ask(&asker, vec![place], Wish::Persist(true));
    assert_eq!(late.get(), Some(Status::INTERNAL), "nobody waits for a thread that has ended");
}
