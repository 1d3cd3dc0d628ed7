//! What to tell a person about an array whose members are not all here.

use strake_ondisk::{RecordedState, Superblock};
use strake_raid::Geometry;
use strake_units::MemberIndex;

use super::geometry_of;

/// Why the array of `superblock` waits, and what to do: bring back the members that are `missing`, of which some were
/// last seen `rebuilding`, or start with those that are `present`, where they suffice.
#[must_use]
pub fn waiting(
    superblock: &Superblock,
    missing: &[MemberIndex],
    rebuilding: &[MemberIndex],
    present: &[MemberIndex],
) -> String {
    let name = &superblock.name;
    let (rebuilt, whole): (Vec<_>, Vec<_>) = missing.iter().partition(|m| rebuilding.contains(m));
    let whole = (!whole.is_empty()).then(|| format!("{}, last seen in sync", members(&whole)));
    let rebuilt =
        (!rebuilt.is_empty()).then(|| format!("{}, last seen being rebuilt", members(&rebuilt)));
    let waits: Vec<String> = whole.into_iter().chain(rebuilt).collect();
    let waits = format!("array {name} waits for {}", waits.join(", and for "));
    let in_sync =
        |slot: &&MemberIndex| superblock.members[slot.at()].state == RecordedState::InSync;
    let here = present.iter().filter(in_sync).fold(0, |mask, slot| mask | 1 << slot.at());
    let all = superblock.members.iter().enumerate().fold(0, |mask, (at, _)| mask | 1 << at);
    match geometry_of(superblock) {
        Ok(geometry) if !geometry.tolerates(all & !here) => {
            format!("{waits}; {}", need(superblock, &geometry, all & !here))
        }
        // What is not known of the geometry is told when it is started.
        Ok(_) | Err(_) => format!(
            "{waits}; bring it back, or start without it: strake array import {name} --degraded"
        ),
    }
}

/// Why the array of `superblock` cannot be started without the members in the mask `absent`.
#[must_use]
pub fn too_few(superblock: &Superblock, geometry: &Geometry, absent: u64) -> String {
    let count = superblock.members.len();
    format!(
        "array {} has lost too many members to be started: {} of {count} are in sync; {}",
        superblock.name,
        count - absent.count_ones() as usize,
        need(superblock, geometry, absent)
    )
}

/// How many members have to come back for the array to be started at all.
fn need(superblock: &Superblock, geometry: &Geometry, absent: u64) -> String {
    // Only members that the newest label calls in sync are of any help.
    let helps = superblock.members.iter().enumerate();
    let helps = helps.filter(|(_, member)| member.state == RecordedState::InSync);
    let helps = helps.fold(0, |mask, (at, _)| mask | 1 << at) & absent;
    let name = &superblock.name;
    match geometry.needed(absent, helps) {
        Some(1) => format!(
            "it cannot start without one more of its members, degraded or not: bring one back, then: strake array \
             import {name} --degraded"
        ),
        Some(count) => format!(
            "it cannot start without {count} more of its members, degraded or not: bring them back, then: strake \
             array import {name}{}",
            if count < helps.count_ones() { " --degraded" } else { "" }
        ),
        None => "the members that were in sync last do not suffice either; its data is lost unless others come back"
            .to_owned(),
    }
}

/// "member 1", or "members 1, 2".
fn members(slots: &[&MemberIndex]) -> String {
    let list: Vec<String> = slots.iter().map(ToString::to_string).collect();
    format!("member{} {}", if list.len() == 1 { "" } else { "s" }, list.join(", "))
}
