//! Effects of a session on the next one, and on the caller: posted completions, buffers, queues, losses of the cache.

use super::faults::struck;
use super::world::{World, bytes_of};
use crate::error::Reason;
use crate::lifecycle::Phase;
use crate::shared::Request;
use crate::{NvmeDevice, Turn};
use std::sync::mpsc::sync_channel;
use std::thread;
use strake_block::{BlockDevice, Durability, IoErrorKind, Op, Token};
use strake_nvme_model::{Fault, PERMANENT, Pace, Spec};
use strake_nvme_wire::log::page;
use strake_units::Nanos;

/// A command that completed before the reset is answered by its completion, although no command is sent again.
#[test]
fn posted_completions_count_before_anything_is_sent_again() {
    let (mut world, mut client) = struck(Spec { write_cache: false, ..Spec::new(64) }, |world| {
        world.drive.model().arm(Fault::NeverReady, PERMANENT);
    });
    client.queue.ring_doorbell(world.now);
    // The controller completes all commands, and the core does not poll before the start of the reset.
    world.turn();
    world.drive.fail();
    world.step = Nanos(600 * Nanos::MILLI.0);
    (0..3).for_each(|_| _ = world.turn());
    world.run_with(&mut client, 8);
    assert!(client.results().iter().all(|(_, result)| result.is_ok()), "{:?}", client.results());
    assert_eq!(world.device().stats().replays, 0);
}

/// During a reset of the controller, the core writes no doorbell.
#[test]
fn a_parked_queue_leaves_the_registers_alone() {
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(8);
    let op = world.read(0, 4096);
    world.run(&mut client, op).result.expect("it works");
    world.drive.model().arm(Fault::NeverDisabled, PERMANENT);
    // Commands are in the ring, and the controller was not notified of them at the start of the reset.
    for token in 0..4 {
        let op = world.write(token, 1, 4096);
        client.submit(Token(token), op);
    }
    world.drive.fail();
    world.keeper.turn(world.now.plus(Nanos::SECOND));
    assert_eq!(world.phase(), Phase::Parked);
    let doorbells = |world: &World| -> Vec<u32> {
        (0..8).map(|at| world.drive.peer().registers().read(0x1000 + at * 4)).collect()
    };
    let before = doorbells(&world);
    for token in 4..8 {
        let op = world.write(token, 1, 4096);
        client.submit(Token(token), op);
        client.turn(world.now);
    }
    assert_eq!(doorbells(&world), before);
    assert_eq!(client.done.len(), 0);
}

/// The driver detects a reset by another component, such as a bridge, and sends outstanding commands again.
#[test]
fn a_reset_from_outside_is_noticed() {
    let (mut world, mut client) = struck(Spec { write_cache: false, ..Spec::new(64) }, |world| {
        world.drive.lose_power();
    });
    world.run_with(&mut client, 8);
    assert!(client.results().iter().all(|(_, result)| result.is_ok()));
    assert_eq!(world.device().reason(), Some(Reason::NotReady));
    world.assert_clean();
}

/// Data that a queue wrote without a flush may be lost: neither a read nor a flush may succeed. A later queue does not
/// depend on these data.
fn check_loses_cache(strike: impl FnOnce(&World)) {
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(8);
    let op = world.write(3, 7, 4096);
    world.run(&mut client, op).result.expect("a write works");
    strike(&world);
    world.run_until("noticed", |world| world.phase() != Phase::Live);
    world.run_until("ready again", |world| world.phase() == Phase::Live);
    assert_eq!(world.device().stats().renewals, 1);
    for op in [Op::Flush, world.read(3, 4096)] {
        let error = world.run(&mut client, op).result.expect_err("the cache may be lost");
        assert_eq!(error.kind, IoErrorKind::Gone);
    }
    let op = world.write(4, 8, 4096);
    world.run(&mut client, op).result.expect("a write relies on nothing");
    let mut later = world.open(8);
    let op = world.read(3, 4096);
    let done = world.run(&mut later, op);
    done.result.expect("a later queue relies on nothing");
    world.run(&mut later, Op::Flush).result.expect("a later queue relies on nothing");
    world.assert_clean();
}

#[test]
fn a_lost_cache_is_reported_by_reads_and_flushes() {
    check_loses_cache(|world| world.drive.lose_power());
    check_loses_cache(|world| world.drive.reset_subsystem());
    check_loses_cache(|world| world.drive.fail());
}

/// A reset for any other reason loses no data.
#[test]
fn a_reset_that_loses_nothing_fails_nothing() {
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(8);
    let op = world.write(3, 7, 4096);
    world.run(&mut client, op).result.expect("a write works");
    world.drive.model().arm(Fault::LostCompletion, 1);
    let op = world.write(4, 8, 4096);
    world.run(&mut client, op).result.expect("it is sent again");
    assert_eq!((world.device().stats().resets, world.device().stats().renewals), (1, 0));
    let op = world.read(3, 4096);
    let done = world.run(&mut client, op);
    done.result.expect("nothing was lost");
    assert_eq!(bytes_of(done.op), vec![7; 4096]);
    world.run(&mut client, Op::Flush).result.expect("nothing was lost");
}

/// The keeper holds the memory of a dropped queue until the controller no longer uses it.
#[test]
fn the_memory_of_a_dropped_queue_stays_until_the_controller_is_done() {
    let (mut world, mut client) =
        struck(Spec::new(64), |world| world.drive.model().arm(Fault::Silent, PERMANENT));
    client.turn(world.now);
    world.turn();
    let free = world.pool.available();
    let arena = std::sync::Arc::strong_count(world.pool.arena());
    drop(client);
    (0..100).for_each(|_| _ = world.turn());
    let held = std::sync::Arc::strong_count(world.pool.arena());
    assert_eq!((world.pool.available(), held), (free, arena), "the controller may still read it");
    world.drive.model().arm(Fault::Silent, 0);
    (0..100).for_each(|_| _ = world.turn());
    assert!(std::sync::Arc::strong_count(world.pool.arena()) < arena, "the queue was deleted");
    world.assert_clean();
}

/// Chunks of commands of a dropped queue return when the controller no longer uses them.
#[test]
fn the_chunks_of_a_dropped_queue_return() {
    let copied = |at| {
        let data = strake_block::Sg::from(strake_block::BufMut::alone(4096).freeze());
        Op::Write { at: strake_units::Lba(at), data, durability: Durability::Normal }
    };
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(32);
    let op = world.read(0, 4096);
    world.run(&mut client, op).result.expect("it works");
    world.drive.model().arm(Fault::SilentIo, PERMANENT);
    (0..20).for_each(|at| client.submit(Token(at), copied(at)));
    client.turn(world.now);
    world.turn();
    let other = world.open(32);
    drop(std::mem::replace(&mut client, other));
    (0..100).for_each(|_| _ = world.turn());
    world.drive.model().arm(Fault::SilentIo, 0);
    client.submit(Token(0), copied(0));
    (0..100).for_each(|_| world.turn_with(&mut client));
    assert_eq!(client.results(), [(0, Ok(()))]);
    world.assert_clean();
}

/// Admin commands that a reset interrupts are answered (bug of SPDK, 1c197e8684: they were not).
#[test]
fn an_admin_command_across_a_reset_is_answered() {
    let mut world = World::ready(Spec::new(64));
    world.drive.model().arm(Fault::SilentAdmin, PERMANENT);
    let ask = |world: &World| {
        let (reply, answer) = sync_channel(1);
        world.device().shared().ask(Request::Log(page::HEALTH, 512, reply));
        answer
    };
    // The second command waits for the first.
    let answers = [ask(&world), ask(&world)];
    (0..10).for_each(|_| _ = world.turn());
    assert!(answers.iter().all(|answer| answer.try_recv().is_err()), "the controller is silent");
    world.drive.model().arm(Fault::SilentAdmin, 0);
    world.drive.fail();
    world.run_until("reset", |world| world.device().stats().resets == 1);
    world.run_until("ready again", |world| world.phase() == Phase::Live);
    for answer in answers {
        assert_eq!(answer.try_recv(), Ok(Err(Reason::Fatal)));
    }
    let answer = ask(&world);
    (0..10).for_each(|_| _ = world.turn());
    assert!(answer.try_recv().is_ok_and(|answer| answer.is_ok()));
}

/// The history of the bug: firmware that does not answer a log page was reset each time, and failed after the third: a
/// health query cost a member.
#[test]
fn a_log_page_without_an_answer_ends_no_session() {
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(8);
    let op = world.read(0, 4096);
    world.run(&mut client, op).result.expect("it works");
    world.drive.model().arm(Fault::SilentAdmin, PERMANENT);
    let ask = |world: &World| {
        let (reply, answer) = sync_channel(1);
        world.device().shared().ask(Request::Log(0xc0, 512, reply));
        answer
    };
    world.step = Nanos::SECOND;
    let answers = [ask(&world), ask(&world)];
    (0..70).for_each(|_| _ = world.turn());
    for answer in answers {
        assert_eq!(answer.try_recv(), Ok(Err(Reason::NoAnswer)));
    }
    // The controller may still write to the page of memory, so that no other log page is requested.
    let later = ask(&world);
    (0..2).for_each(|_| _ = world.turn());
    assert_eq!(later.try_recv(), Ok(Err(Reason::NoAnswer)));
    (0..600).for_each(|_| _ = world.turn());
    assert_eq!((world.device().stats().resets, world.phase()), (0, Phase::Live));
    let op = world.read(0, 4096);
    world.run(&mut client, op).result.expect("it serves");
    world.assert_clean();
}

/// The history of the bug: a device was closed only after the log page that another thread waited for.
#[test]
fn a_device_is_given_back_while_a_log_page_is_waited_for() {
    let mut world = World::ready(Spec::new(64));
    world.drive.model().arm(Fault::SilentAdmin, PERMANENT);
    let reader = world.device().log_reader();
    let (reply, answer) = sync_channel(1);
    world.device().shared().ask(Request::Log(page::HEALTH, 512, reply));
    (0..10).for_each(|_| _ = world.turn());
    assert!(answer.try_recv().is_err(), "the controller is silent");
    drop(world.device.take());
    let mut turns = 0;
    while world.turn() == Turn::More {
        turns += 1;
        assert!(turns < 100_000, "it is never given back");
    }
    assert!(answer.try_recv().is_ok_and(|answer| answer.is_err()));
    assert!(reader.log_page(page::HEALTH, 512).is_err(), "and nothing waits for it any more");
}

/// If the creation of a queue is not answered, a reset creates the queue pair before its requests have waited too long.
#[test]
fn a_queue_whose_creation_is_not_answered_works_after_a_reset() {
    let mut world = World::ready(Spec::new(64));
    world.drive.model().arm(Fault::SilentAdmin, PERMANENT);
    let mut client = world.open(4);
    let op = world.read(0, 4096);
    client.submit(Token(0), op);
    world.step = Nanos(20 * Nanos::MILLI.0);
    (0..490).for_each(|_| world.turn_with(&mut client));
    assert_eq!((client.done.len(), world.device().stats().resets), (0, 0));
    (0..20).for_each(|_| world.turn_with(&mut client));
    assert_eq!(world.device().reason(), Some(Reason::NoAnswer));
    world.drive.model().arm(Fault::SilentAdmin, 0);
    world.run_with(&mut client, 1);
    assert_eq!((client.results(), world.device().stats().resets), (vec![(0, Ok(()))], 1));
    world.assert_clean();
}

fn log_of(world: &mut World, device: &NvmeDevice, number: u8, bytes: u32) -> Vec<u8> {
    thread::scope(|scope| {
        let asked = scope.spawn(|| device.log_reader().log_page(number, bytes));
        while !asked.is_finished() {
            world.turn();
        }
        asked.join().expect("it does not panic").expect("there is such a page")
    })
}

#[test]
fn log_pages_can_be_read_while_requests_run() {
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(8);
    world.drive.model().set_bad(1, 3, Some(strake_nvme_wire::Status::UNRECOVERED_READ));
    let op = world.read(3, 4096);
    world.run(&mut client, op).result.expect_err("block 3 is bad");
    let device = world.device.take().expect("it was not dropped");
    let health = log_of(&mut world, &device, page::HEALTH, 512);
    assert_eq!((health[3], health[160], health[176]), (100, 1, 1));
    let errors = log_of(&mut world, &device, page::ERRORS, 64);
    assert_eq!(errors[16..24], 3_u64.to_le_bytes());
    let firmware = log_of(&mut world, &device, page::FIRMWARE, 512);
    assert_eq!(firmware[8..11], *b"1.0");
    world.assert_clean();
}

/// The platform requests the device back, in every turn of its life: it is shut down, all requests are answered, and it
/// is given back.
#[test]
fn a_device_that_is_asked_for_is_given_back_in_every_state() {
    for turns in 0..25 {
        let mut world = World::new(Spec::new(64), Pace::Prompt);
        (0..turns).for_each(|_| _ = world.turn());
        world.drive.peer().request_removal();
        world.run_until("given back", |world| world.phase() == Phase::Gone);
        assert_eq!(world.turn(), Turn::Over);
        world.assert_clean();
    }
    let (mut world, mut client) =
        struck(Spec::new(64), |world| world.drive.model().arm(Fault::Silent, PERMANENT));
    world.turn_with(&mut client);
    world.drive.peer().request_removal();
    world.drive.peer().report_error();
    world.run_with(&mut client, 8);
    assert!(client.results().iter().all(|(_, result)| *result == Err(IoErrorKind::Gone)));
    assert_eq!(world.device().stats().resets, 0);
    assert_eq!(world.turn(), Turn::More, "a queue is left");
    drop(client);
    assert_eq!(world.turn(), Turn::Over);
    world.assert_clean();
}

#[test]
fn a_device_that_is_dropped_is_shut_down() {
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(8);
    let data = strake_block::Sg::from(world.filled(5, 4096).freeze());
    let op = Op::Write { at: strake_units::Lba(1), data, durability: Durability::Normal };
    world.run(&mut client, op).result.expect("a write works");
    drop(client);
    drop(world.device.take());
    let mut turns = 0;
    while world.turn() == Turn::More {
        turns += 1;
        assert!(turns < 1000, "it is never given back");
    }
    world.drive.lose_power();
    assert_eq!(world.drive.model().block(1, 1), [5; 4096], "the shutdown made the cache stable");
}

/// One thread runs the keeper, and another the model: as with hardware, except for the time.
#[test]
fn a_device_opens_with_a_keeper_of_its_own() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let space = Arc::new(crate::transport::memory::MemorySpace::default());
    let window = crate::Window::new(space.clone());
    let (drive, function) = super::world::drive(Spec::new(64), Pace::Prompt, &space);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut now = Nanos(0);
            while !stop.load(Ordering::Acquire) {
                now = now.plus(Nanos::MICRO);
                drive.step(now);
                thread::yield_now();
            }
        });
        let opened = NvmeDevice::open("model", Box::new(function), &window);
        stop.store(true, Ordering::Release);
        assert_eq!(opened.expect("it becomes ready").info().blocks, 64);
    });
}
