//! The list of arrays on drives that do not run: those that can be imported, and destroyed ones that can be restored.

use std::collections::BTreeMap;

use strake_api::v1::{
    Array as ArrayMessage, ImportArraysRequest, ListImportableRequest, ListImportableResponse,
    UndeleteArrayRequest,
};
use strake_dev_uring::control_wait;
use strake_engine::{AssemblePolicy, Drive, check_destroyed};
use strake_wording::{Text, import, say};

use crate::commands::import::{Found, places_to_look};
use crate::control::{Control, Reserved};
use crate::drives::label::{Labelled, inspect, overwritten, written_over};
use crate::error::{ControlError, ControlErrorKind};
use crate::policy::candidates::push_once;
use crate::policy::search::Unused;
use crate::policy::verdict::planned;
use crate::state::offline::Offline;

/// The arrays that a scan finds, by UUID; true for destroyed ones.
type Scanned = BTreeMap<(String, bool), Found>;

impl Control {
    /// Scans the drives of the host, recorded drives and `request.drives` for arrays that do not run. Changes nothing.
    ///
    /// # Errors
    /// If a named drive cannot be read.
    pub fn list_importable(
        &self,
        request: &ListImportableRequest,
    ) -> Result<ListImportableResponse, ControlError> {
        let ((look, running), mut reserved) = self.reserve(|m| {
            m.check_open()?;
            let mut look = places_to_look(m, &ImportArraysRequest::default());
            look.extend(m.records.destroyed.iter().flat_map(|record| record.drives.clone()));
            let running: Vec<String> = m.running.iter().map(|array| array.uuid()).collect();
            // Another scan would find the drives of this one in use.
            Ok(((look, running), vec!["scan for arrays".to_owned()]))
        })?;
        let mut response = ListImportableResponse::default();
        let mut found = Scanned::new();
        for path in &request.drives {
            let drive = reserved.open(path)?;
            take(&mut found, drive)?;
        }
        for path in look.iter().filter(|path| !request.drives.contains(path)) {
            match glance(&mut reserved, &mut found, path) {
                // A drive that was not named may be absent, or hold something else.
                Ok(()) | Err(Unused::Otherwise(_)) => {}
                Err(Unused::Label(error)) => response.warnings.push(error.what),
            }
        }
        // A former member of a running or destroyed array holds its label as well.
        found.retain(|(uuid, _), _| !running.contains(uuid));
        let destroyed: BTreeMap<String, u64> = found
            .iter()
            .filter(|((_, is_destroyed), _)| *is_destroyed)
            .map(|((uuid, _), array)| (uuid.clone(), generation(array)))
            .collect();
        found.retain(|(uuid, is_destroyed), array| {
            let end = destroyed.get(uuid).filter(|_| !is_destroyed);
            end.is_none_or(|end| generation(array) >= *end)
        });
        for ((uuid, is_destroyed), array) in &found {
            let view = match is_destroyed {
                true => destroyed_view(self, uuid, array)?,
                false => importable_view(self, uuid, array)?,
            };
            response.arrays.push(view);
        }
        Ok(response)
    }
}

/// An array that can be imported, or the reason why it would not start.
fn importable_view(
    control: &Control,
    uuid: &str,
    found: &Found,
) -> Result<ArrayMessage, ControlError> {
    let (mut record, is_known, taken, older) = control.with(|m| {
        let known = m.records.record_of(uuid).cloned();
        let record = known.clone().unwrap_or_else(|| found.record(uuid));
        // Another array may have the name.
        let taken = m.records.check_import(&record).err();
        let older = m.newest.objection(&record, &found.drives);
        (record, known.is_some(), taken, older)
    })?;
    record.name.clone_from(&found.name);
    let policy = AssemblePolicy { allow_degraded: false, accept_loss: false };
    let verdict = match older {
        Some(older) => Err(older),
        None => planned(&record, &found.drives, policy),
    };
    let on = |text: Text| match is_known {
        true => text,
        false => crate::remedy::on_drives(text, &found.paths()),
    };
    let (mut view, next) = match verdict {
        Ok(view) => match taken {
            None => (view, on(Text::from(import(&found.name)))),
            Some(taken) => {
                let next = say("unload or rename the other array, then: ").run(import(uuid));
                (ArrayMessage { reason: taken.what, ..view }, on(next))
            }
        },
        Err(error) => {
            let offline = Offline::new(&record, &error, &found.drives);
            let view = offline.view(&record, Vec::new());
            (ArrayMessage { reason: offline.why.clone(), ..view }, on(offline.next))
        }
    };
    let is_complete = view.reason.is_empty();
    view.states = states("importable", is_complete);
    Ok(with_next(view, next))
}

/// A destroyed array, with the reason if it cannot be restored.
fn destroyed_view(
    control: &Control,
    uuid: &str,
    found: &Found,
) -> Result<ArrayMessage, ControlError> {
    let record = found.record(uuid);
    let is_known = control.with(|m| m.records.destroyed_record(uuid).is_some())?;
    let drives: Vec<Drive> = found.drives.iter().map(|l| l.drive.clone()).collect();
    let checked = check_destroyed(&drives, &mut control_wait()).map_err(ControlError::from);
    let reason = checked.err().map(|error| error.what).unwrap_or_default();
    let none = ControlError::state(String::new());
    let mut view = Offline::new(&record, &none, &found.drives).view(&record, Vec::new());
    // The labels of a destroyed array are not used for a start, so the view shows no drives.
    for member in &mut view.members {
        let of_it = |l: &&Labelled| l.label.member.to_string() == member.uuid;
        if let Some(labelled) = found.drives.iter().find(of_it) {
            member.path.clone_from(&labelled.drive.path);
            "in_sync".clone_into(&mut member.state);
        }
    }
    let is_complete = reason.is_empty();
    let undelete = UndeleteArrayRequest {
        // A destroyed array may have the name of a later one.
        name: uuid.to_owned(),
        drives: if is_known { Vec::new() } else { found.paths() },
        dry_run: false,
    };
    let next = match is_complete {
        true => Text::from(undelete),
        false => say("return its other drives, then: ").run(undelete),
    };
    let states = states("destroyed", is_complete);
    Ok(with_next(ArrayMessage { states, reason, ..view }, next))
}

/// The generation of the newest label.
fn generation(array: &Found) -> u64 {
    array.drives.iter().map(|labelled| labelled.label.generation).max().unwrap_or_default()
}

fn states(word: &str, is_complete: bool) -> Vec<String> {
    let rest = (!is_complete).then(|| "incomplete".to_owned());
    std::iter::once(word.to_owned()).chain(rest).collect()
}

fn with_next(view: ArrayMessage, next: Text) -> ArrayMessage {
    ArrayMessage { next_action: next.words, remedy: next.parts, ..view }
}

/// Reads the label of a drive that may be absent, without a wait for another command.
fn glance(reserved: &mut Reserved, found: &mut Scanned, path: &str) -> Result<(), Unused> {
    let drive = reserved.open_now(path)?;
    take(found, drive).map_err(|error| match error.kind {
        ControlErrorKind::Refused => Unused::Label(error),
        _ => Unused::Otherwise(error),
    })
}

/// Adds a drive to the array of its label, if it has one.
fn take(found: &mut Scanned, drive: Drive) -> Result<(), ControlError> {
    let Some(label) = inspect(&drive)?.label else { return Ok(()) };
    let (written_over, overwritten) = (written_over(&drive)?, overwritten(&drive)?);
    // A drive of a destroyed array that was used since cannot be restored, although its labels are intact.
    if label.destroyed && written_over.is_some() {
        return Ok(());
    }
    let name = label.name.to_string();
    let key = (label.array.to_string(), label.destroyed);
    let array = found.entry(key).or_insert(Found { name, drives: Vec::new() });
    push_once(&mut array.drives, Labelled { drive, label, written_over, overwritten });
    Ok(())
}
