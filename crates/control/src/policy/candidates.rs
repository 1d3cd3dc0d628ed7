//! Selection of the labelled drives from which an array can be started.

use std::collections::BTreeMap;

use strake_engine::AssemblePolicy;
use strake_ondisk::{Found, MemberRecord, Policy, RecordedState, Superblock, Verdict};
use strake_units::{MemberSet, Uuid};
use strake_wording::{Text, say};

use crate::drives::label::{Labelled, geometry_of};
use crate::remedy::LOSSY;

/// Returns the reasons why undamaged drives in `here` are not used as the members in their labels, by index in `here`.
pub(crate) fn passed_over(here: &[Labelled]) -> BTreeMap<usize, String> {
    let whole = here.iter().enumerate().filter(|(_, l)| l.is_usable());
    let found = whole.map(|(at, labelled)| Found {
        drive: at,
        device_bytes: labelled.drive.device.info().bytes(),
        label: labelled.label.clone(),
        // The start of the array detects an older snapshot of a member.
        confirmed: false,
        before: None,
    });
    let mut why = BTreeMap::new();
    let mut note = |at: usize, reason: &dyn std::fmt::Display| {
        let Labelled { drive, label, .. } = &here[at];
        let (path, slot) = (&drive.path, label.slot);
        why.insert(at, format!("{path} is present, but cannot be used as member {slot}: {reason}"));
    };
    for verdict in strake_ondisk::assemble(found.collect(), Policy { allow_degraded: true }) {
        match verdict {
            Verdict::Ignored { drive, reason } => note(drive, &reason),
            Verdict::Assembled(array) => {
                let stale = array.members.iter().filter_map(|member| member.stale);
                stale.for_each(|stale| note(stale.drive, &stale.reason));
            }
            // The message about the array contains the reason.
            Verdict::Waiting { .. } | Verdict::Refused { .. } => {}
        }
    }
    why
}

/// Returns all messages about unused drives in `here`.
pub(crate) fn objections(here: &[Labelled]) -> Vec<Text> {
    let damaged = here.iter().filter_map(Labelled::objection);
    damaged.chain(passed_over(here).into_values().map(say)).collect()
}

/// Returns the drive in `here` that can be used as the member `uuid`.
pub(crate) fn used(here: &[Labelled], uuid: Uuid) -> Option<&Labelled> {
    let passed_over = passed_over(here);
    let usable = here.iter().enumerate();
    let usable = usable.filter(|(at, l)| l.is_usable() && !passed_over.contains_key(at));
    let mut usable = usable.map(|(_, labelled)| labelled);
    usable.find(|labelled| labelled.label.member == uuid)
}

/// Returns members that are not recorded as in sync, or whose drive is not in `here`.
pub(crate) fn absent(label: &Superblock, here: &[Labelled]) -> MemberSet {
    let is_here = |uuid| used(here, uuid).is_some();
    let out = label
        .members
        .iter()
        .enumerate()
        .filter(|(_, m)| m.state != RecordedState::InSync || !is_here(m.uuid));
    out.map(|(slot, _)| slot).collect()
}

pub(crate) fn can_start_degraded(label: &Superblock, here: &[Labelled]) -> bool {
    geometry_of(label).is_some_and(|geometry| geometry.tolerates(absent(label, here)))
}

/// Returns the drives in `here` from which an array may be started. Overwritten drives count as missing. If the data
/// require drives that lost labels at one end, and the loss is accepted, these drives are used.
pub(crate) fn usable(here: &[Labelled], policy: AssemblePolicy) -> Vec<&Labelled> {
    let whole: Vec<&Labelled> = here.iter().filter(|l| l.is_usable()).collect();
    if !policy.accept_loss || suffice(&whole) {
        return whole;
    }
    here.iter().filter(|l| l.written_over.is_none()).collect()
}

/// True if the data require drives that lost labels at one end, and suffice with them.
pub(crate) fn needs_damaged(here: &[Labelled]) -> bool {
    !suffice(&usable(here, AssemblePolicy::default())) && suffice(&usable(here, LOSSY))
}

/// True if these members suffice for the array.
pub(crate) fn suffice(drives: &[&Labelled]) -> bool {
    let Some(newest) = drives.iter().map(|l| &l.label).max_by_key(|label| label.generation) else {
        return false;
    };
    let here = |uuid| drives.iter().any(|l| l.label.member == uuid);
    let rows = newest.members.iter().enumerate();
    let absent = rows.filter(|(_, m)| m.state != RecordedState::InSync || !here(m.uuid));
    let absent: MemberSet = absent.map(|(slot, _)| slot).collect();
    geometry_of(newest).is_some_and(|geometry| geometry.tolerates(absent))
}

/// True if the array need not wait for further members: each expected member is present, or may be one of `silent`
/// unresponsive drives.
pub(crate) fn suffice_without(here: &[Labelled], silent: usize) -> bool {
    let whole: Vec<&Labelled> = here.iter().filter(|l| l.is_usable()).collect();
    let Some(newest) = whole.iter().map(|l| &l.label).max_by_key(|label| label.generation) else {
        return false;
    };
    let is_away =
        |m: &&MemberRecord| m.state == RecordedState::InSync && used(here, m.uuid).is_none();
    newest.members.iter().filter(is_away).count() <= silent && suffice(&whole)
}

/// Adds a drive, unless the list already contains it under another path.
pub(crate) fn push_once(drives: &mut Vec<Labelled>, found: Labelled) {
    if drives.iter().all(|d| d.identity() != found.identity()) {
        drives.push(found);
    }
}
