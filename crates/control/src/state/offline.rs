//! Recorded arrays that do not run: the reason, their state according to present labels, and the remedy.

use strake_api::v1 as api;
use strake_ondisk::{RecordedState, Superblock};
use strake_raid::Geometry;
use strake_wording::{Text, import, say};

use crate::drives::label::{Labelled, geometry_of};
use crate::error::{ControlError, OfflineReason};
use crate::policy::advice::without_return;
use crate::policy::candidates::{absent, can_start_degraded, passed_over, used};
use crate::record::store::ArrayRecord;
use crate::remedy::{DEGRADED, LOSSY, start};

/// A recorded array that does not run.
#[derive(Clone)]
pub(crate) struct Offline {
    pub(crate) why: String,
    /// The state in its labels, if one is present.
    shape: Option<api::Array>,
    pub(crate) next: Text,
    /// True if there is no problem: the array is started as soon as its drives have settled.
    pub(crate) is_waiting: bool,
}

impl Offline {
    /// Creates the record. `error` is the reason, and `here` are the drives found with its labels.
    pub(crate) fn new(record: &ArrayRecord, error: &ControlError, here: &[Labelled]) -> Self {
        let newest = here.iter().max_by_key(|l| l.label.generation).map(|l| &l.label);
        let name = &record.name;
        let shape = newest.map(|label| shape_of(label, here));
        let next = match (newest, &error.offline) {
            (None, _) => say("return its drives, then: ")
                .run(import(name))
                .say("; ")
                .then(without_return(name)),
            (Some(_), OfflineReason::Settling) => say("wait; the array starts automatically"),
            // Without the operator's acceptance, the array does not start with any drives.
            (Some(_), OfflineReason::Consent) => {
                say("return the missing members, or, to accept possible loss: ")
                    .run(start(name, LOSSY))
            }
            (Some(_), OfflineReason::RefusedLabel) => {
                say("use the version that wrote the refused label, or remove its drive, then: ")
                    .run(import(name))
            }
            (Some(label), OfflineReason::Missing(_) | OfflineReason::Other)
                if can_start_degraded(label, here) =>
            {
                say("return the missing members, or: ").run(start(name, DEGRADED))
            }
            (Some(_), OfflineReason::Missing(_) | OfflineReason::Other) => {
                say("return its drives, then: ")
                    .run(import(name))
                    .say("; ")
                    .then(without_return(name))
            }
        };
        let is_waiting = error.offline == OfflineReason::Settling;
        Self { why: error.what.clone(), shape, next, is_waiting }
    }

    /// Returns the record of an array that has just failed, with its last state.
    pub(crate) fn after_loss(record: &ArrayRecord, last: &api::Array) -> Self {
        let out = last.members.iter().filter(|member| !member.cause.is_empty());
        let causes: Vec<String> =
            out.map(|member| format!("member {}: {}", member.position, member.cause)).collect();
        let why = "more members are absent than its level tolerates";
        let why = if causes.is_empty() {
            why.to_owned()
        } else {
            format!("{why}: {}", causes.join(", "))
        };
        let shape = api::Array {
            level: last.level.clone(),
            group_size: last.group_size,
            size_bytes: last.size_bytes,
            strip_bytes: last.strip_bytes,
            block_bytes: last.block_bytes,
            stripe_data_bytes: last.stripe_data_bytes,
            generation: last.generation,
            members: last.members.clone(),
            ..api::Array::default()
        };
        Self {
            why,
            shape: Some(shape),
            next: say(
                "return its drives, and the array starts automatically; to start it at once: ",
            )
            .run(import(&record.name))
            .say("; ")
            .then(without_return(&record.name)),
            is_waiting: false,
        }
    }

    /// Returns the record of an array that is stopped for a growth.
    pub(crate) fn growing() -> Self {
        Self {
            why: "the array is being grown".to_owned(),
            shape: None,
            next: say("wait; the array restarts shortly"),
            is_waiting: false,
        }
    }

    /// Returns the array as a message. `exports` are the names of its exports.
    pub(crate) fn view(&self, record: &ArrayRecord, exports: Vec<String>) -> api::Array {
        api::Array {
            name: record.name.clone(),
            uuid: record.uuid.clone(),
            states: vec!["offline".to_owned()],
            reason: self.why.clone(),
            next_action: self.next.words.clone(),
            remedy: self.next.parts.clone(),
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

/// Returns the fields of a message that follow from the geometry.
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
