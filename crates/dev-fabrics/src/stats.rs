//! Stats of queues, for users of the drive.

use crate::link::Link;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use strake_block::Op;
use strake_nvme_tcp::stats::{Command, Counts, count};
use strake_nvme_tcp::{Digests, QueueCounts};
use strake_units::{CoreIndex, Nanos};

/// Stats of a queue since it was opened, over all paths. They are read while the queue runs, so they are not a
/// consistent snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// The core that opened the queue.
    pub core: CoreIndex,
    /// The connection; `None` while there is none.
    pub link: Option<LinkFacts>,
    /// The number of connects.
    pub connects: u64,
    /// Counters of commands: each command of a request counts, and each repetition.
    pub counts: QueueCounts,
    /// Commands that were sent again: temporarily rejected, damaged, or lost with their connection.
    pub retries: u64,
    /// Requests that wait now: for a connection, for room at the target, or for another attempt.
    pub held: u64,
}

/// The connection of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFacts {
    /// The number of its association.
    pub association: u64,
    /// The queue ID.
    pub number: u16,
    /// Whether the connection uses TLS.
    pub is_secure: bool,
    /// The digests in use.
    pub digests: Digests,
    /// The time of the connect, on the monotonic clock.
    pub since: Nanos,
}

/// The counters of a queue.
#[derive(Default)]
pub(crate) struct Stats {
    core: CoreIndex,
    link: LinkStats,
    pub(crate) counts: Counts,
    connects: AtomicU64,
    retries: AtomicU64,
    held: AtomicU64,
}

/// [`LinkFacts`] that the core of the queue changes without a lock. A reader may see parts of two links during a
/// change.
#[derive(Default)]
struct LinkStats {
    /// 0 without a link. Stored last and read first: a reader that sees it sees the rest of this link, or of a later
    /// one.
    association: AtomicU64,
    number: AtomicU16,
    /// The digests, and the bit of the constant below.
    flags: AtomicU8,
    since: AtomicU64,
}

impl LinkStats {
    /// A bit that [`Digests::byte`] does not use.
    const SECURE: u8 = 1 << 7;

    fn set(&self, link: &Link, since: Nanos) {
        let secure = if link.wire.is_secure() { Self::SECURE } else { 0 };
        self.number.store(link.number, Ordering::Relaxed);
        self.flags.store(secure | link.terms.digests.byte(), Ordering::Relaxed);
        self.since.store(since.0, Ordering::Relaxed);
        self.association.store(link.life.number, Ordering::Release);
    }

    fn read(&self) -> Option<LinkFacts> {
        let association = self.association.load(Ordering::Acquire);
        let flags = self.flags.load(Ordering::Relaxed);
        (association > 0).then(|| LinkFacts {
            association,
            number: self.number.load(Ordering::Relaxed),
            is_secure: flags & Self::SECURE != 0,
            digests: Digests::of(flags),
            since: Nanos(self.since.load(Ordering::Relaxed)),
        })
    }
}

impl Stats {
    /// Creates the stats of a queue that was just opened.
    pub(crate) fn new(core: CoreIndex) -> Self {
        Self { core, ..Self::default() }
    }

    /// Records a connect.
    pub(crate) fn connected(&self, link: &Link, since: Nanos) {
        count(&self.connects, 1);
        self.link.set(link, since);
    }

    /// Records a disconnect.
    pub(crate) fn disconnected(&self) {
        self.link.association.store(0, Ordering::Relaxed);
    }

    /// Counts a command of `op`, which transfers this number of bytes.
    pub(crate) fn command(&self, op: &Op, bytes: u32) {
        self.counts.command(match op {
            Op::Read { .. } => Command::Read,
            // Zeroes for a target without Write Zeroes are sent as writes.
            Op::Write { .. } | Op::WriteZeroes { .. } if bytes > 0 => Command::Write,
            Op::Write { .. } | Op::WriteZeroes { .. } | Op::Flush | Op::Deallocate { .. } => {
                Command::Other
            }
        });
    }

    /// Counts a command that is sent again.
    pub(crate) fn again(&self) {
        count(&self.retries, 1);
    }

    /// Publishes the number of waiting requests.
    pub(crate) fn holds(&self, requests: usize) {
        self.held.store(requests as u64, Ordering::Relaxed);
    }

    /// The current values.
    pub(crate) fn read(&self) -> QueueStats {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QueueStats {
            core: self.core,
            link: self.link.read(),
            connects: now(&self.connects),
            counts: self.counts.read(),
            retries: now(&self.retries),
            held: now(&self.held),
        }
    }
}
