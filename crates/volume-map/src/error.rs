//! The reasons why an operation, a record or an image is refused.

use std::fmt;

use crate::ids::VolumeId;
use crate::step_kind::StepKind;

/// The kind of a refusal, for decisions of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No volume has this identifier, or the volume is being deleted.
    NoVolume,
    /// A snapshot does not change.
    ReadOnly,
    /// The source of a clone or of a rollback is no snapshot.
    NoSnapshot,
    /// The record of a new volume is not stable, or I/Os from before the cut of a snapshot are in progress.
    NotReported,
    /// Another volume has this name.
    NameTaken,
    /// Blocks beyond the end of the volume, or no block.
    OutOfRange,
    /// The snapshot is of a volume that shares no leaves with this one.
    OtherFamily,
    /// The sizes of the snapshot and the volume differ.
    SizeDiffers {
        /// Blocks of the volume.
        volume: u64,
        /// Blocks of the snapshot.
        snapshot: u64,
    },
    /// A smaller size discards blocks, and the request does not permit this.
    DiscardsTail,
    /// No cluster is free.
    NoSpace,
    /// Reserved clusters would no longer be free.
    Reserved {
        /// Clusters that are missing.
        missing: u64,
    },
    /// The quota of the volume is reached, in clusters.
    Quota {
        /// The quota.
        clusters: u64,
    },
    /// A step of the operation failed. Its own writes may exist in part; earlier acknowledged changes exist.
    StepFailed {
        /// The kind of the step.
        step: StepKind,
    },
    /// A record cannot be written: the map serves only reads. The next start shows whether the change was made.
    LogFailed,
    /// The driver cancelled the operation before it was recorded.
    Cancelled,
    /// A limit of this program.
    Limit {
        /// The limited object.
        what: &'static str,
        /// The limit.
        most: u64,
    },
    /// A new number of rings, or a new pool: both roots must be written first.
    RootFirst,
    /// A field of a record or image has an impossible value.
    Field {
        /// The field.
        name: &'static str,
        /// Its value.
        recorded: u64,
    },
    /// A record or image ends in the middle of a field.
    Truncated {
        /// The field.
        name: &'static str,
    },
    /// The CRC-32C of a record or image does not match: it is torn or damaged.
    Checksum,
    /// The magic is missing: the data are no image.
    Magic,
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Error {
    /// The kind of the refusal.
    pub kind: ErrorKind,
    /// The affected volume.
    pub volume: Option<VolumeId>,
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, volume: None }
    }
}

impl ErrorKind {
    /// Returns a refusal for a volume.
    pub(crate) const fn of(self, volume: VolumeId) -> Error {
        Error { kind: self, volume: Some(volume) }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVolume => f.write_str("it does not exist"),
            Self::ReadOnly => f.write_str("a snapshot does not change; make a clone"),
            Self::NoSnapshot => f.write_str("it is no snapshot; make a snapshot first"),
            Self::NotReported => f.write_str("its creation is in progress; repeat the request"),
            Self::NameTaken => f.write_str("another volume has this name; choose another"),
            Self::OutOfRange => f.write_str("these blocks are not in the volume"),
            Self::OtherFamily => {
                f.write_str("the snapshot is of another volume; make a clone of it")
            }
            Self::SizeDiffers { volume, snapshot } => {
                write!(f, "it has {volume} blocks and the snapshot {snapshot}; resize it first")
            }
            Self::DiscardsTail => {
                f.write_str("a smaller size discards the blocks at the end; permit this")
            }
            Self::NoSpace => f.write_str("no cluster is free; delete snapshots or discard blocks"),
            Self::Reserved { missing } => {
                write!(f, "{missing} more clusters must be free for reservations")
            }
            Self::Quota { clusters } => write!(f, "its quota of {clusters} clusters is reached"),
            Self::StepFailed { step } => write!(f, "a {step} failed; repeat the request"),
            Self::LogFailed => {
                f.write_str("its log cannot be written; only reads are served until the next start")
            }
            Self::Cancelled => f.write_str("it was cancelled; repeat the request"),
            Self::Limit { what, most } => write!(f, "more than {most} {what}"),
            Self::RootFirst => f.write_str("no root describes these rings; write two checkpoints"),
            Self::Field { name, recorded } => write!(f, "field {name} has the value {recorded}"),
            Self::Truncated { name } => write!(f, "ends in field {name}"),
            Self::Checksum => f.write_str("the CRC-32C does not match"),
            Self::Magic => f.write_str("the magic is missing"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.volume {
            Some(volume) => write!(f, "volume {volume}: {}", self.kind),
            None => write!(f, "volume map: {}", self.kind),
        }
    }
}

impl std::error::Error for Error {}
