//! The outcome of requests after the loss of an association, perhaps with acknowledged changes of the target.

use strake_block::{BufMut, IoErrorKind, IoQueue, Op, Readiness, VolatileCache};
use strake_nvme_tcp::pdu::flag;
use strake_nvme_wire::Status;
use strake_units::Nanos;

use super::{BLOCK, NONE, Rig, SETTLE, facts};
use crate::cache::Instance;
use crate::error::{Reason, Unfit};
use crate::identify::Facts;
use crate::limits::{LOSS_TIME, RETRY_AFTER, TRIES_MAX};
use crate::reservation::ReservationMode;

/// A change fails with a reservation conflict: the content of the drive is then unknown.
#[test]
fn f19_a_drive_that_another_host_has_taken_is_not_used_on() {
    let mut rig = Rig::guarded(ReservationMode::Claim, (facts(), NONE, 8192));
    rig.write(1, 0, &[1; BLOCK]);
    rig.write(2, 8, &[1; BLOCK]);
    let cid = rig.pdu().command().cid();
    rig.pdu();
    rig.answer(cid, Status::RESERVATION_CONFLICT);
    rig.poll();
    rig.is_lost_because(Reason::TakenOver);
    rig.lose();
    rig.shared.note_loss(Reason::TakenOver);
    rig.read(3, 0, 1);
    rig.pass(RETRY_AFTER);
    assert_eq!(
        rig.failed(),
        IoErrorKind::Gone,
        "a read that was never sent has nothing to wait for"
    );
    assert!(rig.done.is_empty(), "what was sent may still be carried out");
    rig.pass(SETTLE);
    rig.pass(RETRY_AFTER);
    assert_eq!(rig.done.len(), 2);

    let mut rig = Rig::new();
    rig.write(1, 0, &[1; BLOCK]);
    let cid = rig.pdu().command().cid();
    rig.answer(cid, Status::RESERVATION_CONFLICT);
    rig.poll();
    assert_eq!(rig.failed(), IoErrorKind::Device, "it was nobody's in particular");
}

/// Repeated reconnects do not extend the time for which a change is held, and only the last association of the change
/// counts.
#[test]
fn a_change_is_held_only_so_long_however_many_associations_there_are() {
    let mut rig = Rig::new();
    rig.write(1, 0, &[1; BLOCK]);
    rig.pdu();
    for number in 2..6 {
        rig.lose();
        rig.poll();
        rig.pass(Nanos::SECOND);
        rig.connect(number, 8192);
        rig.pass(Nanos::SECOND);
        assert!(number == 5 || rig.is_silent(), "it is not settled");
    }
    rig.pdu();
    rig.lose();
    rig.poll();
    rig.connect(6, 8192);
    rig.pass(Nanos(SETTLE.0 - RETRY_AFTER.0));
    assert!(rig.done.is_empty() && rig.is_silent(), "it may still be carried out");
    rig.pass(RETRY_AFTER);
    assert_eq!(rig.failed(), IoErrorKind::Gone);
}

/// F30: the last attempt of a change failed at once when its association was lost, and later changes were undone when
/// the target executed the attempt nevertheless.
#[test]
fn f30_a_change_that_used_its_tries_fails_only_when_it_is_over() {
    for connected in [false, true] {
        let mut rig = Rig::new();
        rig.write(1, 0, &[1; BLOCK]);
        for _ in 1..TRIES_MAX {
            let cid = rig.pdu().command().cid();
            rig.answer(cid, Status::TRANSFER_ERROR);
            rig.pass(RETRY_AFTER);
        }
        rig.pdu();
        rig.lose();
        rig.poll();
        if connected {
            rig.connect(2, 8192);
        }
        rig.pass(Nanos(SETTLE.0 - RETRY_AFTER.0));
        assert!(rig.done.is_empty(), "it may still be carried out");
        rig.pass(if connected { RETRY_AFTER } else { LOSS_TIME });
        assert_eq!(rig.failed(), IoErrorKind::Gone);
    }
}

/// An acknowledged write is lost with the cache of its target, and the restarted target does not report this.
#[test]
fn a_flush_fails_after_a_cache_may_have_been_lost() {
    for (cache, flushed, instance, expected) in [
        (VolatileCache::Present, false, Instance::PerhapsAnother, Err(IoErrorKind::Gone)),
        (VolatileCache::Present, false, Instance::Same, Ok(())),
        (VolatileCache::Present, true, Instance::PerhapsAnother, Ok(())),
        (VolatileCache::Absent, false, Instance::PerhapsAnother, Ok(())),
    ] {
        let mut rig = Rig::with(Facts { cache, ..facts() }, NONE, 8192);
        rig.write(1, 0, &[1; BLOCK]);
        let cid = rig.pdu().command().cid();
        rig.answer(cid, Status::SUCCESS);
        rig.ended_well(1);
        if flushed {
            assert_eq!(rig.flush(2), Ok(()));
        }
        rig.lose();
        rig.poll();
        rig.connect_to(instance, 2, 8192);
        assert_eq!(rig.flush(3), expected);
        assert_eq!(rig.flush(4), expected, "until somebody opens the drive again");
        let zeroes = BufMut::alone(128 << 10).freeze();
        rig.reopen(zeroes, 3);
        assert_eq!(rig.flush(5), Ok(()));
    }
}

/// A read returns the data from before the lost write.
#[test]
fn nothing_is_read_after_a_cache_may_have_been_lost() {
    for (cache, instance, expected) in [
        (VolatileCache::Present, Instance::PerhapsAnother, Err(IoErrorKind::Gone)),
        (VolatileCache::Present, Instance::Same, Ok(())),
        (VolatileCache::Absent, Instance::PerhapsAnother, Ok(())),
    ] {
        let mut rig = Rig::with(Facts { cache, ..facts() }, NONE, 8192);
        rig.write(1, 0, &[1; BLOCK]);
        let cid = rig.pdu().command().cid();
        rig.answer(cid, Status::SUCCESS);
        rig.ended_well(1);
        rig.lose();
        rig.poll();
        rig.connect_to(instance, 2, 8192);
        rig.read(2, 0, 1);
        let cid = rig.command().cid();
        rig.data(cid, 0, flag::LAST | flag::SUCCESS, &[0; BLOCK]);
        assert_eq!(rig.ended().result.map_err(|error| error.kind), expected);
    }
}

/// A flush covers only changes that had completed when it was sent.
#[test]
fn a_change_that_completes_during_a_flush_is_not_covered() {
    let mut rig = Rig::new();
    rig.write(1, 0, &[1; BLOCK]);
    let write = rig.pdu().command().cid();
    rig.submit(2, Op::Flush);
    let flush = rig.command().cid();
    rig.answer(write, Status::SUCCESS);
    rig.ended_well(1);
    rig.answer(flush, Status::SUCCESS);
    rig.ended_well(2);
    rig.lose();
    rig.poll();
    rig.connect(2, 8192);
    assert_eq!(rig.flush(3), Err(IoErrorKind::Gone));
}

/// The drive is opened again while it is disconnected, before the loss of its cache is known.
#[test]
fn who_comes_after_a_loss_relies_on_nothing_from_before_it() {
    let mut rig = Rig::new();
    rig.write(1, 0, &[1; BLOCK]);
    let cid = rig.pdu().command().cid();
    rig.answer(cid, Status::SUCCESS);
    rig.ended_well(1);
    rig.lose();
    rig.reopen(BufMut::alone(128 << 10).freeze(), 2);
    assert_eq!(rig.flush(2), Ok(()));
}

/// The namespace was removed, and its ID may be assigned to another one.
#[test]
fn a_number_without_a_namespace_ends_the_association() {
    let mut rig = Rig::new();
    rig.write(1, 0, &[0; BLOCK]);
    rig.write(2, 1, &[0; BLOCK]);
    let cid = rig.pdu().command().cid();
    rig.pdu();
    rig.answer(cid, Status::INVALID_NAMESPACE);
    rig.is_lost_because(Reason::Unusable(Unfit::Absent));
}

#[test]
fn requests_are_held_while_there_is_no_association_and_then_fail() {
    let mut rig = Rig::new();
    rig.lose();
    rig.read(1, 0, 1);
    rig.pass(Nanos(LOSS_TIME.0 - Nanos::SECOND.0));
    assert!(rig.done.is_empty(), "it is held");
    assert!(matches!(rig.queue.readiness(), Readiness::Fd(_)), "and the core can sleep");
    rig.pass(Nanos::SECOND);
    assert_eq!(rig.failed(), IoErrorKind::Gone);
    rig.read(2, 0, 1);
    rig.pass(Nanos::SECOND);
    assert_eq!(rig.failed(), IoErrorKind::Gone, "nobody waits once more for the same loss");
    rig.connect(2, 8192);
    rig.read(3, 0, 1);
    let cid = rig.command().cid();
    rig.data(cid, 0, flag::LAST | flag::SUCCESS, &[0; BLOCK]);
    rig.ended_well(3);
    assert_eq!(rig.queue.readiness(), Readiness::Idle);
}

/// A command that ends every connection is not sent without a limit.
#[test]
fn a_command_is_sent_only_so_often() {
    let mut rig = Rig::new();
    rig.read(1, 0, 1);
    for number in 2..2 + u64::from(TRIES_MAX) {
        rig.command();
        rig.lose();
        rig.poll();
        rig.connect(number, 8192);
        rig.pass(RETRY_AFTER);
    }
    assert_eq!(rig.failed(), IoErrorKind::Gone);
}
