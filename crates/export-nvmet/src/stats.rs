//! What each queue has done, for the operator.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use strake_nvme_tcp::stats::{Command, Counts};
use strake_nvme_tcp::{Digests, QueueCounts};
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
    /// What its commands did.
    pub counts: QueueCounts,
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
    pub(crate) counts: Counts,
}

impl Stats {
    /// Those of a queue that was connected just now.
    pub(crate) fn new(facts: QueueFacts) -> Self {
        Self { facts, since: Instant::now(), counts: Counts::default() }
    }

    /// A command arrived. An admin queue knows no reads and writes: its commands have their numbers from another set.
    pub(crate) fn command(&self, sqe: &Sqe) {
        self.counts.command(match sqe.opcode() {
            nvm::opcode::READ if self.facts.number > 0 => Command::Read,
            nvm::opcode::WRITE if self.facts.number > 0 => Command::Write,
            _ => Command::Other,
        });
    }

    /// As they are now.
    pub(crate) fn read(&self) -> QueueStats {
        let (facts, age) = (self.facts, self.since.elapsed());
        QueueStats { facts, age, counts: self.counts.read() }
    }
}
