//! Connecting queues: each in a thread of its own, so that a slow or silent target delays neither other queues nor the
//! selection of another path.

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

/// A queue to connect.
pub(super) struct Join {
    /// The queue.
    pub(super) queue: u64,
    /// The queue ID at the target.
    pub(super) number: u16,
    pub(super) gate: Gate,
    pub(super) host: HostName,
    /// The association of the queue, and the properties of the namespace over it.
    pub(super) life: Arc<Life>,
    pub(super) facts: Arc<Facts>,
}

/// The result of a connect.
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

/// Queues that are being connected. If their association is lost meanwhile, the connects continue until the target
/// fails them, and the results are discarded.
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

    /// True if another connect can be started; otherwise a finished connect wakes the path manager.
    pub(super) const fn has_room(&self) -> bool {
        self.under_way < JOINS_MAX
    }

    /// Starts to connect a queue. The path manager is woken when the result is there.
    pub(super) fn begin(&mut self, join: Join, shared: &Arc<Shared>) -> io::Result<()> {
        let (teller, shared) = (self.teller.clone(), Arc::clone(shared));
        let connect = move || {
            let link = join.gate.queue(join.number, &join.host, (&join.life, &join.facts));
            // The send fails if the path manager has stopped, which needs no result.
            let _ = teller.send(join.ended(link));
            shared.tell();
        };
        thread::Builder::new().name("nvme-tcp-queue".to_owned()).spawn(connect)?;
        self.under_way += 1;
        Ok(())
    }

    /// The next result.
    pub(super) fn next(&mut self) -> Option<Joined> {
        let joined = self.results.try_recv().ok()?;
        self.under_way -= 1;
        Some(joined)
    }

    /// As [`next`](Self::next), but waits; `None` if no connect is in progress.
    #[cfg(test)]
    pub(super) fn wait(&mut self) -> Option<Joined> {
        if self.under_way == 0 {
            return None;
        }
        self.under_way -= 1;
        self.results.recv().ok()
    }
}
