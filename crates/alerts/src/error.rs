//! Why a hook was refused or could not deliver.

use std::fmt;

/// What to decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlertErrorKind {
    /// The hook makes no sense as put.
    Usage,
    /// There is another hook of that name.
    Exists,
    /// There is no hook of that name.
    NotFound,
    /// There are as many hooks as there may be.
    TooMany,
    /// The test event did not arrive.
    Delivery,
    /// The thread that delivers could not be started.
    System,
    /// Alerts were stopped.
    Stopped,
}

/// A kind to match and words for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertError {
    /// What to decide on.
    pub kind: AlertErrorKind,
    /// What failed, on what, why, and what to do. Never contains credentials.
    pub what: String,
}

impl AlertError {
    pub(crate) fn new(kind: AlertErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into() }
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(AlertErrorKind::Usage, what)
    }
}

impl fmt::Display for AlertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for AlertError {}

/// Why one try of a delivery failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Whether the same again may succeed.
    pub again: Again,
    /// For a person; never contains credentials.
    pub what: String,
}

/// Whether a try is worth repeating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// The other side was not there, or said that it is its own fault.
    Yes,
    /// It understood and refused: it would refuse again.
    No,
}

impl Failure {
    pub(crate) fn passing(what: impl Into<String>) -> Self {
        Self { again: Again::Yes, what: what.into() }
    }

    pub(crate) fn lasting(what: impl Into<String>) -> Self {
        Self { again: Again::No, what: what.into() }
    }
}
