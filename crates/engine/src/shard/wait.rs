//! Tasks that wait for a condition which some other turn will make true.

use strake_reactor::{Scheduler, TaskId};

/// Waiting tasks in order of arrival, each at most once. Waking is a hint: a woken task looks again and registers again
/// if the condition does not hold, so waking too often is only a waste.
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Poll;

    use strake_reactor::Tasks;

    use super::*;

    /// A task had registered and then ended for another reason. The next task in its slot found the flag set, was
    /// not put in the queue, and a rebuild on two cores slept for ever.
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
