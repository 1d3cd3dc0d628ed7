//! Replacements: drives that fill the slots of members, immediately or after the content of a serving member was copied
//! to them.
//!
//! The engine copies, and decides when the replacement becomes the member. Until then the array has both drives, and
//! this module keeps the replacement.

use strake_dev_uring::control_wait;
use strake_engine::{Drive, Pending, prepare_drive};
use strake_raid::MemberState;
use strake_units::{MemberIndex, Uuid};

use crate::control::Control;
use crate::drives::address::remembered;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::names::fresh_uuid;
use crate::policy::members::with_old_paths;
use crate::state::running::{Place, Replacement};
use crate::upkeep::doubt::note_suspect;

/// Whether `place` is the slot of a serving member. The drive of such a member is copied, and not reconstructed from
/// other members.
pub(crate) fn is_serving(manager: &Manager, place: &Place) -> Result<bool, ControlError> {
    let at = manager.find_running(&place.array)?;
    let status = manager.running[at].array.status();
    Ok(status.members[place.member.at()].state == MemberState::InSync)
}

/// Records a drive that the array accepted as `uuid`: the drive is already the member, or it must be filled first.
fn note_taken(
    manager: &mut Manager,
    place: &Place,
    uuid: Uuid,
    drive: Drive,
) -> Result<(), ControlError> {
    let at = manager.find_running(&place.array)?;
    if manager.running[at].array.status().members[place.member.at()].uuid == uuid {
        return install_drive(manager, place, drive);
    }
    // A replacement whose copy finished before this copy started may not be recorded as the member yet.
    let settled = settle_replacements(manager);
    manager.running[at].replacement = Some(Replacement { slot: place.member, uuid, drive });
    settled.and(settle_replacements(manager))
}

/// Releases the drives of members that were replaced, and the replacements that will not become members.
///
/// # Errors
/// The new drive could not be recorded. The drive serves nevertheless.
pub(crate) fn settle_replacements(manager: &mut Manager) -> Result<(), ControlError> {
    let mut result = Ok(());
    for at in 0..manager.running.len() {
        let running = &mut manager.running[at];
        let status = running.array.status();
        let over = |next: &mut Replacement| {
            let member = &status.members[next.slot.at()];
            member.uuid == next.uuid || member.replacement.is_empty() || status.lost
        };
        let Some(next) = running.replacement.take_if(over) else { continue };
        let (uuid, slot) = (running.uuid(), next.slot);
        if status.members[slot.at()].uuid != next.uuid && !status.lost {
            // The replace was cancelled, or its drive failed: it must not be started again.
            result = result.and(forget_copy(manager, &uuid, slot));
        }
        let running = &manager.running[at];
        if status.members[next.slot.at()].uuid == next.uuid {
            let (array, name) = (running.uuid(), status.name.to_string());
            let place = Place { array, name, member: next.slot, was: next.uuid };
            result = result.and(install_drive(manager, &place, next.drive));
        }
        manager.close_unused_drives();
    }
    result
}

/// Starts to cancel the replace of a member of the array at `at`.
pub(crate) fn begin_cancel(
    manager: &mut Manager,
    at: usize,
    member: u32,
) -> Result<Pending, ControlError> {
    let member = MemberIndex(member as u8);
    Ok(manager.running[at].array.begin_cancel_replace(member)?)
}

/// Records that no spare replaces a member while it serves, because an operator cancelled its replacement.
pub(crate) fn leave_alone(
    manager: &mut Manager,
    at: usize,
    member: u32,
) -> Result<(), ControlError> {
    let running = &manager.running[at];
    let members: Vec<String> =
        running.array.status().members.iter().map(|member| member.uuid.to_string()).collect();
    let (array, slot) = (running.uuid(), member as usize);
    let is_copied = manager.records.copies(&array).any(|copy| u32::from(copy.slot) == member);
    // The copy may have finished in the meantime.
    let Some(member) = members.get(slot).filter(|_| is_copied) else { return Ok(()) };
    let mut config = manager.records.config.clone();
    let Some(record) = config.arrays.iter_mut().find(|record| record.uuid == array) else {
        return Ok(());
    };
    record.left_alone.retain(|left| members.contains(left) && left != member);
    record.left_alone.push(member.clone());
    manager.records.put(&config)
}

/// Deletes the record of a copy of a member. The copy finished, or it is no longer required.
pub(crate) fn forget_copy(
    manager: &mut Manager,
    uuid: &str,
    member: MemberIndex,
) -> Result<(), ControlError> {
    if let Some(entry) = manager.entries.get_mut(uuid) {
        entry.slot_mut(member.at()).copy_trouble = None;
    }
    let mut config = manager.records.config.clone();
    if config.drop_copy(uuid, member) {
        manager.records.put(&config)?;
    }
    Ok(())
}

/// Records `drive` as the drive of the member at `place`, after the array accepted it.
pub(crate) fn install_drive(
    manager: &mut Manager,
    place: &Place,
    drive: Drive,
) -> Result<(), ControlError> {
    let at = manager.find_running(&place.array)?;
    manager.running[at].drives[place.member.at()] = Some(drive);
    manager.entries.of(&place.array).slot_mut(place.member.at()).taken();
    let here: Vec<Drive> = manager.running[at].drives.iter().flatten().cloned().collect();
    let mut config = manager.records.config.clone();
    if let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == place.array) {
        record.drives = with_old_paths(remembered(&here), &record.drives);
    }
    config.drop_copy(&place.array, place.member);
    manager.records.put_config(&config)
}

/// Starts the replace of the member at `place` with `drive`, if the copy to this drive is still recorded.
pub(crate) fn begin_replacement(
    control: &Control,
    place: &Place,
    drive: Drive,
) -> Result<(), ControlError> {
    let uuid = fresh_uuid()?;
    prepare_drive(&drive, uuid, &mut control_wait())?;
    let replacing = control.run(|m| {
        m.check_open()?;
        let at = m.find_running(&place.array)?;
        if !m.records.is_copy_wanted(place, &drive) {
            return Err(ControlError::state("it was cancelled".to_owned()));
        }
        note_suspect(m, at)?;
        Ok(m.running[at].array.begin_replace(place.member, &drive, uuid)?)
    })?;
    replacing.wait()?;
    control.run(|m| note_taken(m, place, uuid, drive))
}
