//! Refusals of a start: the reason, and what the operator can do.

use strake_ondisk::{Bits, RecordedState, Refusal, Superblock};
use strake_raid::{Geometry, Regions};
use strake_units::{ByteSize, MemberIndex, MemberSet, Name, RegionIndex};

use crate::create::Drive;
use crate::error::ArrayError;
use crate::recorded::geometry_of;

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
    let here = present.iter().filter(in_sync).collect();
    let absent = MemberSet::first_n(superblock.members.len()) - here;
    match geometry_of(superblock) {
        Ok(geometry) if !geometry.tolerates(absent) => {
            format!("{waits}; {}", need(superblock, &geometry, absent))
        }
        // What is not known of the geometry is reported when it is started.
        Ok(_) | Err(_) => format!("{waits}; return it{}", without_it(name)),
    }
}

/// The second half of the advice of [`waiting`]. It does not hold while a drive is here whose label is refused: the
/// array is not started degraded then.
#[must_use]
pub fn without_it(name: &Name) -> String {
    format!(", or start without it: strake array import {name} --degraded")
}

/// Why the array of `superblock` cannot be started without the members in `absent`.
#[must_use]
pub fn too_few(superblock: &Superblock, geometry: &Geometry, absent: MemberSet) -> String {
    let count = superblock.members.len();
    format!(
        "array {} has lost too many members to be started: {} of {count} are in sync; {}",
        superblock.name,
        count - absent.len(),
        need(superblock, geometry, absent)
    )
}

/// How many members have to come back for the array to be started at all.
fn need(superblock: &Superblock, geometry: &Geometry, absent: MemberSet) -> String {
    // Only members that the newest label calls in sync are of any help.
    let helps = superblock.members.iter().enumerate();
    let helps = helps.filter(|(_, member)| member.state == RecordedState::InSync);
    let helps = helps.map(|(at, _)| at).collect::<MemberSet>() & absent;
    let name = &superblock.name;
    match geometry.needed(absent, helps) {
        Some(1) => format!(
            "it cannot start without one more of its members, degraded or not: return one, then: strake array \
             import {name} --degraded"
        ),
        Some(count) => format!(
            "it cannot start without {count} more of its members, degraded or not: return them, then: strake \
             array import {name}{}",
            if count < helps.len() { " --degraded" } else { "" }
        ),
        None => "even the members that were last in sync are too few; its data is lost unless other members return"
            .to_owned(),
    }
}

/// "member 1", or "members 1, 2".
fn members(slots: &[&MemberIndex]) -> String {
    let list: Vec<String> = slots.iter().map(ToString::to_string).collect();
    format!("member{} {}", if list.len() == 1 { "" } else { "s" }, list.join(", "))
}

/// Why the array called `name` is not started with `drives` as they are, and what to do.
pub(super) fn refused(name: &Name, reason: &Refusal, drives: &[Drive]) -> String {
    let path = |drive: usize| drives.get(drive).map_or("?", |d| d.path.as_str());
    let why = match reason {
        Refusal::Duplicate { drives: same, .. } => {
            let paths: Vec<&str> = same.iter().map(|drive| path(*drive)).collect();
            format!("one member is on {}; remove the copies and try again", paths.join(" and on "))
        }
        Refusal::Undecided(difference) => format!(
            "{} and {} have labels of one generation ({}), and only an absent member shows which of them took \
             effect; return that member",
            path(difference.newer),
            path(difference.older),
            difference.newer_chain.0
        ),
        Refusal::Fork(difference) => format!(
            "its members were started apart from each other: {} is at generation {}, {} at generation {} of another \
             history; keep the drives of one history and remove the others",
            path(difference.newer),
            difference.newer_chain.0,
            path(difference.older),
            difference.older_chain.0
        ),
    };
    format!("array {name} is not started: {why}")
}

/// A drive holds a member as it was at some time before.
pub(super) fn older_picture(
    superblock: &Superblock,
    member: MemberIndex,
    drive: Option<&Drive>,
) -> ArrayError {
    let (name, path) = (&superblock.name, drive.map_or("?", |drive| &drive.path));
    ArrayError::refused(format!(
        "{path} is an older copy of member {member} of array {name}: it lacks later writes, so it is not used; \
         return the original drive, or replace it: strake array replace {name} --member {member} --with DRIVE"
    ))
}

/// Blocks of absent members may be damaged in `regions`; `why` says what happened, and ends with which blocks.
pub(super) fn losses(
    superblock: &Superblock,
    within: (&Geometry, &Regions),
    regions: &Bits,
    why: &str,
) -> ArrayError {
    let (name, listed) = (&superblock.name, listed(within, regions));
    ArrayError::refused(format!(
        "array {name} {why} may be damaged in {listed}. Check them against a backup, then start it with: strake \
         array import {name} --degraded --accept-loss"
    ))
}

/// How many regions there are, and where the first ones are.
fn listed((geometry, regions): (&Geometry, &Regions), which: &Bits) -> String {
    let stripe_bytes = geometry.stripe_data_blocks() << geometry.block_size().shift();
    let ranges: Vec<String> = which
        .iter_ones()
        .take(8)
        .map(|region| {
            let stripes = regions.stripes(RegionIndex(region));
            format!(
                "{}+{}",
                stripes.start * stripe_bytes,
                ByteSize((stripes.end - stripes.start) * stripe_bytes)
            )
        })
        .collect();
    format!(
        "{} region(s) (byte offset+length: {}{})",
        which.iter_ones().count(),
        ranges.join(", "),
        if which.iter_ones().count() > 8 { ", ..." } else { "" }
    )
}
