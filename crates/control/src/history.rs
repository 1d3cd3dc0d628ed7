//! The history of commands with callers and results: events of kind `command`.

use strake_api::v1 as api;
use strake_wording::Command;

use crate::actor::Actor;
use crate::audit::{Ended, Subject};
use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Events, Note, Severity};

/// An answer with a result word.
pub trait Outcome {
    /// `created`, `changed`, `unchanged` or `planned`.
    fn word(&self) -> &str;
}

impl Control {
    /// Runs `job`, and records the command and `actor` in the events and in the audit log, also after a refusal.
    ///
    /// # Errors
    /// The error of `job`.
    pub fn command<C: Command, T: Outcome>(
        &self,
        actor: &Actor,
        command: &C,
        job: impl FnOnce(&Self, &C) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let (words, object) = (command.line().typed, command.object());
        let subject = Subject { command: &words, object: &object };
        let started = (!command.is_dry()).then(|| self.audit().begin(actor, subject));
        let outcome = job(self, command).map_err(|error| error.of_command(command));
        // Events that the command caused follow the event of the command.
        let noted = self.run(|manager| {
            manager.observe();
            Ok(())
        });
        if let Some(started) = started {
            let ended = match &outcome {
                Ok(done) => Ended { result: done.word(), cause: "" },
                Err(error) => Ended { result: "refused", cause: error.what.as_str() },
            };
            self.audit().end(started, actor, subject, ended);
            record(self.events(), actor, command, outcome.as_ref());
        }
        noted.and(outcome)
    }
}

fn record<C: Command, T: Outcome>(
    events: &Events,
    actor: &Actor,
    command: &C,
    outcome: Result<&T, &ControlError>,
) {
    let words = command.line().typed;
    let note = match outcome {
        Ok(done) => {
            Note::new(EventKind::Command, command.object(), format!("{words}: {}", done.word()))
        }
        Err(error) => Note::new(EventKind::Command, command.object(), format!("{words}: refused"))
            .cause(error.what.clone())
            .severity(Severity::Info),
    };
    events.record(note.actor(actor.to_string()));
}

macro_rules! outcomes {
    ($($message:ident)*) => {
        $(impl Outcome for api::$message {
            fn word(&self) -> &str { &self.result }
        })*
    };
}

outcomes! { ArrayChange ImportArraysResponse ExportChange SpareChange DriveChange JobChange HookChange ConfigChange }

outcomes! { ScrubChange HostChange ReferralChange DriverChanges PoolChange VolumeChange SnapshotsChange QosChange }
