//! Records the newest state of each array.

use strake_ondisk::{Returning, Superblock, returning};

use crate::control::Control;
use crate::drives::label::Labelled;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::record::files::StateFolder;
use crate::record::store::ArrayRecord;
use crate::state::newest::{Mark, Newest, write};

/// Writes down what has changed since it was last written. A directory that refuses is asked again with the next
/// round; that it refuses is told by the events, which want to be written too.
pub(crate) fn note_newest(control: &Control) -> Result<(), ControlError> {
    let Some((state, newest)) = control.run(|m| Ok(unwritten_newest(m)))? else { return Ok(()) };
    // Without the lock: the directory may be slow.
    match write(&state, &newest) {
        Ok(()) => control.run(|m| {
            m.newest_written = Some(newest);
            Ok(())
        }),
        Err(error) => {
            tracing::debug!(%error, "the newest generations could not be written");
            Ok(())
        }
    }
}

fn unwritten_newest(manager: &mut Manager) -> Option<(StateFolder, Newest)> {
    note_running(manager);
    if manager.records.store.is_given_up() {
        return None;
    }
    let changed = manager.newest_written.as_ref() != Some(&manager.newest);
    changed.then(|| (manager.records.store.folder().clone(), manager.newest.clone()))
}

/// Takes note of what the running arrays are like; forgets arrays that are not recorded any more.
pub(crate) fn note_running(manager: &mut Manager) {
    for running in &manager.running {
        manager.newest.insert(running.uuid(), Mark::of(running));
    }
    let recorded = |uuid: &String| manager.records.arrays.iter().any(|a| a.uuid == *uuid);
    manager.newest.retain(|uuid, _| recorded(uuid));
}

/// The last chance to write it down, before arrays are stopped.
pub(crate) fn note_newest_at_stop(manager: &mut Manager) {
    if let Some((state, newest)) = unwritten_newest(manager)
        && let Err(error) = write(&state, &newest)
    {
        tracing::warn!(%error, "the newest generations could not be written");
    }
}

/// Why the labels `here` must not start the array `record`; see [`Mark::objection`].
pub(crate) fn older_than_seen(
    manager: &Manager,
    record: &ArrayRecord,
    here: &[Labelled],
) -> Option<String> {
    let usable = here.iter().filter(|l| l.is_usable());
    let usable: Vec<Labelled> = usable.cloned().collect();
    manager.newest.get(&record.uuid)?.objection(record, &usable)
}

/// Whether `found` is a member of a running array that went on without it: it holds writes that the array lacks.
pub(crate) fn is_other_half(manager: &Manager, found: &Superblock) -> bool {
    let running = manager.running.iter().find(|r| r.array.uuid() == found.array);
    running.is_some_and(|r| {
        matches!(returning(&r.array.newest_label(), found), Returning::Fork { .. })
    })
}
