//! How each request is typed.

use std::fmt::Display;

#[cfg(test)]
use serde_json::Value;
use strake_api::v1 as api;
use strake_api::v1::text_part::Part;

/// A request as it is typed at the command line. What the operator is to choose is left empty in a request that is a
/// remedy, and spelled in capitals.
pub trait Typed {
    /// As it is typed, without `strake`. Of a secret or a key, only that one was given.
    fn typed(&self) -> String;
    /// As a part of a text.
    fn part(self) -> Part;
}

/// The command that sends `request`.
pub fn command(request: &impl Typed) -> String {
    format!("strake {}", request.typed())
}

/// Whether a character means nothing but itself to a shell.
#[must_use]
pub fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "-._~:/[]%+,=@".contains(c)
}

/// A value as a shell takes it. Names of drives and exports may come from drives and remote hosts: what they spell is
/// one word, and a control character, which could end the command, becomes U+FFFD.
fn quoted(value: &str) -> String {
    if value.chars().all(is_plain) {
        return value.to_owned();
    }
    let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    format!("'{}'", value.chars().map(printable).collect::<String>().replace('\'', "'\\''"))
}

/// A member that the operator is to choose, as `TextPart` of the interface says.
const MEMBER_TO_CHOOSE: u32 = u32::MAX;

/// A command line that grows.
struct Line(String);

fn line(verb: impl Into<String>) -> Line {
    Line(verb.into())
}

impl Line {
    /// What stands without an option; nothing when it is empty.
    fn word(self, word: impl AsRef<str>) -> Self {
        let word = word.as_ref();
        if word.is_empty() { self } else { Self(self.0 + " " + &quoted(word)) }
    }

    fn flag(self, set: bool, flag: &str) -> Self {
        self.word(if set { flag } else { "" })
    }

    fn value<T: Display>(self, option: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.word(option).word(value.to_string()),
            None => self,
        }
    }

    fn text(self, option: &str, text: &str) -> Self {
        self.value(option, given(text))
    }

    /// A number of which 0 stands for the default.
    fn number(self, option: &str, number: u32) -> Self {
        self.value(option, (number != 0).then_some(number))
    }

    fn switch(self, option: &str, on: Option<bool>) -> Self {
        self.value(option, on.map(|on| if on { "on" } else { "off" }))
    }

    fn list(self, option: &str, list: &[String]) -> Self {
        self.text(option, &list.join(","))
    }

    fn each(self, option: &str, list: &[String]) -> Self {
        list.iter().fold(self, |line, one| line.text(option, one))
    }

    /// Where a secret or a key comes from.
    fn file(self, option: &str, content: &str) -> Self {
        self.value(option, given(content).map(|_| "FILE"))
    }
}

fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Seconds in the form in which an operator types them.
#[must_use]
pub fn every(seconds: u64) -> String {
    match seconds {
        0 => "off".to_owned(),
        s if s.is_multiple_of(24 * 3600) => format!("{}d", s / (24 * 3600)),
        s if s.is_multiple_of(3600) => format!("{}h", s / 3600),
        s => format!("{s}s"),
    }
}

/// Declares how each request is typed, and the variant of a part of a text that holds it.
macro_rules! typed {
    ($($variant:ident $request:ident |$r:ident| $line:expr;)*) => {
        $(
            impl Typed for api::$request {
                fn typed(&self) -> String {
                    let $r = self;
                    let _ = $r;
                    $line.0
                }

                fn part(self) -> Part {
                    Part::$variant(self)
                }
            }
        )*

        /// A part of a text as the command line prints it.
        pub(crate) fn command_of(part: &Part) -> String {
            match part {
                Part::Words(words) => words.clone(),
                $(Part::$variant(request) => command(request),)*
            }
        }

        /// For each request: its name, its default, and how it is typed.
        #[cfg(test)]
        pub(crate) const FORMS: &[(&str, fn() -> Value, fn(Value) -> Option<String>)] = &[$((
            stringify!($request),
            || serde_json::to_value(api::$request::default()).expect("it has a JSON form"),
            |json| serde_json::from_value::<api::$request>(json).ok().map(|request| request.typed()),
        )),*];
    };
}

typed! {
    GetStatus GetStatusRequest |_r| line("status");
    GetArray GetArrayRequest |r| line("array show").word(&r.name);
    WatchArray WatchArrayRequest |r| line("array show").word(&r.name).word("--watch");
    AwaitArray AwaitArray |r| line("wait").word(&r.name).text("--for", &r.goal);
    CreateArray CreateArrayRequest |r| line("array create")
        .word(&r.name)
        .text("--level", &r.level)
        .list("--drives", &r.drives)
        .number("--strip", r.strip_bytes)
        .value("--group-size", r.group_size)
        .value("--block-size", r.block_bytes)
        .text("--consistency", &r.consistency)
        .flag(r.overwrite, "--overwrite");
    FailMember FailMemberRequest |r| line("array fail")
        .word(&r.name)
        .value("--member", Some(r.member))
        .list("--accept", &r.accept);
    ReplaceMember ReplaceMemberRequest |r| line("array replace")
        .word(&r.name)
        .text("--member", &if r.member == MEMBER_TO_CHOOSE { "N".to_owned() } else { r.member.to_string() })
        .text("--with", given(&r.drive).unwrap_or("DRIVE"))
        .flag(r.overwrite, "--overwrite");
    AddDrive AddDriveRequest |r| line("array add")
        .word(&r.name)
        .text("--drive", given(&r.drive).unwrap_or("DRIVE"))
        .flag(r.overwrite, "--overwrite");
    ImportArrays ImportArraysRequest |r| line("array import")
        .word(&r.name)
        .list("--drives", &r.drives)
        .flag(r.allow_degraded, "--degraded")
        .flag(r.accept_loss, "--accept-loss")
        .list("--use", &r.use_drives)
        .flag(r.exports, "--exports");
    UnloadArray UnloadArrayRequest |r| line("array unload").word(&r.name).flag(r.force, "--force");
    DestroyArray DestroyArrayRequest |r| line("array destroy").word(&r.name).flag(r.force, "--force");
    ReaddMember ReaddMemberRequest |r| line("array readd")
        .word(&r.name)
        .value("--member", r.member)
        .text("--drive", &r.drive);
    RebuildArray RebuildArrayRequest |r| line("array rebuild").word(&r.name);
    RenameArray RenameArrayRequest |r| line("array rename").word(&r.name).word(given(&r.new_name).unwrap_or("OTHER"));
    GrowArray GrowArrayRequest |r| line("array grow").word(&r.name).flag(r.force, "--force");
    UpgradeFormat UpgradeFormatRequest |r| line("array upgrade-format").word(&r.name).flag(r.force, "--force");
    UndeleteArray UndeleteArrayRequest |r| line("array undelete").word(&r.name).list("--drives", &r.drives);
    SetArray SetArrayRequest |r| line("array set")
        .word(&r.name)
        .value("--rebuild-priority", r.rebuild_priority)
        .switch("--auto-replace", r.auto_replace)
        .switch("--auto-readd", r.auto_readd)
        .value("--replace-after-errors", r.replace_after_errors)
        .value("--consistency", r.consistency.as_ref())
        .value("--scrub-every", r.scrub_every_s.map(every))
        .switch("--scrub-repair", r.scrub_repair);
    GetScrub GetScrubRequest |r| line("array scrub show").word(&r.name);
    StartScrub StartScrubRequest |r| line("array scrub start")
        .word(&r.name)
        .flag(r.mode == "repair", "--repair")
        .flag(r.mode == "trust_data", "--trust-data");
    ChangeScrub ChangeScrubRequest |r| line("array scrub").word(&r.action).word(&r.name);
    ListExports ListExportsRequest |_r| line("export list");
    CreateExport CreateExportRequest |r| line("export create")
        .word(&r.array)
        .text("--name", &r.name)
        .text("--via", &r.via)
        .text("--listen", &r.listen)
        .text("--nqn", &r.nqn)
        .each("--allow-host", &r.allow_hosts)
        .number("--namespace", r.namespace)
        .flag(r.secure, "--secure")
        .flag(r.read_only, "--read-only");
    RemoveExport RemoveExportRequest |r| line("export remove").word(&r.name).flag(r.force, "--force");
    ReleaseExport ReleaseExportRequest |r| line("export release").word(&r.name);
    ListReferrals ListReferralsRequest |_r| line("export referral list");
    AddReferral AddReferralRequest |r| line("export referral add").word(&r.address);
    RemoveReferral RemoveReferralRequest |r| line("export referral remove").word(&r.address);
    ListHosts ListHostsRequest |_r| line("host list");
    AddHost AddHostRequest |r| line(if r.known { "host key" } else { "host add" })
        .word(&r.nqn)
        .file("--secret-file", &r.secret)
        .flag(r.new_secret, "--new-secret")
        .file("--controller-secret-file", &r.controller_secret)
        .flag(r.new_controller_secret, "--new-controller-secret")
        .file("--tls-key-file", &r.tls_key)
        .flag(r.new_tls_key, "--new-tls-key")
        .flag(r.no_secret, "--no-secret")
        .flag(r.no_controller_secret, "--no-controller-secret")
        .flag(r.no_tls, "--no-tls");
    RemoveHost RemoveHostRequest |r| line("host remove").word(&r.nqn);
    ListDrives ListDrivesRequest |_r| line("drive list");
    LocateDrive LocateDriveRequest |r| line("drive locate").word(&r.path).flag(r.off, "--off");
    CleanDrive CleanDriveRequest |r| line("drive clean").word(&r.path).flag(r.accept_loss, "--accept-loss");
    ConnectDrive ConnectDriveRequest |r| line("drive connect")
        .word(&r.address)
        .text("--host-nqn", &r.host_nqn)
        .number("--hold", r.hold_s)
        .file("--secret-file", &r.secret)
        .file("--controller-secret-file", &r.controller_secret)
        .file("--tls-key-file", &r.tls_key)
        .flag(r.take_over, "--take-over");
    DisconnectDrive DisconnectDriveRequest |r| line("drive disconnect").word(&r.address);
    AddSpare AddSpareRequest |r| line("spare add")
        .word(given(&r.drive).unwrap_or("DRIVE"))
        .text("--array", &r.array)
        .flag(r.overwrite, "--overwrite");
    RemoveSpare RemoveSpareRequest |r| line("spare remove").word(&r.drive);
    ListJobs ListJobsRequest |_r| line("job list");
    ChangeJob ChangeJobRequest |r| line("job").word(&r.action).word(&r.id).value("--priority", r.priority);
    ListEvents ListEventsRequest |r| line("event list").number("--last", r.last);
    ListHooks ListHooksRequest |_r| line("hook list");
    AddHook AddHookRequest |r| line("hook add")
        .word(&r.name)
        .value("--webhook-file", (r.kind == "webhook").then_some("FILE"))
        .value("--exec", (r.kind == "exec").then_some(&r.target))
        .value("--email", (r.kind == "email").then_some(&r.target))
        .file("--server-file", &r.server)
        .text("--from", &r.from)
        .text("--severity", &r.severity);
    RemoveHook RemoveHookRequest |r| line("hook remove").word(given(&r.name).unwrap_or("NAME"));
    TestHook TestHookRequest |r| line("hook test").word(&r.name);
    GetConfig GetConfigRequest |_r| line("config backup FILE");
    RestoreConfig RestoreConfigRequest |_r| line("config restore FILE");
}

/// The request that shows array `name`.
pub fn show(name: impl Display) -> api::GetArrayRequest {
    api::GetArrayRequest { name: name.to_string() }
}

/// The request that shows the scrub of array `name`.
pub fn show_scrub(name: impl Display) -> api::GetScrubRequest {
    api::GetScrubRequest { name: name.to_string() }
}

/// What waits until array `name` reaches `goal`.
pub fn await_goal(name: impl Display, goal: &str) -> api::AwaitArray {
    api::AwaitArray { name: name.to_string(), goal: goal.to_owned() }
}

/// The request that replaces `member` of array `array` by `drive`. `None` and an empty drive are for the operator to
/// choose.
pub fn replace(array: impl Display, member: Option<u32>, drive: &str) -> api::ReplaceMemberRequest {
    api::ReplaceMemberRequest {
        name: array.to_string(),
        member: member.unwrap_or(MEMBER_TO_CHOOSE),
        drive: drive.to_owned(),
        ..Default::default()
    }
}

/// The request that starts array `name` from its recorded drives.
pub fn import(name: impl Display) -> api::ImportArraysRequest {
    api::ImportArraysRequest { name: name.to_string(), ..Default::default() }
}
