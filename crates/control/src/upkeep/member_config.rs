//! The configuration that every member records for the control plane: the settings and exports of its array, and the
//! hosts of these exports that must authenticate. After the loss of the state directory, the import of an array
//! restores them (F36).

use std::slice;

use strake_dev_uring::control_wait;
use strake_engine::{Drive, load_config};

use crate::actions::Pace;
use crate::commands::hosts::locked_words;
use crate::commands::jobs::parse_priority;
use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::exports::requests::{allows, check_fields, request_of};
use crate::limits::{INVALID_FIELD_CHARS_MAX, INVALID_FIELDS_MAX};
use crate::manager::Manager;
use crate::names::array_key;
use crate::policy::members::is_out;
use crate::policy::scrub::parse_every;
use crate::record::member::{
    Due, MemberConfig, MemberExport, MemberHost, Recalled, VERSION, newest_side_by_side,
    store_side_by_side,
};
use crate::record::store::{ExportRecord, HostRecord, Settings};
use crate::state::running::Running;
use crate::state::written::{Kept, Written};
use crate::upkeep::settings::put_settings;

/// Writes changed exports and settings of arrays to their members, and all exports and settings to new members.
pub(crate) fn record_on_members(control: &Control, pace: Pace) -> Result<(), ControlError> {
    let due = control.with(|m| if m.stopping { Vec::new() } else { due_on_members(m) })?;
    for array in due.into_iter().map(|due| due.array) {
        control.act(pace, format!("record on members of {array}"), move |control| {
            let Some(_reserved) = control.try_reserve(vec![array_key(&array)])? else {
                return Ok(());
            };
            // The configuration is read again, because the task that had reserved the array may have changed it.
            record_before_leaving(control, &array)
        })?;
    }
    Ok(())
}

/// Writes to the members of one array the configuration that they do not record yet, for an import on another host. The
/// caller has reserved the array.
///
/// # Errors
/// An earlier command panicked. Members that could not be written are logged.
pub(crate) fn record_before_leaving(control: &Control, array: &str) -> Result<(), ControlError> {
    let due = |m: &mut Manager| {
        let is_first = m.entries.get(array).written.is_none();
        due_on_members(m).into_iter().find(|due| due.array == array).map(|due| (due, is_first))
    };
    let Some((mut now, is_first)) = control.with(due)? else { return Ok(()) };
    if is_first {
        keep_unless_understood(control, &now)?;
        let Some((later, _)) = control.with(due)? else { return Ok(()) };
        now = later;
    }
    store_on_members(control, now)
}

/// Writes to all members concurrently: an unresponsive member does not prevent the record on the other members.
fn store_on_members(control: &Control, due: Due) -> Result<(), ControlError> {
    let stored = store_side_by_side(&due);
    control.with(|m| noted_on_members(m, due, stored.err()))
}

/// Keeps the record on the members if a part of it is not supported, and if no setting was changed that it lacks. This
/// happens before the first write of an activation.
fn keep_unless_understood(control: &Control, due: &Due) -> Result<(), ControlError> {
    let Some(content) = newest_side_by_side(due.uuid, &due.drives) else { return Ok(()) };
    let recalled = Recalled::of(content);
    let Valid { settings, exports, hosts, ignored } = valid(&recalled, &due.array);
    if ignored.is_empty() {
        return Ok(());
    }
    control.with(|m| {
        let set = member_config(m, &due.array);
        let understood = match recalled.unsupported {
            Some(_) => set.clone(),
            None => member_config_of(settings, exports.iter(), hosts),
        };
        let is_kept = set.without_order_and_pause() == understood.clone().without_order_and_pause();
        keep(m, &due.array, recalled.content, understood);
        if is_kept {
            note_kept(m, &due.array, kept_words("the members"), ignored);
        }
    })
}

/// Leaves `content` on the members of a running array for as long as `config` is set.
fn keep(manager: &mut Manager, array: &str, content: Vec<u8>, config: MemberConfig) {
    let Some(running) = manager.running_of(array) else { return };
    let drives = identities(&serving(running));
    let entry = manager.entries.of(array);
    entry.written = Some(Written::new(content.clone(), drives, None));
    entry.kept = Some(Kept::new(content, config));
}

fn kept_words(path: &str) -> String {
    format!(
        "parts of the record on {path} are invalid or not supported and were ignored; the record is kept until a \
         setting or an export of the array is changed"
    )
}

fn note_kept(manager: &mut Manager, array: &str, what: String, ignored: String) {
    let name = manager.records.array_name(array);
    manager.record(Note::of_array(EventKind::RecordInvalid, &name, what).cause(ignored));
}

/// Restores the configuration of an array that was just imported and was not recorded on this host, from the members:
/// the settings, and the exports without offering them. Returns a text for each part that cannot be restored.
pub(crate) fn recall_from_members(control: &Control, array: &str, drives: &[Drive]) -> Vec<String> {
    let Some(recalled) = recall(array, drives) else { return Vec::new() };
    let Valid { settings, exports, hosts, ignored } = valid(&recalled, array);
    let mut wrong: Vec<String> = Vec::new();
    if recalled.unsupported.is_none() {
        let mut hosts: Vec<HostRecord> = hosts.iter().map(MemberHost::locked).collect();
        if !recalled.names_all_hosts {
            wrong.extend(take_for_locked(&exports, &mut hosts));
        }
        let settings = control.run(|m| put_settings(m, array, settings));
        let kept = control.run(|m| m.records.keep_exports(array, exports, hosts));
        let what = [("settings", settings.err()), ("exports", kept.err())];
        let failed = what.into_iter().filter_map(|(what, error)| Some((what, error?)));
        wrong.extend(failed.map(|(what, error)| format!("{what}: {error}")));
    }
    if !ignored.is_empty() {
        let holds = |d: &&Drive| {
            recall(array, slice::from_ref(d)).is_some_and(|own| own.content == recalled.content)
        };
        let path = drives.iter().find(holds).map_or("a member", |drive| &drive.path);
        let what = kept_words(path);
        wrong.push(format!("{what}: {ignored}"));
        let noted = control.with(|m| {
            let config = member_config(m, array);
            keep(m, array, recalled.content, config);
            note_kept(m, array, what, ignored);
        });
        wrong.extend(noted.err().map(|error| error.what));
    }
    wrong
}

/// The settings that an import of an array would take from its members.
pub(crate) fn remembered_by(array: &str, drives: &[Drive]) -> Option<Settings> {
    recall(array, drives).map(|recalled| valid(&recalled, array).settings)
}

fn recall(array: &str, drives: &[Drive]) -> Option<Recalled> {
    let uuid = array.parse().ok()?;
    load_config(drives, uuid, &mut control_wait()).map(Recalled::of)
}

/// Adds to `hosts` the hosts of `exports` for which the record does not state whether they need a secret or a key.
/// Returns a text that names them.
fn take_for_locked(exports: &[ExportRecord], hosts: &mut Vec<HostRecord>) -> Option<String> {
    let known = hosts.len();
    for nqn in exports.iter().filter_map(|export| export.nvme.as_ref()).flat_map(|nvme| &nvme.hosts)
    {
        if hosts.iter().all(|host| host.nqn != *nqn) {
            hosts.push(HostRecord { nqn: nqn.clone(), ..HostRecord::default() });
        }
    }
    let added: Vec<&str> = hosts[known..].iter().map(|host| host.nqn.as_str()).collect();
    (!added.is_empty()).then(|| {
        format!(
            "the members do not record whether these hosts need secrets or keys: {}. When the export is offered, \
                these hosts cannot connect until a secret or key is given. For hosts that need none, remove the \
                export and the hosts, and create the export again",
            added.join(", ")
        )
    })
}

/// The parts of a record from a drive that a request could have set, and a text about the parts that no request could
/// have set.
struct Valid {
    settings: Settings,
    exports: Vec<ExportRecord>,
    /// Hosts of these exports.
    hosts: Vec<MemberHost>,
    ignored: String,
}

fn valid(recalled: &Recalled, array: &str) -> Valid {
    let shortened = |e: &String| e.chars().take(INVALID_FIELD_CHARS_MAX).collect();
    let known = recalled.unsupported.iter().chain(&recalled.ignored);
    let mut invalid: Vec<String> = known.map(shortened).collect();
    let mut is_valid = |field: &str, checked: Result<(), ControlError>| {
        let error = checked.err().map(|error| format!("{field}: {}", error.what));
        invalid.extend(error.iter().map(shortened));
        error.is_none()
    };
    let mut settings = recalled.settings;
    if !is_valid("rebuild_priority", parse_priority(settings.rebuild_priority.into()).map(drop)) {
        settings.rebuild_priority = Settings::default().rebuild_priority;
    }
    if !is_valid("scrub_every_s", parse_every(settings.scrub_every_s).map(drop)) {
        settings.scrub_every_s = Settings::default().scrub_every_s;
    }
    let exports = recalled.exports.iter().map(|(at, export)| (at, export.record(array)));
    let valid = exports.filter(|(at, e)| is_valid(&format!("exports[{at}]"), check_fields(e)));
    let exports: Vec<ExportRecord> = valid.map(|(_, export)| export).collect();
    let named = |host: &&MemberHost| exports.iter().any(|export| allows(export, &host.nqn));
    let hosts = recalled.hosts.iter().filter(named).cloned().collect();
    invalid.truncate(INVALID_FIELDS_MAX);
    Valid { settings, exports, hosts, ignored: invalid.join("; ") }
}

/// Offers the exports of an array that its members record and that are not offered on this host. Returns a text for
/// each export that cannot be offered.
pub(crate) fn offer_kept(control: &Control, array: &str) -> Vec<String> {
    let kept = control.with(|m| m.records.kept_exports(array)).unwrap_or_default();
    let mut warnings = Vec::new();
    for export in kept {
        let offered = control.run(|m| {
            m.create_export(&request_of(&export))?;
            let hosts = m.records.hosts.iter();
            let locked = hosts.filter(|host| host.is_locked() && allows(&export, &host.nqn));
            Ok(locked.map(|host| locked_words(&host.nqn)).collect::<Vec<_>>())
        });
        warnings.extend(offered.iter().flatten().cloned());
        if let Err(error) = offered {
            warnings.push(format!(
                "export {} on {}, which the members record, is not offered: {error}",
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
        // Nothing is written to the remaining members of a failed array.
        if status.lost {
            return None;
        }
        let drives = serving(running);
        let config = member_config(manager, &array);
        let kept = manager.entries.get(&array).kept.as_ref();
        let content = match kept.filter(|kept| kept.stays(config.clone())) {
            Some(kept) => kept.content.clone(),
            None => serde_json::to_vec(&config).ok()?,
        };
        let known = manager.entries.get(&array).written.as_ref();
        if known.is_some_and(|written| !written.is_due(&content, &identities(&drives))) {
            return None;
        }
        Some(Due { uuid: running.array.uuid(), array, content, drives })
    });
    due.collect()
}

/// The drives of the members that serve.
fn serving(running: &Running) -> Vec<Drive> {
    let status = running.array.status();
    let serving = running.drives.iter().zip(&status.members).filter(|(_, m)| !is_out(m));
    serving.filter_map(|(drive, _)| drive.clone()).collect()
}

fn member_config(manager: &Manager, array: &str) -> MemberConfig {
    // Earlier versions would offer the array in place of a volume, so the members do not record exports of volumes.
    let of_array = |e: &&ExportRecord| e.array == array && e.volume.is_none();
    let exports = manager.records.exports.iter().filter(of_array);
    let kept = manager.records.kept_exports(array);
    let exports: Vec<&ExportRecord> = exports.chain(&kept).collect();
    let named = |host: &&HostRecord| exports.iter().any(|export| allows(export, &host.nqn));
    let known = &manager.records.hosts;
    let is_new = |host: &&HostRecord| known.iter().all(|known| known.nqn != host.nqn);
    let kept = manager.records.record_of(array).into_iter().flat_map(|a| &a.kept_hosts);
    let all = known.iter().chain(kept.filter(is_new));
    let mut hosts: Vec<MemberHost> = all.filter(named).map(MemberHost::from).collect();
    hosts.sort_by(|a, b| a.nqn.cmp(&b.nqn));
    member_config_of(manager.records.settings(array), exports.into_iter(), hosts)
}

fn member_config_of<'a>(
    settings: Settings,
    exports: impl Iterator<Item = &'a ExportRecord>,
    hosts: Vec<MemberHost>,
) -> MemberConfig {
    let exports = exports.map(MemberExport::from).collect();
    MemberConfig { version: VERSION, settings, exports, hosts }
}

fn noted_on_members(manager: &mut Manager, due: Due, error: Option<ControlError>) {
    let failed = error.map(|error| {
        tracing::warn!(array = %due.array, reason = %error, "configuration not recorded on all members");
        std::time::Instant::now()
    });
    if manager.position_of(&due.array).is_some() {
        let kept = &mut manager.entries.of(&due.array).kept;
        if failed.is_none() && kept.take_if(|kept| kept.content != due.content).is_some() {
            let what = "the record on the members, parts of which were ignored, was overwritten: a setting or an \
                        export of the array was changed";
            note_kept(manager, &due.array, what.to_owned(), String::new());
        }
        let written = Written::new(due.content, identities(&due.drives), failed);
        manager.entries.of(&due.array).written = Some(written);
    }
}

fn identities(drives: &[Drive]) -> Vec<String> {
    drives.iter().map(|drive| drive.device.identity()).collect()
}
