//! Findings about the drive of a member that is out.

use std::fs;
use std::os::unix::fs::MetadataExt;

use strake_units::Uuid;

use crate::drives::PathKey;

/// Findings about the drive of a member that is out.
pub(crate) struct Prospect {
    pub(crate) member: Uuid,
    pub(crate) path: String,
    /// The reason why the member would not be re-added, if any.
    pub(crate) refusal: Option<String>,
}

/// The object at a path and the state of the array. While neither changes, no new check is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    key: PathKey,
    /// For a file, its size and its modification time. This daemon does not write to a member that is out.
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
