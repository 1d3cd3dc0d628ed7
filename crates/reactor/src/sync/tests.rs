//! Fairness and the dropping of waiters. Each test steers a few tasks by hand and compares logs.

use super::{Gate, Semaphore, WaitQueue};
use crate::tasks::{Scheduler, Tasks};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

type Boxed = Pin<Box<dyn Future<Output = ()>>>;
type Log = Rc<RefCell<Vec<String>>>;

/// Runs everything that is ready and checks what was logged.
fn check(tasks: &mut Tasks<Boxed>, log: &Log, want: &str) {
    tasks.run(1000);
    assert_eq!(std::mem::take(&mut *log.borrow_mut()).join(" "), want);
}

fn world() -> (Scheduler, Tasks<Boxed>, Log) {
    let scheduler = Scheduler::new(8);
    (scheduler.clone(), Tasks::new(scheduler), Log::default())
}

fn spawn(tasks: &mut Tasks<Boxed>, future: impl Future<Output = ()> + 'static) -> crate::TaskId {
    tasks.spawn(Box::pin(future)).ok().unwrap()
}

/// Runs `future` until it is complete or `cancel` is set, and then drops it. Returns true if it was complete.
async fn unless(cancel: Rc<Cell<bool>>, future: impl Future<Output = ()>) -> bool {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |context| {
        if cancel.get() {
            return Poll::Ready(false);
        }
        future.as_mut().poll(context).map(|()| true)
    })
    .await
}

/// A task that waits on `queue` unless cancelled, and logs.
fn waiter(
    queue: &Rc<WaitQueue>,
    log: &Log,
    name: &str,
    cancel: &Rc<Cell<bool>>,
) -> impl Future<Output = ()> + use<> {
    let (queue, log, name, cancel) =
        (Rc::clone(queue), Rc::clone(log), name.to_owned(), Rc::clone(cancel));
    async move {
        let woken = unless(cancel, async { queue.wait().await }).await;
        log.borrow_mut().push(if woken { name } else { format!("-{name}") });
    }
}

#[test]
fn waiters_are_woken_first_come_first_served() {
    let (scheduler, mut tasks, log) = world();
    let queue = Rc::new(WaitQueue::new(&scheduler));
    let never = Rc::default();
    let ids: Vec<_> = ["a", "b", "c", "d"]
        .map(|name| spawn(&mut tasks, waiter(&queue, &log, name, &never)))
        .into();
    assert!(!queue.wake_one(), "nobody waits before the first poll");
    check(&mut tasks, &log, "");
    assert_eq!(queue.len(), 4);
    assert!(queue.wake_one());
    check(&mut tasks, &log, "a");
    // A task woken for another reason continues waiting, in its old place.
    scheduler.wake(ids[1]);
    check(&mut tasks, &log, "");
    assert_eq!(queue.wake_all(), 3);
    assert!(queue.is_empty());
    check(&mut tasks, &log, "b c d");
}

#[test]
fn a_waiter_that_leaves_passes_its_wake_up_on() {
    let (scheduler, mut tasks, log) = world();
    let queue = Rc::new(WaitQueue::new(&scheduler));
    let (cancel, never) = (Rc::new(Cell::new(false)), Rc::default());
    spawn(&mut tasks, waiter(&queue, &log, "a", &cancel));
    spawn(&mut tasks, waiter(&queue, &log, "b", &never));
    check(&mut tasks, &log, "");
    queue.wake_one();
    cancel.set(true);
    // The wake-up chose a, which left without having seen it, so b is woken.
    check(&mut tasks, &log, "-a b");
}

#[test]
fn a_waiter_that_leaves_after_all_were_woken_wakes_no_other() {
    let (scheduler, mut tasks, log) = world();
    let queue = Rc::new(WaitQueue::new(&scheduler));
    let (cancel, never) = (Rc::new(Cell::new(false)), Rc::default());
    spawn(&mut tasks, waiter(&queue, &log, "a", &cancel));
    check(&mut tasks, &log, "");
    // The new waiter is polled between the wake-up and the leave, but arrived after the wake-up.
    spawn(&mut tasks, waiter(&queue, &log, "late", &never));
    queue.wake_all();
    cancel.set(true);
    check(&mut tasks, &log, "-a");
    assert_eq!(queue.len(), 1);
    queue.wake_one();
    check(&mut tasks, &log, "late");
}

#[test]
fn a_waiter_that_leaves_unwoken_only_gives_its_place_up() {
    let (scheduler, mut tasks, log) = world();
    let queue = Rc::new(WaitQueue::new(&scheduler));
    let (cancel, never) = (Rc::new(Cell::new(false)), Rc::default());
    let a = spawn(&mut tasks, waiter(&queue, &log, "a", &cancel));
    spawn(&mut tasks, waiter(&queue, &log, "b", &never));
    check(&mut tasks, &log, "");
    cancel.set(true);
    scheduler.wake(a);
    check(&mut tasks, &log, "-a");
    assert_eq!(queue.len(), 1);
    queue.wake_one();
    check(&mut tasks, &log, "b");
}

/// A task that takes `units`, logs, holds the units until `release` is woken once, and returns them.
fn holder(
    semaphore: &Rc<Semaphore>,
    log: &Log,
    units: u32,
    release: &Rc<WaitQueue>,
    cancel: &Rc<Cell<bool>>,
) -> impl Future<Output = ()> + use<> {
    let (semaphore, log) = (Rc::clone(semaphore), Rc::clone(log));
    let (release, cancel) = (Rc::clone(release), Rc::clone(cancel));
    async move {
        let work = async {
            let permit = semaphore.acquire(units).await;
            log.borrow_mut().push(format!("+{}", permit.units()));
            release.wait().await;
        };
        unless(cancel, work).await;
    }
}

#[test]
fn units_go_out_in_order_and_small_requests_do_not_overtake() {
    let (scheduler, mut tasks, log) = world();
    let semaphore = Rc::new(Semaphore::new(&scheduler, 4));
    let release = Rc::new(WaitQueue::new(&scheduler));
    let never = Rc::default();
    for units in [3, 4, 1, 2] {
        spawn(&mut tasks, holder(&semaphore, &log, units, &release, &never));
    }
    // One unit is free, but the request for four came before the request for one.
    check(&mut tasks, &log, "+3");
    assert_eq!((semaphore.free(), semaphore.waiting()), (1, 3));
    assert!(semaphore.try_acquire(1).is_none());
    release.wake_one();
    check(&mut tasks, &log, "+4");
    release.wake_one();
    check(&mut tasks, &log, "+1 +2");
    assert_eq!((semaphore.free(), semaphore.waiting()), (1, 0));
    drop(semaphore.try_acquire(1).unwrap());
    release.wake_all();
    check(&mut tasks, &log, "");
    assert_eq!((semaphore.free(), tasks.live()), (4, 0));
}

#[test]
fn a_request_that_leaves_the_head_lets_the_next_go() {
    let (scheduler, mut tasks, log) = world();
    let semaphore = Rc::new(Semaphore::new(&scheduler, 4));
    let release = Rc::new(WaitQueue::new(&scheduler));
    let (cancel, never) = (Rc::new(Cell::new(false)), Rc::default());
    spawn(&mut tasks, holder(&semaphore, &log, 3, &release, &never));
    let big = spawn(&mut tasks, holder(&semaphore, &log, 4, &release, &cancel));
    spawn(&mut tasks, holder(&semaphore, &log, 1, &release, &never));
    check(&mut tasks, &log, "+3");
    cancel.set(true);
    scheduler.wake(big);
    check(&mut tasks, &log, "+1");
    release.wake_all();
    check(&mut tasks, &log, "");
    assert_eq!((semaphore.free(), tasks.live()), (4, 0));
}

#[test]
fn units_granted_to_a_request_that_left_come_back() {
    let (scheduler, mut tasks, log) = world();
    let semaphore = Rc::new(Semaphore::new(&scheduler, 2));
    let release = Rc::new(WaitQueue::new(&scheduler));
    let (cancel, never) = (Rc::new(Cell::new(false)), Rc::default());
    let held = semaphore.try_acquire(2).unwrap();
    spawn(&mut tasks, holder(&semaphore, &log, 2, &release, &cancel));
    spawn(&mut tasks, holder(&semaphore, &log, 1, &release, &never));
    check(&mut tasks, &log, "");
    // The units are granted to the first task, which is dropped before its next poll.
    drop(held);
    assert_eq!(semaphore.free(), 0);
    cancel.set(true);
    check(&mut tasks, &log, "+1");
    drop(tasks);
    assert_eq!((semaphore.free(), semaphore.waiting()), (2, 0));
}

#[test]
fn a_gate_holds_tasks_while_closed() {
    let (scheduler, mut tasks, log) = world();
    let gate = Rc::new(Gate::new(&scheduler));
    let pass = |name: &'static str, tasks: &mut Tasks<Boxed>| {
        let (gate, log) = (Rc::clone(&gate), Rc::clone(&log));
        spawn(tasks, async move {
            gate.pass().await;
            log.borrow_mut().push(name.into());
        });
    };
    pass("a", &mut tasks);
    check(&mut tasks, &log, "a");
    gate.close();
    pass("b", &mut tasks);
    pass("c", &mut tasks);
    check(&mut tasks, &log, "");
    assert_eq!((gate.waiting(), gate.is_open()), (2, false));
    // The gate is closed again before the tasks run, so they are blocked again.
    gate.open();
    gate.close();
    check(&mut tasks, &log, "");
    assert_eq!(gate.waiting(), 2);
    gate.open();
    check(&mut tasks, &log, "b c");
}
