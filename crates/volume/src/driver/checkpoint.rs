//! Checkpoints: when they begin, and which part of the log they release.

use std::sync::mpsc;

use strake_units::Nanos;
use strake_volume_map::{Done, Error, Number, OperationId, Request, Ring};

use super::Driver;
use super::steps::{Owner, Running};
use crate::limits::{CHECKPOINT_FAILING_MAX, CHECKPOINT_RETRY};
use crate::request::Answer;

/// The state of checkpoints.
#[derive(Default)]
pub(super) struct Checkpoints {
    /// Those in progress: one of the driver, and those of operators, one after the other.
    running: Vec<OperationId>,
    /// True if an operation waits for a checkpoint.
    pub(super) is_wanted: bool,
    /// Sequence of the log at the last checkpoint.
    last: u64,
    /// After a failure: when the first checkpoint failed since the last success, and when the next one may begin.
    failing: Option<Failing>,
}

/// Checkpoints that fail.
#[derive(Clone, Copy)]
struct Failing {
    since: Nanos,
    retry_at: Nanos,
}

impl Checkpoints {
    /// Returns the state after a start whose newest root is replayed from a block.
    pub(super) fn after(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// Returns checkpoint `at` of those in progress.
    pub(super) fn operation(&self, at: usize) -> Option<OperationId> {
        self.running.get(at).copied()
    }
}

impl Driver {
    /// True if the rest of the log is kept for operations in progress and for the end of a pool.
    pub(super) fn is_log_nearly_full(&self) -> bool {
        4 * self.log.used() > 3 * self.log.blocks()
    }

    /// True if a root must be written before any change: the older root is the first one of the pool.
    pub(super) fn needs_root(&self) -> bool {
        self.map.needs_roots() && !self.map.is_read_only()
    }

    /// True if a checkpoint must begin: a quarter of the log was written since the last one, or something waits for it.
    fn is_checkpoint_due(&self) -> bool {
        let since = self.log.next() - self.checkpoints.last;
        let is_due = 4 * since > self.log.blocks() || self.checkpoints.is_wanted;
        // One checkpoint releases what is below the floor of the older root, and a second one the rest.
        let is_due = is_due || self.is_log_nearly_full() || self.needs_root();
        is_due && self.checkpoints.running.is_empty() && !self.map.is_read_only()
    }

    /// Begins a checkpoint if it is due. The records that it waits for have room in the log
    /// ([`advances_allowed`](Self::advances_allowed)), so a full log gets free again.
    pub(super) fn begin_checkpoint(&mut self) -> usize {
        let is_delayed = self.checkpoint_retry().is_some_and(|retry_at| self.now < retry_at);
        if is_delayed || !self.is_checkpoint_due() {
            return 0;
        }
        self.checkpoint(None);
        1
    }

    /// Begins a checkpoint, whose end `reply` gets.
    pub(super) fn checkpoint(&mut self, reply: Option<mpsc::Sender<Result<Answer, Error>>>) {
        match self.map.begin(Request::Checkpoint) {
            Ok(id) => {
                self.checkpoints.running.push(id);
                self.checkpoints.is_wanted = false;
                self.operations.insert(id, Running::new(Owner::Checkpoint { reply }));
            }
            Err(error) => {
                if let Some(reply) = reply {
                    // A control thread that has stopped waiting needs no answer.
                    let _ = reply.send(Err(error));
                }
            }
        }
    }

    /// Advances checkpoints while nothing else may be advanced. The records that they wait for have room in the log,
    /// and they release blocks.
    pub(super) fn advance_checkpoints(&mut self) -> usize {
        let before = self.checkpoints.running.len();
        let mut at = 0;
        while let Some(id) = self.checkpoints.operation(at) {
            self.advance(id);
            // A checkpoint that ended is no longer in the list.
            at += usize::from(self.checkpoints.operation(at) == Some(id));
        }
        before - self.checkpoints.running.len()
    }

    pub(super) fn checkpoint_ended(
        &mut self,
        id: OperationId,
        reply: Option<mpsc::Sender<Result<Answer, Error>>>,
        result: Result<Done, Error>,
    ) {
        self.checkpoints.running.retain(|running| *running != id);
        if result.is_ok() {
            self.checkpoints.failing = None;
            let keep = self.map.keep_from(Ring::LEADER).unwrap_or(Number(0));
            self.checkpoints.last = self.log.position(self.map.newest_floor(Ring::LEADER));
            self.log.trim(keep);
        } else {
            let since = self.checkpoints.failing.map_or(self.now, |failing| failing.since);
            let retry_at = Nanos(self.now.0 + CHECKPOINT_RETRY.0);
            self.checkpoints.failing = Some(Failing { since, retry_at });
            // Writes wait for room in the log. They must not wait for ever.
            let is_too_long = self.now.0 >= since.0 + CHECKPOINT_FAILING_MAX.0;
            if is_too_long && (self.is_log_nearly_full() || self.needs_root()) {
                self.map.log_failed();
            }
        }
        if let Some(reply) = reply {
            // A control thread that has stopped waiting needs no answer.
            let _ = reply.send(result.map(|_| Answer::Done));
        }
    }

    /// The time at which a checkpoint that is due may begin, after one that failed.
    pub(super) fn checkpoint_retry(&self) -> Option<Nanos> {
        let failing = self.checkpoints.failing.filter(|_| self.is_checkpoint_due());
        failing.map(|failing| failing.retry_at)
    }
}
