//! Deadlines of tasks, in a binary heap of fixed capacity. The entries record their positions, so a timer can be
//! cancelled in logarithmic time, and an unneeded long deadline does not occupy its slot.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use strake_units::Nanos;

use crate::tasks::{Scheduler, TaskId};

/// Identifies an armed timer. An identifier is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    slot: u32,
    sequence: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    deadline: Nanos,
    /// Number of the arming. It orders equal deadlines, and distinguishes a timer from a later timer in the same slot.
    sequence: u64,
    slot: u32,
    task: TaskId,
}

impl Entry {
    fn before(&self, other: &Self) -> bool {
        (self.deadline, self.sequence) < (other.deadline, other.sequence)
    }
}

/// A fixed number of timers, each for one task.
pub struct Timers {
    /// The entries in heap order: no entry precedes the entry at `(i - 1) / 2`.
    heap: Vec<Entry>,
    /// For each slot in use, the index of its entry in `heap`.
    places: Vec<u32>,
    free: Vec<u32>,
    next_sequence: u64,
}

impl Timers {
    /// Creates room for `capacity` timers. Allocates all memory.
    ///
    /// # Panics
    /// If `capacity` does not fit in 32 bits.
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

    /// Arms a timer: the first [`expire`](Self::expire) at or after `deadline` wakes `task`. Returns `None` without
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

    /// Cancels a timer. Returns false if it has fired or was already cancelled.
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

    /// Wakes the tasks whose deadline is `now` or earlier: the earliest first, and equal deadlines in the order of
    /// arming. Returns the number of fired timers.
    pub fn expire(&mut self, now: Nanos, scheduler: &Scheduler) -> usize {
        let mut fired = 0;
        while let Some(first) = self.heap.first().filter(|first| first.deadline <= now) {
            scheduler.wake(first.task);
            self.remove(0);
            fired += 1;
        }
        fired
    }

    /// Returns the earliest deadline, which a poller passes to [`Sleep::until`](crate::Sleep::until).
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.heap.first().map(|first| first.deadline)
    }

    /// True if [`arm`](Self::arm) will succeed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the number of armed timers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if no timer is armed.
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
            // The entry from the end may belong above or below its new position.
            self.rise(at);
            self.sink(at);
        }
    }

    /// Moves the entry at `at` up until its parent precedes it.
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

    /// Moves the entry at `at` down until it precedes its children.
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

/// Waits in a task for `deadline`. While `timers` is full, the task stays ready and tries again each time it is polled.
/// This back-pressure costs turns, but no deadline is missed.
pub fn alarm<'a>(
    timers: &'a RefCell<Timers>,
    scheduler: &'a Scheduler,
    deadline: Nanos,
) -> Alarm<'a> {
    Alarm { timers, scheduler, deadline, timer: None }
}

/// A future that ends at its deadline. An earlier drop cancels the timer.
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
