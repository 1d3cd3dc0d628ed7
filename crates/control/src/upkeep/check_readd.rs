//! Checks whether the drive of a member that is out can be re-added.

use std::os::unix::fs::MetadataExt;

use strake_engine::Drive;
use strake_wording::{replace, say};

use crate::bounded::{self, Silent};
use crate::commands::claims::refuse_members;
use crate::control::Control;
use crate::drives::PathKey;
use crate::drives::address::{is_remote, pci_address};
use crate::drives::label::Labelled;
use crate::drives::pci;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::state::prospect::Prospect;
use crate::state::running::Place;

/// The key of the file or device at a path; an error if the path is unresponsive.
type KeyAt = Result<Option<PathKey>, Silent>;

/// A member that is out, and its drive.
pub(crate) struct Returned {
    pub(crate) place: Place,
    pub(crate) found: Labelled,
    pub(crate) stale_bytes: u64,
}

/// Checks whether `found` can be re-added, and keeps the result for the advice to the operator.
pub(crate) fn check_return(
    manager: &mut Manager,
    array: &str,
    member: Option<u32>,
    found: Labelled,
) -> Result<Returned, ControlError> {
    let checked = check_return_of(manager, array, member, found.clone());
    put_prospect(manager, array, &found, checked.as_ref().err().map(|error| error.what.clone()));
    checked
}

fn check_return_of(
    manager: &mut Manager,
    array: &str,
    member: Option<u32>,
    found: Labelled,
) -> Result<Returned, ControlError> {
    let member = member.unwrap_or(u32::from(found.label.slot.0));
    let (place, _) = manager.place(array, member)?;
    let swapped = &manager.entries.get(&place.array).slot(place.member.at()).swapped;
    if swapped.as_ref().is_some_and(|was| *was != found.identity()) {
        let name = &place.name;
        let what = format!(
            "{} replaced the drive of member {member} of array {name} while that drive was in use. The new drive is \
                at best a copy, and lacks later writes; return the member's own drive, or: ",
            found.drive.path
        );
        return Err(ControlError::refused(say(what).run(replace(name, Some(member), ""))));
    }
    note_objection(manager, &found);
    if let Some(objection) = found.objection() {
        return Err(ControlError::refused(objection));
    }
    let at = manager.find_running(array)?;
    let check = manager.running[at].array.check_readd(place.member, &found.drive, &found.label);
    let stale_bytes = check?;
    refuse_serving(manager, &found.drive, &place)?;
    Ok(Returned { place, found, stale_bytes })
}

/// Keeps the reason why the drive of a member that is out is not usable, as of the last inspection.
pub(crate) fn note_objection(manager: &mut Manager, found: &Labelled) {
    let label = &found.label;
    let uuid = label.array.to_string();
    let Some(running) = manager.running_of(&uuid) else { return };
    let status = running.array.status();
    // Another drive may have replaced this member in the meantime.
    if status.members.get(label.slot.at()).is_none_or(|m| m.uuid != label.member) {
        return;
    }
    let other_half = manager.is_other_half(label).then(|| found.drive.path.clone());
    let notes = manager.entries.of(&uuid).slot_mut(label.slot.at());
    (notes.objection, notes.other_half) = (found.damage(), other_half);
}

/// Refuses a drive that serves in another slot, or that is a spare. The drive that was in this slot is accepted.
fn refuse_serving(manager: &Manager, drive: &Drive, place: &Place) -> Result<(), ControlError> {
    let own = (place.member.at(), place.name.clone());
    if manager.place_of(&drive.device.identity()).is_some_and(|other| other == own) {
        return Ok(());
    }
    refuse_members(manager, std::slice::from_ref(drive))
}

/// A key that distinguishes the file or device that is now at `path` from another one that may be there later; `None`
/// if the path does not exist, and an error if it is unresponsive. The path is inspected without the lock, because it
/// may be on an unresponsive device.
pub(crate) fn key_at(control: &Control, path: &str) -> Result<KeyAt, ControlError> {
    if is_remote(path) {
        return control.with(|m| Ok(m.drives.remote_key(path)));
    }
    if control.with(|m| m.drives.is_left_alone(path))? {
        return Ok(Ok(None));
    }
    let at = path.to_owned();
    Ok(bounded::look(path, move || {
        if let Some(address) = pci_address(&at) {
            return pci::key_at(address);
        }
        let meta = std::fs::metadata(at).ok();
        meta.map(|meta| (meta.dev(), meta.ino(), meta.rdev()))
    }))
}

/// Keeps the result of a check of the drive of a member that is out.
pub(crate) fn put_prospect(
    manager: &mut Manager,
    array: &str,
    found: &Labelled,
    refusal: Option<String>,
) {
    if let Some(member) = manager.running_of(array).and_then(|r| r.absent_as(found)) {
        let path = found.drive.path.clone();
        let notes = manager.entries.of(array).slot_mut(found.label.slot.at());
        notes.prospect = Some(Prospect { member, path, refusal });
    }
}
