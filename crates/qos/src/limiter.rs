//! The limits of one device queue.

use std::rc::Rc;

use strake_units::Nanos;

use crate::cost::Usage;
use crate::lease::{Lease, QueueId};
use crate::value::Aspect;

/// Admits the requests of a queue, one at a time and in order, to all limits that hold for it.
///
/// The limits are charged one after the other, the narrowest first. A request that waits for a limit has paid the
/// limits before it, so that it holds no grant that others could use, and two requests never wait for each other.
#[derive(Debug)]
pub struct Limiter {
    queue: QueueId,
    leases: Vec<(Aspect, Rc<Lease>)>,
    /// The limits that the first request has paid.
    paid: usize,
    /// Whether the first request waits for the next limit.
    waits: bool,
}

impl Limiter {
    /// Creates the limiter of a queue without limits.
    #[must_use]
    pub const fn new(queue: QueueId) -> Self {
        Self { queue, leases: Vec::new(), paid: 0, waits: false }
    }

    /// Replaces the limits. A request that waits is admitted to the new limits from the start.
    pub fn replace(&mut self, leases: Vec<(Aspect, Rc<Lease>)>) {
        leases.iter().for_each(|(_, lease)| lease.join());
        self.leases.iter().for_each(|(_, lease)| lease.leave(self.queue));
        self.leases = leases;
        (self.paid, self.waits) = (0, false);
    }

    /// True if there is no limit.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Admits the first request of the queue, or has it wait. A request that waits is offered again later, with the
    /// same usage and before any other request of the queue.
    pub fn admit(&mut self, usage: Usage, now: Nanos) -> bool {
        while let Some((aspect, lease)) = self.leases.get(self.paid) {
            let cost = cost_in(*aspect, usage);
            if cost > 0 && !lease.spend(self.queue, cost, self.waits, now) {
                self.waits = true;
                return false;
            }
            (self.paid, self.waits) = (self.paid + 1, false);
        }
        self.paid = 0;
        true
    }

    /// Admits the first request of the queue at once. What it uses is charged to the limits.
    pub fn force(&mut self, usage: Usage) {
        for (aspect, lease) in &self.leases[self.paid..] {
            lease.force(self.queue, cost_in(*aspect, usage));
        }
        (self.paid, self.waits) = (0, false);
    }
}

impl Limiter {
    /// Ends the wait of the first request, which is not executed. What it has paid stays paid.
    pub fn forget(&mut self) {
        self.leases[self.paid..].iter().for_each(|(_, lease)| lease.forget(self.queue));
        (self.paid, self.waits) = (0, false);
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.leases.iter().for_each(|(_, lease)| lease.leave(self.queue));
    }
}

const fn cost_in(aspect: Aspect, usage: Usage) -> u64 {
    if aspect.counts.includes(usage.direction) { usage.of(aspect.measure) } else { 0 }
}
