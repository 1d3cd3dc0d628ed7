//! The table of all requests. Each row has the command that sends the request, and the object that the request changes.

use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;
use strake_api::v1 as api;
use strake_api::v1::text_part::Part;

/// A request that the command line can send.
pub trait ApiCommand {
    /// The command that sends this request, without `strake`.
    fn line(&self) -> Line;
    /// This request as a part of a text.
    fn part(self) -> Part;
}

/// A change of a request that was refused, with which it may be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amendment {
    /// Consent to the loss of the content of drives.
    Overwrite,
    /// Consent to end the connections of clients.
    Force,
    /// Consent to the loss of data.
    AcceptLoss,
    /// Another address to listen on, which the operator has to choose.
    Address,
}

/// A request that changes something.
pub trait Command: ApiCommand + Sized {
    /// The object of the request, as events name it.
    fn object(&self) -> String;
    /// True if the request is a dry run. Dry runs are not recorded.
    fn is_dry(&self) -> bool;
    /// This request with `amendment`; `None` if the request has no such field.
    fn amended(&self, amendment: Amendment) -> Option<Self>;
}

/// An operation that is executed for every request type.
pub trait EachRequest {
    /// Executes the operation for the request type `name`.
    fn request<R: ApiCommand + Default + Serialize + DeserializeOwned>(&mut self, name: &str);
}

/// The command that sends `request`. In a request of a remedy, values that the operator has to choose are empty. The
/// command has placeholders in capitals for these values.
pub fn command(request: &impl ApiCommand) -> String {
    format!("strake {}", request.line().advised)
}

/// Whether a shell takes this character literally.
#[must_use]
pub fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "-._~:/%+,=@".contains(c)
}

/// Quotes a value for a shell. Names may come from drives and remote hosts, so every value becomes exactly one word. A
/// control character, which could end the command, becomes U+FFFD.
fn quoted(value: &str) -> String {
    // zsh replaces a leading `=`, and every shell a leading `~`.
    if !value.is_empty() && !value.starts_with(['=', '~']) && value.chars().all(is_plain) {
        return value.to_owned();
    }
    let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    format!("'{}'", value.chars().map(printable).collect::<String>().replace('\'', "'\\''"))
}

/// Placeholder for a member that the operator has to choose, as defined by `TextPart` of the API.
const MEMBER_TO_CHOOSE: u32 = u32::MAX;

/// A command without `strake`. Instead of a secret or a key, the command contains `FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The command as typed, for the record of commands. An empty required value is `''`.
    pub typed: String,
    /// The command that the operator has to type, for a remedy.
    pub advised: String,
}

fn line(verb: &str) -> Line {
    Line { typed: verb.to_owned(), advised: verb.to_owned() }
}

impl Line {
    /// Appends `typed` to the recorded command, and `advised` to the command of a remedy.
    fn either(mut self, typed: &str, advised: &str) -> Self {
        for (line, words) in [(&mut self.typed, typed), (&mut self.advised, advised)] {
            line.push_str(if words.is_empty() { "" } else { " " });
            line.push_str(words);
        }
        self
    }

    /// Appends a value without an option; appends nothing if the value is empty.
    fn word(self, word: impl AsRef<str>) -> Self {
        let word = given(word.as_ref()).map(quoted).unwrap_or_default();
        self.either(&word, &word)
    }

    /// Appends a required value without an option.
    fn needed(self, value: &str) -> Self {
        self.choice("", value, "")
    }

    /// Appends a required value with its option. If the value is empty, a remedy has the placeholder `choice`. If
    /// `choice` is empty too, the remedy omits the option.
    fn choice(self, option: &str, value: &str, choice: &str) -> Self {
        if !value.is_empty() {
            return self.word(option).word(value);
        }
        let advised = if choice.is_empty() { String::new() } else { format!("{option} {choice}") };
        self.either(format!("{option} ''").trim_start(), advised.trim_start())
    }

    /// Appends required values without an option.
    fn words(self, values: &[String]) -> Self {
        match values {
            [] => self.needed(""),
            values => values.iter().fold(self, Self::word),
        }
    }

    fn flag(self, set: bool, flag: &str) -> Self {
        self.word(if set { flag } else { "" })
    }

    fn value<T: Display>(self, option: &str, value: Option<T>) -> Self {
        match value.map(|value| quoted(&value.to_string())) {
            Some(value) => self.word(option).either(&value, &value),
            None => self,
        }
    }

    fn text(self, option: &str, text: &str) -> Self {
        self.value(option, given(text))
    }

    /// Appends an option with a number; 0 means the default and appends nothing.
    fn number(self, option: &str, number: u32) -> Self {
        self.value(option, (number != 0).then_some(number))
    }

    fn switch(self, option: &str, on: Option<bool>) -> Self {
        self.value(option, on.map(|on| if on { "on" } else { "off" }))
    }

    fn each(self, option: &str, list: &[String]) -> Self {
        list.iter().fold(self, |line, one| line.text(option, one))
    }

    /// Appends an option with the placeholder `FILE` if `content`, a secret or a key, is given.
    fn file(self, option: &str, content: &str) -> Self {
        self.value(option, given(content).map(|_| "FILE"))
    }
}

/// A list of drives as one value. A backslash precedes each comma and backslash in a name.
#[must_use]
pub fn escaped(drives: &[String]) -> String {
    let escaped = drives.iter().map(|drive| drive.replace('\\', r"\\").replace(',', r"\,"));
    escaped.collect::<Vec<_>>().join(",")
}

fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// An interval in the largest suitable unit, such as `14d`; 0 is `off`.
#[must_use]
pub fn every(seconds: u64) -> String {
    match seconds {
        0 => "off".to_owned(),
        s if s.is_multiple_of(24 * 3600) => format!("{}d", s / (24 * 3600)),
        s if s.is_multiple_of(3600) => format!("{}h", s / 3600),
        s => format!("{s}s"),
    }
}

fn position(member: u32) -> String {
    if member == MEMBER_TO_CHOOSE { "N".to_owned() } else { member.to_string() }
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

fn pool(name: &str) -> String {
    format!("pool/{name}")
}

fn volume(name: &str) -> String {
    format!("volume/{name}")
}

/// The object of a command about limits; `kind` is the word of the object.
fn qos(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

/// A number of I/Os per second; 0 is `none`.
fn rate(rate: u64) -> String {
    if rate == 0 { "none".to_owned() } else { rate.to_string() }
}

fn daemon() -> String {
    "daemon".to_owned()
}

/// A size in the largest unit that has no remainder, such as `10GiB`; empty for 0.
fn exact(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["", "KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes == 0 {
        return String::new();
    }
    let unit = (bytes.trailing_zeros() as usize / 10).min(UNITS.len() - 1);
    format!("{}{}", bytes >> (10 * unit), UNITS[unit])
}

/// A quota, such as `10GiB`; 0 is `none`.
fn quota(bytes: u64) -> String {
    if bytes == 0 { "none".to_owned() } else { exact(bytes) }
}

/// The volumes and names of snapshots to take, as pairs of words.
fn pairs(snapshots: &[api::NewSnapshot]) -> Vec<String> {
    snapshots.iter().flat_map(|new| [new.volume.clone(), new.name.clone()]).collect()
}

/// Declares the requests. Each row has the variant of `Part`, the request type, and the command. A request that changes
/// something also has its object, its dry-run flag, and the field that an amendment sets.
macro_rules! requests {
    ($($variant:ident $request:ident |$r:ident| $line:expr
        $(=> $object:expr, $dry:expr $(, $amendment:ident: $field:ident = $value:expr)?)?;)*) => {
        $(
            impl ApiCommand for api::$request {
                fn line(&self) -> Line {
                    let $r = self;
                    let _ = $r;
                    let line = $line;
                    $(let line = line.flag($dry, "--dry-run");)?
                    line
                }

                fn part(self) -> Part {
                    Part::$variant(self)
                }
            }

            $(impl Command for api::$request {
                fn object(&self) -> String {
                    let $r = self;
                    let _ = $r;
                    $object
                }

                fn is_dry(&self) -> bool {
                    let $r = self;
                    let _ = $r;
                    $dry
                }

                fn amended(&self, amendment: Amendment) -> Option<Self> {
                    let _ = amendment;
                    $(if amendment == Amendment::$amendment {
                        return Some(Self { $field: $value, ..self.clone() });
                    })?
                    None
                }
            })?
        )*

        /// The text of one part, as the command line prints it.
        pub(crate) fn command_of(part: &Part) -> String {
            match part {
                Part::Words(words) => words.clone(),
                $(Part::$variant(request) => command(request),)*
            }
        }

        /// Calls `each` for every request type. Tests use this to cover all requests.
        pub fn each_request(each: &mut impl EachRequest) {
            $(each.request::<api::$request>(stringify!($request));)*
        }
    };
}

requests! {
    GetStatus GetStatusRequest |_r| line("status");
    GetArray GetArrayRequest |r| line("array show").word(&r.name);
    WatchArray WatchArrayRequest |r| line("array show").word(&r.name).word("--watch");
    StartDaemon StartDaemon |r| line("daemon start").text("--state-dir", &r.state_dir).text("--cores", &r.cores);
    StopDaemon StopDaemonRequest |r| line("daemon stop").text("--accept", &r.accept.join(",")) => daemon(), false;
    AwaitArray AwaitArray |r| line("wait").word(&r.name).text("--for", &r.goal);
    CreateArray CreateArrayRequest |r| line("array create")
        .needed(&r.name)
        .choice("--level", &r.level, "")
        .choice("--drives", &escaped(&r.drives), "")
        .number("--strip", r.strip_bytes)
        .value("--group-size", r.group_size)
        .value("--block-size", r.block_bytes)
        .text("--consistency", &r.consistency)
        .flag(r.overwrite, "--overwrite") => array(&r.name), r.dry_run, Overwrite: overwrite = true;
    FailMember FailMemberRequest |r| line("array fail")
        .needed(&r.name)
        .value("--member", Some(r.member))
        .text("--accept", &r.accept.join(",")) => array(&r.name), r.dry_run;
    ReplaceMember ReplaceMemberRequest |r| line("array replace")
        .needed(&r.name)
        .either(&format!("--member {}", r.member), &format!("--member {}", position(r.member)))
        .choice("--with", &r.drive, "DRIVE")
        .flag(r.overwrite, "--overwrite") => array(&r.name), r.dry_run, Overwrite: overwrite = true;
    AddDrive AddDriveRequest |r| line("array add")
        .needed(&r.name)
        .choice("--drive", &r.drive, "DRIVE")
        .flag(r.overwrite, "--overwrite") => array(&r.name), r.dry_run, Overwrite: overwrite = true;
    ImportArrays ImportArraysRequest |r| line("array import")
        .word(&r.name)
        .text("--drives", &escaped(&r.drives))
        .flag(r.allow_degraded, "--degraded")
        .flag(r.accept_loss, "--accept-loss")
        .text("--use", &escaped(&r.use_drives))
        .flag(r.exports, "--exports") => array(&r.name), r.dry_run;
    ListImportable ListImportableRequest |r| line("array importable").text("--drives", &escaped(&r.drives));
    UnloadArray UnloadArrayRequest |r| line("array unload").needed(&r.name).flag(r.force, "--force")
        => array(&r.name), r.dry_run, Force: force = true;
    DestroyArray DestroyArrayRequest |r| line("array destroy").needed(&r.name).flag(r.force, "--force")
        => array(&r.name), r.dry_run, Force: force = true;
    ReaddMember ReaddMemberRequest |r| line("array readd")
        .needed(&r.name)
        .value("--member", r.member)
        .text("--drive", &r.drive) => array(&r.name), r.dry_run;
    RebuildArray RebuildArrayRequest |r| line("array rebuild").needed(&r.name) => array(&r.name), r.dry_run;
    RenameArray RenameArrayRequest |r| line("array rename").needed(&r.name).choice("", &r.new_name, "OTHER")
        => array(&r.name), r.dry_run;
    GrowArray GrowArrayRequest |r| line("array grow").needed(&r.name).flag(r.force, "--force")
        => array(&r.name), r.dry_run, Force: force = true;
    UpgradeFormat UpgradeFormatRequest |r| line("array upgrade-format").needed(&r.name).flag(r.force, "--force")
        => array(&r.name), r.dry_run, Force: force = true;
    UndeleteArray UndeleteArrayRequest |r| line("array undelete").needed(&r.name).text("--drives", &escaped(&r.drives))
        => array(&r.name), r.dry_run;
    SetArray SetArrayRequest |r| line("array set")
        .needed(&r.name)
        .value("--rebuild-priority", r.rebuild_priority)
        .switch("--auto-replace", r.auto_replace)
        .switch("--auto-readd", r.auto_readd)
        .value("--replace-after-errors", r.replace_after_errors)
        .value("--report-at-wear", r.report_at_wear_percent)
        .value("--consistency", r.consistency.as_ref())
        .value("--scrub-every", r.scrub_every_s.map(every))
        .switch("--scrub-repair", r.scrub_repair) => array(&r.name), false;
    GetScrub GetScrubRequest |r| line("array scrub show").word(&r.name);
    StartScrub StartScrubRequest |r| line("array scrub start")
        .needed(&r.name)
        .flag(r.mode == "repair", "--repair")
        .flag(r.mode == "trust_data", "--trust-data") => array(&r.name), false;
    ChangeScrub ChangeScrubRequest |r| line("array scrub").word(&r.action).needed(&r.name) => array(&r.name), false;
    ListPools ListPoolsRequest |_r| line("pool list");
    GetPool GetPoolRequest |r| line("pool show").needed(&r.name);
    CreatePool CreatePoolRequest |r| line("pool create")
        .choice("", &r.name, "POOL")
        .choice("", &r.array, "ARRAY")
        .flag(r.overwrite, "--overwrite") => pool(&r.name), r.dry_run, Overwrite: overwrite = true;
    DestroyPool DestroyPoolRequest |r| line("pool destroy").needed(&r.name).flag(r.force, "--force")
        => pool(&r.name), r.dry_run, Force: force = true;
    ListVolumes ListVolumesRequest |r| line(if r.kind == "snapshot" { "snapshot list" } else { "volume list" })
        .word(&r.pool);
    GetVolume GetVolumeRequest |r| line("volume show").needed(&r.name);
    CreateVolume CreateVolumeRequest |r| line("volume create")
        .choice("", &r.name, "POOL/NAME")
        .choice("", &exact(r.size_bytes), "SIZE")
        .flag(r.thick, "--thick")
        .text("--quota", &exact(r.quota_bytes)) => volume(&r.name), r.dry_run;
    ResizeVolume ResizeVolumeRequest |r| line("volume resize")
        .needed(&r.name)
        .choice("", &exact(r.size_bytes), "SIZE")
        .flag(r.discard_tail, "--discard-tail") => volume(&r.name), r.dry_run;
    SetVolume SetVolumeRequest |r| line("volume set")
        .needed(&r.name)
        .flag(r.thick == Some(true), "--thick")
        .flag(r.thick == Some(false), "--thin")
        .value("--quota", r.quota_bytes.map(quota)) => volume(&r.name), false;
    RenameVolume RenameVolumeRequest |r| line("volume rename")
        .needed(&r.name)
        .choice("", &r.new_name, "NEW_NAME") => volume(&r.name), r.dry_run;
    DestroyVolume DestroyVolumeRequest |r| line("volume destroy").needed(&r.name) => volume(&r.name), r.dry_run;
    CreateSnapshots CreateSnapshotsRequest |r| line("snapshot create").words(&pairs(&r.snapshots))
        => volume(r.snapshots.first().map_or("", |new| new.volume.as_str())), r.dry_run;
    CloneSnapshot CloneSnapshotRequest |r| line("volume clone")
        .needed(&r.snapshot)
        .choice("", &r.name, "POOL/NAME") => volume(&r.name), r.dry_run;
    RollbackVolume RollbackVolumeRequest |r| line("snapshot rollback")
        .needed(&r.name)
        .choice("", &r.snapshot, "SNAPSHOT") => volume(&r.name), r.dry_run;
    SetQos SetQosRequest |r| line("qos set")
        .needed(&r.kind)
        .needed(&r.name)
        .value("--iops", r.iops.map(rate))
        .value("--read-iops", r.read_iops.map(rate))
        .value("--write-iops", r.write_iops.map(rate))
        .value("--bandwidth", r.bandwidth_bytes.map(quota))
        .value("--read-bandwidth", r.read_bandwidth_bytes.map(quota))
        .value("--write-bandwidth", r.write_bandwidth_bytes.map(quota))
        .number("--burst-ms", r.burst_ms) => qos(&r.kind, &r.name), r.dry_run;
    ListQos ListQosRequest |_r| line("qos list");
    GetQos GetQosRequest |r| line("qos show").needed(&r.kind).needed(&r.name);
    ClearQos ClearQosRequest |r| line("qos clear").needed(&r.kind).needed(&r.name)
        => qos(&r.kind, &r.name), r.dry_run;
    ListExports ListExportsRequest |_r| line("export list");
    CreateExport CreateExportRequest |r| line("export create")
        .needed(&r.array)
        .text("--name", &r.name)
        .either(if r.via.is_empty() { "--via nbd" } else { "" }, "")
        .text("--via", &r.via)
        .choice("--listen", &r.listen, "")
        .text("--nqn", &r.nqn)
        .each("--allow-host", &r.allow_hosts)
        .number("--namespace", r.namespace)
        .flag(r.secure, "--secure")
        .flag(r.insecure, "--insecure")
        .flag(r.read_only, "--read-only") => array(&r.array), false, Address: listen = "ADDRESS".to_owned();
    RemoveExport RemoveExportRequest |r| line("export remove").needed(&r.name).flag(r.force, "--force")
        => export(&r.name), false, Force: force = true;
    SetExport SetExportRequest |r| line("export set")
        .needed(&r.name)
        .each("--allow-host", &r.allow_hosts)
        .each("--deny-host", &r.deny_hosts)
        .flag(r.insecure, "--insecure") => export(&r.name), r.dry_run;
    ReleaseExport ReleaseExportRequest |r| line("export release").needed(&r.name) => export(&r.name), false;
    ListReferrals ListReferralsRequest |_r| line("export referral list");
    AddReferral AddReferralRequest |r| line("export referral add").needed(&r.address) => daemon(), false;
    RemoveReferral RemoveReferralRequest |r| line("export referral remove").needed(&r.address) => daemon(), false;
    ListHosts ListHostsRequest |_r| line("host list");
    AddHost AddHostRequest |r| line(if r.known { "host key" } else { "host add" })
        .needed(&r.nqn)
        .file("--secret-file", &r.secret)
        .flag(r.new_secret, "--new-secret")
        .file("--controller-secret-file", &r.controller_secret)
        .flag(r.new_controller_secret, "--new-controller-secret")
        .file("--tls-key-file", &r.tls_key)
        .flag(r.new_tls_key, "--new-tls-key")
        .flag(r.no_secret, "--no-secret")
        .flag(r.no_controller_secret, "--no-controller-secret")
        .flag(r.no_tls, "--no-tls")
        .value("--keep-old", (r.keep_old_seconds != 0).then(|| every(r.keep_old_seconds))) => daemon(), false;
    RemoveHost RemoveHostRequest |r| line("host remove").needed(&r.nqn) => daemon(), false;
    DisconnectHost DisconnectHostRequest |r| line("host disconnect").needed(&r.nqn) => daemon(), false;
    ListDrives ListDrivesRequest |_r| line("drive list");
    GetDriveHealth GetDriveHealthRequest |r| line("drive smart").needed(&r.path);
    ReadTelemetry ReadTelemetryRequest |r| line("drive telemetry")
        .needed(&r.path)
        .value("--file", Some("FILE"))
        .flag(r.controller, "--controller")
        .number("--area", r.area) => drive(&r.path), false;
    LocateDrive LocateDriveRequest |r| line("drive locate").needed(&r.path).flag(r.off, "--off")
        => drive(&r.path), false;
    CleanDrive CleanDriveRequest |r| line("drive clean").needed(&r.path).flag(r.accept_loss, "--accept-loss")
        => drive(&r.path), r.dry_run, AcceptLoss: accept_loss = true;
    FormatDrive FormatDriveRequest |r| line("drive format")
        .needed(&r.path)
        .value("--lbaf", r.lbaf)
        .number("--block-size", r.block_bytes)
        .text("--erase", &r.erase)
        .text("--serial", &r.serial)
        .flag(r.force, "--force") => drive(&r.path), r.dry_run, Force: force = true;
    SanitizeDrive SanitizeDriveRequest |r| line("drive sanitize")
        .needed(&r.path)
        .choice("--action", &r.action, "ACTION")
        .text("--serial", &r.serial)
        .flag(r.force, "--force") => drive(&r.path), r.dry_run, Force: force = true;
    GetFirmware GetFirmwareRequest |r| line("drive firmware").needed(&r.path);
    UpdateFirmware UpdateFirmwareRequest |r| line("drive firmware")
        .needed(&r.path)
        .value("--file", Some("FILE"))
        .number("--slot", r.slot)
        .text("--activate", &r.activate) => drive(&r.path), r.dry_run;
    TakeDrives TakeDrivesRequest |r| line("drive take").words(&r.drives)
        => drive(&r.drives.join(",")), r.dry_run;
    ReleaseDrives ReleaseDrivesRequest |r| line("drive release").words(&r.drives)
        => drive(&r.drives.join(",")), r.dry_run;
    ConnectDrive ConnectDriveRequest |r| line("drive connect")
        .needed(&r.address)
        .text("--host-nqn", &r.host_nqn)
        .number("--hold", r.hold_s)
        .file("--secret-file", &r.secret)
        .file("--controller-secret-file", &r.controller_secret)
        .file("--tls-key-file", &r.tls_key)
        .flag(r.take_over, "--take-over") => drive(&r.address), false;
    DiscoverDrives DiscoverDrivesRequest |r| line("drive discover")
        .needed(&r.address)
        .text("--host-nqn", &r.host_nqn)
        .file("--secret-file", &r.secret)
        .file("--controller-secret-file", &r.controller_secret)
        .file("--tls-key-file", &r.tls_key);
    DisconnectDrive DisconnectDriveRequest |r| line("drive disconnect").needed(&r.address) => drive(&r.address), false;
    AddSpare AddSpareRequest |r| line("spare add")
        .choice("", &r.drive, "DRIVE")
        .text("--array", &r.array)
        .flag(r.overwrite, "--overwrite") => drive(&r.drive), r.dry_run, Overwrite: overwrite = true;
    RemoveSpare RemoveSpareRequest |r| line("spare remove").needed(&r.drive) => drive(&r.drive), false;
    ListJobs ListJobsRequest |_r| line("job list");
    ChangeJob ChangeJobRequest |r| line("job").word(&r.action).needed(&r.id).value("--priority", r.priority)
        => array(r.id.split('/').next().unwrap_or_default()), false;
    ListEvents ListEventsRequest |r| line("event list").number("--last", r.last);
    ListAudit ListAuditRequest |r| line("log list")
        .number("--last", r.last)
        .value("--before", (r.before > 0).then_some(r.before))
        .value("--uid", r.uid)
        .text("--object", &r.object);
    VerifyAudit VerifyAuditRequest |r| line("log verify")
        .value("--entry", (r.number > 0 || !r.hash.is_empty()).then(|| format!("{}:{}", r.number, r.hash)));
    ListHooks ListHooksRequest |_r| line("hook list");
    AddHook AddHookRequest |r| line("hook add")
        .needed(&r.name)
        .value("--webhook-file", (r.kind == "webhook").then_some("FILE"))
        .value("--exec", (r.kind == "exec").then_some(&r.target))
        .value("--email", (r.kind == "email").then_some(&r.target))
        .value("--server-file", (r.kind == "email").then_some("FILE"))
        .value("--from", (r.kind == "email").then_some(&r.from))
        .text("--severity", &r.severity) => daemon(), false;
    RemoveHook RemoveHookRequest |r| line("hook remove").choice("", &r.name, "NAME") => daemon(), false;
    TestHook TestHookRequest |r| line("hook test").needed(&r.name) => daemon(), false;
    GetConfig GetConfigRequest |_r| line("config backup FILE");
    RestoreConfig RestoreConfigRequest |r| line("config restore FILE") => daemon(), r.dry_run;
}

/// The request that shows array `name`.
pub fn show(name: impl Display) -> api::GetArrayRequest {
    api::GetArrayRequest { name: name.to_string() }
}

/// The request that shows the scrub of array `name`.
pub fn show_scrub(name: impl Display) -> api::GetScrubRequest {
    api::GetScrubRequest { name: name.to_string() }
}

/// The request that waits until array `name` reaches `goal`.
pub fn await_goal(name: impl Display, goal: &str) -> api::AwaitArray {
    api::AwaitArray { name: name.to_string(), goal: goal.to_owned() }
}

/// The request that replaces `member` of array `array` by `drive`. If `member` is `None` or `drive` is empty, the
/// operator has to choose the value.
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
