//! Reservations: a crash never leaves fewer free clusters than reserved volumes need. Each start of a test checks this.

use super::scenario::Scenario;
use super::world::{Op, World};
use crate::{Progress, Request, Shape, SpacePolicy, Tail, Wait};

const RESERVED: SpacePolicy = SpacePolicy { reserved: true, quota: None };
const NONE: SpacePolicy = SpacePolicy { reserved: false, quota: None };

fn policy(policy: SpacePolicy) -> Op {
    Op::Policy("V".into(), policy)
}

/// A write whose records are in a different ring than those of the leader.
fn write_w() -> Op {
    Op::Write("W", 2, 1, 1, false)
}

fn full(cluster: u64) -> Op {
    Op::Write("V", cluster * 2, 2, 0, false)
}

/// A pool with a reserved volume V of `blocks` blocks, and W.
fn setup(blocks: u64) -> Vec<Op> {
    vec![Op::Create("V", blocks), Op::Create("W", 4), policy(RESERVED)]
}

fn hold(clusters: u32, setup: Vec<Op>, ops: Vec<Op>) {
    let ops = ops.into_iter().map(|op| (op, Vec::new())).collect();
    let (cluster_blocks, leaf_entries, rings) = (2, 1, 2);
    let (more, then) = (Vec::new(), Vec::new());
    let scenario = Scenario {
        clusters,
        cluster_blocks,
        leaf_entries,
        setup,
        more,
        ops,
        then,
        rings,
        root_piece: usize::MAX,
    };
    assert!(scenario.exhaust_failing(1) > 3);
}

#[test]
fn exhaustive_a_reservation_ends_when_its_record_is_stable() {
    hold(1, setup(2), vec![policy(NONE), write_w()]);
    hold(1, setup(2), vec![Op::Delete("V".into()), write_w()]);
    hold(2, [setup(4), vec![full(0)]].concat(), vec![policy(NONE), write_w()]);
}

#[test]
fn exhaustive_a_reserved_tail_ends_when_the_smaller_size_is_stable() {
    let size = || Op::Size("V".into(), 2);
    hold(2, [setup(4), vec![full(0), full(1)]].concat(), vec![size(), write_w()]);
    hold(2, [setup(4), vec![full(0)]].concat(), vec![size(), write_w()]);
    // A checkpoint counts the needs again.
    hold(2, [setup(4), vec![full(0), full(1)]].concat(), vec![size(), Op::Checkpoint, write_w()]);
}

#[test]
fn a_recount_in_pieces_has_the_changes_since_its_start() {
    let mut world = World::new(Shape { clusters: 8, cluster_blocks: 2, leaf_entries: 1, rings: 1 });
    world.root_piece = 1 << 20;
    for (op, what) in
        [Op::Create("V", 8), policy(RESERVED), full(0), full(2)].into_iter().enumerate()
    {
        world.run(1 + op, what);
    }
    world.run(5, Op::Snap(vec![("V".into(), "S".into())]));
    let volume = world.id("V").expect("a volume");
    assert_eq!(world.map.state.needs.of(volume), 4);
    // The need is too high from the end of the references of the snapshot on.
    world.run(6, Op::Delete("S".into()));
    while world.map.is_recounting() {
        world.map.recount(1);
    }
    world.map.state.needs.reference_ended();
    world.map.state.needs.begin_recount();
    world.map.recount(2);
    // One change in a leaf that was counted, and one in a leaf that was not.
    for (op, what) in [full(1), Op::Discard("V", 4, 2)].into_iter().enumerate() {
        world.add(7 + op, what, 0);
        let at = world.tasks.len() - 1;
        let before = world.map.state.rings[0].next;
        while world.map.state.rings[0].next == before {
            world.continue_task(at);
        }
    }
    assert!(world.map.is_recounting());
    while world.map.is_recounting() {
        world.map.recount(1);
    }
    let known = world.map.volume(volume).expect("a volume");
    assert_eq!(world.map.state.needs.of(volume), world.map.state.need_of(known));
    assert_eq!(world.map.state.needs.of(volume), 2);
}

#[test]
fn exhaustive_a_discard_of_a_reserved_volume_keeps_its_cluster() {
    hold(1, [setup(2), vec![full(0)]].concat(), vec![Op::Discard("V", 0, 2), write_w()]);
    let ops = vec![Op::Discard("V", 0, 2), policy(NONE), write_w()];
    hold(1, [setup(2), vec![full(0)]].concat(), ops);
}

#[test]
fn a_volume_that_is_reserved_again_keeps_its_clusters() {
    let mut world = World::new(Shape { clusters: 2, cluster_blocks: 2, leaf_entries: 1, rings: 2 });
    world.run(1, Op::Create("V", 4));
    let volume = world.id("V").expect("a volume");
    let mut set = |policy| {
        let id = world.map.begin(Request::SetPolicy { volume, policy }).expect("it may begin");
        assert!(matches!(world.map.advance(id), Progress::Wait(Wait::Records { .. })));
        world.map.space().reserved
    };
    assert_eq!([RESERVED, NONE, RESERVED].map(&mut set), [2, 2, 2]);
    world.step(0);
    assert_eq!(world.map.space().reserved, 2);
    world.run(2, policy(NONE));
    assert_eq!(world.map.space().reserved, 0);
    world.run(3, policy(RESERVED));
    world.run(4, Op::Size("V".into(), 1));
    assert_eq!(world.map.space().reserved, 1);
    let larger = Request::Resize { volume, blocks: 4, tail: Tail::Keep };
    let id = world.map.begin(larger).expect("it may begin");
    assert!(matches!(world.map.advance(id), Progress::Wait(Wait::Records { .. })));
    assert_eq!(world.map.space().reserved, 2, "a larger size counts at once");
}

#[test]
fn a_recount_in_pieces_counts_no_cluster_that_a_snapshot_shares_since_its_start() {
    let mut world =
        World::new(Shape { clusters: 90, cluster_blocks: 2, leaf_entries: 1, rings: 1 });
    world.root_piece = 1 << 20;
    world.run(1, Op::Create("V", 80));
    world.run(2, policy(RESERVED));
    (0..4).for_each(|at| world.run(3, full(at)));
    world.map.state.needs.reference_ended();
    world.map.state.needs.begin_recount();
    world.map.recount(4);
    world.run(4, Op::Snap(vec![("V".into(), "S".into())]));
    assert!(world.map.is_recounting());
    world.map.recount(1000);
    assert_eq!(world.map.state.needs.of(world.id("V").expect("a volume")), 40);
}

/// Returns a world with a reserved volume of two clusters, the first of which a deleted snapshot shared. A read from
/// before the deletion is in progress, so that the leaf still counts as shared.
fn with_a_leaf_that_was_shared() -> World {
    let mut world = World::new(Shape { clusters: 4, cluster_blocks: 2, leaf_entries: 2, rings: 1 });
    for (op, what) in [Op::Create("V", 4), policy(RESERVED), full(0)].into_iter().enumerate() {
        world.run(1 + op, what);
    }
    world.run(4, Op::Snap(vec![("V".into(), "S".into())]));
    world.add(5, Op::Read("V".into(), 0), 0);
    assert!(world.step_task(0));
    world.add(6, Op::Delete("S".into()), 0);
    go_on(&mut world);
    assert_eq!((world.tasks.len(), world.map.dying().count()), (1, 0), "only the read goes on");
    assert_eq!(world.map.space().reserved, 2);
    world
}

/// Advances everything except the first task, until no task can continue.
fn go_on(world: &mut World) {
    while (1..world.moves()).any(|at| world.step(at)) {}
}

#[test]
fn a_write_of_a_reserved_volume_takes_no_cluster_for_a_leaf_that_will_not_be_shared() {
    let mut world = with_a_leaf_that_was_shared();
    world.add(7, full(0), 0);
    world.add(8, Op::Write("V", 1, 1, 0, false), 0);
    go_on(&mut world);
    assert!(matches!(world.tasks[1].wait, Some(Wait::OlderIo { .. })), "{:?}", world.tasks[1]);
    assert_eq!((world.map.space().free, world.map.space().reserved), (3, 2));
    world.drain();
    world.run(0, Op::Checkpoint);
    assert_eq!((world.map.space().free, world.map.space().reserved), (3, 1));
}

/// No older I/O is in progress, so that the record that gives the leaf up ends the wait.
#[test]
fn a_write_of_a_reserved_volume_waits_for_the_record_that_gives_its_leaf_up() {
    let mut world = World::new(Shape { clusters: 4, cluster_blocks: 2, leaf_entries: 2, rings: 1 });
    for (op, what) in [Op::Create("V", 4), policy(RESERVED), full(0)].into_iter().enumerate() {
        world.run(1 + op, what);
    }
    world.run(4, Op::Snap(vec![("V".into(), "S".into())]));
    world.add(5, Op::Delete("S".into()), 0);
    while !world.map.state.has_given_up() {
        assert!((0..world.moves()).any(|at| world.step(at)));
    }
    world.add(6, full(0), 0);
    let write = world.tasks.len() - 1;
    assert!(world.step_task(write));
    let Some(Wait::Records { ring, number }) = world.tasks[write].wait else {
        panic!("{:?}", world.tasks[write])
    };
    assert!(!world.map.state.is_stable(ring, number));
    let ring = world.tasks.len() + ring.at();
    assert!(world.step(ring) && world.step(write));
    assert_eq!(world.tasks[write].wait, None, "it writes in place");
    assert_eq!(world.map.space().in_transit, 0);
    world.drain();
}

#[test]
fn a_discard_in_a_leaf_that_will_not_be_shared_is_needed_again() {
    let mut world = with_a_leaf_that_was_shared();
    world.add(7, full(1), 0);
    go_on(&mut world);
    assert_eq!((world.map.space().free, world.map.space().reserved), (2, 1));
    world.add(8, Op::Discard("V", 2, 2), 0);
    go_on(&mut world);
    assert_eq!(world.map.space().reserved, 2);
    world.drain();
    assert_eq!((world.map.space().free, world.map.space().reserved), (3, 2));
}

/// V shares an empty leaf with its snapshot, and the pool has the two clusters that V needs. During a read from before
/// the sweep, the leaf counts as shared.
#[test]
fn exhaustive_a_reserved_volume_whose_snapshot_is_deleted_keeps_its_clusters() {
    let leaf = vec![full(0), Op::Discard("V", 0, 2), Op::Snap(vec![("V".into(), "S".into())])];
    let setup = [setup(4), leaf].concat();
    let hold = |ops: Vec<Op>| {
        let read = (Op::Read("V".into(), 0), Vec::new());
        let delete = (Op::Delete("S".into()), Vec::new());
        let ops = ops.into_iter().enumerate().map(|(at, op)| (op, vec![at + 1]));
        let ops = [read, delete].into_iter().chain(ops).collect();
        let (clusters, cluster_blocks, leaf_entries, rings) = (2, 2, 2, 2);
        let (setup, more, then) = (setup.clone(), Vec::new(), Vec::new());
        let scenario = Scenario {
            clusters,
            cluster_blocks,
            leaf_entries,
            setup,
            more,
            ops,
            then,
            rings,
            root_piece: usize::MAX,
        };
        assert!(scenario.exhaust() > 3);
    };
    hold(vec![full(1), Op::Write("V", 2, 1, 0, false)]);
    hold(vec![full(1), Op::Discard("V", 2, 2), write_w()]);
}
