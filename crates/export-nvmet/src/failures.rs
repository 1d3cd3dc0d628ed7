//! The last failed commands of a controller.

use crate::limits::FAILURES_MAX;
use std::collections::VecDeque;
use strake_nvme_wire::Status;
use strake_nvme_wire::log::Failure;

/// The list of failed commands, with counters.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Newest first.
    last: VecDeque<Failure>,
    /// The number of failures so far.
    pub(crate) count: u64,
    /// The number of failures that the medium caused.
    pub(crate) media: u64,
}

impl Failures {
    /// Records a failure and assigns its number.
    pub(crate) fn note(&mut self, failure: Failure) {
        self.count += 1;
        // Other media errors do not count: a Compare failure is no media error (Base, section 5.16.1.3, "Media and Data
        // Integrity Errors").
        let blamed = [Status::WRITE_FAULT, Status::UNRECOVERED_READ];
        self.media += u64::from(blamed.iter().any(|&status| failure.status.is(status)));
        self.last.truncate(usize::from(FAILURES_MAX) - 1);
        self.last.push_front(Failure { number: self.count, ..failure });
    }

    /// The error log page.
    pub(crate) fn page(&self) -> Vec<u8> {
        self.last.iter().flat_map(Failure::bytes).collect()
    }
}
