//! Enumerates every order in which queues check, write, request range locks, open and close: no other queue writes to
//! the blocks of a granted range lock, and every run terminates.
//!
//! A queue without work sleeps until an external event or a change of the list. A missed wake-up is therefore found as
//! a state in which all queues sleep before they have finished.

use super::{Outlook, RangeLocks, Ticket};
use std::collections::HashSet;
use strake_units::{Lba, LbaRange};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Write {
    New,
    Waits(Ticket),
    AtDevice,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pair {
    New,
    /// All its data has arrived.
    Here,
    Raised(Ticket),
    /// The compare and the write are in progress.
    Works(Ticket),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    Write(LbaRange, Write),
    Pair(LbaRange, Pair),
}

/// A queue with its tasks; no outlook before it is opened and after it is closed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queue {
    outlook: Option<Outlook>,
    tasks: Vec<Task>,
    /// Its core runs.
    is_awake: bool,
}

impl Queue {
    fn is_done(&self) -> bool {
        self.tasks
            .iter()
            .all(|t| matches!(t, Task::Write(_, Write::Over) | Task::Pair(_, Pair::Over)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    range_locks: RangeLocks,
    queues: Vec<Queue>,
}

/// Whether a queue writes to blocks of a range lock, as the target computes it.
fn writes(tasks: &[Task], ticket: Ticket, range: LbaRange) -> bool {
    tasks.iter().any(|task| match *task {
        Task::Write(at, Write::AtDevice) => at.overlaps(range),
        Task::Write(at, Write::Waits(last)) => at.overlaps(range) && last < ticket,
        Task::Write(..) | Task::Pair(..) => false,
    })
}

impl World {
    fn of(plans: &[&[Task]]) -> Self {
        let queue =
            |tasks: &&[Task]| Queue { outlook: None, tasks: tasks.to_vec(), is_awake: false };
        Self { range_locks: RangeLocks::default(), queues: plans.iter().map(queue).collect() }
    }

    /// The state after a step of a queue, or after an event. Other queues are woken if the list changed.
    fn after(&self, number: usize, it: impl FnOnce(&mut Queue, &mut RangeLocks)) -> Self {
        let mut world = self.clone();
        world.queues[number].is_awake = true;
        it(&mut world.queues[number], &mut world.range_locks);
        if world.range_locks.changes != self.range_locks.changes {
            world.queues.iter_mut().for_each(|queue| queue.is_awake = true);
        }
        // Only whether all changes were seen matters, not their number.
        for outlook in world.queues.iter_mut().filter_map(|queue| queue.outlook.as_mut()) {
            outlook.seen = u64::from(outlook.seen == world.range_locks.changes);
        }
        world.range_locks.changes = 1;
        world
    }

    /// The states after optional steps: a host disconnects, before its pair was executed or after its last task.
    fn departures(&self) -> Vec<Self> {
        let mut found = Vec::new();
        for (number, queue) in self.queues.iter().enumerate() {
            let Some(outlook) = &queue.outlook else { continue };
            if queue.is_done() {
                found.push(self.after(number, |queue, range_locks| {
                    range_locks.leave(outlook);
                    queue.outlook = None;
                }));
            }
            found.extend(self.steps(number, outlook, is_given_up));
        }
        found
    }

    /// The states after one further step.
    fn next(&self) -> Vec<Self> {
        let mut found = Vec::new();
        for (number, queue) in self.queues.iter().enumerate() {
            let Some(outlook) = &queue.outlook else {
                if !queue.is_done() {
                    found.push(
                        self.after(number, |q, range_locks| q.outlook = Some(range_locks.join())),
                    );
                }
                continue;
            };
            found.extend(self.steps(number, outlook, happens));
            if !queue.is_awake {
                continue;
            }
            let mut turns: Vec<_> = self.steps(number, outlook, goes_on).collect();
            let mut is_written = |ticket, range| writes(&queue.tasks, ticket, range);
            if outlook.has_to_look(self.range_locks.changes, &mut is_written) {
                turns.push(self.after(number, |queue, range_locks| {
                    if let Some(outlook) = &mut queue.outlook {
                        outlook.look(range_locks, is_written);
                    }
                }));
            }
            if turns.is_empty() {
                let mut world = self.clone();
                world.queues[number].is_awake = false;
                turns.push(world);
            }
            found.append(&mut turns);
        }
        found
    }

    /// Applies a kind of step to each task of a queue.
    fn steps<'a>(
        &'a self,
        number: usize,
        outlook: &'a Outlook,
        step: impl Fn(Task, &Outlook, &mut RangeLocks, &[Task]) -> Option<Task> + 'a,
    ) -> impl Iterator<Item = Self> + 'a {
        let tasks = &self.queues[number].tasks;
        tasks.iter().enumerate().filter_map(move |(place, task)| {
            let mut range_locks = self.range_locks.clone();
            let next = step(*task, outlook, &mut range_locks, tasks)?;
            Some(self.after(number, |queue, all| {
                queue.tasks[place] = next;
                *all = range_locks;
            }))
        })
    }

    fn check(&self) {
        let tasks = || self.queues.iter().flat_map(|queue| &queue.tasks);
        let works: Vec<LbaRange> = tasks()
            .filter_map(|task| match *task {
                Task::Pair(range, Pair::Works(_)) => Some(range),
                Task::Pair(..) | Task::Write(..) => None,
            })
            .collect();
        for (number, range) in works.iter().enumerate() {
            assert!(!works[..number].iter().any(|w| w.overlaps(*range)), "two pairs: {self:#?}");
            let is_written =
                |t: &Task| matches!(t, Task::Write(at, Write::AtDevice) if at.overlaps(*range));
            assert!(!tasks().any(is_written), "written while it was compared: {self:#?}");
        }
        for (at, range_lock) in self.range_locks.raised.iter().enumerate() {
            let before = &self.range_locks.raised[..at];
            let ahead =
                before.iter().filter(|other| other.range.overlaps(range_lock.range)).count();
            assert_eq!(range_lock.ahead as usize, ahead, "{self:#?}");
        }
    }
}

/// A pair that waits for its range lock is dropped when its host disconnects.
fn is_given_up(task: Task, _: &Outlook, range_locks: &mut RangeLocks, _: &[Task]) -> Option<Task> {
    let Task::Pair(range, Pair::Raised(ticket)) = task else { return None };
    range_locks.lower(ticket);
    Some(Task::Pair(range, Pair::Over))
}

/// External events: commands, and completions of I/O.
fn happens(
    task: Task,
    outlook: &Outlook,
    range_locks: &mut RangeLocks,
    _: &[Task],
) -> Option<Task> {
    Some(match task {
        Task::Write(range, Write::New) => {
            Task::Write(range, outlook.before(range).map_or(Write::AtDevice, Write::Waits))
        }
        Task::Write(range, Write::AtDevice) => Task::Write(range, Write::Over),
        Task::Pair(range, Pair::New) => Task::Pair(range, Pair::Here),
        Task::Pair(range, Pair::Works(ticket)) => {
            range_locks.lower(ticket);
            Task::Pair(range, Pair::Over)
        }
        Task::Write(..) | Task::Pair(..) => return None,
    })
}

/// Steps of a queue in its turns.
fn goes_on(
    task: Task,
    outlook: &Outlook,
    range_locks: &mut RangeLocks,
    all: &[Task],
) -> Option<Task> {
    let is_busy = |t: &Task| matches!(t, Task::Pair(_, Pair::Raised(_) | Pair::Works(_)));
    Some(match task {
        Task::Write(range, Write::Waits(last)) if outlook.is_past(range, last) => {
            Task::Write(range, Write::AtDevice)
        }
        Task::Pair(range, Pair::Here) if !all.iter().any(is_busy) => {
            Task::Pair(range, Pair::Raised(range_locks.raise(range)))
        }
        Task::Pair(range, Pair::Raised(ticket)) if outlook.stands(ticket) => {
            Task::Pair(range, Pair::Works(ticket))
        }
        Task::Write(..) | Task::Pair(..) => return None,
    })
}

/// Visits every reachable state. Returns their number.
fn explore(plans: &[&[Task]]) -> usize {
    let first = World::of(plans);
    let mut seen = HashSet::from([first.clone()]);
    let mut ahead = vec![first];
    while let Some(world) = ahead.pop() {
        world.check();
        let mut next = world.next();
        if next.is_empty() {
            assert!(world.queues.iter().all(Queue::is_done), "stuck: {world:#?}");
            assert_eq!(world.range_locks.raised, [], "a guard is left");
        }
        next.append(&mut world.departures());
        for world in next {
            if seen.insert(world.clone()) {
                ahead.push(world);
            }
        }
    }
    seen.len()
}

const fn write(start: u64, blocks: u64) -> Task {
    Task::Write(LbaRange::new(Lba(start), blocks), Write::New)
}

const fn pair(start: u64, blocks: u64) -> Task {
    Task::Pair(LbaRange::new(Lba(start), blocks), Pair::New)
}

#[test]
fn pairs_and_writes_of_the_same_block_go_one_after_another() {
    let seen = explore(&[&[pair(0, 1), write(0, 1)], &[pair(0, 1), write(0, 1)]]);
    assert!(seen > 1000, "{seen} worlds");
}

#[test]
fn three_queues_whose_blocks_overlap_in_part_never_wait_in_a_circle() {
    explore(&[&[pair(0, 2)], &[pair(1, 2)], &[pair(2, 1)]]);
    explore(&[&[pair(0, 2)], &[pair(1, 2)], &[write(0, 3)]]);
}

#[test]
fn several_pairs_of_a_queue_and_writes_of_another_all_come_to_an_end() {
    explore(&[&[pair(0, 1), pair(0, 1)], &[write(0, 1), write(0, 1)]]);
}

/// Memory for one range lock per queue is allocated when a queue is opened, not when a range lock is requested.
#[test]
fn room_is_made_when_queues_come() {
    let mut range_locks = RangeLocks::default();
    let mut outlooks: Vec<Outlook> = (0..9).map(|_| range_locks.join()).collect();
    assert!(outlooks[0].known.capacity() < 9, "of queues that came later it knew nothing");
    let quiet = |_, _| false;
    assert!(outlooks[0].has_to_look(range_locks.changes, &mut { quiet }), "others came");
    outlooks.iter_mut().for_each(|outlook| outlook.look(&mut range_locks, quiet));
    let rooms = |range_locks: &RangeLocks, outlooks: &[Outlook]| {
        let known = outlooks.iter().map(|outlook| outlook.known.capacity());
        known.chain([range_locks.raised.capacity()]).collect::<Vec<_>>()
    };
    let before = rooms(&range_locks, &outlooks);
    assert!(before.iter().all(|room| (9..32).contains(room)), "{before:?}");
    for _ in 0..9 {
        range_locks.raise(LbaRange::new(Lba(0), 1));
    }
    outlooks.iter_mut().for_each(|outlook| outlook.look(&mut range_locks, quiet));
    assert_eq!(rooms(&range_locks, &outlooks), before);
}
