//! Tasks that wait for a condition which some other turn will make true.

use strake_reactor::{Scheduler, TaskId};

/// Waiting tasks in order of arrival, each at most once. Waking is a hint: whoever is woken looks again and
/// registers again if the condition does not hold, so waking too often is only a waste.
pub(crate) struct WaitQueue {
    scheduler: Scheduler,
    waiting: Vec<TaskId>,
    /// By task slot: who registered last. A task that ended without being woken from here leaves its number
    /// behind, which must not keep the next task in its slot from registering.
    queued: Vec<Option<TaskId>>,
}

impl WaitQueue {
    pub(crate) fn new(scheduler: &Scheduler) -> Self {
        let tasks = scheduler.capacity();
        Self {
            scheduler: scheduler.clone(),
            waiting: Vec::with_capacity(tasks),
            queued: vec![None; tasks],
        }
    }

    /// Registers the task that is being polled.
    pub(crate) fn register(&mut self) {
        let task = self.scheduler.current();
        if self.queued[task.slot()].replace(task) != Some(task) {
            self.waiting.push(task);
        }
    }

    /// Wakes everyone.
    pub(crate) fn wake_all(&mut self) {
        for task in self.waiting.drain(..) {
            self.queued[task.slot()] = None;
            self.scheduler.wake(task);
        }
    }
}
