//! Reads and writes that enter an epoch without an operation, and the bound of images.

use strake_units::Name;

use super::world::{Op, World};
use crate::{Blocks, ErrorKind, Image, Progress, Request, Ring, Shape, Stability, Step, VolumeId};

const SHAPE: Shape = Shape { clusters: 8, cluster_blocks: 4, leaf_entries: 2, rings: 1 };
const ALL: Blocks = Blocks { first: 0, count: 4 };
const ONE: Blocks = Blocks { first: 1, count: 1 };

fn world() -> (World, VolumeId) {
    world_of(SHAPE)
}

fn world_of(shape: Shape) -> (World, VolumeId) {
    let mut world = World::new(shape);
    world.run(0, Op::Create("a", 16));
    world.run(1, Op::Write("a", 0, 4, 0, false));
    let id = world.id("a").expect("it was created");
    (world, id)
}

#[test]
fn a_write_is_in_place_only_where_it_needs_no_record_and_no_lock() {
    let (mut world, id) = world();
    let map = &mut world.map;
    let (epoch, cluster) = map.enter_write(id, 0, ONE, Ring(0)).expect("it exists").expect("own");
    let write = Request::Write {
        volume: id,
        index: 0,
        blocks: ONE,
        stability: Stability::Cached,
        core: Ring(0),
    };
    let same = map.begin(write.clone()).expect("it exists");
    let Progress::Do(Step::Write { cluster: of, .. }) = map.advance(same) else {
        panic!("in place")
    };
    assert_eq!(of, cluster, "as the operation");
    map.completed(same);
    assert!(matches!(map.advance(same), Progress::Finished(Ok(_))));
    map.leave(epoch);
    assert_eq!(map.enter_write(id, 1, ONE, Ring(0)), Ok(None), "unmapped");
    // A change of the cluster is in progress.
    let discard = Request::Discard { volume: id, index: 0, blocks: ONE, core: Ring(0) };
    let discard = map.begin(discard).expect("it exists");
    map.advance(discard);
    assert_eq!(map.enter_write(id, 0, ONE, Ring(0)), Ok(None), "locked or partial");
    let (mut world, id) = self::world();
    world.run(2, Op::Snap(vec![("a".into(), "s".into())]));
    let snapshot = world.id("s").expect("it was created");
    let map = &mut world.map;
    assert_eq!(map.enter_write(id, 0, ONE, Ring(0)), Ok(None), "shared");
    let refused = map.enter_write(snapshot, 0, ONE, Ring(0)).expect_err("a snapshot");
    assert_eq!(refused.kind, ErrorKind::ReadOnly);
    let beyond = map.enter_write(id, 4, ONE, Ring(0)).expect_err("beyond the end");
    assert_eq!(beyond.kind, ErrorKind::OutOfRange);
}

#[test]
fn no_write_in_place_begins_while_a_core_holds_writes() {
    let (mut world, id) = world_of(Shape { rings: 2, ..SHAPE });
    let map = &mut world.map;
    let name: Name = "s".parse().expect("a name");
    let snapshot = map.begin(Request::Snapshot { volumes: vec![(id, name)] }).expect("it begins");
    assert!(matches!(map.advance(snapshot), Progress::Do(Step::Hold { .. })));
    assert!(map.enter_write(id, 0, ONE, Ring(0)).expect("it exists").is_some(), "not yet held");
    map.completed(snapshot);
    assert!(matches!(map.advance(snapshot), Progress::Do(Step::Hold { core: Ring(1) })));
    assert_eq!(map.enter_write(id, 0, ONE, Ring(0)), Ok(None), "nothing is recorded yet");
    assert!(map.enter_write(id, 0, ONE, Ring(1)).expect("it exists").is_some());
    assert!(map.is_held(Ring(0)) && !map.is_held(Ring(1)));
}

#[test]
fn a_snapshot_is_reported_only_after_older_writes_in_place() {
    let (mut world, id) = world();
    let map = &mut world.map;
    let (epoch, _) = map.enter_write(id, 0, ONE, Ring(0)).expect("it exists").expect("own");
    let name: Name = "s".parse().expect("a name");
    let snapshot = map.begin(Request::Snapshot { volumes: vec![(id, name)] }).expect("it begins");
    map.advance(snapshot);
    map.completed(snapshot);
    map.advance(snapshot);
    let last = map.records(Ring(0)).last().expect("it is recorded").number;
    map.stable(Ring(0), last);
    assert!(matches!(map.advance(snapshot), Progress::Wait(_)), "an older write is in progress");
    map.leave(epoch);
    assert!(matches!(map.advance(snapshot), Progress::Do(Step::Flush)));
}

#[test]
fn a_cluster_is_not_free_while_a_read_uses_it() {
    let (mut world, id) = world();
    let map = &mut world.map;
    let (epoch, part) = map.enter_read(id, 0, ALL).expect("it exists");
    assert_eq!(part.blocks, ALL);
    let discard = Request::Discard { volume: id, index: 0, blocks: ALL, core: Ring(0) };
    let discard = map.begin(discard).expect("it exists");
    map.advance(discard);
    let last = map.records(Ring(0)).last().expect("it is recorded").number;
    map.stable(Ring(0), last);
    assert!(matches!(map.advance(discard), Progress::Finished(Ok(_))));
    assert_eq!(map.space().free, 7, "the read may still use the cluster");
    map.leave(epoch);
    assert_eq!(map.space().free, 8);
    let beyond = map.enter_read(id, 3, Blocks { first: 0, count: 5 });
    assert_eq!(beyond.expect_err("beyond a cluster").kind, ErrorKind::OutOfRange);
}

#[test]
fn a_read_enters_once_for_each_source() {
    let (mut world, id) = world();
    world.run(2, Op::Discard("a", 1, 2));
    let map = &mut world.map;
    for index in 0..2 {
        let expected: Vec<_> = map.places(id, index, ALL).expect("it exists").collect();
        let (mut rest, mut found) = (ALL, Vec::new());
        while rest.count > 0 {
            let (epoch, part) = map.enter_read(id, index, rest).expect("it exists");
            map.leave(epoch);
            found.push(part);
            rest.first += part.blocks.count;
            rest.count -= part.blocks.count;
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn without_a_log_only_reads_enter() {
    let (mut world, id) = world();
    world.map.log_failed();
    let refused = world.map.enter_write(id, 0, ONE, Ring(0)).expect_err("only reads");
    assert_eq!(refused.kind, ErrorKind::LogFailed);
    let (epoch, _) = world.map.enter_read(id, 0, ONE).expect("reads are served");
    world.map.leave(epoch);
}

#[test]
fn no_image_is_larger_than_the_bound_of_its_shape() {
    let (mut world, _) = world();
    // Partial clusters, snapshots with long names, and all clusters in use.
    let long = "n".repeat(strake_units::name::NAME_BYTES_MAX);
    world.run(2, Op::Snap(vec![("a".into(), long)]));
    for (at, block) in [1, 4, 8, 12].into_iter().enumerate() {
        world.run(3 + at, Op::Write("a", block, 1, 0, false));
    }
    let id = world.map.begin(Request::Checkpoint).expect("it begins");
    let Progress::Do(Step::WriteRoot { sequence, floors, .. }) = world.map.advance(id) else {
        panic!("a root is written")
    };
    let mut bytes = Vec::new();
    while !world.map.root_piece(&mut bytes, 1) {}
    let image = Image::decode(&bytes).expect("it is whole");
    assert_eq!(sequence, image.sequence());
    assert_eq!(image.floor(Ring(0)), floors.first().copied());
    // What the image has, at the size of the bound.
    let tables = &image.tables;
    let partials = tables.clusters.partials().count() as u64;
    let names =
        tables.volumes.values().map(|volume| volume.name.as_str().len() as u64).sum::<u64>();
    let full = SHAPE.image_bytes_max();
    let unused = (SHAPE.leaves_max() as u64 - tables.slots.len() as u64) * 16
        + (SHAPE.volumes_max() as u64) * (32 + 63)
        - (tables.volumes.len() as u64 * 32 + names)
        + (SHAPE.root_entries_max() as u64 - tables.root_entries as u64) * 8
        + (u64::from(SHAPE.clusters) - partials) * 24;
    let exact = bytes.len() as u64 + unused;
    assert!(exact <= full && full - exact < 32, "{exact} bytes of {full}");
}
