//! An operation of a drive from its record to its end.

use std::mem;
use std::sync::Arc;

use crate::commands::maintain::Subject;
use crate::control::Control;
use crate::drives::maintenance::Maintained;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::state::maintenance::{Operation, Stage, Work};

/// What is known about the command of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// The drive does not have it.
    Unsent,
    /// The drive may have it.
    Sent,
    /// Its end is recorded, or upkeep follows it.
    Over,
}

/// An operation that is recorded, so that no array uses the drive. If this value is dropped before an end was recorded,
/// because its job was not started or panicked, the drop records the end.
pub(crate) struct Begun {
    control: Control,
    operation: Operation,
    path: String,
    /// The identities of the namespaces, and their operations before this one.
    before: Vec<(String, Option<Work>)>,
    progress: Progress,
}

impl Begun {
    /// Records an operation of the namespaces with `identities`, with the event `what`. `check` may refuse it under the
    /// same lock.
    ///
    /// # Errors
    /// The error of `check`, or an earlier command panicked.
    pub(crate) fn record(
        control: &Control,
        operation: Operation,
        (subject, maintained): (&Subject, &Maintained),
        identities: Vec<String>,
        what: String,
        check: impl FnOnce(&Manager) -> Result<(), ControlError>,
    ) -> Result<Self, ControlError> {
        let path = subject.path.clone();
        let before = control.run(|m| {
            check(m)?;
            let put = |identity: String| {
                let work = Work {
                    path: path.clone(),
                    operation,
                    stage: Stage::Running(None),
                    is_sent: false,
                    source: Arc::clone(&subject.source),
                    serial: maintained.facts.serial.clone(),
                    silent_reads: 0,
                    number: 0,
                };
                let before = m.maintenance.put(&identity, work);
                (identity, before)
            };
            let before = identities.into_iter().map(put).collect();
            let object = format!("drive/{path}");
            m.record(Note::new(EventKind::DriveMaintenanceStarted, object, what));
            Ok(before)
        })?;
        let progress = Progress::Unsent;
        Ok(Self { control: control.clone(), operation, path, before, progress })
    }

    /// Notes that the drive may have the command from now on.
    pub(crate) fn sent(&mut self) {
        self.progress = Progress::Sent;
    }

    /// Leaves the operation to upkeep, which follows the status of the drive until the end.
    pub(crate) fn follow(mut self) {
        self.end(|manager, _, identity, _| manager.maintenance.sent(identity));
    }

    /// Records that a format or sanitize operation has succeeded.
    pub(crate) fn finished(mut self) {
        let note = self.note(EventKind::DriveMaintenanceFinished, "finished");
        self.end(|manager, _, identity, _| manager.maintenance.end(identity));
        self.record_event(note);
    }

    /// Records that the drive is as before: it executed nothing, or its firmware was updated, with the cause `cause`.
    pub(crate) fn restored(mut self, kind: EventKind, what: &str, cause: &str) {
        self.restore(kind, what, cause);
    }

    /// Records a failure with the reason and remedy `why`: no array may use the drive.
    pub(crate) fn failed(mut self, why: &str) {
        self.fail(why);
    }

    fn restore(&mut self, kind: EventKind, what: &str, cause: &str) {
        let note = self.note(kind, what).cause(cause);
        self.end(|manager, _, identity, before| manager.maintenance.restore(identity, before));
        self.record_event(note);
    }

    fn fail(&mut self, why: &str) {
        let note = self.note(EventKind::DriveMaintenanceFailed, "failed").cause(why);
        self.end(|manager, operation, identity, before| match operation {
            Operation::Format | Operation::Sanitize => {
                manager.maintenance.set(identity, Stage::Failed(why.to_owned()));
            }
            // The namespaces are as before.
            Operation::Firmware => manager.maintenance.restore(identity, before),
        });
        self.record_event(note);
    }

    fn note(&self, kind: EventKind, what: &str) -> Note {
        let what = format!("{} {what}", self.operation.of(&self.path));
        Note::new(kind, format!("drive/{}", self.path), what)
    }

    /// Records the end for each namespace. A control plane that panicked records nothing.
    fn end(&mut self, end: impl Fn(&mut Manager, Operation, &str, Option<Work>)) {
        self.progress = Progress::Over;
        let (before, operation) = (mem::take(&mut self.before), self.operation);
        let _ = self.control.with(|m| {
            for (identity, before) in before {
                end(m, operation, &identity, before);
            }
        });
    }

    fn record_event(&self, note: Note) {
        let _ = self.control.with(|m| m.record(note));
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        match self.progress {
            Progress::Over => {}
            Progress::Unsent => {
                let kind = EventKind::DriveMaintenanceFailed;
                let cause = "the daemon could not start it; the drive is unchanged";
                self.restore(kind, "was not executed", cause);
            }
            Progress::Sent => {
                let why = format!(
                    "the daemon does not know its result; repeat {} before the drive is used",
                    self.operation.of(&self.path)
                );
                self.fail(&why);
            }
        }
    }
}
