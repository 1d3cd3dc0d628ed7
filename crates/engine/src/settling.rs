//! When an array may be started after a daemon that did not end in order.
//!
//! A remote device may execute a request after the end of the process that sent it, until its association has ended and
//! it has noticed that ([`BlockDevice::settle_time`]). A start that reads before that and writes afterwards
//! resynchronizes from old contents; a write that was acknowledged since may be undone. So nothing is read and nothing
//! written for a start before [`wait_until`]. Devices of this machine need no wait: requests in flight keep the claim
//! on them, and no other process opens them before.

use strake_block::{BlockDevice, SETTLE_TIME_MAX};
use strake_ondisk::{COMPAT_REMOTE, Superblock};
use strake_units::{Nanos, Uuid};

/// A drive that an array is to be started from.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its label.
    pub label: &'a Superblock,
    /// Its [`settle_time`](BlockDevice::settle_time).
    pub settle_time: Nanos,
    /// When requests of a known earlier user of it are over, on the monotonic clock; `None` when none is known.
    pub settled_at: Option<Nanos>,
}

/// How much is known of the activation that the newest label names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastUse {
    /// This process opened it: its devices know of every request themselves.
    Ours,
    /// An earlier process opened it whose associations are recorded: [`Candidate::settled_at`] says all there is.
    Recorded,
    /// Another process or machine opened it, which was first seen at this time, when it may have been at work.
    Unknown {
        /// The time, on the monotonic clock.
        first_seen: Nanos,
    },
}

/// When an array may be started from these drives, on the monotonic clock; `None` when at once. `last_use` answers for
/// the epoch of the newest label.
pub fn wait_until(
    drives: &[Candidate<'_>],
    last_use: impl FnOnce(Uuid) -> LastUse,
) -> Option<Nanos> {
    let recorded = drives.iter().filter_map(|drive| drive.settled_at).max();
    let newest = drives.iter().map(|drive| drive.label).max_by_key(|label| label.generation)?;
    let remote = newest.compat & COMPAT_REMOTE != 0
        || drives.iter().any(|drive| drive.settle_time > Nanos(0));
    if !remote || newest.clean {
        // After an orderly stop nothing of the array is under way; other use of its drives is in the records.
        return recorded;
    }
    match last_use(newest.epoch) {
        LastUse::Ours | LastUse::Recorded => recorded,
        LastUse::Unknown { first_seen } => recorded.max(Some(first_seen.plus(SETTLE_TIME_MAX))),
    }
}

/// The mark of a label whose array uses these devices: [`COMPAT_REMOTE`] when one of them is remote.
pub(crate) fn mark<'a>(devices: impl IntoIterator<Item = &'a dyn BlockDevice>) -> u64 {
    let remote = devices.into_iter().any(|device| device.settle_time() > Nanos(0));
    if remote { COMPAT_REMOTE } else { 0 }
}

#[cfg(test)]
mod tests;
