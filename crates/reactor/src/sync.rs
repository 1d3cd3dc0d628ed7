//! Leaf futures for tasks of one executor. They are used on one thread, and do not allocate after construction.
//!
//! All futures may be dropped at any time: a waiter that leaves passes its place, or its grant, to the next waiter. A
//! waiter takes its place when it is first polled. Nothing else runs between a task's check of a condition and this
//! poll, so "check, then wait" misses no event.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::tasks::{Scheduler, TaskId};

/// A position in a [`Fifo`]. Tickets increase, so the queue is sorted by ticket.
type Ticket = u64;

#[derive(Clone, Copy)]
struct Waiter {
    ticket: Ticket,
    task: TaskId,
    units: u32,
}

/// Waiting tasks in order of arrival, with room for every task of the scheduler.
struct Fifo {
    waiters: RefCell<VecDeque<Waiter>>,
    next: Cell<Ticket>,
    capacity: usize,
}

impl Fifo {
    fn new(scheduler: &Scheduler) -> Self {
        let capacity = scheduler.capacity();
        Self {
            waiters: RefCell::new(VecDeque::with_capacity(capacity)),
            next: Cell::new(0),
            capacity,
        }
    }

    fn join(&self, task: TaskId, units: u32) -> Ticket {
        let mut waiters = self.waiters.borrow_mut();
        // Only a task that waits twice in one queue could violate this.
        assert!(waiters.len() < self.capacity, "more waiters in a queue than there are tasks");
        let ticket = self.next.get();
        self.next.set(ticket + 1);
        waiters.push_back(Waiter { ticket, task, units });
        ticket
    }

    fn find(&self, ticket: Ticket) -> Option<usize> {
        self.waiters.borrow().binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }

    /// Removes the waiter. Returns false if the waiter was already served.
    fn leave(&self, ticket: Ticket) -> bool {
        let found = self.find(ticket);
        if let Some(at) = found {
            self.waiters.borrow_mut().remove(at);
        }
        found.is_some()
    }

    fn front(&self) -> Option<Waiter> {
        self.waiters.borrow().front().copied()
    }

    fn pop(&self) -> Option<Waiter> {
        self.waiters.borrow_mut().pop_front()
    }

    fn len(&self) -> usize {
        self.waiters.borrow().len()
    }
}

/// The state of a waiting future.
#[derive(Clone, Copy)]
enum Stage {
    /// The future has not been polled.
    New,
    /// The future is in the queue, or was served since.
    Queued(Ticket),
    /// The future has returned `Ready`.
    Done,
}

/// A queue of waiting tasks, which are woken in order of arrival.
pub struct WaitQueue {
    scheduler: Scheduler,
    fifo: Fifo,
    /// Waiters with lower tickets were woken by `wake_all`.
    all_before: Cell<Ticket>,
}

impl WaitQueue {
    /// Creates an empty queue for the tasks of `scheduler`.
    #[must_use]
    pub fn new(scheduler: &Scheduler) -> Self {
        Self { scheduler: scheduler.clone(), fifo: Fifo::new(scheduler), all_before: Cell::new(0) }
    }

    /// Waits until woken. The wait ends only by [`wake_one`](Self::wake_one) or [`wake_all`](Self::wake_all), never
    /// spuriously.
    ///
    /// # Panics
    /// If polled while the queue already has as many waiters as the scheduler has tasks, because then one task waits
    /// twice.
    pub fn wait(&self) -> Wait<'_> {
        Wait { queue: self, stage: Stage::New }
    }

    /// Wakes the task that has waited longest. Returns false if no task waits. If this task drops its wait before it
    /// runs, the next task is woken instead.
    pub fn wake_one(&self) -> bool {
        let first = self.fifo.pop();
        if let Some(waiter) = first {
            self.scheduler.wake(waiter.task);
        }
        first.is_some()
    }

    /// Wakes all waiting tasks in order of arrival, and returns their number.
    pub fn wake_all(&self) -> usize {
        self.all_before.set(self.fifo.next.get());
        let mut woken = 0;
        while self.wake_one() {
            woken += 1;
        }
        woken
    }

    /// Returns the number of waiting tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fifo.len()
    }

    /// True if no task waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A future that ends when its [`WaitQueue`] wakes it.
#[must_use = "futures do nothing unless awaited"]
pub struct Wait<'a> {
    queue: &'a WaitQueue,
    stage: Stage,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.stage {
            Stage::New => {
                let task = self.queue.scheduler.current();
                self.stage = Stage::Queued(self.queue.fifo.join(task, 0));
                Poll::Pending
            }
            Stage::Queued(ticket) if self.queue.fifo.find(ticket).is_some() => Poll::Pending,
            Stage::Queued(_) | Stage::Done => {
                self.stage = Stage::Done;
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Stage::Queued(ticket) = self.stage else { return };
        let was_woken = !self.queue.fifo.leave(ticket);
        // The waiter was woken individually and leaves without having seen the wake-up, so the wake-up is passed to the
        // next waiter.
        if was_woken && ticket >= self.queue.all_before.get() {
            self.queue.wake_one();
        }
    }
}

/// A fixed number of units that tasks take and return, in order of arrival. Small requests do not overtake a large
/// request at the head, so no task starves.
pub struct Semaphore {
    scheduler: Scheduler,
    fifo: Fifo,
    units: u32,
    free: Cell<u32>,
}

impl Semaphore {
    /// Creates a semaphore of `units` free units for the tasks of `scheduler`.
    #[must_use]
    pub fn new(scheduler: &Scheduler, units: u32) -> Self {
        Self {
            scheduler: scheduler.clone(),
            fifo: Fifo::new(scheduler),
            units,
            free: Cell::new(units),
        }
    }

    /// Waits for `units` units and takes them. The drop of the permit returns the units.
    ///
    /// # Panics
    /// If the semaphore has fewer units in total, because the wait would never end. If polled while the queue already
    /// has as many waiters as the scheduler has tasks.
    pub fn acquire(&self, units: u32) -> Acquire<'_> {
        assert!(units <= self.units, "{units} units wanted of a semaphore of {}", self.units);
        Acquire { semaphore: self, units, stage: Stage::New }
    }

    /// Takes `units` units if they are free and no task waits for any.
    #[must_use]
    pub fn try_acquire(&self, units: u32) -> Option<Permit<'_>> {
        if units > self.free.get() || self.fifo.len() > 0 {
            return None;
        }
        self.free.set(self.free.get() - units);
        Some(Permit { semaphore: self, units })
    }

    /// Returns the number of free units.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free.get()
    }

    /// Returns the number of waiting tasks.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.fifo.len()
    }

    fn release(&self, units: u32) {
        self.free.set(self.free.get() + units);
        self.grant();
    }

    /// Serves waiters in order while the request at the head can be met.
    fn grant(&self) {
        while let Some(waiter) = self.fifo.front() {
            let Some(left) = self.free.get().checked_sub(waiter.units) else { return };
            self.free.set(left);
            self.fifo.pop();
            self.scheduler.wake(waiter.task);
        }
    }
}

/// A future that returns a [`Permit`] when the units are free and this waiter is at the head.
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire<'a> {
    semaphore: &'a Semaphore,
    units: u32,
    stage: Stage,
}

impl<'a> Future for Acquire<'a> {
    type Output = Permit<'a>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Permit<'a>> {
        let permit = match self.stage {
            Stage::New => match self.semaphore.try_acquire(self.units) {
                Some(permit) => permit,
                None => {
                    let task = self.semaphore.scheduler.current();
                    self.stage = Stage::Queued(self.semaphore.fifo.join(task, self.units));
                    return Poll::Pending;
                }
            },
            Stage::Queued(ticket) if self.semaphore.fifo.find(ticket).is_some() => {
                return Poll::Pending;
            }
            Stage::Queued(_) => Permit { semaphore: self.semaphore, units: self.units },
            Stage::Done => panic!("an acquire was polled after it was done"),
        };
        self.stage = Stage::Done;
        Poll::Ready(permit)
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        let Stage::Queued(ticket) = self.stage else { return };
        if self.semaphore.fifo.leave(ticket) {
            // A smaller request behind it may now be met.
            self.semaphore.grant();
        } else {
            self.semaphore.release(self.units);
        }
    }
}

/// Units of a [`Semaphore`]. The drop of the permit returns the units.
#[must_use = "dropping a permit gives its units back at once"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    units: u32,
}

impl Permit<'_> {
    /// Returns the number of units.
    #[must_use]
    pub fn units(&self) -> u32 {
        self.units
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.release(self.units);
    }
}

/// A gate that lets tasks pass while it is open, and blocks tasks while it is closed.
pub struct Gate {
    open: Cell<bool>,
    queue: WaitQueue,
}

impl Gate {
    /// Creates an open gate for the tasks of `scheduler`.
    #[must_use]
    pub fn new(scheduler: &Scheduler) -> Self {
        Self { open: Cell::new(true), queue: WaitQueue::new(scheduler) }
    }

    /// Opens the gate and wakes all blocked tasks.
    pub fn open(&self) {
        self.open.set(true);
        self.queue.wake_all();
    }

    /// Closes the gate. Tasks that were woken by an earlier opening and have not run yet are blocked again.
    pub fn close(&self) {
        self.open.set(false);
    }

    /// True if the gate is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Returns the number of blocked tasks.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Waits until the gate is open.
    pub async fn pass(&self) {
        while !self.open.get() {
            self.queue.wait().await;
        }
    }
}

/// Lets the other ready tasks run once, for long loops in a task.
pub fn yield_now(scheduler: &Scheduler) -> YieldNow<'_> {
    YieldNow { scheduler, yielded: false }
}

/// A future that is ready when it is polled for the second time.
#[must_use = "futures do nothing unless awaited"]
pub struct YieldNow<'a> {
    scheduler: &'a Scheduler,
    yielded: bool,
}

impl Future for YieldNow<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        self.scheduler.wake(self.scheduler.current());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
