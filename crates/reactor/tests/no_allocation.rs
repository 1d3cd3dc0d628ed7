//! Tests that starting, waking, polling and finishing tasks do not allocate after the start, nor do the leaf futures,
//! timers and mailboxes. A counting allocator counts per thread, so other threads of the test harness do not matter.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use strake_reactor::timers::alarm;
use strake_reactor::{Gate, Scheduler, Semaphore, Tasks, Timers, WaitQueue, mailbox, yield_now};
use strake_units::Nanos;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting.
struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator; counting touches a thread-local that
// needs neither allocation nor destruction.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // A free on the data path is as slow as an allocation, and implies an allocation.
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs `work` and checks that it neither allocated nor freed.
fn check(what: &str, work: impl FnOnce()) {
    let before = ALLOCATIONS.get();
    work();
    let count = ALLOCATIONS.get() - before;
    assert_eq!(count, 0, "{what} allocated or freed {count} times");
}

#[test]
fn the_allocator_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get() - before, 2, "the other tests would show nothing");
}

/// The state that the tasks of the test share.
struct World {
    scheduler: Scheduler,
    units: Semaphore,
    queue: WaitQueue,
    gate: Gate,
    timers: RefCell<Timers>,
    done: Cell<u64>,
}

/// A task that uses every kind of wait.
async fn everything(world: Rc<World>, deadline: Nanos, payload: [u8; 512]) {
    world.gate.pass().await;
    let permit = world.units.acquire(2).await;
    yield_now(&world.scheduler).await;
    alarm(&world.timers, &world.scheduler, deadline).await;
    drop(permit);
    world.queue.wait().await;
    world.done.set(world.done.get() + u64::from(payload[0]));
}

#[test]
fn running_tasks_allocates_nothing() {
    const TASKS: usize = 64;
    const ROUNDS: u64 = 200;
    let scheduler = Scheduler::new(TASKS);
    let mut tasks = Tasks::new(scheduler.clone());
    let world = Rc::new(World {
        units: Semaphore::new(&scheduler, 7),
        queue: WaitQueue::new(&scheduler),
        gate: Gate::new(&scheduler),
        timers: RefCell::new(Timers::new(TASKS)),
        done: Cell::new(0),
        scheduler,
    });
    check("running tasks", || {
        let mut now = 0;
        for round in 1..=ROUNDS {
            world.gate.close();
            while tasks.has_room() {
                let task = everything(Rc::clone(&world), Nanos(now + round % 7), [1; 512]);
                assert!(tasks.spawn(task).is_ok());
            }
            tasks.run(TASKS);
            world.gate.open();
            while tasks.live() > 0 {
                tasks.run(TASKS);
                now += 1;
                world.timers.borrow_mut().expire(Nanos(now), &world.scheduler);
                world.queue.wake_all();
            }
        }
    });
    assert_eq!(world.done.get(), TASKS as u64 * ROUNDS);
}

#[test]
fn mailboxes_allocate_nothing_after_construction() {
    let (mut sender, mut receiver) = mailbox(8);
    check("sending and receiving", || {
        for n in 0..1000_u64 {
            assert!(sender.send([n; 16]).is_ok());
            assert_eq!(receiver.recv(), Some([n; 16]));
        }
    });
}
