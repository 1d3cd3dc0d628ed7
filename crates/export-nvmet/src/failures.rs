//! The commands of a controller that failed last.

use crate::limits::FAILURES_MAX;
use std::collections::VecDeque;
use strake_nvme_wire::log::Failure;

/// The code type of statuses that blame the medium.
const MEDIUM: u8 = 2;

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
        self.media += u64::from(failure.status.code_type() == MEDIUM);
        self.last.truncate(usize::from(FAILURES_MAX) - 1);
        self.last.push_front(Failure { number: self.count, ..failure });
    }

    /// As the error log.
    pub(crate) fn page(&self) -> Vec<u8> {
        self.last.iter().flat_map(Failure::bytes).collect()
    }
}
