//! Every order in which queues can look, write, raise guards, come and go: nobody writes where a guard stands, and all
//! comes to an end.

use super::{Guards, Outlook, Ticket};
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
    Raised(Ticket),
    /// It compares and writes.
    Works(Ticket),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    Write(LbaRange, Write),
    Pair(LbaRange, Pair),
}

/// A queue with what it has to do; `None` before it is opened and after it is closed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queue {
    outlook: Option<Outlook>,
    tasks: Vec<Task>,
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
    guards: Guards,
    queues: Vec<Queue>,
}

/// Whether a queue writes to blocks of a guard, as the target would say it.
fn writes(tasks: &[Task], ticket: Ticket, range: LbaRange) -> bool {
    tasks.iter().any(|task| match *task {
        Task::Write(at, Write::AtDevice) => at.overlaps(range),
        Task::Write(at, Write::Waits(last)) => at.overlaps(range) && last < ticket,
        Task::Write(..) | Task::Pair(..) => false,
    })
}

impl World {
    fn of(plans: &[&[Task]]) -> Self {
        let queue = |tasks: &&[Task]| Queue { outlook: None, tasks: tasks.to_vec() };
        Self { guards: Guards::default(), queues: plans.iter().map(queue).collect() }
    }

    /// Every world that one step leads to.
    fn next(&self) -> Vec<Self> {
        let mut found = Vec::new();
        for (number, queue) in self.queues.iter().enumerate() {
            let Some(outlook) = &queue.outlook else {
                if !queue.is_done() {
                    let mut world = self.clone();
                    world.queues[number].outlook = Some(world.guards.join());
                    found.push(world);
                }
                continue;
            };
            let mut world = self.clone();
            let mut looked = outlook.clone();
            looked.look(&mut world.guards, |ticket, range| writes(&queue.tasks, ticket, range));
            world.queues[number].outlook = Some(looked);
            found.push(world);
            if queue.is_done() {
                let mut world = self.clone();
                world.guards.leave(outlook);
                world.queues[number].outlook = None;
                found.push(world);
            }
            for (place, task) in queue.tasks.iter().enumerate() {
                let mut world = self.clone();
                if let Some(task) = step(*task, outlook, &mut world.guards, &queue.tasks) {
                    world.queues[number].tasks[place] = task;
                    found.push(world);
                }
                // The host goes while its pair waits.
                if let Task::Pair(range, Pair::Raised(ticket)) = *task {
                    let mut world = self.clone();
                    world.guards.lower(ticket);
                    world.queues[number].tasks[place] = Task::Pair(range, Pair::Over);
                    found.push(world);
                }
            }
        }
        found.retain(|world| world != self);
        found
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
    }
}

fn step(task: Task, outlook: &Outlook, guards: &mut Guards, all: &[Task]) -> Option<Task> {
    let is_busy = |t: &Task| matches!(t, Task::Pair(_, Pair::Raised(_) | Pair::Works(_)));
    Some(match task {
        Task::Write(range, Write::New) => {
            Task::Write(range, outlook.before(range).map_or(Write::AtDevice, Write::Waits))
        }
        Task::Write(range, Write::Waits(last)) if outlook.is_past(range, last) => {
            Task::Write(range, Write::AtDevice)
        }
        Task::Write(range, Write::AtDevice) => Task::Write(range, Write::Over),
        Task::Pair(range, Pair::New) if !all.iter().any(is_busy) => {
            Task::Pair(range, Pair::Raised(guards.raise(range)))
        }
        Task::Pair(range, Pair::Raised(ticket)) if outlook.stands(ticket) => {
            Task::Pair(range, Pair::Works(ticket))
        }
        Task::Pair(range, Pair::Works(ticket)) => {
            guards.lower(ticket);
            Task::Pair(range, Pair::Over)
        }
        Task::Write(..) | Task::Pair(..) => return None,
    })
}

/// Goes everywhere that steps lead to. How many worlds there were.
fn explore(plans: &[&[Task]]) -> usize {
    let first = World::of(plans);
    let mut seen = HashSet::from([first.clone()]);
    let mut ahead = vec![first];
    while let Some(world) = ahead.pop() {
        world.check();
        let next = world.next();
        if next.is_empty() {
            assert!(world.queues.iter().all(Queue::is_done), "stuck: {world:#?}");
            assert_eq!(world.guards.raised, [], "a guard is left");
        }
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
