//! Errors in the description of a drive. The crate `block` defines I/O errors.

use std::fmt;

/// The reason why a [`Profile`](crate::Profile) is not valid for a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileError {
    /// The queue depth is 0.
    NoDepth,
    /// A tail latency is below the usual latency.
    TailBelowLatency,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoDepth => "a drive profile needs a queue depth of at least 1",
            Self::TailBelowLatency => {
                "a drive profile's tail latency is at least as long as its latency; swap the two"
            }
        })
    }
}

impl std::error::Error for ProfileError {}
