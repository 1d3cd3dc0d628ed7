//! Removal of Strake's labels from a drive.

use strake_api::v1::{CleanDriveRequest, DriveChange, ImportArraysRequest};
use strake_engine::{Drive, OnDrive, Superblock};
use strake_wording::{Amendment, Text, import, say};

use crate::commands::claims::refuse_members;
use crate::control::Control;
use crate::drives::label::{look, wipe};
use crate::error::ControlError;
use crate::manager::Manager;
use crate::upkeep::lights::slot_at;

impl Control {
    /// Removes Strake's labels and partition table from a drive that no running array uses, so that the drive counts as
    /// free. For a drive without content of Strake, the result is "unchanged".
    ///
    /// # Errors
    /// If the drive is in use, cannot be opened, or has foreign content. Also if an array may need its label and the
    /// request does not accept the loss.
    pub fn clean_drive(&self, request: &CleanDriveRequest) -> Result<DriveChange, ControlError> {
        let (result, plan) = try_clean(self, request)?;
        // The drive is closed now, so this is an ordinary query.
        let drive = Some(self.drive(&request.path)?);
        Ok(DriveChange { result: result.to_owned(), drive, plan, warnings: Vec::new() })
    }
}

fn try_clean(
    control: &Control,
    request: &CleanDriveRequest,
) -> Result<(&'static str, Vec<String>), ControlError> {
    let (_, mut reserved) = control.reserve(|m| Ok((m.check_open()?, Vec::new())))?;
    let drive = reserved.open(&request.path)?;
    control.run(|m| refuse_members(m, std::slice::from_ref(&drive)))?;
    let found = look(&drive)?;
    let plan = control.run(|m| plan_clean(m, &drive, &found, request.accept_loss))?;
    if request.dry_run {
        return Ok((if plan.is_empty() { "unchanged" } else { "planned" }, plan));
    }
    if !plan.is_empty() {
        wipe(&drive)?;
    }
    // The LED is also switched off for a drive without labels, which may have failed and then been erased otherwise.
    let machine = control.with(|m| m.drives.machine().clone())?;
    if let Some(light) = slot_at(&machine, &drive.path).and_then(|slot| slot.light) {
        control.with(|m| m.lights.clear(&light))?;
    }
    if plan.is_empty() {
        return Ok(("unchanged", plan));
    }
    tracing::warn!(drive = %drive.path, "labels removed from a drive");
    Ok(("changed", plan))
}

/// Returns the removals on a drive with the content `found`; none without content of Strake.
///
/// # Errors
/// If the removal is not allowed.
fn plan_clean(
    manager: &Manager,
    drive: &Drive,
    found: &OnDrive,
    accept_loss: bool,
) -> Result<Vec<String>, ControlError> {
    let path = &drive.path;
    if let Some(other) = found.other {
        return Err(ControlError::refused(format!(
            "{path} contains {other}, which Strake did not write; if this content is not needed: wipefs --all {path}"
        )));
    }
    let mut plan = Vec::new();
    let mut losses = Vec::new();
    for label in &found.labels {
        plan.push(format!("remove the labels of {} from {path}", title(label)));
        losses.extend(loss_with(manager, label));
    }
    if found.labels.is_empty() && found.damaged {
        plan.push(format!("remove damaged labels from {path}"));
        losses.push(say("the owner of the damaged labels is unknown"));
    }
    if found.unknown {
        plan.push(format!("remove labels of an unknown format from {path}"));
        losses.push(say("another version of Strake wrote these labels, and may need them"));
    }
    if found.claimed {
        plan.push(format!("remove Strake's partition table from {path}"));
    }
    if !losses.is_empty() && !accept_loss {
        let what = say(format!("{path}: ")).then(Text::join(losses, "; "));
        let error = ControlError::refused(what);
        return Err(error.unless(Amendment::AcceptLoss, "; to clean the drive anyway: "));
    }
    Ok(plan)
}

/// Returns the loss if the label is removed; none if its array no longer needs the drive.
fn loss_with(manager: &Manager, label: &Superblock) -> Option<Text> {
    if label.destroyed {
        return None;
    }
    let (uuid, name, slot) = (label.array.to_string(), &label.name, label.slot);
    let Some(at) = manager.position_of(&uuid) else {
        let known = manager.records.arrays.iter().any(|array| array.uuid == uuid);
        let (which, drives) =
            if known { ("recorded here and", vec![]) } else { ("", vec!["...".to_owned()]) };
        let what =
            format!("array {name} ({uuid}), {which} not running, would miss member {slot} (");
        let start = ImportArraysRequest { drives, ..import(name) };
        return Some(say(what).run(start).say(" starts it)"));
    };
    // If the slot has another drive, the array no longer waits for this drive.
    let status = manager.running[at].array.status();
    let waits = status.members.get(label.slot.at()).is_some_and(|m| m.uuid == label.member);
    waits.then(|| {
        say(format!(
            "array {name} still waits for this drive as its member {slot} and could re-add it"
        ))
    })
}

fn title(label: &Superblock) -> String {
    let state = if label.destroyed { "the destroyed array" } else { "array" };
    format!("member {} of {state} {} ({})", label.slot, label.name, label.array)
}
