//! The records of the control plane on the members of an array.

use std::time::Instant;

use crate::limits::RECORD_RETRY;
use crate::record::member::MemberConfig;

/// A partly unsupported record on the members. It stays until the operator changes a setting.
pub(crate) struct Kept {
    pub(crate) content: Vec<u8>,
    /// The settings here, as long as the operator has changed nothing.
    beside: MemberConfig,
}

impl Kept {
    /// Creates a record with `content`, which stays as long as `config` is set.
    pub(crate) fn new(content: Vec<u8>, config: MemberConfig) -> Self {
        Self { content, beside: config.without_order_and_pause() }
    }

    /// True if the operator has changed nothing, with the present settings `config`.
    pub(crate) fn stays(&self, config: MemberConfig) -> bool {
        self.beside == config.without_order_and_pause()
    }
}

/// The last record written to the members of an array.
pub(crate) struct Written {
    content: Vec<u8>,
    /// Identities of the drives to which it was written.
    drives: Vec<String>,
    /// Time of the last failure.
    failed: Option<Instant>,
}

impl Written {
    /// Creates the state of a write to drives, with the time of a failure, if any.
    pub(crate) fn new(content: Vec<u8>, drives: Vec<String>, failed: Option<Instant>) -> Self {
        Self { content, drives, failed }
    }

    /// True if `content` must be written to `drives` now: it is not there yet, and no recent attempt failed.
    pub(crate) fn is_due(&self, content: &[u8], drives: &[String]) -> bool {
        match self.failed {
            Some(at) => at.elapsed() >= RECORD_RETRY,
            None => self.content != content || self.drives != drives,
        }
    }
}
