//! Recorded arrays that do not run: why, what they are like as far as their labels are here, and what to do.

use strake_api::v1 as api;
use strake_engine::Drive;
use strake_ondisk::{RecordedState, Superblock};
use strake_raid::{Geometry, GeometrySpec, Level};
use strake_units::BlockSize;

use crate::error::ControlError;
use crate::store::ArrayRecord;

/// A drive with the label of an array.
#[derive(Clone)]
pub(crate) struct Labelled {
    pub(crate) drive: Drive,
    pub(crate) label: Superblock,
    /// What somebody has put on the drive since, by its usual name: its contents are not the member's any more, though
    /// its labels, which lie in two rings, outlived it.
    pub(crate) written_over: Option<&'static str>,
}

impl Labelled {
    /// What tells the drive's medium from others.
    pub(crate) fn identity(&self) -> String {
        self.drive.device.info().identity
    }

    /// What makes the drive useless as the member its label names; `None` when it is not.
    pub(crate) fn damage(&self) -> Option<String> {
        let found = self.written_over?;
        Some(format!("{} holds {found} since, so that it is not used", self.drive.path))
    }

    /// Why the drive is not used as the member its label names, and what to do; `None` when it is.
    pub(crate) fn objection(&self) -> Option<String> {
        let damage = self.damage()?;
        let (path, name, slot) = (&self.drive.path, &self.label.name, self.label.slot);
        Some(format!(
            "{damage}, though it was member {slot} of array {name}; once the array runs, give the member another \
             drive, or this one if nobody needs what it holds now: strake array replace {name} --member {slot} --with \
             {path} --overwrite"
        ))
    }
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
            // Without consent nothing starts, whatever drives are here.
            Some(_) if error.what.contains("--accept-loss") => format!(
                "bring the missing members back, or, to accept what may be lost: strake array import {} --degraded \
                 --accept-loss",
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
    let record = &label.geometry;
    let level = Level::from_code(record.level, record.parity)?;
    Geometry::new(&GeometrySpec {
        level,
        members: usize::from(record.members),
        group_size: level.is_grouped().then_some(record.group_width),
        strip_bytes: record.strip_bytes,
        block_size: BlockSize::from_bytes(record.block_bytes)?,
        member_blocks: record.member_blocks,
    })
    .ok()
}

/// Members that are recorded as in sync and whose drive is among `here`, as a mask of the others.
fn absent(label: &Superblock, here: &[Labelled]) -> u64 {
    let is_here = |uuid| here.iter().any(|l| l.label.member == uuid && l.written_over.is_none());
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
    let members = label.members.iter().enumerate().map(|(at, member)| {
        let found = here.iter().find(|l| l.label.member == member.uuid);
        let drive = found.filter(|l| l.written_over.is_none()).map(|l| &l.drive);
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
            cause: found.and_then(Labelled::damage).unwrap_or_default(),
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
