//! The reasons why a hook was refused or could not deliver.

use std::fmt;

/// The kind of an error, on which callers decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlertErrorKind {
    /// The hook is invalid.
    Usage,
    /// Another hook has this name.
    Exists,
    /// No hook has this name.
    NotFound,
    /// The maximum number of hooks is reached.
    TooMany,
    /// The test event did not arrive.
    Delivery,
    /// The thread that delivers could not be started.
    System,
    /// Alerts were stopped.
    Stopped,
}

/// A kind to match, and a text for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertError {
    /// The kind, on which callers decide.
    pub kind: AlertErrorKind,
    /// The failed operation, its object, the reason, and the remedy. Never contains credentials.
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

/// The reason why one attempt of a delivery failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Whether another attempt may succeed.
    pub again: Again,
    /// The text for the operator. Never contains credentials.
    pub what: String,
}

/// Whether an attempt is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// The peer could not be reached, or reported an error of its own.
    Yes,
    /// The peer refused the message and would refuse it again.
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
