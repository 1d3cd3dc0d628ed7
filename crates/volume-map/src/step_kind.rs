//! The kinds of steps, for errors and for tables.

use std::fmt;

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// [`Step::Write`](crate::Step::Write).
    Write,
    /// [`Step::Read`](crate::Step::Read).
    Read,
    /// [`Step::Copy`](crate::Step::Copy).
    Copy,
    /// [`Step::Hold`](crate::Step::Hold).
    Hold,
    /// [`Step::Flush`](crate::Step::Flush).
    Flush,
    /// [`Step::Pace`](crate::Step::Pace).
    Pace,
    /// [`Step::WriteRoot`](crate::Step::WriteRoot).
    WriteRoot,
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Copy => "copy",
            Self::Hold => "hold of new writes",
            Self::Flush => "flush",
            Self::Pace => "pace step",
            Self::WriteRoot => "write of a root",
        })
    }
}
