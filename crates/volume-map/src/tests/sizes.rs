//! Sizes of volumes: when new blocks become usable, and how a smaller size proceeds without space.

use super::scenario::Scenario;
use super::world::{Op, World};
use crate::{
    Blocks, Change, ClusterId, Done, Error, ErrorKind, Image, Number, Progress, Record, Request,
    Ring, Shape, Stability, Start, Step, Tail, VolumeMap, Wait,
};

const SHAPE: Shape = Shape { clusters: 4, cluster_blocks: 2, leaf_entries: 4, rings: 2 };

fn scenario(clusters: u32, leaf_entries: u16, setup: Vec<Op>, ops: Vec<Op>) -> Scenario {
    let ops = ops.into_iter().map(|op| (op, Vec::new())).collect();
    let (cluster_blocks, rings) = (2, 2);
    let (more, then) = (Vec::new(), Vec::new());
    Scenario {
        clusters,
        cluster_blocks,
        leaf_entries,
        setup,
        more,
        ops,
        then,
        rings,
        root_piece: usize::MAX,
    }
}

#[test]
fn exhaustive_new_blocks_are_used_when_their_size_is_stable() {
    let grow = || Op::Size("V".into(), 4);
    let write = Op::Write("V", 2, 1, 1, false);
    let own_leaf = scenario(3, 1, vec![Op::Create("V", 2)], vec![grow(), write.clone()]);
    assert!(own_leaf.exhaust() > 3);
    let setup = vec![Op::Create("D", 2), Op::Create("V", 2), Op::Write("V", 0, 1, 0, false)];
    assert!(scenario(3, 2, setup, vec![grow(), write]).exhaust() > 3);
}

#[test]
fn a_smaller_size_waits_for_a_larger_one() {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 2));
    let volume = world.id("V").expect("a volume");
    let resize = |blocks| Request::Resize { volume, blocks, tail: Tail::Discard };
    let larger = world.map.begin(resize(4)).expect("a larger size");
    assert!(matches!(world.map.advance(larger), Progress::Wait(Wait::Records { .. })));
    let again = world.map.begin(resize(6)).expect("a larger size");
    assert!(matches!(world.map.advance(again), Progress::Wait(Wait::Records { .. })));
    assert_eq!(world.map.records(Ring::LEADER).len(), 1, "a larger size waits as well");
    let smaller = world.map.begin(resize(3)).expect("a smaller size");
    assert!(matches!(world.map.advance(smaller), Progress::Wait(Wait::Records { .. })));
    assert!(world.step(world.tasks.len()), "the record of the leader becomes stable");
    assert_eq!(world.map.advance(larger), Progress::Finished(Ok(Done::Done)));
    assert!(matches!(world.map.advance(smaller), Progress::Do(Step::Hold { .. })));
}

/// Returns the result of a resize of V without any other operation.
fn resize_alone(world: &mut World, blocks: u64) -> Result<Done, Error> {
    let volume = world.id("V").expect("a volume");
    let request = Request::Resize { volume, blocks, tail: Tail::Discard };
    let id = world.map.begin(request).expect("a smaller size");
    loop {
        match world.map.advance(id) {
            Progress::Do(_) => world.map.completed(id),
            Progress::Finished(result) => return result,
            Progress::Wait(wait) => {
                let has_moved = (0..2).any(|ring| world.step(world.tasks.len() + ring));
                assert!(has_moved, "it waits for {wait:?}, and all cores hold");
            }
        }
    }
}

#[test]
fn a_smaller_size_that_lacks_a_cluster_waits_and_holds_nothing() {
    let mut world = World::new(Shape { clusters: 1, ..SHAPE });
    world.run(1, Op::Create("V", 2));
    world.run(2, Op::Write("V", 0, 2, 0, false));
    world.run(3, Op::Snap(vec![("V".into(), "S".into())]));
    let volume = world.id("V").expect("a volume");
    let request = || Request::Resize { volume, blocks: 1, tail: Tail::Discard };
    let id = world.map.begin(request()).expect("a smaller size");
    assert_eq!(world.map.advance(id), Progress::Wait(Wait::Space));
    assert!(world.map.state.is_idle());
    assert!(world.map.cancel(id));
    assert_eq!(world.map.advance(id), Progress::Finished(Err(ErrorKind::NoSpace.of(volume))));
    world.run(4, Op::Delete("S".into()));
    assert_eq!(resize_alone(&mut world, 1), Ok(Done::Done));
}

#[test]
fn a_smaller_size_whose_cluster_was_taken_releases_writes() {
    let mut world = World::new(Shape { clusters: 2, ..SHAPE });
    world.run(1, Op::Create("V", 4));
    world.run(2, Op::Write("V", 0, 2, 0, false));
    world.run(3, Op::Snap(vec![("V".into(), "S".into())]));
    let volume = world.id("V").expect("a volume");
    let request = Request::Resize { volume, blocks: 1, tail: Tail::Discard };
    let id = world.map.begin(request).expect("a smaller size");
    assert!(matches!(world.map.advance(id), Progress::Do(Step::Hold { .. })));
    // No core holds writes yet, and a write takes the cluster.
    world.add(4, Op::Write("V", 2, 1, 1, false), 0);
    world.drain_tasks();
    world.map.completed(id);
    assert!(matches!(world.map.advance(id), Progress::Do(Step::Hold { .. })));
    world.map.completed(id);
    assert_eq!(world.map.advance(id), Progress::Wait(Wait::Space));
    assert_eq!((world.map.state.held, world.map.state.is_led), (0, false));
    world.run(5, Op::Discard("V", 2, 2));
    assert!(matches!(world.map.advance(id), Progress::Do(Step::Hold { .. })));
}

#[test]
fn a_cut_ends_when_it_is_cancelled_before_its_record() {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 4));
    world.run(2, Op::Write("V", 0, 2, 0, false));
    world.run(3, Op::Snap(vec![("V".into(), "S".into())]));
    let (volume, snapshot) = (world.id("V").expect("it is there"), world.id("S").expect("as well"));
    let name = "T".parse().expect("a name");
    let cuts = [
        Request::Snapshot { volumes: vec![(volume, name)] },
        Request::Rollback { volume, snapshot },
        Request::Resize { volume, blocks: 1, tail: Tail::Discard },
    ];
    for (request, holds) in cuts.iter().flat_map(|request| [(request, 0), (request, 1)]) {
        let id = world.map.begin(request.clone()).expect("it may begin");
        for _ in 0..holds {
            assert!(matches!(world.map.advance(id), Progress::Do(Step::Hold { .. })));
            world.map.completed(id);
        }
        assert!(matches!(world.map.advance(id), Progress::Do(Step::Hold { .. })));
        assert!(world.map.cancel(id), "no core answers");
        let Progress::Finished(Err(error)) = world.map.advance(id) else { panic!("it ends") };
        assert_eq!(error.kind, ErrorKind::Cancelled);
        assert!(world.map.state.is_idle());
    }
    world.run(4, Op::Write("V", 0, 1, 0, false));
    assert_eq!(world.failed, []);
}

#[test]
fn a_record_of_an_entry_beyond_the_end_is_refused() {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 2));
    world.run(2, Op::Write("V", 0, 2, 0, false));
    world.run(0, Op::Checkpoint);
    world.run(0, Op::Checkpoint);
    let volume = world.id("V").expect("a volume");
    let image = Image::decode(world.roots[0].as_ref().expect("a root")).expect("an image");
    let ring = Ring(1);
    let number = Number(image.floor(ring).expect("a ring").0);
    let change = Change::Map { volume, index: 1, cluster: ClusterId(3), partial: None };
    let record = Record { ring, number, start: Start { number: 9, nonce: 1 }, change };
    let opened = VolumeMap::open(&image, &[Vec::new(), vec![record]], 2, 1);
    let refused: Error = ErrorKind::Field { name: "index", recorded: 1 }.into();
    assert_eq!(opened.map(|_| ()), Err(refused));
}

/// A free cluster of another ring does not count as a lack of space.
#[test]
fn a_cancelled_wait_for_a_checkpoint_is_cancelled() {
    let mut world = World::new(Shape { clusters: 1, leaf_entries: 1, ..SHAPE });
    world.run(1, Op::Create("V", 4));
    world.run(2, Op::Write("V", 0, 2, 0, false));
    world.run(3, Op::Discard("V", 0, 2));
    let volume = world.id("V").expect("a volume");
    let (blocks, core) = (Blocks { first: 0, count: 2 }, Ring(0));
    let write = Request::Write { volume, index: 1, blocks, stability: Stability::Cached, core };
    let id = world.map.begin(write).expect("it may begin");
    assert_eq!(world.map.advance(id), Progress::Wait(Wait::Checkpoint));
    assert!(world.map.cancel(id));
    assert_eq!(world.map.advance(id), Progress::Finished(Err(ErrorKind::Cancelled.of(volume))));
}
