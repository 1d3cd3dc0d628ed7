//! Tasks that wait for a condition that becomes true in a later turn.

use strake_reactor::{Scheduler, TaskId};

/// Waiting tasks in order of arrival, each at most once. A wake-up is a hint: a woken task checks its condition and
/// registers again if the condition is false. Unnecessary wake-ups only cost time.
pub(crate) struct WaitQueue {
    scheduler: Scheduler,
    waiting: Vec<TaskId>,
    /// For each task slot, the task that registered last. If a task ends without a wake-up from this queue, its entry
    /// remains. The entry must not prevent the registration of the next task in the slot.
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

    /// Registers the current task.
    pub(crate) fn register(&mut self) {
        let task = self.scheduler.current();
        if self.queued[task.slot()].replace(task) != Some(task) {
            self.waiting.push(task);
        }
    }

    /// Wakes all waiting tasks.
    #[inline]
    pub(crate) fn wake_all(&mut self) {
        if !self.waiting.is_empty() {
            self.wake_waiting();
        }
    }

    fn wake_waiting(&mut self) {
        for task in self.waiting.drain(..) {
            self.queued[task.slot()] = None;
            self.scheduler.wake(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Poll;

    use strake_reactor::Tasks;

    use super::*;

    /// A task had registered and then ended for another reason. The next task in its slot found the flag set and was
    /// not queued, so a rebuild on two cores never continued.
    #[test]
    fn a_slot_that_changed_hands_can_wait_again() {
        let scheduler = Scheduler::new(1);
        let queue = Rc::new(RefCell::new(WaitQueue::new(&scheduler)));
        let done = Rc::new(Cell::new(false));
        let mut tasks = Tasks::new(scheduler);
        let mut wait = |patient: bool| {
            let (queue, done) = (Rc::clone(&queue), Rc::clone(&done));
            let mut looks = 0;
            let future = poll_fn(move |_| {
                looks += 1;
                if looks == 1 {
                    queue.borrow_mut().register();
                }
                if patient && looks == 1 {
                    return Poll::Pending;
                }
                done.set(patient);
                Poll::Ready(())
            });
            assert!(tasks.spawn(future).is_ok());
            tasks.run(8);
        };
        wait(false);
        wait(true);
        assert!(!done.get(), "the second task waits");
        queue.borrow_mut().wake_all();
        tasks.run(8);
        assert!(done.get(), "the second task was woken");
    }
}
