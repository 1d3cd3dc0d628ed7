//! The configuration as one document, and back. Restoring adds what is missing and changes settings; it never deletes.

use strake_alerts::HookSpec;
use strake_api::v1::{
    AddHookRequest, AddSpareRequest, ConfigChange, ConfigDocument, CreateExportRequest,
    ImportArraysRequest, RestoreConfigRequest,
};

use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::store::{ArrayRecord, Config, ExportRecord, SpareRecord};

/// What a restore did, or would.
#[derive(Default)]
struct Restored {
    plan: Vec<String>,
    warnings: Vec<String>,
}

impl Restored {
    /// Notes how `step` went. One that changed nothing is no part of the plan.
    fn note(&mut self, step: String, outcome: Result<bool, ControlError>) {
        match outcome {
            Ok(true) => self.plan.push(step),
            Ok(false) => {}
            Err(error) => self.warnings.push(format!("{step}: not done: {error}")),
        }
    }
}

impl Control {
    /// Puts a document of [`Manager::config_document`] in force as far as that goes: arrays that it names and that do
    /// not run are imported, exports, spares, hooks and settings are made as it says. Nothing is ever deleted.
    ///
    /// # Errors
    /// When the document cannot be understood. What cannot be restored is a warning.
    pub fn restore_config(
        &self,
        request: &RestoreConfigRequest,
    ) -> Result<ConfigChange, ControlError> {
        let wanted = parse(&request.json)?;
        self.run(|m| m.check_open())?;
        let mut restored = Restored::default();
        for record in &wanted.arrays {
            self.restore_array(record, request.dry_run, &mut restored);
        }
        for record in &wanted.exports {
            self.restore_export(record, &wanted, request.dry_run, &mut restored);
        }
        for record in &wanted.spares {
            self.restore_spare(record, request.dry_run, &mut restored);
        }
        for spec in &wanted.hooks {
            // One whose secrets are covered in the document is known all the same.
            let same = |h: &HookSpec| h == spec || h.masked().is_ok_and(|masked| masked == *spec);
            let known = self.run(|m| Ok(m.config.hooks.iter().any(same)))?;
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
                spec.check().map(|()| true).map_err(ControlError::from)
            } else {
                self.add_hook(&request_one).map(|change| change.result != "unchanged")
            };
            restored.note(format!("tell hook {} about events", spec.name), outcome);
        }
        let result = match (restored.plan.is_empty(), request.dry_run) {
            (true, _) => "unchanged",
            (false, true) => "planned",
            (false, false) => {
                let what = "a recorded configuration was put in force";
                let note = Note::new(EventKind::ConfigRestored, "daemon", what);
                self.events().record(note.cause(restored.plan.join("; ")));
                "changed"
            }
        };
        let Restored { plan, warnings } = restored;
        Ok(ConfigChange { result: result.into(), plan, warnings })
    }

    fn restore_array(&self, record: &ArrayRecord, dry_run: bool, restored: &mut Restored) {
        let (name, uuid) = (&record.name, &record.uuid);
        let runs = self.run(|m| Ok(m.find(uuid).is_some())).unwrap_or(false);
        if !runs {
            let import = ImportArraysRequest {
                name: uuid.clone(),
                drives: record
                    .drives
                    .iter()
                    .filter(|p| std::fs::metadata(p).is_ok())
                    .cloned()
                    .collect(),
                dry_run,
                ..ImportArraysRequest::default()
            };
            let outcome = self.import_arrays(&import).map(|done| done.result != "unchanged");
            restored.note(format!("start array {name}"), outcome);
        }
        let outcome = self.run(|m| {
            if m.config.arrays.iter().all(|a| a.uuid != *uuid)
                || m.settings(uuid) == record.settings
            {
                return Ok(false);
            }
            if !dry_run {
                m.put_settings(uuid, record.settings)?;
            }
            Ok(true)
        });
        restored.note(format!("settings of array {name}"), outcome);
    }

    fn restore_export(
        &self,
        record: &ExportRecord,
        wanted: &Config,
        dry_run: bool,
        restored: &mut Restored,
    ) {
        let known = wanted.arrays.iter().find(|a| a.uuid == record.array);
        let name = known.map_or(record.array.as_str(), |a| a.name.as_str());
        let outcome = self.run(|m| {
            if m.config.exports.contains(record) {
                return Ok(false);
            }
            if dry_run {
                return Ok(true);
            }
            let request = CreateExportRequest {
                array: record.array.clone(),
                name: record.name.clone(),
                via: String::new(),
                listen: record.listen.clone(),
                read_only: record.read_only,
            };
            m.create_export(&request).map(|change| change.result != "unchanged")
        });
        restored
            .note(format!("offer array {name} as {} on {}", record.name, record.listen), outcome);
    }

    fn restore_spare(&self, record: &SpareRecord, dry_run: bool, restored: &mut Restored) {
        let request = AddSpareRequest {
            drive: record.path.clone(),
            array: record.array.clone(),
            dry_run,
            overwrite: false,
        };
        let outcome = self.add_spare(&request).map(|change| change.result != "unchanged");
        restored.note(format!("keep {} as a spare", record.path), outcome);
    }
}

fn parse(json: &str) -> Result<Config, ControlError> {
    let config: Config = serde_json::from_str(json).map_err(|e| {
        ControlError::usage(format!(
            "the document cannot be understood: {e}; give one that strake config backup wrote"
        ))
    })?;
    if config.version != crate::store::VERSION {
        return Err(ControlError::usage(format!(
            "the document has version {}, this program understands {}",
            config.version,
            crate::store::VERSION
        )));
    }
    Ok(config)
}

impl Manager {
    /// The configuration in force, with the secrets of hooks covered: such hooks have to be added by hand again.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn config_document(&self) -> Result<ConfigDocument, ControlError> {
        let mut config = self.config.clone();
        for hook in &mut config.hooks {
            *hook = hook.masked()?;
        }
        let json = serde_json::to_string_pretty(&config)
            .map_err(|e| ControlError::device(format!("cannot encode the configuration: {e}")))?;
        Ok(ConfigDocument { json })
    }
}
