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
    let Some((state, newest)) = control.run(|m| Ok(m.unwritten_newest()))? else { return Ok(()) };
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

impl Manager {
    fn unwritten_newest(&mut self) -> Option<(StateFolder, Newest)> {
        self.note_running();
        if self.records.store.is_given_up() {
            return None;
        }
        let changed = self.newest_written.as_ref() != Some(&self.newest);
        changed.then(|| (self.records.store.folder().clone(), self.newest.clone()))
    }

    /// Takes note of what the running arrays are like; forgets arrays that are not recorded any more.
    pub(crate) fn note_running(&mut self) {
        for running in &self.running {
            self.newest.insert(running.uuid(), Mark::of(running));
        }
        let recorded = |uuid: &String| self.records.config.arrays.iter().any(|a| a.uuid == *uuid);
        self.newest.retain(|uuid, _| recorded(uuid));
    }

    /// The last chance to write it down, before arrays are stopped.
    pub(crate) fn note_newest_at_stop(&mut self) {
        if let Some((state, newest)) = self.unwritten_newest()
            && let Err(error) = write(&state, &newest)
        {
            tracing::warn!(%error, "the newest generations could not be written");
        }
    }

    /// Why the labels `here` must not start the array `record`; see [`Mark::objection`].
    pub(crate) fn older_than_seen(
        &self,
        record: &ArrayRecord,
        here: &[Labelled],
    ) -> Option<String> {
        let usable = here.iter().filter(|l| l.is_usable());
        let usable: Vec<Labelled> = usable.cloned().collect();
        self.newest.get(&record.uuid)?.objection(record, &usable)
    }

    /// Whether `found` is a member of a running array that went on without it: it holds writes that the array lacks.
    pub(crate) fn is_other_half(&self, found: &Superblock) -> bool {
        let running = self.running.iter().find(|r| r.array.uuid() == found.array);
        running.is_some_and(|r| {
            matches!(returning(&r.array.newest_label(), found), Returning::Fork { .. })
        })
    }
}
