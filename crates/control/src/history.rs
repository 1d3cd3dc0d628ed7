//! Who gave which command, and how it went: events of kind `command`.

use strake_api::v1 as api;

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
pub trait Command {
    /// As it is typed, without `strake`.
    fn words(&self) -> String;
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
    let words = command.words();
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

/// Declares how a request is typed: the object it is about, whether it may be dry, its words and its flags.
macro_rules! command {
    ($request:ident, |$this:ident| $object:expr, $dry:expr, $words:expr) => {
        impl Command for api::$request {
            fn words(&self) -> String {
                let $this = self;
                let _ = $this;
                $words
            }
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
        }
    };
}

fn array(name: &str) -> String {
    if name.is_empty() { "array".to_owned() } else { format!("array/{name}") }
}

fn drive(path: &str) -> String {
    format!("drive/{path}")
}

/// Words that are there when a flag is set.
fn flag(set: bool, words: &str) -> String {
    if set { format!(" {words}") } else { String::new() }
}

/// A flag with a value, when there is one.
fn value<T: std::fmt::Display>(flag: &str, value: Option<T>) -> String {
    value.map(|value| format!(" {flag} {value}")).unwrap_or_default()
}

fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn list(drives: &[String]) -> Option<String> {
    (!drives.is_empty()).then(|| drives.join(","))
}

command!(
    CreateArrayRequest,
    |r| array(&r.name),
    r.dry_run,
    format!(
        "array create {} --level {} --drives {}{}{}",
        r.name,
        r.level,
        r.drives.join(","),
        value("--group-size", r.group_size),
        flag(r.overwrite, "--overwrite")
    )
);
command!(
    FailMemberRequest,
    |r| array(&r.name),
    r.dry_run,
    format!("array fail {} --member {}{}", r.name, r.member, value("--accept", list(&r.accept)))
);
command!(
    ReplaceMemberRequest,
    |r| array(&r.name),
    r.dry_run,
    format!(
        "array replace {} --member {} --with {}{}",
        r.name,
        r.member,
        r.drive,
        flag(r.overwrite, "--overwrite")
    )
);
command!(
    AddDriveRequest,
    |r| array(&r.name),
    r.dry_run,
    format!("array add {} --drive {}{}", r.name, r.drive, flag(r.overwrite, "--overwrite"))
);
command!(
    ImportArraysRequest,
    |r| array(&r.name),
    r.dry_run,
    format!(
        "array import{}{}{}{}{}",
        given(&r.name).map(|n| format!(" {n}")).unwrap_or_default(),
        value("--drives", list(&r.drives)),
        flag(r.allow_degraded, "--degraded"),
        flag(r.accept_loss, "--accept-loss"),
        value("--use", list(&r.use_drives))
    )
);
command!(
    UnloadArrayRequest,
    |r| array(&r.name),
    r.dry_run,
    format!("array unload {}{}", r.name, flag(r.force, "--force"))
);
command!(
    DestroyArrayRequest,
    |r| array(&r.name),
    r.dry_run,
    format!("array destroy {}{}", r.name, flag(r.force, "--force"))
);
command!(
    ReaddMemberRequest,
    |r| array(&r.name),
    r.dry_run,
    format!(
        "array readd {}{}{}",
        r.name,
        value("--member", r.member),
        value("--drive", given(&r.drive))
    )
);
command!(RebuildArrayRequest, |r| array(&r.name), r.dry_run, format!("array rebuild {}", r.name));
command!(
    RenameArrayRequest,
    |r| array(&r.name),
    r.dry_run,
    format!("array rename {} {}", r.name, r.new_name)
);
command!(
    GrowArrayRequest,
    |r| array(&r.name),
    r.dry_run,
    format!("array grow {}{}", r.name, flag(r.force, "--force"))
);
command!(
    UpgradeFormatRequest,
    |r| array(&r.name),
    r.dry_run,
    format!("array upgrade-format {}{}", r.name, flag(r.force, "--force"))
);
command!(
    UndeleteArrayRequest,
    |r| array(&r.name),
    r.dry_run,
    format!("array undelete {}{}", r.name, value("--drives", list(&r.drives)))
);
command!(
    SetArrayRequest,
    |r| array(&r.name),
    false,
    format!(
        "array set {}{}{}{}{}{}{}{}",
        r.name,
        value("--rebuild-priority", r.rebuild_priority),
        value("--auto-replace", r.auto_replace),
        value("--auto-readd", r.auto_readd),
        value("--replace-after-errors", r.replace_after_errors),
        value("--consistency", r.consistency.as_ref()),
        value("--scrub-every", r.scrub_every_s.map(crate::policy::scrub::every)),
        value("--scrub-repair", r.scrub_repair)
    )
);
command!(
    StartScrubRequest,
    |r| array(&r.name),
    false,
    format!(
        "array scrub start {}{}{}",
        r.name,
        flag(r.mode == "repair", "--repair"),
        flag(r.mode == "trust_data", "--trust-data")
    )
);
command!(
    ChangeScrubRequest,
    |r| array(&r.name),
    false,
    format!("array scrub {} {}", r.action, r.name)
);
command!(
    CreateExportRequest,
    |r| array(&r.array),
    false,
    format!(
        "export create {}{} --listen {}{}",
        r.array,
        value("--name", given(&r.name)),
        r.listen,
        flag(r.read_only, "--read-only")
    )
);
command!(
    RemoveExportRequest,
    |r| format!("export/{}", r.name),
    false,
    format!("export remove {}{}", r.name, flag(r.force, "--force"))
);
command!(
    ReleaseExportRequest,
    |r| format!("export/{}", r.name),
    false,
    format!("export release {}", r.name)
);
command!(
    AddSpareRequest,
    |r| drive(&r.drive),
    r.dry_run,
    format!(
        "spare add {}{}{}",
        r.drive,
        value("--array", given(&r.array)),
        flag(r.overwrite, "--overwrite")
    )
);
command!(RemoveSpareRequest, |r| drive(&r.drive), false, format!("spare remove {}", r.drive));
command!(
    LocateDriveRequest,
    |r| drive(&r.path),
    false,
    format!("drive locate {}{}", r.path, flag(r.off, "--off"))
);
command!(
    CleanDriveRequest,
    |r| drive(&r.path),
    r.dry_run,
    format!("drive clean {}{}", r.path, flag(r.accept_loss, "--accept-loss"))
);
command!(
    ConnectDriveRequest,
    |r| drive(&r.address),
    false,
    format!(
        "drive connect {}{}{}{}",
        r.address,
        value("--host-nqn", given(&r.host_nqn)),
        value("--hold", (r.hold_s != 0).then_some(r.hold_s)),
        flag(r.take_over, "--take-over")
    )
);
command!(
    DisconnectDriveRequest,
    |r| drive(&r.address),
    false,
    format!("drive disconnect {}", r.address)
);
command!(
    ChangeJobRequest,
    |r| array(r.id.split('/').next().unwrap_or_default()),
    false,
    format!("job {} {}{}", r.action, r.id, value("--priority", r.priority))
);
command!(
    AddHookRequest,
    |r| "daemon".to_owned(),
    false,
    format!("hook add {} --kind {}{}", r.name, r.kind, value("--severity", given(&r.severity)))
);
command!(RemoveHookRequest, |r| "daemon".to_owned(), false, format!("hook remove {}", r.name));
command!(
    AddHostRequest,
    |r| "daemon".to_owned(),
    false,
    format!("host {} {}", if r.known { "key" } else { "add" }, r.nqn)
);
command!(RemoveHostRequest, |r| "daemon".to_owned(), false, format!("host remove {}", r.nqn));
command!(
    AddReferralRequest,
    |r| "daemon".to_owned(),
    false,
    format!("export referral add {}", r.address)
);
command!(
    RemoveReferralRequest,
    |r| "daemon".to_owned(),
    false,
    format!("export referral remove {}", r.address)
);
command!(TestHookRequest, |r| "daemon".to_owned(), false, format!("hook test {}", r.name));
command!(RestoreConfigRequest, |r| "daemon".to_owned(), r.dry_run, "config restore".to_owned());
