//! Backup and restore of the configuration as one document. A restore adds missing objects and changes settings; it
//! never deletes.

use serde::Serialize;
use serde_json::Value;
use strake_alerts::HookSpec;
use strake_api::v1::{
    AddHookRequest, AddReferralRequest, AddSpareRequest, ConfigChange, ConfigDocument,
    GetConfigRequest, ImportArraysRequest, RestoreConfigRequest,
};
use strake_engine::Drive;
use strake_wording::say;

use crate::commands::exports::would_export;
use crate::commands::hooks::would_add_hook;
use crate::commands::hosts::{locked_words, put_host};
use crate::commands::remote::{check_remote, connect_named};
use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::exports::keys::keys_of;
use crate::exports::referral::referral_of;
use crate::exports::requests::{Wanted, request_of};
use crate::manager::Manager;
use crate::names::name_warning;
use crate::record::store::{
    ArrayRecord, Config, ExportRecord, HostRecord, RemoteRecord, SpareRecord,
};
use crate::remote::paths::in_usual_form;
use crate::upkeep::check_readd::key_at;
use crate::upkeep::member_config::remembered_by;
use crate::upkeep::settings::put_settings;

/// The effects of a restore, or the planned effects.
#[derive(Default)]
struct Restored {
    plan: Vec<String>,
    warnings: Vec<String>,
    /// In a dry run, the configuration after the steps so far.
    foreseen: Option<Foreseen>,
}

/// The configuration after the steps so far.
struct Foreseen {
    config: Config,
    /// Arrays that would be running.
    started: Vec<String>,
}

impl Restored {
    /// Records the result of `step`. A step that changes nothing is not a part of the plan.
    fn note(&mut self, step: String, outcome: Result<bool, ControlError>) {
        match outcome {
            Ok(true) => self.plan.push(step),
            Ok(false) => {}
            Err(error) => self.warnings.push(format!("{step}: not done: {error}")),
        }
    }
}

impl Control {
    /// Applies a document of [`Manager::config_document`] as far as possible: imports its stopped arrays, and creates
    /// its exports, spares, hooks and settings. Nothing is deleted.
    ///
    /// # Errors
    /// If the document is invalid. Objects that cannot be restored cause warnings.
    pub fn restore_config(
        &self,
        request: &RestoreConfigRequest,
    ) -> Result<ConfigChange, ControlError> {
        let wanted = parse(&request.json)?;
        self.run(|m| m.check_open())?;
        let mut restored = Restored::default();
        if request.dry_run {
            let config = self.with(|m| m.records.config.clone())?;
            restored.foreseen = Some(Foreseen { config, started: Vec::new() });
        }
        // Remote drives precede the objects that use them.
        for record in &wanted.remotes {
            restore_remote(self, record, &mut restored);
        }
        // Hosts precede exports, so that no host that had to authenticate is accepted by its name alone. Hosts also
        // precede arrays, whose members record such hosts too.
        for record in &wanted.hosts {
            restore_host(self, record, &mut restored);
        }
        for record in &wanted.arrays {
            restore_array(self, record, request.dry_run, &mut restored);
        }
        for address in &wanted.referrals {
            restore_referral(self, address, &mut restored);
        }
        for record in &wanted.exports {
            restore_export(self, record, &wanted, &mut restored);
        }
        for record in &wanted.spares {
            restore_spare(self, record, &mut restored);
        }
        for spec in &wanted.hooks {
            // A hook with masked secrets in the document equals the hook with its secrets.
            let same = |h: &HookSpec| h == spec || h.masked().is_ok_and(|masked| masked == *spec);
            let known = self.with(|m| m.records.hooks.iter().any(same))?;
            if known {
                continue;
            }
            let request_one = AddHookRequest {
                name: spec.name.clone(),
                kind: spec.kind.clone(),
                target: spec.target.clone(),
                severity: spec.severity.clone(),
                server: spec.server.clone(),
                from: spec.from.clone(),
            };
            let outcome = if request.dry_run {
                self.run(|m| {
                    m.records.check(&m.records)?;
                    would_add_hook(m, HookSpec::from(request_one))
                })
            } else {
                self.add_hook(&request_one).map(|change| change.result != "unchanged")
            };
            restored.note(format!("deliver events to hook {}", spec.name), outcome);
        }
        let result = match (restored.plan.is_empty(), request.dry_run) {
            (true, _) => "unchanged",
            (false, true) => "planned",
            (false, false) => {
                let what = "a configuration backup was restored";
                let note = Note::new(EventKind::ConfigRestored, "daemon", what);
                self.events().record(note.cause(restored.plan.join("; ")));
                "changed"
            }
        };
        let Restored { plan, warnings, .. } = restored;
        Ok(ConfigChange { result: result.into(), plan, warnings })
    }
}

/// Records an unknown host. If its secret is masked in the document, the host cannot connect until it gets a new
/// secret.
fn restore_host(control: &Control, record: &HostRecord, restored: &mut Restored) {
    let is_known = |m: &mut Manager| Ok(m.records.hosts.iter().any(|h| h.nqn == record.nqn));
    if control.run(is_known).unwrap_or(false) {
        return;
    }
    let outcome = match restored.foreseen {
        Some(_) => keys_of(record).map(|_| true),
        None => control.run(|m| put_host(m, record.clone())).map(|_| true),
    };
    let is_locked = outcome.is_ok() && record.is_locked();
    restored.note(format!("require host {} to authenticate", record.nqn), outcome);
    if is_locked {
        restored.warnings.push(locked_words(&record.nqn));
    }
}

fn restore_referral(control: &Control, address: &str, restored: &mut Restored) {
    let request = AddReferralRequest { address: address.to_owned() };
    let outcome = match restored.foreseen {
        Some(_) => control.run(|m| {
            referral_of(address)?;
            m.records
                .store
                .prepare(&m.records)
                .map(|_| !m.records.referrals.iter().any(|r| r == address))
        }),
        None => control.run(|m| m.add_referral(&request)).map(|done| done.result != "unchanged"),
    };
    restored.note(format!("refer hosts to {address}"), outcome);
}

/// Records an unknown remote drive and connects it. Upkeep retries a failed connection.
fn restore_remote(control: &Control, record: &RemoteRecord, restored: &mut Restored) {
    let step = format!("connect {}", record.address);
    let record = &match in_usual_form(record) {
        Ok(record) => record,
        Err(error) => return restored.note(step, Err(error)),
    };
    let is_known =
        |m: &mut Manager| Ok(m.records.remotes.iter().any(|r| r.address == record.address));
    if control.run(is_known).unwrap_or(false) {
        return;
    }
    if let Err(error) = control.run(|m| check_remote(m, record)) {
        return restored.note(step, Err(error));
    }
    if restored.foreseen.is_some() {
        return restored
            .note(step, control.run(|m| m.records.store.prepare(&m.records).map(|_| true)));
    }
    let recorded = control.run(|m| m.records.put_remote(record));
    let away = recorded.is_ok().then(|| connect_named(control, [&record.address], false));
    restored.note(step, recorded.map(|()| true));
    if let Some(Err(error)) = away {
        let what = match record.covered.is_nothing() {
            true => format!("{}: not available yet, and tried again: {error}", record.address),
            false => error.to_string(),
        };
        restored.warnings.push(what);
    }
}

fn restore_array(control: &Control, record: &ArrayRecord, dry_run: bool, restored: &mut Restored) {
    let (name, uuid) = (&record.name, &record.uuid);
    let runs = control.with(|m| m.position_of(uuid).is_some()).unwrap_or(false);
    if !runs {
        let is_here =
            |path: &&String| key_at(control, path).is_ok_and(|key| matches!(key, Ok(Some(_))));
        let here = record.drives.iter().filter(is_here);
        let import = ImportArraysRequest {
            name: uuid.clone(),
            drives: here.cloned().collect(),
            dry_run,
            ..ImportArraysRequest::default()
        };
        let outcome = control.import_arrays(&import).map(|done| done.result != "unchanged");
        if outcome.is_ok()
            && let Some(foreseen) = &mut restored.foreseen
        {
            foresee_import(control, record, &import.drives, foreseen);
        }
        if outcome.as_ref().is_ok_and(|changed| *changed) {
            restored.warnings.extend(name_warning(name, uuid));
        }
        restored.note(format!("start array {name}"), outcome);
    }
    let outcome = match &mut restored.foreseen {
        Some(foreseen) => control.run(|m| foresee_settings(m, record, foreseen)),
        None => control.run(|m| {
            if m.records.arrays.iter().all(|a| a.uuid != *uuid)
                || m.records.settings(uuid) == record.settings
            {
                return Ok(false);
            }
            put_settings(m, uuid, record.settings)?;
            Ok(true)
        }),
    };
    restored.note(format!("settings of array {name}"), outcome);
}

/// Returns the configuration after the import of an array, whose members may record settings.
fn foresee_import(
    control: &Control,
    record: &ArrayRecord,
    drives: &[String],
    foreseen: &mut Foreseen,
) {
    foreseen.started.push(record.uuid.clone());
    if foreseen.config.arrays.iter().any(|a| a.uuid == record.uuid) {
        return;
    }
    let Ok((_, mut reserved)) = control.reserve(|_| Ok(((), Vec::new()))) else { return };
    let drives: Vec<Drive> = drives.iter().filter_map(|path| reserved.open(path).ok()).collect();
    let settings = remembered_by(&record.uuid, &drives).unwrap_or_default();
    foreseen.config.arrays.push(ArrayRecord { settings, ..record.clone() });
}

fn restore_export(
    control: &Control,
    record: &ExportRecord,
    wanted: &Config,
    restored: &mut Restored,
) {
    let known = wanted.arrays.iter().find(|a| a.uuid == record.array);
    let name = known.map_or(record.array.as_str(), |a| a.name.as_str());
    let outcome = match &mut restored.foreseen {
        Some(foreseen) => control.run(|m| foresee_export(m, record, foreseen)),
        None => control.run(|m| {
            if m.records.exports.contains(record) {
                return Ok(false);
            }
            refuse_volume(record)?;
            m.create_export(&request_of(record)).map(|change| change.result != "unchanged")
        }),
    };
    restored.note(format!("offer array {name} as {} on {}", record.name, record.listen), outcome);
}

/// Refuses to create the export of a volume from a backup: without its pool, it would offer the whole array.
fn refuse_volume(record: &ExportRecord) -> Result<(), ControlError> {
    let Some(volume) = &record.volume else { return Ok(()) };
    Err(ControlError::state(format!(
        "export {} offers volume {} of pool {}; create the export when the pool is open",
        record.name, volume.id, volume.pool
    )))
}

fn restore_spare(control: &Control, record: &SpareRecord, restored: &mut Restored) {
    let mut request = AddSpareRequest {
        drive: record.path.clone(),
        array: record.array.clone(),
        dry_run: restored.foreseen.is_some(),
        overwrite: false,
    };
    if restored.foreseen.as_ref().is_some_and(|f| f.started.contains(&record.array)) {
        // The array does not exist yet. A later check decides whether the spare fits.
        request.array.clear();
    }
    let added = control.add_spare(&request).map(|change| change.result != "unchanged");
    let outcome = match &restored.foreseen {
        Some(foreseen) => {
            added.and_then(|new| control.run(|m| m.records.check(&foreseen.config)).map(|()| new))
        }
        None => added,
    };
    restored.note(format!("keep {} as a spare", record.path), outcome);
}

/// A backup. The mark distinguishes it from `state.json`, which has the same fields and the secrets.
#[derive(Serialize)]
struct Backup<'a> {
    backup: bool,
    #[serde(flatten)]
    config: &'a Config,
}

/// Parses the configuration in a backup. Backups of an earlier version have no mark.
pub(crate) fn parse(json: &str) -> Result<Config, ControlError> {
    let unmarked = |mut document: Value| {
        document.as_object_mut().map(|fields| fields.remove("backup"));
        serde_json::from_value(document)
    };
    let config: Config = serde_json::from_str(json).and_then(unmarked).map_err(|e| {
        let what = format!("the backup is invalid: {e}; use a file written by ");
        ControlError::usage(say(what).run(GetConfigRequest {}))
    })?;
    if config.version != crate::record::store::VERSION {
        return Err(ControlError::usage(format!(
            "the backup has version {}, this program supports version {}",
            config.version,
            crate::record::store::VERSION
        )));
    }
    Ok(config)
}

impl Manager {
    /// Returns the configuration with masked secrets of hooks, hosts and drives. The operator must add these secrets
    /// again after a restore.
    ///
    /// # Errors
    /// If the configuration cannot be encoded.
    pub fn config_document(&self) -> Result<ConfigDocument, ControlError> {
        let mut config = self.records.config.clone();
        for hook in &mut config.hooks {
            *hook = hook.masked()?;
        }
        for host in &mut config.hosts {
            *host = host.masked();
        }
        for remote in &mut config.remotes {
            *remote = remote.masked();
        }
        let json = serde_json::to_string_pretty(&Backup { backup: true, config: &config })
            .map_err(|e| ControlError::device(format!("cannot encode the configuration: {e}")))?;
        Ok(ConfigDocument { json })
    }
}

fn foresee_settings(
    manager: &Manager,
    record: &ArrayRecord,
    foreseen: &mut Foreseen,
) -> Result<bool, ControlError> {
    let known = foreseen.config.arrays.iter_mut().find(|a| a.uuid == record.uuid);
    let Some(known) = known.filter(|known| known.settings != record.settings) else {
        return Ok(false);
    };
    known.settings = record.settings;
    manager.records.store.prepare(&foreseen.config).map(|_| true)
}

fn foresee_export(
    manager: &Manager,
    record: &ExportRecord,
    foreseen: &mut Foreseen,
) -> Result<bool, ControlError> {
    if foreseen.config.exports.contains(record) {
        return Ok(false);
    }
    refuse_volume(record)?;
    let coming = foreseen.started.contains(&record.array);
    let known = foreseen.config.arrays.iter().find(|a| a.uuid == record.array);
    let array = match known.filter(|_| coming) {
        Some(coming) => Wanted::array(&coming.name, &coming.uuid),
        None => {
            let known = known.is_some().then(|| manager.find_running(&record.array));
            let none = || Err(foreseen.config.no_such_array(&record.array));
            let running = &manager.running[known.unwrap_or_else(none)?];
            Wanted::array(running.array.name().as_str(), running.uuid())
        }
    };
    let new = would_export(manager, &request_of(record), &foreseen.config, array)?;
    let any = new.is_some();
    foreseen.config.exports.extend(new);
    manager.records.store.prepare(&foreseen.config).map(|_| any)
}
