//! Remote drives that are connected again, and reports of those that are lost.

use std::thread;

use strake_dev_fabrics::{FabricsDevice, ReservationMode};

use crate::commands::remote::{adopt_remote, remote_key, unreleased};
use crate::control::Control;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::record::store::RemoteRecord;

/// Connects recorded drives that are not connected, and tells which were lost and came back.
pub(crate) fn tend_remotes(control: &Control) -> Result<(), ControlError> {
    let (due, orphans) = control.run(|m| {
        tell_losses(m);
        note_associations(m);
        Ok((due_remotes(m), std::mem::take(&mut m.remotes.orphans)))
    })?;
    for record in orphans {
        release_orphan(control, record)?;
    }
    for record in due {
        let (own, address) = (control.clone(), record.address.clone());
        let connect = move || {
            let settled_at = own.run(|m| m.past.may_connect());
            let result = settled_at.and_then(|at| record.connect(ReservationMode::Claim, at));
            // An error means that the control plane is no longer usable: there is nothing to report it to.
            let _ = own.with(|m| end_connecting(m, &record, result));
        };
        let started = thread::Builder::new().name("drive connect".to_owned()).spawn(connect);
        if let Err(error) = started {
            control.with(|m| {
                m.remotes.note_failed(&address, format!("it cannot be connected: {error}"))
            })?;
        }
    }
    Ok(())
}

/// Has a thread give up what is reserved for a drive that was forgotten, unless that is known again.
fn release_orphan(control: &Control, record: RemoteRecord) -> Result<(), ControlError> {
    let Some(reserved) = control.try_reserve(vec![remote_key(&record.address)])? else {
        // Another task connects or disconnects it just now.
        return control.with(|m| m.remotes.orphans.push(record));
    };
    if control.with(|m| m.records.is_recorded(&record.address))? {
        return Ok(());
    }
    let release = move || {
        if let Err(error) = record.release() {
            tracing::warn!(reason = %unreleased(&record.address, &error), "a reservation stays");
        }
        drop(reserved);
    };
    // Without a thread the reservation stays, and another host that connects the drive is refused.
    let _ = thread::Builder::new().name("drive release".to_owned()).spawn(release);
    Ok(())
}

/// The same for what has changed since: a drive that is reached over more paths, or a target that takes longer.
fn note_associations(manager: &mut Manager) {
    for device in manager.drives.remotes() {
        manager.past.note_use(&device);
    }
}

/// Recorded drives that should be connected to now; they count as being connected from here on.
fn due_remotes(manager: &mut Manager) -> Vec<RemoteRecord> {
    if manager.stopping {
        return Vec::new();
    }
    let is_free = |address: &str| {
        manager.drives.remote(address).is_none() && !manager.reserved.contains(&remote_key(address))
    };
    manager.remotes.begin_due(&manager.records.remotes, is_free)
}

pub(crate) fn end_connecting(
    manager: &mut Manager,
    record: &RemoteRecord,
    result: Result<FabricsDevice, ControlError>,
) {
    manager.remotes.end(&record.address);
    let is_ours = |device: &FabricsDevice| device.is_reserved() == Some(true);
    if result.as_ref().is_ok_and(is_ours) && !manager.records.is_recorded(&record.address) {
        // It was forgotten, perhaps before it was reserved.
        manager.remotes.orphans.push(record.clone());
    }
    // A command may have forgotten or connected it meanwhile.
    if !manager.records.remotes.contains(record) || manager.drives.remote(&record.address).is_some()
    {
        return;
    }
    if let Err(error) = result.and_then(|device| adopt_remote(manager, record, device)) {
        manager.remotes.note_failed(&record.address, error.what);
    }
}

/// Reports drives that were lost and came back since the last look, and paths to drives that have several: the only
/// path of a drive is reported as the drive.
fn tell_losses(manager: &mut Manager) {
    let notes = manager.remotes.reported.look(manager.drives.remote_paths());
    notes.into_iter().for_each(|note| manager.record(note));
}
