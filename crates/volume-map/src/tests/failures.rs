//! Failed steps: the operation ends with an error and holds no resource, and earlier acknowledged changes exist.

use super::scenario::Scenario;
use super::world::{Left, Op, World};
use crate::{
    Blocks, Done, Error, ErrorKind, OperationId, Progress, Request, Ring, Shape, Stability, Step,
    StepKind, Wait,
};

const SHAPE: Shape = Shape { clusters: 4, cluster_blocks: 2, leaf_entries: 1, rings: 2 };

fn write(block: u64) -> Op {
    Op::Write("V", block, 1, 0, false)
}

fn full() -> Op {
    Op::Write("V", 0, 2, 0, false)
}

fn snap(snapshot: &str) -> Op {
    Op::Snap(vec![("V".into(), snapshot.into())])
}

fn clone() -> Op {
    Op::Clone("S".into(), "C".into())
}

/// Checks every interleaving with one failed step, and every crash.
fn hold(setup: Vec<Op>, ops: Vec<Op>) {
    let ops = ops.into_iter().map(|op| (op, Vec::new())).collect();
    let (clusters, cluster_blocks, leaf_entries, rings) = (5, 2, 1, 2);
    let (more, then) = (Vec::new(), vec![write(1)]);
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
    assert!(scenario.exhaust_failing(1) > scenario.exhaust());
}

#[test]
fn exhaustive_writes_whose_step_fails_hold_nothing() {
    let new = || vec![Op::Create("V", 2)];
    hold(new(), vec![write(0), write(1)]);
    hold([new(), vec![full()]].concat(), vec![write(0), Op::Discard("V", 0, 1)]);
    hold([new(), vec![full(), snap("S")]].concat(), vec![write(0), Op::Read("V".into(), 0)]);
}

#[test]
fn exhaustive_copies_that_fail_hold_nothing() {
    let new = vec![Op::Create("V", 2)];
    let shared = [new.clone(), vec![write(0), snap("S"), clone()]].concat();
    hold(shared, vec![write(1), Op::Write("C", 0, 1, 0, false)]);
    let partial = [new, vec![full(), snap("S"), write(0)]].concat();
    hold(partial, vec![Op::Fill("V".into(), 0), write(1)]);
}

#[test]
fn exhaustive_cuts_whose_step_fails_hold_nothing() {
    let new = || vec![Op::Create("V", 4), full()];
    hold(new(), vec![write(0), snap("S")]);
    hold([new(), vec![snap("S"), write(0)]].concat(), vec![Op::Roll("V".into(), "S".into())]);
    hold([new(), vec![snap("S")]].concat(), vec![Op::Size("V".into(), 1), write(0)]);
    hold([new(), vec![snap("S")]].concat(), vec![Op::Delete("S".into()), write(0)]);
}

#[test]
fn exhaustive_a_resize_that_ends_early_releases_writes_when_its_records_are_stable() {
    let setup = vec![Op::Create("V", 4), full(), Op::Write("V", 2, 2, 0, false)];
    let (size, discard) = (Op::Size("V".into(), 2), Op::Discard("V", 2, 1));
    let ops = vec![(size, Vec::new()), (discard, Vec::new()), (Op::Flush, vec![1])];
    let (clusters, cluster_blocks, leaf_entries, rings) = (3, 2, 1, 2);
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
fn exhaustive_a_root_that_fails_leaves_the_other_one() {
    hold(vec![Op::Create("V", 2)], vec![write(0), Op::Checkpoint]);
    hold(vec![Op::Create("V", 2), full()], vec![Op::Checkpoint, Op::Discard("V", 0, 2)]);
}

/// Fails the released step of an operation, and advances the operation.
fn fail(world: &mut World, id: OperationId, kind: StepKind) -> Progress {
    assert!(matches!(world.map.advance(id), Progress::Do(step) if step.kind() == kind));
    world.map.failed(id);
    world.map.advance(id)
}

fn failed(step: StepKind) -> ErrorKind {
    ErrorKind::StepFailed { step }
}

#[test]
fn a_failed_write_can_be_repeated_in_the_same_cluster() {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 2));
    let volume = world.id("V").expect("a volume");
    let blocks = Blocks { first: 0, count: 1 };
    let (stability, core) = (Stability::Cached, Ring(0));
    let request = Request::Write { volume, index: 0, blocks, stability, core };
    let id = world.map.begin(request).expect("it may begin");
    let error: Error = failed(StepKind::Write).of(volume);
    assert_eq!(fail(&mut world, id, StepKind::Write), Progress::Finished(Err(error)));
    assert_eq!(error.to_string(), "volume 1: a write failed; repeat the request");
    assert!(world.map.state.is_idle());
    assert_eq!(world.map.space().free, 4);
    world.run(2, write(0));
    assert_eq!(world.content(volume), [2000, 0]);
}

/// Returns a world in which the flush of a snapshot failed: its deletion is recorded, and not stable.
fn with_an_unstable_deletion() -> World {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 2));
    world.run(2, full());
    world.add(3, snap("S"), 0);
    let is_flush =
        |world: &World| world.map.state.unreported.len() == 1 && world.map.state.held == 0;
    while !is_flush(&world) {
        assert!((0..world.moves()).any(|at| world.step(at)));
    }
    assert!(world.id("S").is_some(), "it is recorded");
    assert!(world.fail_step(0, Left::Part));
    assert!(world.step_task(0));
    assert_eq!((world.id("S"), world.failed.len()), (None, 0), "the deletion is not stable yet");
    world
}

#[test]
fn a_snapshot_whose_flush_fails_is_deleted_before_the_request_fails() {
    let mut world = with_an_unstable_deletion();
    world.drain();
    assert_eq!(world.failed.first().map(|error| error.kind), Some(failed(StepKind::Flush)));
    assert_eq!(world.map.dying().count(), 0, "the snapshot was swept");
    world.run(4, snap("S"));
    assert_eq!(world.failed.len(), 1);
}

/// The request ends with `LogFailed`, and only the next start shows whether the deletion was made.
#[test]
fn a_start_shows_whether_a_deletion_is_stable_after_the_log_failed() {
    let mut world = with_an_unstable_deletion();
    world.map.log_failed();
    assert!(world.step_task(0));
    assert_eq!(world.failed, [ErrorKind::LogFailed.into()]);
    assert_eq!(world.map.records(Ring::LEADER).len(), 1, "the record of the deletion");
    for (stable, is_there) in [(0, true), (1, false)] {
        let mut pick = vec![0; world.crash_choices().len()];
        pick[Ring::LEADER.at()] = stable;
        let next = world.start(&world.crash_of(&pick, false), SHAPE.rings).expect("a start");
        next.check();
        assert_eq!(next.id("S").is_some(), is_there, "{stable} records are stable");
    }
}

#[test]
fn a_root_that_fails_is_written_again_at_the_same_place() {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 2));
    let keep = world.map.keep_from(Ring(0));
    let id = world.map.begin(Request::Checkpoint).expect("it may begin");
    let Progress::Do(Step::WriteRoot { place, .. }) = world.map.advance(id) else {
        panic!("a root is written")
    };
    world.map.failed(id);
    let error: Error = failed(StepKind::WriteRoot).into();
    assert_eq!(world.map.advance(id), Progress::Finished(Err(error)));
    assert_eq!(world.map.keep_from(Ring(0)), keep, "the log reaches back as before");
    let id = world.map.begin(Request::Checkpoint).expect("it may begin");
    let again = world.map.advance(id);
    assert!(matches!(again, Progress::Do(Step::WriteRoot { place: at, .. }) if at == place));
    assert_eq!(world.map.advance(id), Progress::Wait(Wait::Step));
    world.map.completed(id);
    assert_eq!(world.map.advance(id), Progress::Finished(Ok(Done::Done)));
}

#[test]
fn a_map_whose_log_fails_serves_reads_only() {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 2));
    world.run(2, full());
    let volume = world.id("V").expect("a volume");
    let blocks = Blocks { first: 0, count: 2 };
    let discard = || Request::Discard { volume, index: 0, blocks, core: Ring(0) };
    let waits = world.map.begin(discard()).expect("it may begin");
    assert!(matches!(world.map.advance(waits), Progress::Wait(Wait::Records { .. })));
    let read = world.map.begin(Request::Read { volume, index: 0, blocks }).expect("it may begin");
    assert!(matches!(world.map.advance(read), Progress::Do(Step::Read { .. })));
    world.map.log_failed();
    assert_eq!(world.map.woken(), Some(waits));
    let error: Error = ErrorKind::LogFailed.into();
    assert_eq!(world.map.advance(waits), Progress::Finished(Err(error)));
    assert_eq!(world.map.begin(discard()), Err(error));
    assert_eq!(world.map.begin(Request::Checkpoint), Err(error));
    world.map.completed(read);
    assert_eq!(world.map.advance(read), Progress::Finished(Ok(Done::Done)));
    assert!(world.map.begin(Request::Read { volume, index: 0, blocks }).is_ok());
}
