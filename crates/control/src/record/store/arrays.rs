//! Arrays as they are recorded.

use serde::{Deserialize, Serialize};

use super::{ExportRecord, HostRecord, Settings};

/// An array and where its drives were last seen. The labels on the drives decide; this says where to look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayRecord {
    /// Its identity.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Paths of its drives.
    pub drives: Vec<String>,
    /// How it behaves.
    #[serde(default)]
    pub settings: Settings,
    /// When it was scrubbed.
    #[serde(default)]
    pub scrub: ScrubRecord,
    /// Exports that its members recorded when it was imported, and that are not offered here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_exports: Vec<ExportRecord>,
    /// Hosts of these exports that need a secret or a key, without it. They are locked when such an export is offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_hosts: Vec<HostRecord>,
    /// Members that are being copied to other drives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<CopyRecord>,
    /// Members that were given up because they did not answer, and are taken back when they do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentRecord>,
}

/// A member that was given up because its drive did not answer in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SilentRecord {
    /// The member's place.
    pub slot: u8,
    /// Identity of the member.
    pub member: String,
    /// Where its drive was last seen.
    pub path: String,
}

/// A member that is being copied to another drive, whose place that takes then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyRecord {
    /// The member's place.
    pub slot: u8,
    /// Identity of the member that is copied.
    pub member: String,
    /// Where the other drive was last seen.
    pub path: String,
    /// What identifies its medium.
    pub identity: String,
}

/// When an array was scrubbed, and what is being done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScrubRecord {
    /// The schedule counts from here, in microseconds since 1970; 0 before the first look.
    pub since_us: u64,
    /// When the last whole scrub ended, in microseconds since 1970; 0 when there was none.
    pub ended_us: u64,
    /// The scrub that is under way.
    pub under_way: Option<UnderWay>,
    /// Bytes that the last whole scrub found wrong and left so. They count until the next whole one has ended.
    pub left_bytes: u64,
}

/// A scrub that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnderWay {
    /// What it does.
    pub mode: ScrubAim,
    /// The operator paused it.
    #[serde(default)]
    pub paused: bool,
    /// The schedule began it.
    #[serde(default)]
    pub scheduled: bool,
    /// When it was begun, in microseconds since 1970: which scrub a recorded position is of.
    #[serde(default)]
    pub begun_us: u64,
}

/// What a scrub does about what it finds, as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubAim {
    /// It reports.
    Check,
    /// It rewrites what is known to be wrong.
    Repair,
    /// It also makes parity and copies agree with the data as read.
    TrustData,
}
