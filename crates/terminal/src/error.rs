//! What can fail when an answer is printed.

use std::fmt;
use std::io;

/// What could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The answer, to standard output.
    Answer,
    /// A manual page.
    Manual,
}

/// An error with the sentence that is printed.
#[derive(Debug)]
pub struct Error {
    /// What to match on.
    pub kind: ErrorKind,
    /// What could not be done, and where.
    pub what: String,
    /// The reason that the system gave.
    pub source: io::Error,
}

impl Error {
    /// The answer could not be written.
    #[must_use]
    pub fn answer(source: io::Error) -> Self {
        let what = "cannot write the answer to standard output".to_owned();
        Self { kind: ErrorKind::Answer, what, source }
    }
}

impl Error {
    /// Whether the reader of standard output has gone, for example `head`. It has read all that it wanted.
    #[must_use]
    pub fn is_reader_gone(&self) -> bool {
        self.kind == ErrorKind::Answer && self.source.kind() == io::ErrorKind::BrokenPipe
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
