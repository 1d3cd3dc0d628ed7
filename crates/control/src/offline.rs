//! Recorded arrays that do not run: why, what they are like as far as their labels are here, and what to do.

use std::collections::BTreeMap;

use strake_api::v1 as api;
use strake_engine::{Drive, understood};
use strake_ondisk::{Copy, Found, Policy, RecordedState, Superblock, Verdict};
use strake_raid::Geometry;
use strake_units::Uuid;

use crate::error::ControlError;
use crate::import::WAITS;
use crate::search::NOT_DEGRADED;
use crate::store::ArrayRecord;

/// A drive with the label of an array.
#[derive(Clone)]
pub(crate) struct Labelled {
    pub(crate) drive: Drive,
    pub(crate) label: Superblock,
    /// What somebody has put on the drive since, by its usual name: its contents are not the member's any more, though
    /// its labels, which lie in two rings, outlived it.
    pub(crate) written_over: Option<&'static str>,
    /// Where its labels are gone, while those at the other end outlived that.
    pub(crate) overwritten: Option<Copy>,
}

impl Labelled {
    /// What tells the drive's medium from others.
    pub(crate) fn identity(&self) -> String {
        self.drive.device.identity()
    }

    /// Whether its contents can be those of the member its label names.
    pub(crate) fn is_usable(&self) -> bool {
        self.written_over.is_none() && self.overwritten.is_none()
    }

    /// What makes the drive useless as the member its label names; `None` when it is not.
    pub(crate) fn damage(&self) -> Option<String> {
        let path = &self.drive.path;
        if let Some(found) = self.written_over {
            return Some(format!("{path} holds {found} since, so that it is not used"));
        }
        let end = match self.overwritten? {
            Copy::Head => "at its start",
            Copy::Tail => "at its end",
        };
        Some(format!(
            "{path} was written over or cut short: its labels {end} are gone, and other content may be gone too, so \
             that it is not used"
        ))
    }

    /// Why the drive is not used as the member its label names, and what to do; `None` when it is.
    pub(crate) fn objection(&self) -> Option<String> {
        let damage = self.damage()?;
        let (path, name, slot) = (&self.drive.path, &self.label.name, self.label.slot);
        let again = format!("strake array replace {name} --member {slot} --with {path}");
        Some(if self.written_over.is_some() {
            format!(
                "{damage}, though it was member {slot} of array {name}; once the array runs, give the member another \
                 drive, or this one if its content is not needed: {again} --overwrite"
            )
        } else {
            format!(
                "{damage}, though it was member {slot} of array {name}; once the array runs, let it be rebuilt: \
                 {again}. Where the data cannot do without it: strake array import {name} --degraded --accept-loss"
            )
        })
    }
}

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
        why.insert(at, format!("{path} is here, but cannot be used as member {slot}: {reason}"));
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
pub(crate) fn objections(here: &[Labelled]) -> Vec<String> {
    let damaged = here.iter().filter_map(Labelled::objection);
    damaged.chain(passed_over(here).into_values()).collect()
}

/// A recorded array that does not run.
#[derive(Clone)]
pub(crate) struct Offline {
    pub(crate) why: String,
    /// What its labels say, when one is here.
    shape: Option<api::Array>,
    next_action: String,
}

impl Offline {
    /// `error` is why; `here` are the drives with its labels that were found.
    pub(crate) fn new(record: &ArrayRecord, error: &ControlError, here: &[Labelled]) -> Self {
        let newest = here.iter().max_by_key(|l| l.label.generation).map(|l| &l.label);
        let shape = newest.map(|label| shape_of(label, here));
        let next_action = match newest {
            Some(_) if error.what.starts_with(WAITS) => "wait; it starts by itself".to_owned(),
            // Without consent nothing starts, whatever drives are here.
            Some(_) if error.what.contains("--accept-loss") => format!(
                "bring the missing members back, or, to accept what may be lost: strake array import {} --degraded \
                 --accept-loss",
                record.name
            ),
            Some(_) if error.what.contains(NOT_DEGRADED) => format!(
                "use the version that wrote the refused label, or take its drive out, then: strake array import {}",
                record.name
            ),
            Some(label) if can_start_degraded(label, here) => {
                format!(
                    "bring the missing members back, or: strake array import {} --degraded",
                    record.name
                )
            }
            Some(_) | None => {
                format!("bring its drives back, then: strake array import {}", record.name)
            }
        };
        Self { why: error.what.clone(), shape, next_action }
    }

    /// Whether nothing is wrong: it is started as soon as its drives have settled.
    pub(crate) fn is_waiting(&self) -> bool {
        self.why.starts_with(WAITS)
    }

    /// An array that was lost just now.
    pub(crate) fn after_loss(record: &ArrayRecord) -> Self {
        Self {
            why: "it lost more members than its redundancy covers".to_owned(),
            shape: None,
            next_action: format!(
                "bring its drives back, and it starts by itself; at once: strake array import {}",
                record.name
            ),
        }
    }

    /// An array that is stopped for a moment, to be started with more room.
    pub(crate) fn growing() -> Self {
        Self {
            why: "it is being made larger".to_owned(),
            shape: None,
            next_action: "wait; it is started again in a moment".to_owned(),
        }
    }

    /// As a message; `exports` are the names it would be offered under.
    pub(crate) fn view(&self, record: &ArrayRecord, exports: Vec<String>) -> api::Array {
        api::Array {
            name: record.name.clone(),
            uuid: record.uuid.clone(),
            states: vec!["offline".to_owned()],
            reason: self.why.clone(),
            next_action: self.next_action.clone(),
            exports,
            settings: Some(record.settings.message()),
            ..self.shape.clone().unwrap_or_default()
        }
    }
}

/// The geometry that a label describes, when this version knows it.
pub(crate) fn geometry_of(label: &Superblock) -> Option<Geometry> {
    understood(label).ok()
}

/// The drive among `here` that can be used as the member `uuid`.
pub(crate) fn used(here: &[Labelled], uuid: Uuid) -> Option<&Labelled> {
    let passed_over = passed_over(here);
    let usable = here.iter().enumerate();
    let usable = usable.filter(|(at, l)| l.is_usable() && !passed_over.contains_key(at));
    let mut usable = usable.map(|(_, labelled)| labelled);
    usable.find(|labelled| labelled.label.member == uuid)
}

/// Members that are recorded as in sync and whose drive is among `here`, as a mask of the others.
fn absent(label: &Superblock, here: &[Labelled]) -> u64 {
    let is_here = |uuid| used(here, uuid).is_some();
    let out = label
        .members
        .iter()
        .enumerate()
        .filter(|(_, m)| m.state != RecordedState::InSync || !is_here(m.uuid));
    out.fold(0, |mask, (slot, _)| mask | 1 << slot)
}

fn can_start_degraded(label: &Superblock, here: &[Labelled]) -> bool {
    geometry_of(label).is_some_and(|geometry| geometry.tolerates(absent(label, here)))
}

fn shape_of(label: &Superblock, here: &[Labelled]) -> api::Array {
    let passed_over = passed_over(here);
    let members = label.members.iter().enumerate().map(|(at, member)| {
        let found = here.iter().position(|l| l.label.member == member.uuid);
        let drive = used(here, member.uuid).map(|l| &l.drive);
        let cause =
            found.and_then(|at| passed_over.get(&at).cloned().or_else(|| here[at].damage()));
        let state = match (member.state, drive) {
            (RecordedState::Faulty, _) => "faulty",
            (RecordedState::Missing, _) | (_, None) => "missing",
            (RecordedState::InSync, Some(_)) => "in_sync",
            (RecordedState::Rebuilding, Some(_)) => "rebuilding",
        };
        api::Member {
            position: at as u32,
            uuid: member.uuid.to_string(),
            state: state.to_owned(),
            path: drive.map(|d| d.path.clone()).unwrap_or_default(),
            cause: cause.unwrap_or_default(),
            ..api::Member::default()
        }
    });
    let members = members.collect();
    let Some(geometry) = geometry_of(label) else {
        return api::Array { members, generation: label.generation, ..api::Array::default() };
    };
    let shift = geometry.block_size().shift();
    api::Array {
        level: geometry.level().to_string(),
        group_size: if geometry.level().is_grouped() { u32::from(geometry.width()) } else { 0 },
        size_bytes: geometry.capacity_blocks() << shift,
        strip_bytes: geometry.strip_bytes(),
        block_bytes: geometry.block_size().bytes(),
        stripe_data_bytes: geometry.stripe_data_blocks() << shift,
        redundancy_left: geometry.redundancy(absent(label, here)).map_or(0, u32::from),
        generation: label.generation,
        members,
        ..api::Array::default()
    }
}
