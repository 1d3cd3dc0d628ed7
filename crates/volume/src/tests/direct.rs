//! Reads and writes in place that do not pass the pool core.

use std::collections::VecDeque;
use std::sync::Arc;

use strake_block::{CompletionBatch, Durability, Io, IoErrorKind, IoQueue, Op, Readiness, Token};
use strake_dev_mem::{Effect, Ops, Rule};
use strake_units::{CoreIndex, Lba, LbaRange, Nanos};
use strake_volume_map::{ClusterId, Direct, VolumeId};

use super::world::{World, drive, name, read_op, small, values_of, write_op};
use crate::device::Below;
use crate::direct_queue::{Back, DirectQueue};
use crate::grace::{Grace, Section};
use crate::layout::Layout;
use crate::request::{Answer, Request};
use crate::view::View;

const CACHED: Durability = Durability::Normal;

fn world() -> (World, Layout) {
    let device = drive(64, 1);
    let layout = small(&*device, 64, 64);
    let world = World::create(Arc::clone(&device), &layout);
    (world, layout)
}

/// A queue of a test, whose completions the test takes without a turn of the pool.
struct User {
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
}

impl User {
    fn of(world: &mut World, volume: VolumeId) -> Self {
        let queue = world.device_of(volume).open_queue(CoreIndex(0), 16).expect("the pool runs");
        world.turn();
        Self { queue, batch: CompletionBatch::new(16) }
    }

    fn submit(&mut self, token: u64, op: Op) {
        self.queue.submit(Io { token: Token(token), op }).expect("there is room");
        self.queue.ring_doorbell(Nanos(0));
    }

    /// Returns the completions without a turn of the pool.
    fn poll(&mut self, now: u64) -> Vec<(u64, Op)> {
        self.queue.poll(Nanos(now), &mut self.batch);
        let done = self.batch.drain();
        done.map(|done| {
            done.result.expect("it succeeds");
            (done.token.0, done.op)
        })
        .collect()
    }

    /// True if the I/O is executed without a turn of the pool.
    fn is_direct(&mut self, world: &mut World, op: Op) -> bool {
        self.submit(1, op);
        if self.poll(u64::MAX / 2).len() == 1 {
            return true;
        }
        (0..2000).for_each(|_| world.turn());
        assert_eq!(self.poll(u64::MAX / 2).len(), 1, "the pool executes it");
        false
    }
}

/// Returns a world with a volume whose first two clusters are written, and a user that knows both.
fn prepared() -> (World, Layout, VolumeId, User) {
    let (mut world, layout) = world();
    let volume = world.create_volume("vm1", 64 * 40);
    for part in 0..2 {
        world.write(volume, part * 64, &[part + 1; 64], CACHED).expect("written");
        world.read(volume, part * 64, 1);
    }
    let user = User::of(&mut world, volume);
    (world, layout, volume, user)
}

#[test]
fn reads_and_writes_in_place_do_not_pass_the_pool_core() {
    let (mut world, _, volume, mut user) = prepared();
    user.submit(5, read_op(66, 3));
    assert_eq!(user.queue.readiness(), Readiness::Poll);
    let [(5, Op::Read { at, data })] = &mut user.poll(1)[..] else { panic!("one read") };
    let (at, data) = (*at, std::mem::take(data));
    assert_eq!(at, Lba(66), "the address is that of the volume");
    assert_eq!(values_of(Op::Read { at, data }), [2, 2, 2]);
    user.submit(6, write_op(1, &[7, 8], Durability::Fua));
    let [(6, Op::Write { at: Lba(1), .. })] = &user.poll(1)[..] else { panic!("one write") };
    assert_eq!(world.read(volume, 0, 4), [1, 7, 8, 1]);
    // The first I/O of a part, I/Os across parts, discards and flushes pass the pool core.
    assert!(!user.is_direct(&mut world, write_op(200, &[1], CACHED)));
    assert!(!user.is_direct(&mut world, read_op(60, 8)));
    assert!(!user.is_direct(&mut world, Op::Flush));
    let range = LbaRange::new(Lba(0), 1);
    assert!(!user.is_direct(&mut world, Op::Deallocate { range }));
    // A partial cluster is in no view.
    assert!(!user.is_direct(&mut world, read_op(0, 1)));
    assert!(!user.is_direct(&mut world, read_op(0, 1)));
    assert!(!user.is_direct(&mut world, write_op(0, &[1], CACHED)));
    assert!(!user.is_direct(&mut world, write_op(0, &[2], CACHED)), "it makes the cluster known");
    assert!(user.is_direct(&mut world, write_op(0, &[3], CACHED)), "the cluster is whole again");
}

#[test]
fn a_queue_uses_no_view_before_the_pool_core_waits_for_it() {
    let (mut world, _, volume, mut user) = prepared();
    assert!(user.is_direct(&mut world, read_op(0, 1)));
    let queue = world.device_of(volume).open_queue(CoreIndex(0), 16).expect("the pool runs");
    let mut other = User { queue, batch: CompletionBatch::new(16) };
    assert!(!other.is_direct(&mut world, read_op(0, 1)));
    assert!(other.is_direct(&mut world, read_op(0, 1)));
}

#[test]
fn what_a_snapshot_shares_is_written_by_the_pool_core() {
    let (mut world, _, volume, mut user) = prepared();
    assert!(user.is_direct(&mut world, write_op(0, &[5], CACHED)));
    let snapshot = world.snapshot(volume, "s");
    assert!(!user.is_direct(&mut world, write_op(0, &[6], CACHED)));
    assert_eq!(world.read(snapshot, 0, 2), [5, 1]);
    assert_eq!(world.read(volume, 0, 2), [6, 1]);
    // Reads need one pass to make a part known again.
    assert!(!user.is_direct(&mut world, read_op(64, 1)));
    assert!(user.is_direct(&mut world, read_op(64, 1)));
    assert!(!user.is_direct(&mut world, write_op(64, &[9], CACHED)), "the cluster is shared");
    let mut reader = User::of(&mut world, snapshot);
    assert!(!reader.is_direct(&mut world, read_op(64, 1)));
    assert!(reader.is_direct(&mut world, read_op(64, 1)));
    reader.submit(2, write_op(64, &[1], CACHED));
    world.turn();
    reader.queue.poll(Nanos(1), &mut reader.batch);
    let refused = reader.batch.drain().next().expect("an answer").result.expect_err("read-only");
    assert_eq!(refused.kind, IoErrorKind::ReadOnly);
}

#[test]
fn a_rollback_a_smaller_size_and_a_deletion_change_what_users_see() {
    let (mut world, _, volume, mut user) = prepared();
    let snapshot = world.snapshot(volume, "s");
    world.write(volume, 0, &[9; 64], CACHED).expect("written");
    world.read(volume, 0, 1);
    assert!(user.is_direct(&mut world, read_op(0, 1)));
    world.ask(Request::Rollback { volume, snapshot }).expect("it is rolled back");
    assert!(!user.is_direct(&mut world, read_op(0, 1)));
    assert_eq!(world.read(volume, 0, 1), [1]);
    let resize = |blocks| Request::Resize { volume, blocks, tail: crate::Tail::Discard };
    world.ask(resize(64)).expect("it gets smaller");
    user.submit(3, read_op(64, 1));
    world.turn();
    user.queue.poll(Nanos(1), &mut user.batch);
    let refused = user.batch.drain().next().expect("an answer").result.expect_err("beyond the end");
    assert_eq!(refused.kind, IoErrorKind::OutOfRange);
    world.ask(resize(640)).expect("it grows");
    assert_eq!(world.read(volume, 64, 1), [0]);
    assert!(!user.is_direct(&mut world, read_op(0, 1)));
    assert!(user.is_direct(&mut world, read_op(0, 1)));
    world.ask(Request::Delete { volume }).expect("it is deleted");
    user.submit(4, read_op(0, 1));
    world.turn();
    user.queue.poll(Nanos(1), &mut user.batch);
    let refused = user.batch.drain().next().expect("an answer").result.expect_err("it is gone");
    assert_eq!(refused.kind, IoErrorKind::Gone);
}

/// A queue with room for one I/O.
#[derive(Default)]
struct Narrow(Option<Io>);

impl IoQueue for Narrow {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.0.is_some() {
            return Err(io);
        }
        self.0 = Some(io);
        Ok(())
    }

    fn ring_doorbell(&mut self, _now: Nanos) {}

    fn poll(&mut self, _now: Nanos, batch: &mut CompletionBatch) {
        if let Some(Io { token, op }) = self.0.take() {
            batch.push_parts(token, op, Ok(()));
        }
    }

    fn readiness(&self) -> Readiness {
        Readiness::Poll
    }
}

#[test]
fn requests_that_the_device_refuses_return_as_they_were() {
    let device = drive(64, 1);
    let layout = Arc::new(small(&*device, 64, 64));
    let below = Below { device, layout: Arc::clone(&layout), grace: Arc::new(Grace::new()) };
    let (view, section) = (Arc::new(View::new(640, 10)), Arc::new(Section::new()));
    section.open();
    view.add(1, Direct { cluster: ClusterId(7), is_writable: true });
    let queue = Box::<Narrow>::default();
    let mut queue = DirectQueue::new(queue, &below, view, Arc::clone(&section), 8);
    let io = |token, block| Io { token: Token(token), op: write_op(block, &[1], CACHED) };
    let is = |io: &Io, token, block| {
        let Op::Write { at, .. } = &io.op else { panic!("a write") };
        assert_eq!((io.token, *at), (Token(token), Lba(block)));
    };
    assert!(queue.submit(io(11, 65)).is_ok());
    let Err(Back::Full(back)) = queue.submit(io(12, 66)) else { panic!("the device is full") };
    is(&back, 12, 66);
    for (token, block) in [(13, 67), (14, 68)] {
        assert!(queue.stage(io(token, block)).is_ok());
    }
    let mut batch = VecDeque::from([io(15, 69)]);
    assert_eq!(queue.submit_staged(&mut batch), 2);
    for (io, (token, block)) in batch.iter().zip([(13, 67), (14, 68), (15, 69)]) {
        is(io, token, block);
    }
    let mut done = CompletionBatch::new(4);
    queue.poll(Nanos(0), &mut done);
    let [done] = done.as_mut_slice() else { panic!("one completion") };
    let Op::Write { at, .. } = &done.op else { panic!("a write") };
    assert_eq!((done.token, *at), (Token(11), Lba(65)));
    assert!(section.is_idle());
    drop(queue);
    assert!(!below.grace.has_lost_write(), "no write is in progress");
}

/// Makes I/Os of data clusters wait until the rule is removed.
fn stop(world: &World, layout: &Layout, ops: Ops) -> strake_dev_mem::RuleId {
    let bytes = layout.header.data_at..layout.header.bytes;
    let range = LbaRange::new(layout.lba(bytes.start), (bytes.end - bytes.start) / 4096);
    world.device.plan().add(Rule::new(ops, Effect::Delay(Nanos(1 << 40))).within(range))
}

#[test]
fn a_cluster_is_not_used_again_while_a_read_from_before_is_in_progress() {
    let (mut world, layout, volume, mut user) = prepared();
    let other = world.create_volume("vm2", 64 * 64);
    let rule = stop(&world, &layout, Ops::READ);
    user.submit(1, read_op(0, 1));
    assert_eq!(user.poll(1).len(), 0, "the device is slow");
    world.device.plan().remove(rule);
    world.discard(volume, 0, 64);
    // All clusters but those in use are taken.
    for part in 0..62 {
        world.write(other, part * 64, &[77; 64], CACHED).expect("written");
    }
    let status = world.status();
    assert_eq!((status.space.free, status.space.in_use), (0, 64), "the read has a cluster");
    let refused = world.write(other, 62 * 64, &[77], CACHED).expect_err("it is not free");
    assert_eq!(refused.kind, IoErrorKind::NoSpace);
    let [(1, op)] = &mut user.poll(1 << 41)[..] else { panic!("one read") };
    assert_eq!(values_of(std::mem::replace(op, Op::Flush)), [1]);
    world.write(other, 62 * 64, &[77], CACHED).expect("now it is free");
}

#[test]
fn a_snapshot_is_reported_after_writes_from_before_it() {
    let (mut world, layout, volume, mut user) = prepared();
    let rule = stop(&world, &layout, Ops::WRITE);
    user.submit(1, write_op(0, &[55], CACHED));
    assert_eq!(user.poll(1).len(), 0, "the device is slow");
    world.device.plan().remove(rule);
    let pending = world.send(Request::Snapshot { volumes: vec![(volume, name("s"))] });
    (0..1000).for_each(|_| world.turn());
    assert!(pending.poll().expect("the pool runs").is_none(), "a write may still change it");
    assert_eq!(user.poll(1 << 41).len(), 1);
    let made = world.until(|_| pending.poll().expect("the pool runs")).expect("it is made");
    let Answer::Created(made) = made else { panic!("{made:?}") };
    assert_eq!(world.read(made[0], 0, 1), [55]);
    assert_eq!(world.read(volume, 0, 1), [55]);
}

#[test]
fn a_user_that_leaves_with_a_write_ends_all_changes() {
    let (mut world, layout, volume, mut user) = prepared();
    let rule = stop(&world, &layout, Ops::READ);
    user.submit(1, read_op(0, 1));
    drop(user);
    world.device.plan().remove(rule);
    world.discard(volume, 0, 64);
    assert!(!world.settle().is_read_only, "a read without a reader changes nothing");
    assert_eq!(world.status().space.in_use, 1);
    let mut user = User::of(&mut world, volume);
    stop(&world, &layout, Ops::WRITE);
    assert!(user.is_direct(&mut world, read_op(64, 1)));
    user.submit(1, write_op(64, &[3], CACHED));
    assert_eq!(user.poll(1).len(), 0);
    drop(user);
    assert!(world.status().is_read_only, "the device may execute the write later");
}

#[test]
fn a_pool_ends_after_the_io_of_its_users() {
    for is_quit in [false, true] {
        let (mut world, layout, _, mut user) = prepared();
        let rule = stop(&world, &layout, Ops::WRITE);
        user.submit(1, write_op(0, &[3], CACHED));
        world.device.plan().remove(rule);
        let pool = world.pool();
        let pending = if is_quit { pool.begin_quit() } else { pool.begin_stop() };
        (0..1000).for_each(|_| world.turn());
        assert!(pending.poll().expect("the pool runs").is_none(), "a write is in progress");
        // Another request does not pass by the pool any more.
        user.submit(2, read_op(64, 1));
        assert_eq!(user.poll(2).len(), 0);
        assert_eq!(user.poll(1 << 41).len(), 1);
        (0..1000).for_each(|_| world.turn());
        assert_eq!(pending.poll().expect("it answers"), Some(()));
    }
}

#[test]
fn a_pool_core_does_not_sleep_while_its_end_waits_for_users() {
    for is_quit in [false, true] {
        let (mut world, layout, _, mut user) = prepared();
        let rule = stop(&world, &layout, Ops::WRITE);
        user.submit(1, write_op(0, &[3], CACHED));
        world.device.plan().remove(rule);
        let pool = world.pool();
        let _pending = if is_quit { pool.begin_quit() } else { pool.begin_stop() };
        (0..1000).for_each(|_| world.turn());
        assert_eq!(user.poll(1 << 41).len(), 1, "the last I/O leaves its section");
        assert!(!world.sleeps_forever(), "the pool core is not woken: is_quit {is_quit}");
    }
}

#[test]
fn a_larger_size_is_published_only_when_it_is_stable() {
    let (mut world, _, volume, user) = prepared();
    let device = world.device_of(volume);
    let before = device.info().blocks;
    let slow = Rule::new(Ops::WRITE, Effect::Delay(Nanos(4_000_000)));
    world.device.plan().add(slow);
    let policy = crate::SpacePolicy::default();
    let created = world.send(Request::Create { name: name("b"), blocks: 64, policy });
    world.turn();
    world.turn();
    let grown = world.send(Request::Resize { volume, blocks: 64 * 50, tail: crate::Tail::Discard });
    world.until(|_| created.poll().expect("runs")).expect("created");
    assert!(grown.poll().expect("runs").is_none(), "the growth is not stable");
    assert_eq!(device.info().blocks, before);
    drop(user);
}

/// A queue that loses its I/Os.
#[derive(Default)]
struct Losing(Option<Io>);

impl IoQueue for Losing {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        self.0 = Some(io);
        Ok(())
    }

    fn ring_doorbell(&mut self, _now: Nanos) {}

    fn poll(&mut self, _now: Nanos, batch: &mut CompletionBatch) {
        if let Some(Io { token, op }) = self.0.take() {
            batch.push_parts(token, op, Err(strake_block::IoError::new(IoErrorKind::Timeout)));
        }
    }

    fn readiness(&self) -> Readiness {
        Readiness::Poll
    }
}

#[test]
fn a_lost_write_ends_direct_writes_before_a_turn_of_the_pool_core() {
    let device = drive(64, 1);
    let layout = Arc::new(small(&*device, 64, 64));
    let below = Below { device, layout: Arc::clone(&layout), grace: Arc::new(Grace::new()) };
    let (view, section) = (Arc::new(View::new(640, 10)), Arc::new(Section::new()));
    section.open();
    view.add(1, Direct { cluster: ClusterId(7), is_writable: true });
    let queue = Box::<Losing>::default();
    let mut queue = DirectQueue::new(queue, &below, view, Arc::clone(&section), 8);
    let io = |token, block| Io { token: Token(token), op: write_op(block, &[1], CACHED) };
    assert!(queue.submit(io(11, 65)).is_ok());
    let mut done = CompletionBatch::new(4);
    queue.poll(Nanos(0), &mut done);
    assert!(below.grace.has_lost_write());
    assert!(
        matches!(queue.submit(io(12, 65)), Err(Back::ForPool(_))),
        "the retry of a lost write may be overwritten by the lost write"
    );
}

#[test]
fn new_blocks_are_not_written_before_the_growth_is_stable() {
    let (mut world, _) = world();
    let volume = world.create_volume("vm1", 32);
    world.write(volume, 0, &[1; 32], CACHED).expect("written");
    world.snapshot(volume, "s");
    // The copy of a shared partial cluster is whole.
    world.write(volume, 0, &[2], CACHED).expect("written");
    world.write(volume, 1, &[2], CACHED).expect("written");
    let mut user = User::of(&mut world, volume);
    assert!(user.is_direct(&mut world, write_op(0, &[3], CACHED)));
    world.device.plan().add(Rule::new(Ops::WRITE, Effect::Delay(Nanos(4_000_000))));
    let policy = crate::SpacePolicy::default();
    let created = world.send(Request::Create { name: name("b"), blocks: 64, policy });
    world.turn();
    world.turn();
    let grown = world.send(Request::Resize { volume, blocks: 64, tail: crate::Tail::Discard });
    world.until(|_| created.poll().expect("runs")).expect("created");
    // The part becomes known again.
    world.read(volume, 0, 1);
    user.submit(1, write_op(40, &[77], CACHED));
    let done = user.poll(1 << 41).len();
    assert!(grown.poll().expect("runs").is_none(), "the growth is not stable");
    assert_eq!(done, 0, "a block beyond the stable end was written and acknowledged");
}

#[test]
fn the_end_of_a_pool_does_not_wait_for_requests_of_operators() {
    let (mut world, layout, volume, mut user) = prepared();
    let rule = stop(&world, &layout, Ops::WRITE);
    user.submit(1, write_op(0, &[3], CACHED));
    world.device.plan().remove(rule);
    // Each snapshot waits for the write of the user.
    let snapshot = |at| Request::Snapshot { volumes: vec![(volume, name(&format!("s{at}")))] };
    let pending: Vec<_> = (0..20).map(|at| world.send(snapshot(at))).collect();
    (0..1000).for_each(|_| world.turn());
    let quit = world.pool().begin_quit();
    (0..10).for_each(|_| world.turn());
    assert_eq!(user.poll(1 << 41).len(), 1);
    world.until(|_| quit.poll().expect("it answers"));
    drop(pending);
}
