//! The local executor: a slab of futures of one type, stepped in the order they were woken.
//!
//! All memory is allocated at the start: one pinned slot per task, a list of free slots and a ring of ready tasks that
//! has room for every slot. Starting, waking, polling and finishing a task then only moves numbers around: no
//! allocation, no atomics, and no unsafe code, because a slot is a `Pin<Box<Option<F>>>` whose content can be replaced
//! in place.
//!
//! Futures never look at their `std::task::Waker` (it is [`Waker::noop`]). A leaf future asks its [`Scheduler`] for
//! [`current`](Scheduler::current), and the code that makes it ready calls [`wake`](Scheduler::wake). So only leaf
//! futures written for this executor can run on it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Maximum number of tasks of a [`Scheduler`]. A [`TaskId`] has 16 bits for the slot.
pub const TASKS_LIMIT: usize = 1 << 16;

/// Identifies a task by its slot and the number of reuses of the slot.
///
/// The count has 16 bits, so an id kept across 65 536 reuses of one slot names the slot's present task again. This can
/// only cause a spurious poll, which every future must accept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskId(u32);

impl TaskId {
    fn new(slot: u16, generation: u16) -> Self {
        Self(u32::from(slot) | u32::from(generation) << 16)
    }

    /// Returns the slot, which is below the capacity of the scheduler.
    #[must_use]
    pub const fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({}.{})", self.slot(), self.generation())
    }
}

/// The state of a slot in the scheduler.
#[derive(Clone, Copy)]
enum Slot {
    /// The slot has no task. The next task gets `next_generation`.
    Free { next_generation: u16 },
    /// A task that waits for a wake-up, or is being polled without having been woken again.
    Waiting { generation: u16 },
    /// A task that is in the ready ring.
    Queued { generation: u16 },
}

struct Shared {
    slots: Box<[Cell<Slot>]>,
    /// Ready tasks in wake order. A slot is in this list at most once, so the list never exceeds its capacity.
    ready: RefCell<VecDeque<u16>>,
    current: Cell<Option<TaskId>>,
    claimed: Cell<bool>,
}

/// Wakes tasks. Leaf futures and the code that completes them hold clones; all stay on one thread.
#[derive(Clone)]
pub struct Scheduler(Rc<Shared>);

impl Scheduler {
    /// Creates a scheduler for up to `capacity` tasks of one [`Tasks`].
    ///
    /// # Panics
    /// If `capacity` exceeds [`TASKS_LIMIT`].
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!(
            capacity <= TASKS_LIMIT,
            "a scheduler for {capacity} tasks: the limit is {TASKS_LIMIT}"
        );
        Self(Rc::new(Shared {
            slots: (0..capacity).map(|_| Cell::new(Slot::Free { next_generation: 0 })).collect(),
            ready: RefCell::new(VecDeque::with_capacity(capacity)),
            current: Cell::new(None),
            claimed: Cell::new(false),
        }))
    }

    /// Returns the task that is being polled. A leaf future stores this task before it returns `Pending`.
    ///
    /// # Panics
    /// If called outside a poll by [`Tasks::run`].
    #[must_use]
    pub fn current(&self) -> TaskId {
        self.0.current.get().expect("Scheduler::current was called outside a task")
    }

    /// Makes `task` ready. Does nothing if the task is already ready or has finished. A task that wakes itself while it
    /// is polled is polled again, after the tasks that are already ready.
    pub fn wake(&self, task: TaskId) {
        let slot = &self.0.slots[task.slot()];
        match slot.get() {
            Slot::Waiting { generation } if generation == task.generation() => {
                slot.set(Slot::Queued { generation });
                self.0.ready.borrow_mut().push_back(task.slot() as u16);
            }
            Slot::Waiting { .. } | Slot::Queued { .. } | Slot::Free { .. } => {}
        }
    }

    /// True if some task is ready.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.0.ready.borrow().is_empty()
    }

    /// Returns the maximum number of tasks.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.slots.len()
    }

    /// Occupies a free slot with a task that is ready immediately.
    fn occupy(&self, slot: u16) -> TaskId {
        let cell = &self.0.slots[usize::from(slot)];
        let Slot::Free { next_generation: generation } = cell.get() else {
            panic!("slot {slot} was free in the slab but taken in the scheduler");
        };
        cell.set(Slot::Queued { generation });
        self.0.ready.borrow_mut().push_back(slot);
        TaskId::new(slot, generation)
    }

    /// Removes and returns the task that has been ready longest.
    fn next(&self) -> Option<TaskId> {
        let slot = self.0.ready.borrow_mut().pop_front()?;
        let cell = &self.0.slots[usize::from(slot)];
        let Slot::Queued { generation } = cell.get() else {
            panic!("slot {slot} was in the ready ring without being queued");
        };
        cell.set(Slot::Waiting { generation });
        Some(TaskId::new(slot, generation))
    }

    /// Frees the slot of a finished task, so its id becomes stale. The future was already dropped, so only a stale
    /// entry in the ready ring can remain, which is removed.
    fn vacate(&self, task: TaskId) {
        let cell = &self.0.slots[task.slot()];
        if matches!(cell.get(), Slot::Queued { .. }) {
            self.0.ready.borrow_mut().retain(|slot| usize::from(*slot) != task.slot());
        }
        cell.set(Slot::Free { next_generation: task.generation().wrapping_add(1) });
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("capacity", &self.capacity())
            .field("ready", &self.0.ready.borrow())
            .field("current", &self.0.current.get())
            .finish()
    }
}

/// An executor for a fixed number of futures of one type on one thread.
///
/// The drop of the executor drops the unfinished futures in slot order.
pub struct Tasks<F: Future<Output = ()>> {
    scheduler: Scheduler,
    slots: Vec<Pin<Box<Option<F>>>>,
    /// Free slots. The last freed slot is on top, because its memory is probably in the CPU cache.
    free: Vec<u16>,
}

impl<F: Future<Output = ()>> Tasks<F> {
    /// Creates an executor with as many slots as `scheduler` can name. Allocates all memory of the executor.
    ///
    /// # Panics
    /// If another `Tasks` already uses `scheduler`.
    #[must_use]
    pub fn new(scheduler: Scheduler) -> Self {
        assert!(!scheduler.0.claimed.replace(true), "a scheduler serves one slab of tasks");
        let capacity = scheduler.capacity();
        Self {
            scheduler,
            slots: (0..capacity).map(|_| Box::pin(None)).collect(),
            free: (0..capacity).rev().map(|slot| slot as u16).collect(),
        }
    }

    /// True if [`spawn`](Self::spawn) will succeed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Starts `future`. The task is ready immediately, and the next [`run`](Self::run) polls it first.
    ///
    /// # Errors
    /// If every slot is in use (back-pressure). The error contains the future.
    // The error returns the future unboxed, because the executor exists to avoid boxes.
    #[allow(clippy::result_large_err)]
    pub fn spawn(&mut self, future: F) -> Result<TaskId, F> {
        let Some(slot) = self.free.pop() else { return Err(future) };
        self.slots[usize::from(slot)].set(Some(future));
        Ok(self.scheduler.occupy(slot))
    }

    /// Polls ready tasks, longest ready first, at most `budget` of them, and returns how many it polled. Tasks
    /// that become ready meanwhile run in the same call as far as the budget goes.
    pub fn run(&mut self, budget: usize) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        for polled in 0..budget {
            let Some(task) = self.scheduler.next() else { return polled };
            self.step(task, &mut context);
        }
        budget
    }

    fn step(&mut self, task: TaskId, context: &mut Context<'_>) {
        let slot = &mut self.slots[task.slot()];
        let future = slot.as_mut().as_pin_mut().expect("a free slot was in the ready ring");
        self.scheduler.0.current.set(Some(task));
        let state = future.poll(context);
        if state.is_ready() {
            // The task stays the current task, because the drop of the future may wake other tasks.
            slot.set(None);
        }
        self.scheduler.0.current.set(None);
        match state {
            Poll::Ready(()) => {
                self.scheduler.vacate(task);
                self.free.push(task.slot() as u16);
            }
            Poll::Pending => {}
        }
    }

    /// Returns the number of unfinished tasks.
    #[must_use]
    pub fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the maximum number of tasks.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns the scheduler that wakes these tasks.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }
}

impl<F: Future<Output = ()>> fmt::Debug for Tasks<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("live", &self.live())
            .field("capacity", &self.capacity())
            .field("scheduler", &self.scheduler)
            .finish()
    }
}

#[cfg(test)]
mod tests;
