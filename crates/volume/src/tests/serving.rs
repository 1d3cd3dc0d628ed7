//! Volumes while nothing fails.

use strake_block::{Durability, IoErrorKind, Op};
use strake_units::{Lba, LbaRange};
use strake_volume_map::{ErrorKind, Tail};

use super::world::{World, drive, name, small};
use crate::request::{Answer, Found, Request};
use crate::{SpacePolicy, VolumeKind};

const FUA: Durability = Durability::Fua;
const CACHED: Durability = Durability::Normal;

fn world() -> World {
    let device = drive(64, 1);
    let layout = small(&*device, 64, 64);
    World::create(device, &layout)
}

#[test]
fn a_new_volume_is_zero_and_keeps_what_is_written() {
    let mut world = world();
    let volume = world.create_volume("vm1", 1000);
    assert_eq!(world.read(volume, 0, 200), vec![0; 200]);
    world.write(volume, 5, &[1, 2, 3], CACHED).expect("written");
    // Across clusters, in place, and at the end.
    world.write(volume, 60, &[10, 11, 12, 13, 14, 15, 16, 17], FUA).expect("written");
    world.write(volume, 62, &[20, 21, 22], CACHED).expect("written");
    world.write(volume, 999, &[99], CACHED).expect("written");
    assert_eq!(world.read(volume, 4, 5), [0, 1, 2, 3, 0]);
    assert_eq!(world.read(volume, 59, 10), [0, 10, 11, 20, 21, 22, 15, 16, 17, 0]);
    assert_eq!(world.read(volume, 998, 2), [0, 99]);
    let status = world.status();
    assert_eq!(status.space.in_use, 3);
    let mut world = world.reopen().expect("it opens");
    assert_eq!(world.read(volume, 59, 10), [0, 10, 11, 20, 21, 22, 15, 16, 17, 0]);
    assert_eq!(world.read(volume, 998, 2), [0, 99]);
}

#[test]
fn a_snapshot_keeps_its_content_and_a_clone_is_independent() {
    let mut world = world();
    let volume = world.create_volume("vm1", 640);
    world.write(volume, 0, &[1, 2, 3, 4], CACHED).expect("written");
    let snapshot = world.snapshot(volume, "before");
    world.write(volume, 1, &[20, 30], CACHED).expect("written");
    assert_eq!(world.read(snapshot, 0, 5), [1, 2, 3, 4, 0]);
    assert_eq!(world.read(volume, 0, 5), [1, 20, 30, 4, 0]);
    let refused = world.write(snapshot, 0, &[9], CACHED).expect_err("a snapshot is read-only");
    assert_eq!(refused.kind, IoErrorKind::ReadOnly);
    let clone = Request::Clone { snapshot, name: name("copy") };
    let Ok(Answer::Created(made)) = world.ask(clone) else { panic!("it is cloned") };
    let clone = made[0];
    world.write(clone, 3, &[40, 50], CACHED).expect("written");
    assert_eq!(world.read(clone, 0, 5), [1, 2, 3, 40, 50]);
    assert_eq!(world.read(snapshot, 0, 5), [1, 2, 3, 4, 0]);
    let rows = world.status().volumes;
    let row = |id| rows.iter().find(|row| row.id == id).expect("it is listed");
    assert_eq!((row(snapshot).kind, row(snapshot).origin), (VolumeKind::Snapshot, Some(volume)));
    assert_eq!((row(clone).kind, row(clone).origin), (VolumeKind::Writable, Some(snapshot)));
    assert!(world.device_of(snapshot).info().read_only);

    world.ask(Request::Rollback { volume, snapshot }).expect("it is rolled back");
    assert_eq!(world.read(volume, 0, 5), [1, 2, 3, 4, 0]);
    let mut world = world.reopen().expect("it opens");
    assert_eq!(world.read(volume, 0, 5), [1, 2, 3, 4, 0]);
    assert_eq!(world.read(clone, 0, 5), [1, 2, 3, 40, 50]);
    for id in [clone, snapshot, volume] {
        world.ask(Request::Delete { volume: id }).expect("it is deleted");
    }
    assert_eq!(world.settle().space.in_use, 0, "all space returns");
}

#[test]
fn a_renamed_volume_keeps_its_content_and_frees_its_name() {
    let mut world = world();
    let [one, two] = ["one", "two"].map(|text| world.create_volume(text, 64));
    let snapshot = world.snapshot(one, "before");
    world.write(one, 0, &[1], CACHED).expect("written");
    let rename = |volume, text| Request::Rename { volume, name: name(text) };
    let taken = world.ask(rename(one, "two")).expect_err("it has a volume");
    assert_eq!(taken.kind, ErrorKind::NameTaken);
    // Both begin before one is recorded.
    let [first, second] =
        [(one, "new"), (two, "new")].map(|(id, text)| world.send(rename(id, text)));
    let first = world.until(|_| first.poll().expect("the pool runs"));
    first.expect("the name was free");
    let second = world.until(|_| second.poll().expect("the pool runs"));
    assert_eq!(second.expect_err("the name is taken").kind, ErrorKind::NameTaken);
    world.ask(rename(snapshot, "one")).expect("the previous name is free");
    let mut world = world.reopen().expect("it opens");
    let rows = world.status().volumes;
    let names: Vec<_> = rows.iter().map(|row| (row.id, row.name.as_str())).collect();
    assert_eq!(names, [(one, "new"), (two, "two"), (snapshot, "one")]);
    assert_eq!((world.read(one, 0, 1), world.read(snapshot, 0, 1)), (vec![1], vec![0]));
    let gone = world.ask(Request::Delete { volume: two }).map(|_| rename(two, "three"));
    let gone = world.ask(gone.expect("it is deleted")).expect_err("it is gone");
    assert_eq!(gone.kind, ErrorKind::NoVolume);
    world.ask(rename(one, "two")).expect("the name of a deleted volume is free");
}

#[test]
fn several_snapshots_are_taken_at_one_instant() {
    let mut world = world();
    let [data, log] = ["data", "log"].map(|text| world.create_volume(text, 64));
    world.write(data, 0, &[1], CACHED).expect("written");
    world.write(log, 0, &[1], CACHED).expect("written");
    let volumes = vec![(data, name("data-1")), (log, name("log-1"))];
    let Ok(Answer::Created(made)) = world.ask(Request::Snapshot { volumes }) else { panic!() };
    world.write(data, 0, &[2], CACHED).expect("written");
    assert_eq!((world.read(made[0], 0, 1), world.read(made[1], 0, 1)), (vec![1], vec![1]));
}

#[test]
fn discarded_blocks_are_zero_and_their_clusters_free() {
    let mut world = world();
    let volume = world.create_volume("vm1", 640);
    let values: Vec<u64> = (1..=256).collect();
    world.write(volume, 0, &values, CACHED).expect("written");
    let before = world.status().space.in_use;
    world.discard(volume, 10, 200);
    assert_eq!(world.read(volume, 9, 3), [10, 0, 0]);
    assert_eq!(world.read(volume, 209, 3), [0, 211, 212]);
    assert_eq!(world.settle().space.in_use, before - 2, "whole clusters return");
    let range = LbaRange::new(Lba(0), 640);
    world.run(volume, Op::WriteZeroes { range, durability: FUA }).expect("zeroed");
    assert_eq!(world.read(volume, 0, 256), vec![0; 256]);
    assert_eq!(world.settle().space.in_use, 0);
}

#[test]
fn a_volume_grows_and_shrinks_only_with_permission() {
    let mut world = world();
    let volume = world.create_volume("vm1", 100);
    let device = world.device_of(volume);
    world.write(volume, 99, &[5], CACHED).expect("written");
    let beyond = world.write(volume, 100, &[5], CACHED).expect_err("beyond the end");
    assert_eq!(beyond.kind, IoErrorKind::OutOfRange);
    world.ask(Request::Resize { volume, blocks: 300, tail: Tail::Keep }).expect("it grows");
    assert_eq!(device.info().blocks, 300, "hosts see the size");
    world.write(volume, 299, &[6], CACHED).expect("written");
    let refused = world.ask(Request::Resize { volume, blocks: 50, tail: Tail::Keep });
    assert_eq!(refused.expect_err("it would lose blocks").kind, ErrorKind::DiscardsTail);
    world.ask(Request::Resize { volume, blocks: 50, tail: Tail::Discard }).expect("it shrinks");
    world.ask(Request::Resize { volume, blocks: 300, tail: Tail::Keep }).expect("it grows");
    assert_eq!(world.read(volume, 99, 1), [0], "discarded blocks never return");
}

#[test]
fn a_full_pool_refuses_writes_and_works_again_when_space_appears() {
    let mut world = world();
    let [one, two] = ["one", "two"].map(|text| world.create_volume(text, 64 * 64));
    for index in 0..64 {
        world.write(one, index * 64, &[index + 1], CACHED).expect("written");
    }
    let full = world.write(two, 0, &[1], CACHED).expect_err("no cluster is free");
    assert_eq!(full.kind, IoErrorKind::NoSpace);
    world.write(one, 1, &[7], CACHED).expect("clusters in use can be written");
    assert_eq!(world.read(one, 0, 2), [1, 7]);
    world.discard(one, 0, 64);
    world.write(two, 0, &[1], CACHED).expect("a cluster is free");
    // A write waits while a volume is being deleted.
    let rest = world.write(two, 64, &[2], CACHED).expect_err("no cluster is free");
    assert_eq!(rest.kind, IoErrorKind::NoSpace);
    world.ask(Request::Delete { volume: one }).expect("deleted");
    world.write(two, 64, &[2], CACHED).expect("space returns while the write waits");
}

#[test]
fn a_thick_volume_keeps_its_space() {
    let mut world = world();
    let thick = SpacePolicy { reserved: true, quota: None };
    let volume = world.create_with("thick", 40 * 64, thick).expect("there is room");
    let more = world.create_with("more", 40 * 64, thick).expect_err("there is no room");
    assert_eq!(more.kind, ErrorKind::Reserved { missing: 16 });
    let thin = world.create_volume("thin", 64 * 64);
    for index in 0..24 {
        world.write(thin, index * 64, &[1], CACHED).expect("written");
    }
    world.write(thin, 24 * 64, &[1], CACHED).expect_err("the rest is reserved");
    for index in 0..40 {
        world.write(volume, index * 64, &[2], CACHED).expect("reserved");
    }
    let limited = SpacePolicy { reserved: false, quota: Some(1) };
    world.ask(Request::Delete { volume }).expect("deleted");
    let limited = world.create_with("limited", 640, limited).expect("created");
    world.write(limited, 0, &[1], CACHED).expect("within its quota");
    let beyond = world.write(limited, 64, &[1], CACHED).expect_err("beyond its quota");
    assert_eq!(beyond.kind, IoErrorKind::NoSpace);
}

#[test]
fn differences_are_found_in_parts_of_a_volume() {
    let mut world = world();
    let volume = world.create_volume("vm1", 64 * 1008 * 40);
    // A whole cluster: a change of a partial one copies it, and all of its blocks may differ.
    world.write(volume, 0, &[1; 64], CACHED).expect("written");
    let snapshot = world.snapshot(volume, "before");
    let far = 64 * 1008 * 20 + 5;
    world.write(volume, 11, &[3], CACHED).expect("written");
    world.write(volume, far, &[4, 5], CACHED).expect("written");
    let (mut first, mut all) = (0, Vec::new());
    loop {
        let request = Request::Differences { from: snapshot, to: volume, first };
        let Ok(Answer::Differences(Found { spans, next })) = world.ask(request) else { panic!() };
        all.extend(spans.iter().map(|span| (span.first, span.count)));
        let Some(next) = next else { break };
        first = next;
    }
    assert_eq!(all, [(11, 1), (far, 2)]);
}

#[test]
fn the_log_goes_around_and_checkpoints_release_it() {
    let device = drive(64, 1);
    let layout = small(&*device, 64, 16);
    let mut world = World::create(device, &layout);
    let volume = world.create_volume("vm1", 64 * 64);
    for round in 0..40 {
        world.write(volume, round % 8 * 64, &[round + 1], CACHED).expect("written");
        world.discard(volume, round % 8 * 64, 64);
        world.write(volume, round % 8 * 64, &[round + 1], CACHED).expect("written");
    }
    let mut world = world.reopen().expect("it opens");
    for at in 0..8 {
        assert_eq!(world.read(volume, at * 64, 2), [at + 33, 0]);
    }
}

#[test]
fn a_stopped_pool_refuses_requests_and_opens_with_an_empty_log() {
    let mut world = world();
    let volume = world.create_volume("vm1", 640);
    world.write(volume, 0, &[1], CACHED).expect("written");
    let stop = world.pool().begin_stop();
    world.until(|_| stop.poll().expect("it stops"));
    let refused = world.write(volume, 0, &[2], CACHED).expect_err("the pool was stopped");
    assert_eq!(refused.kind, IoErrorKind::Aborted);
    let mut world = world.reopen().expect("it opens");
    assert_eq!(world.read(volume, 0, 2), [1, 0]);
}

#[test]
fn requests_beyond_the_volume_or_of_part_of_a_block_are_refused() {
    let mut world = world();
    let volume = world.create_volume("vm1", 100);
    for (at, count) in [(100, 1), (99, 2), (u64::MAX - 1, 1), (u64::MAX, 2)] {
        let range = LbaRange::new(Lba(at), count);
        let discard = world.run(volume, Op::Deallocate { range }).expect_err("beyond the end");
        assert_eq!(discard.kind, IoErrorKind::OutOfRange);
    }
    let none = LbaRange::new(Lba(0), 0);
    world.run(volume, Op::Deallocate { range: none }).expect_err("no block");
    let data = strake_block::BufMut::alone(512).into();
    let part = world.run(volume, Op::Read { at: Lba(0), data }).expect_err("part of a block");
    assert_eq!(part.kind, IoErrorKind::Misaligned);
    world.ask(Request::Delete { volume }).expect("deleted");
    let gone = world.write(volume, 0, &[1], CACHED).expect_err("the volume is gone");
    assert_eq!(gone.kind, IoErrorKind::Gone);
}

#[test]
fn the_space_of_a_volume_is_counted_in_parts() {
    let mut world = world();
    let leaf = 64 * 1008;
    let volume = world.create_volume("vm1", 40 * leaf);
    for at in [0, 17, 18, 39] {
        world.write(volume, at * leaf, &[1], CACHED).expect("written");
    }
    let snapshot = world.snapshot(volume, "s");
    world.write(volume, 18 * leaf, &[2; 64], CACHED).expect("written");
    let mut parts = |id| {
        let (mut first, mut parts) = (0, Vec::new());
        loop {
            let Ok(Answer::Space(part)) = world.ask(Request::Space { volume: id, first }) else {
                panic!("the space")
            };
            assert_eq!(part.space.mapped, 4);
            parts.push(part.space.exclusive);
            let Some(next) = part.next else { return parts };
            first = next;
        }
    };
    assert_eq!(parts(volume), [0, 1, 0], "one cluster is no longer shared");
    assert_eq!(parts(snapshot), [0, 1, 0]);
    let gone = Request::Space { volume: crate::VolumeId(99), first: 0 };
    assert!(world.ask(gone).is_err());
}
