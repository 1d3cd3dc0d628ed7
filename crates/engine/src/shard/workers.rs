//! The workers of a shard: tasks that execute one job after another.
//!
//! The future of a job is large, because it contains plans for the widest stripe, and the start of a task moves its
//! future into the slot. Therefore the task of a slot does not end with its job, but waits for the next job, whose
//! description has only a few bytes.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use strake_reactor::{Scheduler, TaskId};

use super::driver::run_job;
use super::{Job, Shard};

/// The workers and their jobs.
pub(crate) struct Workers {
    scheduler: Scheduler,
    /// Workers without a job. The worker with the most recent job is on top, because its memory is probably in the CPU
    /// cache.
    idle: Vec<TaskId>,
    /// For each task slot, the job that its worker has not yet taken.
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

    /// Number of workers without a job.
    pub(crate) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Assigns the job to an idle worker, or returns the job if no worker is idle.
    pub(crate) fn assign(&mut self, job: Job) -> Result<(), Job> {
        let Some(worker) = self.idle.pop() else { return Err(job) };
        let before = self.jobs[worker.slot()].replace(job);
        debug_assert!(before.is_none(), "a worker has one job at a time");
        self.scheduler.wake(worker);
        Ok(())
    }
}

/// Executes `job`, and then further jobs.
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
        // The wake-up was for the previous job.
        None => Poll::Pending,
    })
    .await
}
