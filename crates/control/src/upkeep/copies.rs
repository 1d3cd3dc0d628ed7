//! Copies of members to other drives, over restarts.
//!
//! The engine forgets a copy that has not ended when the array stops. What an administrator ordered is recorded here
//! before the drive is touched, and begun again whenever the array runs and the very same drive is here: it is known by
//! its medium, since paths change. A copy that waits is a job like one that runs.

use strake_api::v1 as api;
use strake_engine::Drive;
use strake_raid::MemberState;
use strake_units::MemberIndex;

use crate::actions::Pace;
use crate::control::{Control, Reserved};
use crate::drives::address::outlasts;
use crate::drives::block_paths;
use crate::drives::occupied::refuse_occupied;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::names::array_key;
use crate::policy::advice::copy_next;
use crate::record::store::CopyRecord;
use crate::upkeep::replacement::{begin_replacement, forget_copy};

/// Begins the copies again that a restart interrupted. What prevents that is reported once, and shown until it is over.
pub(crate) fn resume_copies(control: &Control, pace: Pace) -> Result<(), ControlError> {
    for (array, copy) in control.with(waiting_copies)? {
        let name = format!("copy of member {} of {array}", copy.slot);
        control.act(pace, name, move |control| {
            let reserved = control.try_reserve(vec![array_key(&array)])?;
            let Some(mut reserved) = reserved else { return Ok(()) };
            let resumed = resume_copy(control, &mut reserved, &array, &copy);
            control.with(|m| note_copy(m, &array, &copy, resumed.err()))
        })?;
    }
    Ok(())
}

fn resume_copy(
    control: &Control,
    reserved: &mut Reserved,
    array: &str,
    copy: &CopyRecord,
) -> Result<(), ControlError> {
    // It may have been called off while others were looked at.
    if !control.with(|m| m.records.copies(array).any(|other| other == copy))? {
        return Ok(());
    }
    let drive = find_copy(control, reserved, copy)?;
    // Foreign data written to the drive in the meantime is not overwritten.
    refuse_occupied(std::slice::from_ref(&drive))?;
    let place = control.run(|m| {
        let (place, _) = m.place(array, u32::from(copy.slot))?;
        let at = m.find_running(array)?;
        m.running[at].array.check_replacement(place.member, &drive)?;
        take_from_spares(m, &copy.identity)?;
        Ok(place)
    })?;
    begin_replacement(control, &place, drive)
}

/// The drive of a copy, wherever it is now.
fn find_copy(
    control: &Control,
    reserved: &mut Reserved,
    copy: &CopyRecord,
) -> Result<Drive, ControlError> {
    let is_it = |drive: &Drive| drive.device.identity() == copy.identity;
    let at_path = reserved.open_now(&copy.path);
    if let Ok(drive) = &at_path
        && is_it(drive)
    {
        return Ok(drive.clone());
    }
    let machine = control.with(|m| m.drives.machine().clone())?;
    for path in block_paths(&machine).iter().filter(|path| **path != copy.path) {
        if let Ok(drive) = reserved.open_now(path)
            && is_it(&drive)
        {
            return Ok(drive);
        }
    }
    Err(match at_path {
        Ok(_) => ControlError::state(format!("another drive is at {}", copy.path)),
        Err(error) => error,
    })
}

/// Copies that are recorded and not under way, of members that are still those that were to be copied. One that
/// failed since or is missing is reconstructed on the same drive, as if it had failed during the copy.
fn waiting_copies(manager: &mut Manager) -> Vec<(String, CopyRecord)> {
    // The drive of a copy may be one that is to be taken first.
    if manager.stopping || !manager.late_takes.held_back.is_empty() {
        return Vec::new();
    }
    let mut waiting = Vec::new();
    let mut over = Vec::new();
    for running in &manager.running {
        let (uuid, status) = (running.uuid(), running.array.status());
        // The task that has reserved it knows more than the records.
        if manager.reserved.contains(&array_key(&uuid)) {
            continue;
        }
        for copy in manager.records.copies(&uuid) {
            let member = status.members.get(usize::from(copy.slot));
            let Some(member) = member.filter(|m| m.uuid.to_string() == copy.member) else {
                // The other drive has the place already.
                over.push((uuid.clone(), copy.slot));
                continue;
            };
            // What was in memory went with the daemon before this one.
            if !outlasts(&copy.path) && running.replacement.is_none() {
                over.push((uuid.clone(), copy.slot));
                continue;
            }
            let may = match member.state {
                MemberState::InSync | MemberState::Faulty | MemberState::Missing => true,
                MemberState::Rebuilding { .. } => false,
            };
            let idle = running.replacement.is_none() && member.replacement.is_empty();
            if may && idle && !status.lost {
                waiting.push((uuid.clone(), copy.clone()));
            }
        }
    }
    for (uuid, slot) in over {
        if let Err(error) = forget_copy(manager, &uuid, MemberIndex(slot)) {
            tracing::warn!(%uuid, reason = %error, "a finished copy is still recorded");
        }
    }
    waiting
}

/// A drive that is being copied to is no longer a spare, whatever a crash left in the records.
fn take_from_spares(manager: &mut Manager, identity: &str) -> Result<(), ControlError> {
    let mut config = manager.records.config.clone();
    config.spares.retain(|spare| spare.identity != identity);
    if config != manager.records.config {
        manager.records.put(&config)?;
        manager.spares.remove(identity);
    }
    Ok(())
}

/// Takes note of why a copy is not begun again, or that it is.
fn note_copy(manager: &mut Manager, uuid: &str, copy: &CopyRecord, error: Option<ControlError>) {
    // It may have been called off meanwhile.
    if !manager.records.copies(uuid).any(|other| other == copy) {
        return;
    }
    let slot = usize::from(copy.slot);
    let why = error.map(|error| error.what);
    let trouble = &mut manager.entries.of(uuid).slot_mut(slot).copy_trouble;
    if *trouble == why {
        return;
    }
    trouble.clone_from(&why);
    let Some(why) = why else { return };
    let (name, path) = (manager.records.array_name(uuid), &copy.path);
    let what = format!("the copy of member {slot} of array {name} to {path} waits");
    let note = Note::of_array(EventKind::ReplaceWaits, &name, what);
    manager.record(note.member(slot).cause(why).next(copy_next(&name, path)));
}

/// Shows copies that wait as jobs.
pub(crate) fn show_waiting_copies(manager: &Manager, uuid: &str, view: &mut api::Array) {
    for copy in manager.records.copies(uuid) {
        let slot = usize::from(copy.slot);
        let Some(member) = view.members.get_mut(slot).filter(|m| m.replacement.is_empty()) else {
            continue;
        };
        if member.uuid != copy.member || member.state == "rebuilding" {
            continue;
        }
        member.replacement.clone_from(&copy.path);
        let why = &manager.entries.get(uuid).slot(slot).copy_trouble;
        member.replacement_waits = why.clone().unwrap_or_default();
        if !view.progress.iter().any(|progress| progress.job == "replace") {
            view.progress.push(api::Progress {
                job: "replace".to_owned(),
                state: "waiting".to_owned(),
                ..api::Progress::default()
            });
        }
    }
}

/// Calls off a copy that is recorded and not under way. False when it is.
pub(crate) fn cancel_waiting_copy(
    manager: &mut Manager,
    at: usize,
    member: u32,
) -> Result<bool, ControlError> {
    let status = manager.running[at].array.status();
    let runs = status.members.get(member as usize).is_some_and(|m| !m.replacement.is_empty());
    if !runs {
        let uuid = manager.running[at].uuid();
        forget_copy(manager, &uuid, MemberIndex(member as u8))?;
    }
    Ok(!runs)
}
