//! Why an export service could not do what was asked of it.

use std::fmt;
use std::io;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExportErrorKind {
    /// The address or the way of listening is not acceptable.
    BadAddress,
    /// The kernel did not let us listen.
    Listen,
    /// Something about an export is not acceptable.
    BadExport,
    /// Its reservations cannot be read.
    BadReservations,
    /// Something about a referral is not acceptable.
    BadReferral,
    /// There is an export of that name already.
    Duplicate,
    /// There is no export of that name.
    Unknown,
    /// Clients are connected to the export.
    InUse,
    /// A limit of the service is reached.
    TooMany,
    /// The device did not complete what was in flight in time.
    DrainTimeout,
    /// The service, or a data core it runs on, has stopped.
    Stopped,
    /// The machine lacks a thread, file descriptor or the like.
    System,
}

/// Why an export service could not do what was asked of it: a kind to match and a sentence for a person.
#[derive(Debug)]
pub struct ExportError {
    /// What to decide on.
    pub kind: ExportErrorKind,
    /// What failed, on what, why, and what to do, without a final stop.
    pub what: String,
    /// The operating system's error behind it.
    pub source: Option<io::Error>,
}

impl ExportError {
    /// One that has no other error behind it.
    pub fn new(kind: ExportErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    /// One with the operating system's error behind it.
    pub fn system(kind: ExportErrorKind, what: impl Into<String>, source: io::Error) -> Self {
        Self { kind, what: what.into(), source: Some(source) }
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ExportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
