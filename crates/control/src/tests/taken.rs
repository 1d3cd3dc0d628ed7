//! Drives that are taken from the kernel and released, on simulated hosts in a directory. A function simulates the
//! kernel.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use strake_api::v1::{AddSpareRequest, DriverChanges, ReleaseDrivesRequest, TakeDrivesRequest};

use super::mirror;
use crate::error::ControlErrorKind;
use crate::limits::TAKEN_MAX;
use crate::record::store::{Aim, SpareRecord, TakenRecord};

mod again;
mod health;
mod maintenance;
mod release;
mod world;

use world::World;

const ADDRESS: &str = "0000:3b:00.0";
const OTHER: &str = "0000:3c:00.0";

fn only(changes: &DriverChanges) -> (&str, &str) {
    assert_eq!(changes.drives.len(), 1);
    assert_eq!(changes.result, changes.drives[0].result);
    (&changes.drives[0].result, &changes.drives[0].path)
}

#[test]
fn a_drive_is_taken_and_released_by_every_name_and_twice() {
    let world = World::new();
    let (node, path) = (world.node("nvme0n1"), "pci:0000:3b:00.0");
    for name in [&node, "S1", "eui.00S1", ADDRESS, "3b:00.0", path] {
        assert_eq!(only(&world.take(name).expect("it is taken")), ("changed", path), "{name}");
        world.is_taken(ADDRESS, "S1");
        for again in ["S1", ADDRESS, path] {
            assert_eq!(only(&world.take(again).expect("it is taken")), ("unchanged", path));
        }
        assert_eq!(only(&world.release("S1").expect("it is released")), ("changed", &*node));
        world.is_free(ADDRESS);
        for again in [&node, "S1", ADDRESS, path] {
            let released = world.release(again).expect("it is released");
            assert_eq!(only(&released), ("unchanged", &*node));
        }
    }
}

#[test]
fn a_dry_run_prints_every_write_and_does_none() {
    let world = World::new();
    let drives = vec!["S1".to_owned(), "S2".to_owned()];
    let request = TakeDrivesRequest { drives: drives.clone(), dry_run: true };
    let planned = world.control().take_drives(&request).expect("it is planned");
    assert_eq!(planned.result, "planned");
    assert_eq!(
        planned.drives[1].plan,
        [
            "record that the drive S2 is taken",
            "write vfio-pci to /sys/bus/pci/devices/0000:3c:00.0/driver_override",
            "write 0000:3c:00.0 to /sys/bus/pci/devices/0000:3c:00.0/driver/unbind",
            "write 0000:3c:00.0 to /sys/bus/pci/drivers_probe",
        ]
    );
    assert_eq!(world.fake.writes.load(Ordering::SeqCst), 0);
    world.is_free(ADDRESS);
    let request = TakeDrivesRequest { drives: drives.clone(), dry_run: false };
    assert_eq!(world.control().take_drives(&request).expect("both are taken").result, "changed");
    let request = ReleaseDrivesRequest { drives, dry_run: true };
    let planned = world.control().release_drives(&request).expect("it is planned");
    assert_eq!(
        planned.drives[0].plan,
        [
            "record that the drive S1 is to be released",
            "close pci:0000:3b:00.0",
            "write 0000:3b:00.0 to /sys/bus/pci/devices/0000:3b:00.0/driver/unbind",
            "write an empty line to /sys/bus/pci/devices/0000:3b:00.0/driver_override",
            "write 0000:3b:00.0 to /sys/bus/pci/drivers_probe",
            "delete the record that the drive S1 is taken",
        ]
    );
    assert_eq!(world.fake.writes.load(Ordering::SeqCst), 6);
    assert_eq!(world.taken().len(), 2);
}

/// Checks that a drive is refused with `words`, also by a dry run, and that nothing was changed. The preceding drive in
/// the same request is not taken either.
fn check_refused(world: &World, words: &[&str]) {
    for dry_run in [true, false] {
        let drives = vec!["S2".to_owned(), ADDRESS.to_owned()];
        let refused = world.control().take_drives(&TakeDrivesRequest { drives, dry_run });
        let error = refused.expect_err("it is in use");
        assert_eq!(error.kind, ControlErrorKind::Refused, "{error}");
        assert!(words.iter().all(|word| error.what.contains(word)), "{words:?}: {error}");
        assert_eq!(world.fake.writes.load(Ordering::SeqCst), 0);
        world.is_free(OTHER);
    }
}

#[test]
fn d27_a_drive_in_use_is_refused_before_anything_is_written() {
    let block = format!("sys/devices/pci0000:00/{ADDRESS}/nvme/nvme0/nvme0n1");
    let check = |change: &dyn Fn(&World), words: &[&str]| {
        let world = World::new();
        change(&world);
        check_refused(&world, words);
    };
    let put = |world: &World, file: &str, text: &str| {
        let file = world.root.join(file);
        fs::create_dir_all(file.parent().expect("it is in a folder")).expect("a folder");
        fs::write(file, text).expect("a file");
    };
    let mount = "36 35 259:0 / /mnt rw - ext4 /dev/nvme0n1 rw\n";
    check(&|w| put(w, "proc/self/mountinfo", mount), &["nvme0n1", "mounted at /mnt", "unmount"]);
    // The drive holds the file system of the host in a partition.
    check(
        &|w| {
            put(w, &format!("{block}/nvme0n1p2/partition"), "2\n");
            put(w, &format!("{block}/nvme0n1p2/dev"), "259:7\n");
            put(w, "proc/self/mountinfo", "1 0 259:7 / / rw - ext4 /dev/root rw\n");
        },
        &["mounted at /"],
    );
    let swap = "Filename\tType\tSize\n/dev/nvme0n1 partition 1 0 -2\n";
    check(&|w| put(w, "proc/swaps", swap), &["swap", "try again"]);
    check(
        &|w| fs::create_dir_all(w.root.join(&block).join("holders/dm-3")).expect("a folder"),
        &["part of dm-3", "built on the drive"],
    );
    check(
        &|w| {
            let node = PathBuf::from(w.node("nvme0n1"));
            *w.fake.busy.lock().expect("no test has failed") = Some(node);
        },
        &["nvme0n1", "is open in another program", "fuser"],
    );
    // Other controllers of the same drive.
    check(
        &|w| w.host.set(ADDRESS, "class", "0x010601"),
        &["pci:0000:3b:00.0", "no NVMe controller"],
    );
    check(&|w| w.host.set(ADDRESS, "sriov_numvfs", "2"), &["2 virtual functions"]);
    let group = format!("sys/devices/pci0000:00/{ADDRESS}/iommu_group");
    check(&|w| fs::remove_file(w.root.join(&group)).expect("it is there"), &["no IOMMU"]);
    check(
        &|w| {
            w.host.add("0000:3b:00.1", "0x020000", Some(0));
            w.host.bind("0000:3b:00.1", "e1000e");
        },
        &["0000:3b:00.1", "e1000e"],
    );
}

#[test]
fn a_host_without_vfio_says_what_to_load() {
    let world = World::new();
    fs::remove_dir(world.root.join("sys/bus/pci/drivers/vfio-pci")).expect("it is there");
    let error = world.take("S1").expect_err("it is not loaded");
    assert!(error.what.contains("modprobe vfio-pci"), "{error}");
    world.is_free(ADDRESS);
}

#[test]
fn members_and_spares_are_neither_taken_nor_released() {
    let world = World::new();
    let drives = [world.node("nvme0n1"), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    let error = world.take("S1").expect_err("it is a member");
    assert!(error.what.contains("member 0 of array"), "{error}");
    assert!(error.what.contains("strake array unload"), "{error}");
    world.is_free(ADDRESS);

    let world = World::new();
    let spare = AddSpareRequest { drive: world.node("nvme0n1"), ..Default::default() };
    world.control().add_spare(&spare).expect("it is empty");
    let error = world.take("S1").expect_err("it is a spare");
    assert!(error.what.contains("is a spare") && error.what.contains("spare remove"), "{error}");
    world.is_free(ADDRESS);

    let world = World::new();
    world.take("S1").expect("it is taken");
    let spare = SpareRecord {
        path: "pci:0000:3b:00.0".into(),
        identity: "wwid:eui.00S1".into(),
        bytes: 1,
        array: String::new(),
    };
    let with = |m: &mut crate::Manager| m.records.change(|config| config.spares.push(spare));
    world.control().run(with).expect("it is recorded");
    let error = world.release("S1").expect_err("it is a spare");
    assert!(error.what.contains("is a spare"), "{error}");
    world.is_taken(ADDRESS, "S1");
}

#[test]
fn what_others_bound_is_not_released_and_can_be_taken_over() {
    let world = World::new();
    for (file, text) in [("driver_override", "vfio-pci"), ("driver/unbind", ADDRESS)] {
        let file = format!("sys/bus/pci/devices/{ADDRESS}/{file}");
        world.host.write(&file, text).expect("the kernel does it");
    }
    let error = world.take(ADDRESS).expect_err("its serial number is unknown");
    assert!(error.what.contains("it has no driver"), "{error}");
    world.host.write("sys/bus/pci/drivers_probe", ADDRESS).expect("the kernel does it");
    let error = world.release(ADDRESS).expect_err("it is not ours");
    assert!(error.what.contains("was not taken by this daemon"), "{error}");
    assert_eq!(only(&world.take(ADDRESS).expect("it is taken")).0, "changed");
    world.is_taken(ADDRESS, "S1");
    assert_eq!(world.fake.writes.load(Ordering::SeqCst), 0);
}

#[test]
fn a_drive_that_does_not_come_up_or_is_another_one_is_given_back() {
    let world = World::new();
    world.fake.is_dead.store(true, Ordering::SeqCst);
    let error = world.take("S1").expect_err("it is dead");
    assert!(error.what.contains("does not become ready"), "{error}");
    assert!(error.what.contains("was given back to the kernel"), "{error}");
    world.is_free(ADDRESS);
    world.fake.is_dead.store(false, Ordering::SeqCst);
    *world.fake.answers.lock().expect("no test has failed") = Some("S9".to_owned());
    let error = world.take("S1").expect_err("it is another one");
    assert!(error.what.contains("serial number S9 (model ), not S1"), "{error}");
    world.is_free(ADDRESS);
}

/// An upper limit of the steps of a request at which it may be interrupted.
const STEPS: usize = 16;

/// Interrupts a request at every step. `check` returns true if the interruption came before the end of the request.
fn each_cut(mut check: impl FnMut(usize) -> bool) {
    let cuts = (0..STEPS).filter(|&cut| check(cut)).count();
    assert!((6..STEPS).contains(&cuts), "{cuts} cuts");
}

#[test]
fn d24_a_take_that_was_killed_at_any_step_is_completed_exhaustive() {
    for restarted in [false, true] {
        each_cut(|cut| {
            let mut world = World::new();
            world.fake.cut_after(Some(cut));
            let was_cut = world.take("S1").is_err();
            world.fake.cut_after(None);
            if restarted {
                world.host.reboot();
            }
            world.start();
            world.is_taken(ADDRESS, "S1");
            assert_eq!(world.not_taken(), [""; 0], "cut {cut}");
            assert_eq!(only(&world.take("S1").expect("it is taken")).0, "unchanged");
            was_cut
        });
    }
    each_cut(|cut| {
        let world = World::new();
        world.fake.cut_after(Some(cut));
        let was_cut = world.take("S1").is_err();
        world.fake.cut_after(None);
        // The same daemon completes the operation, as after an unresponsive drive.
        world.take("S1").expect("it is completed");
        world.is_taken(ADDRESS, "S1");
        was_cut
    });
}

#[test]
fn d24_a_release_that_was_killed_at_any_step_is_completed_exhaustive() {
    for restarted in [false, true] {
        each_cut(|cut| {
            let mut world = World::new();
            world.take("S1").expect("it is taken");
            world.fake.cut_after(Some(cut));
            let was_cut = world.release("S1").is_err();
            world.fake.cut_after(None);
            if restarted {
                world.host.reboot();
            }
            world.start();
            world.is_free(ADDRESS);
            assert_eq!(world.not_taken(), [""; 0], "cut {cut}");
            was_cut
        });
    }
    each_cut(|cut| {
        let world = World::new();
        world.take("S1").expect("it is taken");
        world.fake.cut_after(Some(cut));
        let was_cut = world.release(ADDRESS).is_err();
        world.fake.cut_after(None);
        world.release(ADDRESS).expect("it is completed");
        world.is_free(ADDRESS);
        was_cut
    });
}

#[test]
fn d24_a_start_that_was_killed_at_any_step_is_completed_exhaustive() {
    each_cut(|cut| {
        let mut world = World::new();
        world.take("S1").expect("it is taken");
        world.host.reboot();
        world.fake.cut_after(Some(cut));
        world.start();
        let causes = world.not_taken();
        // The start cannot distinguish an interruption from an unresponsive drive, and continues.
        let was_cut = causes.iter().any(|cause| cause.contains("has not answered"));
        assert_eq!(was_cut, !causes.is_empty(), "{causes:?}");
        world.fake.cut_after(None);
        world.start();
        world.is_taken(ADDRESS, "S1");
        assert_eq!(world.not_taken().len(), causes.len(), "cut {cut}");
        was_cut
    });
}

#[test]
fn d24_an_undo_that_was_killed_at_any_step_is_completed_exhaustive() {
    let cuts = (0..2 * STEPS).filter(|&cut| {
        let mut world = World::new();
        *world.fake.answers.lock().expect("no test has failed") = Some("S9".to_owned());
        world.fake.cut_after(Some(cut));
        world.take("S1").expect_err("it is another one or killed");
        let is_over =
            world.fake.left.lock().expect("no test has failed").is_some_and(|left| left > 0);
        world.fake.cut_after(None);
        world.start();
        world.is_free(ADDRESS);
        !is_over
    });
    assert!((12..2 * STEPS).contains(&cuts.count()));
}

#[test]
fn a_start_takes_a_drive_by_its_serial_number_wherever_it_is() {
    let mut world = World::new();
    world.take("S1").expect("it is taken");
    world.host.swap(ADDRESS, OTHER);
    world.start();
    world.is_taken(OTHER, "S1");
    assert_eq!(world.host.driver(ADDRESS).as_deref(), Some("nvme"));
    assert_eq!(world.not_taken(), [""; 0]);
    assert_eq!(only(&world.release("S1").expect("it is released")).0, "changed");
    world.is_free(OTHER);
}

#[test]
fn paths_of_arrays_and_spares_follow_drives_that_changed_places() {
    let mut world = World::new();
    world.take("S1").expect("it is taken");
    world.take("S2").expect("it is taken");
    let spare = |serial: &str, address: &str| SpareRecord {
        path: format!("pci:{address}"),
        identity: format!("wwid:eui.00{serial}"),
        bytes: 1,
        array: String::new(),
    };
    let spares = vec![spare("S1", ADDRESS), spare("S2", OTHER)];
    let with = |m: &mut crate::Manager| m.records.change(|config| config.spares = spares);
    world.control().run(with).expect("it is recorded");
    world.host.swap(ADDRESS, OTHER);
    world.start();
    let spares = world.control().with(|m| m.records.spares.clone()).expect("it answers");
    assert_eq!(spares, [spare("S1", OTHER), spare("S2", ADDRESS)]);
    for address in [ADDRESS, OTHER] {
        assert_eq!(world.host.driver(address).as_deref(), Some("vfio-pci"));
    }
}

/// History: the record of the array had the PCI addresses of drives that the kernel drives again, and the array was not
/// found.
#[test]
fn an_array_on_drives_that_were_released_is_found_by_its_labels() {
    let mut world = World::new();
    let drives = [world.node("nvme0n1"), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    let paths = [ADDRESS, OTHER].map(|address| format!("pci:{address}")).to_vec();
    let with = |m: &mut crate::Manager| m.records.change(|config| config.arrays[0].drives = paths);
    world.control().run(with).expect("it is recorded");
    assert_eq!(world.control().stop().len(), 0);
    world.start();
    let array = super::array(world.control(), "tank").expect("it is known");
    assert_eq!(array.states, ["online"]);
}

#[test]
fn what_cannot_be_taken_again_is_an_event_and_stays_recorded() {
    // The drive is mounted since the host restarted.
    let mut world = World::new();
    world.take("S1").expect("it is taken");
    world.host.reboot();
    let mounts = world.root.join("proc/self");
    fs::create_dir_all(&mounts).expect("a folder");
    fs::write(mounts.join("mountinfo"), "36 35 259:0 / /mnt rw - ext4 x rw\n").expect("a file");
    world.start();
    let causes = world.not_taken();
    assert!(causes.len() == 1 && causes[0].contains("mounted at /mnt"), "{causes:?}");
    assert_eq!(world.host.driver(ADDRESS).as_deref(), Some("nvme"));
    assert_eq!(world.taken().len(), 1);
    // The drive is no longer mounted.
    fs::remove_file(mounts.join("mountinfo")).expect("it is there");
    assert_eq!(only(&world.take("S1").expect("it is taken")).0, "changed");
    world.is_taken(ADDRESS, "S1");

    // Another drive is at the address.
    let mut world = World::new();
    world.take("S1").expect("it is taken");
    world.host.reboot();
    world.host.set(ADDRESS, "serial", "S7");
    world.host.set(&format!("{ADDRESS}/nvme/nvme0"), "serial", "S7");
    world.start();
    let causes = world.not_taken();
    assert!(causes.len() == 1 && causes[0].contains("no drive of this host has"), "{causes:?}");
    assert_eq!(world.host.driver(ADDRESS).as_deref(), Some("nvme"));
    assert_eq!(world.taken().len(), 1);
    world.release("S1").expect("its record is removed");
    assert_eq!(world.taken(), []);
    assert_eq!(world.host.driver(ADDRESS).as_deref(), Some("nvme"));

    // A drive that remained bound is another drive: it is not changed.
    let mut world = World::new();
    world.take("S1").expect("it is taken");
    world.host.set(ADDRESS, "serial", "S7");
    world.start();
    let causes = world.not_taken();
    assert!(
        causes.len() == 1 && causes[0].contains("serial number S7 (model ), not S1"),
        "{causes:?}"
    );
    assert_eq!(world.host.driver(ADDRESS).as_deref(), Some("vfio-pci"));

    // The drive fails to start after the restart of the host: the kernel drives it.
    let mut world = World::new();
    world.take("S1").expect("it is taken");
    world.host.reboot();
    world.fake.is_dead.store(true, Ordering::SeqCst);
    world.start();
    let causes = world.not_taken();
    assert!(causes.len() == 1 && causes[0].contains("given back"), "{causes:?}");
    assert_eq!(world.host.driver(ADDRESS).as_deref(), Some("nvme"));
    assert_eq!(world.host.get(ADDRESS, "driver_override"), "(null)");
}

/// Some vendors give several drives the same serial number.
#[test]
fn a_drive_with_the_serial_number_of_a_taken_one_is_not_taken_for_it() {
    let twins = || {
        let world = World::new();
        world.take("S1").expect("it is taken");
        world.host.set(OTHER, "serial", "S1");
        world.host.set(&format!("{OTHER}/nvme/nvme1"), "serial", "S1");
        world
    };
    let error = twins().take(OTHER).expect_err("it would be lost");
    assert!(error.what.contains("as the taken drive pci:0000:3b:00.0"), "{error}");
    let mut world = twins();
    world.start();
    world.is_taken(ADDRESS, "S1");
    assert_eq!(world.host.driver(OTHER).as_deref(), Some("nvme"));
    // After a restart of the host, the address distinguishes the drives.
    let mut world = twins();
    world.host.reboot();
    world.start();
    world.is_taken(ADDRESS, "S1");
    assert_eq!(world.host.driver(OTHER).as_deref(), Some("nvme"));
    // The drive is at a third address, and two other drives have its serial number.
    let mut world = twins();
    world.host.reboot();
    let elsewhere = TakenRecord {
        serial: "S1".into(),
        address: "0000:7f:00.0".into(),
        aim: Aim::Taken,
        ..Default::default()
    };
    let with = |m: &mut crate::Manager| m.records.change(|config| config.put_taken(elsewhere));
    world.control().run(with).expect("it is recorded");
    world.start();
    let causes = world.not_taken();
    assert!(causes.len() == 1 && causes[0].contains("drives at several addresses"), "{causes:?}");
}

/// The record of a removed drive must not apply to the drive that is at its address now.
#[test]
fn the_record_of_a_drive_that_left_is_removed_without_touching_the_next() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    world.host.swap(ADDRESS, OTHER);
    // S2 is at the address of S1 now, and is also taken. S1 was removed.
    world.take(ADDRESS).expect("it is taken");
    world.host.set(OTHER, "serial", "S7");
    world.host.set(&format!("{OTHER}/nvme/nvme0"), "serial", "S7");
    let released = world.release("S1").expect("its record is removed");
    assert_eq!(released.drives[0].plan, ["delete the record that the drive S1 is taken"]);
    world.is_taken(ADDRESS, "S2");
}

#[test]
fn a_taken_drive_that_is_not_open_is_listed() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    let find = |world: &World| {
        let all = world.control().list_drives().expect("it answers");
        let found = all.into_iter().find(|drive| drive.path == "pci:0000:3b:00.0");
        found.map(|drive| (drive.state, drive.serial))
    };
    assert_eq!(find(&world), Some(("taken".into(), "S1".into())));
    world.host.reboot();
    assert_eq!(find(&world), Some(("failed".into(), "S1".into())));
    let shown = world.control().drive("pci:0000:3b:00.0").expect("it is recorded");
    assert_eq!(shown.note, "is recorded as taken, and is not bound to vfio-pci");
}

#[test]
fn requests_that_name_nothing_are_usage_errors() {
    let world = World::new();
    let check = |drives: &[&str], kind: ControlErrorKind, words: &str| {
        let drives = drives.iter().map(|&drive| drive.to_owned()).collect();
        let refused = world.control().take_drives(&TakeDrivesRequest { drives, dry_run: false });
        let error = refused.expect_err("it names nothing");
        assert!(error.kind == kind && error.what.contains(words), "{error}");
    };
    check(&[], ControlErrorKind::Usage, "at least one drive");
    let record = |number: usize| TakenRecord {
        serial: format!("N{number}"),
        address: "0000:7f:00.0".into(),
        aim: Aim::Taken,
        ..Default::default()
    };
    let full = (0..TAKEN_MAX).map(record).collect();
    let with = |m: &mut crate::Manager| m.records.change(|config| config.taken = full);
    world.control().run(with).expect("it is recorded");
    check(&["S1"], ControlErrorKind::State, "257 drives would be taken");
    check(&["S5"], ControlErrorKind::Usage, "serial number");
    check(&["0000:7f:00.0"], ControlErrorKind::NotFound, "no PCI device");
    check(&["/etc/hostname"], ControlErrorKind::Usage, "not on the PCI bus");
}
