//! The shard's workers: tasks that do one job after another.
//!
//! The future of a job is large, since it holds plans for the widest stripe, and starting a task moves one into its
//! slot. So a slot's task does not end with its job: it waits for the next one, which is a few bytes.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use strake_reactor::{Scheduler, TaskId};

use super::driver::run_job;
use super::{Job, Shard};

/// Who works, and on what.
pub(crate) struct Workers {
    scheduler: Scheduler,
    /// Workers without a job, the one that had one last on top: its memory is the warmest.
    idle: Vec<TaskId>,
    /// By task slot: the job that its worker has not taken yet.
    jobs: Box<[Option<Job>]>,
}

impl Workers {
    pub(crate) fn new(scheduler: &Scheduler) -> Self {
        let capacity = scheduler.capacity();
        Self {
            scheduler: scheduler.clone(),
            idle: Vec::with_capacity(capacity),
            jobs: (0..capacity).map(|_| None).collect(),
        }
    }

    /// Workers without a job.
    pub(crate) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Gives the job to a worker that has none, or back when all have one.
    pub(crate) fn assign(&mut self, job: Job) -> Result<(), Job> {
        let Some(worker) = self.idle.pop() else { return Err(job) };
        let before = self.jobs[worker.slot()].replace(job);
        debug_assert!(before.is_none(), "a worker has one job at a time");
        self.scheduler.wake(worker);
        Ok(())
    }
}

/// Does `job`, and then whatever else it is given.
pub(super) async fn work(shard: Rc<Shard>, mut job: Job) {
    loop {
        run_job(&shard, job).await;
        job = next(&shard).await;
    }
}

/// Waits for another job.
async fn next(shard: &Shard) -> Job {
    let task = shard.scheduler.current();
    shard.workers.borrow_mut().idle.push(task);
    poll_fn(|_| match shard.workers.borrow_mut().jobs[task.slot()].take() {
        Some(job) => Poll::Ready(job),
        // The wake-up was for the job before.
        None => Poll::Pending,
    })
    .await
}
