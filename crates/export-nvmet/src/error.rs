//! Why the target could not do what it was told.

use std::fmt;
use std::io;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetErrorKind {
    /// The kernel did not let us listen.
    Listen,
    /// Something about an export is not acceptable.
    BadExport,
    /// Its reservations cannot be read.
    BadReservations,
    /// Something about a referral is not acceptable.
    BadReferral,
    /// There is an export of that NQN already.
    Duplicate,
    /// There is no export of that NQN.
    Unknown,
    /// Hosts are connected to the export.
    InUse,
    /// A limit of this target is reached.
    TooMany,
    /// The device did not complete what was in flight in time.
    DrainTimeout,
    /// The target, or a data core it runs on, has stopped.
    Stopped,
    /// The machine lacks a thread, file descriptor or the like.
    System,
}

/// Why the target could not do what it was told: a kind to match and a sentence for a person.
#[derive(Debug)]
pub struct TargetError {
    /// What to decide on.
    pub kind: TargetErrorKind,
    /// What failed, on what, why, and what to do, without a final stop.
    pub what: String,
    /// The operating system's error behind it.
    pub source: Option<io::Error>,
}

impl TargetError {
    pub(crate) fn new(kind: TargetErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    pub(crate) fn system(
        kind: TargetErrorKind,
        what: impl Into<String>,
        source: io::Error,
    ) -> Self {
        Self { kind, what: what.into(), source: Some(source) }
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TargetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
