//! Connects remote drives again, and reports the loss of connections.

use std::thread;

use strake_dev_fabrics::{FabricsDevice, ReservationMode};

use crate::commands::remote::{adopt_remote, remote_key, unreleased};
use crate::control::Control;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::record::store::RemoteRecord;

/// Connects the recorded drives that are not connected, and reports the drives whose connections were lost or restored.
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
            // An error means that the control plane is no longer usable, so the error cannot be reported.
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

/// Starts a thread that releases the reservation of a drive that was forgotten, unless the drive is recorded again.
fn release_orphan(control: &Control, record: RemoteRecord) -> Result<(), ControlError> {
    let Some(reserved) = control.try_reserve(vec![remote_key(&record.address)])? else {
        // Another task is connecting or disconnecting the drive.
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
    // If no thread can be started, the reservation remains, and another host that connects the drive is refused.
    let _ = thread::Builder::new().name("drive release".to_owned()).spawn(release);
    Ok(())
}

/// Records the associations of remote drives again, because they may have changed: a drive may be reached over more
/// paths, or a target may need more time.
fn note_associations(manager: &mut Manager) {
    for device in manager.drives.remotes() {
        manager.past.note_use(&device);
    }
}

/// The recorded drives whose connection is due. From this call on, they count as being connected.
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
        // The drive was forgotten, possibly before it was reserved.
        manager.remotes.orphans.push(record.clone());
    }
    // A command may have forgotten or connected the drive in the meantime.
    if !manager.records.remotes.contains(record) || manager.drives.remote(&record.address).is_some()
    {
        return;
    }
    if let Err(error) = result.and_then(|device| adopt_remote(manager, record, device)) {
        manager.remotes.note_failed(&record.address, error.what);
    }
}

/// Reports the drives whose connections were lost or restored since the last call, and the paths of drives with several
/// paths. The only path of a drive is reported as the drive.
fn tell_losses(manager: &mut Manager) {
    let notes = manager.remotes.reported.look(manager.drives.remote_paths());
    notes.into_iter().for_each(|note| manager.record(note));
}
