//! A clock that is stopped until a test moves it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::PATIENCE;
use crate::clock::{Clock, Sleep};

#[derive(Debug)]
struct Sleeper {
    time: Duration,
    until: Duration,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct State {
    now: Duration,
    next: u64,
    sleepers: BTreeMap<u64, Sleeper>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The hand of the clock.
#[derive(Debug, Default)]
pub struct Hand {
    shared: Arc<Shared>,
}

impl Hand {
    /// Waits until a task sleeps for exactly `time`, then moves the clock to the end of that sleep.
    pub fn pass(&self, time: Duration) {
        let shared = &self.shared;
        let guard = shared.state.lock().unwrap();
        let awake = |state: &mut State| !state.sleepers.values().any(|s| s.time == time);
        let (mut state, late) = shared.changed.wait_timeout_while(guard, PATIENCE, awake).unwrap();
        assert!(!late.timed_out(), "nobody sleeps for {time:?}, only {:?}", state.sleepers);
        let until =
            state.sleepers.values().filter(|s| s.time == time).map(|s| s.until).min().unwrap();
        state.now = state.now.max(until);
        for sleeper in state.sleepers.values_mut().filter(|s| s.until <= until) {
            sleeper.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// Removes a sleep that has ended, or is no longer needed, from the list.
struct Asleep {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Asleep {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap().sleepers.remove(&self.id);
    }
}

impl Clock for Hand {
    fn now(&self) -> Duration {
        self.shared.state.lock().unwrap().now
    }

    fn sleep(&self, time: Duration) -> Sleep {
        let mut state = self.shared.state.lock().unwrap();
        let (id, until) = (state.next, state.now + time);
        state.next += 1;
        state.sleepers.insert(id, Sleeper { time, until, waker: None });
        self.shared.changed.notify_all();
        let asleep = Asleep { shared: self.shared.clone(), id };
        Box::pin(poll_fn(move |context| {
            let mut state = asleep.shared.state.lock().unwrap();
            let now = state.now;
            match state.sleepers.get_mut(&asleep.id) {
                Some(sleeper) if now < sleeper.until => {
                    sleeper.waker = Some(context.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        }))
    }
}
