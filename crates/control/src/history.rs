//! Who gave which command, and how it went: events of kind `command`.

use strake_api::v1 as api;
use strake_wording::Typed;

use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Events, Note, Severity};

/// Who gives a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// User and process of the other end of the socket, when the kernel said.
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

/// A request that changes something.
pub trait Command: Typed {
    /// What it is about, as events name it.
    fn object(&self) -> String;
    /// It only asks what would be done, so it is no part of the history.
    fn is_dry(&self) -> bool;
}

/// An answer that says in a word what was done.
pub trait Outcome {
    /// `created`, `changed`, `unchanged` or `planned`.
    fn word(&self) -> &str;
}

impl Control {
    /// Carries out `job` and writes down that `actor` asked for it, also when it is refused.
    ///
    /// # Errors
    /// What `job` returns.
    pub fn command<C: Command, T: Outcome>(
        &self,
        actor: &Actor,
        command: &C,
        job: impl FnOnce(&Self, &C) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let outcome = job(self, command);
        // What came of it belongs right behind the command that caused it.
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
    let words = command.typed();
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

outcomes! { ScrubChange HostChange ReferralChange }

/// Declares what each request is about, and whether it is dry.
macro_rules! commands {
    ($($request:ident |$this:ident| $object:expr, $dry:expr;)*) => {
        $(impl Command for api::$request {
            fn object(&self) -> String {
                let $this = self;
                let _ = $this;
                $object
            }
            fn is_dry(&self) -> bool {
                let $this = self;
                let _ = $this;
                $dry
            }
        })*
    };
}

fn array(name: &str) -> String {
    if name.is_empty() { "array".to_owned() } else { format!("array/{name}") }
}

fn drive(path: &str) -> String {
    format!("drive/{path}")
}

fn export(name: &str) -> String {
    format!("export/{name}")
}

fn daemon() -> String {
    "daemon".to_owned()
}

commands! {
    CreateArrayRequest |r| array(&r.name), r.dry_run;
    FailMemberRequest |r| array(&r.name), r.dry_run;
    ReplaceMemberRequest |r| array(&r.name), r.dry_run;
    AddDriveRequest |r| array(&r.name), r.dry_run;
    ImportArraysRequest |r| array(&r.name), r.dry_run;
    UnloadArrayRequest |r| array(&r.name), r.dry_run;
    DestroyArrayRequest |r| array(&r.name), r.dry_run;
    ReaddMemberRequest |r| array(&r.name), r.dry_run;
    RebuildArrayRequest |r| array(&r.name), r.dry_run;
    RenameArrayRequest |r| array(&r.name), r.dry_run;
    GrowArrayRequest |r| array(&r.name), r.dry_run;
    UpgradeFormatRequest |r| array(&r.name), r.dry_run;
    UndeleteArrayRequest |r| array(&r.name), r.dry_run;
    SetArrayRequest |r| array(&r.name), false;
    StartScrubRequest |r| array(&r.name), false;
    ChangeScrubRequest |r| array(&r.name), false;
    CreateExportRequest |r| array(&r.array), false;
    RemoveExportRequest |r| export(&r.name), false;
    ReleaseExportRequest |r| export(&r.name), false;
    AddSpareRequest |r| drive(&r.drive), r.dry_run;
    RemoveSpareRequest |r| drive(&r.drive), false;
    LocateDriveRequest |r| drive(&r.path), false;
    CleanDriveRequest |r| drive(&r.path), r.dry_run;
    ConnectDriveRequest |r| drive(&r.address), false;
    DisconnectDriveRequest |r| drive(&r.address), false;
    ChangeJobRequest |r| array(r.id.split('/').next().unwrap_or_default()), false;
    AddHookRequest |r| daemon(), false;
    RemoveHookRequest |r| daemon(), false;
    AddHostRequest |r| daemon(), false;
    RemoveHostRequest |r| daemon(), false;
    AddReferralRequest |r| daemon(), false;
    RemoveReferralRequest |r| daemon(), false;
    TestHookRequest |r| daemon(), false;
    RestoreConfigRequest |r| daemon(), r.dry_run;
}
