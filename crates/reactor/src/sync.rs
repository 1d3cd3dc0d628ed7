//! Leaf futures that tasks of one executor wait on. One thread, no allocation after construction.
//!
//! All of them may be dropped at any time: a waiter that leaves gives its place, or what it was just given, to
//! the next one. A waiter takes its place when it is first polled, and nothing else runs between a task's
//! check of a condition and that poll, so "check, then wait" misses nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::tasks::{Scheduler, TaskId};

/// A place in a [`Fifo`]. Tickets grow, so the queue is sorted by them.
type Ticket = u64;

#[derive(Clone, Copy)]
struct Waiter {
    ticket: Ticket,
    task: TaskId,
    units: u32,
}

/// Waiting tasks in the order they came; room for every task of the scheduler.
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
        // A task that waits in two places of one queue at once would get here.
        assert!(waiters.len() < self.capacity, "more waiters in a queue than there are tasks");
        let ticket = self.next.get();
        self.next.set(ticket + 1);
        waiters.push_back(Waiter { ticket, task, units });
        ticket
    }

    fn find(&self, ticket: Ticket) -> Option<usize> {
        self.waiters.borrow().binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }

    /// Takes the waiter out; false when it was served before.
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

/// How far a waiting future has come.
#[derive(Clone, Copy)]
enum Stage {
    /// Not polled yet.
    New,
    /// In the queue, or served since.
    Queued(Ticket),
    /// Has returned `Ready`.
    Done,
}

/// Tasks waiting for something to happen, woken first come, first served.
pub struct WaitQueue {
    scheduler: Scheduler,
    fifo: Fifo,
    /// Waiters with lower tickets were woken together with everybody who came before them.
    all_before: Cell<Ticket>,
}

impl WaitQueue {
    /// An empty queue for the tasks of `scheduler`.
    #[must_use]
    pub fn new(scheduler: &Scheduler) -> Self {
        Self { scheduler: scheduler.clone(), fifo: Fifo::new(scheduler), all_before: Cell::new(0) }
    }

    /// Waits until woken. Ends only by [`wake_one`](Self::wake_one) or [`wake_all`](Self::wake_all), never
    /// spuriously.
    ///
    /// # Panics
    /// When polled although as many waiters as the scheduler has tasks are in the queue: one task waits twice.
    pub fn wait(&self) -> Wait<'_> {
        Wait { queue: self, stage: Stage::New }
    }

    /// Wakes the task that has waited longest; false when no task waits. Should that task drop its wait before it runs,
    /// the next one is woken instead.
    pub fn wake_one(&self) -> bool {
        let first = self.fifo.pop();
        if let Some(waiter) = first {
            self.scheduler.wake(waiter.task);
        }
        first.is_some()
    }

    /// Wakes all waiting tasks, in the order they came, and returns how many.
    pub fn wake_all(&self) -> usize {
        self.all_before.set(self.fifo.next.get());
        let mut woken = 0;
        while self.wake_one() {
            woken += 1;
        }
        woken
    }

    /// How many tasks wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fifo.len()
    }

    /// True when no task waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Ends when its [`WaitQueue`] wakes it.
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
        // Woken alone and gone without having seen it: the wake-up was meant for one task, so pass it on.
        if was_woken && ticket >= self.queue.all_before.get() {
            self.queue.wake_one();
        }
    }
}

/// A fixed number of units that tasks take and give back, first come, first served: a big request at the head
/// is not overtaken by small ones, so no task starves.
pub struct Semaphore {
    scheduler: Scheduler,
    fifo: Fifo,
    units: u32,
    free: Cell<u32>,
}

impl Semaphore {
    /// A semaphore of `units` free units for the tasks of `scheduler`.
    #[must_use]
    pub fn new(scheduler: &Scheduler, units: u32) -> Self {
        Self {
            scheduler: scheduler.clone(),
            fifo: Fifo::new(scheduler),
            units,
            free: Cell::new(units),
        }
    }

    /// Waits for `units` units and takes them. They return when the permit is dropped.
    ///
    /// # Panics
    /// When the semaphore has fewer units in all: the wait would never end. When polled although as many
    /// waiters as the scheduler has tasks are in the queue.
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

    /// How many units are free.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free.get()
    }

    /// How many tasks wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.fifo.len()
    }

    fn release(&self, units: u32) {
        self.free.set(self.free.get() + units);
        self.grant();
    }

    /// Serves waiters in order while the head's wish can be met.
    fn grant(&self) {
        while let Some(waiter) = self.fifo.front() {
            let Some(left) = self.free.get().checked_sub(waiter.units) else { return };
            self.free.set(left);
            self.fifo.pop();
            self.scheduler.wake(waiter.task);
        }
    }
}

/// Becomes a [`Permit`] when the units are free and it is this waiter's turn.
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
            // A smaller wish behind it may now be met.
            self.semaphore.grant();
        } else {
            self.semaphore.release(self.units);
        }
    }
}

/// Units of a [`Semaphore`]; dropping it gives them back.
#[must_use = "dropping a permit gives its units back at once"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    units: u32,
}

impl Permit<'_> {
    /// How many units it holds.
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

/// Lets tasks pass while it is open and holds them while it is closed.
pub struct Gate {
    open: Cell<bool>,
    queue: WaitQueue,
}

impl Gate {
    /// An open gate for the tasks of `scheduler`.
    #[must_use]
    pub fn new(scheduler: &Scheduler) -> Self {
        Self { open: Cell::new(true), queue: WaitQueue::new(scheduler) }
    }

    /// Opens it and wakes everybody held.
    pub fn open(&self) {
        self.open.set(true);
        self.queue.wake_all();
    }

    /// Closes it. Tasks that were woken by an earlier opening and have not run yet are held again.
    pub fn close(&self) {
        self.open.set(false);
    }

    /// True when it is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.get()
    }

    /// How many tasks it holds.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Waits until it is open.
    pub async fn pass(&self) {
        while !self.open.get() {
            self.queue.wait().await;
        }
    }
}

/// Lets the other ready tasks run once before going on: for long loops in a task.
pub fn yield_now(scheduler: &Scheduler) -> YieldNow<'_> {
    YieldNow { scheduler, yielded: false }
}

/// Is ready the second time it is polled.
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
