//! The settings of arrays: their application, and the end of pauses.

use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::record::store::{PausedJobs, Settings};

/// Ends each pause and each priority whose jobs have ended, so that they do not apply to the next job of the array.
pub(crate) fn end_pauses(manager: &mut Manager) {
    for at in 0..manager.running.len() {
        let uuid = manager.running[at].uuid();
        let mut settings = manager.records.settings(&uuid);
        if !settings.paused && settings.job_priority.is_none() {
            continue;
        }
        let view = manager.view(at);
        if settings.job_priority.is_some() && view.progress.is_empty() {
            settings.job_priority = None;
            if let Err(error) = put_settings(manager, &uuid, settings) {
                tracing::warn!(reason = %error, "the end of a priority is not recorded");
            }
        }
        if !settings.paused {
            continue;
        }
        let mut listed = PausedJobs::default();
        view.progress.iter().for_each(|progress| listed.set(&progress.job));
        if settings.paused_jobs.are_in(listed) {
            continue;
        }
        match put_settings(manager, &uuid, settings.without_pause()) {
            Ok(()) => {
                let what = format!(
                    "the jobs of array {} are not paused: the paused job has ended",
                    view.name
                );
                manager.record(Note::of_array(EventKind::JobChanged, &view.name, what));
            }
            Err(error) => tracing::warn!(reason = %error, "the end of a pause is not recorded"),
        }
    }
}

/// Records the settings of an array and applies them.
pub(crate) fn put_settings(
    manager: &mut Manager,
    uuid: &str,
    settings: Settings,
) -> Result<(), ControlError> {
    let mut config = manager.records.config.clone();
    if let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == uuid) {
        record.settings = settings;
    }
    manager.records.put(&config)?;
    apply_settings(manager, uuid);
    Ok(())
}

/// Applies the recorded settings to a running array.
fn apply_settings(manager: &Manager, uuid: &str) {
    if let Some(running) = manager.running_of(uuid) {
        running.array.set_maintenance(manager.records.settings(uuid).maintenance());
    }
}
