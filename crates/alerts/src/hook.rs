//! One running hook: its queue, its counts, and the task that empties the queue.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strake_api::v1::{self, Event};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::error::{Again, Failure};
use crate::limits::ERROR_BYTES_MAX;
use crate::notice::Message;
use crate::pace::{Next, Pace};
use crate::severity::Severity;
use crate::spec::Checked;
use crate::text::{bounded, cut, one_line};
use crate::way::Setting;

/// The counters of a hook.
#[derive(Debug, Default)]
struct Counts {
    delivered: u64,
    failed: u64,
    last_error: String,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    counts: Counts,
}

/// A hook that was added.
#[derive(Debug)]
pub(crate) struct Hook {
    pub checked: Checked,
    setting: Arc<Setting>,
    state: Mutex<State>,
    wake: Notify,
}

/// The signal that tells the task of a hook to end.
pub(crate) type Stopping = watch::Receiver<bool>;

impl Hook {
    pub(crate) fn new(checked: Checked, setting: Arc<Setting>) -> Self {
        let pace = Pace::new(&setting.limits, setting.clock.now());
        let state = Mutex::new(State { pace, counts: Counts::default() });
        Self { checked, setting, state, wake: Notify::new() }
    }

    /// Queues `event`, if it has at least the severity of the hook. Neither waits nor fails.
    pub(crate) fn offer(&self, event: &Event) {
        if Severity::of(event) >= self.checked.severity {
            let event = bounded(event);
            self.state().pace.offer(event);
            self.wake.notify_one();
        }
    }

    /// Returns the hook as it is listed.
    pub(crate) fn listed(&self) -> v1::Hook {
        let state = self.state();
        v1::Hook {
            delivered: state.counts.delivered,
            failed: state.counts.failed,
            held_back: state.pace.held_back(),
            last_error: state.counts.last_error.clone(),
            ..self.checked.listed()
        }
    }

    /// Delivers the queued events until `stopping`. Then delivers the remaining events in one message and one attempt.
    pub(crate) async fn work(self: Arc<Self>, mut stopping: Stopping) {
        while !*stopping.borrow() {
            let next = self.state().pace.take(self.setting.clock.now());
            match next {
                Next::Deliver(event) => self.deliver(*event, &mut stopping).await,
                Next::Wait(time) => self.pause(time, &mut stopping).await,
                Next::Idle => {
                    tokio::select! {
                        () = self.wake.notified() => {}
                        _ = stopping.changed() => {}
                    }
                }
            }
        }
        let left = self.state().pace.take_all();
        match left {
            Next::Deliver(event) => {
                let done = self.clone().attempt(*event).await;
                self.count(done);
            }
            Next::Wait(_) | Next::Idle => {}
        }
    }

    /// Repeats the delivery until the message is delivered or permanently refused, or until the limit of attempts.
    async fn deliver(self: &Arc<Self>, event: Event, stopping: &mut Stopping) {
        let mut done = self.clone().attempt(event.clone()).await;
        for time in &self.setting.limits.backoff {
            if !matches!(&done, Err(failure) if failure.again == Again::Yes) || *stopping.borrow() {
                break;
            }
            self.note(&done);
            self.pause(*time, stopping).await;
            done = self.clone().attempt(event.clone()).await;
        }
        self.count(done);
    }

    async fn pause(&self, time: Duration, stopping: &mut Stopping) {
        tokio::select! {
            () = self.setting.clock.sleep(time) => {}
            _ = stopping.changed() => {}
        }
    }

    /// Makes one attempt in a separate task: a panic in a library ends this attempt and not the hook.
    pub(crate) async fn attempt(self: Arc<Self>, event: Event) -> Result<(), Failure> {
        let mut task = JoinSet::new();
        task.spawn(async move {
            let message = Message { host: self.setting.host.clone(), event };
            self.checked.way.tell(&message, &self.setting).await
        });
        match task.join_next().await {
            Some(Ok(done)) => done,
            Some(Err(_)) | None => {
                Err(Failure::lasting("the delivery panicked; see straked's log"))
            }
        }
    }

    /// Counts a finished delivery.
    pub(crate) fn count(&self, done: Result<(), Failure>) {
        self.note(&done);
        let counts = &mut self.state().counts;
        match done {
            Ok(()) => counts.delivered += 1,
            Err(_) => counts.failed += 1,
        }
    }

    /// Keeps the reason of a failure for the list. The failure causes no event, because a failing hook must not create
    /// events for the hooks.
    fn note(&self, done: &Result<(), Failure>) {
        if let Err(failure) = done {
            let error = cut(&one_line(&failure.what), ERROR_BYTES_MAX);
            tracing::warn!(hook = self.checked.spec.name, error, "delivery to a hook failed");
            self.state().counts.last_error = error;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No holder of the lock leaves a partial change of the state, so a panic does not damage it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
