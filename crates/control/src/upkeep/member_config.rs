//! What every member knows of the control plane: settings and exports of its array. With the state directory lost,
//! importing an array brings them back (F36).

use std::slice;

use strake_engine::Drive;

use crate::actions::Pace;
use crate::commands::jobs::parse_priority;
use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::exports::requests::{check_fields, request_of};
use crate::limits::{INVALID_FIELD_CHARS_MAX, INVALID_FIELDS_MAX};
use crate::manager::Manager;
use crate::names::array_key;
use crate::policy::members::is_out;
use crate::policy::scrub::parse_every;
use crate::record::member::{Due, MemberConfig, MemberExport, VERSION, recall, store_side_by_side};
use crate::record::store::{ExportRecord, Settings};
use crate::state::written::Written;
use crate::upkeep::settings::put_settings;

/// Writes to the members what changed of their arrays' exports and settings, and what new members do not know.
pub(crate) fn record_on_members(control: &Control, pace: Pace) -> Result<(), ControlError> {
    let due = control.with(|m| if m.stopping { Vec::new() } else { due_on_members(m) })?;
    for array in due.into_iter().map(|due| due.array) {
        control.act(pace, format!("record on members of {array}"), move |control| {
            let Some(_reserved) = control.try_reserve(vec![array_key(&array)])? else {
                return Ok(());
            };
            // Looked at again: the task that had reserved the array may have changed what is to be written.
            record_before_leaving(control, &array)
        })?;
    }
    Ok(())
}

/// Writes to the members of one array what they do not know yet, for an import on another host. The caller has reserved
/// the array.
///
/// # Errors
/// When an earlier command panicked. Members that could not be written are logged, as ever.
pub(crate) fn record_before_leaving(control: &Control, array: &str) -> Result<(), ControlError> {
    match control.with(|m| due_on_members(m).into_iter().find(|due| due.array == array))? {
        Some(due) => store_on_members(control, due),
        None => Ok(()),
    }
}

/// Writes to all members side by side: one that does not answer keeps the record from none of the others.
fn store_on_members(control: &Control, due: Due) -> Result<(), ControlError> {
    let stored = store_side_by_side(&due);
    control.with(|m| noted_on_members(m, due, stored.err()))
}

/// Brings back what the members know of an array that has just been imported and was not recorded here: its
/// settings, and its exports without offering them. What cannot be brought back is returned in words.
pub(crate) fn recall_from_members(control: &Control, array: &str, drives: &[Drive]) -> Vec<String> {
    let Some(config) = recall(array, drives) else { return Vec::new() };
    let (settings, exports, invalid) = valid(&config, array);
    let settings = control.run(|m| put_settings(m, array, settings));
    let kept = control.run(|m| m.records.keep_exports(array, exports));
    let what = [("settings", settings.err()), ("exports", kept.err())];
    let wrong = what.into_iter().filter_map(|(what, error)| Some((what, error?)));
    let mut wrong: Vec<_> = wrong.map(|(what, error)| format!("{what}: {error}")).collect();
    if !invalid.is_empty() {
        let holds = |d: &&Drive| recall(array, slice::from_ref(d)).is_some_and(|own| own == config);
        let path = drives.iter().find(holds).map_or("a member", |drive| &drive.path);
        let what = format!("parts of the record on {path} are invalid and were ignored");
        wrong.push(format!("{what}: {invalid}"));
        let noted = control.with(|m| {
            let name = m.records.array_name(array);
            m.record(Note::of_array(EventKind::RecordInvalid, &name, what).cause(invalid));
        });
        wrong.extend(noted.err().map(|error| error.what));
    }
    wrong
}

/// What of a record that was read from a drive a request could have set; and the fields that no request could.
fn valid(config: &MemberConfig, array: &str) -> (Settings, Vec<ExportRecord>, String) {
    let mut invalid: Vec<String> = Vec::new();
    let mut is_valid = |field: &str, checked: Result<(), ControlError>| {
        let error = checked.err().map(|error| format!("{field}: {}", error.what));
        invalid.extend(error.iter().map(|e| e.chars().take(INVALID_FIELD_CHARS_MAX).collect()));
        error.is_none()
    };
    let mut settings = config.settings;
    if !is_valid("rebuild_priority", parse_priority(settings.rebuild_priority.into()).map(drop)) {
        settings.rebuild_priority = Settings::default().rebuild_priority;
    }
    if !is_valid("scrub_every_s", parse_every(settings.scrub_every_s).map(drop)) {
        settings.scrub_every_s = Settings::default().scrub_every_s;
    }
    let exports = config.exports.iter().enumerate().map(|(at, e)| (at, e.record(array)));
    let valid = exports.filter(|(at, e)| is_valid(&format!("exports[{at}]"), check_fields(e)));
    let exports = valid.map(|(_, export)| export).collect();
    invalid.truncate(INVALID_FIELDS_MAX);
    (settings, exports, invalid.join("; "))
}

/// Offers the exports of an array that its members record and that are not offered here. What cannot be offered is
/// returned in words.
pub(crate) fn offer_kept(control: &Control, array: &str) -> Vec<String> {
    let kept = control.with(|m| m.records.kept_exports(array)).unwrap_or_default();
    let mut warnings = Vec::new();
    for export in kept {
        if let Err(error) = control.run(|m| m.create_export(&request_of(&export))) {
            warnings.push(format!(
                "export {} on {}, which the members remember, is not offered: {error}",
                export.name, export.listen
            ));
        }
    }
    warnings
}

fn due_on_members(manager: &Manager) -> Vec<Due> {
    let due = manager.running.iter().filter_map(|running| {
        let array = running.uuid();
        let status = running.array.status();
        // Not beside a loss: nothing is to be written to what is left.
        if status.lost {
            return None;
        }
        let serving = running.drives.iter().zip(&status.members).filter(|(_, m)| !is_out(m));
        let drives: Vec<Drive> = serving.filter_map(|(drive, _)| drive.clone()).collect();
        let content = member_config(manager, &array)?;
        let known = manager.entries.get(&array).written.as_ref();
        if known.is_some_and(|written| !written.is_due(&content, &identities(&drives))) {
            return None;
        }
        Some(Due { uuid: running.array.uuid(), array, content, drives })
    });
    due.collect()
}

fn member_config(manager: &Manager, array: &str) -> Option<Vec<u8>> {
    let exports = manager.records.exports.iter().filter(|e| e.array == array);
    let kept = manager.records.kept_exports(array);
    let exports = exports.chain(&kept);
    let config = MemberConfig {
        version: VERSION,
        settings: manager.records.settings(array),
        exports: exports.map(MemberExport::from).collect(),
    };
    serde_json::to_vec(&config).ok()
}

fn noted_on_members(manager: &mut Manager, due: Due, error: Option<ControlError>) {
    let failed = error.map(|error| {
        tracing::warn!(array = %due.array, reason = %error, "configuration not recorded on all members");
        std::time::Instant::now()
    });
    if manager.find(&due.array).is_some() {
        let written = Written::new(due.content, identities(&due.drives), failed);
        manager.entries.of(&due.array).written = Some(written);
    }
}

fn identities(drives: &[Drive]) -> Vec<String> {
    drives.iter().map(|drive| drive.device.identity()).collect()
}
