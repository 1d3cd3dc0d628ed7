//! Maintenance commands of the driver against the model: every command, its statuses, and controllers that lie.

use super::world::World;
use crate::error::Reason;
use crate::lifecycle::Phase;
use crate::limits::LOST_READS_MAX;
use crate::shared::Request;
use crate::{LogReader, NvmeDevice};
use std::sync::mpsc::{Receiver, sync_channel};
use strake_block::{BlockDevice, IoErrorKind};
use strake_nvme_model::{FIRMWARE_MAGIC, Fault, MaintenanceSpec, NamespaceSpec, PERMANENT, Spec};
use strake_nvme_wire::Status;
use strake_nvme_wire::identify::cns;
use strake_nvme_wire::maintenance::firmware::{
    self, Activation, Committed, Rejection, Reset, Slots,
};
use strake_nvme_wire::maintenance::format::{self, Erase, Formats};
use strake_nvme_wire::maintenance::sanitize::{self, Action, Progress, State};
use strake_nvme_wire::maintenance::telemetry::{self, Area, Capture, Header, Initiator};
use strake_nvme_wire::maintenance::{
    AdminCommand, Answer, Functions, TRANSFER_BYTES_MAX, namespaces,
};
use strake_units::Nanos;

type Answered = Result<Answer, Reason>;

/// Sends a command, and does not wait.
fn ask(world: &World, command: AdminCommand) -> Receiver<Answered> {
    let (reply, answer) = sync_channel(1);
    world.device().shared().ask(Request::Maintain(command, reply));
    answer
}

/// Executes a command.
fn run(world: &mut World, command: AdminCommand) -> Answered {
    let answer = ask(world, command);
    for _ in 0..1000 {
        if let Ok(answered) = answer.try_recv() {
            return answered;
        }
        world.turn();
    }
    panic!("there is no answer: {:?}", world.keeper.reason());
}

/// The data of a command that succeeds.
fn data<const N: usize>(world: &mut World, command: AdminCommand) -> [u8; N] {
    let answer = run(world, command).expect("there is an answer");
    assert_eq!(answer.status, Status::SUCCESS);
    answer.data.try_into().expect("the length of the command")
}

fn functions(world: &mut World) -> Functions {
    Functions::of(&data(world, AdminCommand::identify_controller()))
}

#[test]
fn telemetry_is_read_in_pieces_through_prp_lists() {
    let mut world = World::ready(Spec::new(64));
    assert!(functions(&mut world).telemetry);
    let header = data(&mut world, telemetry::read_header(Initiator::Host, Capture::New));
    let header = Header::parse(&header, Initiator::Host).expect("it is possible");
    assert_eq!((header.last_blocks, header.generation), ([1, 2, 600], 1));
    let whole = header.bytes(Area::Three);
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < whole {
        let (from, left) = (bytes.len() as u64, whole - bytes.len() as u64);
        let piece = left.min(TRANSFER_BYTES_MAX.into()) as u32;
        let command = telemetry::read(Initiator::Host, from, piece);
        bytes.extend(run(&mut world, command).expect("there is an answer").data);
    }
    assert_eq!(bytes.len(), 601 * 512);
    for block in 1..=600_u64 {
        let at = block as usize * 512;
        assert_eq!(bytes[at..at + 8], (1 << 32 | block).to_le_bytes(), "block {block}");
        assert_eq!(bytes[at + 504..at + 512], (1 << 32 | block).to_le_bytes(), "block {block}");
    }
    world.drive.model().arm(Fault::TelemetryChanges, 1);
    let again = data(&mut world, telemetry::read_header(Initiator::Host, Capture::Present));
    let again = Header::parse(&again, Initiator::Host).expect("it is possible");
    assert_eq!(again.generation, 2, "the change is visible");
    world.assert_clean();
}

/// The chunk for the data holds data of earlier requests.
#[test]
fn d30_a_controller_that_transfers_too_little_discloses_nothing() {
    let mut world = World::ready(Spec::new(64));
    let secret = vec![0x5e; TRANSFER_BYTES_MAX as usize];
    for _ in 0..16 {
        let download = firmware::download(0, secret.clone());
        run(&mut world, download).expect("there is an answer");
    }
    world.drive.model().distort_log(|_, page| page.truncate(512));
    world.drive.model().arm(Fault::ShortLog, 1);
    let command = telemetry::read(Initiator::Host, 0, TRANSFER_BYTES_MAX);
    let answer = run(&mut world, command).expect("there is an answer");
    assert_eq!(answer.data.len(), TRANSFER_BYTES_MAX as usize);
    assert!(answer.data[512..].iter().all(|byte| *byte == 0), "it discloses earlier data");
}

#[test]
fn a_transfer_beyond_the_limit_of_the_controller_is_refused() {
    let mut world = World::ready(Spec { transfer_pages_log2: 1, ..Spec::new(64) });
    assert_eq!(functions(&mut world).transfer_bytes, 8192);
    let too_large = run(&mut world, telemetry::read(Initiator::Host, 0, 8704));
    assert!(matches!(too_large, Err(Reason::Memory(_))), "{too_large:?}");
    run(&mut world, telemetry::read(Initiator::Host, 0, 8192)).expect("it fits");
    world.assert_clean();
}

#[test]
fn one_maintenance_command_is_executed_at_a_time() {
    let mut world = World::ready(Spec::new(64));
    world.drive.model().arm(Fault::SilentAdmin, PERMANENT);
    let first = ask(&world, AdminCommand::identify_controller());
    let second = run(&mut world, AdminCommand::identify_controller());
    assert_eq!(second, Err(Reason::Busy));
    world.drive.model().arm(Fault::SilentAdmin, 0);
    (0..10).for_each(|_| _ = world.turn());
    assert!(first.try_recv().is_ok_and(|answer| answer.is_ok()));
}

/// A command without an answer ends no session, and its memory is not used for other data until the answer.
#[test]
fn d30_a_maintenance_command_without_an_answer_keeps_its_memory() {
    let mut world = World::ready(Spec::new(64));
    world.drive.model().arm(Fault::SilentAdmin, PERMANENT);
    world.step = Nanos::SECOND;
    let answer = ask(&world, telemetry::read(Initiator::Host, 0, 4096));
    (0..62).for_each(|_| _ = world.turn());
    assert_eq!(answer.try_recv(), Ok(Err(Reason::NoAnswer)));
    let bounces = &world.device().shared().bounces;
    let taken: Vec<u16> = std::iter::from_fn(|| bounces.take()).collect();
    assert_eq!(taken.len(), 15, "the controller still owns one");
    taken.into_iter().for_each(|chunk| bounces.give_back(chunk));
    (0..600).for_each(|_| _ = world.turn());
    assert_eq!((world.device().stats().resets, world.phase()), (0, Phase::Live));
    let later = ask(&world, AdminCommand::identify_controller());
    (0..62).for_each(|_| _ = world.turn());
    assert_eq!(later.try_recv(), Ok(Err(Reason::NoAnswer)), "it was sent");
    assert_eq!((world.device().stats().resets, world.phase()), (0, Phase::Live));
    world.drive.model().arm(Fault::SilentAdmin, 0);
    (0..3).for_each(|_| _ = world.turn());
    run(&mut world, AdminCommand::identify_controller()).expect("it is free again");
    let bounces = &world.device().shared().bounces;
    assert_eq!(std::iter::from_fn(|| bounces.take()).count(), 16);
    world.assert_clean();
}

/// Each lost read keeps memory of the controller, so their number is limited. A reset returns the memory.
#[test]
fn d30_lost_reads_are_limited_and_end_with_a_reset() {
    let mut world = World::ready(Spec::new(64));
    world.drive.model().arm(Fault::SilentAdmin, PERMANENT);
    world.step = Nanos::SECOND;
    for _ in 0..LOST_READS_MAX {
        let lost = ask(&world, telemetry::read(Initiator::Host, 0, 4096));
        (0..62).for_each(|_| _ = world.turn());
        assert_eq!(lost.try_recv(), Ok(Err(Reason::NoAnswer)));
    }
    let refused = run(&mut world, AdminCommand::identify_controller());
    assert_eq!(refused, Err(Reason::Busy));
    world.drive.fail();
    world.drive.model().arm(Fault::SilentAdmin, 0);
    world.step = Nanos(10 * Nanos::MILLI.0);
    (0..1000).for_each(|_| _ = world.turn());
    run(&mut world, AdminCommand::identify_controller()).expect("the reset ended them");
    let bounces = &world.device().shared().bounces;
    assert_eq!(std::iter::from_fn(|| bounces.take()).count(), 16);
}

/// The history of the bug: a Sanitize or Firmware Commit without an answer refused every later command.
#[test]
fn d30_a_lost_change_is_aborted_and_then_ends_with_a_reset() {
    // The controller executes the abort.
    let mut world = World::ready(Spec::new(64));
    world.drive.model().arm(Fault::SlowFormat, PERMANENT);
    let lost = ask(&world, format::format(1, 1, Erase::None));
    (0..5).for_each(|_| _ = world.turn());
    world.now = world.now.plus(Nanos::SECOND.times(format::TIME_S.into()));
    (0..5).for_each(|_| _ = world.turn());
    assert_eq!(lost.try_recv(), Ok(Err(Reason::NoAnswer)));
    run(&mut world, AdminCommand::identify_controller()).expect("it is free again");
    assert_eq!((world.device().stats().resets, world.phase()), (0, Phase::Live));
    // It does not.
    for fault in [Fault::AbortMissed, Fault::SilentAdmin] {
        let mut world = World::ready(Spec::new(64));
        world.drive.model().arm(Fault::SlowFormat, PERMANENT);
        let lost = ask(&world, format::format(1, 1, Erase::None));
        (0..5).for_each(|_| _ = world.turn());
        world.drive.model().arm(fault, PERMANENT);
        world.now = world.now.plus(Nanos::SECOND.times(format::TIME_S.into()));
        world.step = Nanos::SECOND;
        (0..5).for_each(|_| _ = world.turn());
        assert_eq!(lost.try_recv(), Ok(Err(Reason::NoAnswer)));
        let busy = ask(&world, AdminCommand::identify_controller());
        (0..2).for_each(|_| _ = world.turn());
        assert_eq!(busy.try_recv(), Ok(Err(Reason::Busy)), "the format may still be executed");
        world.run_until("reset", |world| world.device().stats().resets == 1);
        world.drive.model().arm(fault, 0);
        world.step = Nanos(10 * Nanos::MILLI.0);
        world.run_until("ready", |world| world.phase() == Phase::Live);
        run(&mut world, AdminCommand::identify_controller()).expect("it is free again");
    }
}

#[test]
fn a_maintenance_command_across_a_reset_is_answered() {
    let mut world = World::ready(Spec::new(64));
    world.drive.model().arm(Fault::SilentAdmin, PERMANENT);
    let answer = ask(&world, telemetry::read(Initiator::Host, 0, 4096));
    (0..5).for_each(|_| _ = world.turn());
    world.drive.fail();
    world.drive.model().arm(Fault::SilentAdmin, 0);
    world.step = Nanos(10 * Nanos::MILLI.0);
    (0..1000).for_each(|_| _ = world.turn());
    let interrupted = answer.try_recv().expect("there is an answer");
    assert!(matches!(interrupted, Err(Reason::Interrupted(_))), "{interrupted:?}");
    assert_eq!(world.phase(), Phase::Live);
    let bounces = &world.device().shared().bounces;
    assert_eq!(std::iter::from_fn(|| bounces.take()).count(), 16);
}

#[test]
fn a_device_that_is_given_back_executes_no_maintenance() {
    let mut world = World::ready(Spec::new(64));
    let reader: LogReader = world.device().log_reader();
    assert_eq!(reader.namespace(), Some(1));
    world.drive.remove();
    world.step = Nanos::SECOND;
    world.run_until("gone", |world| world.phase() == Phase::Gone);
    let error = reader.maintain(AdminCommand::identify_controller()).expect_err("it is gone");
    assert_eq!(error.kind, IoErrorKind::Device);
}

#[test]
fn a_sanitize_operation_runs_in_the_drive_and_ends() {
    let maintenance = MaintenanceSpec {
        sanitize_time: Nanos(100 * Nanos::SECOND.0),
        sanitize_actions: 0b011,
        ..MaintenanceSpec::default()
    };
    let mut world = World::ready(Spec { maintenance, ..Spec::new(64) });
    let mut client = world.open(8);
    let op = world.write(3, 0x77, 4096);
    world.run(&mut client, op).result.expect("it works");
    let actions = functions(&mut world).sanitize;
    assert_eq!(actions.actions().collect::<Vec<_>>(), [Action::Block, Action::Crypto]);
    let refused = run(&mut world, sanitize::start(Action::Overwrite)).expect("an answer");
    assert!(refused.status.is(Status::INVALID_FIELD));
    let progress = |world: &mut World| Progress::parse(&data(world, sanitize::read_status()));
    assert_eq!(progress(&mut world).state, State::Never);
    let started = run(&mut world, sanitize::start(Action::Block)).expect("an answer");
    assert_eq!(started.status, Status::SUCCESS);
    world.now = world.now.plus(Nanos(50 * Nanos::SECOND.0));
    let half = progress(&mut world);
    assert_eq!(
        (half.state, half.action, half.estimate_s),
        (State::Running, Some(Action::Block), Some(100))
    );
    assert!((49..=51).contains(&half.percent()), "{half:?}");
    let op = world.read(3, 4096);
    world.run(&mut client, op).result.expect_err("the drive refuses I/O");
    world.now = world.now.plus(Nanos(51 * Nanos::SECOND.0));
    assert_eq!(progress(&mut world).state, State::Completed);
    assert_eq!(world.drive.model().block(1, 3), [0; 4096]);
    world.drive.model().arm(Fault::SanitizeFails, 1);
    run(&mut world, sanitize::start(Action::Crypto)).expect("an answer");
    world.now = world.now.plus(Nanos(101 * Nanos::SECOND.0));
    assert_eq!(progress(&mut world).state, State::Failed);
}

fn formats(world: &mut World) -> Formats {
    Formats::parse(&data(world, AdminCommand::identify(cns::NAMESPACE, 1)))
}

/// Namespaces without a controller are only in the list of the allocated namespaces.
#[test]
fn unattached_namespaces_are_listed() {
    let maintenance = MaintenanceSpec { unattached: 2, ..MaintenanceSpec::default() };
    let mut world = World::ready(Spec { maintenance, ..Spec::new(64) });
    assert!(functions(&mut world).manages);
    let mut list = |which| {
        let page = data(&mut world, AdminCommand::identify(which, 0));
        namespaces(&page).collect::<Vec<_>>()
    };
    assert_eq!(list(cns::ACTIVE_NAMESPACES), [1]);
    assert_eq!(list(cns::ALLOCATED_NAMESPACES), [1, 2, 3]);
}

#[test]
fn a_format_erases_and_changes_the_blocks() {
    let mut world = World::ready(Spec::new(64));
    let mut client = world.open(8);
    let op = world.write(3, 0x77, 4096);
    world.run(&mut client, op).result.expect("it works");
    let page = data(&mut world, AdminCommand::identify(cns::ACTIVE_NAMESPACES, 0));
    assert_eq!(namespaces(&page).collect::<Vec<_>>(), [1]);
    let same = run(&mut world, format::format(1, 1, Erase::User)).expect("an answer");
    assert_eq!(same.status, Status::SUCCESS);
    assert_eq!(world.drive.model().block(1, 3), [0; 4096]);
    (0..100).for_each(|_| _ = world.turn());
    assert_eq!(world.phase(), Phase::Live, "the namespace is the same");
    let wrong = run(&mut world, format::format(1, 9, Erase::None)).expect("an answer");
    assert_eq!((wrong.status.code_type(), wrong.status.code()), (1, 0x0a));
    assert_eq!(formats(&mut world).of_bytes(512).map(|format| format.number), Some(0));
    let other = run(&mut world, format::format(1, 0, Erase::None)).expect("an answer");
    assert_eq!(other.status, Status::SUCCESS);
    // The blocks of open queues no longer exist.
    world.step = Nanos(10 * Nanos::MILLI.0);
    world.run_until("gone", |world| world.phase() == Phase::Gone);
    assert_eq!(world.device().reason(), Some(Reason::AnotherDrive));
    world.assert_clean();
}

/// The controller reports the change of the namespace before it completes the format.
#[test]
fn d30_a_format_is_not_interrupted_by_its_own_event() {
    let mut world = World::ready(Spec::new(64));
    world.drive.model().arm(Fault::SlowFormat, PERMANENT);
    let answer = ask(&world, format::format(1, 0, Erase::None));
    (0..3).for_each(|_| _ = world.turn());
    world.drive.model().format(1, NamespaceSpec::new(512, 9));
    (0..2000).for_each(|_| _ = world.turn());
    assert_eq!((world.phase(), world.device().stats().resets), (Phase::Live, 0));
    assert!(answer.try_recv().is_err(), "it is in progress");
    world.drive.model().arm(Fault::SlowFormat, 0);
    (0..5).for_each(|_| _ = world.turn());
    assert!(answer.try_recv().is_ok_and(|answer| answer.is_ok_and(|a| a.status.is_success())));
}

/// An image of so many bytes with a revision.
fn image(revision: &str, bytes: usize) -> Vec<u8> {
    let mut image = [&FIRMWARE_MAGIC[..], format!("{revision:<8}").as_bytes()].concat();
    image.resize(bytes, 0xf1);
    image
}

fn send(world: &mut World, image: &[u8]) {
    let piece = functions(world).firmware.piece_bytes(TRANSFER_BYTES_MAX).expect("it fits");
    for (at, piece) in image.chunks(piece as usize).enumerate() {
        let offset = (at * TRANSFER_BYTES_MAX as usize) as u32;
        let answer = run(world, firmware::download(offset, piece.to_vec())).expect("an answer");
        assert_eq!(answer.status, Status::SUCCESS);
    }
}

fn commit(world: &mut World, slot: u8, activation: Activation) -> Committed {
    Committed::of(run(world, firmware::commit(slot, activation)).expect("an answer").status)
}

fn slots(world: &mut World) -> Slots {
    Slots::parse(&data(world, firmware::read_slots()))
}

#[test]
fn firmware_is_transferred_stored_and_activated() {
    let mut world = World::ready(Spec::new(64));
    assert_eq!((slots(&mut world).running, slots(&mut world).next), (1, None));
    send(&mut world, &image("2.0", 300 << 10));
    assert_eq!(commit(&mut world, 1, Activation::Now), Committed::Rejected(Rejection::Slot));
    assert_eq!(commit(&mut world, 2, Activation::AtReset), Committed::Done);
    let stored = slots(&mut world);
    assert_eq!((stored.running, stored.next, &*stored.revisions[1]), (1, Some(2), "2.0"));
    world.drive.fail();
    world.step = Nanos(10 * Nanos::MILLI.0);
    (0..100).for_each(|_| _ = world.turn());
    world.run_until("ready", |world| world.phase() == Phase::Live);
    assert_eq!((slots(&mut world).running, slots(&mut world).next), (2, None));
    let device: &NvmeDevice = world.device();
    assert_eq!(device.facts().expect("it is ready").controller.firmware, "2.0");
    assert_eq!(device.info().blocks, 64, "it is the same drive");
    send(&mut world, &image("3.0", 4096));
    assert_eq!(commit(&mut world, 3, Activation::Now), Committed::Done);
    assert_eq!(slots(&mut world).running, 3);
    send(&mut world, &image("4.0", 4096));
    world.drive.model().arm(Fault::FirmwareNeedsReset, 1);
    assert_eq!(commit(&mut world, 2, Activation::Now), Committed::Needs(Reset::Controller));
    assert_eq!(slots(&mut world).next, Some(2));
    send(&mut world, &[0; 4096]);
    assert_eq!(commit(&mut world, 2, Activation::Now), Committed::Rejected(Rejection::Image));
    world.assert_clean();
}
