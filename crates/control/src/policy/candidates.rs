//! Which of the labelled drives that were found an array can be started from.

use std::collections::BTreeMap;

use strake_engine::AssemblePolicy;
use strake_ondisk::{Found, MemberRecord, Policy, RecordedState, Superblock, Verdict};
use strake_units::{MemberSet, Uuid};
use strake_wording::{Text, say};

use crate::drives::label::{Labelled, geometry_of};
use crate::remedy::LOSSY;

/// Why drives of `here` that are whole are not used as the members that their labels name, in words for a person; by
/// their place in `here`.
pub(crate) fn passed_over(here: &[Labelled]) -> BTreeMap<usize, String> {
    let whole = here.iter().enumerate().filter(|(_, l)| l.is_usable());
    let found = whole.map(|(at, labelled)| Found {
        drive: at,
        device_bytes: labelled.drive.device.info().bytes(),
        label: labelled.label.clone(),
        // Not looked at here: an older picture of a member is noticed when the array is started.
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
            // Who is to be blamed is part of what is said about the array.
            Verdict::Waiting { .. } | Verdict::Refused { .. } => {}
        }
    }
    why
}

/// Everything that is to be said about drives of `here` that are not used.
pub(crate) fn objections(here: &[Labelled]) -> Vec<Text> {
    let damaged = here.iter().filter_map(Labelled::objection);
    damaged.chain(passed_over(here).into_values().map(say)).collect()
}

/// The drive among `here` that can be used as the member `uuid`.
pub(crate) fn used(here: &[Labelled], uuid: Uuid) -> Option<&Labelled> {
    let passed_over = passed_over(here);
    let usable = here.iter().enumerate();
    let usable = usable.filter(|(at, l)| l.is_usable() && !passed_over.contains_key(at));
    let mut usable = usable.map(|(_, labelled)| labelled);
    usable.find(|labelled| labelled.label.member == uuid)
}

/// Members that are not recorded as in sync, or whose drive is not among `here`.
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

/// The drives of `here` that an array may be started from: those that were written over count as not here. Where the
/// data cannot do without drives that lost labels at one end, and the loss is accepted, they are taken as they are.
pub(crate) fn usable(here: &[Labelled], policy: AssemblePolicy) -> Vec<&Labelled> {
    let whole: Vec<&Labelled> = here.iter().filter(|l| l.is_usable()).collect();
    if !policy.accept_loss || suffice(&whole) {
        return whole;
    }
    here.iter().filter(|l| l.written_over.is_none()).collect()
}

/// Whether the data cannot do without drives that lost labels at one end, but could with them.
pub(crate) fn needs_damaged(here: &[Labelled]) -> bool {
    !suffice(&usable(here, AssemblePolicy::default())) && suffice(&usable(here, LOSSY))
}

/// Whether these are enough of an array's members.
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

/// Whether these are enough of an array's members without waiting for more: each that should be there is here, or may
/// be one of `silent` drives that do not answer.
pub(crate) fn suffice_without(here: &[Labelled], silent: usize) -> bool {
    let whole: Vec<&Labelled> = here.iter().filter(|l| l.is_usable()).collect();
    let Some(newest) = whole.iter().map(|l| &l.label).max_by_key(|label| label.generation) else {
        return false;
    };
    let is_away =
        |m: &&MemberRecord| m.state == RecordedState::InSync && used(here, m.uuid).is_none();
    newest.members.iter().filter(is_away).count() <= silent && suffice(&whole)
}

/// Adds a drive unless it is there already under another path.
pub(crate) fn push_once(drives: &mut Vec<Labelled>, found: Labelled) {
    if drives.iter().all(|d| d.identity() != found.identity()) {
        drives.push(found);
    }
}
