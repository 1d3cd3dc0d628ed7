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
    pub(crate) held_back: BTreeMap<String, Held>,
}

/// A block device that arrays do not use yet.
#[derive(Debug)]
pub(crate) struct Held {
    /// Serial number of its drive.
    pub(crate) serial: String,
    /// Rounds of upkeep since it appeared.
    pub(crate) rounds: u32,
    /// Why the drive could not be taken so far. It is reported when arrays may use the block device.
    pub(crate) why: Option<String>,
}
