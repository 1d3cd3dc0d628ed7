//! Faults of a controller during its work, with one test for each row.

use super::world::{Client, World, bytes_of};
use crate::error::Reason;
use crate::lifecycle::Phase;
use strake_block::{BlockDevice, IoErrorKind, Op, Readiness, Token};
use strake_nvme_model::{Fault, NamespaceSpec, PERMANENT, Spec};
use strake_nvme_wire::Status;
use strake_units::{CoreIndex, Nanos};

/// Requests in flight when a fault strikes.
const WRITES: u64 = 8;

/// Returns a world with writes that were sent and not answered.
pub(super) fn struck(spec: Spec, strike: impl FnOnce(&World)) -> (World, Client) {
    let mut world = World::ready(spec);
    let mut client = world.open(16);
    let op = world.read(0, 4096);
    world.run(&mut client, op).result.expect("it works at first");
    strike(&world);
    for write in 0..WRITES {
        let op = world.write(write, write as u8 + 1, 4096);
        client.submit(Token(write), op);
    }
    (world, client)
}

/// Checks that all writes succeed after `resets` resets, within the time limit of callers.
fn check_recovers(spec: Spec, strike: impl FnOnce(&World), resets: u64) -> World {
    let (mut world, mut client) = struck(spec, strike);
    let start = world.now;
    world.run_with(&mut client, WRITES as usize);
    for (write, result) in client.results() {
        assert_eq!(result, Ok(()), "write {write}");
        assert!(world.drive.model().block(1, write).iter().all(|byte| *byte == write as u8 + 1));
    }
    assert!(world.now.since(start) <= Nanos(26 * Nanos::SECOND.0), "{:?}", world.now.since(start));
    assert_eq!(world.device().stats().resets, resets, "{:?}", world.device().reason());
    assert_eq!(client.queue.readiness(), Readiness::Idle);
    world.assert_clean();
    world
}

/// Checks that all writes fail with `kind`, within the time limit of callers.
fn check_fails(spec: Spec, strike: impl FnOnce(&World), kind: IoErrorKind) -> World {
    let (mut world, mut client) = struck(spec, strike);
    let start = world.now;
    world.run_with(&mut client, WRITES as usize);
    assert!(
        client.results().iter().all(|(_, result)| *result == Err(kind)),
        "{:?}",
        client.results()
    );
    assert!(world.now.since(start) < Nanos(28 * Nanos::SECOND.0), "{:?}", world.now.since(start));
    world
}

fn arm(fault: Fault, occasions: u32) -> impl FnOnce(&World) {
    move |world| world.drive.model().arm(fault, occasions)
}

#[test]
fn torn_and_stale_completions_are_not_taken_early() {
    check_recovers(Spec::new(64), arm(Fault::TornCompletion, 5), 0);
    check_recovers(Spec { entries_max: 4, ..Spec::new(64) }, arm(Fault::TornCompletion, 8), 0);
    check_recovers(Spec { entries_max: 4, ..Spec::new(64) }, arm(Fault::StalePhase, 8), 0);
}

#[test]
fn repeated_unknown_and_late_completions_end_the_session() {
    for fault in [Fault::RepeatedCompletion, Fault::UnknownCid, Fault::WrongTurn] {
        let world = check_recovers(Spec::new(64), arm(fault, 1), 1);
        let reason = world.device().reason();
        assert!(matches!(reason, Some(Reason::UnknownCommand(_))), "{fault:?}: {reason:?}");
    }
}

#[test]
fn lost_completions_are_sent_again_after_a_reset() {
    let world = check_recovers(Spec::new(64), arm(Fault::LostCompletion, 3), 1);
    assert_eq!(world.device().stats().replays, 3);
    assert_eq!(world.device().stats().aborts, 1);
}

#[test]
fn silence_is_aborted_and_commands_are_sent_again() {
    let (mut world, mut client) = struck(Spec::new(64), arm(Fault::SilentIo, PERMANENT));
    (0..9000).for_each(|_| world.turn_with(&mut client));
    assert_eq!(world.device().stats().resets, 0, "the abort has its time");
    assert_eq!(world.device().stats().aborts, 1);
    world.drive.model().arm(Fault::SilentIo, 0);
    world.run_with(&mut client, WRITES as usize);
    assert!(client.results().iter().all(|(_, result)| result.is_ok()));
    assert_eq!(world.device().stats().resets, 0);
    world.assert_clean();
}

#[test]
fn silence_to_everything_is_gone_in_time() {
    let world = check_fails(Spec::new(64), arm(Fault::Silent, PERMANENT), IoErrorKind::Gone);
    assert_eq!(world.device().reason(), Some(Reason::NoAnswer));
    world.assert_clean();
}

#[test]
fn a_refused_abort_leads_to_a_reset() {
    for abort in [Fault::AbortRefused, Fault::AbortMissed] {
        let strike = |world: &World| {
            world.drive.model().arm(abort, PERMANENT);
            world.drive.model().arm(Fault::LostCompletion, 1);
        };
        let world = check_recovers(Spec::new(64), strike, 1);
        assert_eq!(world.device().stats().aborts, 1);
    }
}

/// The command completes during the Abort: its completion counts, and the controller is not reset.
#[test]
fn an_abort_that_crosses_the_completion_changes_nothing() {
    let (mut world, mut client) = struck(Spec::new(64), |world| {
        world.drive.model().spec_mut().latency = Nanos(8_600 * Nanos::MILLI.0);
        world.drive.model().arm(Fault::AbortMissed, PERMANENT);
    });
    world.run_with(&mut client, WRITES as usize);
    assert!(client.results().iter().all(|(_, result)| result.is_ok()));
    assert_eq!((world.device().stats().aborts, world.device().stats().resets), (1, 0));
}

#[test]
fn a_controller_that_stays_ready_is_reset_by_its_function() {
    let strike = |world: &World| {
        world.drive.model().arm(Fault::NeverDisabled, PERMANENT);
        world.drive.model().arm(Fault::LostCompletion, 1);
    };
    check_recovers(Spec::new(64), strike, 1);
}

/// If neither CC.EN nor a function reset stops the controller, no command is answered; a later RDY = 0 is a fence.
#[test]
fn a_controller_that_cannot_be_stopped_answers_nothing() {
    for reset in [Fault::ResetRefused, Fault::ResetIgnored] {
        let (mut world, mut client) = struck(Spec::new(64), |world| {
            world.drive.model().arm(Fault::NeverDisabled, PERMANENT);
            world.drive.model().arm(reset, PERMANENT);
            world.drive.model().arm(Fault::Silent, PERMANENT);
        });
        world.step = Nanos(20 * Nanos::MILLI.0);
        (0..10_000).for_each(|_| world.turn_with(&mut client));
        assert_eq!((world.phase(), client.done.len()), (Phase::Unfenced, 0));
        assert_eq!(world.device().info().blocks, 0);
        assert_eq!(world.device().reason(), Some(Reason::NeverDisabled));
        world.drive.model().arm(Fault::NeverDisabled, 0);
        world.run_with(&mut client, WRITES as usize);
        assert!(client.results().iter().all(|(_, result)| *result == Err(IoErrorKind::Gone)));
        assert_eq!(world.phase(), Phase::Gone);
    }
}

/// The controller is given back on request: the kernel removes it from the bus and from memory.
#[test]
fn a_controller_that_cannot_be_stopped_is_given_back() {
    let (mut world, mut client) = struck(Spec::new(64), |world| {
        for fault in [Fault::NeverDisabled, Fault::ResetRefused, Fault::Silent] {
            world.drive.model().arm(fault, PERMANENT);
        }
    });
    world.step = Nanos(20 * Nanos::MILLI.0);
    (0..2000).for_each(|_| world.turn_with(&mut client));
    assert_eq!((world.phase(), client.done.len()), (Phase::Unfenced, 0));
    drop(world.device.take());
    world.run_with(&mut client, WRITES as usize);
    assert!(client.results().iter().all(|(_, result)| *result == Err(IoErrorKind::Gone)));
    drop(client);
    assert_eq!(world.turn(), crate::Turn::Over);
}

#[test]
fn a_controller_that_does_not_become_ready_again_is_gone_in_time() {
    let strike = |world: &World| {
        world.drive.model().arm(Fault::NeverReady, PERMANENT);
        world.drive.model().arm(Fault::LostCompletion, PERMANENT);
    };
    let mut world = check_fails(Spec::new(64), strike, IoErrorKind::Gone);
    world.step = Nanos(20 * Nanos::MILLI.0);
    world.run_until("failed", |world| world.phase() == Phase::Gone);
    assert_eq!(world.device().reason(), Some(Reason::NeverReady));
}

/// A CAP.TO of zero means at least one unit, and one of two minutes delays no answer.
#[test]
fn the_longest_and_the_shortest_ready_time_are_kept() {
    let none = Spec { ready_units: 0, ready_time: Nanos(400 * Nanos::MILLI.0), ..Spec::new(64) };
    check_recovers(none, arm(Fault::LostCompletion, 1), 1);
    let long = Spec { ready_units: 255, ready_time: Nanos(3 * Nanos::SECOND.0), ..Spec::new(64) };
    let strike = |world: &World| {
        world.drive.model().arm(Fault::NeverDisabled, PERMANENT);
        world.drive.model().arm(Fault::LostCompletion, 1);
    };
    check_recovers(long, strike, 1);
}

#[test]
fn a_fatal_status_is_reset_at_once() {
    let (mut world, mut client) =
        struck(Spec { write_cache: false, ..Spec::new(64) }, |world| world.drive.fail());
    let start = world.now;
    world.run_with(&mut client, WRITES as usize);
    assert!(client.results().iter().all(|(_, result)| result.is_ok()));
    assert!(world.now.since(start) < Nanos(2 * Nanos::SECOND.0), "{:?}", world.now.since(start));
    assert_eq!(world.device().reason(), Some(Reason::Fatal));
    world.assert_clean();
}

#[test]
fn a_fatal_status_while_it_is_enabled_or_reset_is_survived() {
    let once = |fault| {
        move |world: &World| {
            world.drive.model().arm(fault, 1);
            world.drive.model().arm(Fault::LostCompletion, 1);
        }
    };
    check_recovers(Spec::new(64), once(Fault::FatalOnEnable), 1);
    check_recovers(Spec::new(64), once(Fault::FatalInReset), 1);
}

#[test]
fn a_reset_storm_ends_in_failure() {
    let (mut world, mut client) = struck(Spec::new(64), arm(Fault::UnknownCid, PERMANENT));
    world.run_with(&mut client, WRITES as usize);
    assert!(client.results().iter().any(|(_, result)| *result == Err(IoErrorKind::Gone)));
    assert_eq!(world.device().stats().resets, 3);
    assert_eq!(world.device().reason(), Some(Reason::ResetStorm));
    let op = world.read(0, 4096);
    let error = world.run(&mut client, op).result.expect_err("the device has failed");
    assert_eq!(error.kind, IoErrorKind::Gone);
}

#[test]
fn eight_drives_that_fail_at_once_recover() {
    let strike = |world: &World| world.drive.fail();
    let mut worlds: Vec<_> = (0..8).map(|_| struck(Spec::new(64), strike)).collect();
    for _ in 0..2000 {
        worlds.iter_mut().for_each(|(world, client)| world.turn_with(client));
    }
    for (world, client) in &worlds {
        assert!(
            client.results().iter().all(|(_, result)| result.is_ok()),
            "{:?}",
            client.results()
        );
        assert_eq!((client.done.len(), world.device().stats().resets), (WRITES as usize, 1));
        world.assert_clean();
    }
}

#[test]
fn statuses_are_what_they_mean() {
    let cases = [
        (Status::UNRECOVERED_READ, IoErrorKind::Medium),
        (Status::WRITE_FAULT, IoErrorKind::Medium),
        (Status::WRITE_PROTECTED, IoErrorKind::ReadOnly),
        (Status::CAPACITY_EXCEEDED, IoErrorKind::NoSpace),
        (Status::OUT_OF_RANGE, IoErrorKind::Gone),
        (Status::INVALID_NAMESPACE, IoErrorKind::Gone),
        (Status::INVALID_FIELD, IoErrorKind::Device),
        (Status::NOT_READY, IoErrorKind::Device),
    ];
    for (status, kind) in cases {
        let strike = |world: &World| {
            (0..WRITES).for_each(|at| world.drive.model().set_bad(1, at, Some(status)))
        };
        let world = check_fails(Spec::new(64), strike, kind);
        assert_eq!(world.device().stats().resets, 0, "{status}");
    }
}

/// A command to a namespace that is briefly not ready is repeated.
#[test]
fn a_namespace_that_is_not_ready_is_asked_again() {
    let (mut world, mut client) = struck(Spec::new(64), |world| {
        (0..WRITES).for_each(|at| world.drive.model().set_bad(1, at, Some(Status::NOT_READY)));
    });
    world.turn_with(&mut client);
    assert_eq!(client.done.len(), 0);
    (0..WRITES).for_each(|at| world.drive.model().set_bad(1, at, None));
    world.run_with(&mut client, WRITES as usize);
    assert!(client.results().iter().all(|(_, result)| result.is_ok()));
}

#[test]
fn one_bad_block_fails_only_what_touches_it() {
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(8);
    world.drive.model().set_bad(1, 5, Some(Status::UNRECOVERED_READ));
    let op = world.read(4, 8192);
    let error = world.run(&mut client, op).result.expect_err("block 5 is bad");
    assert_eq!(error.kind, IoErrorKind::Medium);
    let op = world.read(6, 8192);
    let done = world.run(&mut client, op);
    done.result.expect("others are good");
    assert_eq!(bytes_of(done.op).len(), 8192);
}

/// A namespace that shrinks or vanishes, or is formatted with other blocks, is a different one.
#[test]
fn a_namespace_that_shrinks_vanishes_or_is_formatted_is_gone() {
    let changes: [fn(&World); 3] = [
        |world| world.drive.model().resize(1, Some(32)),
        |world| world.drive.model().resize(1, None),
        |world| world.drive.model().format(1, NamespaceSpec::new(512, 9)),
    ];
    for change in changes {
        let mut world = World::ready(Spec::new(64));
        let mut client = world.open(8);
        change(&world);
        world.step = Nanos(20 * Nanos::MILLI.0);
        world.run_until("given up", |world| world.phase() == Phase::Gone);
        let op = world.read(0, 4096);
        let error = world.run(&mut client, op).result.expect_err("it is gone");
        assert_eq!(error.kind, IoErrorKind::Gone);
        assert!(world.device().reason().is_some_and(|reason| reason.is_final()));
        world.assert_clean();
    }
}

#[test]
fn a_namespace_that_grows_is_shown_larger() {
    let mut world = World::ready(Spec::new(64));
    world.drive.model().resize(1, Some(128));
    world.run_until("larger", |world| world.device().info().blocks == 128);
    world.drive.model().resize(1, Some(256));
    world.run_until("larger again", |world| world.device().info().blocks == 256);
    assert_eq!(world.device().stats().resets, 0);
    world.assert_clean();
}

#[test]
fn another_serial_number_after_a_reset_is_refused() {
    let (mut world, mut client) = struck(Spec::new(64), |world| {
        world.drive.model().spec_mut().serial = "ANOTHER".to_owned();
        world.drive.fail();
    });
    world.run_with(&mut client, WRITES as usize);
    assert!(client.results().iter().all(|(_, result)| *result == Err(IoErrorKind::Gone)));
    assert_eq!(world.device().reason(), Some(Reason::AnotherDrive));
    assert!((0..WRITES).all(|at| world.drive.model().block(1, at).iter().all(|byte| *byte == 0)));
    assert!(world.device().open_queue(CoreIndex(0), 4).is_ok(), "its requests fail");
}

/// If the identifier list is unreadable once, the drive is still the same, whether or not the UUID was read before.
#[test]
fn identifiers_that_cannot_be_read_once_are_no_other_drive() {
    for fails_at_first in [true, false] {
        let mut world = World::new(Spec::new(64), strake_nvme_model::Pace::Prompt);
        world.drive.model().distort(|what, page| {
            if what == strake_nvme_wire::identify::cns::DESCRIPTORS {
                page[..4].copy_from_slice(&[3, 16, 0, 0]);
            }
        });
        world.drive.model().arm(Fault::NoDescriptors, u32::from(fails_at_first));
        world.run_until("ready", |world| world.phase() == Phase::Live);
        let identity = world.device().info().identity;
        assert_eq!(identity.starts_with("wwid:uuid."), !fails_at_first, "{identity}");
        world.drive.model().arm(Fault::NoDescriptors, u32::from(!fails_at_first));
        world.drive.fail();
        world.run_until("reset", |world| world.phase() == Phase::Parked);
        let is_over = |world: &World| matches!(world.phase(), Phase::Live | Phase::Gone);
        world.run_until("ready or given up", is_over);
        assert_eq!((world.phase(), world.device().info().identity), (Phase::Live, identity));
        world.assert_clean();
    }
}

/// After a drive was pulled, all requests fail immediately, and the buffers return.
#[test]
fn ones_in_the_middle_of_work_are_a_removal() {
    let (mut world, mut client) = struck(Spec::new(64), |world| world.drive.remove());
    let start = world.now;
    world.run_with(&mut client, WRITES as usize);
    assert!(world.now.since(start) <= Nanos::SECOND);
    assert!(client.results().iter().all(|(_, result)| *result == Err(IoErrorKind::Gone)));
    for done in client.done.drain(..) {
        if let Op::Write { data, .. } = done.op {
            data.into_parts().for_each(|part| world.pool.put_frozen(part));
        }
    }
    assert_eq!(
        world.pool.available(),
        world.pool.chunks() - 1,
        "only the first read has its buffer"
    );
}

#[test]
fn ones_while_it_is_prepared_or_reset_are_a_removal() {
    // Every turn of the preparation, and of a reset.
    for turns in 0..14 {
        let mut world = World::new(Spec::new(64), strake_nvme_model::Pace::Prompt);
        (0..turns).for_each(|_| _ = world.turn());
        world.drive.remove();
        world.step = Nanos::SECOND;
        world.run_until("gone", |world| world.phase() == Phase::Gone);
        let (mut world, mut client) = struck(Spec::new(64), |world| world.drive.fail());
        (0..turns).for_each(|_| world.turn_with(&mut client));
        world.drive.remove();
        world.step = Nanos(100 * Nanos::MILLI.0);
        world.run_with(&mut client, WRITES as usize);
        assert_eq!(world.phase(), Phase::Gone);
    }
}

/// Memory decoding was turned off by another program: the device is present, so that no command is answered as failed,
/// and the reset of the function turns it on.
#[test]
fn ones_of_a_device_that_is_present_are_repaired() {
    let (mut world, mut client) = struck(Spec::new(64), |world| world.drive.stop_decoding());
    (0..600).for_each(|_| world.turn_with(&mut client));
    world.run_with(&mut client, WRITES as usize);
    assert!(client.results().iter().all(|(_, result)| result.is_ok()), "{:?}", client.results());
    assert_eq!(world.device().reason(), Some(Reason::NoRegisters));
    world.assert_clean();
}
