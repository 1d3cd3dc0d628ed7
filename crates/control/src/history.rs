//! The history of commands with callers and results: events of kind `command`.

use strake_api::v1 as api;
use strake_wording::Command;

use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Events, Note, Severity};

/// The caller of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// User and process of the peer of the socket, if the kernel reports them.
    pub peer: Option<(u32, i32)>,
}

impl std::fmt::Display for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.peer {
            Some((uid, pid)) => write!(f, "uid {uid} pid {pid}"),
            None => f.write_str("unknown"),
        }
    }
}

/// An answer with a result word.
pub trait Outcome {
    /// `created`, `changed`, `unchanged` or `planned`.
    fn word(&self) -> &str;
}

impl Control {
    /// Runs `job`, and records the command and `actor`, also after a refusal.
    ///
    /// # Errors
    /// The error of `job`.
    pub fn command<C: Command, T: Outcome>(
        &self,
        actor: &Actor,
        command: &C,
        job: impl FnOnce(&Self, &C) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let outcome = job(self, command).map_err(|error| error.of_command(command));
        // Events that the command caused follow the event of the command.
        let noted = self.run(|manager| {
            manager.observe();
            Ok(())
        });
        if !command.is_dry() {
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

outcomes! { ScrubChange HostChange ReferralChange DriverChanges }
