use super::{Kept, Ledger};
use crate::reservation::{Change, Reservations};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A ledger that counts calls of `enforced`.
#[derive(Default)]
struct Counts(AtomicU32);

impl Ledger for Counts {
    fn read(&self) -> Result<Option<Reservations>, String> {
        Ok(None)
    }

    fn write(&self, _: Option<&Reservations>) -> Result<(), String> {
        Ok(())
    }

    fn enforced(&self, _: &Reservations) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The removal of an export restored the rights of others, and a change in progress revoked them permanently.
#[test]
fn a_change_after_the_end_concerns_no_other_export() {
    let counts = Arc::new(Counts::default());
    let kept = Kept::open(Some(Arc::clone(&counts) as Arc<dyn Ledger>)).expect("it is empty");
    let next = Reservations { persists: true, ..Reservations::default() };
    let change = Change { next, reported: Vec::new(), expelled: Vec::new() };
    kept.enforce(&change, 1);
    assert_eq!(counts.0.load(Ordering::Relaxed), 2, "once when it was opened");
    kept.end();
    kept.enforce(&change, 2);
    assert_eq!(counts.0.load(Ordering::Relaxed), 2);
    assert!(kept.record(&Reservations::default(), &change.next).is_err(), "nor is it written");
}
