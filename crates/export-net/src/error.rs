//! Why a service could not start.

use std::fmt;
use std::io;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceErrorKind {
    /// There is no data core, or one has stopped.
    Stopped,
    /// The machine lacks a thread, file descriptor or the like.
    System,
}

/// Why a service could not start: a kind to match and a sentence for a person.
#[derive(Debug)]
pub struct ServiceError {
    /// What to decide on.
    pub kind: ServiceErrorKind,
    /// What failed, on what and why, without a final stop.
    pub what: String,
    /// The operating system's error behind it.
    pub source: Option<io::Error>,
}

impl ServiceError {
    pub(crate) const fn stopped(what: String) -> Self {
        Self { kind: ServiceErrorKind::Stopped, what, source: None }
    }

    pub(crate) const fn system(what: String, source: io::Error) -> Self {
        Self { kind: ServiceErrorKind::System, what, source: Some(source) }
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ServiceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
