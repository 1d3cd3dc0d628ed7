//! What a queue counts on either side.
//!
//! The core of a queue writes its counts, and control threads read them while it does.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a queue has done. Read while it runs, so the counts are not of one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Commands to read. A host counts each time that it sends one, a controller each that arrives.
    pub reads: u64,
    /// Commands to write.
    pub writes: u64,
    /// Other commands.
    pub others: u64,
    /// Bytes of data that came from the other side for commands.
    pub bytes_in: u64,
    /// Bytes of data that were sent to it, or are on their way.
    pub bytes_out: u64,
    /// Commands answered with an error.
    pub failures: u64,
}

/// What a command is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// One to read.
    Read,
    /// One to write.
    Write,
    /// Any other.
    Other,
}

/// What a queue has done so far. One thread writes, so an update is a plain load and store; 128 bytes apart from
/// everything else, because x86 fetches cache lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    others: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    failures: AtomicU64,
}

/// Adds to a counter that only this thread writes. Relaxed: a count orders nothing.
#[inline]
pub fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Counts {
    /// A command was sent, or arrived.
    #[inline]
    pub fn command(&self, command: Command) {
        let counter = match command {
            Command::Read => &self.reads,
            Command::Write => &self.writes,
            Command::Other => &self.others,
        };
        count(counter, 1);
    }

    /// Data came from the other side.
    #[inline]
    pub fn came(&self, bytes: u32) {
        count(&self.bytes_in, bytes.into());
    }

    /// Data goes to it.
    #[inline]
    pub fn goes(&self, bytes: u32) {
        count(&self.bytes_out, bytes.into());
    }

    /// A command was answered with an error.
    #[inline]
    pub fn failure(&self) {
        count(&self.failures, 1);
    }

    /// As they are now.
    #[must_use]
    pub fn read(&self) -> QueueCounts {
        let Self { reads, writes, others, bytes_in, bytes_out, failures } = self;
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QueueCounts {
            reads: now(reads),
            writes: now(writes),
            others: now(others),
            bytes_in: now(bytes_in),
            bytes_out: now(bytes_out),
            failures: now(failures),
        }
    }
}
