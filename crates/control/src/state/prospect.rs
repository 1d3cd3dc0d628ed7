//! What is known of the drive of a member that is out.

use std::fs;
use std::os::unix::fs::MetadataExt;

use strake_units::Uuid;

use crate::drives::PathKey;

/// What was found out about the drive of a member that is out.
pub(crate) struct Prospect {
    pub(crate) member: Uuid,
    pub(crate) path: String,
    /// Why it would not be taken back, if so.
    pub(crate) refusal: Option<String>,
}

/// What is at a path, and what the array is like: while neither changes, there is nothing new to find out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    key: PathKey,
    /// Of a file: its size and when it was last changed. A member that is out is not written by us.
    changed: (u64, i64, i64),
    generation: u64,
}

impl Sight {
    pub(crate) fn of(path: &str, key: PathKey, generation: u64) -> Self {
        let file = fs::metadata(path).ok().filter(fs::Metadata::is_file);
        let changed = file.map(|meta| (meta.size(), meta.ctime(), meta.ctime_nsec()));
        Self { key, changed: changed.unwrap_or_default(), generation }
    }
}
