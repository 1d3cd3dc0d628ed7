//! Attempts to connect to recorded remote drives: those in progress, those that failed, and when the next one is due.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::limits::{REMOTE_RETRY_MAX, REMOTE_RETRY_MIN};
use crate::record::store::RemoteRecord;
use crate::remote::losses::Reported;

/// The state of the connections to recorded drives.
#[derive(Default)]
pub(crate) struct Remotes {
    /// The addresses to which a thread is connecting.
    connecting: BTreeSet<String>,
    /// The addresses whose last attempt failed.
    failed: BTreeMap<String, Failed>,
    /// Drives that were forgotten while they were being connected. Their reservations must be released.
    pub(crate) orphans: Vec<RemoteRecord>,
    pub(crate) reported: Reported,
}

impl Remotes {
    /// Returns those of `records` whose connection is due and whose address is free. From this call on, they count as
    /// being connected.
    pub(crate) fn begin_due(
        &mut self,
        records: &[RemoteRecord],
        is_free: impl Fn(&str) -> bool,
    ) -> Vec<RemoteRecord> {
        let now = Instant::now();
        let is_due = |record: &&RemoteRecord| {
            let address = &record.address;
            !self.connecting.contains(address)
                && is_free(address)
                && self.failed.get(address).is_none_or(|failed| now >= failed.next)
        };
        let due: Vec<_> = records.iter().filter(is_due).cloned().collect();
        self.connecting.extend(due.iter().map(|record| record.address.clone()));
        due
    }

    /// Records that the thread that connected to a drive has ended.
    pub(crate) fn end(&mut self, address: &str) {
        self.connecting.remove(address);
    }

    /// Records that a drive could not be connected. The next attempt is made later.
    pub(crate) fn note_failed(&mut self, address: &str, why: String) {
        self.end(address);
        let failed = Failed::after(self.failed.get(address), why);
        self.failed.insert(address.to_owned(), failed);
    }

    /// Clears the failure of the last attempt.
    pub(crate) fn forget_failure(&mut self, address: &str) {
        self.failed.remove(address);
    }

    /// Forgets a drive that is no longer recorded.
    pub(crate) fn forget(&mut self, record: &RemoteRecord) {
        self.forget_failure(&record.address);
        self.reported.forget_drive(&record.address);
        record.addresses().for_each(|address| self.reported.forget_path(address));
    }

    /// Returns the reason why a recorded drive is not connected.
    pub(crate) fn absence(&self, address: &str) -> String {
        match self.failed.get(address) {
            Some(failed) => format!("not connected: {}", failed.why),
            None => "not connected yet".to_owned(),
        }
    }
}

/// A recorded drive that could not be connected.
struct Failed {
    why: String,
    /// The time of the next attempt, and the time that it is delayed.
    next: Instant,
    back_off: Duration,
}

impl Failed {
    fn after(before: Option<&Self>, why: String) -> Self {
        let back_off = before.map_or(REMOTE_RETRY_MIN, |b| b.back_off * 2).min(REMOTE_RETRY_MAX);
        Self { why, next: Instant::now() + back_off, back_off }
    }
}

#[cfg(test)]
mod tests {
    use super::Remotes;
    use crate::record::store::RemoteRecord;

    fn record(address: &str) -> RemoteRecord {
        let json = format!(r#"{{"address":"{address}","host_nqn":"nqn","host_id":"id"}}"#);
        serde_json::from_str(&json).expect("a record")
    }

    #[test]
    fn a_drive_is_connected_by_one_thread_at_a_time_and_later_after_a_failure() {
        let (mut remotes, records) = (Remotes::default(), [record("a"), record("b")]);
        let begin = |remotes: &mut Remotes| -> Vec<String> {
            let due = remotes.begin_due(&records, |address| address != "b");
            due.into_iter().map(|record| record.address).collect()
        };
        assert_eq!(begin(&mut remotes), ["a"], "what is not free is left alone");
        assert!(begin(&mut remotes).is_empty(), "a thread is at it");
        remotes.end("a");
        assert_eq!(begin(&mut remotes), ["a"]);
        remotes.note_failed("a", "no answer".to_owned());
        assert_eq!(remotes.absence("a"), "not connected: no answer");
        assert!(begin(&mut remotes).is_empty(), "it is tried again later");
        remotes.forget(&records[0]);
        assert_eq!(remotes.absence("a"), "not connected yet");
        assert_eq!(begin(&mut remotes), ["a"], "a new record is tried at once");
    }
}
