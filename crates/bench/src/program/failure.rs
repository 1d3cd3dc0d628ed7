//! Why a command cannot be executed.

use std::fmt;
use std::io;

/// The exit code of a command that cannot be executed as given. `strake` has the same codes.
pub const USAGE: u8 = 3;
/// The exit code of a command whose outcome is unknown: a file or standard output cannot be used.
pub const UNKNOWN: u8 = 4;

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The command line asks for something that cannot be done as given.
    Usage,
    /// The operating system refused something.
    Io(io::ErrorKind),
}

/// A failure with the sentence that is printed: what failed, on what, why, what to do.
#[derive(Debug)]
pub struct Failure {
    /// What to match on.
    pub kind: FailureKind,
    /// What to print.
    pub text: String,
}

impl Failure {
    /// A failure that the operator can fix.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { kind: FailureKind::Usage, text: text.into() }
    }

    /// `what` could not be done for the reason that the system gave.
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        Self { kind: FailureKind::Io(error.kind()), text: format!("{what}: {error}") }
    }

    /// What the process ends with because of this failure.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self.kind {
            FailureKind::Usage => USAGE,
            FailureKind::Io(_) => UNKNOWN,
        }
    }
}

impl From<strake_terminal::Error> for Failure {
    fn from(error: strake_terminal::Error) -> Self {
        Self::io(&error.what, &error.source)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}
