//! Drives that could not be taken from the kernel again yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// What is known of drives that are to be taken later.
#[derive(Debug, Default)]
pub(crate) struct LateTakes {
    /// When they were last tried.
    pub(crate) last: Option<Instant>,
    /// Drives that did not come up.
    pub(crate) failed: BTreeSet<String>,
    /// The reason of each drive that was last reported.
    pub(crate) reported: BTreeMap<String, String>,
    /// Block devices that appeared, and belong to drives that are taken soon: arrays do not use them before.
    pub(crate) held_back: BTreeSet<String>,
}
