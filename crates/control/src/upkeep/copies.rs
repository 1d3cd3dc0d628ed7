//! Copies of members to other drives, which continue after restarts.
//!
//! The engine forgets an unfinished copy when the array stops. Each copy that the operator requested is recorded before
//! the first write to the drive. It is started again when the array runs and the same drive is present. The drive is
//! found by its identity, because paths change. A waiting copy is a job like a running copy.

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

/// Starts the copies again that a restart interrupted. An obstacle is reported once, and shown for as long as it
/// exists.
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
    // The copy may have been cancelled while other copies were processed.
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

/// Finds the drive of a copy at its recorded path or at any other path.
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

/// The recorded copies that do not run, for slots that still have the member that was to be copied. A member that
/// failed since, or that is missing, is reconstructed on the same drive, as if it had failed during the copy.
fn waiting_copies(manager: &mut Manager) -> Vec<(String, CopyRecord)> {
    // The drive of a copy may be a drive that must be taken first.
    if manager.stopping || !manager.late_takes.held_back.is_empty() {
        return Vec::new();
    }
    let mut waiting = Vec::new();
    let mut over = Vec::new();
    for running in &manager.running {
        let (uuid, status) = (running.uuid(), running.array.status());
        // The task that has reserved the array may have changed it since it was recorded.
        if manager.reserved.contains(&array_key(&uuid)) {
            continue;
        }
        for copy in manager.records.copies(&uuid) {
            let member = status.members.get(usize::from(copy.slot));
            let Some(member) = member.filter(|m| m.uuid.to_string() == copy.member) else {
                // The replacement is already the member.
                over.push((uuid.clone(), copy.slot));
                continue;
            };
            // A drive in memory was lost with the previous daemon.
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

/// Removes the drive of a copy from the recorded spares, because a crash may have left it there.
fn take_from_spares(manager: &mut Manager, identity: &str) -> Result<(), ControlError> {
    let mut config = manager.records.config.clone();
    config.spares.retain(|spare| spare.identity != identity);
    if config != manager.records.config {
        manager.records.put(&config)?;
        manager.spares.remove(identity);
    }
    Ok(())
}

/// Records why a copy is not started again, or that it was started.
fn note_copy(manager: &mut Manager, uuid: &str, copy: &CopyRecord, error: Option<ControlError>) {
    // The copy may have been cancelled in the meantime.
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

/// Shows waiting copies as jobs.
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

/// Cancels a recorded copy that does not run. Returns false if the copy runs.
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
