//! Destroyed arrays that can no longer be undeleted, in full or at all, once these drives are used.

use std::collections::BTreeMap;

use strake_api::v1::UndeleteArrayRequest;
use strake_engine::{Drive, Superblock};
use strake_ondisk::RecordedState;
use strake_units::MemberSet;
use strake_wording::command;

use crate::drives::label::{geometry_of, look};
use crate::error::ControlError;

/// Returns for each destroyed array with members on `drives` how writes to the drives affect its undelete.
///
/// # Errors
/// If a drive cannot be read.
pub(crate) fn ended_by(drives: &[Drive]) -> Result<Vec<String>, ControlError> {
    let mut arrays: BTreeMap<_, (Superblock, Vec<u8>)> = BTreeMap::new();
    for drive in drives {
        for label in look(drive)?.labels.into_iter().filter(|label| label.destroyed) {
            let slot = label.slot.0;
            let known = arrays.entry(label.array).or_insert_with(|| (label.clone(), Vec::new()));
            known.1.push(slot);
            if known.0.generation < label.generation {
                known.0 = label;
            }
        }
    }
    Ok(arrays.into_values().map(|(label, taken)| tell(&label, &taken)).collect())
}

fn tell(label: &Superblock, taken: &[u8]) -> String {
    let out = label.members.iter().enumerate();
    let out = out.filter(|(_, m)| m.state != RecordedState::InSync).map(|(at, _)| at);
    let taken_slots = taken.iter().copied().map(usize::from);
    let absent: MemberSet = out.chain(taken_slots).collect();
    let enough = geometry_of(label).is_some_and(|geometry| geometry.tolerates(absent));
    let slots: Vec<String> = taken.iter().map(ToString::to_string).collect();
    let members = if slots.len() == 1 { "member" } else { "members" };
    let (members, name) = (format!("{members} {}", slots.join(", ")), &label.name);
    let array = format!("the destroyed array {name} ({})", label.array);
    let undelete = command(&UndeleteArrayRequest::default());
    let then = if enough {
        "can then restore the array only without these members, and only while enough other members are left"
    } else {
        "can no longer restore the array"
    };
    format!("{members} of {array} will be lost: {undelete} {then}")
}
