//! Deadlines of tasks: a binary heap of fixed capacity whose entries know where they lie, so that a timer can
//! be cancelled in logarithmic time and a long deadline does not hold its slot once it is not needed.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use strake_units::Nanos;

use crate::tasks::{Scheduler, TaskId};

/// Names an armed timer. Never names another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    slot: u32,
    sequence: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    deadline: Nanos,
    /// Which arming this was: orders equal deadlines, and tells a timer from a later one in its slot.
    sequence: u64,
    slot: u32,
    task: TaskId,
}

impl Entry {
    fn before(&self, other: &Self) -> bool {
        (self.deadline, self.sequence) < (other.deadline, other.sequence)
    }
}

/// Up to a fixed number of armed timers, each for one task.
pub struct Timers {
    /// Heap order: no entry is before the one at `(i - 1) / 2`.
    heap: Vec<Entry>,
    /// For each slot in use, where its entry lies in `heap`.
    places: Vec<u32>,
    free: Vec<u32>,
    next_sequence: u64,
}

impl Timers {
    /// No timers, room for `capacity`. Allocates everything it will ever need.
    ///
    /// # Panics
    /// When `capacity` does not fit 32 bits.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let slots = u32::try_from(capacity).expect("timers are numbered with 32 bits");
        Self {
            heap: Vec::with_capacity(capacity),
            places: vec![0; capacity],
            free: (0..slots).rev().collect(),
            next_sequence: 0,
        }
    }

    /// Has `task` woken by the first [`expire`](Self::expire) at or after `deadline`. `None` when there is no
    /// room (back-pressure).
    #[must_use = "a timer that did not fit never fires"]
    pub fn arm(&mut self, deadline: Nanos, task: TaskId) -> Option<TimerId> {
        let slot = self.free.pop()?;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.heap.push(Entry { deadline, sequence, slot, task });
        self.rise(self.heap.len() - 1);
        Some(TimerId { slot, sequence })
    }

    /// Takes a timer out; false when it has fired or was cancelled before.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        let place = self.place(timer);
        if let Some(at) = place {
            self.remove(at);
        }
        place.is_some()
    }

    /// True until the timer fires or is cancelled.
    #[must_use]
    pub fn is_armed(&self, timer: TimerId) -> bool {
        self.place(timer).is_some()
    }

    /// Wakes the tasks whose deadline is `now` or earlier, earliest first, equal ones in the order they were
    /// armed. Returns how many fired.
    pub fn expire(&mut self, now: Nanos, scheduler: &Scheduler) -> usize {
        let mut fired = 0;
        while let Some(first) = self.heap.first().filter(|first| first.deadline <= now) {
            scheduler.wake(first.task);
            self.remove(0);
            fired += 1;
        }
        fired
    }

    /// The earliest deadline: what a poller gives to [`Sleep::until`](crate::Sleep::until).
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.heap.first().map(|first| first.deadline)
    }

    /// True when [`arm`](Self::arm) will succeed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// How many timers are armed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True when none is armed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn place(&self, timer: TimerId) -> Option<usize> {
        let at = *self.places.get(timer.slot as usize)? as usize;
        let entry = self.heap.get(at)?;
        (entry.slot == timer.slot && entry.sequence == timer.sequence).then_some(at)
    }

    fn remove(&mut self, at: usize) {
        let gone = self.heap.swap_remove(at);
        self.free.push(gone.slot);
        if at < self.heap.len() {
            // The entry from the end may belong above or below its new place.
            self.rise(at);
            self.sink(at);
        }
    }

    /// Moves the entry at `at` up until its parent is before it.
    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.heap[at].before(&self.heap[parent]) {
                break;
            }
            self.swap(at, parent);
            at = parent;
        }
        self.note(at);
    }

    /// Moves the entry at `at` down until it is before its children.
    fn sink(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            let Some(mut child) = (left < self.heap.len()).then_some(left) else { break };
            let right = left + 1;
            if right < self.heap.len() && self.heap[right].before(&self.heap[left]) {
                child = right;
            }
            if !self.heap[child].before(&self.heap[at]) {
                break;
            }
            self.swap(at, child);
            at = child;
        }
        self.note(at);
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.note(a);
        self.note(b);
    }

    fn note(&mut self, at: usize) {
        self.places[self.heap[at].slot as usize] = at as u32;
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers")
            .field("armed", &self.len())
            .field("capacity", &self.places.len())
            .field("next", &self.next_deadline())
            .finish()
    }
}

/// Waits for `deadline` in a task. While `timers` is full the task stays ready and tries again each time it
/// is polled: back-pressure that costs turns, never a missed deadline.
pub fn alarm<'a>(
    timers: &'a RefCell<Timers>,
    scheduler: &'a Scheduler,
    deadline: Nanos,
) -> Alarm<'a> {
    Alarm { timers, scheduler, deadline, timer: None }
}

/// Ends at its deadline; dropping it earlier cancels the timer.
#[must_use = "futures do nothing unless awaited"]
pub struct Alarm<'a> {
    timers: &'a RefCell<Timers>,
    scheduler: &'a Scheduler,
    deadline: Nanos,
    timer: Option<TimerId>,
}

impl Future for Alarm<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.timer {
            Some(timer) if self.timers.borrow().is_armed(timer) => return Poll::Pending,
            Some(_) => return Poll::Ready(()),
            None => {}
        }
        let task = self.scheduler.current();
        self.timer = self.timers.borrow_mut().arm(self.deadline, task);
        if self.timer.is_none() {
            self.scheduler.wake(task);
        }
        Poll::Pending
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.timers.borrow_mut().cancel(timer);
        }
    }
}

#[cfg(test)]
mod tests;
