//! A queue that changes its path.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use strake_block::{BufMut, IoErrorKind, Op};
use strake_nvme_tcp::pdu::flag;
use strake_nvme_wire::{Status, nvm};
use strake_units::{CoreIndex, Nanos};

use super::{BLOCK, FabricsQueue, Rig, SETTLE};
use crate::cache::Instance;
use crate::error::Reason;
use crate::limits::{RETRY_AFTER, TICK};
use crate::path_manager::Request;

/// Moves the queue to another path, and returns the target's end of that; `target` is still the first.
fn leave(rig: &mut Rig, instance: Instance) -> UnixStream {
    let next = rig.use_next(instance, 2, 8192);
    rig.poll();
    next
}

#[test]
fn what_was_sent_over_a_path_that_is_left_is_answered_there() {
    let mut rig = Rig::new();
    rig.write(1, 0, &[1; 3 * BLOCK]);
    rig.read(2, 9, 1);
    let (write, read) = (rig.pdu().command().cid(), rig.command().cid());
    let next = leave(&mut rig, Instance::Same);
    rig.write(3, 5, &[3; BLOCK]);
    assert!(rig.is_silent(), "nothing new is sent over it");
    rig.data(read, 0, flag::LAST | flag::SUCCESS, &[4; BLOCK]);
    rig.ended_well(2);
    rig.ask(write, 0, 3 * BLOCK as u32);
    assert_eq!(rig.pdu().data.len() + rig.pdu().data.len(), 3 * BLOCK);
    rig.answer(write, Status::SUCCESS);
    rig.ended_well(1);
    assert_eq!(rig.target.read(&mut [0; 1]).expect("it is closed"), 0);
    rig.target = next;
    let sent = rig.pdu();
    assert_eq!(nvm::Blocks::parse(&sent.command()).start, 5, "without any wait");
    rig.answer(sent.command().cid(), Status::SUCCESS);
    rig.ended_well(3);
    assert!(rig.requests.next().is_err(), "no association is lost");
}

/// A command that was rejected because the namespace became inaccessible is executed over the other path.
#[test]
fn what_is_refused_over_a_path_that_is_left_goes_over_the_next() {
    let mut rig = Rig::new();
    rig.write(1, 0, &[1; BLOCK]);
    let cid = rig.pdu().command().cid();
    let next = leave(&mut rig, Instance::Same);
    rig.answer(cid, Status::INACCESSIBLE);
    rig.target = next;
    rig.pass(RETRY_AFTER);
    let again = rig.pdu();
    assert_eq!(again.data, [1; BLOCK]);
    rig.answer(again.command().cid(), Status::SUCCESS);
    rig.ended_well(1);
}

#[test]
fn f30_a_path_that_breaks_while_it_is_left_is_waited_for() {
    let mut rig = Rig::new();
    rig.write(1, 0, &[1; BLOCK]);
    rig.pdu();
    let first = Arc::clone(&rig.life);
    rig.target = leave(&mut rig, Instance::Same);
    rig.poll();
    let Ok(Request::Lost(1, Reason::Closed)) = rig.requests.next() else {
        panic!("the loss is told")
    };
    rig.pass(Nanos::SECOND);
    assert!(rig.is_silent(), "the target may still hear of us");
    first.end(rig.now.plus(SETTLE));
    rig.poll();
    rig.read(2, 5, 1);
    assert_eq!(nvm::Blocks::parse(&rig.command()).start, 5);
    rig.pass(Nanos(SETTLE.0 - RETRY_AFTER.0));
    assert!(rig.is_silent(), "the write is held");
    rig.pass(RETRY_AFTER);
    assert_eq!(rig.pdu().data, [1; BLOCK]);
}

/// The F30 scenario: one path breaks with a write that its target executes late, and a later write to the same block
/// over the other path must determine the content.
#[test]
fn f30_a_late_write_of_a_broken_path_does_not_overwrite_what_came_after_it() {
    const STEP: Nanos = TICK;
    let mut rig = Rig::new();
    rig.write(1, 0, &[1; BLOCK]);
    let late = rig.pdu().data;
    rig.lose();
    let (first, lost_at) = (Arc::clone(&rig.life), rig.now);
    rig.connect_to(Instance::Same, 2, 8192);
    assert!(!Arc::ptr_eq(&first, &rig.life));
    let mut medium = vec![0; BLOCK];
    let mut written = 0;
    while written < 2 || rig.now <= lost_at.plus(SETTLE) {
        rig.pass(STEP);
        if rig.now.since(lost_at) == Nanos(SETTLE.0 - STEP.0) {
            // The last moment at which the first path's target has not detected the disconnect.
            medium.clone_from(&late);
        }
        let mut waiting = [0; 1];
        if rustix::net::recv(&rig.target, &mut waiting, rustix::net::RecvFlags::PEEK).is_ok() {
            let pdu = rig.pdu();
            medium = pdu.data.clone();
            rig.answer(pdu.command().cid(), Status::SUCCESS);
            written += 1;
            rig.ended_well(written);
            if written == 1 {
                rig.write(2, 0, &[2; BLOCK]);
            }
        }
        assert!(rig.now.since(lost_at) < Nanos(2 * SETTLE.0), "the writes go on");
    }
    assert_eq!(medium, [2; BLOCK], "the write that came last");
}

/// A flush over one path may not cover changes that completed over another path before the flush was sent.
#[test]
fn a_flush_over_a_path_that_is_left_is_sent_again() {
    let mut rig = Rig::new();
    rig.submit(1, Op::Flush);
    let cid = rig.command().cid();
    let next = leave(&mut rig, Instance::Same);
    rig.answer(cid, Status::SUCCESS);
    assert!(rig.done.is_empty(), "it may not cover all");
    rig.target = next;
    rig.pass(RETRY_AFTER);
    let again = rig.command();
    assert_eq!(again.opcode(), nvm::opcode::FLUSH);
    rig.answer(again.cid(), Status::SUCCESS);
    rig.ended_well(1);
}

/// Two targets have two caches: a flush over the next path does not cover changes that complete over the old path.
#[test]
fn what_completes_over_a_path_that_is_left_is_in_its_cache() {
    for (instance, expected) in
        [(Instance::Same, Ok(())), (Instance::PerhapsAnother, Err(IoErrorKind::Gone))]
    {
        let mut rig = Rig::new();
        rig.write(1, 0, &[1; BLOCK]);
        let cid = rig.pdu().command().cid();
        let next = leave(&mut rig, instance);
        rig.answer(cid, Status::SUCCESS);
        rig.ended_well(1);
        rig.target = next;
        assert_eq!(rig.flush(2), expected);
    }
}

/// A queue is woken for all changes of associations, including those that it does not use. Its sleeping core was woken
/// repeatedly for as long as the queue kept its connection.
#[test]
fn a_queue_that_is_rung_while_it_is_connected_sleeps_again() {
    let mut rig = Rig::new();
    rig.read(1, 0, 1);
    rig.port.wake();
    rig.pass(TICK);
    let rung = rustix::io::read(&*rig.port.wake, &mut [0; 8]);
    assert_eq!(rung, Err(rustix::io::Errno::AGAIN), "nothing is left to hear");
}

/// F30: a failed command closes its queue, and the next command opens another one. Commands of the first queue at a
/// silent target could be executed after writes of the second.
#[test]
fn f30_what_a_queue_leaves_without_an_answer_is_waited_for_by_the_next() {
    let mut rig = Rig::new();
    let zeroes = || BufMut::alone(128 << 10).freeze();
    rig.write(1, 0, &[1; BLOCK]);
    rig.pdu();
    let asker = rig.queue.asker.clone();
    let other = FabricsQueue::open(&rig.shared, &asker, (7, 8, CoreIndex(0)), zeroes(), rig.now);
    drop(std::mem::replace(&mut rig.queue, other.expect("a queue")));
    assert!(matches!(rig.requests.next(), Ok(Request::Open(_))));
    let Ok(Request::Lost(1, _)) = rig.requests.next() else { panic!("its association ends") };

    rig.reopen(zeroes(), 2);
    rig.write(2, 0, &[2; BLOCK]);
    rig.read(3, 5, 1);
    let read = rig.command();
    assert_eq!(nvm::Blocks::parse(&read).start, 5, "what changes nothing need not wait");
    rig.data(read.cid(), 0, flag::LAST | flag::SUCCESS, &[4; BLOCK]);
    rig.ended_well(3);
    rig.pass(Nanos(SETTLE.0 - RETRY_AFTER.0));
    assert!(rig.is_silent(), "what was left may be carried out");
    rig.pass(RETRY_AFTER);
    assert_eq!(rig.pdu().data, [2; BLOCK]);
}

/// A queue without unanswered commands neither ends its association, nor delays later queues.
#[test]
fn a_queue_that_leaves_nothing_costs_no_association() {
    let mut rig = Rig::new();
    rig.write(1, 0, &[1; BLOCK]);
    let cid = rig.pdu().command().cid();
    rig.answer(cid, Status::SUCCESS);
    rig.ended_well(1);
    rig.read(2, 0, 1);
    let asker = rig.queue.asker.clone();
    let zeroes = BufMut::alone(128 << 10).freeze();
    let other = FabricsQueue::open(&rig.shared, &asker, (7, 8, CoreIndex(0)), zeroes, rig.now);
    drop(std::mem::replace(&mut rig.queue, other.expect("a queue")));
    assert!(matches!(rig.requests.next(), Ok(Request::Open(_))));
    assert!(matches!(rig.requests.next(), Ok(Request::Close(0))));
    assert!(rig.shared.left(rig.now).is_empty());
}
