//! Tests of an array on memory drives, driven turn by turn on one thread.

mod world;

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;

use strake_block::{Follower, follow};
use strake_engine::{Array, MemberIo, Options};
use strake_raid::Level;
use strake_reactor::{BESIDE_THREAD, CoreConfig, CoreThread};
use strake_units::{CoreIndex, Nanos};
use world::World;

/// Returns options with all optional functions disabled.
fn check(level: Level, members: usize, group: Option<u8>, losses: usize, cores: u16) {
    let on = Options::default();
    for options in [on, Options { merge: false, steer: false, cache: false, ..on }] {
        lives(World::new(level, members, group, cores, options), members, losses);
    }
}

/// Writes and reads in every state of the members, and compares the data with a plain array of bytes.
fn lives(mut world: World, members: usize, losses: usize) {
    world.scribble(200);
    world.verify();
    for member in 0..losses {
        world.fail(member as u8 * 2 % members as u8);
        world.scribble(60);
        world.verify();
    }
    for member in 0..losses {
        world.replace(member as u8 * 2 % members as u8);
    }
    world.scribble(60);
    world.wait_healthy();
    world.scribble(60);
    world.verify();
    world.restart();
    world.verify();
    world.crash();
    world.scribble(20);
    world.verify();
}

#[test]
fn raid0_reads_what_was_written() {
    check(Level::Raid0, 4, None, 0, 2);
}

#[test]
fn raid1_survives_all_but_one() {
    check(Level::Raid1, 3, None, 2, 1);
}

#[test]
fn raid10_survives_one_of_each_pair() {
    check(Level::Raid10, 4, None, 2, 2);
}

#[test]
fn raid5_survives_one() {
    check(Level::Raid5, 5, None, 1, 2);
}

#[test]
fn raid6_survives_two() {
    check(Level::Raid6, 8, None, 2, 1);
    check(Level::Raid6, 8, None, 2, 3);
}

#[test]
fn raid73_survives_three() {
    check(Level::Raid73, 8, None, 3, 2);
}

#[test]
fn four_parities_survive_four() {
    check(Level::Parity(4), 10, None, 4, 2);
}

#[test]
fn raid60_survives_two_in_a_group() {
    check(Level::Raid60, 10, Some(5), 2, 2);
}

/// The history of the bug: a drive whose size is not a multiple of 4 KiB caused a panic of the daemon, and counted as
/// unresponsive.
#[test]
fn a_drive_may_end_at_any_block() {
    for number in 0..8 {
        let drive = world::drive(number);
        let mut wait = || Some(Nanos(0));
        let mut io = MemberIo::open(&drive, &mut wait).expect("it opens");
        let found = io.inspect().expect("it can be read");
        assert!(found.label.is_none() && found.foreign.is_none(), "{number}: {found:?}");
        assert!(matches!(io.overwritten(), Ok(None)), "{number}");
        assert!(matches!(io.written_over(), Ok(None)), "{number}");
    }
    let world = World::new(Level::Raid5, 5, None, 1, Options::default());
    assert_eq!(world.overwritten(), [None; 5]);
}

/// The names of the threads that allocate pools.
#[derive(Default)]
struct Allocating(Mutex<Vec<Option<String>>>);

impl Follower for Allocating {
    fn added(&self, _arena: Range<usize>) {
        let name = thread::current().name().map(str::to_owned);
        self.0.lock().expect("no panic").push(name);
    }

    fn removed(&self, _arena: Range<usize>) {}
}

/// The history of the bug: the kernel zeroes the memory of an array when it is first written, which a data core did. It
/// served no other array for 10 ms to 120 ms.
#[test]
fn data_cores_do_not_allocate_the_memory_of_an_array() {
    let cores = [0, 1].map(|index| CoreThread::start(CoreConfig::new(CoreIndex(index))));
    let cores = cores.map(|core| core.expect("it starts"));
    let handles = [cores[0].handle(), cores[1].handle()];
    let allocating = Arc::new(Allocating::default());
    follow(&(Arc::clone(&allocating) as Arc<dyn Follower>));
    let (_, assembled) = world::created(Level::Raid6, 6, None);
    let array = Array::start(assembled, &handles, Options::default()).expect("drives open");
    let threads = allocating.0.lock().expect("no panic").clone();
    let buffers = threads.iter().filter(|name| name.as_deref() == Some(BESIDE_THREAD));
    assert_eq!(buffers.count(), 6, "three pools for each core: {threads:?}");
    let core =
        |name: &&Option<String>| name.as_deref().is_some_and(|n| n.starts_with("strake-core"));
    assert_eq!(threads.iter().find(core), None);
    array.stop().expect("it stops");
}
