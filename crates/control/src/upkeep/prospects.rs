//! Members that are out and whose drives are present. A check determines in advance whether they can be re-added, so
//! that no advice names a command that would be refused.

use std::collections::BTreeSet;

use strake_units::MemberIndex;

use crate::actions::Pace;
use crate::bounded;
use crate::control::Control;
use crate::drives::address::outlasts;
use crate::drives::label::{Labelled, labelled};
use crate::error::ControlError;
use crate::limits::GLANCE_LIMIT;
use crate::manager::Manager;
use crate::names::array_key;
use crate::policy::members::is_out;
use crate::state::prospect::{Prospect, Sight};
use crate::upkeep::check_readd::{check_return, key_at};

/// A path at which the drive of a member that is out may be.
struct Place {
    array: String,
    path: String,
    generation: u64,
}

/// Inspects the drives of members that are out, if the drive or its array changed since the last inspection.
pub(crate) fn look_at_prospects(control: &Control, pace: Pace) -> Result<(), ControlError> {
    for (array, places) in control.with(places_of_absent)? {
        control.act(pace, format!("prospects of {array}"), move |control| {
            look_at_prospects_of(control, places)
        })?;
    }
    Ok(())
}

fn look_at_prospects_of(control: &Control, places: Vec<Place>) -> Result<(), ControlError> {
    for place in places {
        let Ok(key) = key_at(control, &place.path)? else { continue };
        let Some(key) = key else {
            control.with(|m| forget_prospect(m, &place))?;
            continue;
        };
        let (path, generation) = (place.path.clone(), place.generation);
        let sight = bounded::look(&place.path, move || Sight::of(&path, key, generation));
        let Ok(sight) = sight else { continue };
        if control.with(|m| is_known_sight(m, &place, sight))? {
            continue;
        }
        // The array is reserved during the inspection, because a command that re-adds one of its members must not find
        // the drive in use by this inspection.
        let keys = vec![array_key(&place.array)];
        let Some(reserved) = control.try_reserve(keys)? else { continue };
        let mut reserved = reserved.limit_to(GLANCE_LIMIT);
        // A drive that a command uses cannot be inspected; the next round tries again.
        let Ok(found) =
            reserved.open_now(&place.path).and_then(|drive| labelled(drive, GLANCE_LIMIT))
        else {
            continue;
        };
        control.with(|m| {
            if let Some(entry) = m.entries.get_mut(&place.array) {
                entry.put_sight(&place.path, sight);
            }
            match found.filter(|found| found.label.array.to_string() == place.array) {
                Some(found) => note_prospect(m, &found),
                None => forget_prospect(m, &place),
            }
        })?;
    }
    Ok(())
}

fn places_of_absent(manager: &mut Manager) -> Vec<(String, Vec<Place>)> {
    if manager.stopping {
        return Vec::new();
    }
    let mut places = Vec::new();
    for running in &manager.running {
        let (array, status) = (running.uuid(), running.array.status());
        if status.lost || !status.members.iter().any(is_out) {
            continue;
        }
        let serving = running.serving_paths();
        let record = manager.records.record_of(&array);
        let remembered = record.into_iter().flat_map(|a| a.drives.iter().cloned());
        let open = running.drives.iter().flatten().map(|drive| drive.path.clone());
        let last = status.members.iter().map(|member| member.path.clone());
        let known = manager.entries.get(&array).prospect_paths().cloned();
        let paths: BTreeSet<String> = remembered.chain(open).chain(last).chain(known).collect();
        let paths = paths.into_iter().filter(|p| outlasts(p) && !serving.contains(p));
        let generation = status.generation;
        let here = paths.map(|path| Place { array: array.clone(), path, generation });
        let here = here.collect();
        places.push((array, here));
    }
    for (uuid, entry) in manager.entries.iter_mut() {
        let here = places.iter().filter(|(array, _)| array == uuid).flat_map(|(_, here)| here);
        entry.keep_sights(|path| here.clone().any(|place: &Place| place.path == path));
    }
    places
}

fn is_known_sight(manager: &Manager, place: &Place, sight: Sight) -> bool {
    manager.entries.get(&place.array).is_known_sight(&place.path, sight)
}

fn forget_prospect(manager: &mut Manager, place: &Place) {
    if let Some(entry) = manager.entries.get_mut(&place.array) {
        entry.forget_prospect(&place.path);
    }
}

/// Checks whether the drive of a member that is out can be re-added.
pub(crate) fn note_prospect(manager: &mut Manager, found: &Labelled) {
    let array = found.label.array.to_string();
    if manager.running_of(&array).and_then(|r| r.absent_as(found)).is_some() {
        // The check keeps its result.
        let _ = check_return(manager, &array, Some(u32::from(found.label.slot.0)), found.clone());
    }
}

/// The result of the check of the drive of a member, if the member is out and its drive is present.
fn prospect_at<'a>(manager: &'a Manager, array: &str, member: MemberIndex) -> Option<&'a Prospect> {
    let running = manager.running_of(array)?;
    let status = running.array.status();
    let now = status.members.get(member.at()).filter(|now| is_out(now) && !status.lost)?;
    let prospect = manager.entries.get(array).slot(member.at()).prospect.as_ref()?;
    (prospect.member == now.uuid).then_some(prospect)
}

/// The path of the drive of a member that is out, and the reason why it cannot be re-added; `None` if it can be
/// re-added.
pub(crate) fn refused_prospect<'a>(
    manager: &'a Manager,
    array: &str,
    member: MemberIndex,
) -> Option<(&'a str, &'a str)> {
    let prospect = prospect_at(manager, array, member)?;
    Some((&prospect.path, prospect.refusal.as_deref()?))
}

/// Whether a member that is out can be re-added: its drive is present, and the last inspection found no objection.
pub(crate) fn has_returned(manager: &Manager, array: &str, member: MemberIndex) -> bool {
    let notes = manager.entries.get(array).slot(member.at());
    notes.objection.is_none()
        && notes.other_half.is_none()
        && prospect_at(manager, array, member).is_some_and(|prospect| prospect.refusal.is_none())
}
