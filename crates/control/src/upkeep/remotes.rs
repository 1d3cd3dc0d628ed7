//! Remote drives that are connected again, and reports of those that are lost.

use std::thread;
use std::time::Instant;

use strake_dev_fabrics::{FabricsDevice, ReservationMode};
use strake_reactor::monotonic;
use strake_units::Nanos;

use crate::commands::remote::{remote_key, unreleased};
use crate::control::Control;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::record::store::RemoteRecord;
use crate::remote::connections::{Failed, Remotes};

/// Connects recorded drives that are not connected, and tells which were lost and came back.
pub(crate) fn tend_remotes(control: &Control) -> Result<(), ControlError> {
    let (due, orphans) = control.run(|m| {
        m.tell_losses();
        m.note_associations();
        Ok((m.due_remotes(), std::mem::take(&mut m.remotes.orphans)))
    })?;
    for record in orphans {
        release_orphan(control, record)?;
    }
    for record in due {
        let (own, address) = (control.clone(), record.address.clone());
        let connect = move || {
            let settled_at = own.run(Manager::may_connect);
            let result = settled_at.and_then(|at| record.connect(ReservationMode::Claim, at));
            // Nobody is there to be told when the control plane is of no use any more.
            let _ = own.run(|m| {
                m.end_connecting(&record, result);
                Ok(())
            });
        };
        let started = thread::Builder::new().name("drive connect".to_owned()).spawn(connect);
        if let Err(error) = started {
            control.run(|m| {
                m.note_failed(&address, format!("it cannot be connected: {error}"));
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Has a thread give up what is reserved for a drive that was forgotten, unless that is known again.
fn release_orphan(control: &Control, record: RemoteRecord) -> Result<(), ControlError> {
    let Some(reserved) = control.try_reserve(vec![remote_key(&record.address)])? else {
        // Somebody connects or disconnects it just now.
        return control.run(|m| {
            m.remotes.orphans.push(record);
            Ok(())
        });
    };
    if control.run(|m| Ok(m.records.config.is_recorded(&record.address)))? {
        return Ok(());
    }
    let release = move || {
        if let Err(error) = record.release() {
            tracing::warn!(reason = %unreleased(&record.address, &error), "a reservation stays");
        }
        drop(reserved);
    };
    // Without a thread it stays, which whoever wants the drive is told.
    let _ = thread::Builder::new().name("drive release".to_owned()).spawn(release);
    Ok(())
}

impl Manager {
    /// From when on drives of other machines that are connected to now may be changed, on the monotonic clock.
    ///
    /// # Errors
    /// When another process that used them with the records of this one still runs.
    pub(crate) fn may_connect(&mut self) -> Result<Nanos, ControlError> {
        let now = monotonic();
        match self.past.still_runs(now) {
            None => Ok(self.past.all_settled_at(now)),
            Some(pid) => Err(ControlError::state(format!(
                "process {pid}, an earlier daemon with this state directory, still runs and may write to the drive; \
                 end it first"
            ))),
        }
    }

    /// Records that a drive is used, before it is. What cannot be recorded is used all the same: the labels of arrays
    /// have the next daemon wait as well.
    pub(crate) fn note_association(&mut self, device: &FabricsDevice) {
        if let Err(error) = self.past.use_drive(device, monotonic()) {
            tracing::warn!(drive = %device.address(), %error, "the use of a remote drive is not recorded");
        }
    }

    /// The same for what has changed since: a drive that is reached over more paths, or a target that takes longer.
    fn note_associations(&mut self) {
        for device in self.drives.remotes() {
            self.note_association(&device);
        }
    }

    /// Recorded drives that should be connected to now; they count as being connected from here on.
    fn due_remotes(&mut self) -> Vec<RemoteRecord> {
        if self.stopping {
            return Vec::new();
        }
        let Remotes { connecting, failed, .. } = &self.remotes;
        let now = Instant::now();
        let is_due = |record: &&RemoteRecord| {
            self.drives.remote(&record.address).is_none()
                && !connecting.contains(&record.address)
                && !self.reserved.contains(&remote_key(&record.address))
                && failed.get(&record.address).is_none_or(|failed| now >= failed.next)
        };
        let due: Vec<_> = self.records.config.remotes.iter().filter(is_due).cloned().collect();
        self.remotes.connecting.extend(due.iter().map(|record| record.address.clone()));
        due
    }

    pub(crate) fn end_connecting(
        &mut self,
        record: &RemoteRecord,
        result: Result<FabricsDevice, ControlError>,
    ) {
        self.remotes.connecting.remove(&record.address);
        let is_ours = |device: &FabricsDevice| device.is_reserved() == Some(true);
        if result.as_ref().is_ok_and(is_ours) && !self.records.config.is_recorded(&record.address) {
            // It was forgotten, perhaps before it was reserved.
            self.remotes.orphans.push(record.clone());
        }
        // Somebody may have forgotten it, or connected it by hand.
        if !self.records.config.remotes.contains(record)
            || self.drives.remote(&record.address).is_some()
        {
            return;
        }
        if let Err(error) = result.and_then(|device| self.adopt_remote(record, device)) {
            self.note_failed(&record.address, error.what);
        }
    }

    fn note_failed(&mut self, address: &str, why: String) {
        self.remotes.connecting.remove(address);
        let failed = Failed::after(self.remotes.failed.get(address), why);
        self.remotes.failed.insert(address.to_owned(), failed);
    }
}

impl Manager {
    /// Tells of drives that were lost and came back since the last look, and of paths to drives that have several: the
    /// only path of a drive is told of as the drive.
    fn tell_losses(&mut self) {
        let notes = self.remotes.reported.look(self.drives.remote_paths());
        notes.into_iter().for_each(|note| self.record(note));
    }
}
