//! Space, policies and limits.

use super::world::{Op, World};
use crate::{
    Blocks, Done, Error, ErrorKind, PoolSpace, Progress, Request, Ring, Shape, SpacePolicy,
    Stability, Tail, VolumeId, VolumeKind, VolumeSpace, cluster_bytes,
};

const SHAPE: Shape = Shape { clusters: 6, cluster_blocks: 4, leaf_entries: 2, rings: 2 };
const RESERVED: SpacePolicy = SpacePolicy { reserved: true, quota: None };

/// A pool with a volume V of three clusters, without a policy.
fn world() -> World {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 12));
    world
}

fn policy(volume: &str, policy: SpacePolicy) -> Op {
    Op::Policy(volume.into(), policy)
}

fn snap(snapshot: &str) -> Op {
    Op::Snap(vec![("V".into(), snapshot.into())])
}

/// Returns the kind of the only failure since the last call.
fn failure(world: &mut World) -> Option<ErrorKind> {
    let failed = std::mem::take(&mut world.failed);
    assert!(failed.len() < 2, "{failed:?}");
    failed.first().map(|error| error.kind)
}

fn space_of(world: &World, volume: &str) -> VolumeSpace {
    world.map.volume_space(world.id(volume).expect("a volume")).expect("a volume")
}

#[test]
fn clusters_are_the_smallest_multiple_of_a_stripe() {
    let kib = 1024;
    assert_eq!(cluster_bytes(6 * 128 * kib), Some(768 * kib));
    assert_eq!(cluster_bytes(6 * 32 * kib), Some(384 * kib));
    assert_eq!(cluster_bytes(256 * kib), Some(256 * kib));
    assert_eq!(cluster_bytes(4 * kib), Some(256 * kib));
    assert_eq!(cluster_bytes(62 * 128 * kib), None);
    assert_eq!(cluster_bytes(0), None);
}

#[test]
fn ranges_are_divided_at_clusters() {
    let parts: Vec<_> = SHAPE.parts(3, 6).expect("a volume may have them").collect();
    let blocks = |first, count| Blocks { first, count };
    assert_eq!(parts, [(0, blocks(3, 1)), (1, blocks(0, 4)), (2, blocks(0, 1))]);
    assert_eq!(SHAPE.parts(7, 0).expect("nothing").count(), 0);
}

#[test]
fn a_range_beyond_every_volume_is_refused() {
    let most = SHAPE.volume_blocks_max();
    let count = |first, count| SHAPE.parts(first, count).map(Iterator::count);
    let refused: Result<usize, Error> = Err(ErrorKind::OutOfRange.into());
    assert_eq!(count(most - 4, 4), Ok(1));
    assert_eq!(count(most - 3, 4), refused);
    assert_eq!(count(1 << 34, 4), refused, "the index of a cluster has 32 bits");
    assert_eq!(count(u64::MAX - 1, 1), refused);
    assert_eq!(count(u64::MAX, 2), refused);
}

#[test]
fn a_reserved_volume_finds_clusters_that_others_do_not_get() {
    let mut world = world();
    world.run(2, policy("V", RESERVED));
    world.run(3, Op::Create("W", 24));
    for (op, index) in (4..).zip(0..3) {
        world.run(op, Op::Write("W", index * 4, 4, 0, false));
        assert_eq!(failure(&mut world), None);
    }
    assert_eq!(world.map.space(), PoolSpace { free: 3, reserved: 3, in_use: 3, in_transit: 0 });
    world.run(7, Op::Write("W", 12, 4, 0, false));
    assert_eq!(failure(&mut world), Some(ErrorKind::NoSpace));
    for (op, index) in (8..).zip(0..3) {
        world.run(op, Op::Write("V", index * 4, 1, 0, false));
        assert_eq!(failure(&mut world), None);
    }
    assert_eq!(world.map.space(), PoolSpace { free: 0, reserved: 0, in_use: 6, in_transit: 0 });
}

#[test]
fn a_snapshot_of_a_reserved_volume_needs_its_size_free() {
    let mut world = world();
    world.run(2, policy("V", RESERVED));
    world.run(3, Op::Write("V", 0, 4, 0, false));
    world.run(4, snap("S"));
    assert_eq!(failure(&mut world), None);
    assert_eq!(space_of(&world, "V").reserved, 3);
    world.run(5, Op::Write("V", 0, 4, 0, false));
    world.run(6, Op::Write("V", 4, 4, 0, false));
    world.run(7, Op::Write("V", 8, 4, 0, false));
    world.run(8, snap("T"));
    assert_eq!(failure(&mut world), Some(ErrorKind::Reserved { missing: 1 }));
    world.run(9, policy("V", SpacePolicy::default()));
    world.run(10, snap("T"));
    assert_eq!(failure(&mut world), None);
}

#[test]
fn two_snapshots_of_a_reserved_volume_need_its_size_once() {
    let mut world = world();
    world.run(2, policy("V", RESERVED));
    world.run(3, Op::Write("V", 0, 4, 0, false));
    let pairs = ["S", "T"].map(|snapshot| ("V".into(), snapshot.into()));
    world.run(4, Op::Snap(pairs.into()));
    assert_eq!(failure(&mut world), None);
    assert_eq!(world.map.space(), PoolSpace { free: 5, reserved: 3, in_use: 1, in_transit: 0 });
}

#[test]
fn what_a_reservation_lacks_is_refused_with_numbers() {
    let mut world = world();
    world.run(2, policy("V", RESERVED));
    let name = "W".parse().expect("a name");
    let request = Request::Create { name, blocks: 16, policy: RESERVED };
    let id = world.map.begin(request).expect("it may begin");
    let refused = world.map.advance(id);
    let error: Error = ErrorKind::Reserved { missing: 1 }.into();
    assert_eq!(refused, Progress::Finished(Err(error)));
    world.run(3, Op::Size("V".into(), 25));
    assert_eq!(failure(&mut world), Some(ErrorKind::Reserved { missing: 1 }));
    world.run(4, Op::Size("V".into(), 24));
    assert_eq!(failure(&mut world), None);
    assert_eq!(world.map.space().reserved, 6);
}

#[test]
fn a_quota_limits_what_a_volume_refers_to() {
    let mut world = world();
    world.run(2, policy("V", SpacePolicy { reserved: false, quota: Some(1) }));
    world.run(3, Op::Write("V", 0, 1, 0, false));
    world.run(4, Op::Write("V", 1, 3, 0, false));
    assert_eq!(failure(&mut world), None);
    world.run(5, Op::Write("V", 4, 1, 0, false));
    assert_eq!(failure(&mut world), Some(ErrorKind::Quota { clusters: 1 }));
    world.run(6, snap("S"));
    world.run(7, Op::Write("V", 0, 1, 0, false));
    assert_eq!(failure(&mut world), None, "a copy of a shared cluster refers to no more");
    world.run(8, Op::Discard("V", 0, 4));
    world.run(9, Op::Write("V", 4, 1, 0, false));
    assert_eq!(failure(&mut world), None);
}

#[test]
fn space_of_a_volume_is_exclusive_or_shared() {
    let mut world = world();
    world.run(2, Op::Write("V", 0, 4, 0, false));
    world.run(3, Op::Write("V", 4, 4, 0, false));
    world.run(4, snap("S"));
    let both = VolumeSpace { mapped: 2, exclusive: 0, shared: 2, reserved: 0 };
    assert_eq!((space_of(&world, "V"), space_of(&world, "S")), (both, both));
    world.run(5, Op::Write("V", 0, 4, 0, false));
    let one = VolumeSpace { mapped: 2, exclusive: 1, shared: 1, reserved: 0 };
    assert_eq!((space_of(&world, "V"), space_of(&world, "S")), (one, one));
    let before = world.map.space().free;
    world.run(6, Op::Delete("S".into()));
    assert_eq!(world.map.space().free, before + 1, "exclusive clusters become free");
    assert_eq!(space_of(&world, "V").exclusive, 2);
}

#[test]
fn a_whole_discard_frees_a_cluster_and_blocks_of_it_do_not() {
    let mut world = world();
    world.run(2, Op::Write("V", 0, 4, 0, false));
    world.run(3, Op::Discard("V", 0, 3));
    assert_eq!(world.map.space().free, 5);
    let id = world.id("V").expect("a volume");
    assert_eq!(world.content(id)[..4], [0, 0, 0, 2003]);
    world.run(4, Op::Discard("V", 0, 4));
    assert_eq!(world.map.space().free, 6);
}

#[test]
fn a_read_below_a_thousand_snapshots_finds_its_block() {
    let mut world = world();
    world.run(2, Op::Write("V", 0, 4, 0, false));
    for depth in 0..1000 {
        world.run(0, snap(&format!("S{depth}")));
    }
    let (id, last) = (world.id("V").expect("a volume"), world.id("S999").expect("a snapshot"));
    assert_eq!(world.content(id)[..4], [2000, 2001, 2002, 2003]);
    assert_eq!(world.content(last), world.content(id));
    assert_eq!(world.map.space().in_use, 1, "snapshots of what does not change take no cluster");
    assert_eq!(world.map.differences(last, id).expect("two volumes").count(), 0);
    world.run(3, Op::Write("V", 1, 1, 0, false));
    let spans: Vec<_> = world.map.differences(last, id).expect("two volumes").collect();
    assert_eq!(spans.iter().map(|span| (span.first, span.count)).collect::<Vec<_>>(), [(1, 1)]);
    assert_eq!(world.map.volume(last).map(|volume| volume.kind), Some(VolumeKind::Snapshot));
}

#[test]
fn requests_that_no_map_can_carry_out_are_refused_at_once() {
    let mut world = world();
    world.run(2, snap("S"));
    let (volume, snapshot) =
        (world.id("V").expect("a volume"), world.id("S").expect("it is there"));
    let name = |name: &str| name.parse().expect("a name");
    let mut refused = |request| world.map.begin(request).map_err(|error| error.kind).err();
    let blocks = |first, count| Blocks { first, count };
    let write = |volume, index, blocks, core| Request::Write {
        volume,
        index,
        blocks,
        stability: Stability::Cached,
        core: Ring(core),
    };
    let policy = SpacePolicy::default();
    let create = |text: &str, blocks| Request::Create { name: name(text), blocks, policy };
    let most = SHAPE.volume_blocks_max();
    let limit = |what, most| Some(ErrorKind::Limit { what, most });
    assert_eq!(refused(write(VolumeId(99), 0, blocks(0, 1), 0)), Some(ErrorKind::NoVolume));
    assert_eq!(refused(write(snapshot, 0, blocks(0, 1), 0)), Some(ErrorKind::ReadOnly));
    assert_eq!(refused(write(volume, 3, blocks(0, 1), 0)), Some(ErrorKind::OutOfRange));
    assert_eq!(refused(write(volume, 0, blocks(3, 2), 0)), Some(ErrorKind::OutOfRange));
    assert_eq!(refused(write(volume, 0, blocks(0, 0), 0)), Some(ErrorKind::OutOfRange));
    assert_eq!(refused(write(volume, 0, blocks(0, 1), 2)), limit("cores", 2));
    assert_eq!(refused(create("V", 4)), Some(ErrorKind::NameTaken));
    assert_eq!(refused(create("W", 0)), Some(ErrorKind::OutOfRange));
    assert_eq!(refused(create("W", most + 1)), limit("blocks of a volume", most));
    let group = |count: u32| (0..count).map(|at| (volume, name(&format!("T{at}")))).collect();
    assert_eq!(
        refused(Request::Snapshot { volumes: group(1001) }),
        limit("snapshots of a group", 1000)
    );
    assert_eq!(
        refused(Request::Snapshot { volumes: group(0) }),
        limit("snapshots of a group", 1000)
    );
    let twice = vec![(volume, name("T")), (volume, name("T"))];
    assert_eq!(refused(Request::Snapshot { volumes: twice }), Some(ErrorKind::NameTaken));
    let copy = Request::Clone { snapshot: volume, name: name("C") };
    assert_eq!(refused(copy), Some(ErrorKind::NoSnapshot));
    let smaller = Request::Resize { volume, blocks: 4, tail: Tail::Keep };
    assert_eq!(refused(smaller), Some(ErrorKind::DiscardsTail));
    let grown = world.map.begin(Request::Resize { volume, blocks: 16, tail: Tail::Keep });
    let id = grown.expect("a larger size");
    assert!(!matches!(world.map.advance(id), Progress::Finished(_)));
    let roll = Request::Rollback { volume, snapshot };
    let differs = ErrorKind::SizeDiffers { volume: 16, snapshot: 12 };
    assert_eq!(world.map.begin(roll).map_err(|error| error.kind), Err(differs));
}

#[test]
fn a_new_pool_serves_after_two_roots() {
    let mut map = crate::VolumeMap::create(SHAPE, 1).expect("a shape");
    let name = "V".parse().expect("a name");
    let request = Request::Create { name, blocks: 4, policy: SpacePolicy::default() };
    for _ in 0..2 {
        let refused = map.begin(request.clone()).map_err(|error| error.kind);
        assert_eq!(refused, Err(ErrorKind::RootFirst));
        let id = map.begin(Request::Checkpoint).expect("a checkpoint");
        assert!(matches!(map.advance(id), Progress::Do(_)));
        map.completed(id);
        assert_eq!(map.advance(id), Progress::Finished(Ok(Done::Done)));
    }
    assert!(map.begin(request).is_ok());
    let wrong = Shape { rings: 0, ..SHAPE };
    let error = crate::VolumeMap::create(wrong, 1).map_err(|error| error.to_string());
    let said = "volume map: field rings has the value 0";
    assert_eq!(error.err().as_deref(), Some(said));
}

#[test]
fn limits_are_checked_again_when_an_operation_is_recorded() {
    let mut world = world();
    let create = |text: &str| Request::Create {
        name: text.parse().expect("a name"),
        blocks: 4,
        policy: SpacePolicy::default(),
    };
    let twice = [create("W"), create("W")].map(|request| world.map.begin(request).expect("free"));
    assert!(matches!(world.map.advance(twice[0]), Progress::Wait(_)));
    let taken: Error = ErrorKind::NameTaken.into();
    assert_eq!(world.map.advance(twice[1]), Progress::Finished(Err(taken)));
    let last = [create("X"), create("Y")].map(|request| world.map.begin(request).expect("free"));
    world.map.state.tables.next_volume = u32::MAX - 1;
    assert!(matches!(world.map.advance(last[0]), Progress::Wait(_)));
    let none = ErrorKind::Limit { what: "new volumes", most: u64::from(u32::MAX) };
    assert_eq!(world.map.advance(last[1]), Progress::Finished(Err(none.into())));
}

#[test]
fn leaves_have_a_limit_and_others_go_on() {
    let mut world = world();
    world.map.state.tables.leaves_max = 1;
    world.run(2, Op::Write("V", 0, 1, 0, false));
    assert_eq!(failure(&mut world), None);
    let limit = ErrorKind::Limit { what: "leaves", most: 1 };
    world.run(3, Op::Write("V", 8, 1, 0, false));
    assert_eq!(failure(&mut world), Some(limit));
    world.run(4, Op::Write("V", 4, 4, 0, false));
    assert_eq!(failure(&mut world), None, "it is in the same leaf");
    world.run(5, snap("S"));
    world.run(6, Op::Discard("V", 0, 4));
    assert_eq!(failure(&mut world), Some(limit), "its leaf is shared");
    world.run(7, Op::Delete("S".into()));
    world.run(8, Op::Discard("V", 0, 4));
    assert_eq!(failure(&mut world), None);
}

#[test]
fn two_writes_that_need_the_last_leaf_do_not_both_get_it() {
    let mut world = world();
    world.map.state.tables.leaves_max = 1;
    world.add(2, Op::Write("V", 0, 1, 0, false), 0);
    world.add(3, Op::Write("V", 8, 1, 0, false), 0);
    assert!(world.step(0) && world.step(1), "both have taken a cluster");
    assert_eq!(world.map.space().in_transit, 2);
    world.drain();
    assert_eq!(failure(&mut world), Some(ErrorKind::Limit { what: "leaves", most: 1 }));
    assert_eq!(world.map.space().in_use, 1);
}

#[test]
fn a_discard_of_zero_blocks_writes_no_record_and_takes_no_cluster() {
    let mut world = world();
    world.run(2, Op::Write("V", 0, 1, 0, false));
    world.run(3, Op::Write("V", 4, 4, 0, false));
    let next = |world: &World| world.map.state.next_numbers();
    let before = next(&world);
    world.run(4, Op::Discard("V", 1, 2));
    assert_eq!(next(&world), before, "its blocks are zero");
    world.run(5, snap("S"));
    let before = next(&world);
    world.run(6, Op::Discard("V", 1, 2));
    assert_eq!((next(&world), world.map.space().in_use), (before, 2), "in a snapshot as well");
    // A block of a base is not one of them.
    world.run(7, Op::Write("V", 4, 1, 0, false));
    world.run(8, Op::Discard("V", 5, 1));
    let id = world.id("V").expect("a volume");
    assert_eq!(world.content(id)[4..8], [7004, 0, 3006, 3007]);
    world.run(9, Op::Discard("V", 0, 4));
    assert_eq!(space_of(&world, "V").mapped, 1, "a whole discard gives the cluster up");
}

#[test]
fn logs_of_earlier_rings_are_kept_until_both_roots_are_of_other_rings() {
    let mut world = world();
    world.run(2, Op::Write("V", 0, 1, 0, false));
    let crash = world.crash_of(&world.first_pick(), true);
    let mut started = world.start(&crash, 1).expect("a start");
    let earlier = |world: &World| world.map.keep_from(Ring(1)).map(|number| number.0);
    assert_eq!(earlier(&started), Some(0));
    started.run(0, Op::Checkpoint);
    assert_eq!(earlier(&started), Some(0), "the older root is of two rings");
    started.run(0, Op::Checkpoint);
    assert_eq!(earlier(&started), None);
    assert!(started.map.keep_from(Ring(0)).is_some_and(|number| number.0 > 0));
}
