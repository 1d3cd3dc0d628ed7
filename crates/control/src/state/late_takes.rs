//! Drives that could not be taken from the kernel again yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The state of drives to take later.
#[derive(Debug, Default)]
pub(crate) struct LateTakes {
    /// Time of the last attempt.
    pub(crate) last: Option<Instant>,
    /// Drives that did not become ready.
    pub(crate) failed: BTreeSet<String>,
    /// The last reported reason of each drive.
    pub(crate) reported: BTreeMap<String, String>,
    /// Block devices that appeared and belong to drives that will be taken soon. Arrays do not use them before.
    pub(crate) held_back: BTreeMap<String, Held>,
}

/// A block device that arrays do not use yet.
#[derive(Debug)]
pub(crate) struct Held {
    /// Serial number of its drive.
    pub(crate) serial: String,
    /// Rounds of upkeep since it appeared.
    pub(crate) rounds: u32,
    /// The reason why the drive could not be taken. It is reported when arrays may use the block device.
    pub(crate) why: Option<String>,
}
