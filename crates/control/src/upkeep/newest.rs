//! Records the newest state of each array.

use crate::control::Control;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::record::files::StateFolder;
use crate::state::newest::{Marks, write};

/// Writes the changes since the last write to the state directory. If the directory cannot be written, the next round
/// tries again. The error is reported with the events, which are written to the same directory.
pub(crate) fn note_newest(control: &Control) -> Result<(), ControlError> {
    let Some((state, newest)) = control.with(unwritten_newest)? else { return Ok(()) };
    // The lock is not held during the write, because the directory may be slow.
    match write(&state, &newest) {
        Ok(()) => control.with(|m| m.newest.note_written(newest)),
        Err(error) => {
            tracing::debug!(%error, "the newest generations could not be written");
            Ok(())
        }
    }
}

fn unwritten_newest(manager: &mut Manager) -> Option<(StateFolder, Marks)> {
    manager.newest.note(&manager.running, &manager.records);
    if manager.records.store.is_given_up() {
        return None;
    }
    Some((manager.records.store.folder().clone(), manager.newest.unwritten()?))
}

/// Writes the changes for the last time, before arrays are stopped.
pub(crate) fn note_newest_at_stop(manager: &mut Manager) {
    if let Some((state, newest)) = unwritten_newest(manager)
        && let Err(error) = write(&state, &newest)
    {
        tracing::warn!(%error, "the newest generations could not be written");
    }
}
