//! Which record of the control plane each member of an array holds.

use std::time::Instant;

use crate::limits::RECORD_RETRY;

/// What was last written to the members of an array.
pub(crate) struct Written {
    content: Vec<u8>,
    /// Identities of the drives it was written to.
    drives: Vec<String>,
    /// When that failed last.
    failed: Option<Instant>,
}

impl Written {
    /// What was written to drives, by their identities, and when that failed, if it did.
    pub(crate) fn new(content: Vec<u8>, drives: Vec<String>, failed: Option<Instant>) -> Self {
        Self { content, drives, failed }
    }

    /// Whether `content` is to be written to `drives` now: it is not there yet, and was not tried just before.
    pub(crate) fn is_due(&self, content: &[u8], drives: &[String]) -> bool {
        match self.failed {
            Some(at) => at.elapsed() >= RECORD_RETRY,
            None => self.content != content || self.drives != drives,
        }
    }
}
