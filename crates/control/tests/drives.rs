//! Drives as things in the world: their names, their slots, what is on them and what may be taken off them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use strake_api::v1::{
    Array, CleanDriveRequest, CreateArrayRequest, DestroyArrayRequest, Drive, ImportArraysRequest,
    LocateDriveRequest, ReplaceMemberRequest, UndeleteArrayRequest, UnloadArrayRequest,
};
use strake_control::{Control, ControlError, ControlErrorKind, Options};
use strake_dev_uring::Machine;
use strake_testkit::Folder;

const DRIVE_BYTES: u64 = 64 << 20;

/// A machine in a folder, with a manager for it. It is removed with the test.
struct World {
    control: Control,
    root: Folder,
}

impl World {
    fn new() -> Self {
        let root = Folder::new("strake-drives");
        fs::create_dir_all(root.join("sys/block")).expect("a folder can be made");
        fs::create_dir_all(root.join("dev")).expect("a folder can be made");
        Self { control: start(&root), root }
    }

    /// Stops and starts the daemon's part of it.
    fn restart(&mut self) {
        assert!(stop(&self.control).is_empty());
        // The old one releases the state directory before the new one takes it.
        self.control = start(&self.root.join("meanwhile"));
        self.control = start(&self.root);
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("it is in a folder"))
            .expect("a folder can be made");
        fs::write(path, format!("{text}\n")).expect("a file can be written");
    }

    /// An NVMe drive of the machine whose device node is a file.
    fn nvme(&self, number: u32, serial: &str) -> String {
        let function = format!("sys/devices/pci0000:00/0000:{:02x}:00.0", number + 0x3b);
        self.put(&format!("{function}/class"), "0x010802");
        let controller = format!("{function}/nvme/nvme{number}");
        let name = format!("nvme{number}n1");
        let block = format!("{controller}/{name}");
        self.put(&format!("{controller}/serial"), serial);
        self.put(&format!("{controller}/model"), "Example 9000");
        self.put(&format!("{block}/size"), &(DRIVE_BYTES / 512).to_string());
        self.put(&format!("{block}/wwid"), &format!("eui.00{serial}"));
        symlink(self.root.join(&controller), self.root.join(&block).join("device"))
            .expect("a link can be made");
        symlink(self.root.join(&block), self.root.join("sys/block").join(&name))
            .expect("a link can be made");
        self.file(&format!("dev/{name}"))
    }

    /// A drive that is a file.
    fn file(&self, name: &str) -> String {
        self.root.sparse(name, DRIVE_BYTES).display().to_string()
    }

    fn files(&self, count: usize) -> Vec<String> {
        (0..count).map(|number| self.file(&format!("drive{number}"))).collect()
    }

    fn create(&mut self, level: &str, drives: &[String]) -> Result<Array, ControlError> {
        let change = self.control.create_array(&CreateArrayRequest {
            name: "tank".into(),
            level: level.into(),
            drives: drives.to_vec(),
            ..Default::default()
        })?;
        Ok(change.array.expect("the array is told"))
    }

    fn unload(&mut self) {
        let request = UnloadArrayRequest { name: "tank".into(), ..Default::default() };
        self.control.unload_array(&request).expect("it is unloaded");
    }

    fn import(&mut self, drives: &[String], allow_degraded: bool) -> Result<Array, ControlError> {
        let request = ImportArraysRequest {
            name: "tank".into(),
            drives: drives.to_vec(),
            allow_degraded,
            ..Default::default()
        };
        self.control.import_arrays(&request)?;
        self.control.run(|m| m.array("tank"))
    }

    fn array(&self) -> Result<Array, ControlError> {
        self.control.run(|m| m.array("tank"))
    }

    fn clean(&mut self, path: &str, accept_loss: bool) -> Result<(String, Drive), ControlError> {
        let request =
            CleanDriveRequest { path: path.to_owned(), accept_loss, ..Default::default() };
        let change = self.control.clean_drive(&request)?;
        Ok((change.result, change.drive.expect("the drive is told")))
    }

    fn replace(&self, member: u32, drive: &str, overwrite: bool) -> Result<(), ControlError> {
        let (name, drive) = ("tank".to_owned(), drive.to_owned());
        let request = ReplaceMemberRequest { name, member, drive, overwrite, ..Default::default() };
        self.control.replace_member(&request).map(drop)
    }

    fn destroy(&self) {
        let request = DestroyArrayRequest { name: "tank".into(), ..Default::default() };
        self.control.destroy_array(&request).expect("it is destroyed");
    }

    fn state(&self, name: &str) -> (String, String) {
        let drive = self.control.drive(name).expect("it is there");
        (drive.state, drive.note)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // What went wrong before says more than what may go wrong here.
        let _ = stop(&self.control);
    }
}

fn start(root: &Path) -> Control {
    let options = Options { machine: Machine::at(root), ..Options::default() };
    Control::start(&root.join("state"), options).expect("it starts")
}

fn stop(control: &Control) -> Vec<ControlError> {
    control.stop()
}

fn check_refused<T>(result: Result<T, ControlError>, kind: ControlErrorKind, words: &[&str]) {
    let error = result.err().expect("it is refused");
    assert_eq!(error.kind, kind, "{error}");
    for word in words {
        assert!(error.what.contains(word), "{error} does not mention {word:?}");
    }
}

fn overwrite(path: &str, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).expect("it opens");
    file.write_all_at(bytes, at).expect("it can be written");
}

/// Flips a bit in every slot of both rings of a drive: no label on it is sound afterwards.
fn damage_labels(path: &str) {
    let file = File::options().read(true).write(true).open(path).expect("it opens");
    for ring in [64 << 10, DRIVE_BYTES - (512 << 10)] {
        for slot in 0..64 {
            let mut byte = [0];
            let at = ring + slot * 4096 + 700;
            file.read_exact_at(&mut byte, at).expect("it can be read");
            file.write_all_at(&[byte[0] ^ 1], at).expect("it can be written");
        }
    }
}

/// A drive is known by its serial number and namespace; paths, kernel names and addresses are other names of it.
#[test]
fn f20_a_drive_is_named_by_any_of_its_names() {
    let mut world = World::new();
    let paths: Vec<String> =
        (0..4).map(|number| world.nvme(number, &format!("S5AA{number}"))).collect();
    let names = ["S5AA0", "nvme1n1", "0000:3d:00.0", &paths[3]].map(str::to_owned);
    let array = world.create("6", &names).expect("it is created");
    let members: Vec<&String> = array.members.iter().map(|member| &member.path).collect();
    assert_eq!(members, paths.iter().collect::<Vec<_>>());
    for name in ["S5AA2", "nvme2n1", "3d:00.0", &paths[2]] {
        let drive = world.control.drive(name).expect("it is there");
        assert_eq!((drive.array.as_str(), drive.member), ("tank", Some(2)), "{name}");
        assert_eq!((drive.serial.as_str(), drive.slot.as_str()), ("S5AA2", "0000:3d:00.0"));
        assert_eq!((drive.kind.as_str(), drive.model.as_str()), ("nvme", "Example 9000"));
    }
    let listed = world.control.list_drives().expect("it runs");
    let states: Vec<&str> = listed.iter().map(|drive| drive.state.as_str()).collect();
    assert_eq!(states, ["member"; 4]);
    check_refused(world.control.drive("S5"), ControlErrorKind::NotFound, &["S5", "drive list"]);
    check_refused(world.create("1", &names[..1]), ControlErrorKind::Exists, &["tank"]);
}

/// F20: the kernel has given every name to another drive, and one name to none. Labels tell the members, whatever the
/// names recorded for them lead to now.
#[test]
fn f20_members_are_found_under_other_names() {
    let mut world = World::new();
    let paths: Vec<String> =
        (0..6).map(|number| world.nvme(number, &format!("S5AA{number}"))).collect();
    let uuids = |array: &Array| -> Vec<String> {
        array.members.iter().map(|member| member.uuid.clone()).collect()
    };
    let before = uuids(&world.create("6", &paths[..4]).expect("it is created"));
    assert!(stop(&world.control).is_empty());
    let swap = |a: usize, b: usize| {
        let aside = world.root.join("aside");
        fs::rename(&paths[a], &aside).expect("it can be renamed");
        fs::rename(&paths[b], &paths[a]).expect("it can be renamed");
        fs::rename(&aside, &paths[b]).expect("it can be renamed");
    };
    swap(0, 1);
    swap(2, 4);
    swap(3, 5);
    fs::remove_file(&paths[3]).expect("it is a drive without labels");
    world.restart();
    let array = world.array().expect("it is there");
    assert_eq!(array.states, ["online"], "{}", array.reason);
    assert_eq!(uuids(&array), before);
    let now = [1, 0, 4, 5].map(|at: usize| paths[at].clone());
    assert_eq!(array.members.iter().map(|member| member.path.clone()).collect::<Vec<_>>(), now);
}

/// Two ports of one drive show two block devices. To use both as members would be to lose both at once.
#[test]
fn f21_two_paths_to_one_drive_are_one_drive() {
    let mut world = World::new();
    let (first, other) = (world.nvme(0, "S5AAA"), world.nvme(2, "S5CCC"));
    let second = world.nvme(1, "S5AAA");
    let both = [first.clone(), second.clone()];
    check_refused(world.create("1", &both), ControlErrorKind::Usage, &["same drive"]);
    world.create("1", &[first.clone(), other]).expect("it is created");
    let drive = world.control.drive(&second).expect("it is there");
    assert_eq!((drive.state.as_str(), drive.member), ("member", Some(0)));
    let listed = world.control.list_drives().expect("it runs");
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!((&listed[0].path, &listed[0].aliases), (&first, &vec![second]));
}

#[test]
fn a_name_of_two_namespaces_is_refused_with_both() {
    let mut world = World::new();
    let first = world.nvme(0, "S5AAA");
    world.put("sys/block/nvme0n2/size", "131072");
    world.put("sys/block/nvme0n2/device/serial", "S5AAA");
    world.put("sys/block/nvme0n2/wwid", "eui.02");
    let second = world.file("dev/nvme0n2");
    let words = ["S5AAA", &first, &second];
    check_refused(world.control.drive("S5AAA"), ControlErrorKind::Usage, &words);
    check_refused(world.create("1", &["S5AAA".into()]), ControlErrorKind::Usage, &words);
}

#[test]
fn no_drive_is_dropped_silently() {
    let world = World::new();
    world.nvme(0, "S5AAA");
    world.nvme(1, "S5BBB");
    world.nvme(2, "S5CCC");
    world.put("sys/block/nvme0n1/size", "0");
    fs::remove_file(world.root.join("dev/nvme1n1")).expect("it was there");
    overwrite(&world.root.join("dev/nvme2n1").display().to_string(), 0, b"XFSB");
    let listed = world.control.list_drives().expect("it runs");
    let check = |at: usize, state: &str, words: &str| {
        let drive = &listed[at];
        assert_eq!(drive.state, state, "{drive:?}");
        assert!(drive.note.contains(words), "{drive:?}");
    };
    assert_eq!(listed.len(), 3);
    check(0, "failed", "no bytes");
    check(1, "failed", "cannot be read");
    check(2, "occupied", "XFS");
}

#[test]
fn a_light_blinks_or_it_is_said_where_to_look() {
    let world = World::new();
    world.nvme(0, "S5AAA");
    world.nvme(1, "S5BBB");
    world.put("sys/bus/pci/slots/7/address", "0000:3b:00");
    world.put("sys/bus/pci/slots/7/attention", "0");
    let locate = |path: &str, off: bool| {
        world.control.locate_drive(&LocateDriveRequest { path: path.to_owned(), off })
    };
    let attention = || {
        fs::read_to_string(world.root.join("sys/bus/pci/slots/7/attention")).expect("it is there")
    };
    let change = locate("S5AAA", false).expect("it blinks");
    assert!(change.plan[0].contains("PCI slot 7"), "{change:?}");
    assert_eq!(attention(), "2");
    locate("nvme0n1", true).expect("it stops");
    assert_eq!(attention(), "0");
    let words = ["no LED", "0000:3c:00.0", "S5BBB"];
    check_refused(locate("nvme1n1", false), ControlErrorKind::State, &words);
    check_refused(locate(&world.file("plain"), false), ControlErrorKind::State, &["no slot"]);
    check_refused(locate("nothing", false), ControlErrorKind::NotFound, &["nothing"]);
}

#[test]
fn a_label_that_an_array_may_need_is_not_cleaned_away() {
    let mut world = World::new();
    let drives = world.files(5);
    world.create("6", &drives[..4]).expect("it is created");
    check_refused(world.clean(&drives[0], true), ControlErrorKind::Refused, &["member 0", "tank"]);
    world.unload();
    let words = ["array tank", "member 0", "import"];
    check_refused(world.clean(&drives[0], false), ControlErrorKind::Refused, &words);
    let plan = world.control.clean_drive(&CleanDriveRequest {
        path: drives[0].clone(),
        accept_loss: true,
        dry_run: true,
    });
    let plan = plan.expect("it can be planned");
    assert_eq!((plan.result.as_str(), plan.plan.len()), ("planned", 2), "{plan:?}");
    world.import(&drives[..4], false).expect("a plan has changed nothing");
    world.unload();
    let (result, drive) = world.clean(&drives[0], true).expect("it is cleaned");
    assert_eq!(
        (result.as_str(), drive.state.as_str(), drive.note.as_str()),
        ("changed", "free", "")
    );
    assert_eq!(world.clean(&drives[0], false).expect("nothing is left").0, "unchanged");
    assert_eq!(world.clean(&drives[4], false).expect("it held nothing").0, "unchanged");
    let array = world.import(&drives[..4], true).expect("the others are an array");
    assert_eq!(array.members[0].state, "missing");
    world.unload();
    world.create("1", &[drives[0].clone(), drives[4].clone()]).expect("it is free");
}

#[test]
fn a_drive_with_something_foreign_is_never_cleaned() {
    let mut world = World::new();
    let drives = world.files(2);
    world.create("1", &drives).expect("it is created");
    world.unload();
    overwrite(&drives[0], 0x8001, b"CD001");
    let words = ["ISO 9660", "wipefs"];
    check_refused(world.clean(&drives[0], true), ControlErrorKind::Refused, &words);
    let words = ["waits for member 0", &drives[0], "ISO 9660"];
    check_refused(world.import(&drives, false), ControlErrorKind::Refused, &words);
    overwrite(&drives[0], 0x8001, &[0; 5]);
    world.import(&drives, false).expect("nothing was touched");
}

/// What another program left at the drive's end, or between our areas, must not be found again once the drive is ours:
/// a system that starts would assemble an md array of version 0.90 over a member, and a spare would be refused.
#[test]
fn what_was_overwritten_is_gone() {
    let mut world = World::new();
    let drives = world.files(3);
    for drive in &drives {
        overwrite(drive, DRIVE_BYTES - 65_536, &[0xfc, 0x4e, 0x2b, 0xa9, 0, 0, 0, 0]);
        overwrite(drive, 0x8001, b"CD001");
    }
    check_refused(world.create("1", &drives[..2]), ControlErrorKind::Refused, &["Linux md"]);
    let request = CreateArrayRequest {
        name: "tank".into(),
        level: "1".into(),
        drives: drives[..2].to_vec(),
        overwrite: true,
        ..Default::default()
    };
    world.control.create_array(&request).expect("it is told to");
    let spare = strake_api::v1::AddSpareRequest {
        drive: drives[2].clone(),
        overwrite: true,
        ..Default::default()
    };
    world.control.add_spare(&spare).expect("it is told to");
    let drive = world.control.drive(&drives[2]).expect("it is there");
    assert_eq!(drive.spare_of, "pool");
    world.unload();
    for drive in &drives[..2] {
        // Nothing foreign is in the way, and nothing is left afterwards.
        let (result, drive) = world.clean(drive, true).expect("only our own is on it");
        assert_eq!((result.as_str(), drive.note.as_str()), ("changed", ""));
    }
}

/// A member was taken out, given a file system, and offered again: the label at its end is still whole.
#[test]
fn a_member_that_was_given_a_file_system_is_not_taken_back_unasked() {
    let mut world = World::new();
    let drives = world.files(4);
    world.create("6", &drives).expect("it is created");
    world.unload();
    let array = world.import(&drives[..3], true).expect("it starts without");
    assert_eq!(array.members[3].state, "missing");
    overwrite(&drives[3], 1024 + 0x38, &[0x53, 0xef]);
    let words = ["was this member", "ext2"];
    let refused = world.replace(3, &drives[3], false);
    check_refused(refused, ControlErrorKind::Refused, &words);
    world.replace(3, &drives[3], true).expect("it may be overwritten");
}

#[test]
fn a_destroyed_array_is_named_and_its_drives_are_free() {
    let mut world = World::new();
    let drives = world.files(2);
    world.create("1", &drives).expect("it is created");
    world.destroy();
    let (state, note) = world.state(&drives[0]);
    assert_eq!(state, "free");
    assert!(note.contains("strake array undelete tank"), "{note}");
    let (result, drive) = world.clean(&drives[0], false).expect("it is not needed");
    assert_eq!((result.as_str(), drive.note.as_str()), ("changed", ""));
    world.create("1", &drives).expect("both are free");
}

/// Making an array over a destroyed one needs no consent, but its plan says that the destroyed one then comes back
/// without these members, or not at all.
#[test]
fn a_plan_over_a_destroyed_array_says_that_it_cannot_be_undone_then() {
    let mut world = World::new();
    let drives = world.files(5);
    let uuid = world.create("6", &drives).expect("it is created").uuid;
    world.destroy();
    let request = |name: &str, drives: &[String], dry_run: bool| CreateArrayRequest {
        name: name.into(),
        level: "0".into(),
        drives: drives.to_vec(),
        dry_run,
        ..Default::default()
    };
    let check = |request: &CreateArrayRequest, words: &[&str]| {
        let change = world.control.create_array(request).expect("its drives are free");
        let reported: Vec<&String> =
            change.plan.iter().filter(|s| s.contains("destroyed")).collect();
        let fits = |step: &&String| words.iter().all(|word| step.contains(word));
        assert!(reported.len() == 1 && reported.iter().all(fits), "{:?}: {words:?}", change.plan);
    };
    let some = ["members 0, 1 ", "array tank", &uuid, "only without"];
    check(&request("other", &drives[..2], true), &some);
    let all = ["members 0, 1, 2 ", "array tank", &uuid, "can no longer restore the array"];
    check(&request("other", &drives[..3], true), &all);
    check(&request("other", &drives[..2], false), &some);
    let last = ["member 2 ", "array tank", &uuid];
    check(&request("third", &drives[2..3], false), &last);
    let undelete = UndeleteArrayRequest { name: "tank".into(), ..Default::default() };
    assert!(world.control.undelete_array(&undelete).is_err(), "three of five are gone");
}

/// Too many members are not here: to start without them is no way out, and is not advised.
#[test]
fn an_array_that_misses_too_many_members_says_how_many_it_needs() {
    let mut world = World::new();
    let drives = world.files(5);
    world.create("6", &drives).expect("it is created");
    world.unload();
    let import = |here: &[String], allow_degraded: bool, dry_run: bool| {
        let request = ImportArraysRequest {
            drives: here.to_vec(),
            name: "tank".into(),
            allow_degraded,
            dry_run,
            ..Default::default()
        };
        world.control.import_arrays(&request).err().map(|e| e.what)
    };
    for dry_run in [true, false] {
        let reported = |here: &[String], degraded| {
            import(here, degraded, dry_run).expect("members are missing")
        };
        let two = reported(&drives[..1], false);
        assert!(two.contains("waits for members 1, 2, 3, 4"), "{two}");
        assert!(two.contains("cannot start without 2 more"), "{two}");
        let one = reported(&drives[..2], false);
        assert!(one.contains("cannot start without one more"), "{one}");
        let forced = reported(&drives[..2], true);
        assert!(forced.contains("too many members") && forced.contains("one more"), "{forced}");
        let enough = reported(&drives[..3], false);
        assert!(enough.contains("start without it") && !enough.contains("more"), "{enough}");
    }
}

/// F22: a drive has become smaller since it was a member. It takes no part, and is no replacement either.
#[test]
fn f22_a_drive_that_shrank_takes_no_part() {
    let mut world = World::new();
    let mut drives = world.files(5);
    world.create("6", &drives[..4]).expect("it is created");
    world.unload();
    let small = drives.remove(4);
    for path in [&drives[1], &small] {
        let file = File::options().write(true).open(path).expect("it opens");
        file.set_len(DRIVE_BYTES - (8 << 20)).expect("it can be cut");
    }
    check_refused(world.import(&drives, false), ControlErrorKind::Refused, &["member 1"]);
    let array = world.import(&drives, true).expect("it starts without");
    assert_eq!(array.members[1].state, "missing");
    for drive in [&small, &drives[1]] {
        let error = world.replace(1, drive, true).expect_err("it is too small");
        assert!(error.what.contains(drive.as_str()), "{error}");
    }
}

/// F23: a drive with larger blocks than the array's cannot join it: a write of one block would tear.
#[test]
fn f23_a_drive_with_larger_blocks_is_refused() {
    let mut world = World::new();
    let drives = world.files(2);
    if world.create("1", &drives).expect("it is created").block_bytes == 4096 {
        // The file system of this folder does direct I/O in 4 KiB only, and there is no drive with larger blocks.
        println!("left out: files here have blocks of 4096 bytes");
        return;
    }
    let fail = strake_api::v1::FailMemberRequest {
        name: "tank".into(),
        member: 1,
        accept: vec!["redundancy".into()],
        ..Default::default()
    };
    world.control.fail_member(&fail).expect("it fails");
    let error = world.replace(1, "ram:64MiB", false).expect_err("it has larger blocks");
    assert!(error.what.contains("4096") && error.what.contains("512"), "{error}");
}

/// F24: every label of a drive is damaged. It is foreign: not assembled, not taken without `overwrite`, not guessed.
#[test]
fn f24_a_drive_whose_labels_are_all_damaged_is_foreign() {
    let mut world = World::new();
    let drives = world.files(4);
    world.create("6", &drives).expect("it is created");
    world.unload();
    damage_labels(&drives[2]);
    let (state, note) = world.state(&drives[2]);
    assert_eq!(state, "occupied");
    assert!(note.contains("damaged Strake labels"), "{note}");
    check_refused(world.import(&drives, false), ControlErrorKind::Refused, &["member 2"]);
    let array = world.import(&drives, true).expect("it starts without");
    assert_eq!(array.members[2].state, "missing");
    let refused = world.replace(2, &drives[2], false);
    check_refused(refused, ControlErrorKind::Refused, &["damaged Strake labels"]);
    let words = ["is unknown"];
    check_refused(world.clean(&drives[2], false), ControlErrorKind::Refused, &words);
    world.replace(2, &drives[2], true).expect("it may be overwritten");
    world.restart();
    assert_ne!(world.array().expect("it is there").members[2].state, "missing");
}
