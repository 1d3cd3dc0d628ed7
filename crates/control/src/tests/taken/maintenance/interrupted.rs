//! Operations that are refused, interrupted, or without a known result, and the other uses of their drives.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use strake_api::v1::{
    AddSpareRequest, FormatDriveRequest, ImportArraysRequest, UnloadArrayRequest,
};
use strake_nvme_wire::Status;

use super::{
    Done, PATH, World, erase, events, format, formatted, open, sanitized, taken, update, updated,
};
use crate::commands::maintain::{Subject, maintenance_keys};
use crate::control::Control;
use crate::drives::maintenance::Undone;
use crate::drives::maintenance::fake::Fake;
use crate::error::ControlErrorKind;
use crate::limits::SANITIZE_SILENT_READS;
use crate::tests::{check_refused, mirror};

/// The state of the recorded operation of the drive: its name, its state and its note.
fn shown(world: &World) -> Option<(String, String, String)> {
    let work = world.control().drive(PATH).expect("it is listed").maintenance?;
    Some((work.operation, work.state, work.note))
}

/// The drive is refused by everything that would use it.
fn check_unused(world: &World, fake: &Arc<Fake>, kind: ControlErrorKind, words: &str) {
    open(world, fake);
    let spare = AddSpareRequest { drive: PATH.into(), ..Default::default() };
    check_refused(world.control().add_spare(&spare), kind, words);
    let drives = [PATH.to_owned(), world.node("nvme1n1")];
    open(world, fake);
    check_refused(world.control().create_array(&mirror(&drives)), kind, words);
    open(world, fake);
    let label = world.control().reserve(|_| Ok(((), Vec::new()))).expect("it answers");
    check_refused(label.1.limit_to(Duration::from_secs(8)).open_now(PATH).map(drop), kind, words);
}

/// Waits until the drive has no reservation.
fn await_end(control: &Control) {
    let ended = control.wait_until(Duration::from_secs(60), |m| m.reserved.is_empty());
    assert!(ended.expect("it answers"), "it has not ended");
}

#[test]
fn d33_a_refused_operation_leaves_the_drive_as_it_was() {
    let (world, fake) = taken();
    // Invalid Format, Invalid Field.
    let refusals = [(0x80, 1 << 8 | 0x0a), (0x84, 0x02)];
    for (opcode, code) in refusals {
        fake.state().statuses.insert(opcode, Status::of_word(code << 1));
    }
    let both = |world: &World| -> [Done; 2] {
        [formatted(world, &fake, &format()), sanitized(world, &fake, &erase("block"))]
    };
    for done in both(&world) {
        check_refused(done, ControlErrorKind::Device, "failed with status");
    }
    assert_eq!(shown(&world), None);
    let failed = events(&world, "drive_maintenance_failed");
    let is_refusal = |text: &String| text.contains("was refused by the drive");
    assert!(failed.iter().all(is_refusal), "{failed:?}");
    // A command that the drive did not get.
    fake.state().undone.insert(0x80, Undone::Unchanged("it executes another".to_owned()));
    let unsent = formatted(&world, &fake, &format());
    check_refused(unsent, ControlErrorKind::Device, "it executes another");
    assert_eq!(shown(&world), None);
    // The failure of an earlier operation stays.
    fake.state().undone.clear();
    fake.state().statuses.insert(0x84, Status::INTERNAL);
    let unknown = sanitized(&world, &fake, &erase("block"));
    check_refused(unknown, ControlErrorKind::Device, "Sanitize failed");
    let before = shown(&world).expect("its result is unknown");
    assert_eq!(before.1, "failed");
    fake.state().statuses.insert(0x84, Status::of_word(0x02 << 1));
    for done in both(&world) {
        check_refused(done, ControlErrorKind::Device, "failed with status");
    }
    assert_eq!(shown(&world), Some(before));
}

#[test]
fn d33_an_operation_without_a_known_result_keeps_the_drive_from_arrays() {
    let (world, fake) = taken();
    fake.state().undone.insert(0x80, Undone::Unknown("the controller was reset".to_owned()));
    let lost = formatted(&world, &fake, &format());
    check_refused(lost, ControlErrorKind::Device, "the controller was reset");
    open(&world, &fake);
    check_unused(&world, &fake, ControlErrorKind::Refused, "format the drive again");
    assert_eq!(events(&world, "drive_maintenance_failed").len(), 1);
    // The thread of the job ends.
    fake.state().undone.clear();
    fake.state().fatal = Some(0x80);
    let ended = formatted(&world, &fake, &format());
    check_refused(ended, ControlErrorKind::Internal, "ended without a result");
    let note = shown(&world).expect("its result is unknown").2;
    assert!(note.contains("does not know its result"), "{note}");
    assert_eq!(events(&world, "drive_maintenance_failed").len(), 2);
    fake.state().fatal = None;
    formatted(&world, &fake, &format()).expect("it is formatted");
    assert_eq!(shown(&world), None);
}

/// The drive was pulled, or another drive answers.
#[test]
fn d33_a_sanitize_operation_of_a_silent_drive_becomes_unknown_and_is_followed() {
    let (world, fake) = taken();
    sanitized(&world, &fake, &erase("block")).expect("it starts");
    let ticks = |count: u32| {
        (0..count).for_each(|_| world.control().tick().expect("it answers"));
        shown(&world).map(|(_, state, note)| format!("{state}: {note}")).unwrap_or_default()
    };
    let set_serial = |serial: &[u8; 2]| fake.state().controller[4..6].copy_from_slice(serial);
    set_serial(b"S9");
    // The other drive has finished an operation of its own.
    fake.state().sanitize[2] = 1;
    let state = ticks(SANITIZE_SILENT_READS - 1);
    assert!(state.starts_with("running"), "{state}");
    let state = ticks(1);
    assert!(state.starts_with("failed") && state.contains("the serial number S9"), "{state}");
    ticks(5);
    assert_eq!(events(&world, "drive_maintenance_failed").len(), 1);
    assert_eq!(events(&world, "drive_maintenance_finished").len(), 0);
    check_unused(&world, &fake, ControlErrorKind::Refused, "the state of the sanitize operation");
    set_serial(b"S1");
    fake.state().sanitize[2] = 2;
    let state = ticks(1);
    assert!(state.starts_with("running"), "{state}");
    fake.state().sanitize[2] = 1;
    assert_eq!(ticks(1), "");
    assert_eq!(events(&world, "drive_maintenance_finished").len(), 1);
}

/// Starts an update whose first command with `opcode` waits until the sender is dropped.
fn updating(world: &World, fake: &Arc<Fake>, opcode: u8, work: impl FnOnce(Sender<()>)) -> Done {
    let (go, gate) = channel();
    let (reached, reach) = channel();
    fake.state().gate = Some((opcode, gate));
    fake.state().reached = Some(reached);
    open(world, fake);
    thread::scope(|scope| {
        let update = scope.spawn(|| updated(world, fake, &update(""), &[1; 256 << 10]));
        reach.recv().expect("the drive has the command");
        work(go);
        update.join().expect("it does not panic")
    })
}

#[test]
fn d33_a_drive_is_not_used_otherwise_during_a_firmware_update() {
    let (world, fake) = taken();
    let done = updating(&world, &fake, 0x10, |go| {
        check_unused(&world, &fake, ControlErrorKind::State, "is being updated with new firmware");
        let kept = world.control().with(|m| {
            let keys = maintenance_keys(m, PATH);
            m.drives.named(PATH).is_some() && keys.iter().all(|key| m.reserved.contains(key))
        });
        assert!(kept.expect("it answers"), "another maintenance command could start");
        let (operation, state, _) = shown(&world).expect("it is in progress");
        assert_eq!((&*operation, &*state), ("firmware", "running"));
        drop(go);
    });
    done.expect("it is stored");
    assert_eq!(shown(&world), None);
    open(&world, &fake);
    let spare = AddSpareRequest { drive: PATH.into(), ..Default::default() };
    world.control().add_spare(&spare).expect("it is free again");
}

/// The close of a taken drive would reset its controller.
#[test]
fn d33_an_array_that_stops_leaves_the_drive_of_an_update_open() {
    let (world, fake) = taken();
    let drives = [PATH.to_owned(), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    let done = updating(&world, &fake, 0x10, |go| {
        let unload = UnloadArrayRequest { name: "tank".into(), ..Default::default() };
        world.control().unload_array(&unload).expect("it stops");
        let is_open = world.control().with(|m| m.drives.named(PATH).is_some());
        assert!(is_open.expect("it answers"), "its controller is reset");
        let released = world.release(PATH).map(drop);
        check_refused(released, ControlErrorKind::State, "is being updated with new firmware");
        drop(go);
    });
    done.expect("it is stored");
}

/// The history of the bug: the transfer continued, and the image was committed after the failure was reported.
#[test]
fn d33_an_image_is_not_committed_after_the_time_limit() {
    // The limit ends during the first of two pieces, and during the last piece.
    for (bytes, words) in
        [(256 << 10, "131072 of 262144 bytes"), (4096, "the transfer took too long")]
    {
        let (world, fake) = taken();
        let limit = Duration::from_millis(50);
        world.control().with(|m| m.options.firmware_limit = limit).expect("it answers");
        let (go, gate) = channel();
        fake.state().gate = Some((0x11, gate));
        let late = updated(&world, &fake, &update(""), &vec![1; bytes]);
        check_refused(late, ControlErrorKind::Device, "the image is not committed");
        drop(go);
        await_end(world.control());
        let sent: Vec<u8> = fake.state().changed.iter().map(|(opcode, ..)| *opcode).collect();
        assert_eq!(sent, [0x11], "no other piece, and no commit");
        let failed = events(&world, "drive_maintenance_failed");
        assert!(failed[0].contains(words), "{failed:?}");
        assert_eq!(shown(&world), None);
    }
}

/// The labels of the drive may still be there.
#[test]
fn d33_an_array_is_not_imported_with_a_drive_of_a_failed_format() {
    let (world, fake) = taken();
    let drives = [PATH.to_owned(), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    let unload = UnloadArrayRequest { name: "tank".into(), ..Default::default() };
    world.control().unload_array(&unload).expect("it stops");
    fake.state().undone.insert(0x80, Undone::Unknown("the controller was reset".to_owned()));
    let lost = formatted(&world, &fake, &FormatDriveRequest { force: true, ..format() });
    check_refused(lost, ControlErrorKind::Device, "the controller was reset");
    open(&world, &fake);
    let import = ImportArraysRequest { drives: drives.to_vec(), ..Default::default() };
    let refused = world.control().import_arrays(&import);
    check_refused(refused, ControlErrorKind::Refused, "format the drive again");
    open(&world, &fake);
    let import = ImportArraysRequest { name: "tank".into(), ..Default::default() };
    let refused = world.control().import_arrays(&import);
    let refused = refused.expect_err("a member is missing").what;
    assert!(refused.contains("waits for member 0"), "{refused}");
    assert!(refused.contains("format the drive again"), "{refused}");
}

/// The drive at the address is another one when the command is ready.
#[test]
fn d33_an_exchanged_drive_is_not_erased() {
    let (world, fake) = taken();
    let subject = Subject::named(world.control(), PATH).expect("it is found");
    let check = |serial: &str| world.control().run(|m| subject.check_same(m, serial));
    check("S1").expect("it is the same");
    let other: Arc<Fake> = Fake::new("S1");
    world.control().with(|m| m.drives.give_admin(PATH, other)).expect("it answers");
    check_refused(check("S1"), ControlErrorKind::Refused, "another drive is at pci:0000:3b:00.0");
    drop((subject, fake));
    // A drive of the kernel.
    let node = world.node("nvme1n1");
    let subject = Subject::named(world.control(), &node).expect("it is found");
    let check = |serial: &str| world.control().run(|m| subject.check_same(m, serial));
    check("S2").expect("it is the same");
    check_refused(check("S3"), ControlErrorKind::Refused, "with the serial number S3");
}
