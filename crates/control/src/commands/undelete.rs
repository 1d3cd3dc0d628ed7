//! Undelete of destroyed arrays whose drives were not used otherwise.

use strake_api::v1::{
    ArrayChange, CreateExportRequest, ImportArraysRequest, RenameArrayRequest, UndeleteArrayRequest,
};
use strake_dev_uring::control_wait;
use strake_engine::{Drive, check_destroyed, unmark_destroyed};
use strake_wording::{Text, say};

use crate::commands::claims::refuse_members;
use crate::commands::exports::would_export;
use crate::commands::import::start_found;
use crate::control::{Control, Planned, Reserved};
use crate::drives::block_paths;
use crate::drives::label::{inspect, written_over};
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::exports::requests::{Wanted, not_offered, request_of};
use crate::manager::Manager;
use crate::names::{array_key, is_called, name_warning};
use crate::record::store::{DestroyedRecord, ExportRecord};
use crate::upkeep::settings::put_settings;

impl Control {
    /// Restores a destroyed array with its exports and settings.
    ///
    /// # Errors
    /// If no label of such an array is found, its drives were used since, or too few drives remain.
    pub fn undelete_array(
        &self,
        request: &UndeleteArrayRequest,
    ) -> Result<ArrayChange, ControlError> {
        let (look, mut reserved) = self.reserve(|m| plan_undelete(m, request))?;
        let (uuid, name, drives) = find_destroyed(&mut reserved, request, &look)?;
        let record = self.with(|m| m.records.destroyed_record(&uuid))?;
        self.run(|m| {
            refuse_members(m, &drives).and_then(|()| m.records.check_name_free(&name, &uuid))
        })?;
        let mut plan: Vec<String> =
            drives.iter().map(|d| format!("restore the label of {}", d.path)).collect();
        plan.push(format!("start array {name}"));
        let exports = record.as_ref().map(|r| r.exports.clone()).unwrap_or_default();
        plan.extend(
            exports.iter().map(|e| format!("offer it as {} on {} again", e.name, e.listen)),
        );
        // A plan is shown only if the real run would not be refused.
        check_destroyed(&drives, &mut control_wait())?;
        if request.dry_run {
            let mut warnings = self.with(|m| refused_exports(m, &name, &exports))?;
            warnings.extend(name_warning(&name, &uuid));
            let result = "planned".into();
            return Ok(ArrayChange { result, plan, warnings, ..ArrayChange::default() });
        }
        unmark_destroyed(&drives, &mut control_wait())?;
        let paths = drives.iter().map(|d| d.path.clone()).collect();
        drop(drives);
        // The import itself reserves the drives.
        drop(reserved);
        let mut warnings = start_again(self, &uuid, paths)?;
        warnings.extend(record.iter().flat_map(|record| offer_again(self, record)));
        // Members record exports too, which the import has not created.
        let mut kept = self.with(|m| m.records.kept_exports(&uuid))?;
        kept.retain(|kept| exports.iter().all(|export| export.name != kept.name));
        warnings.extend(kept.iter().map(|export| not_offered(export, &name)));
        let (result, array) = ("changed".into(), Some(self.run(|m| reported_undeleted(m, &uuid))?));
        Ok(ArrayChange { result, array, plan, warnings, ..ArrayChange::default() })
    }
}

fn start_again(
    control: &Control,
    uuid: &str,
    drives: Vec<String>,
) -> Result<Vec<String>, ControlError> {
    let import = ImportArraysRequest {
        name: uuid.to_owned(),
        drives,
        // Drives that were used otherwise are permanently lost. The remaining drives were already counted.
        allow_degraded: true,
        ..ImportArraysRequest::default()
    };
    Ok(start_found(control, &import)?.warnings)
}

/// Restores the records of the array's exports and settings. Returns warnings about failures.
fn offer_again(control: &Control, record: &DestroyedRecord) -> Vec<String> {
    let mut warnings = Vec::new();
    for export in &record.exports {
        let array = record.uuid.clone();
        let request = CreateExportRequest { array, ..request_of(export) };
        let offered = control.run(|m| m.create_export(&request));
        warnings.extend(offered.err().map(|e| format!("export {}: {e}", export.name)));
    }
    let set = control.run(|m| put_settings(m, &record.uuid, record.settings));
    warnings.extend(set.err().map(|e| e.what));
    warnings
}

/// Returns the drives with labels of the requested destroyed array, its identity and its name.
fn find_destroyed(
    reserved: &mut Reserved,
    request: &UndeleteArrayRequest,
    look: &[String],
) -> Result<(String, String, Vec<Drive>), ControlError> {
    let mut found: Vec<Destroyed> = Vec::new();
    let mut add = |drive: Drive| -> Result<(), ControlError> {
        let Some(label) = inspect(&drive)?.label.filter(|label| label.destroyed) else {
            return Ok(());
        };
        let (uuid, name) = (label.array.to_string(), label.name.to_string());
        let identity = drive.device.identity();
        let asked_for = is_called(&request.name, &name, &uuid);
        // A drive that was used otherwise since cannot be restored, although its labels are intact.
        if !asked_for || written_over(&drive)?.is_some() {
            return Ok(());
        }
        let at = found.iter().position(|array| array.uuid == uuid).unwrap_or_else(|| {
            found.push(Destroyed { uuid, name, drives: Vec::new() });
            found.len() - 1
        });
        let drives = &mut found[at].drives;
        if drives.iter().all(|known| known.device.identity() != identity) {
            drives.push(drive);
        }
        Ok(())
    };
    for path in &request.drives {
        add(reserved.open(path)?)?;
    }
    for path in look {
        // Drives that were not named may be missing or busy. The drives that are found decide.
        let _ = reserved.open_now(path).and_then(&mut add);
    }
    if found.len() > 1 {
        // Arrays whose drives were used since are not candidates.
        let whole = |a: &Destroyed| check_destroyed(&a.drives, &mut control_wait()).is_ok();
        let (whole, rest): (Vec<_>, Vec<_>) = found.into_iter().partition(whole);
        found = if whole.is_empty() { rest } else { whole };
    }
    if found.len() > 1 {
        return Err(several(&request.name, &found));
    }
    let Some(Destroyed { uuid, name, drives }) = found.pop() else {
        let name = &request.name;
        let what = format!(
            "no drive with the label of a destroyed array {name} was found. Drives that were used again cannot be \
                restored; name the other drives: "
        );
        let drives = vec!["...".to_owned()];
        let named = UndeleteArrayRequest { drives, ..undelete(name.clone()) };
        return Err(ControlError::not_found(say(what).run(named)));
    };
    Ok((uuid, name, drives))
}

/// A destroyed array whose labels were found.
struct Destroyed {
    uuid: String,
    name: String,
    drives: Vec<Drive>,
}

/// Returns the error for several destroyed arrays with one name.
fn several(name: &str, found: &[Destroyed]) -> ControlError {
    let each = found.iter().map(|array| {
        let paths: Vec<&str> = array.drives.iter().map(|drive| drive.path.as_str()).collect();
        Text::from(undelete(array.uuid.to_string())).say(format!(" (on {})", paths.join(", ")))
    });
    let what = format!("several destroyed arrays are called {name}; name one by its UUID: ");
    ControlError::refused(say(what).then(Text::join(each, "; ")))
}

/// Returns the commands that restore a destroyed array whose name is in use by another array.
fn bring_back(name: &str, destroyed: &DestroyedRecord) -> Text {
    let rename = RenameArrayRequest { name: name.to_owned(), ..Default::default() };
    let drives = destroyed.drives.join(", ");
    Text::from(rename)
        .say(", then ")
        .run(undelete(destroyed.uuid.clone()))
        .say(format!(" (it was on {drives})"))
}

fn undelete(uuid: String) -> UndeleteArrayRequest {
    UndeleteArrayRequest { name: uuid, ..Default::default() }
}

fn plan_undelete(manager: &mut Manager, request: &UndeleteArrayRequest) -> Planned<Vec<String>> {
    manager.check_open()?;
    let name = &request.name;
    if let Some(known) = manager.records.arrays.iter().find(|a| is_called(name, &a.name, &a.uuid)) {
        let older = manager.records.destroyed.iter().filter(|d| d.name == *name);
        let older = Text::join(older.map(|d| bring_back(name, d)), "; ");
        let older = if older == Text::default() {
            say("there is nothing to undelete")
        } else {
            say("an older destroyed array has the same name: ").then(older)
        };
        let what = format!("array {} is not destroyed; ", known.name);
        return Err(ControlError::state(say(what).then(older)));
    }
    // A name may have been used repeatedly. The labels show which of these arrays can be restored.
    let records = manager.records.destroyed.iter().filter(|d| is_called(name, &d.name, &d.uuid));
    let mut look: Vec<String> = Vec::new();
    for path in records.rev().flat_map(|record| &record.drives) {
        if !look.contains(path) {
            look.push(path.clone());
        }
    }
    if request.drives.is_empty() {
        look.extend(block_paths(manager.drives.machine()));
        look.extend(manager.records.taken_paths());
    }
    let keys = vec![array_key(name)];
    Ok((look, keys))
}

/// Returns the reasons why exports of a destroyed array would not be created again.
fn refused_exports(manager: &Manager, name: &str, exports: &[ExportRecord]) -> Vec<String> {
    let mut config = manager.records.config.clone();
    let mut warnings = Vec::new();
    for export in exports {
        let wanted = Wanted { volume: export.volume.clone(), ..Wanted::array(name, &export.array) };
        match would_export(manager, &request_of(export), &config, wanted) {
            Ok(record) => config.exports.extend(record),
            Err(error) => warnings.push(format!("export {}: {error}", export.name)),
        }
    }
    warnings
}

fn reported_undeleted(
    manager: &mut Manager,
    uuid: &str,
) -> Result<strake_api::v1::Array, ControlError> {
    let view = manager.array(uuid)?;
    manager.records.change(|config| config.destroyed.retain(|d| d.uuid != uuid))?;
    let what = format!("array {} was undeleted", view.name);
    manager.record(Note::of_array(EventKind::ArrayUndeleted, &view.name, what));
    Ok(view)
}
