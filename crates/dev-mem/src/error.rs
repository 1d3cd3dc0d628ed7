//! What can be wrong with the description of a drive. I/O errors are `block`'s.

use std::fmt;

/// Why a [`Profile`](crate::Profile) cannot be a drive's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileError {
    /// The queue depth is 0.
    NoDepth,
    /// A tail latency is below the latency it is the tail of.
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
