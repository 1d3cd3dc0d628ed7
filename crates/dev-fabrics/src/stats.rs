//! What each queue has done, for users of the drive.

use crate::link::Link;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use strake_block::Op;
use strake_nvme_tcp::stats::{Command, Counts, count};
use strake_nvme_tcp::{Digests, QueueCounts};
use strake_units::{CoreIndex, Nanos};

/// What a queue has done since it was opened, over whichever paths. Read while it runs, so the stats are not of one
/// instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// The core that it was opened for.
    pub core: CoreIndex,
    /// How it is connected; `None` while it is not.
    pub link: Option<LinkFacts>,
    /// Times that it was connected.
    pub connects: u64,
    /// What its commands did: each of a request that takes several, and again when it was sent again.
    pub counts: QueueCounts,
    /// Commands that had to be sent once more: refused for now, damaged, or lost with their connection.
    pub retries: u64,
    /// Requests that wait here now: for a connection, for room at the target, or to be sent again.
    pub held: u64,
}

/// How a queue is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFacts {
    /// The association that it belongs to.
    pub association: u64,
    /// The queue's number in that.
    pub number: u16,
    /// It goes through TLS.
    pub is_secure: bool,
    /// The digests in use.
    pub digests: Digests,
    /// Since when, on the monotonic clock.
    pub since: Nanos,
}

/// What a queue has done so far.
#[derive(Default)]
pub(crate) struct Stats {
    core: CoreIndex,
    link: LinkStats,
    pub(crate) counts: Counts,
    connects: AtomicU64,
    retries: AtomicU64,
    held: AtomicU64,
}

/// [`LinkFacts`] that the core of the queue changes without a lock. A reader may meanwhile see parts of two links.
#[derive(Default)]
struct LinkStats {
    /// 0 while there is none. Stored last and read first: a reader that sees it sees the rest of this link, or of one
    /// after it.
    association: AtomicU64,
    number: AtomicU16,
    /// See the constant below.
    flags: AtomicU8,
    since: AtomicU64,
}

impl LinkStats {
    /// Beside the bits of [`Digests::byte`].
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
    /// Those of a queue that was opened just now.
    pub(crate) fn new(core: CoreIndex) -> Self {
        Self { core, ..Self::default() }
    }

    /// The queue is connected.
    pub(crate) fn connected(&self, link: &Link, since: Nanos) {
        count(&self.connects, 1);
        self.link.set(link, since);
    }

    /// The queue is no longer connected.
    pub(crate) fn disconnected(&self) {
        self.link.association.store(0, Ordering::Relaxed);
    }

    /// A command of `op` goes to the target, which will move so many bytes.
    pub(crate) fn command(&self, op: &Op, bytes: u32) {
        self.counts.command(match op {
            Op::Read { .. } => Command::Read,
            // Zeroes that a target cannot make by itself are written.
            Op::Write { .. } | Op::WriteZeroes { .. } if bytes > 0 => Command::Write,
            Op::Write { .. } | Op::WriteZeroes { .. } | Op::Flush | Op::Deallocate { .. } => {
                Command::Other
            }
        });
    }

    /// A command is to be sent once more.
    pub(crate) fn again(&self) {
        count(&self.retries, 1);
    }

    /// So many requests wait.
    pub(crate) fn holds(&self, requests: usize) {
        self.held.store(requests as u64, Ordering::Relaxed);
    }

    /// As they are now.
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
