//! The time from which an array may be started after an unclean end of a daemon.
//!
//! A remote device may execute a request after the end of the process that sent it, until its association has ended and
//! the device has noticed this ([`BlockDevice::settle_time`]). A start that reads before this time and writes
//! afterwards would resynchronize from old contents, and a write that was acknowledged since might be undone. Therefore
//! a start reads and writes nothing before [`wait_until`]. Local devices need no wait: requests in progress keep the
//! claim on the device, and no other process can open it before they complete.

use strake_block::{BlockDevice, SETTLE_TIME_MAX};
use strake_ondisk::{COMPAT_REMOTE, Superblock};
use strake_units::{Nanos, Uuid};

/// A drive for the start of an array.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Label of the drive.
    pub label: &'a Superblock,
    /// [`settle_time`](BlockDevice::settle_time) of the drive.
    pub settle_time: Nanos,
    /// Time at which requests of a known earlier user have ended, on the monotonic clock; `None` without a known user.
    pub settled_at: Option<Nanos>,
}

/// Knowledge about the activation that the newest label names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastUse {
    /// This process opened the activation, and its devices track every request.
    Ours,
    /// An earlier process with recorded associations opened the activation. [`Candidate::settled_at`] is complete.
    Recorded,
    /// Another process or host opened the activation. It may have been active when the activation was first seen.
    Unknown {
        /// The time of the first sight, on the monotonic clock.
        first_seen: Nanos,
    },
}

/// Returns the time from which an array may be started from these drives, on the monotonic clock; `None` if
/// immediately. `last_use` describes the epoch of the newest label.
pub fn wait_until(
    drives: &[Candidate<'_>],
    last_use: impl FnOnce(Uuid) -> LastUse,
) -> Option<Nanos> {
    let recorded = drives.iter().filter_map(|drive| drive.settled_at).max();
    let newest = drives.iter().map(|drive| drive.label).max_by_key(|label| label.generation)?;
    let remote = newest.compat & COMPAT_REMOTE != 0
        || drives.iter().any(|drive| drive.settle_time > Nanos(0));
    if !remote || newest.clean {
        // After a clean shutdown, no request of the array is in progress. The records contain other uses of its drives.
        return recorded;
    }
    match last_use(newest.epoch) {
        LastUse::Ours | LastUse::Recorded => recorded,
        LastUse::Unknown { first_seen } => recorded.max(Some(first_seen.plus(SETTLE_TIME_MAX))),
    }
}

/// Returns the bits of a label whose array uses these devices: [`COMPAT_REMOTE`] if one of them is remote.
pub(crate) fn mark<'a>(devices: impl IntoIterator<Item = &'a dyn BlockDevice>) -> u64 {
    let remote = devices.into_iter().any(|device| device.settle_time() > Nanos(0));
    if remote { COMPAT_REMOTE } else { 0 }
}

#[cfg(test)]
mod tests;
