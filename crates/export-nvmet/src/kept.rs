//! The reservations of a namespace while it is served, and where they outlast that.

use crate::reservation::{Change, Reservations, Rights};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_nvme_wire::reservation::{HostId, NoticeKind};

/// Where the reservations of one namespace outlast a loss of power.
pub trait Ledger: Send + Sync {
    /// What is recorded, if something is.
    ///
    /// # Errors
    /// With a sentence for a person when it cannot be known. Nothing is served then: without the reservation that was
    /// there, hosts would write that it keeps out.
    fn read(&self) -> Result<Option<Reservations>, String>;

    /// Records what is to be in force, `None` for nothing. When this returns it is durable.
    ///
    /// # Errors
    /// With a sentence for a person. What was recorded before still is, unless the sentence says that this is unknown.
    fn write(&self, reservations: Option<&Reservations>) -> Result<(), String>;

    /// Called with what comes into force, recorded or not, before any host is answered. Exports of the same device by
    /// other protocols are to obey it. Must not wait.
    fn enforced(&self, _reservations: &Reservations) {}
}

/// The reservations in force.
pub(crate) struct Kept {
    ledger: Option<Arc<dyn Ledger>>,
    state: Mutex<InForce>,
    /// Kinds of notices to send to no host.
    mask: AtomicU32,
    /// Held while something is being written down.
    pen: Mutex<()>,
}

struct InForce {
    reservations: Reservations,
    /// The change of the subsystem that gave up commands last, and whose.
    expelled: (u64, Vec<HostId>),
    /// Why the last change that was to be written down was not.
    trouble: Option<String>,
    /// The namespace was removed: what is written now would be found by another one.
    is_over: bool,
}

impl Kept {
    /// What a ledger says, or nothing yet.
    ///
    /// # Errors
    /// Those of the ledger, or what is wrong with what it says.
    pub(crate) fn open(ledger: Option<Arc<dyn Ledger>>) -> Result<Self, String> {
        let known = ledger.as_ref().map_or(Ok(None), |ledger| ledger.read())?;
        let reservations = known.unwrap_or_default();
        reservations.check().map_err(|why| format!("its reservations make no sense: {why}"))?;
        if let Some(ledger) = &ledger {
            ledger.enforced(&reservations);
        }
        let state =
            InForce { reservations, expelled: (0, Vec::new()), trouble: None, is_over: false };
        let (state, pen, mask) = (Mutex::new(state), Mutex::new(()), AtomicU32::new(0));
        Ok(Self { ledger, state, mask, pen })
    }

    /// Nothing panics while holding the lock, so a poisoned one holds a sound value. It is taken when reservations
    /// change, when a host asks for them, and when a queue opens the device, never for another command.
    fn lock(&self) -> MutexGuard<'_, InForce> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn can_persist(&self) -> bool {
        self.ledger.is_some()
    }

    pub(crate) fn reservations(&self) -> Reservations {
        self.lock().reservations.clone()
    }

    pub(crate) fn rights(&self, host: &HostId) -> Rights {
        self.lock().reservations.rights(host)
    }

    /// Whether a change after `seen` gave up a host's commands.
    pub(crate) fn has_expelled(&self, host: &HostId, seen: u64) -> bool {
        let state = self.lock();
        state.expelled.0 > seen && state.expelled.1.contains(host)
    }

    /// Makes a change durable, if it is to last. Called by the reservation thread alone, like the next.
    ///
    /// # Errors
    /// Those of the ledger, and that the namespace was removed.
    pub(crate) fn record(&self, before: &Reservations, next: &Reservations) -> Result<(), String> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        if !before.persists && !next.persists {
            return Ok(());
        }
        let _pen = self.pen();
        if self.lock().is_over {
            return Err("the namespace is gone".to_owned());
        }
        let written = ledger.write(next.persists.then_some(next));
        self.lock().trouble = written.as_ref().err().cloned();
        written
    }

    /// Why the last change that was to be written down was not, in a sentence for a person.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    /// Lets no further write begin. Once this has returned, the ledger hears of no change that comes into force.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
    }

    /// Waits for a write in progress. Once this has returned after the [`end`](Self::end), a record that the caller
    /// removes stays removed. Called on control threads.
    pub(crate) fn wait_written(&self) {
        drop(self.pen());
    }

    /// Nothing panics while holding it but a ledger, which has its own state.
    fn pen(&self) -> MutexGuard<'_, ()> {
        self.pen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a change in force as the subsystem's change `number`; queues obey it when they see that number.
    pub(crate) fn enforce(&self, change: &Change, number: u64) {
        let mut state = self.lock();
        state.reservations = change.next.clone();
        // Under the lock: the exports that obey outlast the namespace.
        if let Some(ledger) = self.ledger.as_ref().filter(|_| !state.is_over) {
            ledger.enforced(&change.next);
        }
        if !change.expelled.is_empty() {
            state.expelled = (number, change.expelled.clone());
        }
    }

    /// Kinds of notices to send to no host. Relaxed: it orders nothing.
    pub(crate) fn mask(&self) -> u32 {
        self.mask.load(Ordering::Relaxed)
    }

    pub(crate) fn set_mask(&self, mask: u32) {
        self.mask.store(mask, Ordering::Relaxed);
    }

    pub(crate) fn tells(&self, kind: NoticeKind) -> bool {
        self.mask() & kind.mask_bit() == 0
    }
}

#[cfg(test)]
mod tests;
