//! Which record of the control plane each member of an array holds.

use std::time::Instant;

use crate::limits::RECORD_RETRY;
use crate::record::member::MemberConfig;

/// A record on the members of which parts are not understood. It stays until the operator changes a setting.
pub(crate) struct Kept {
    pub(crate) content: Vec<u8>,
    /// What is set here as long as the operator has changed nothing.
    beside: MemberConfig,
}

impl Kept {
    /// `content` stays for as long as `config` is set.
    pub(crate) fn new(content: Vec<u8>, config: MemberConfig) -> Self {
        Self { content, beside: config.without_order_and_pause() }
    }

    /// Whether the operator has changed nothing where `config` is set now.
    pub(crate) fn stays(&self, config: MemberConfig) -> bool {
        self.beside == config.without_order_and_pause()
    }
}

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
