//! Records of arrays.

use serde::{Deserialize, Serialize};

use super::{ExportRecord, HostRecord, Settings};

/// The record of an array, with the last known paths of its drives. The labels on the drives decide; the paths are
/// only hints for the search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayRecord {
    /// Identity of the array.
    pub uuid: String,
    /// Name of the array.
    pub name: String,
    /// Paths of the drives.
    pub drives: Vec<String>,
    /// Settings of the array.
    #[serde(default)]
    pub settings: Settings,
    /// History and schedule of scrubs.
    #[serde(default)]
    pub scrub: ScrubRecord,
    /// Exports that the members recorded at the import, and that are not created here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_exports: Vec<ExportRecord>,
    /// Hosts of these exports that need a secret or a key, without their secrets. They are locked when such an export
    /// is created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_hosts: Vec<HostRecord>,
    /// Members that are being copied to other drives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<CopyRecord>,
    /// Members that were given up because they did not answer, and are taken back when they do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentRecord>,
    /// Identities of members whose replacement an operator cancelled. No spare replaces them while they serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<String>,
}

/// A member that was given up because its drive did not answer in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SilentRecord {
    /// Slot of the member.
    pub slot: u8,
    /// Identity of the member.
    pub member: String,
    /// The last known path of its drive.
    pub path: String,
}

/// A member that is being copied to its replacement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyRecord {
    /// Slot of the member.
    pub slot: u8,
    /// Identity of the member.
    pub member: String,
    /// The last known path of the replacement.
    pub path: String,
    /// Identity of the medium of the replacement.
    pub identity: String,
}

/// The scrubs of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScrubRecord {
    /// Start of the present interval of the schedule, in microseconds since 1970; 0 before the first check.
    pub since_us: u64,
    /// End of the last complete scrub, in microseconds since 1970; 0 without one.
    pub ended_us: u64,
    /// The scrub in progress.
    pub under_way: Option<UnderWay>,
    /// Bytes that the last complete scrub found wrong and did not repair. They count until the end of the next complete
    /// scrub.
    pub left_bytes: u64,
}

/// An unfinished scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnderWay {
    /// The mode of the scrub.
    pub mode: ScrubAim,
    /// True if the operator paused the scrub.
    #[serde(default)]
    pub paused: bool,
    /// True if the schedule started the scrub.
    #[serde(default)]
    pub scheduled: bool,
    /// Start of the scrub, in microseconds since 1970, which identifies the scrub of a recorded position.
    #[serde(default)]
    pub begun_us: u64,
}

/// The recorded mode of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubAim {
    /// The scrub only reports.
    Check,
    /// The scrub rewrites strips that are known to be wrong.
    Repair,
    /// The scrub also makes parity and copies match the data as read.
    TrustData,
}
