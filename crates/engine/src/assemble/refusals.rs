//! Refusals of a start: the reason, and what the operator can do.

use strake_ondisk::{Bits, RecordedState, Refusal, Superblock};
use strake_raid::{Geometry, Regions};
use strake_units::{ByteSize, MemberIndex, MemberSet, Name, RegionIndex};

use super::AssemblePolicy;
use crate::drive::Drive;
use crate::error::{ArrayError, ArrayRemedy};
use crate::recorded::geometry_of;

/// Returns the reason why the array of `superblock` waits, with the remedy: return the members in `missing`, some of
/// which were last seen `rebuilding`, or start with the `present` members, if they suffice.
#[must_use]
pub fn waiting(
    superblock: &Superblock,
    missing: &[MemberIndex],
    rebuilding: &[MemberIndex],
    present: &[MemberIndex],
) -> ArrayError {
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
        Ok(geometry) if !geometry.tolerates(absent) => need(&waits, superblock, &geometry, absent),
        // An unsupported geometry is reported at the start.
        Ok(_) | Err(_) => ArrayError::refused(format!("{waits}; return it"))
            .with(ArrayRemedy::StartWithout(name.clone())),
    }
}

/// Returns the reason why the array of `superblock` cannot start without the members in `absent`.
#[must_use]
pub fn too_few(superblock: &Superblock, geometry: &Geometry, absent: MemberSet) -> ArrayError {
    let count = superblock.members.len();
    let why = format!(
        "array {} has lost too many members to be started: {} of {count} are in sync",
        superblock.name,
        count - absent.len(),
    );
    need(&why, superblock, geometry, absent)
}

/// Returns the reason `why` the array is not started, and the number of members that must return before it can start.
fn need(why: &str, superblock: &Superblock, geometry: &Geometry, absent: MemberSet) -> ArrayError {
    // Only members that are in sync according to the newest label count.
    let helps = superblock.members.iter().enumerate();
    let helps = helps.filter(|(_, member)| member.state == RecordedState::InSync);
    let helps = helps.map(|(at, _)| at).collect::<MemberSet>() & absent;
    let (more, them, allow_degraded) = match geometry.needed(absent, helps) {
        Some(1) => ("one".to_owned(), "one", true),
        Some(count) => (count.to_string(), "them", count < helps.len()),
        None => {
            return ArrayError::refused(format!(
                "{why}; even the members that were last in sync are too few; its data is lost unless other members \
                 return"
            ));
        }
    };
    let policy = AssemblePolicy { allow_degraded, accept_loss: false };
    ArrayError::refused(format!(
        "{why}; it cannot start without {more} more of its members, degraded or not: return {them}, then"
    ))
    .with(ArrayRemedy::Start(superblock.name.clone(), policy))
}

/// Returns a text such as "member 1" or "members 1, 2".
fn members(slots: &[&MemberIndex]) -> String {
    let list: Vec<String> = slots.iter().map(ToString::to_string).collect();
    format!("member{} {}", if list.len() == 1 { "" } else { "s" }, list.join(", "))
}

/// Returns the reason why the array `name` is not started with `drives`, and the remedy.
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

/// Refuses a drive that contains an older snapshot of a member.
pub(super) fn older_picture(
    superblock: &Superblock,
    member: MemberIndex,
    drive: Option<&Drive>,
) -> ArrayError {
    let (name, path) = (&superblock.name, drive.map_or("?", |drive| &drive.path));
    ArrayError::refused(format!(
        "{path} is an older copy of member {member} of array {name}: it lacks later writes, so it is not used; \
         return the original drive, or replace it"
    ))
    .with(ArrayRemedy::Replace(name.clone(), member))
}

/// Refuses a start because blocks of absent members may be damaged in `regions`. `why` describes the cause and ends
/// with the kind of blocks.
pub(super) fn losses(
    superblock: &Superblock,
    within: (&Geometry, &Regions),
    regions: &Bits,
    why: &str,
) -> ArrayError {
    let (name, listed) = (&superblock.name, listed(within, regions));
    ArrayError::refused(format!(
        "array {name} {why} may be damaged in {listed}. Check them against a backup, then start it with"
    ))
    .with(ArrayRemedy::Start(name.clone(), AssemblePolicy { allow_degraded: true, accept_loss: true }))
}

/// Returns the number of regions and the location of the first regions.
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
