//! Checkpoints: when they begin, and which part of the log they release.

use std::sync::mpsc;

use strake_volume_map::{Done, Error, Number, Request, Ring};

use super::Driver;
use super::steps::{Owner, Running};
use crate::message::Answer;

/// The state of checkpoints.
#[derive(Default)]
pub(super) struct Checkpoints {
    is_running: bool,
    /// True if an operation waits for a checkpoint.
    pub(super) is_wanted: bool,
    /// Checkpoints that failed since the last success.
    failures: u32,
    /// Sequence of the log at the last checkpoint.
    last: u64,
}

/// Failures in a row after which the pool serves only reads, if its log is nearly full.
const FAILURES_MAX: u32 = 8;

impl Driver {
    /// True if the rest of the log is kept for operations in progress and for the end of a pool.
    pub(super) fn is_log_nearly_full(&self) -> bool {
        4 * self.log.used() > 3 * self.log.blocks()
    }

    /// Begins a checkpoint when a quarter of the log was written since the last one. A checkpoint needs no log, so a
    /// full log always gets free again.
    pub(super) fn begin_checkpoint(&mut self) -> usize {
        let since = self.log.next() - self.checkpoints.last;
        let is_due = 4 * since > self.log.blocks() || self.checkpoints.is_wanted;
        let is_due = is_due || (self.is_log_nearly_full() && since > 0);
        if !is_due || self.checkpoints.is_running || self.map.is_read_only() {
            return 0;
        }
        self.checkpoint(None);
        1
    }

    /// Begins a checkpoint, whose end `reply` gets.
    pub(super) fn checkpoint(&mut self, reply: Option<mpsc::Sender<Result<Answer, Error>>>) {
        match self.map.begin(Request::Checkpoint) {
            Ok(id) => {
                self.checkpoints.is_running = true;
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

    pub(super) fn checkpoint_ended(
        &mut self,
        reply: Option<mpsc::Sender<Result<Answer, Error>>>,
        result: Result<Done, Error>,
    ) {
        self.checkpoints.is_running = false;
        if result.is_ok() {
            self.checkpoints.failures = 0;
            let keep = self.map.keep_from(Ring::LEADER).unwrap_or(Number(0));
            self.checkpoints.last = self.log.position(self.map.newest_floor(Ring::LEADER));
            self.log.trim(keep);
        } else {
            self.checkpoints.failures += 1;
            // Repeat only after further records, or when the log is nearly full.
            self.checkpoints.last = self.log.next().saturating_sub(1);
            if self.checkpoints.failures >= FAILURES_MAX && self.is_log_nearly_full() {
                self.map.log_failed();
            }
        }
        if let Some(reply) = reply {
            // A control thread that has stopped waiting needs no answer.
            let _ = reply.send(result.map(|_| Answer::Done));
        }
    }
}
