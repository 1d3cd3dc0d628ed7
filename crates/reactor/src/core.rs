//! The loop of a data core: turns over pollers while there is work, sleep when there is none.

use std::collections::VecDeque;
use std::sync::Arc;

use strake_units::{CoreIndex, Nanos};

use crate::bell::Arrived;
use crate::handle::{CoreHandle, Job, Shared, add};
use crate::sleep::Sleep;
use crate::thread::monotonic;

/// Closures run between two turns; more wait for the next gap, so that control work cannot hold up I/O.
const JOBS_PER_TURN: usize = 16;

/// Whether a turn found something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Yes: take another turn soon.
    Busy,
    /// No.
    Idle,
}

impl Turn {
    /// Busy when either is.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match self {
            Self::Busy => Self::Busy,
            Self::Idle => other,
        }
    }

    /// Busy when `work` is not zero.
    #[must_use]
    pub fn from_count(work: usize) -> Self {
        if work > 0 { Self::Busy } else { Self::Idle }
    }
}

/// Something a core gives a turn to, over and over: a shard of an array, an export's connections.
pub trait Poller {
    /// Does a bounded amount of work and says whether there was any. Must not block. Work that another poller
    /// of this core has to continue with (a message in its mailbox) counts as [`Turn::Busy`].
    fn turn(&mut self, now: Nanos) -> Turn;

    /// Adds what may end the sleep of a core whose pollers were all idle in their last turn. Messages that
    /// arrive with [`CoreHandle::wake`] need not be added.
    fn sleep(&self, sleep: &mut Sleep);
}

/// Names a poller of a core. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollerId(u64);

/// A data core, on its own thread. Others reach it through its [`CoreHandle`].
pub struct Core {
    shared: Arc<Shared>,
    idle_after: Nanos,
    now: Nanos,
    pollers: Vec<(PollerId, Box<dyn Poller>)>,
    next_poller: u64,
    /// Closures taken out of the inbox and not yet run.
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

    /// Which core it is.
    #[must_use]
    pub fn index(&self) -> CoreIndex {
        self.shared.index()
    }

    /// The time at which the present turn began.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// A handle for other threads.
    #[must_use]
    pub fn handle(&self) -> CoreHandle {
        CoreHandle::new(Arc::clone(&self.shared))
    }

    /// Gives `poller` a turn in every turn of the core from now on, after those added before.
    pub fn add(&mut self, poller: Box<dyn Poller>) -> PollerId {
        let id = PollerId(self.next_poller);
        self.next_poller += 1;
        self.pollers.push((id, poller));
        id
    }

    /// Takes a poller out; the order of the others stays. `None` when it was taken out before.
    pub fn remove(&mut self, id: PollerId) -> Option<Box<dyn Poller>> {
        let at = self.pollers.iter().position(|(candidate, _)| *candidate == id)?;
        Some(self.pollers.remove(at).1)
    }

    /// How many pollers it has.
    #[must_use]
    pub fn pollers(&self) -> usize {
        self.pollers.len()
    }

    /// Ends the loop after this turn.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// The loop. Returns when asked to stop, after running every closure that was accepted.
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

    /// One pass: the clock is read once, then closures, then every poller.
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

    /// Sleeps unless a last turn finds work or a poller needs polling. The order of the steps is the argument
    /// of the module documentation of `bell`.
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
        // Counted before, so that a sleeping core shows its present sleep.
        add(&counters.sleeps, 1);
        let before = monotonic();
        self.sleep.wait(before);
        add(&counters.slept_ns, monotonic().since(before).0);
        self.shared.drain_event();
    }

    /// Runs what was accepted before the inbox closed, then drops the pollers in the order they were added.
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
