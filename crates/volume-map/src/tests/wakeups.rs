//! Tests of the operations that a change wakes. All other tests check that only a woken operation continues.

use super::world::{Op, World};
use crate::{
    Blocks, Done, OperationId, Progress, Request, Ring, Shape, SpacePolicy, Stability, VolumeId,
    Wait,
};

const SHAPE: Shape = Shape { clusters: 4, cluster_blocks: 8, leaf_entries: 1, rings: 2 };

fn write(volume: VolumeId, block: u16) -> Request {
    let (blocks, stability) = (Blocks { first: block, count: 1 }, Stability::Cached);
    Request::Write { volume, index: 0, blocks, stability, core: Ring(0) }
}

/// Executes only the requests of the map: the driver of decision 39 without drives.
fn drive(world: &mut World) -> usize {
    let mut advanced = 0;
    loop {
        while let Some(id) = world.map.woken() {
            advanced += 1;
            if let Progress::Do(_) = world.map.advance(id) {
                world.map.completed(id);
            }
        }
        let rings = [Ring(0), Ring(1)];
        let last = |ring| world.map.records(ring).last().map(|record| (ring, record.number));
        let Some((ring, number)) = rings.into_iter().find_map(last) else { return advanced };
        world.map.stable(ring, number);
    }
}

#[test]
fn writes_of_one_cluster_are_woken_one_after_the_other() {
    let mut world = World::new(Shape { cluster_blocks: 1000, ..SHAPE });
    world.run(1, Op::Create("V", 1000));
    let volume = world.id("V").expect("a volume");
    let writes = 500;
    for block in 0..writes {
        world.map.begin(write(volume, block)).expect("it may begin");
    }
    let advanced = drive(&mut world);
    assert!(world.map.state.is_idle());
    assert_eq!(world.map.records(Ring(0)).len(), 0);
    // Each is advanced when it starts, when it is woken, and when its data and its record are stable.
    assert!(advanced <= 5 * usize::from(writes), "{advanced} for {writes} writes");
}

#[test]
fn an_operation_that_does_not_lock_its_cluster_wakes_the_next_one() {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 8));
    world.run(2, Op::Write("V", 0, 1, 0, false));
    let volume = world.id("V").expect("a volume");
    let whole = Blocks { first: 0, count: 8 };
    let discard = Request::Discard { volume, index: 0, blocks: whole, core: Ring(0) };
    let fill = || Request::Fill { volume, index: 0 };
    for request in [discard, fill(), fill(), fill()] {
        world.map.begin(request).expect("it may begin");
    }
    // The discard removes the cluster, so no fill locks it.
    drive(&mut world);
    assert!(world.map.is_done());
}

#[test]
fn the_end_of_a_reservation_wakes_a_write() {
    let mut world = World::new(Shape { clusters: 1, ..SHAPE });
    world.run(1, Op::Create("V", 8));
    world.run(2, Op::Create("W", 8));
    world.run(3, Op::Policy("V".into(), SpacePolicy { reserved: true, quota: None }));
    let (reserved, other) = (world.id("V").expect("a volume"), world.id("W").expect("a volume"));
    let waiting = world.map.begin(write(other, 0)).expect("it may begin");
    assert_eq!(world.map.advance(waiting), Progress::Wait(Wait::Space));
    let policy = SpacePolicy::default();
    let request = Request::SetPolicy { volume: reserved, policy };
    let id = world.map.begin(request).expect("it may begin");
    assert!(matches!(world.map.advance(id), Progress::Wait(Wait::Records { .. })));
    // A change of policies also wakes it, and the clusters are still reserved.
    assert_eq!(world.map.woken(), Some(waiting));
    assert_eq!(world.map.advance(waiting), Progress::Wait(Wait::Space));
    assert_eq!(world.map.woken(), None);
    let number = world.map.records(Ring::LEADER).last().expect("a record").number;
    world.map.stable(Ring::LEADER, number);
    assert_eq!(woken(&world), [waiting, id]);
    assert_eq!(world.map.advance(id), Progress::Finished(Ok(Done::Done)));
    assert!(matches!(world.map.advance(waiting), Progress::Do(_)));
}

/// A write that needs a copy waits for older I/Os. A discard of the cluster makes the copy unnecessary.
#[test]
fn the_end_of_older_ios_wakes_a_write_that_needs_no_copy_any_more() {
    let (older, snapshot, write, discard) = (0, 1, 2, 3);
    let mut world = World::new(Shape { cluster_blocks: 2, ..SHAPE });
    world.run(1, Op::Create("V", 4));
    world.run(2, Op::Write("V", 0, 1, 0, false));
    world.add(3, Op::Write("V", 2, 1, 0, false), 0);
    assert!(world.step_task(older));
    world.add(4, Op::Snap(vec![("V".into(), "S".into())]), 0);
    let waits_for_older =
        |world: &World, task: usize| matches!(world.tasks[task].wait, Some(Wait::OlderIo { .. }));
    while !waits_for_older(&world, snapshot) {
        let leader = world.tasks.len() + Ring::LEADER.at();
        assert!(world.step(snapshot) || world.step(leader));
    }
    world.add(5, Op::Write("V", 1, 1, 0, false), 0);
    let waiting = world.map.woken().expect("it is new");
    assert!(world.step_task(write) && waits_for_older(&world, write));
    world.add(6, Op::Discard("V", 0, 2), 0);
    let tasks = world.tasks.len();
    while world.tasks.len() == tasks {
        assert!(world.step(discard) || world.step(tasks) || world.step(tasks + 1));
    }
    assert!(!world.map.is_woken(waiting), "an older write is in progress");

    let mut early = world.clone();
    assert!(early.step_task(write));
    assert_eq!(early.tasks[write].wait, None, "it needs no copy");
    early.drain();

    let tasks = world.tasks.len();
    while world.tasks.len() == tasks {
        assert!(world.step(older) || world.step(tasks) || world.step(tasks + 1));
    }
    assert!(world.map.is_woken(waiting));
    world.drain();
}

fn woken(world: &World) -> Vec<OperationId> {
    let mut world = world.clone();
    let mut all = Vec::new();
    while let Some(id) = world.map.woken() {
        all.push(id);
        world.map.advance(id);
    }
    all
}
