//! Tests the state that a core shares with other threads, in every order of the steps and with every value that the
//! memory model of C11 allows. loom runs the original source `src/bell.rs` with its own atomics and locks.
//!
//! The tests do not cover mailboxes, which are rings of `rtrb` without a loom build. Here, a message is a number that
//! is stored with relaxed ordering, which is weaker than the guarantees of `rtrb`. The tests do not cover `eventfd` and
//! `ppoll` either: a descriptor is a flag that stays set until it is read.
//!
//! `LOOM_MAX_PREEMPTIONS` sets the maximum number of preemptions of a thread.

// The models do not use all of the source.
#[allow(dead_code, unreachable_pub)]
#[path = "../src/bell.rs"]
mod bell;

/// The atomics of the source in this test.
mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

use std::collections::VecDeque;

use atomic::{Mutex, Ordering};
use bell::{Arrived, Bell, Inbox};
use loom::sync::atomic::AtomicUsize;
use loom::sync::{Arc, Condvar};
use loom::thread;

/// Sufficient for every known defect. The nightly tests use a larger number.
const PREEMPTIONS: usize = 2;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(model);
}

/// An event descriptor.
#[derive(Default)]
struct Event {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    /// Waits until the descriptor is readable, and reads it. loom reports an endless wait as a deadlock.
    fn wait_and_drain(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// A core and its shared state.
struct Core {
    bell: Bell,
    event: Event,
    inbox: Inbox<usize>,
    /// Messages sent so far through a mailbox.
    sent: AtomicUsize,
}

impl Core {
    fn new() -> Arc<Self> {
        let (bell, event) = (Bell::default(), Event::default());
        Arc::new(Self { bell, event, inbox: Inbox::new(), sent: AtomicUsize::new(0) })
    }

    fn wake(&self) {
        if self.bell.has_to_ring() {
            self.event.ring();
        }
    }

    /// Sends as any sender does.
    fn send(&self, messages: usize) {
        self.sent.store(messages, Ordering::Relaxed);
        self.wake();
    }

    fn put(&self, job: usize) -> bool {
        let accepted = self.inbox.put(job);
        if accepted {
            self.wake();
        }
        accepted
    }

    /// Takes one turn. Returns true if there was work.
    fn turn(&self, got: &mut Got) -> bool {
        let mut jobs = VecDeque::new();
        let arrived = self.inbox.receive(&mut jobs);
        if arrived == Arrived::Later {
            // The loop waits until the other thread continues.
            thread::yield_now();
        }
        got.jobs.extend(jobs);
        let sent = self.sent.load(Ordering::Relaxed);
        let more = sent > std::mem::replace(&mut got.messages, sent);
        more || arrived != Arrived::Nothing
    }

    /// The loop of a core that sleeps after every idle turn, until it has received everything.
    fn run(&self, messages: usize, jobs: usize) -> Got {
        let mut got = Got::default();
        while got.messages < messages || got.jobs.len() < jobs {
            if self.turn(&mut got) {
                continue;
            }
            self.bell.announce_sleep();
            if !self.turn(&mut got) {
                self.event.wait_and_drain();
            }
            self.bell.end_sleep();
        }
        got
    }
}

#[derive(Default)]
struct Got {
    messages: usize,
    jobs: Vec<usize>,
}

#[test]
fn a_message_wakes_a_core_wherever_it_meets_its_sleep() {
    check(|| {
        let core = Core::new();
        let sender = Arc::clone(&core);
        let sender = thread::spawn(move || {
            sender.send(1);
            sender.send(2);
        });
        assert_eq!(core.run(2, 0).messages, 2);
        sender.join().unwrap();
    });
}

#[test]
fn a_job_and_a_message_at_once_both_arrive() {
    check(|| {
        let core = Core::new();
        let [sender, other] = [Arc::clone(&core), Arc::clone(&core)];
        let sender = thread::spawn(move || sender.send(1));
        let other = thread::spawn(move || assert!(other.put(7)));
        let got = core.run(1, 1);
        assert_eq!((got.messages, got.jobs), (1, vec![7]));
        sender.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn jobs_of_two_threads_all_arrive_and_those_of_one_in_order() {
    check(|| {
        let core = Core::new();
        let [one, other] = [Arc::clone(&core), Arc::clone(&core)];
        let one = thread::spawn(move || assert!(one.put(1) && one.put(2)));
        let other = thread::spawn(move || assert!(other.put(9)));
        let mut got = core.run(0, 3).jobs;
        got.retain(|job| *job != 9);
        assert_eq!(got, [1, 2]);
        one.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_job_is_run_if_and_only_if_it_was_accepted() {
    check(|| {
        let core = Core::new();
        let sender = Arc::clone(&core);
        let sender = thread::spawn(move || usize::from(sender.put(1)));
        let mut got = Got::default();
        core.turn(&mut got);
        got.jobs.extend(core.inbox.close());
        assert_eq!(got.jobs.len(), sender.join().unwrap(), "run, and accepted");
        assert!(!core.put(2), "it takes no more");
    });
}
