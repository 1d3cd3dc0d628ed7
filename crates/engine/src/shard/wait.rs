//! Tasks that wait for a condition which some other turn will make true.

use strake_reactor::{Scheduler, TaskId};

/// Waiting tasks in order of arrival, each at most once. Waking is a hint: whoever is woken looks again and
/// registers again if the condition does not hold, so waking too often is only a waste.
pub(crate) struct WaitQueue {
    scheduler: Scheduler,
    waiting: Vec<TaskId>,
    queued: Vec<bool>,
}

impl WaitQueue {
    pub(crate) fn new(scheduler: &Scheduler) -> Self {
        let tasks = scheduler.capacity();
        Self {
            scheduler: scheduler.clone(),
            waiting: Vec::with_capacity(tasks),
            queued: vec![false; tasks],
        }
    }

    /// Registers the task that is being polled.
    pub(crate) fn register(&mut self) {
        let task = self.scheduler.current();
        if !std::mem::replace(&mut self.queued[task.slot()], true) {
            self.waiting.push(task);
        }
    }

    /// Wakes everyone.
    pub(crate) fn wake_all(&mut self) {
        for task in self.waiting.drain(..) {
            self.queued[task.slot()] = false;
            self.scheduler.wake(task);
        }
    }
}
