//! Members that are re-added without a command: their drives are found at a recorded path, or have appeared.

use std::collections::BTreeSet;
use std::time::Instant;

use strake_api::v1::{CleanDriveRequest, ReaddMemberRequest};
use strake_raid::MemberState;
use strake_units::{ByteSize, Uuid};
use strake_wording::{Text, replace};

use crate::actions::{Pace, Wish};
use crate::commands::readd::readd_now;
use crate::control::Control;
use crate::drives::PathKey;
use crate::drives::label::{Labelled, labelled};
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note, Severity};
use crate::limits::{GLANCE_LIMIT, RETURNS_MAX};
use crate::manager::Manager;
use crate::names::array_key;
use crate::policy::advice::other_half;
use crate::policy::members::is_out;
use crate::policy::returns::{Away, Verdict, verdict};
use crate::state::running::Place;
use crate::upkeep::check_readd::{Returned, check_return, key_at};
use crate::upkeep::silent::{awaited_at, note_silent, why_away};

/// A path at which the drive of a member that is out may be.
struct Candidate {
    array: String,
    path: String,
}

/// A member that is to be re-added without a command.
struct Welcome {
    returned: Returned,
    away: Away,
    /// The event to record after the member is re-added.
    note: Option<Note>,
}

/// Re-adds, without a command, the members whose drives returned, and reports the members that cannot be re-added.
pub(crate) fn readd_returned(control: &Control, pace: Pace) -> Result<(), ControlError> {
    for (array, candidates) in control.with(candidates_of_all)? {
        control.act(pace, format!("returned drives of {array}"), move |control| {
            readd_returned_of(control, candidates)
        })?;
    }
    Ok(())
}

fn readd_returned_of(control: &Control, candidates: Vec<Candidate>) -> Result<(), ControlError> {
    for candidate in candidates {
        // A device that appears in the meantime is kept for the next round.
        let appeared = control.with(|m| drop_appeared(m, &candidate))?;
        let Ok(key) = key_at(control, &candidate.path)? else { continue };
        let (news, awaited) = control.run(|m| {
            let awaited = awaited_at(m, &candidate.array, &candidate.path);
            Ok((is_news(m, &candidate, key), awaited.filter(|_| key.is_some())))
        })?;
        if !news && awaited.is_none() {
            continue;
        }
        let keys = vec![array_key(&candidate.array)];
        let Some(reserved) = control.try_reserve(keys)? else {
            control.with(|m| m.entries.of(&candidate.array).appeared.extend(appeared))?;
            continue;
        };
        let mut reserved = reserved.limit_to(GLANCE_LIMIT);
        // The next round tries again to open the drive.
        let found = match reserved
            .open_now(&candidate.path)
            .and_then(|drive| labelled(drive, GLANCE_LIMIT))
        {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(path = %candidate.path, reason = %error, "not looked at");
                look_later(control, awaited)?;
                continue;
            }
        };
        let welcome = control.run(|m| {
            looked_at(m, &candidate, key);
            stop_waiting(m, &candidate, awaited, found.as_ref());
            Ok(found.and_then(|found| welcome(m, &candidate, found)))
        })?;
        if let Some(welcome) = welcome {
            take_back(control, &candidate, welcome)?;
        }
    }
    Ok(())
}

fn look_later(control: &Control, awaited: Option<Uuid>) -> Result<(), ControlError> {
    let Some(member) = awaited else { return Ok(()) };
    control.run(|m| {
        m.returns.look_later(member);
        Ok(())
    })
}

fn take_back(
    control: &Control,
    candidate: &Candidate,
    welcome: Welcome,
) -> Result<(), ControlError> {
    let Welcome { returned, away, note } = welcome;
    let member = returned.found.label.member;
    let taken = readd_now(control, &returned, Wish::Upkeep);
    // The refusal may be temporary: the drive may have outstanding requests, or the array may be busy.
    if away == Away::Silent
        && taken.as_ref().is_err_and(|error| error.kind == ControlErrorKind::State)
    {
        return look_later(control, Some(member));
    }
    control.run(|m| {
        if away == Away::Silent {
            m.returns.count(member);
        }
        match &taken {
            Ok(()) => note.into_iter().for_each(|note| m.record(note)),
            Err(error)
                if error.kind == ControlErrorKind::State
                    && !m.records.settings(&candidate.array).auto_readd =>
            {
                tell_switched_off(m, &returned.place, &candidate.path);
            }
            Err(error) => {
                tell_not_taken(m, &returned.place, &candidate.path, error);
                m.returns.look_later(member);
            }
        }
        Ok(())
    })
}

/// The path of `candidate` if it is the path of a block device that appeared. The path no longer counts as new, because
/// the caller inspects it now.
fn drop_appeared(manager: &mut Manager, candidate: &Candidate) -> Option<String> {
    manager.entries.get_mut(&candidate.array)?.appeared.take(&candidate.path)
}

/// The recorded paths of arrays and the block devices that appeared, without the paths of serving members and without
/// devices that are held back.
fn candidates_of_all(manager: &mut Manager) -> Vec<(String, Vec<Candidate>)> {
    if manager.stopping {
        return Vec::new();
    }
    let mut candidates = Vec::new();
    for running in &manager.running {
        let array = running.uuid();
        let serving = running.serving_paths();
        let record = manager.records.record_of(&array);
        let remembered = record.into_iter().flat_map(|a| a.drives.iter());
        let entry = manager.entries.get(&array);
        let paths: BTreeSet<&String> = remembered.chain(&entry.appeared).collect();
        let held = &manager.late_takes.held_back;
        let paths = paths.into_iter().filter(|path| !held.contains_key(*path));
        let idle = paths.filter(|path| !serving.contains(*path));
        let idle = idle.map(|path| Candidate { array: array.clone(), path: path.clone() });
        candidates.push((array.clone(), idle.collect()));
    }
    candidates
}

/// Whether the drive at the path must be inspected: the drive appeared, or a member is missing and the drive was not
/// inspected yet.
fn is_news(manager: &mut Manager, candidate: &Candidate, key: Option<PathKey>) -> bool {
    let running = manager.running_of(&candidate.array);
    let missing = running
        .is_some_and(|r| r.array.status().members.iter().any(|m| m.state == MemberState::Missing));
    let entry = manager.entries.get_mut(&candidate.array);
    entry.is_some_and(|entry| entry.is_news(&candidate.path, key, missing))
}

fn looked_at(manager: &mut Manager, candidate: &Candidate, key: Option<PathKey>) {
    if let Some(entry) = manager.entries.get_mut(&candidate.array) {
        entry.looked_at(&candidate.path, key);
    }
}

/// Reports the member whose drive returned, and decides whether the member is re-added automatically.
fn welcome(manager: &mut Manager, candidate: &Candidate, found: Labelled) -> Option<Welcome> {
    let Labelled { label, drive, .. } = &found;
    if label.array.to_string() != candidate.array {
        return None;
    }
    let at = manager.position_of(&candidate.array)?;
    let status = manager.running[at].array.status();
    let (name, slot, path) = (status.name.to_string(), label.slot.at(), drive.path.clone());
    let member = status.members.get(slot)?;
    if member.uuid != label.member {
        let what = format!(
            "{path} was member {slot} of array {name} and returned, but another drive has replaced this drive"
        );
        let clean = CleanDriveRequest { path, ..Default::default() };
        let next =
            Text::from(clean).say(", which frees the drive; or keep the drive for reference");
        manager.record(
            Note::of_array(EventKind::MemberSuperseded, &name, what).member(slot).next(next),
        );
        return None;
    }
    if !is_out(member) {
        return None;
    }
    let auto = manager.records.settings(&candidate.array).auto_readd;
    let away = why_away(manager, &candidate.array, slot, member);
    let verdict = verdict(away, auto, manager.returns.tries(label.member), Instant::now());
    let again = if away == Away::Silent { "answers again" } else { "returned" };
    let what = format!("member {slot} of array {name} {again} at {path}");
    let note = Note::of_array(EventKind::MemberReturned, &name, what).member(slot);
    let member = label.member;
    let checked = check_return(manager, &candidate.array, Some(slot as u32), found);
    let readd = ReaddMemberRequest {
        name: name.clone(),
        member: Some(slot as u32),
        drive: path.clone(),
        dry_run: false,
    };
    if away == Away::Silent && (verdict != Verdict::TakeBack || checked.is_err()) {
        manager.returns.leave_to_hand(member);
        note_silent(manager);
    }
    match (checked, verdict) {
        (Ok(returned), Verdict::TakeBack) => {
            let copied = ByteSize(returned.stale_bytes);
            let note = note.cause(format!("it is re-added, and {copied} are copied to it"));
            // A member that may have outstanding requests is reported after it was re-added.
            if away == Away::Silent {
                return Some(Welcome { returned, away, note: Some(note) });
            }
            manager.record(note);
            Some(Welcome { returned, away, note: None })
        }
        (Ok(_), Verdict::ByHand) => {
            manager.record(note.next(readd));
            None
        }
        (Ok(_), Verdict::Unsteady) => {
            let why = format!(
                "it was re-added {RETURNS_MAX} times within an hour and became unresponsive each time, so only a \
                 command re-adds it now"
            );
            manager.record(note.severity(Severity::Warning).cause(why).next(readd));
            None
        }
        (Err(error), _) => {
            let note = note.cause(format!("it is not re-added: {error}"));
            let notes = manager.entries.get(&candidate.array).slot(slot);
            manager.record(if notes.other_half.is_some() {
                let (_, next) = other_half(&name, slot, &path);
                note.severity(Severity::Critical).next(next)
            } else {
                note
            });
            None
        }
    }
}

/// Stops waiting for the drive of the member `awaited` at the path of `candidate` if another drive is at this path.
fn stop_waiting(
    manager: &mut Manager,
    candidate: &Candidate,
    awaited: Option<Uuid>,
    found: Option<&Labelled>,
) {
    let Some(awaited) = awaited else { return };
    let is_it = |found: &Labelled| {
        found.label.array.to_string() == candidate.array && found.label.member == awaited
    };
    if !found.is_some_and(is_it) {
        manager.returns.leave_to_hand(awaited);
        note_silent(manager);
    }
}

/// Reports a member that was to be re-added when auto-readd was switched off.
fn tell_switched_off(manager: &mut Manager, place: &Place, path: &str) {
    let Place { name, member, .. } = place;
    let what = format!(
        "member {member} of array {name} is not re-added from {path}, because auto-readd was switched off"
    );
    let readd = ReaddMemberRequest {
        name: name.clone(),
        member: Some(member.0.into()),
        drive: path.to_owned(),
        dry_run: false,
    };
    let note = Note::of_array(EventKind::MemberReturned, &name, what);
    manager.record(note.member(member.at()).next(readd));
}

fn tell_not_taken(manager: &mut Manager, place: &Place, path: &str, error: &ControlError) {
    let Place { name, member, .. } = place;
    let what = format!("member {member} of array {name} could not be re-added from {path}");
    let note = Note::of_array(EventKind::MemberFailed, &name, what);
    let next = replace(name, Some(member.0.into()), "");
    manager.record(note.member(member.at()).cause(error.what.clone()).next(next));
}
