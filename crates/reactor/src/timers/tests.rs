//! Timers against a model: a sorted list.

use super::{Timers, alarm};
use crate::tasks::{Scheduler, TaskId, Tasks};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use strake_units::Nanos;

/// Tasks that log their number each time they are polled.
struct Loggers {
    tasks: Tasks<Pin<Box<dyn Future<Output = ()>>>>,
    ids: Vec<TaskId>,
    log: Rc<RefCell<Vec<usize>>>,
}

impl Loggers {
    fn new(count: usize) -> Self {
        let mut tasks: Tasks<Pin<Box<dyn Future<Output = ()>>>> = Tasks::new(Scheduler::new(count));
        let log = Rc::new(RefCell::new(Vec::new()));
        let mut ids = Vec::new();
        for n in 0..count {
            let log = Rc::clone(&log);
            let task = std::future::poll_fn(move |_| {
                log.borrow_mut().push(n);
                std::task::Poll::Pending
            });
            ids.push(tasks.spawn(Box::pin(task)).ok().unwrap());
        }
        tasks.run(count);
        log.borrow_mut().clear();
        Self { tasks, ids, log }
    }

    /// Expires `timers` and returns which tasks were polled in consequence.
    fn expire(&mut self, timers: &mut Timers, now: u64) -> Vec<usize> {
        let fired = timers.expire(Nanos(now), self.tasks.scheduler());
        let polled = self.tasks.run(usize::MAX);
        assert_eq!(fired, polled, "one timer each");
        std::mem::take(&mut *self.log.borrow_mut())
    }
}

#[test]
fn timers_fire_in_order_of_deadline_then_of_arming() {
    let mut world = Loggers::new(5);
    let mut timers = Timers::new(5);
    for (deadline, task) in [(30, 0), (10, 1), (20, 2), (10, 3), (40, 4)] {
        assert!(timers.arm(Nanos(deadline), world.ids[task]).is_some());
    }
    for (now, order, next) in [
        (9, vec![], Some(10)),
        (10, vec![1, 3], Some(20)),
        (35, vec![2, 0], Some(40)),
        (40, vec![4], None),
    ] {
        assert_eq!(world.expire(&mut timers, now), order, "at {now}");
        assert_eq!(timers.next_deadline(), next.map(Nanos), "at {now}");
    }
}

#[test]
fn a_full_set_pushes_back_and_a_fired_timer_makes_room() {
    let mut world = Loggers::new(1);
    let mut timers = Timers::new(1);
    let first = timers.arm(Nanos(5), world.ids[0]).unwrap();
    assert!(!timers.has_room());
    assert_eq!(timers.arm(Nanos(1), world.ids[0]), None);
    assert_eq!(world.expire(&mut timers, 5), [0]);
    let second = timers.arm(Nanos(9), world.ids[0]).unwrap();
    // The slot has another timer now, which the old identifier must not cancel.
    assert!(!timers.is_armed(first) && !timers.cancel(first));
    assert!(timers.is_armed(second) && timers.cancel(second));
    assert!(timers.is_empty() && timers.has_room());
}

/// A small generator, so that the test needs no dependency and a failure names its seed.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn random_arming_cancelling_and_firing_agrees_with_a_sorted_list() {
    const CAPACITY: usize = 32;
    for seed in 1..=40_u64 {
        let mut world = Loggers::new(CAPACITY);
        let mut timers = Timers::new(CAPACITY);
        // Deadline, arming order, task: sorted, this is the order of firing.
        let mut model: Vec<(u64, usize, usize, super::TimerId)> = Vec::new();
        let mut idle: Vec<usize> = (0..CAPACITY).collect();
        let (mut state, mut now) = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0);
        for step in 0..500 {
            match next(&mut state) % 4 {
                0 | 1 => {
                    let deadline = now + next(&mut state) % 50;
                    let Some(task) = idle.pop() else { continue };
                    let id = timers.arm(Nanos(deadline), world.ids[task]).unwrap();
                    model.push((deadline, step, task, id));
                }
                2 if !model.is_empty() => {
                    let at = next(&mut state) as usize % model.len();
                    let (_, _, task, id) = model.swap_remove(at);
                    assert!(timers.cancel(id), "seed {seed} step {step}");
                    idle.push(task);
                }
                _ => {
                    now += next(&mut state) % 20;
                    model.sort_unstable_by_key(|entry| (entry.0, entry.1));
                    let due = model.partition_point(|entry| entry.0 <= now);
                    let want: Vec<usize> = model.drain(..due).map(|entry| entry.2).collect();
                    let got = world.expire(&mut timers, now);
                    assert_eq!(got, want, "seed {seed} step {step}");
                    idle.extend(want);
                }
            }
            assert_eq!(timers.len(), model.len());
            assert_eq!(
                timers.next_deadline().map(|d| d.0),
                model.iter().map(|entry| entry.0).min()
            );
            assert!(model.iter().all(|entry| timers.is_armed(entry.3)));
        }
    }
}

#[test]
fn alarms_end_at_their_deadline_even_when_there_are_too_few_timers() {
    let scheduler = Scheduler::new(4);
    let mut tasks = Tasks::new(scheduler.clone());
    let timers = Rc::new(RefCell::new(Timers::new(2)));
    let now = Rc::new(Cell::new(0));
    let log = Rc::new(RefCell::new(Vec::new()));
    for deadline in [30, 10, 20, 40] {
        let (scheduler, timers, now, log) =
            (scheduler.clone(), Rc::clone(&timers), Rc::clone(&now), Rc::clone(&log));
        let task = async move {
            alarm(&timers, &scheduler, Nanos(deadline)).await;
            assert!(now.get() >= deadline);
            log.borrow_mut().push(deadline);
        };
        assert!(tasks.spawn(task).is_ok());
    }
    while tasks.live() > 0 {
        tasks.run(8);
        timers.borrow_mut().expire(Nanos(now.get()), &scheduler);
        now.set(now.get() + 1);
        assert!(now.get() < 1000, "an alarm never rang; rang: {:?}", log.borrow());
    }
    assert_eq!(*log.borrow(), [10, 20, 30, 40]);
    assert!(timers.borrow().is_empty());
}

#[test]
fn a_dropped_alarm_gives_its_timer_back() {
    let scheduler = Scheduler::new(1);
    let mut tasks = Tasks::new(scheduler.clone());
    let timers = Rc::new(RefCell::new(Timers::new(1)));
    let (held, waker) = (Rc::clone(&timers), scheduler.clone());
    let task = async move { alarm(&held, &waker, Nanos(7)).await };
    assert!(tasks.spawn(task).is_ok());
    tasks.run(1);
    assert_eq!(timers.borrow().next_deadline(), Some(Nanos(7)));
    drop(tasks);
    assert!(timers.borrow().is_empty() && timers.borrow().has_room());
}
