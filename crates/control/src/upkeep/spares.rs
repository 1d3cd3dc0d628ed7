//! Spares that are opened, reported as missing, and used without a command.

use strake_api::v1::AddSpareRequest;
use strake_engine::{ArrayStatus, Drive, MemberStatus};
use strake_wording::{replace, say};

use crate::actions::{Pace, Wish};
use crate::bounded;
use crate::commands::members::replace_now;
use crate::commands::spares::forget_spare;
use crate::control::Control;
use crate::drives::address::is_remote;
use crate::drives::is_there;
use crate::drives::occupied::refuse_occupied;
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note};
use crate::limits::GLANCE_LIMIT;
use crate::manager::Manager;
use crate::names::array_key;
use crate::policy::advice::spare_next;
use crate::policy::members::is_out;
use crate::policy::sick::Objection;
use crate::policy::spares::{
    Candidate, Need, Pool, SpareState, choose, fits, is_of_the_drive, slots_for_spares, unusable,
};
use crate::record::store::SpareRecord;
use crate::state::running::{Place, Running};
use crate::upkeep::sick::health_source;

/// Replaces members that are out or should be replaced with spares. A failure is reported, and the next round tries
/// another spare.
pub(crate) fn use_spares(control: &Control, pace: Pace) -> Result<(), ControlError> {
    for (array, slots) in control.with(places_for_spares)? {
        control.act(pace, format!("spares for {array}"), move |control| {
            for slot in slots {
                // The failure was reported; the next round tries another spare.
                if let Err(error) = use_spare(control, &array, slot, Wish::Upkeep) {
                    tracing::debug!(reason = %error, "spare not used");
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Replaces one member with a spare. Does nothing while another command has reserved the array, or if no spare fits.
pub(crate) fn use_spare(
    control: &Control,
    array: &str,
    slot: usize,
    wish: Wish,
) -> Result<(), ControlError> {
    let Some(reserved) = control.try_reserve(vec![array_key(array)])? else { return Ok(()) };
    let mut reserved = reserved.limit_to(GLANCE_LIMIT);
    let chosen = control.with(|m| choose_spare(m, array, slot, wish))?;
    let Some((place, record)) = chosen else { return Ok(()) };
    let opened = reserved.open_now(&record.path).and_then(|drive| {
        refuse_occupied(std::slice::from_ref(&drive))?;
        Ok(drive)
    });
    let fits = opened.is_ok();
    let used = opened.and_then(|drive| replace_now(control, &place, drive, wish));
    control.run(|m| {
        match &used {
            Ok(()) => reported_spare_use(m, &place.name, slot, &record),
            // Another command uses the spare, or the array cannot accept it now.
            Err(error) if error.kind == ControlErrorKind::State => {}
            Err(error) if fits && !is_of_the_drive(error.kind) => {}
            Err(error) => note_spare(m, &record, unusable(error)),
        }
        Ok(())
    })?;
    used
}

/// Opens spares that are not open, and notices spares that are missing.
pub(crate) fn tend_spares(control: &Control, pace: Pace) -> Result<(), ControlError> {
    for (record, is_open) in control.with(spares_to_look_at)? {
        control.act(pace, format!("spare {}", record.identity), move |control| {
            tend_spare(control, &record, is_open)
        })?;
    }
    Ok(())
}

fn tend_spare(control: &Control, record: &SpareRecord, is_open: bool) -> Result<(), ControlError> {
    let path = record.path.clone();
    let here = is_remote(&record.path)
        || bounded::look(&record.path, move || is_there(&path)).unwrap_or(is_open);
    if here && is_open {
        return Ok(());
    }
    let Some(reserved) = control.try_reserve(Vec::new())? else { return Ok(()) };
    let mut reserved = reserved.limit_to(GLANCE_LIMIT);
    let state = if !here {
        SpareState::Missing(format!("there is nothing at {}", record.path))
    } else {
        match reserved.open_now(&record.path) {
            Err(error) => SpareState::Missing(error.what),
            Ok(drive) => examine(record, drive),
        }
    };
    control.with(|m| note_spare(m, record, state))
}

/// The state of a spare after the drive at its path was opened.
fn examine(record: &SpareRecord, drive: Drive) -> SpareState {
    if drive.device.identity() != record.identity {
        return SpareState::Missing(format!("another drive is at {}", record.path));
    }
    match refuse_occupied(std::slice::from_ref(&drive)) {
        Ok(()) => SpareState::Ready(drive),
        Err(error) => unusable(&error),
    }
}

/// The spares whose paths must be inspected, and whether they are open.
fn spares_to_look_at(manager: &mut Manager) -> Vec<(SpareRecord, bool)> {
    if manager.stopping {
        return Vec::new();
    }
    // After a crash, a drive can be recorded as a spare and as a member. Such a drive serves as a member.
    let taken: Vec<SpareRecord> = manager
        .records
        .spares
        .iter()
        .filter(|s| manager.place_of(&s.identity).is_some())
        .cloned()
        .collect();
    for record in taken {
        if let Err(error) = forget_spare(manager, &record) {
            tracing::warn!(spare = %record.path, reason = %error, "spare not forgotten");
        }
    }
    let look = |s: &SpareRecord| match manager.spares.get(s) {
        Some(SpareState::Ready(_)) if is_remote(&s.path) => {
            manager.drives.remote_key(&s.path).is_none().then_some(false)
        }
        Some(SpareState::Ready(_)) => Some(true),
        Some(SpareState::Missing(_)) | None => Some(false),
        Some(SpareState::Occupied(_) | SpareState::Failed(_)) => None,
    };
    let spares = manager.records.spares.iter();
    spares.filter_map(|spare| Some((spare.clone(), look(spare)?))).collect()
}

fn note_spare(manager: &mut Manager, record: &SpareRecord, state: SpareState) {
    if manager.records.spares.iter().all(|s| s.identity != record.identity) {
        return;
    }
    let before = manager.spares.get(record).map(SpareState::word);
    let object = format!("drive/{}", record.path);
    match (before, &state) {
        (Some("missing" | "failed"), SpareState::Ready(_)) => {
            let what = format!("spare {} returned", record.path);
            manager.record(Note::new(EventKind::SpareReturned, object, what));
        }
        (
            Some("ready") | None,
            SpareState::Missing(why) | SpareState::Occupied(why) | SpareState::Failed(why),
        ) => {
            let what = format!("spare {} cannot be used", record.path);
            let note = Note::new(EventKind::SpareMissing, object, what).cause(why.clone());
            manager.record(note.next(spare_next(&record.path)));
        }
        (Some(_) | None, _) => {}
    }
    manager.spares.put(record, state);
    manager.close_unused_drives();
}

fn is_copied(manager: &Manager, array: &str, slot: usize) -> bool {
    let running = manager.running.iter().find(|r| r.array.name().to_string() == array);
    running.is_some_and(|r| r.replacement.as_ref().is_some_and(|next| next.slot.at() == slot))
}

/// The members that are out or should be replaced, of arrays that use spares automatically.
fn places_for_spares(manager: &mut Manager) -> Vec<(String, Vec<usize>)> {
    if manager.stopping || manager.records.spares.is_empty() {
        return Vec::new();
    }
    let mut places = Vec::new();
    for running in &manager.running {
        let slots = manager.slots_for_spares(running);
        if !slots.is_empty() {
            places.push((running.uuid(), slots));
        }
    }
    places
}

impl Manager {
    /// The slots of an array whose members a spare can replace automatically now.
    pub(crate) fn slots_for_spares(&self, running: &Running) -> Vec<usize> {
        let status = running.array.status();
        if status.lost || !self.records.settings(&running.uuid()).auto_replace {
            return Vec::new();
        }
        slots_for_spares(&status, |slot, member| self.wants_spare(&running.uuid(), slot, member))
    }

    /// True if a spare should replace a member that serves.
    fn wants_spare(&self, array: &str, slot: usize, member: &MemberStatus) -> bool {
        let Some(record) = self.records.record_of(array) else { return false };
        // A copy that a restart interrupted continues to the drive that it had.
        let is_copied = record.copies.iter().any(|copy| usize::from(copy.slot) == slot);
        let is_left_alone = record.left_alone.contains(&member.uuid.to_string());
        self.sick.wants_spare(member) && !is_copied && !is_left_alone
    }
}

/// Chooses the spare for a member that is out or that should be replaced. If no spare fits, this is reported once.
pub(crate) fn choose_spare(
    manager: &mut Manager,
    array: &str,
    slot: usize,
    wish: Wish,
) -> Option<(Place, SpareRecord)> {
    // The member may have been replaced, the array stopped, or its settings changed in the meantime.
    let (place, _) = manager.place(array, slot as u32).ok()?;
    if wish == Wish::Upkeep && !manager.records.settings(array).auto_replace {
        return None;
    }
    let running = manager.running_of(array)?;
    let status = running.array.status();
    let member = &status.members[slot];
    let need = if is_out(member) { Need::Out } else { Need::Serving };
    if need == Need::Serving && !manager.wants_spare(array, slot, member) {
        return None;
    }
    let candidates = candidates(manager, array, &status);
    let is_unknown = |candidate: &Candidate| candidate.objection == Some(Objection::Unknown);
    if wish == Wish::Upkeep && candidates.iter().any(is_unknown) {
        // The query of the spare ends within seconds.
        return None;
    }
    if let Some(best) = choose(need, &candidates) {
        return Some((place, manager.records.spares[best.at].clone()));
    }
    let is_first = match need {
        Need::Out => {
            let seen = manager.entries.get_mut(array).and_then(|entry| entry.seen.as_mut());
            seen.is_none_or(|seen| seen.tell_no_spare(slot))
        }
        Need::Serving => manager.sick.note_no_spare(member.uuid),
    };
    if is_first {
        let objections = candidates.iter().filter_map(|candidate| {
            let Some(Objection::Predicts(why)) = &candidate.objection else { return None };
            Some(format!("spare {}: {why}", manager.records.spares[candidate.at].path))
        });
        let cause = objections.collect::<Vec<_>>().join("; ");
        let name = place.name;
        let what = format!("no spare fits member {slot} of array {name}");
        let note = Note::of_array(EventKind::SpareNone, &name, what).member(slot);
        manager.record(note.cause(cause).next(replace(name, Some(slot as u32), "")));
    }
    None
}

/// The spares that fit the members of an array.
fn candidates(manager: &Manager, array: &str, status: &ArrayStatus) -> Vec<Candidate> {
    let candidate = |(at, spare): (usize, &SpareRecord)| {
        let pool = match spare.array.as_str() {
            "" => Pool::Shared,
            own if own == array => Pool::Own,
            _ => return None,
        };
        let drive = manager.spares.ready(spare)?;
        // After a crash, the drive of a copy can still be recorded as a spare.
        let is_free = manager.records.promised(&spare.identity, None).is_none();
        let reports = || health_source(manager, &spare.path).is_some();
        let objection = manager.sick.objection(&spare.identity, reports);
        (is_free && fits(status, drive).is_ok()).then_some(Candidate {
            at,
            pool,
            bytes: spare.bytes,
            objection,
        })
    };
    manager.records.spares.iter().enumerate().filter_map(candidate).collect()
}

fn reported_spare_use(manager: &mut Manager, array: &str, slot: usize, record: &SpareRecord) {
    let path = &record.path;
    let what = if is_copied(manager, array, slot) {
        format!("member {slot} of array {array} is being copied to spare {path}")
    } else {
        format!("spare {path} replaced member {slot} of array {array}")
    };
    let note = Note::of_array(EventKind::SpareUsed, &array, what);
    let add = say("add another: ").run(AddSpareRequest::default());
    manager.record(note.member(slot).next(add));
    if let Err(error) = forget_spare(manager, record) {
        tracing::warn!(spare = %path, reason = %error, "spare not forgotten");
    }
}
