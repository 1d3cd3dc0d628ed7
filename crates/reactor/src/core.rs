//! The loop of a data core, which takes turns over pollers while there is work, and sleeps without work.

use std::collections::VecDeque;
use std::sync::Arc;

use strake_units::{CoreIndex, Nanos};

use crate::bell::Arrived;
use crate::handle::{CoreHandle, Job, Shared, add};
use crate::sleep::Sleep;
use crate::thread::monotonic;

/// Maximum number of closures between two turns. Further closures wait for the next turn, so control work cannot delay
/// I/O.
const JOBS_PER_TURN: usize = 16;

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The turn had work. The core takes another turn soon.
    Busy,
    /// The turn had no work.
    Idle,
}

impl Turn {
    /// Returns `Busy` if at least one turn was busy.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match self {
            Self::Busy => Self::Busy,
            Self::Idle => other,
        }
    }

    /// Returns `Busy` if `work` is not zero.
    #[must_use]
    pub fn from_count(work: usize) -> Self {
        if work > 0 { Self::Busy } else { Self::Idle }
    }
}

/// Code that a core calls in each turn, such as a shard of an array, or the connections of an export.
pub trait Poller {
    /// Does a bounded amount of work, and returns whether there was any. Must not block. Work for another poller of
    /// this core (a message in its mailbox) also counts as [`Turn::Busy`].
    fn turn(&mut self, now: Nanos) -> Turn;

    /// Adds the events that may end the sleep of a core. Called if all pollers were idle in their last turn. Messages
    /// that arrive with [`CoreHandle::wake`] need not be added.
    fn sleep(&self, sleep: &mut Sleep);
}

/// Identifies a poller of a core. An identifier is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollerId(u64);

/// A data core on its own thread. Other threads access the core through its [`CoreHandle`].
pub struct Core {
    shared: Arc<Shared>,
    idle_after: Nanos,
    now: Nanos,
    pollers: Vec<(PollerId, Box<dyn Poller>)>,
    next_poller: u64,
    /// Closures that were taken out of the inbox and have not yet run.
    jobs: VecDeque<Job>,
    sleep: Sleep,
    stopping: bool,
}

impl Core {
    pub(crate) fn new(shared: Arc<Shared>, idle_after: Nanos) -> Self {
        Self {
            shared,
            idle_after,
            now: monotonic(),
            pollers: Vec::new(),
            next_poller: 0,
            jobs: VecDeque::new(),
            sleep: Sleep::new(),
            stopping: false,
        }
    }

    /// Returns the index of the core.
    #[must_use]
    pub fn index(&self) -> CoreIndex {
        self.shared.index()
    }

    /// Returns the start time of the present turn.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns a handle for other threads.
    #[must_use]
    pub fn handle(&self) -> CoreHandle {
        CoreHandle::new(Arc::clone(&self.shared))
    }

    /// Adds `poller` after the other pollers. Each turn of the core then calls the poller.
    pub fn add(&mut self, poller: Box<dyn Poller>) -> PollerId {
        let id = PollerId(self.next_poller);
        self.next_poller += 1;
        self.pollers.push((id, poller));
        id
    }

    /// Removes a poller without a change of the order of the others. Returns `None` if it was already removed.
    pub fn remove(&mut self, id: PollerId) -> Option<Box<dyn Poller>> {
        let at = self.pollers.iter().position(|(candidate, _)| *candidate == id)?;
        Some(self.pollers.remove(at).1)
    }

    /// Returns the number of pollers.
    #[must_use]
    pub fn pollers(&self) -> usize {
        self.pollers.len()
    }

    /// Ends the loop after this turn.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Runs the loop. Returns after a stop request and after all accepted closures have run.
    pub(crate) fn run(&mut self) {
        let mut idle_since = None;
        while !self.stopping {
            match self.turn() {
                Turn::Busy => idle_since = None,
                Turn::Idle => {
                    let since = *idle_since.get_or_insert(self.now);
                    if self.now.since(since) >= self.idle_after {
                        self.try_sleep();
                        idle_since = None;
                    } else {
                        std::hint::spin_loop();
                    }
                }
            }
        }
        self.finish();
    }

    /// Executes one turn: reads the clock once, runs closures, and calls every poller.
    fn turn(&mut self) -> Turn {
        self.now = monotonic();
        let mut turn = self.run_jobs();
        for (_, poller) in &mut self.pollers {
            turn = poller.turn(self.now).or(turn);
        }
        let counters = self.shared.counters();
        add(&counters.turns, 1);
        if turn == Turn::Busy {
            add(&counters.busy_turns, 1);
        }
        turn
    }

    fn run_jobs(&mut self) -> Turn {
        if self.jobs.is_empty() {
            match self.shared.receive(&mut self.jobs) {
                Arrived::Nothing => return Turn::Idle,
                Arrived::Later => return Turn::Busy,
                Arrived::Jobs => {}
            }
        }
        for _ in 0..JOBS_PER_TURN {
            let Some(job) = self.jobs.pop_front() else { break };
            self.run_job(job);
        }
        Turn::Busy
    }

    fn run_job(&mut self, job: Job) {
        job(self);
        add(&self.shared.counters().jobs, 1);
    }

    /// Sleeps unless a last turn finds work or a poller needs polling. The documentation of the module `bell` explains
    /// the order of the steps.
    fn try_sleep(&mut self) {
        self.shared.bell().announce_sleep();
        if self.turn() == Turn::Idle {
            self.sleep.clear();
            self.sleep.fd(self.shared.event());
            for (_, poller) in &self.pollers {
                poller.sleep(&mut self.sleep);
            }
            if !self.sleep.is_never() {
                self.sleep_now();
            }
        }
        self.shared.bell().end_sleep();
    }

    fn sleep_now(&mut self) {
        let counters = self.shared.counters();
        // The count increases before the sleep, so that it includes the present sleep.
        add(&counters.sleeps, 1);
        let before = monotonic();
        self.sleep.wait(before);
        add(&counters.slept_ns, monotonic().since(before).0);
        self.shared.drain_event();
    }

    /// Runs the closures that were accepted before the inbox closed, and then drops the pollers in the order of their
    /// addition.
    fn finish(&mut self) {
        let late = self.shared.close();
        self.jobs.extend(late);
        while let Some(job) = self.jobs.pop_front() {
            self.run_job(job);
        }
        self.pollers.clear();
    }
}

#[cfg(test)]
mod tests;
