//! The commands of a controller that failed last.

use crate::limits::FAILURES_MAX;
use std::collections::VecDeque;
use strake_nvme_wire::Status;
use strake_nvme_wire::log::Failure;

/// What is remembered of them.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Newest first.
    last: VecDeque<Failure>,
    /// How many there were.
    pub(crate) count: u64,
    /// How many of them the medium is to blame for.
    pub(crate) media: u64,
}

impl Failures {
    /// Remembers a failure, whose number is given here.
    pub(crate) fn note(&mut self, failure: Failure) {
        self.count += 1;
        // Others of their type are none: a Compare that differs read what it wanted (Base, section 5.16.1.3, "Media and
        // Data Integrity Errors").
        let blamed = [Status::WRITE_FAULT, Status::UNRECOVERED_READ];
        self.media += u64::from(blamed.iter().any(|&status| failure.status.is(status)));
        self.last.truncate(usize::from(FAILURES_MAX) - 1);
        self.last.push_front(Failure { number: self.count, ..failure });
    }

    /// As the error log.
    pub(crate) fn page(&self) -> Vec<u8> {
        self.last.iter().flat_map(Failure::bytes).collect()
    }
}
