//! Formats and sanitize operations of drives, which no array may use until the operation has succeeded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use strake_api::v1::{DriveMaintenance, ListDrivesRequest};
use strake_wording::{Text, say};

use crate::drives::maintenance::AdminSource;
use crate::error::ControlError;
use crate::limits::SANITIZE_EVERY;

/// An operation that erases a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Format,
    Sanitize,
}

impl Operation {
    /// Returns the name of the operation.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Sanitize => "sanitize",
        }
    }

    const fn done_to(self) -> &'static str {
        match self {
            Self::Format => "formatted",
            Self::Sanitize => "sanitized",
        }
    }
}

/// The stage of an operation. A finished operation is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is in progress, and so much is done, if the drive reports it.
    Running(Option<u32>),
    /// It failed, for this reason and with this remedy.
    Failed(String),
}

/// An operation of a drive.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) path: String,
    pub(crate) operation: Operation,
    pub(crate) stage: Stage,
    /// True once the drive has the command, so that its status is that of this operation.
    pub(crate) is_sent: bool,
    /// Reports the progress of a sanitize operation.
    pub(crate) source: Arc<dyn AdminSource>,
}

impl Work {
    fn message(&self) -> DriveMaintenance {
        let (state, percent, note) = match &self.stage {
            Stage::Running(percent) => ("running", *percent, ""),
            Stage::Failed(why) => ("failed", None, why.as_str()),
        };
        DriveMaintenance {
            operation: self.operation.word().to_owned(),
            state: state.to_owned(),
            percent,
            note: note.to_owned(),
        }
    }

    fn objection(&self) -> Text {
        let Self { path, operation, stage, .. } = self;
        match stage {
            Stage::Running(percent) => {
                let percent = percent.map_or_else(String::new, |p| format!(" ({p} % done)"));
                let what = format!("{path} is being {}{percent}; ", operation.done_to());
                say(what).run(ListDrivesRequest {}).say(" shows its progress")
            }
            Stage::Failed(why) => say(format!("the {} of {path} failed: {why}", operation.word())),
        }
    }
}

/// All operations, by the identity of the drive.
#[derive(Default)]
pub(crate) struct Maintenance {
    works: BTreeMap<String, Work>,
    /// True once the drives of the host were asked for operations of an earlier daemon.
    pub(crate) is_searched: bool,
    /// The time of the last read of their progress.
    pub(crate) asked: Option<Instant>,
}

impl Maintenance {
    /// Records an operation of the drive with this identity.
    pub(crate) fn put(&mut self, identity: &str, work: Work) {
        self.works.insert(identity.to_owned(), work);
    }

    /// Records that the drive has the command of an operation.
    pub(crate) fn sent(&mut self, identity: &str) {
        if let Some(work) = self.works.get_mut(identity) {
            work.is_sent = true;
        }
    }

    /// Sets the stage of an operation.
    pub(crate) fn set(&mut self, identity: &str, stage: Stage) {
        if let Some(work) = self.works.get_mut(identity) {
            work.stage = stage;
        }
    }

    /// Removes an operation that has finished.
    pub(crate) fn end(&mut self, identity: &str) {
        self.works.remove(identity);
    }

    /// True if the drive has an operation.
    pub(crate) fn has(&self, identity: &str) -> bool {
        self.works.contains_key(identity)
    }

    /// True if the device of the drive stays open, so that the drive reports its progress. After a format, the device
    /// has the earlier size of blocks.
    pub(crate) fn keeps_open(&self, identity: &str) -> bool {
        let work = self.works.get(identity);
        work.is_some_and(|work| work.operation == Operation::Sanitize)
    }

    /// True if the progress of operations is to be read: every few seconds while there is one.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let is_due = |asked: Instant| now.saturating_duration_since(asked) >= SANITIZE_EVERY;
        !self.is_searched || !self.sanitizing().is_empty() && self.asked.is_none_or(is_due)
    }

    /// Returns the sanitize operations in progress.
    pub(crate) fn sanitizing(&self) -> Vec<(String, Work)> {
        let is_it = |work: &Work| {
            work.operation == Operation::Sanitize
                && work.is_sent
                && matches!(work.stage, Stage::Running(_))
        };
        let works = self.works.iter().filter(|(_, work)| is_it(work));
        works.map(|(identity, work)| (identity.clone(), work.clone())).collect()
    }

    /// Refuses a drive with an operation that is in progress.
    pub(crate) fn refuse_running(&self, identity: &str) -> Result<(), ControlError> {
        match self.works.get(identity) {
            Some(work) if matches!(work.stage, Stage::Running(_)) => {
                Err(ControlError::state(work.objection()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses a drive with an operation that is in progress or has failed.
    pub(crate) fn refuse(&self, identity: &str) -> Result<(), ControlError> {
        let objection = self.works.get(identity).map(Work::objection);
        objection.map_or(Ok(()), |objection| Err(ControlError::refused(objection)))
    }

    /// Returns the operations as messages, by the identity of the drive.
    pub(crate) fn messages(&self) -> BTreeMap<String, DriveMaintenance> {
        self.works.iter().map(|(identity, work)| (identity.clone(), work.message())).collect()
    }
}
