//! The reservations of a namespace, and their persistent record.

use crate::controller::Host;
use crate::reservation::{Change, Reservations, Rights};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_nvme_wire::reservation::{HostId, NoticeKind};

/// The persistent record of the reservations of one namespace.
pub trait Ledger: Send + Sync {
    /// Reads the record, if there is one.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the record cannot be read. The namespace is then not served: without the
    /// recorded reservation, hosts could write that the reservation excludes.
    fn read(&self) -> Result<Option<Reservations>, String>;

    /// Writes the record; `None` removes it. The record is durable when this returns.
    ///
    /// # Errors
    /// Returns a sentence for the operator. The previous record is unchanged, unless the sentence states that this is
    /// unknown.
    fn write(&self, reservations: Option<&Reservations>) -> Result<(), String>;

    /// Called with the reservations that take effect, recorded or not, before any command completes. Exports of the
    /// same device by other protocols must apply them. Must not wait.
    fn enforced(&self, _reservations: &Reservations) {}
}

/// The reservations in force.
pub(crate) struct Kept {
    ledger: Option<Arc<dyn Ledger>>,
    state: Mutex<InForce>,
    /// Kinds of notices that are masked.
    mask: AtomicU32,
    /// Held while the record is written.
    pen: Mutex<()>,
}

struct InForce {
    reservations: Reservations,
    /// The last change of the subsystem that aborted commands, and the hosts of those commands.
    expelled: (u64, Vec<HostId>),
    /// The reason why the last change was not recorded.
    trouble: Option<String>,
    /// The namespace was removed: a later namespace would find a record that is written now.
    is_over: bool,
}

impl Kept {
    /// Reads the record of a ledger; without a ledger, there are no reservations.
    ///
    /// # Errors
    /// Returns the error of the ledger, or the inconsistency of its record.
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

    /// No code panics while it holds the lock, so the value of a poisoned lock is consistent. The lock is taken when
    /// reservations change, for reservation commands, and when a queue opens the device, never for other commands.
    fn lock(&self) -> MutexGuard<'_, InForce> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn can_persist(&self) -> bool {
        self.ledger.is_some()
    }

    pub(crate) fn reservations(&self) -> Reservations {
        self.lock().reservations.clone()
    }

    /// The access rights of a host. A host with the identifier of another host has no rights of that host.
    pub(crate) fn rights(&self, host: &Host) -> Rights {
        let state = self.lock();
        if state.reservations.is_of_another(&host.id, &host.nqn) {
            return state.reservations.rights_of_others();
        }
        state.reservations.rights(&host.id)
    }

    /// True if the identifier of a host is registered under another NQN.
    pub(crate) fn is_of_another(&self, host: &Host) -> bool {
        self.lock().reservations.is_of_another(&host.id, &host.nqn)
    }

    /// Returns whether a change after `seen` aborted the commands of a host.
    pub(crate) fn has_expelled(&self, host: &HostId, seen: u64) -> bool {
        let state = self.lock();
        state.expelled.0 > seen && state.expelled.1.contains(host)
    }

    /// Records a change if reservations persist. Only the reservation thread calls this and `enforce`.
    ///
    /// # Errors
    /// Returns the error of the ledger, or that the namespace was removed.
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

    /// The reason why the last change was not recorded, as a sentence for the operator.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    /// Prevents further writes of the record. After this returns, the ledger is not called for changes.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
    }

    /// Waits for a write in progress. After [`end`](Self::end) and this have returned, a record that the caller removes
    /// stays removed. Called on control threads.
    pub(crate) fn wait_written(&self) {
        drop(self.pen());
    }

    /// Only a ledger can panic while it holds the lock, and a ledger has its own state.
    fn pen(&self) -> MutexGuard<'_, ()> {
        self.pen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change as the subsystem's change `number`; queues obey it when they read that number.
    pub(crate) fn enforce(&self, change: &Change, number: u64) {
        let mut state = self.lock();
        state.reservations = change.next.clone();
        // The lock is held here, because exports that apply reservations outlive the namespace.
        if let Some(ledger) = self.ledger.as_ref().filter(|_| !state.is_over) {
            ledger.enforced(&change.next);
        }
        if !change.expelled.is_empty() {
            state.expelled = (number, change.expelled.clone());
        }
    }

    /// Kinds of notices that are masked. Relaxed: the value orders no other access.
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
