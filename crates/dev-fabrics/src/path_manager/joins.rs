//! Connecting queues: each on a thread of its own, so that a target that takes its time, or is dead, holds up neither
//! other queues nor the choice of another path.

use crate::address::HostName;
use crate::error::Reason;
use crate::identify::Facts;
use crate::limits::JOINS_MAX;
use crate::link::{Life, Link};
use crate::session::Gate;
use crate::shared::Shared;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// A queue that is to be connected.
pub(super) struct Join {
    /// Whose it is.
    pub(super) queue: u64,
    /// The number it is to have at the target.
    pub(super) number: u16,
    pub(super) gate: Gate,
    pub(super) host: HostName,
    /// Of the association that it is to be part of, with what is known of the namespace over it.
    pub(super) life: Arc<Life>,
    pub(super) facts: Arc<Facts>,
}

/// The outcome of one.
pub(super) struct Joined {
    pub(super) association: u64,
    pub(super) queue: u64,
    pub(super) number: u16,
    pub(super) link: Result<Link, Reason>,
}

impl Join {
    fn ended(&self, link: Result<Link, Reason>) -> Joined {
        let (association, queue, number) = (self.life.number, self.queue, self.number);
        Joined { association, queue, number, link }
    }
}

/// Queues that are being connected. When their association is lost meanwhile, they go on for as long as their target
/// lets them, and the result is discarded.
pub(super) struct Joins {
    results: Receiver<Joined>,
    teller: Sender<Joined>,
    pub(super) under_way: usize,
}

impl Joins {
    pub(super) fn new() -> Self {
        let (teller, results) = mpsc::channel();
        Self { results, teller, under_way: 0 }
    }

    /// Whether another can be begun; if not, there is news when one can.
    pub(super) const fn has_room(&self) -> bool {
        self.under_way < JOINS_MAX
    }

    /// Begins to connect a queue. The path manager has news when it is known what became of it.
    pub(super) fn begin(&mut self, join: Join, shared: &Arc<Shared>) -> io::Result<()> {
        let (teller, shared) = (self.teller.clone(), Arc::clone(shared));
        let connect = move || {
            let link = join.gate.queue(join.number, &join.host, (&join.life, &join.facts));
            // It fails when the path manager is gone, which needs no result.
            let _ = teller.send(join.ended(link));
            shared.tell();
        };
        thread::Builder::new().name("nvme-tcp-queue".to_owned()).spawn(connect)?;
        self.under_way += 1;
        Ok(())
    }

    /// What is known of one.
    pub(super) fn next(&mut self) -> Option<Joined> {
        let joined = self.results.try_recv().ok()?;
        self.under_way -= 1;
        Some(joined)
    }

    /// The same, and waits for it; `None` when none is under way.
    #[cfg(test)]
    pub(super) fn wait(&mut self) -> Option<Joined> {
        if self.under_way == 0 {
            return None;
        }
        self.under_way -= 1;
        self.results.recv().ok()
    }
}
