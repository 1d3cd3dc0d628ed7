//! Formats, sanitize operations and firmware updates of drives. No array may use a drive until its format or sanitize
//! operation has succeeded, and no command may use the drive in another way during an update.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use strake_api::v1::{DriveMaintenance, ListDrivesRequest};
use strake_wording::{Text, say};

use crate::drives::maintenance::AdminSource;
use crate::error::ControlError;
use crate::limits::{SANITIZE_EVERY, SANITIZE_SILENT_READS};

/// An operation of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Format,
    Sanitize,
    Firmware,
}

impl Operation {
    /// Returns the name of the operation.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Sanitize => "sanitize",
            Self::Firmware => "firmware",
        }
    }

    /// Returns the operation as the subject of a sentence about the drive at `path`.
    pub(crate) fn of(self, path: &str) -> String {
        match self {
            Self::Format => format!("the format of {path}"),
            Self::Sanitize => format!("the sanitize operation of {path}"),
            Self::Firmware => format!("the firmware update of {path}"),
        }
    }

    const fn done_to(self) -> &'static str {
        match self {
            Self::Format => "formatted",
            Self::Sanitize => "sanitized",
            Self::Firmware => "updated with new firmware",
        }
    }
}

/// The stage of an operation. A finished operation is removed.
///
/// ```text
/// Running --> finished: removed
/// Running --> Failed
/// Running --> Unknown: the drive of a sanitize operation no longer answers --> Running, Failed, or finished: removed
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is in progress, and so much is done, if the drive reports it.
    Running(Option<u32>),
    /// It failed, for this reason and with this remedy.
    Failed(String),
    /// Its state is unknown, for this reason and with this remedy. It is followed further.
    Unknown(String),
}

impl Stage {
    const fn is_running(&self) -> bool {
        match self {
            Self::Running(_) => true,
            Self::Failed(_) | Self::Unknown(_) => false,
        }
    }
}

/// An operation of a drive.
#[derive(Clone)]
pub(crate) struct Work {
    /// The number of the operation. [`Maintenance::put`] sets it.
    pub(crate) number: u64,
    pub(crate) path: String,
    pub(crate) operation: Operation,
    pub(crate) stage: Stage,
    /// True once the drive has the command, so that its status is that of this operation.
    pub(crate) is_sent: bool,
    /// Reports the progress of a sanitize operation.
    pub(crate) source: Arc<dyn AdminSource>,
    /// The serial number of the controller. The status of another controller does not count.
    pub(crate) serial: String,
    /// The number of reads of the progress without an answer, since the last answer.
    pub(crate) silent_reads: u32,
}

impl Work {
    fn message(&self) -> DriveMaintenance {
        let (state, percent, note) = match &self.stage {
            Stage::Running(percent) => ("running", *percent, ""),
            Stage::Failed(why) | Stage::Unknown(why) => ("failed", None, why.as_str()),
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
            Stage::Failed(why) => say(format!("{} failed: {why}", operation.of(path))),
            Stage::Unknown(why) => {
                say(format!("the state of {} is unknown: {why}", operation.of(path)))
            }
        }
    }
}

/// All operations, by the identity of the drive.
#[derive(Default)]
pub(crate) struct Maintenance {
    works: BTreeMap<String, Work>,
    /// The number of operations so far.
    count: u64,
    /// True once the drives of the host were asked for operations of an earlier daemon.
    pub(crate) is_searched: bool,
    /// The time of the last read of their progress.
    pub(crate) asked: Option<Instant>,
}

impl Maintenance {
    /// Records an operation of the drive with this identity, and returns the operation before it.
    pub(crate) fn put(&mut self, identity: &str, mut work: Work) -> Option<Work> {
        self.count += 1;
        work.number = self.count;
        self.works.insert(identity.to_owned(), work)
    }

    /// True if the operation with this number is still that of the drive. An answer of the drive that was requested for
    /// an earlier operation does not count.
    pub(crate) fn is_present(&self, identity: &str, number: u64) -> bool {
        self.works.get(identity).is_some_and(|work| work.number == number && work.is_sent)
    }

    /// Records the operation `before` again, after an operation that changed nothing.
    pub(crate) fn restore(&mut self, identity: &str, before: Option<Work>) {
        match before {
            Some(work) => _ = self.works.insert(identity.to_owned(), work),
            None => _ = self.works.remove(identity),
        }
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
            work.silent_reads = 0;
        }
    }

    /// Counts a read of the progress without an answer. Returns whether the state becomes unknown now, for `why`.
    pub(crate) fn silent(&mut self, identity: &str, why: &str) -> bool {
        let Some(work) = self.works.get_mut(identity) else { return false };
        work.silent_reads = work.silent_reads.saturating_add(1);
        let is_new = work.silent_reads >= SANITIZE_SILENT_READS && work.stage.is_running();
        if is_new {
            work.stage = Stage::Unknown(why.to_owned());
        }
        is_new
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
    /// has the earlier size of blocks. The close of a taken drive resets its controller, which must not happen during
    /// an update.
    pub(crate) fn keeps_open(&self, identity: &str) -> bool {
        self.works.get(identity).is_some_and(|work| match work.operation {
            Operation::Sanitize | Operation::Firmware => true,
            Operation::Format => false,
        })
    }

    /// True if the progress of operations is to be read: every few seconds while there is one.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let is_due = |asked: Instant| now.saturating_duration_since(asked) >= SANITIZE_EVERY;
        !self.is_searched || !self.sanitizing().is_empty() && self.asked.is_none_or(is_due)
    }

    /// Returns the sanitize operations whose progress is read: those in progress, and those with an unknown state.
    pub(crate) fn sanitizing(&self) -> Vec<(String, Work)> {
        let is_it = |work: &Work| {
            work.operation == Operation::Sanitize
                && work.is_sent
                && matches!(work.stage, Stage::Running(_) | Stage::Unknown(_))
        };
        let works = self.works.iter().filter(|(_, work)| is_it(work));
        works.map(|(identity, work)| (identity.clone(), work.clone())).collect()
    }

    /// Refuses a drive with an operation that is in progress.
    pub(crate) fn refuse_running(&self, identity: &str) -> Result<(), ControlError> {
        match self.works.get(identity) {
            Some(work) if work.stage.is_running() => Err(ControlError::state(work.objection())),
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses a change of the driver, which resets the controller. A sanitize operation continues after a reset; a
    /// format and an update do not.
    pub(crate) fn refuse_reset(&self, identity: &str) -> Result<(), ControlError> {
        match self.works.get(identity).map(|work| work.operation) {
            Some(Operation::Format | Operation::Firmware) => self.refuse_running(identity),
            Some(Operation::Sanitize) | None => Ok(()),
        }
    }

    /// Refuses a drive with an operation that is in progress or has failed. An update ends soon, so that a later
    /// attempt may succeed.
    pub(crate) fn refuse(&self, identity: &str) -> Result<(), ControlError> {
        match self.works.get(identity) {
            None => Ok(()),
            Some(work) if work.operation == Operation::Firmware => {
                Err(ControlError::state(work.objection()))
            }
            Some(work) => Err(ControlError::refused(work.objection())),
        }
    }

    /// Returns the operations as messages.
    pub(crate) fn messages(&self) -> Vec<Listed> {
        let list = |(identity, work): (&String, &Work)| Listed {
            identity: identity.clone(),
            path: work.path.clone(),
            serial: work.serial.clone(),
            message: work.message(),
        };
        self.works.iter().map(list).collect()
    }
}

/// An operation in a list of drives.
pub(crate) struct Listed {
    /// The identity of the drive.
    pub(crate) identity: String,
    /// The path of the drive at the start of the operation.
    pub(crate) path: String,
    /// The serial number of its controller.
    pub(crate) serial: String,
    pub(crate) message: DriveMaintenance,
}
