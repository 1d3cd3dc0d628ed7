//! What each queue has done, for the operator.
//!
//! The data core of a queue writes its counts, and control threads read them while it does.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strake_export_net::count;
use strake_nvme_tcp::Digests;
use strake_nvme_wire::{Sqe, nvm};
use strake_units::CoreIndex;

/// A controller of a subsystem, which one host made, with its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerStats {
    /// Its number in the subsystem.
    pub id: u16,
    /// NQN of the host.
    pub host: String,
    /// What identifies the host.
    pub host_id: [u8; 16],
    /// How long the host may be silent before it counts as gone, in milliseconds; 0 for ever.
    pub keep_alive_ms: u32,
    /// Queues that are connected, by their numbers.
    pub queues: Vec<QueueStats>,
}

/// What a connected queue has done. Read while it runs, so the stats are not of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// What it is.
    pub facts: QueueFacts,
    /// How long it has been connected.
    pub age: Duration,
    /// Commands to read that arrived.
    pub reads: u64,
    /// Commands to write that arrived.
    pub writes: u64,
    /// Other commands that arrived.
    pub others: u64,
    /// Bytes of data that came from the host for its commands.
    pub bytes_in: u64,
    /// Bytes of data that were sent to it.
    pub bytes_out: u64,
    /// Commands answered with an error.
    pub failures: u64,
}

/// What a queue is for as long as it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFacts {
    /// Its number; 0 is the admin queue.
    pub number: u16,
    /// Where the host is; `None` when the kernel did not say.
    pub from: Option<SocketAddr>,
    /// The data core that serves it.
    pub core: CoreIndex,
    /// It goes through TLS.
    pub is_secure: bool,
    /// The digests in use.
    pub digests: Digests,
}

/// What a queue is and has done so far.
pub(crate) struct Stats {
    facts: QueueFacts,
    since: Instant,
    counts: Counts,
}

/// One thread writes, so an update is a plain load and store; 128 bytes apart from everything else, because x86 fetches
/// cache lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    others: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    failures: AtomicU64,
}

impl Stats {
    /// Those of a queue that was connected just now.
    pub(crate) fn new(facts: QueueFacts) -> Self {
        Self { facts, since: Instant::now(), counts: Counts::default() }
    }

    /// A command arrived. An admin queue knows no reads and writes: its commands have their numbers from another set.
    pub(crate) fn command(&self, sqe: &Sqe) {
        let counter = match sqe.opcode() {
            nvm::opcode::READ if self.facts.number > 0 => &self.counts.reads,
            nvm::opcode::WRITE if self.facts.number > 0 => &self.counts.writes,
            _ => &self.counts.others,
        };
        count(counter, 1);
    }

    /// All data of a command came from the host.
    pub(crate) fn came(&self, bytes: u32) {
        count(&self.counts.bytes_in, bytes.into());
    }

    /// Data goes to the host.
    pub(crate) fn goes(&self, bytes: u32) {
        count(&self.counts.bytes_out, bytes.into());
    }

    /// A command is answered with an error.
    pub(crate) fn failure(&self) {
        count(&self.counts.failures, 1);
    }

    /// As they are now.
    pub(crate) fn read(&self) -> QueueStats {
        let Counts { reads, writes, others, bytes_in, bytes_out, failures } = &self.counts;
        // Relaxed: a count orders nothing.
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QueueStats {
            facts: self.facts,
            age: self.since.elapsed(),
            reads: now(reads),
            writes: now(writes),
            others: now(others),
            bytes_in: now(bytes_in),
            bytes_out: now(bytes_out),
            failures: now(failures),
        }
    }
}
