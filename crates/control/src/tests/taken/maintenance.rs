//! Maintenance of taken drives.

mod interrupted;

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use strake_api::v1::{
    AddSpareRequest, DriveChange, FailMemberRequest, FormatDriveRequest, GetFirmwareRequest,
    ListEventsRequest, ReadTelemetryRequest, SanitizeDriveRequest, UnloadArrayRequest,
    UpdateFirmwareRequest,
};
use strake_nvme_wire::Status;

use super::world::World;
use super::{ADDRESS, OTHER};
use crate::drives::maintenance::fake::Fake;
use crate::error::ControlErrorKind;
use crate::tests::{check_refused, mirror};
use crate::{
    Actor, ControlError, Manager, Telemetry, firmware, format_drive, read_telemetry,
    sanitize_drive, update_firmware,
};

const PATH: &str = "pci:0000:3b:00.0";

/// A host with the taken drive S1, which is open and has maintenance commands.
fn taken() -> (World, Arc<Fake>) {
    let world = World::new();
    world.take("S1").expect("it is taken");
    let fake = Fake::new("S1");
    open(&world, &fake);
    (world, fake)
}

/// Opens the drive, which a command closes if nothing else uses it.
fn open(world: &World, fake: &Arc<Fake>) {
    let is_open = world.control().with(|m| m.drives.named(PATH).is_some());
    if !is_open.expect("it answers") {
        world.open(ADDRESS);
    }
    let source = Arc::<Fake>::clone(fake);
    world.control().with(|m| m.drives.give_admin(PATH, source)).expect("it answers");
}

type Done = Result<DriveChange, ControlError>;

/// Executes a command as a client does: a refusal contains the amended request.
fn sanitized(world: &World, fake: &Arc<Fake>, request: &SanitizeDriveRequest) -> Done {
    open(world, fake);
    world.control().command(&Actor::default(), request, sanitize_drive)
}

fn formatted(world: &World, fake: &Arc<Fake>, request: &FormatDriveRequest) -> Done {
    open(world, fake);
    world.control().command(&Actor::default(), request, format_drive)
}

fn updated(world: &World, fake: &Arc<Fake>, request: &UpdateFirmwareRequest, image: &[u8]) -> Done {
    open(world, fake);
    world.control().command(&Actor::default(), request, |c, r| update_firmware(c, r, image))
}

fn telemetry(world: &World, path: &str, area: u32) -> Result<Telemetry, ControlError> {
    let request = ReadTelemetryRequest { path: path.to_owned(), controller: false, area };
    read_telemetry(world.control(), &request)
}

#[test]
fn telemetry_of_a_taken_member_is_read_while_it_serves() {
    let (world, _fake) = taken();
    let drives = [PATH.to_owned(), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    let log = telemetry(&world, PATH, 0).expect("it answers");
    assert_eq!((&*log.path, &*log.serial, &*log.firmware), (PATH, "S1", "1.0"));
    assert_eq!((log.area, log.data.len()), (3, 701 * 512));
    assert_eq!(telemetry(&world, PATH, 1).expect("it answers").data.len(), 2 * 512);
    check_refused(telemetry(&world, PATH, 4), ControlErrorKind::Usage, "use 1, 2 or 3");
    check_refused(telemetry(&world, "nothing", 0), ControlErrorKind::NotFound, "nothing");
    // A file replaces the device node, and supports no ioctl.
    let kernels = telemetry(&world, OTHER, 0);
    check_refused(kernels, ControlErrorKind::Device, "the telemetry of");
    let file = world.root.sparse("file", 64 << 20).display().to_string();
    check_refused(telemetry(&world, &file, 0), ControlErrorKind::State, "not an NVMe drive");
}

#[test]
fn a_failed_read_names_the_drive_and_the_reason() {
    let (world, fake) = taken();
    fake.state().controller[261] = 0;
    check_refused(
        telemetry(&world, PATH, 0),
        ControlErrorKind::Device,
        "the telemetry of pci:0000:3b:00.0 cannot be read: it does not support telemetry",
    );
}

fn erase(action: &str) -> SanitizeDriveRequest {
    SanitizeDriveRequest { path: PATH.into(), action: action.into(), ..Default::default() }
}

fn format() -> FormatDriveRequest {
    FormatDriveRequest { path: PATH.into(), ..Default::default() }
}

/// The causes and texts of the events of a kind.
fn events(world: &World, kind: &str) -> Vec<String> {
    let request = ListEventsRequest { kind: kind.into(), ..Default::default() };
    let events = world.control().events().list(&request).expect("the request is fine");
    events.into_iter().map(|event| format!("{}: {}", event.what, event.cause)).collect()
}

/// Runs a check of a drive that may not be erased: both commands refuse it, and the drive gets no command.
fn check_kept(world: &World, fake: &Arc<Fake>, kind: ControlErrorKind, words: &str) {
    for dry_run in [true, false] {
        let sanitize = SanitizeDriveRequest { dry_run, force: true, ..erase("block") };
        check_refused(sanitized(world, fake, &sanitize), kind, words);
        let format = FormatDriveRequest { dry_run, force: true, ..format() };
        check_refused(formatted(world, fake, &format), kind, words);
    }
    assert_eq!(fake.state().changed, [], "it got a command");
}

#[test]
fn d31_a_member_and_a_spare_are_never_erased() {
    let (world, fake) = taken();
    let drives = [PATH.to_owned(), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    check_kept(&world, &fake, ControlErrorKind::Refused, "is member 0 of array tank");
    let (world, fake) = taken();
    let spare = AddSpareRequest { drive: PATH.into(), ..Default::default() };
    world.control().add_spare(&spare).expect("it is a spare");
    check_kept(&world, &fake, ControlErrorKind::Refused, "is a spare");
}

#[test]
fn d31_a_drive_of_the_kernel_in_use_is_never_erased() {
    let world = World::new();
    let info = world.root.join("proc/self/mountinfo");
    std::fs::create_dir_all(info.parent().expect("it is in a folder")).expect("a folder");
    let mount = "36 35 259:0 / /mnt rw - ext4 /dev/nvme0n1 rw\n";
    std::fs::write(info, mount).expect("a file");
    let request = FormatDriveRequest { path: world.node("nvme0n1"), force: true, ..format() };
    let refused = format_drive(world.control(), &request);
    check_refused(refused, ControlErrorKind::Refused, "is in use: mounted at /mnt");
    let request = UpdateFirmwareRequest { path: world.node("nvme0n1"), ..Default::default() };
    let refused = update_firmware(world.control(), &request, &[0; 4]);
    check_refused(refused, ControlErrorKind::Refused, "is in use: mounted at /mnt");
}

/// Labels of a stopped array, and a file system.
#[test]
fn d31_content_is_erased_only_with_consent() {
    let (world, fake) = taken();
    let drives = [PATH.to_owned(), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    let unload = UnloadArrayRequest { name: "tank".into(), ..Default::default() };
    world.control().unload_array(&unload).expect("it stops");
    let refused = formatted(&world, &fake, &format());
    check_refused(refused, ControlErrorKind::Refused, "holds a member of array tank");
    let refused = sanitized(&world, &fake, &erase("block"));
    check_refused(refused, ControlErrorKind::Refused, "--action block --force");
    assert_eq!(fake.state().changed, []);
    let forced = FormatDriveRequest { force: true, dry_run: true, ..format() };
    let planned = formatted(&world, &fake, &forced).expect("it is planned");
    assert_eq!(planned.result, "planned");
    assert!(planned.plan[0].contains("which holds a member of array tank"), "{planned:?}");
    assert_eq!(fake.state().changed, []);
}

#[test]
fn a_request_for_another_serial_number_is_refused() {
    let (world, fake) = taken();
    let sanitize = SanitizeDriveRequest { serial: "S2".into(), ..erase("block") };
    let refused = sanitized(&world, &fake, &sanitize);
    check_refused(refused, ControlErrorKind::Refused, "the serial number S1");
    assert_eq!(fake.state().changed, []);
    let same = SanitizeDriveRequest { serial: "S1".into(), dry_run: true, ..erase("block") };
    sanitized(&world, &fake, &same).expect("it is the drive");
}

#[test]
fn d32_a_sanitized_drive_is_kept_from_arrays_until_it_has_succeeded() {
    let (world, fake) = taken();
    let sanitize = |action| sanitized(&world, &fake, &erase(action));
    assert_eq!(sanitize("block").expect("it starts").result, "started");
    assert_eq!(fake.state().changed, [(0x84, 0, 2)]);
    check_refused(sanitize("crypto"), ControlErrorKind::State, "is being sanitized");
    let spare = AddSpareRequest { drive: PATH.into(), ..Default::default() };
    let refused = world.control().add_spare(&spare);
    check_refused(refused, ControlErrorKind::Refused, "is being sanitized");
    fake.state().sanitize[..2].copy_from_slice(&0x4000_u16.to_le_bytes());
    world.control().tick().expect("it answers");
    let shown = world.control().drive(PATH).expect("it is open");
    let shown = (shown.state, shown.maintenance.expect("it is in progress"));
    assert_eq!((&*shown.0, shown.1.percent), ("busy", Some(25)));
    assert_eq!((&*shown.1.operation, &*shown.1.state), ("sanitize", "running"));
    // It fails.
    fake.state().sanitize[2] = 3;
    world.control().tick().expect("it answers");
    let shown = world.control().drive(PATH).expect("it is open");
    let note = shown.maintenance.expect("it has failed").note;
    assert!(note.contains("action block") && note.contains("sanitize the drive again"), "{note}");
    assert_eq!(events(&world, "drive_maintenance_failed").len(), 1);
    let refused = world.control().add_spare(&spare);
    check_refused(
        refused,
        ControlErrorKind::Refused,
        "the sanitize operation of pci:0000:3b:00.0 failed",
    );
    // Another operation succeeds.
    sanitize("crypto").expect("it starts");
    fake.state().sanitize[2] = 1;
    world.control().tick().expect("it answers");
    assert_eq!(events(&world, "drive_maintenance_started").len(), 2);
    assert_eq!(events(&world, "drive_maintenance_finished").len(), 1);
}

#[test]
fn an_impossible_sanitize_is_refused_with_what_is_possible() {
    let (world, fake) = taken();
    let check = |action: &str, kind, words| {
        check_refused(sanitized(&world, &fake, &erase(action)), kind, words);
        assert_eq!(fake.state().changed, []);
    };
    check("all", ControlErrorKind::Usage, "block, crypto, overwrite");
    fake.state().controller[328] = 0b001;
    check("block", ControlErrorKind::State, "it supports: crypto");
    fake.state().namespaces = vec![1, 2];
    check("crypto", ControlErrorKind::Refused, "one of 2 namespaces");
    fake.state().namespaces = vec![2];
    check("crypto", ControlErrorKind::Device, "does not contain its namespace 1");
    fake.state().namespaces = vec![1];
    fake.state().controller[328] = 0;
    check("crypto", ControlErrorKind::State, "strake drive format pci:0000:3b:00.0 --erase crypto");
    fake.state().controller[328] = 0b111;
    fake.state().namespaces = vec![1];
    fake.state().statuses.insert(0x84, Status::INTERNAL);
    let refused = sanitized(&world, &fake, &erase("block"));
    check_refused(refused, ControlErrorKind::Device, "Sanitize failed with status 0h/06h");
    let shown = world.control().drive(PATH).expect("it is open");
    let state = shown.maintenance.map(|maintenance| maintenance.state);
    assert_eq!(state.as_deref(), Some("failed"), "the start was not confirmed");
    fake.state().controller[76] = 0b10;
    let refused = sanitized(&world, &fake, &erase("crypto"));
    check_refused(refused, ControlErrorKind::Refused, "further controllers");
}

/// The history of the bug: only the namespaces that the controller has attached were counted.
#[test]
fn d31_namespaces_without_a_controller_are_never_erased_with_another() {
    let (world, fake) = taken();
    fake.state().allocated = vec![1, 4, 7];
    let planned = SanitizeDriveRequest { dry_run: true, ..erase("block") };
    sanitized(&world, &fake, &planned).expect("the controller manages no namespaces");
    fake.state().controller[256] |= 0b1000;
    // FNA: every format, or every secure erasure, applies to all namespaces.
    for (attributes, erasure) in [(0b001, "none"), (0b010, "user")] {
        fake.state().controller[524] = attributes;
        let request = FormatDriveRequest { erase: erasure.into(), force: true, ..format() };
        let refused = formatted(&world, &fake, &request);
        let words = "has attached: 4, 7";
        check_refused(refused, ControlErrorKind::Refused, words);
    }
    let refused = sanitized(&world, &fake, &erase("block"));
    check_refused(refused, ControlErrorKind::Refused, "one of 3 namespaces");
    fake.state().fails_allocated = true;
    let refused = sanitized(&world, &fake, &erase("block"));
    check_refused(refused, ControlErrorKind::Device, "list of allocated namespaces cannot be read");
    assert_eq!(fake.state().changed, []);
    // A format of one namespace leaves the others.
    fake.state().fails_allocated = false;
    fake.state().controller[524] = 0b100;
    formatted(&world, &fake, &format()).expect("it is formatted");
}

#[test]
fn a_format_changes_the_blocks_and_closes_the_drive() {
    let (world, fake) = taken();
    let request = FormatDriveRequest { block_bytes: 512, erase: "user".into(), ..format() };
    let done = formatted(&world, &fake, &request).expect("it is formatted");
    assert_eq!(done.result, "changed");
    assert!(done.plan[0].contains("blocks of 512 bytes (format 0), secure erasure: user"));
    assert_eq!(done.drive.expect("it is shown").serial, "S1");
    assert_eq!(fake.state().changed, [(0x80, 1, 1 << 9)]);
    let open = world.control().with(|m| m.drives.named(PATH).is_some()).expect("it answers");
    assert!(!open, "the session has the earlier blocks");
    assert_eq!(events(&world, "drive_maintenance_started").len(), 1);
    assert_eq!(events(&world, "drive_maintenance_finished").len(), 1);
}

#[test]
fn an_impossible_format_is_refused_with_what_is_possible() {
    let (world, fake) = taken();
    let check = |request: FormatDriveRequest, kind, words| {
        check_refused(formatted(&world, &fake, &request), kind, words);
        assert_eq!(fake.state().changed, []);
    };
    let lbaf = |number| FormatDriveRequest { lbaf: Some(number), ..format() };
    let kind = ControlErrorKind::Refused;
    check(lbaf(2), kind, "8 bytes of metadata");
    check(lbaf(3), ControlErrorKind::State, "0 (2^9 bytes), 1 (2^12 bytes), 2 (2^12 bytes + 8)");
    check(lbaf(256), ControlErrorKind::State, "no such format");
    let both = FormatDriveRequest { block_bytes: 512, ..lbaf(0) };
    check(both, ControlErrorKind::Usage, "not both");
    let erase = |word: &str| FormatDriveRequest { erase: word.into(), ..format() };
    check(erase("all"), ControlErrorKind::Usage, "none, user, crypto");
    fake.state().controller[524] = 0b010;
    check(erase("crypto"), ControlErrorKind::State, "does not support the cryptographic");
    fake.state().namespaces = vec![1, 2];
    check(erase("user"), kind, "one of 2 namespaces");
    fake.state().controller[524] = 0b001;
    check(format(), kind, "one of 2 namespaces");
    fake.state().controller[256] = 0;
    check(format(), ControlErrorKind::State, "does not support Format NVM");
}

#[test]
fn a_long_format_continues_and_a_failed_one_keeps_the_drive_from_arrays() {
    let (world, fake) = taken();
    let (go, gate) = channel();
    fake.state().gate = Some((0x80, gate));
    world.control().with(|m| m.options.bind_limit = Duration::from_millis(1)).expect("it answers");
    let started = formatted(&world, &fake, &format()).expect("it starts");
    assert_eq!(started.result, "started");
    let shown = world.control().drive(PATH).expect("it is open");
    assert_eq!(shown.maintenance.expect("it is in progress").operation, "format");
    let idle = world.control().with(|m| m.commands.objects().is_empty());
    assert!(idle.expect("it answers"), "a stop of the daemon does not wait");
    fake.state().statuses.insert(0x80, Status::INTERNAL);
    drop(go);
    let ended = |m: &Manager| m.reserved.is_empty();
    assert!(world.control().wait_until(Duration::from_secs(60), ended).expect("it answers"));
    let failed = events(&world, "drive_maintenance_failed");
    assert!(failed[0].contains("format the drive again"), "{failed:?}");
    let is_open = world.control().with(|m| m.drives.named(PATH).is_some());
    assert!(!is_open.expect("it answers"), "the session may have the earlier blocks");
    open(&world, &fake);
    let spare = AddSpareRequest { drive: PATH.into(), ..Default::default() };
    let refused = world.control().add_spare(&spare);
    check_refused(refused, ControlErrorKind::Refused, "the format of pci:0000:3b:00.0 failed");
}

fn update(activate: &str) -> UpdateFirmwareRequest {
    UpdateFirmwareRequest { path: PATH.into(), activate: activate.into(), ..Default::default() }
}

#[test]
fn firmware_is_shown_transferred_and_stored() {
    let (world, fake) = taken();
    let request = GetFirmwareRequest { path: PATH.into() };
    let shown = firmware(world.control(), &request).expect("it answers");
    assert_eq!((shown.slots.len(), shown.activates_now), (3, true));
    let first = &shown.slots[0];
    assert_eq!((&*first.revision, first.running, first.read_only), ("1.0", true, true));
    assert_eq!(shown.slots[1].revision, "");
    let image: Vec<u8> = (0..300_u32 << 8).flat_map(u32::to_le_bytes).collect();
    let planned = UpdateFirmwareRequest { dry_run: true, ..update("now") };
    let planned = updated(&world, &fake, &planned, &[]).expect("it is planned");
    assert_eq!((&*planned.result, planned.plan.len()), ("planned", 2));
    assert_eq!(fake.state().changed, []);
    let done = updated(&world, &fake, &update("now"), &image).expect("it is stored");
    assert_eq!((&*done.result, done.warnings.len()), ("changed", 0));
    assert!(fake.state().image == image, "the image is transferred whole");
    assert_eq!(fake.state().changed.last(), Some(&(0x10, 0, 0b01_1000)));
    fake.state().image.clear();
    let slot = UpdateFirmwareRequest { slot: 2, ..update("") };
    let done = updated(&world, &fake, &slot, &image).expect("it is stored");
    assert_eq!(fake.state().changed.last(), Some(&(0x10, 0, 0b00_1010)));
    assert!(done.warnings[0].contains("runs after a reset"), "{done:?}");
    assert_eq!(events(&world, "drive_maintenance_finished").len(), 2);
}

#[test]
fn the_statuses_of_a_firmware_update_are_explained() {
    let (world, fake) = taken();
    let run = |code: u16| {
        fake.state().image.clear();
        fake.state().statuses.insert(0x10, Status::of_word((1 << 8 | code) << 1));
        updated(&world, &fake, &update("now"), &[1; 4096])
    };
    let done = run(0x10).expect("it is stored");
    assert!(done.warnings[0].contains("subsystem-reset"), "{done:?}");
    let done = run(0x0b).expect("it is stored");
    assert!(done.warnings[0].contains("power cycle"), "{done:?}");
    check_refused(run(0x07), ControlErrorKind::Device, "for another drive");
    check_refused(run(0x13), ControlErrorKind::Device, "does not permit this image");
    check_refused(run(0x06), ControlErrorKind::Device, "name another slot");
    assert_eq!(events(&world, "drive_maintenance_failed").len(), 3);
    fake.state().changed.clear();
    let check = |request: &UpdateFirmwareRequest, image: &[u8], words| {
        let refused = updated(&world, &fake, request, image).expect_err("it is refused");
        assert!(refused.what.contains(words), "{refused}");
        assert_eq!(fake.state().changed, []);
    };
    check(&update("later"), &[0; 4], "use now or reset");
    check(&UpdateFirmwareRequest { slot: 8, ..update("") }, &[0; 4], "use 1 to 7");
    check(&UpdateFirmwareRequest { slot: 1, ..update("") }, &[0; 4], "in slot 1");
    check(&update(""), &[0; 7], "a multiple of 4 bytes");
    check(&update(""), &[], "0 bytes");
    fake.state().controller[260] = 0b0_0110;
    check(&update("now"), &[0; 4], "activate the image at the next reset: return the drive");
    fake.state().controller[256] = 0;
    check(&update(""), &[0; 4], "does not support firmware updates");
}

/// An array that does not tolerate the failure of the member, a pause that is too long for I/O, and a copy.
#[test]
fn the_firmware_of_a_member_is_updated_only_with_redundancy() {
    let (world, fake) = taken();
    let drives = [PATH.to_owned(), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    let done = updated(&world, &fake, &update(""), &[1; 4096]).expect("it is stored");
    assert!(done.plan[0].contains("member 0 of array tank"), "{done:?}");
    fake.state().changed.clear();
    fake.state().image.clear();
    fake.state().controller[270] = 51;
    let long = updated(&world, &fake, &update("now"), &[1; 4096]);
    check_refused(long, ControlErrorKind::State, "for 5100 ms");
    let fail = FailMemberRequest {
        name: "tank".into(),
        member: 1,
        accept: vec!["redundancy".into()],
        ..Default::default()
    };
    world.control().fail_member(&fail).expect("it fails");
    for dry_run in [true, false] {
        let request = UpdateFirmwareRequest { dry_run, ..update("") };
        let refused = updated(&world, &fake, &request, &[1; 4096]);
        check_refused(refused, ControlErrorKind::Refused, "must have all members in sync");
    }
    assert_eq!(fake.state().changed, []);
}

/// The update concerns the whole controller.
#[test]
fn firmware_is_not_updated_beside_a_mounted_namespace() {
    let world = World::new();
    let controller = world.root.join("sys/devices/pci0000:00").join(ADDRESS).join("nvme/nvme0");
    let put = |file: &std::path::Path, text: &str| {
        std::fs::create_dir_all(file.parent().expect("it is in a folder")).expect("a folder");
        std::fs::write(file, text).expect("a file");
    };
    let block = controller.join("nvme0n2");
    for (name, text) in [("size", "2048\n"), ("dev", "259:9\n"), ("wwid", "eui.00S1n2\n")] {
        put(&block.join(name), text);
    }
    symlink(&controller, block.join("device")).expect("a link");
    symlink(&block, world.root.join("sys/block/nvme0n2")).expect("a link");
    put(&world.root.join("dev/nvme0n2"), "");
    let request = UpdateFirmwareRequest { path: world.node("nvme0n1"), ..Default::default() };
    let run = || update_firmware(world.control(), &request, &[0; 4]);
    // A file replaces the device node, and supports no ioctl.
    check_refused(run(), ControlErrorKind::Device, "firmware slots");
    let mount = "36 35 259:9 / /mnt rw - ext4 /dev/nvme0n2 rw\n";
    put(&world.root.join("proc/self/mountinfo"), mount);
    check_refused(run(), ControlErrorKind::Refused, "shares its controller with");
}
