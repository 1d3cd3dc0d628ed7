//! What each queue has done, for users of the drive.
//!
//! The core of a queue writes its counts, and control threads read them while it does.

use crate::link::Link;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use strake_block::Op;
use strake_nvme_tcp::Digests;
use strake_nvme_tcp::pdu::Use;
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
    /// Commands to read that were sent. Like all commands here: each of a request that takes several, and again when it
    /// was sent again.
    pub reads: u64,
    /// Commands to write.
    pub writes: u64,
    /// Other commands.
    pub others: u64,
    /// Bytes of data that the target sent.
    pub bytes_in: u64,
    /// Bytes of data that were sent to it, or are on their way.
    pub bytes_out: u64,
    /// Commands that the target answered with an error.
    pub failures: u64,
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
pub(crate) struct Stats {
    core: CoreIndex,
    link: LinkStats,
    counts: Counts,
}

/// [`LinkFacts`] that the core of the queue changes without a lock. A reader may meanwhile see parts of two links.
#[derive(Default)]
struct LinkStats {
    /// 0 while there is none. Stored last and read first: a reader that sees it sees the rest of this link, or of one
    /// after it.
    association: AtomicU64,
    number: AtomicU16,
    /// See the constants below.
    flags: AtomicU8,
    since: AtomicU64,
}

impl LinkStats {
    const SECURE: u8 = 1;
    const HEADER_DIGEST: u8 = 2;
    const DATA_DIGEST: u8 = 4;

    fn set(&self, link: &Link, since: Nanos) {
        let digests = link.terms.digests;
        let secure = if link.wire.is_secure() { Self::SECURE } else { 0 };
        let header = if digests.header == Use::On { Self::HEADER_DIGEST } else { 0 };
        let data = if digests.data == Use::On { Self::DATA_DIGEST } else { 0 };
        self.number.store(link.number, Ordering::Relaxed);
        self.flags.store(secure | header | data, Ordering::Relaxed);
        self.since.store(since.0, Ordering::Relaxed);
        self.association.store(link.life.number, Ordering::Release);
    }

    fn read(&self) -> Option<LinkFacts> {
        let association = self.association.load(Ordering::Acquire);
        let flags = self.flags.load(Ordering::Relaxed);
        let in_use = |flag| if flags & flag == 0 { Use::Off } else { Use::On };
        (association > 0).then(|| LinkFacts {
            association,
            number: self.number.load(Ordering::Relaxed),
            is_secure: flags & Self::SECURE != 0,
            digests: Digests {
                header: in_use(Self::HEADER_DIGEST),
                data: in_use(Self::DATA_DIGEST),
            },
            since: Nanos(self.since.load(Ordering::Relaxed)),
        })
    }
}

/// One thread writes, so an update is a plain load and store; 128 bytes apart from everything else, because x86 fetches
/// cache lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    connects: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    others: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    failures: AtomicU64,
    retries: AtomicU64,
    held: AtomicU64,
}

/// Adds to a counter that only this thread writes. Relaxed: a count orders nothing.
fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Stats {
    /// Those of a queue that was opened just now.
    pub(crate) fn new(core: CoreIndex) -> Self {
        Self { core, link: LinkStats::default(), counts: Counts::default() }
    }

    /// The queue is connected.
    pub(crate) fn connected(&self, link: &Link, since: Nanos) {
        count(&self.counts.connects, 1);
        self.link.set(link, since);
    }

    /// The queue is no longer connected.
    pub(crate) fn disconnected(&self) {
        self.link.association.store(0, Ordering::Relaxed);
    }

    /// A command of `op` goes to the target, which will move so many bytes.
    pub(crate) fn command(&self, op: &Op, bytes: u32) {
        let counter = match op {
            Op::Read { .. } => &self.counts.reads,
            // Zeroes that a target cannot make by itself are written.
            Op::Write { .. } | Op::WriteZeroes { .. } if bytes > 0 => &self.counts.writes,
            Op::Write { .. } | Op::WriteZeroes { .. } | Op::Flush | Op::Deallocate { .. } => {
                &self.counts.others
            }
        };
        count(counter, 1);
    }

    /// Data came from the target.
    pub(crate) fn came(&self, bytes: u32) {
        count(&self.counts.bytes_in, bytes.into());
    }

    /// Data goes to it.
    pub(crate) fn goes(&self, bytes: u32) {
        count(&self.counts.bytes_out, bytes.into());
    }

    /// A command was answered with an error.
    pub(crate) fn failure(&self) {
        count(&self.counts.failures, 1);
    }

    /// A command is to be sent once more.
    pub(crate) fn again(&self) {
        count(&self.counts.retries, 1);
    }

    /// So many requests wait.
    pub(crate) fn holds(&self, requests: usize) {
        self.counts.held.store(requests as u64, Ordering::Relaxed);
    }

    /// As they are now.
    pub(crate) fn read(&self) -> QueueStats {
        let Counts {
            connects,
            reads,
            writes,
            others,
            bytes_in,
            bytes_out,
            failures,
            retries,
            held,
        } = &self.counts;
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QueueStats {
            core: self.core,
            link: self.link.read(),
            connects: now(connects),
            reads: now(reads),
            writes: now(writes),
            others: now(others),
            bytes_in: now(bytes_in),
            bytes_out: now(bytes_out),
            failures: now(failures),
            retries: now(retries),
            held: now(held),
        }
    }
}
