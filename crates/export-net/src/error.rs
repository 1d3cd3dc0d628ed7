//! Errors of an export service.

use std::fmt;
use std::io;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExportErrorKind {
    /// The address or the kind of listening is invalid.
    BadAddress,
    /// The kernel rejected the listening socket.
    Listen,
    /// A property of an export is invalid.
    BadExport,
    /// Its reservations cannot be read.
    BadReservations,
    /// A property of a referral is invalid.
    BadReferral,
    /// An export of this name already exists.
    Duplicate,
    /// There is no export of this name.
    Unknown,
    /// Clients are connected to the export.
    InUse,
    /// A limit of the service is reached.
    TooMany,
    /// The I/O in flight did not complete in time.
    DrainTimeout,
    /// The service, or one of its data cores, has stopped.
    Stopped,
    /// The operating system lacks a resource such as a thread or file descriptor.
    System,
}

/// The error of an export service: a kind to match and a sentence for the operator.
#[derive(Debug)]
pub struct ExportError {
    /// The kind, for decisions of the caller.
    pub kind: ExportErrorKind,
    /// The failure, its object, its reason and the remedy, without a final stop.
    pub what: String,
    /// The underlying error of the operating system.
    pub source: Option<io::Error>,
}

impl ExportError {
    /// Creates an error without an underlying error.
    pub fn new(kind: ExportErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    /// Creates an error with an underlying error of the operating system.
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
