//! Tests of the executor. Each test runs a short script of tasks and compares the log.

use super::{Scheduler, TaskId, Tasks};
use crate::sync::yield_now;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

/// An executor whose tasks write to a log.
struct World {
    scheduler: Scheduler,
    tasks: Tasks<Boxed>,
    log: Rc<RefCell<Vec<String>>>,
}

impl World {
    fn new(capacity: usize) -> Self {
        let scheduler = Scheduler::new(capacity);
        let tasks = Tasks::new(scheduler.clone());
        Self { scheduler, tasks, log: Rc::default() }
    }

    /// Starts a task that logs `name` in each poll and finishes in poll number `polls`.
    fn task(&mut self, name: &str, polls: usize) -> Option<TaskId> {
        let (log, name) = (Rc::clone(&self.log), name.to_owned());
        let mut left = polls;
        let future = poll_fn(move |_| {
            log.borrow_mut().push(name.clone());
            left -= 1;
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        });
        self.spawn(future)
    }

    fn spawn(&mut self, future: impl Future<Output = ()> + 'static) -> Option<TaskId> {
        self.tasks.spawn(Box::pin(future)).ok()
    }

    /// Runs with `budget` and checks what was logged meanwhile.
    fn check(&mut self, budget: usize, log: &str) {
        let polled = self.tasks.run(budget);
        let got = std::mem::take(&mut *self.log.borrow_mut());
        assert_eq!(got.join(" "), log, "polled {polled} with a budget of {budget}");
        assert!(polled <= budget);
    }
}

#[test]
fn tasks_run_in_the_order_they_were_started_and_then_woken() {
    let mut world = World::new(4);
    let ids: Vec<_> = ["a", "b", "c"].map(|name| world.task(name, 3).unwrap()).into();
    world.check(10, "a b c");
    world.check(10, "");
    assert!(!world.scheduler.has_ready());
    for at in [2, 0, 1, 0, 2] {
        world.scheduler.wake(ids[at]);
    }
    assert!(world.scheduler.has_ready());
    // Each task runs once, although two tasks were woken twice.
    world.check(10, "c a b");
    assert_eq!(world.tasks.live(), 3);
}

#[test]
fn the_budget_bounds_a_run_and_keeps_the_order() {
    let mut world = World::new(4);
    for name in ["a", "b", "c"] {
        world.task(name, 1).unwrap();
    }
    world.check(0, "");
    world.check(2, "a b");
    assert_eq!(world.tasks.live(), 1);
    world.task("d", 1).unwrap();
    world.check(2, "c d");
    assert_eq!(world.tasks.live(), 0);
}

#[test]
fn a_task_woken_during_a_run_runs_in_the_same_call() {
    let mut world = World::new(4);
    let sleeper = world.task("sleeper", 2).unwrap();
    world.check(10, "sleeper");
    let (scheduler, log) = (world.scheduler.clone(), Rc::clone(&world.log));
    world.spawn(async move {
        log.borrow_mut().push("waker".into());
        scheduler.wake(sleeper);
    });
    world.check(10, "waker sleeper");
    assert_eq!(world.tasks.live(), 0);
}

#[test]
fn a_task_that_wakes_itself_goes_behind_the_ready_ones() {
    let mut world = World::new(4);
    for name in ["a", "b"] {
        let (scheduler, log) = (world.scheduler.clone(), Rc::clone(&world.log));
        world.spawn(async move {
            for _ in 0..2 {
                log.borrow_mut().push(name.into());
                yield_now(&scheduler).await;
            }
        });
    }
    world.check(3, "a b a");
    world.check(10, "b");
    assert_eq!(world.tasks.live(), 0);
}

#[test]
fn a_stale_wake_does_nothing() {
    let mut world = World::new(1);
    let old = world.task("old", 1).unwrap();
    world.check(10, "old");
    world.scheduler.wake(old);
    assert!(!world.scheduler.has_ready());

    // The slot has another task now, which the old id must not wake.
    let new = world.task("new", 2).unwrap();
    assert_eq!(new.slot(), old.slot());
    assert_ne!(new, old);
    world.check(10, "new");
    world.scheduler.wake(old);
    world.check(10, "");
    world.scheduler.wake(new);
    world.check(10, "new");
}

#[test]
fn ids_stay_sound_when_the_generation_wraps() {
    let mut world = World::new(1);
    let first = world.task("x", 1).unwrap();
    world.tasks.run(1);
    for _ in 0..u32::from(u16::MAX) {
        world.spawn(std::future::ready(())).unwrap();
        assert_eq!(world.tasks.run(1), 1);
    }
    world.log.borrow_mut().clear();
    assert_eq!(world.task("y", 2).unwrap(), first);
    world.check(1, "y");
    // After all reuses, the old id identifies this task. This only causes a spurious poll.
    world.scheduler.wake(first);
    world.check(1, "y");
    assert_eq!(world.tasks.live(), 0);
}

#[test]
fn a_full_slab_hands_the_future_back() {
    let mut world = World::new(2);
    world.task("a", 1).unwrap();
    assert!(world.tasks.has_room());
    world.task("b", 1).unwrap();
    assert!(!world.tasks.has_room());
    let alive = Rc::new(());
    let held = Rc::clone(&alive);
    let back = world.tasks.spawn(Box::pin(async move { drop(held) }));
    assert!(back.is_err());
    assert_eq!(Rc::strong_count(&alive), 2, "the refused future is handed back, not dropped");
    drop(back);
    world.check(1, "a");
    assert!(world.tasks.has_room());
    assert_eq!((world.tasks.live(), world.tasks.capacity()), (1, 2));
}

#[test]
fn freed_slots_are_reused_last_in_first_out() {
    let mut world = World::new(3);
    let ids: Vec<_> = [2, 1, 1].map(|polls| world.task("t", polls).unwrap()).into();
    world.check(10, "t t t");
    // Slots 1 and 2 were freed in this order.
    assert_eq!(world.task("u", 1).unwrap().slot(), ids[2].slot());
    assert_eq!(world.task("u", 1).unwrap().slot(), ids[1].slot());
}

#[test]
fn a_finished_future_is_dropped_at_once_and_may_wake_others() {
    /// Wakes another task, and its own, when dropped.
    struct Bell(Scheduler, TaskId);
    impl Drop for Bell {
        fn drop(&mut self) {
            self.0.wake(self.1);
            self.0.wake(self.0.current());
        }
    }
    let mut world = World::new(2);
    let sleeper = world.task("sleeper", 2).unwrap();
    world.check(10, "sleeper");
    let bell = Bell(world.scheduler.clone(), sleeper);
    let ringer = world.spawn(async move { drop(bell) }).unwrap();
    world.check(1, "");
    assert_eq!(world.tasks.live(), 1, "the ringer finished");
    assert!(world.scheduler.has_ready());
    world.check(10, "sleeper");
    // The task woke itself during its drop, which left no entry for its slot.
    let next = world.task("next", 2).unwrap();
    assert_eq!(world.tasks.live(), 1);
    world.check(10, "next");
    world.scheduler.wake(ringer);
    world.check(10, "");
    world.scheduler.wake(next);
    world.check(10, "next");
}

#[test]
fn unfinished_futures_are_dropped_with_the_slab_in_slot_order() {
    struct Note(Rc<RefCell<Vec<u32>>>, u32);
    impl Drop for Note {
        fn drop(&mut self) {
            self.0.borrow_mut().push(self.1);
        }
    }
    let dropped = Rc::new(RefCell::new(Vec::new()));
    let mut world = World::new(4);
    for n in 0..4 {
        let note = Note(Rc::clone(&dropped), n);
        world.spawn(async move {
            // The future must own the whole value, because the body alone would capture only the number.
            let note = note;
            if note.1 != 1 {
                std::future::pending::<()>().await;
            }
        });
    }
    assert_eq!(world.tasks.run(3), 3);
    assert_eq!(*dropped.borrow(), [1], "only the finished one");
    drop(world.tasks);
    // One future was never polled.
    assert_eq!(*dropped.borrow(), [1, 0, 2, 3]);
}

#[test]
fn current_is_the_polled_task_and_outlives_no_poll() {
    let mut world = World::new(2);
    let seen = Rc::new(Cell::new(None));
    let (scheduler, cell) = (world.scheduler.clone(), Rc::clone(&seen));
    let id = world.spawn(async move { cell.set(Some(scheduler.current())) });
    world.tasks.run(1);
    assert_eq!(seen.get(), id);
    let outside =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.scheduler.current()));
    assert!(outside.is_err(), "there is no current task outside a poll");
}

#[test]
fn one_scheduler_serves_one_slab() {
    let scheduler = Scheduler::new(1);
    let _first = Tasks::<Boxed>::new(scheduler.clone());
    let second =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Tasks::<Boxed>::new(scheduler)));
    assert!(second.is_err(), "two slabs would free each other's slots");
}
