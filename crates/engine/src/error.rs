//! Errors of arrays.

use std::fmt;
use strake_block::{DeviceError, IoError, IoErrorKind};
use strake_raid::GeometryError;
use strake_units::{ByteSize, MemberIndex, Name, Uuid};

use crate::assemble::policy::AssemblePolicy;

/// The kind of an error, for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArrayErrorKind {
    /// The request is invalid: for example, a wrong number of drives, a wrong strip size, or a repeated drive.
    Usage,
    /// The state of a drive or member does not allow the operation.
    State,
    /// The operation would lose data, or data may already be lost, and the operator has not accepted the loss.
    Refused,
    /// A device failed.
    Device,
    /// A device did not answer in time, or still has outstanding requests of an earlier use.
    Silent,
    /// The array or its cores were stopped.
    Gone,
}

/// The remedy of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayRemedy {
    /// Alternatively, start this array without the missing members.
    StartWithout(Name),
    /// Start this array with this policy.
    Start(Name, AssemblePolicy),
    /// Replace the member of this array by another drive.
    Replace(Name, MemberIndex),
}

impl ArrayRemedy {
    /// True if the remedy requires that the operator accepts a loss.
    #[must_use]
    pub fn accepts_loss(&self) -> bool {
        matches!(self, Self::Start(_, policy) if policy.accept_loss)
    }
}

/// The error of an operation on an array: a kind to match, and a text for the operator.
#[derive(Debug)]
pub struct ArrayError {
    /// The kind of the error.
    pub kind: ArrayErrorKind,
    /// The text: the failed operation, the object, the reason and the remedy, without the command.
    pub what: String,
    /// The remedy, from which `strake-control` derives the command.
    pub remedy: Option<Box<ArrayRemedy>>,
    /// The array of a label that this version does not support; `None` for other errors.
    pub array: Option<Uuid>,
}

impl ArrayError {
    /// Creates an error of `kind` with the text `what`.
    pub fn new(kind: ArrayErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), remedy: None, array: None }
    }

    pub(crate) fn with(self, remedy: ArrayRemedy) -> Self {
        Self { remedy: Some(Box::new(remedy)), ..self }
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(ArrayErrorKind::Usage, what)
    }

    pub(crate) fn refused(what: impl Into<String>) -> Self {
        Self::new(ArrayErrorKind::Refused, what)
    }

    pub(crate) fn state(what: impl Into<String>) -> Self {
        Self::new(ArrayErrorKind::State, what)
    }

    pub(crate) fn gone(array: &Name) -> Self {
        Self::new(ArrayErrorKind::Gone, format!("array {array} is not running"))
    }

    pub(crate) fn io(path: &str, doing: &str, error: IoError) -> Self {
        Self::new(kind_of(error.kind), format!("{path}: {doing} failed: {error}"))
    }

    pub(crate) fn too_small(path: &str, slot: MemberIndex, has: u64, needs: u64) -> Self {
        Self::usage(format!(
            "{path} is too small for member {slot}: it has {has} bytes, the array needs {needs} ({}); use a drive at \
             least as large",
            ByteSize(needs)
        ))
    }
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for ArrayError {}

impl From<GeometryError> for ArrayError {
    fn from(error: GeometryError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<DeviceError> for ArrayError {
    fn from(error: DeviceError) -> Self {
        Self::new(kind_of(error.kind), error.to_string())
    }
}

fn kind_of(kind: IoErrorKind) -> ArrayErrorKind {
    if kind == IoErrorKind::Timeout { ArrayErrorKind::Silent } else { ArrayErrorKind::Device }
}

#[cfg(test)]
mod tests {
    use super::{ArrayError, ArrayErrorKind};
    use strake_block::{DeviceError, IoError, IoErrorKind};

    #[test]
    fn a_device_that_does_not_answer_is_distinguished_from_one_that_fails() {
        let check = |io, kind| {
            assert_eq!(ArrayError::io("d", "reading it", IoError::new(io)).kind, kind, "{io:?}");
            let refused = DeviceError::new(io, "d", "is not opened");
            assert_eq!(ArrayError::from(refused).kind, kind, "{io:?}");
        };
        check(IoErrorKind::Timeout, ArrayErrorKind::Silent);
        check(IoErrorKind::Device, ArrayErrorKind::Device);
        check(IoErrorKind::Gone, ArrayErrorKind::Device);
        check(IoErrorKind::Medium, ArrayErrorKind::Device);
    }
}
