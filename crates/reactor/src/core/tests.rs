//! Tests of the loop on real threads. No test depends on durations: a watchdog far above every plausible delay turns a
//! hang into a failure that shows the state of the cores.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsRawFd, OwnedFd};
use strake_units::{CoreIndex, Nanos};

use crate::handle::{CoreGone, Pinning};
use crate::{
    CoreConfig, CoreHandle, CoreThread, Poller, Receiver, Sender, Sleep, Turn, mailbox, monotonic,
};

/// Time after which a hanging test fails.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A core that sleeps after every idle turn, so that everything crosses a sleep.
fn sleepy(index: u16) -> CoreThread {
    let config = CoreConfig { idle_after: Nanos(0), ..CoreConfig::new(CoreIndex(index)) };
    CoreThread::start(config).unwrap()
}

/// Waits for a message; fails with the state of `cores` if no message arrives.
fn wait<T>(from: &mpsc::Receiver<T>, cores: &[CoreHandle]) -> T {
    from.recv_timeout(WATCHDOG).unwrap_or_else(|error| panic!("no progress ({error}): {cores:#?}"))
}

/// Waits until `reached` returns true; fails with the state of `core` if this does not happen.
fn wait_until(core: &CoreHandle, reached: impl Fn() -> bool) {
    let deadline = monotonic().plus(Nanos(WATCHDOG.as_nanos() as u64));
    while !reached() {
        assert!(monotonic() < deadline, "no progress: {core:#?}");
        std::thread::yield_now();
    }
}

/// Returns each message, decremented by one, to its sender, until the message is zero.
struct Player {
    inbox: Receiver<u64>,
    outbox: Sender<u64>,
    peer: CoreHandle,
    pace: Pace,
    /// A message to send.
    held: Option<u64>,
    done: mpsc::Sender<()>,
}

/// The time at which a player returns a message.
#[derive(Clone, Copy)]
enum Pace {
    /// Immediately, while the peer is about to sleep.
    Eager,
    /// After the peer shows that it sleeps, so that each message arrives during the sleep or the last turn before.
    Patient,
}

impl Poller for Player {
    fn turn(&mut self, _: Nanos) -> Turn {
        if self.held.is_none() {
            self.held = self.inbox.recv();
        }
        let Some(n) = self.held else { return Turn::Idle };
        let ready = match self.pace {
            Pace::Eager => true,
            Pace::Patient => self.peer.stats().sleeping,
        };
        if !ready {
            return Turn::Busy;
        }
        self.held = None;
        match n.checked_sub(1) {
            Some(less) => {
                self.outbox.send(less).expect("there is one message in the game");
                self.peer.wake();
            }
            None => self.done.send(()).expect("the test waits for the end"),
        }
        Turn::Busy
    }

    fn sleep(&self, _: &mut Sleep) {}
}

/// Adds a poller made on the core itself, since pollers need not be `Send`.
fn add<P: Poller + 'static>(core: &CoreHandle, make: impl FnOnce() -> P + Send + 'static) {
    core.call(move |core| core.add(Box::new(make()))).unwrap();
}

/// Plays `messages` back and forth between two cores that sleep whenever they can.
fn check_ping_pong(messages: u64, pace: Pace) {
    let cores = [sleepy(0), sleepy(1)];
    let handles = cores.each_ref().map(CoreThread::handle);
    let (mut b_to_a, a_from_b) = mailbox(1);
    let (a_to_b, b_from_a) = mailbox(1);
    let (done, end) = mpsc::channel();
    // The first message is in A's ring before A starts.
    b_to_a.send(messages).unwrap();
    let player = |inbox, outbox, peer: usize| {
        let (peer, done) = (handles[peer].clone(), done.clone());
        move || Player { inbox, outbox, peer, pace, held: None, done }
    };
    add(&handles[0], player(a_from_b, a_to_b, 1));
    add(&handles[1], player(b_from_a, b_to_a, 0));
    wait(&end, &handles);
    let stats = handles.each_ref().map(CoreHandle::stats);
    // The turn that reported the end may not be counted.
    assert!(stats.iter().all(|core| core.busy_turns + 1 >= messages / 2), "{stats:?}");
    match pace {
        Pace::Eager => {}
        // Otherwise, the test would prove nothing. The exact number is open: a core that found a message in its last
        // turn returns immediately from the next sleep, and receives the following message while awake.
        Pace::Patient => {
            assert!(stats.iter().all(|core| core.wakes > 0 && core.sleeps > 0), "{stats:?}");
        }
    }
}

#[test]
fn no_wake_up_is_lost_between_two_sleepy_cores() {
    check_ping_pong(100_000, Pace::Eager);
}

#[test]
fn no_wake_up_is_lost_when_every_message_meets_a_sleep() {
    // Each message takes two turns of the scheduler on a busy host; `tests/loom.rs` tries every order of the steps.
    check_ping_pong(5_000, Pace::Patient);
}

/// Counts the messages it got.
struct Counter {
    inbox: Receiver<u64>,
    got: Arc<AtomicU64>,
}

impl Poller for Counter {
    fn turn(&mut self, _: Nanos) -> Turn {
        let Some(n) = self.inbox.recv() else { return Turn::Idle };
        self.got.store(n, Ordering::Release);
        Turn::Busy
    }

    fn sleep(&self, _: &mut Sleep) {}
}

/// Sends one message at a time. The pause before each message grows repeatedly from zero to more than an attempt to
/// sleep, so that messages arrive at every step of the attempt.
#[test]
fn no_wake_up_is_lost_at_any_point_of_falling_asleep() {
    const MESSAGES: u64 = 20_000;
    const PAUSE_MAX: u64 = 400;
    let core = sleepy(0);
    let handle = core.handle();
    let (mut outbox, inbox) = mailbox(1);
    let got = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&got);
    add(&handle, move || Counter { inbox, got: counted });
    for n in 1..=MESSAGES {
        for _ in 0..n % PAUSE_MAX {
            std::hint::black_box(n);
        }
        outbox.send(n).unwrap();
        handle.wake();
        let mut spins = 0_u64;
        while got.load(Ordering::Acquire) < n {
            spins += 1;
            // Polls closely at first, to be fast when the next message starts; then lets others run.
            if spins > 20_000 {
                wait_until(&handle, || got.load(Ordering::Acquire) >= n);
            }
        }
    }
}

/// The step of an attempt to sleep at which a message arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// In this turn, after the receiver has checked its mailbox.
    Turn(u32),
    /// While the pollers add the events that may end the sleep.
    Collecting,
}

/// Simulates another thread that sends at exactly one point. The poller runs after the receiver in the turn, sends the
/// message, wakes the core as any sender does, and reports an idle turn.
struct Intruder {
    arrival: Arrival,
    turns: u32,
    outbox: RefCell<Sender<u64>>,
    core: CoreHandle,
}

impl Intruder {
    fn send_if(&self, now: bool) {
        if now && self.outbox.borrow_mut().send(1).is_ok() {
            self.core.wake();
        }
    }
}

impl Poller for Intruder {
    fn turn(&mut self, _: Nanos) -> Turn {
        self.turns += 1;
        self.send_if(self.arrival == Arrival::Turn(self.turns));
        Turn::Idle
    }

    fn sleep(&self, _: &mut Sleep) {
        self.send_if(self.arrival == Arrival::Collecting);
    }
}

#[test]
fn a_message_is_seen_wherever_it_meets_a_core_falling_asleep() {
    // The first turn adds the pollers, the second turn finds no work, and the third turn is the last turn before the
    // sleep.
    let turns = (1..=3).map(Arrival::Turn);
    for arrival in turns.chain([Arrival::Collecting]) {
        let core = sleepy(0);
        let (outbox, inbox) = mailbox(1);
        let got = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&got);
        let add = move |core: &mut super::Core| {
            core.add(Box::new(Counter { inbox, got: counted }));
            let handle = core.handle();
            let outbox = RefCell::new(outbox);
            core.add(Box::new(Intruder { arrival, turns: 0, outbox, core: handle }));
        };
        // Nothing else touches the core after this: only the intruder's message can bring it back.
        core.handle().run(add).unwrap();
        wait_until(&core.handle(), || got.load(Ordering::Acquire) == 1);
    }
}

#[test]
fn closures_of_many_threads_all_run_in_each_threads_order() {
    const THREADS: usize = 8;
    const EACH: usize = 2_000;
    let core = sleepy(0);
    let start = Arc::new(Barrier::new(THREADS));
    let ran = Arc::new([const { AtomicUsize::new(0) }; THREADS]);
    let senders = (0..THREADS).map(|thread| {
        let (handle, start, ran) = (core.handle(), Arc::clone(&start), Arc::clone(&ran));
        std::thread::spawn(move || {
            start.wait();
            for n in 0..EACH {
                let ran = Arc::clone(&ran);
                let job = move |_: &mut super::Core| {
                    assert_eq!(ran[thread].fetch_add(1, Ordering::Relaxed), n, "out of order");
                };
                handle.run(job).unwrap();
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.join().unwrap();
    }
    let handle = core.handle();
    core.stop();
    let ran: Vec<_> = ran.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    assert_eq!(ran, [EACH; THREADS], "{handle:?}");
    // The last job was the one that asked to stop.
    assert_eq!(handle.stats().jobs as usize, THREADS * EACH + 1);
}

#[test]
fn calls_return_values_and_fail_once_the_core_has_stopped() {
    let before = monotonic();
    let core = sleepy(7);
    let handle = core.handle();
    assert_eq!(handle.call(|core| core.index()), Ok(CoreIndex(7)));
    let name = handle.call(|_| std::thread::current().name().map(str::to_owned)).unwrap();
    assert_eq!(name.as_deref(), Some("strake-core-7"));
    let now = handle.call(|core| core.now()).unwrap();
    // The turn may have started before the call, but not before the core.
    assert!(now >= before && now <= monotonic());
    core.stop();
    let gone = CoreGone { core: CoreIndex(7) };
    assert_eq!(handle.call(|_| ()), Err(gone));
    assert_eq!(handle.run(|_| ()), Err(gone));
    handle.wake();
    assert_eq!(gone.to_string(), "core 7 has stopped");
}

#[test]
fn jobs_accepted_before_the_stop_are_run_and_later_ones_refused() {
    let core = sleepy(0);
    let handle = core.handle();
    let (blocked, unblock) = mpsc::channel::<()>();
    let ran = Arc::new(AtomicUsize::new(0));
    // The core is blocked, so that the stop and all other closures are in its inbox before its next check.
    handle.run(move |_| assert!(unblock.recv().is_err())).unwrap();
    handle.run(super::Core::stop).unwrap();
    for _ in 0..100 {
        let ran = Arc::clone(&ran);
        let job = move |_: &mut super::Core| {
            ran.fetch_add(1, Ordering::Relaxed);
        };
        handle.run(job).unwrap();
    }
    drop(blocked);
    core.stop();
    assert_eq!(ran.load(Ordering::Relaxed), 100);
    assert!(handle.run(|_| ()).is_err());
}

/// Counts its turns, and reports the thread on which it was dropped.
struct Ticker {
    turns: Arc<AtomicU64>,
    dropped: mpsc::Sender<Option<String>>,
}

impl Poller for Ticker {
    fn turn(&mut self, _: Nanos) -> Turn {
        self.turns.fetch_add(1, Ordering::Relaxed);
        Turn::Idle
    }

    fn sleep(&self, sleep: &mut Sleep) {
        sleep.never();
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // The test of a stop no longer listens for the poller it removed.
        let _ = self.dropped.send(std::thread::current().name().map(str::to_owned));
    }
}

#[test]
fn pollers_are_dropped_on_their_core() {
    let core = sleepy(3);
    let (sender, dropped) = mpsc::channel();
    add(&core.handle(), move || Ticker { turns: Arc::default(), dropped: sender });
    core.stop();
    assert_eq!(wait(&dropped, &[]).as_deref(), Some("strake-core-3"));
}

#[test]
fn a_removed_poller_gets_no_more_turns() {
    let core = sleepy(0);
    let handle = core.handle();
    let (turns, (sender, dropped)) = (Arc::new(AtomicU64::new(0)), mpsc::channel());
    let counted = Arc::clone(&turns);
    let id = handle
        .call(move |core| {
            let others = core.pollers();
            let id = core.add(Box::new(Ticker { turns: counted, dropped: sender }));
            assert_eq!(core.pollers(), others + 1);
            id
        })
        .unwrap();
    // The poller requests polling, so it gets turns without events.
    let slept = handle.stats().sleeps;
    wait_until(&handle, || turns.load(Ordering::Relaxed) >= 100);
    assert_eq!(handle.stats().sleeps, slept, "slept although a poller needs polling: {handle:?}");
    assert!(handle.call(move |core| core.remove(id).is_some()).unwrap());
    wait(&dropped, std::slice::from_ref(&handle));
    let after = turns.load(Ordering::Relaxed);
    assert!(!handle.call(move |core| core.remove(id).is_some()).unwrap());
    wait_until(&handle, || handle.stats().sleeps > slept);
    assert_eq!(turns.load(Ordering::Relaxed), after);
}

/// Reports when its descriptor was readable or its deadline passed.
struct Watcher {
    fd: Option<OwnedFd>,
    deadline: Cell<Option<Nanos>>,
    seen: mpsc::Sender<Nanos>,
}

impl Poller for Watcher {
    fn turn(&mut self, now: Nanos) -> Turn {
        let readable = self.fd.as_ref().is_some_and(|fd| rustix::io::read(fd, &mut [0; 8]).is_ok());
        let due = self.deadline.get().is_some_and(|deadline| deadline <= now);
        if !readable && !due {
            return Turn::Idle;
        }
        self.deadline.set(None);
        self.seen.send(now).expect("the test listens");
        Turn::Busy
    }

    fn sleep(&self, sleep: &mut Sleep) {
        if let Some(fd) = &self.fd {
            sleep.fd(fd.as_raw_fd());
        }
        if let Some(deadline) = self.deadline.get() {
            sleep.until(deadline);
        }
    }
}

#[test]
fn a_descriptor_and_a_deadline_end_a_sleep() {
    let core = sleepy(0);
    let handle = core.handle();
    let ours = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let theirs = ours.try_clone().unwrap();
    let (seen, events) = mpsc::channel();
    let also = seen.clone();
    add(&handle, move || Watcher { fd: Some(theirs), deadline: Cell::new(None), seen });
    for _ in 0..100 {
        wait_until(&handle, || handle.stats().sleeping);
        rustix::io::write(&ours, &1_u64.to_ne_bytes()).unwrap();
        wait(&events, std::slice::from_ref(&handle));
    }
    let deadline = monotonic().plus(Nanos::MILLI.times(20));
    add(&handle, move || Watcher { fd: None, deadline: Cell::new(Some(deadline)), seen: also });
    let at = wait(&events, std::slice::from_ref(&handle));
    assert!(at >= deadline, "fired {} ns early", deadline.since(at).0);
    let stats = handle.stats();
    assert!(stats.sleeps > 0 && stats.slept_ns > 0, "{stats:?}");
}

#[test]
fn an_idle_core_sleeps_without_turning() {
    let core = sleepy(0);
    let handle = core.handle();
    wait_until(&handle, || handle.stats().sleeps == 1);
    let before = handle.stats();
    // These turns give the poller many opportunities to run.
    let other = sleepy(1);
    for _ in 0..1000 {
        other.handle().call(|_| ()).unwrap();
    }
    let after = handle.stats();
    assert_eq!((after.turns, after.sleeps), (before.turns, 1), "nothing had ended its sleep");
    assert_eq!(handle.call(|core| core.index()), Ok(CoreIndex(0)));
}

#[test]
fn a_core_that_cannot_be_pinned_runs_anyway_and_says_so() {
    let pin = |cpu| {
        let core = CoreThread::start(CoreConfig { cpu, ..CoreConfig::new(CoreIndex(0)) }).unwrap();
        assert_eq!(core.handle().call(|_| 42), Ok(42));
        core.pinning()
    };
    assert_eq!(pin(None), Pinning::Any);
    // The kernel supports at most 8192 CPUs, and a mask names 1024.
    for cpu in [1023, 1 << 20] {
        assert!(
            matches!(pin(Some(cpu)), Pinning::Refused { cpu: refused, os } if refused == cpu && os != 0)
        );
    }
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
    assert_eq!(pin(Some(cpu)), Pinning::Pinned { cpu });
}

#[test]
fn a_data_core_refuses_to_wait_for_another() {
    let cores = [sleepy(0), sleepy(1)];
    let other = cores[1].handle();
    let refused = cores[0].handle().call(move |_| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.call(|_| ()))).is_err()
    });
    assert_eq!(refused, Ok(true));
}

#[test]
fn a_core_may_drop_its_own_thread() {
    let core = sleepy(0);
    let handle = core.handle();
    let (sender, dropped) = mpsc::channel();
    add(&handle, move || Ticker { turns: Arc::default(), dropped: sender });
    // A join of the own thread would hang here.
    handle.run(move |_| drop(core)).unwrap();
    wait(&dropped, &[handle]);
}

#[test]
fn pollers_take_their_turns_in_the_order_they_were_added() {
    /// Writes its name into a log that the pollers of one core share.
    struct Scribe(char, Rc<Cell<String>>);
    impl Poller for Scribe {
        fn turn(&mut self, _: Nanos) -> Turn {
            let mut log = self.1.take();
            log.push(self.0);
            self.1.set(log);
            Turn::Idle
        }
        fn sleep(&self, _: &mut Sleep) {}
    }
    let core = sleepy(0);
    let (sender, receiver) = mpsc::channel();
    let add = move |core: &mut super::Core| {
        let log = Rc::new(Cell::new(String::new()));
        let ids = ['a', 'b', 'c'].map(|name| core.add(Box::new(Scribe(name, Rc::clone(&log)))));
        // The core is not in its loop, so this is exactly one turn.
        drop(core.remove(ids[1]));
        core.add(Box::new(Scribe('d', Rc::clone(&log))));
        for (_, poller) in &mut core.pollers {
            poller.turn(Nanos(0));
        }
        core.pollers.clear();
        sender.send(log.take()).unwrap();
    };
    core.handle().run(add).unwrap();
    assert_eq!(wait(&receiver, &[core.handle()]), "acd");
}
