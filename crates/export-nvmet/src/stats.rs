//! Stats of queues, for the operator.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use strake_nvme_tcp::stats::{Command, Counts};
use strake_nvme_tcp::{Digests, QueueCounts};
use strake_nvme_wire::{Sqe, nvm};
use strake_units::CoreIndex;

/// A controller that a host created in a subsystem, with its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerStats {
    /// The controller ID.
    pub id: u16,
    /// NQN of the host.
    pub host: String,
    /// The host identifier.
    pub host_id: [u8; 16],
    /// Keep-alive timeout in milliseconds; 0 disables it.
    pub keep_alive_ms: u32,
    /// The connected queues in the order of their numbers.
    pub queues: Vec<QueueStats>,
}

/// Stats of a connected queue. They are read while the queue runs, so they are not a consistent snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// The properties of the queue.
    pub facts: QueueFacts,
    /// The time since the connection.
    pub age: Duration,
    /// The counters of its commands.
    pub counts: QueueCounts,
}

/// The properties of a queue, which do not change while it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFacts {
    /// The queue ID; 0 is the admin queue.
    pub number: u16,
    /// The address of the host; `None` if the kernel did not report one.
    pub from: Option<SocketAddr>,
    /// The data core that serves it.
    pub core: CoreIndex,
    /// Whether the connection uses TLS.
    pub is_secure: bool,
    /// The digests in use.
    pub digests: Digests,
}

/// The properties and counters of a queue.
pub(crate) struct Stats {
    facts: QueueFacts,
    since: Instant,
    pub(crate) counts: Counts,
}

impl Stats {
    /// Creates the stats of a queue that has just connected.
    pub(crate) fn new(facts: QueueFacts) -> Self {
        Self { facts, since: Instant::now(), counts: Counts::default() }
    }

    /// Counts a command. Opcodes of an admin queue belong to another command set, so an admin queue has no reads and
    /// writes.
    pub(crate) fn command(&self, sqe: &Sqe) {
        self.counts.command(match sqe.opcode() {
            nvm::opcode::READ if self.facts.number > 0 => Command::Read,
            nvm::opcode::WRITE if self.facts.number > 0 => Command::Write,
            _ => Command::Other,
        });
    }

    /// The current values.
    pub(crate) fn read(&self) -> QueueStats {
        let (facts, age) = (self.facts, self.since.elapsed());
        QueueStats { facts, age, counts: self.counts.read() }
    }
}
