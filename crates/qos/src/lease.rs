//! The part of a limit that one core holds, and the queues that wait for it on this core.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use strake_units::Nanos;

use crate::cells::{Board, Cells};

/// A device queue. Unique among the queues of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueId(pub u64);

/// Wakes the home of a limit, which may sleep.
pub type CallHome = Box<dyn Fn()>;

/// A queue that waits with one request.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    queue: QueueId,
    cost: u64,
    since: Nanos,
}

/// The lease of one core. All queues of the core share it. They wait in one line, each with one request. The first
/// queue of the line also spends its part of what the lease holds, before it waits again behind the others.
pub struct Lease {
    cells: Arc<Cells>,
    board: Arc<Board>,
    call_home: CallHome,
    core: usize,
    used: Cell<u64>,
    line: RefCell<VecDeque<Waiting>>,
    /// The last first queue of the line, and the rest of its part.
    turn: Cell<(QueueId, u64)>,
    /// Queues that use the lease, for which the line has room.
    queues: Cell<usize>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("core", &self.core)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

impl Lease {
    /// Creates the lease of `core`. There is at most one lease of each core at a time.
    #[must_use]
    pub fn new(cells: Arc<Cells>, board: Arc<Board>, core: usize, call_home: CallHome) -> Self {
        let used = Cell::new(cells.view(core).used);
        let (line, queues, turn) = (RefCell::default(), Cell::new(0), Cell::new((QueueId(0), 0)));
        Self { cells, board, call_home, core, used, line, turn, queues }
    }

    /// Makes room in the line for another queue.
    pub(crate) fn join(&self) {
        self.queues.set(self.queues.get() + 1);
        let mut line = self.line.borrow_mut();
        let more = self.queues.get().saturating_sub(line.len());
        line.reserve(more);
    }

    /// Ends the use by a queue, which may still wait.
    pub(crate) fn leave(&self, queue: QueueId) {
        self.forget(queue);
        self.queues.set(self.queues.get() - 1);
    }

    /// Spends `cost` if the lease covers it and no other queue comes first. Otherwise the queue waits in the line,
    /// unless it `already_waits`.
    pub(crate) fn spend(&self, queue: QueueId, cost: u64, already_waits: bool, now: Nanos) -> bool {
        let left = self.cells.granted(self.core).saturating_sub(self.used.get());
        let is_spent = cost <= left && self.has_turn(queue, cost);
        if is_spent {
            self.charge(cost);
            self.end_wait(queue, cost, left - cost, now);
        } else if !already_waits {
            self.wait(queue, cost, now);
        }
        if !self.cells.is_awake(self.core) {
            self.board.call(self.core);
            (self.call_home)();
        }
        is_spent
    }

    /// Spends `cost` also without a grant. The home charges it to the budget.
    pub(crate) fn force(&self, queue: QueueId, cost: u64) {
        self.charge(cost);
        self.forget(queue);
    }

    /// True if no other queue comes first: none waits, this queue is the first, or its part is not used up.
    fn has_turn(&self, queue: QueueId, cost: u64) -> bool {
        let (of, part) = self.turn.get();
        let front = self.line.borrow().front().map(|waiting| waiting.queue);
        front.is_none_or(|front| front == queue) || (of == queue && cost <= part)
    }

    fn charge(&self, cost: u64) {
        self.used.set(self.used.get() + cost);
        self.cells.publish_used(self.core, self.used.get());
    }

    fn wait(&self, queue: QueueId, cost: u64, since: Nanos) {
        let mut line = self.line.borrow_mut();
        if line.is_empty() {
            // The rest of a part from an earlier line gives no precedence in this one.
            self.turn.set((queue, 0));
        }
        line.push_back(Waiting { queue, cost, since });
        drop(line);
        self.publish_front();
    }

    /// Removes the queue from the front of the line, where its request was admitted. `left` is what the lease holds.
    fn end_wait(&self, queue: QueueId, cost: u64, left: u64, now: Nanos) {
        let mut line = self.line.borrow_mut();
        match line.front().copied() {
            None => {}
            Some(first) if first.queue == queue => {
                line.pop_front();
                let part = left / (line.len() as u64 + 1);
                self.turn.set((queue, part));
                drop(line);
                self.cells.count_wait(self.core, now.since(first.since).0);
                self.publish_front();
            }
            Some(_) => {
                let (of, part) = self.turn.get();
                self.turn.set((of, part.saturating_sub(cost)));
            }
        }
    }

    /// Removes a queue from the line.
    pub(crate) fn forget(&self, queue: QueueId) {
        let mut line = self.line.borrow_mut();
        let before = line.len();
        line.retain(|waiting| waiting.queue != queue);
        let is_changed = line.len() < before;
        drop(line);
        if is_changed {
            self.publish_front();
        }
    }

    fn publish_front(&self) {
        let front = self.line.borrow().front().copied();
        let (need, since) = front.map_or((0, 0), |front| (front.cost, front.since.0));
        self.cells.publish_need(self.core, need, since);
    }
}
