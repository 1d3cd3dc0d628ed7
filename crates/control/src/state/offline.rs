//! Recorded arrays that do not run: why, what they are like as far as their labels are here, and what to do.

use strake_api::v1 as api;
use strake_ondisk::{RecordedState, Superblock};
use strake_raid::Geometry;

use crate::drives::label::{Labelled, geometry_of};
use crate::error::ControlError;
use crate::policy::candidates::{absent, can_start_degraded, passed_over, used};
use crate::record::store::ArrayRecord;

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
            Some(_) if error.what.starts_with(WAITS) => "wait; it starts automatically".to_owned(),
            // Without consent nothing starts, whatever drives are here.
            Some(_) if error.what.contains("--accept-loss") => format!(
                "return the missing members, or, to accept possible loss: strake array import {} --degraded \
                 --accept-loss",
                record.name
            ),
            Some(_) if error.what.contains(NOT_DEGRADED) => format!(
                "use the version that wrote the refused label, or remove its drive, then: strake array import {}",
                record.name
            ),
            Some(label) if can_start_degraded(label, here) => {
                format!(
                    "return the missing members, or: strake array import {} --degraded",
                    record.name
                )
            }
            Some(_) | None => {
                format!("return its drives, then: strake array import {}", record.name)
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
                "return its drives, and it starts automatically; to start it at once: strake array import {}",
                record.name
            ),
        }
    }

    /// An array that is stopped for a moment, to be started with more room.
    pub(crate) fn growing() -> Self {
        Self {
            why: "it is being grown".to_owned(),
            shape: None,
            next_action: "wait; it restarts shortly".to_owned(),
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
    let redundancy_left = geometry.redundancy(absent(label, here)).map_or(0, u32::from);
    let generation = label.generation;
    api::Array { redundancy_left, generation, members, ..geometry_message(&geometry) }
}

/// What a geometry says of its array.
pub(crate) fn geometry_message(geometry: &Geometry) -> api::Array {
    let shift = geometry.block_size().shift();
    api::Array {
        level: geometry.level().to_string(),
        group_size: if geometry.level().is_grouped() { u32::from(geometry.width()) } else { 0 },
        size_bytes: geometry.capacity_blocks() << shift,
        strip_bytes: geometry.strip_bytes(),
        block_bytes: geometry.block_size().bytes(),
        stripe_data_bytes: geometry.stripe_data_blocks() << shift,
        ..api::Array::default()
    }
}

/// What is said of an array that is not started yet because of what may be under way at its drives.
pub(crate) const WAITS: &str = "waiting until requests of the previous daemon have expired";

/// In all that is said about an array beside a label of it that is refused.
pub(crate) const NOT_DEGRADED: &str = "is not started degraded";
