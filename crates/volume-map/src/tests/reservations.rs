//! Reservations: a crash never leaves fewer free clusters than reserved volumes need. Each start of a test checks this.

use super::scenario::Scenario;
use super::world::{Op, World};
use crate::{Progress, Request, Shape, SpacePolicy, Tail, Wait};

const RESERVED: SpacePolicy = SpacePolicy { reserved: true, quota: None };
const NONE: SpacePolicy = SpacePolicy { reserved: false, quota: None };

fn policy(policy: SpacePolicy) -> Op {
    Op::Policy("V".into(), policy)
}

/// A write whose records are in another ring than those of the leader.
fn write_w() -> Op {
    Op::Write("W", 2, 1, 1, false)
}

fn full(cluster: u64) -> Op {
    Op::Write("V", cluster * 2, 2, 0, false)
}

/// A pool with a reserved volume V of so many blocks, and W.
fn setup(blocks: u64) -> Vec<Op> {
    vec![Op::Create("V", blocks), Op::Create("W", 4), policy(RESERVED)]
}

fn hold(clusters: u32, setup: Vec<Op>, ops: Vec<Op>) {
    let ops = ops.into_iter().map(|op| (op, Vec::new())).collect();
    let (cluster_blocks, leaf_entries, rings) = (2, 1, 2);
    let (more, then) = (Vec::new(), Vec::new());
    let scenario =
        Scenario { clusters, cluster_blocks, leaf_entries, setup, more, ops, then, rings };
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
