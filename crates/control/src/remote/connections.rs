//! What is being done about recorded remote drives.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::limits::{REMOTE_RETRY_MAX, REMOTE_RETRY_MIN};
use crate::record::store::RemoteRecord;
use crate::remote::losses::Reported;

/// What is being done about recorded drives.
#[derive(Default)]
pub(crate) struct Remotes {
    /// Addresses that a thread connects to just now.
    pub(crate) connecting: BTreeSet<String>,
    /// Those of which the last try has failed.
    pub(crate) failed: BTreeMap<String, Failed>,
    /// Reserved for drives that were forgotten while they were being connected: it is to be given up.
    pub(crate) orphans: Vec<RemoteRecord>,
    pub(crate) reported: Reported,
}

/// A recorded drive that could not be connected.
pub(crate) struct Failed {
    pub(crate) why: String,
    /// When it is tried again, and how long was waited for that.
    pub(crate) next: Instant,
    back_off: Duration,
}

impl Failed {
    pub(crate) fn after(before: Option<&Self>, why: String) -> Self {
        let back_off = before.map_or(REMOTE_RETRY_MIN, |b| b.back_off * 2).min(REMOTE_RETRY_MAX);
        Self { why, next: Instant::now() + back_off, back_off }
    }
}
