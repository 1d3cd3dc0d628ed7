//! Destroyed arrays, for as long as their drives were not used for something else.

use strake_api::v1::{ArrayChange, CreateExportRequest, ImportArraysRequest, UndeleteArrayRequest};
use strake_dev_uring::control_wait;
use strake_engine::{Drive, unmark_destroyed};

use crate::control::{Control, Planned, Reserved};
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note};
use crate::exports::request_of;
use crate::label::{inspect, written_over};
use crate::manager::{Manager, array_key};
use crate::scan;
use crate::store::DestroyedRecord;

/// Destroyed arrays whose drives and exports are remembered, the latest.
const DESTROYED_MAX: usize = 16;

impl Control {
    /// Brings a destroyed array back, with the exports and settings it had.
    ///
    /// # Errors
    /// When no label of such an array is found, its drives were used since, or too few are left.
    pub fn undelete_array(
        &self,
        request: &UndeleteArrayRequest,
    ) -> Result<ArrayChange, ControlError> {
        let ((record, look), mut reserved) = self.reserve(|m| m.plan_undelete(request))?;
        let (uuid, name, drives) = self.find_destroyed(&mut reserved, request, &look)?;
        self.run(|m| m.refuse_members(&drives).and_then(|()| m.check_name_free(&name, &uuid)))?;
        let mut plan: Vec<String> =
            drives.iter().map(|d| format!("give {} its label back", d.path)).collect();
        plan.push(format!("start array {name}"));
        let exports = record.as_ref().map(|r| r.exports.clone()).unwrap_or_default();
        plan.extend(
            exports.iter().map(|e| format!("offer it as {} on {} again", e.name, e.listen)),
        );
        if request.dry_run {
            return Ok(ArrayChange { result: "planned".into(), plan, ..ArrayChange::default() });
        }
        unmark_destroyed(&drives, &mut control_wait())?;
        let paths = drives.iter().map(|d| d.path.clone()).collect();
        drop(drives);
        // The import reserves the drives itself.
        drop(reserved);
        let mut warnings = self.start_again(&uuid, paths)?;
        if let Some(record) = &record {
            warnings.extend(self.offer_again(record));
        }
        let array = self.run(|m| m.told_undeleted(&uuid))?;
        Ok(ArrayChange { result: "changed".into(), array: Some(array), plan, warnings })
    }

    fn start_again(&self, uuid: &str, drives: Vec<String>) -> Result<Vec<String>, ControlError> {
        let import = ImportArraysRequest {
            name: uuid.to_owned(),
            drives,
            // Drives that were used for something else are gone for good; what is left has been counted already.
            allow_degraded: true,
            ..ImportArraysRequest::default()
        };
        Ok(self.import_arrays(&import)?.warnings)
    }

    /// Restores what was recorded beside the array; what cannot be is returned in words.
    fn offer_again(&self, record: &DestroyedRecord) -> Vec<String> {
        let mut warnings = Vec::new();
        for export in &record.exports {
            let array = record.uuid.clone();
            let request = CreateExportRequest { array, ..request_of(export) };
            let offered = self.run(|m| m.create_export(&request));
            warnings.extend(offered.err().map(|e| format!("export {}: {e}", export.name)));
        }
        let set = self.run(|m| m.put_settings(&record.uuid, record.settings));
        warnings.extend(set.err().map(|e| e.what));
        warnings
    }

    /// The drives with labels of the destroyed array asked for; its identity and its name.
    fn find_destroyed(
        &self,
        reserved: &mut Reserved,
        request: &UndeleteArrayRequest,
        look: &[String],
    ) -> Result<(String, String, Vec<Drive>), ControlError> {
        let mut found: Vec<(String, String, Drive)> = Vec::new();
        let mut add = |drive: Drive| -> Result<(), ControlError> {
            let Some(label) = inspect(&drive)?.label.filter(|label| label.destroyed) else {
                return Ok(());
            };
            let (uuid, name) = (label.array.to_string(), label.name.to_string());
            let identity = drive.device.info().identity;
            let known = found.iter().any(|(_, _, d)| d.device.info().identity == identity);
            let asked_for = uuid == request.name || name == request.name;
            // A drive that was put to another use since cannot be brought back, though its labels outlived that.
            if asked_for && !known && written_over(&drive)?.is_none() {
                found.push((uuid, name, drive));
            }
            Ok(())
        };
        for path in &request.drives {
            add(reserved.open(path)?)?;
        }
        for path in look {
            // Drives that were not named may be missing or busy; what is found decides.
            let _ = reserved.open_now(path).and_then(&mut add);
        }
        let Some((uuid, name, _)) = found.first().cloned() else {
            return Err(ControlError::not_found(format!(
                "no drive with the label of a destroyed array {} was found; name its drives with --drives. Drives that \
                 were used for something else since cannot be brought back",
                request.name
            )));
        };
        if found.iter().any(|(other, _, _)| *other != uuid) {
            return Err(ControlError::refused(format!(
                "several destroyed arrays are called {name}; give the UUID of one, such as {uuid}"
            )));
        }
        Ok((uuid, name, found.into_iter().map(|(_, _, drive)| drive).collect()))
    }
}

impl Manager {
    fn plan_undelete(
        &mut self,
        request: &UndeleteArrayRequest,
    ) -> Planned<(Option<DestroyedRecord>, Vec<String>)> {
        self.check_open()?;
        let name = &request.name;
        if let Some(known) = self.config.arrays.iter().find(|a| a.name == *name || a.uuid == *name)
        {
            return Err(ControlError::state(format!(
                "array {} is not destroyed; there is nothing to bring back",
                known.name
            )));
        }
        let record = self.config.destroyed.iter().rfind(|d| d.name == *name || d.uuid == *name);
        let mut look: Vec<String> = record.map(|d| d.drives.clone()).unwrap_or_default();
        if request.drives.is_empty() {
            look.extend(scan::block_paths(self.drives.machine()));
        }
        let keys = vec![array_key(name)];
        Ok(((record.cloned(), look), keys))
    }

    fn check_name_free(&self, name: &str, uuid: &str) -> Result<(), ControlError> {
        if self.config.arrays.iter().all(|a| a.name != name || a.uuid == uuid) {
            return Ok(());
        }
        let what = format!(
            "there is another array {name} now; rename that one first: strake array rename {name} OTHER"
        );
        Err(ControlError::new(ControlErrorKind::Exists, what))
    }

    fn told_undeleted(&mut self, uuid: &str) -> Result<strake_api::v1::Array, ControlError> {
        let view = self.array(uuid)?;
        let mut config = self.config.clone();
        config.destroyed.retain(|d| d.uuid != uuid);
        self.config = self.store.prepare(&config)?.commit()?;
        let what = format!("array {} was brought back", view.name);
        self.record(Note::new(EventKind::ArrayUndeleted, format!("array/{}", view.name), what));
        Ok(view)
    }

    /// What is remembered of an array that is about to be destroyed.
    pub(crate) fn remember_destroyed(&self, uuid: &str) -> crate::store::Config {
        let mut config = self.config.clone();
        let Some(record) = config.arrays.iter().find(|a| a.uuid == uuid) else { return config };
        let destroyed = DestroyedRecord {
            uuid: record.uuid.clone(),
            name: record.name.clone(),
            drives: record.drives.clone(),
            settings: record.settings,
            exports: config.exports.iter().filter(|e| e.array == uuid).cloned().collect(),
        };
        config.destroyed.retain(|d| d.uuid != uuid);
        config.destroyed.push(destroyed);
        let old = config.destroyed.len().saturating_sub(DESTROYED_MAX);
        config.destroyed.drain(..old);
        config
    }
}
