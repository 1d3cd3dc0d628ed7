//! Drives that are taken again, at a start and later, and never instead of other drives.

use std::fs;
use std::sync::atomic::Ordering;

use super::world::World;
use super::{ADDRESS, OTHER};
use crate::actions::Pace;
use crate::limits::HELD_ROUNDS;
use crate::record::store::{Aim, CopyRecord, SpareRecord, TakenRecord};
use crate::tests::{array, mirror};
use crate::upkeep::appeared::notice_appeared;
use crate::upkeep::readd::readd_returned;
use crate::upkeep::taken::{Found, resume};

const VFIO: &str = "sys/bus/pci/drivers/vfio-pci";

/// Another drive with the serial number S1 is at OTHER, and S1 was removed.
fn replaced_by(attribute: &str, value: &str) -> World {
    let world = World::new();
    world.host.set(OTHER, "wwid", "eui.00S1");
    world.take("S1").expect("it is taken");
    world.host.set(OTHER, attribute, value);
    world.host.set(ADDRESS, "wwid", "eui.00S7");
    world.host.reboot();
    world.rename(OTHER, "S1");
    world.rename(ADDRESS, "S7");
    world
}

/// A serial number is unique only among the drives of one vendor.
#[test]
fn another_drive_with_its_serial_number_is_not_taken_for_it() {
    for (attribute, value) in [("wwid", "eui.00S2"), ("model", "Other")] {
        let mut world = replaced_by(attribute, value);
        world.start();
        let causes = world.not_taken();
        assert!(causes.len() == 1 && causes[0].contains("no drive of this host has"), "{causes:?}");
        assert_eq!(world.host.driver(OTHER).as_deref(), Some("nvme"));
        assert_eq!(world.taken()[0].address, ADDRESS);
        let error = world.take(OTHER).expect_err("the record of S1 would be lost");
        assert!(error.what.contains("as the taken drive"), "{error}");
    }
    // The same drive is at another address.
    let mut world = replaced_by("wwid", "eui.00S1");
    world.start();
    world.is_taken(OTHER, "S1");
}

#[test]
fn one_of_two_drives_that_nothing_tells_apart_is_not_taken() {
    let mut world = World::new();
    world.host.set(OTHER, "wwid", "eui.00S1");
    world.take("S1").expect("it is taken");
    world.host.reboot();
    world.host.set(&format!("{OTHER}/nvme/nvme1/nvme1n1"), "wwid", "eui.00S1");
    world.rename(OTHER, "S1");
    world.start();
    let causes = world.not_taken();
    assert!(causes.len() == 1 && causes[0].contains("drives at several addresses"), "{causes:?}");
    for address in [ADDRESS, OTHER] {
        assert_eq!(world.host.driver(address).as_deref(), Some("nvme"));
    }
}

/// The model that the controller reports is also compared.
#[test]
fn a_controller_of_another_model_is_given_back() {
    let world = World::new();
    world.fake.other.lock().expect("no test has failed").model = "Other".to_owned();
    let error = world.take("S1").expect_err("it is another one");
    assert!(error.what.contains("(model Other)"), "{error}");
    world.is_free(ADDRESS);
}

#[test]
fn a_drive_without_a_serial_number_is_refused() {
    let world = World::new();
    world.rename(ADDRESS, "");
    let error = world.take(ADDRESS).expect_err("it would not be found again");
    assert!(error.what.contains("has no serial number"), "{error}");
    assert_eq!(world.fake.writes.load(Ordering::SeqCst), 0);
}

/// Another program set the driver override after the host restarted.
#[test]
fn an_override_of_another_program_is_neither_completed_nor_removed() {
    for (aim, left) in [(Aim::Taken, 1), (Aim::Again, 1), (Aim::Take, 0), (Aim::Release, 0)] {
        for bound in [false, true] {
            let mut world = World::new();
            world.take("S1").expect("it is taken");
            let record = TakenRecord { aim, ..world.taken()[0].clone() };
            let with = |m: &mut crate::Manager| m.records.change(|config| config.put_taken(record));
            world.control().run(with).expect("it is recorded");
            world.host.reboot();
            for (file, text) in [("driver_override", "vfio-pci"), ("driver/unbind", ADDRESS)] {
                let file = format!("sys/bus/pci/devices/{ADDRESS}/{file}");
                world.host.write(&file, text).expect("the kernel does it");
            }
            if bound {
                world.host.write("sys/bus/pci/drivers_probe", ADDRESS).expect("the kernel does it");
            }
            world.rename(ADDRESS, "S7");
            let writes = world.fake.writes.load(Ordering::SeqCst);
            world.start();
            assert_eq!(world.fake.writes.load(Ordering::SeqCst), writes, "{aim:?} {bound}");
            assert_eq!(world.host.get(ADDRESS, "driver_override"), "vfio-pci");
            assert_eq!(world.taken().len(), left, "{aim:?} {bound}");
        }
    }
}

/// The host restarted without the module vfio-pci.
#[test]
fn a_drive_that_could_not_be_taken_is_taken_later() {
    let mut world = World::new();
    world.take("S1").expect("it is taken");
    world.host.reboot();
    fs::remove_dir(world.root.join(VFIO)).expect("it is there");
    world.start();
    let causes = world.not_taken();
    assert!(causes.len() == 1 && causes[0].contains("modprobe vfio-pci"), "{causes:?}");
    fs::create_dir(world.root.join(VFIO)).expect("a folder");
    world.control().tick().expect("it answers");
    world.is_taken(ADDRESS, "S1");
    assert_eq!(world.not_taken().len(), 1);
}

/// A drive is not taken from an array that was started on it with the driver of the kernel.
#[test]
fn a_drive_that_is_in_use_is_not_taken_later() {
    let mut world = World::new();
    let drives = [world.node("nvme0n1"), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    assert_eq!(world.control().stop().len(), 0);
    world.start();
    let record = TakenRecord { serial: "S1".into(), address: ADDRESS.into(), ..Default::default() };
    let with = |m: &mut crate::Manager| m.records.change(|config| config.put_taken(record));
    world.control().run(with).expect("it is recorded");
    world.control().tick().expect("it answers");
    assert_eq!(world.host.driver(ADDRESS).as_deref(), Some("nvme"));
    let causes = world.not_taken();
    assert!(causes.len() == 1 && causes[0].contains("in use by this daemon"), "{causes:?}");
}

/// History: the drive was taken only by the next periodic attempt, 15 s later.
#[test]
fn d15_a_taken_drive_that_returns_is_taken_at_once() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    world.control().tick().expect("it answers");
    world.host.reboot();
    for _ in 0..2 {
        world.control().tick().expect("it answers");
    }
    world.is_taken(ADDRESS, "S1");
}

/// An array whose member S2 is a taken drive that is not in the host.
fn without_a_taken_member() -> World {
    let mut world = World::new();
    let drives = [world.node("nvme0n1"), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    assert_eq!(world.control().stop().len(), 0);
    let unbind = format!("sys/bus/pci/devices/{OTHER}/driver/unbind");
    world.host.write(&unbind, OTHER).expect("the kernel does it");
    world.start();
    let record = TakenRecord { serial: "S2".into(), address: OTHER.into(), ..Default::default() };
    let with = |m: &mut crate::Manager| m.records.change(|config| config.put_taken(record));
    world.control().run(with).expect("it is recorded");
    world.control().tick().expect("it answers");
    assert_eq!(states(&world), ["in_sync", "missing"]);
    world
}

fn states(world: &World) -> Vec<String> {
    let tank = array(world.control(), "tank").expect("it is known");
    tank.members.into_iter().map(|member| member.state).collect()
}

/// History: if upkeep found the drive first, the array used it with the driver of the kernel. From then on the drive
/// was in use, and was not taken.
#[test]
fn d15_a_taken_drive_that_returns_is_not_used_by_the_kernels_driver() {
    let world = without_a_taken_member();
    world.host.write("sys/bus/pci/drivers_probe", OTHER).expect("the kernel does it");
    for _ in 0..2 {
        world.control().tick().expect("it answers");
    }
    assert_eq!(world.host.driver(OTHER).as_deref(), Some("vfio-pci"));
    assert_eq!(world.not_taken(), [""; 0]);
}

#[test]
fn d15_a_returned_drive_that_cannot_be_taken_is_used_by_the_kernels_driver() {
    let world = without_a_taken_member();
    fs::remove_dir(world.root.join(VFIO)).expect("it is there");
    world.host.write("sys/bus/pci/drivers_probe", OTHER).expect("the kernel does it");
    for _ in 0..HELD_ROUNDS {
        world.control().tick().expect("it answers");
    }
    assert_eq!(states(&world)[1], "missing");
    for _ in 0..2 {
        world.control().tick().expect("it answers");
    }
    let causes = world.not_taken();
    assert!(causes.len() == 1 && causes[0].contains("modprobe vfio-pci"), "{causes:?}");
    assert_ne!(states(&world)[1], "missing");
}

/// Other programs inspect a drive that appears. History: after the first failed attempt, the array used the drive with
/// the driver of the kernel.
#[test]
fn d15_a_returned_drive_that_is_open_for_a_moment_is_taken() {
    let world = without_a_taken_member();
    world.set_busy(Some("nvme1n1"));
    world.host.write("sys/bus/pci/drivers_probe", OTHER).expect("the kernel does it");
    for _ in 0..3 {
        world.control().tick().expect("it answers");
        assert_eq!(states(&world), ["in_sync", "missing"]);
    }
    world.set_busy(None);
    world.control().tick().expect("it answers");
    assert_eq!(world.host.driver(OTHER).as_deref(), Some("vfio-pci"));
    assert_eq!(world.not_taken(), [""; 0]);
}

/// History: the array started on the block devices of the kernel, and its drives could not be taken.
#[test]
fn d15_an_array_waits_until_its_returned_drives_are_taken() {
    let mut world = World::new();
    let drives = [world.node("nvme0n1"), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    assert_eq!(world.control().stop().len(), 0);
    for address in [ADDRESS, OTHER] {
        let unbind = format!("sys/bus/pci/devices/{address}/driver/unbind");
        world.host.write(&unbind, address).expect("the kernel does it");
    }
    world.start();
    let record = |serial: &str, address: &str| TakenRecord {
        serial: serial.into(),
        address: address.into(),
        ..Default::default()
    };
    let records = vec![record("S1", ADDRESS), record("S2", OTHER)];
    world.change(|config| config.taken = records);
    world.control().tick().expect("it answers");
    world.set_busy(Some("nvme0n1"));
    for address in [ADDRESS, OTHER] {
        world.host.write("sys/bus/pci/drivers_probe", address).expect("the kernel does it");
    }
    // This has the effect of 15 s since the last attempt.
    let uuid = array(world.control(), "tank").expect("it is known").uuid;
    let forget = |m: &mut crate::Manager| m.entries.of(&uuid).last_try = None;
    for _ in 0..2 {
        world.control().with(forget).expect("it answers");
        world.control().tick().expect("it answers");
        let tank = array(world.control(), "tank").expect("it is known");
        assert_eq!(tank.states, ["offline"]);
    }
    world.set_busy(None);
    world.control().tick().expect("it answers");
    for address in [ADDRESS, OTHER] {
        assert_eq!(world.host.driver(address).as_deref(), Some("vfio-pci"));
    }
    assert_eq!(world.not_taken(), [""; 0]);
}

/// History: the drive was not inspected if the array was busy in the round in which the drive appeared.
#[test]
fn a_drive_that_appears_while_its_array_is_looked_at_is_readded() {
    let world = without_a_taken_member();
    let elsewhere = vec![world.node("nvme0n1"), "pci:0000:7f:00.0".to_owned()];
    world.change(|config| {
        config.taken.clear();
        config.arrays[0].drives = elsewhere;
    });
    let uuid = array(world.control(), "tank").expect("it is known").uuid;
    let begin = || world.control().actions().begin(format!("returned drives of {uuid}"));
    let under_way = begin().expect("it is not under way");
    world.host.write("sys/bus/pci/drivers_probe", OTHER).expect("the kernel does it");
    world.control().with(notice_appeared).expect("it answers");
    readd_returned(world.control(), Pace::Beside).expect("it answers");
    assert_eq!(states(&world)[1], "missing");
    drop(under_way);
    world.control().tick().expect("it answers");
    assert_ne!(states(&world)[1], "missing");
}

/// History: the copy opened the block devices of all drives, and used its drive with the driver of the kernel.
#[test]
fn d15_a_copy_waits_until_returned_drives_are_taken() {
    let world = without_a_taken_member();
    let tank = array(world.control(), "tank").expect("it is known");
    let copy = CopyRecord {
        slot: 0,
        member: tank.members[0].uuid.clone(),
        path: "/dev/of-the-copy".to_owned(),
        identity: "wwid:of the copy".to_owned(),
    };
    world.change(|config| config.arrays[0].copies.push(copy));
    world.set_busy(Some("nvme1n1"));
    world.host.write("sys/bus/pci/drivers_probe", OTHER).expect("the kernel does it");
    // The copy does not search for its drive, so no reason for its wait is recorded.
    let why = |m: &mut crate::Manager| m.entries.get(&tank.uuid).slot(0).copy_trouble.clone();
    for _ in 0..2 {
        world.control().tick().expect("it answers");
        assert_eq!(world.control().with(why).expect("it answers"), None);
    }
    world.set_busy(None);
    for _ in 0..2 {
        world.control().tick().expect("it answers");
    }
    assert!(world.control().with(why).expect("it answers").is_some());
}

fn spare(serial: &str, address: &str) -> SpareRecord {
    SpareRecord {
        path: format!("pci:{address}"),
        identity: format!("wwid:eui.00{serial}"),
        bytes: 1,
        array: String::new(),
    }
}

/// Runs a round of upkeep in which an attempt to take drives is due.
fn look_now(world: &World) {
    world.control().with(|m| m.late_takes.last = None).expect("it answers");
    world.control().tick().expect("it answers");
}

/// History: the first drive was recorded at the address of the second drive. The second drive then counted as bound,
/// and was never taken.
#[test]
fn d15_drives_that_return_one_after_the_other_in_exchanged_slots_are_taken() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    world.take("S2").expect("it is taken");
    world.change(|config| config.spares = vec![spare("S1", ADDRESS), spare("S2", OTHER)]);
    world.host.swap(ADDRESS, OTHER);
    world.rename(ADDRESS, "S7");
    look_now(&world);
    assert_eq!(world.host.driver(OTHER).as_deref(), Some("vfio-pci"));
    let spares = world.control().with(|m| m.records.spares.clone()).expect("it answers");
    assert_eq!(spares, [spare("S1", OTHER), spare("S2", ADDRESS)]);
    world.rename(ADDRESS, "S2");
    look_now(&world);
    assert_eq!(world.host.driver(ADDRESS).as_deref(), Some("vfio-pci"));
    let spares = world.control().with(|m| m.records.spares.clone()).expect("it answers");
    assert_eq!(spares, [spare("S1", OTHER), spare("S2", ADDRESS)]);
    let recorded: Vec<_> = world.taken().into_iter().map(|r| (r.serial, r.address)).collect();
    assert_eq!(recorded, [("S1".into(), OTHER.into()), ("S2".into(), ADDRESS.into())]);
}

/// A command took S2 at the address that is recorded for S1.
#[test]
fn d15_a_drive_whose_address_another_taken_drive_has_is_taken() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    world.host.swap(ADDRESS, OTHER);
    world.take(ADDRESS).expect("it is taken");
    world.change(|config| config.spares = vec![spare("S2", ADDRESS)]);
    look_now(&world);
    for address in [ADDRESS, OTHER] {
        assert_eq!(world.host.driver(address).as_deref(), Some("vfio-pci"));
    }
    let spares = world.control().with(|m| m.records.spares.clone()).expect("it answers");
    assert_eq!(spares, [spare("S2", ADDRESS)]);
}

/// History: a drive that failed to start was never tried again, even after it was replugged.
#[test]
fn d15_a_drive_that_did_not_come_up_is_taken_after_it_was_replugged() {
    let mut world = World::new();
    world.take("S1").expect("it is taken");
    world.host.reboot();
    world.fake.is_dead.store(true, Ordering::SeqCst);
    world.start();
    world.fake.is_dead.store(false, Ordering::SeqCst);
    look_now(&world);
    assert_eq!(world.host.driver(ADDRESS).as_deref(), Some("nvme"));
    let (link, aside) = (format!("sys/bus/pci/devices/{ADDRESS}"), world.root.join("aside"));
    fs::rename(world.root.join(&link), &aside).expect("it is there");
    look_now(&world);
    fs::rename(&aside, world.root.join(&link)).expect("it is there");
    look_now(&world);
    world.is_taken(ADDRESS, "S1");
}

/// The kernel shows a controller before its namespaces.
#[test]
fn a_controller_whose_namespaces_are_not_known_yet_is_not_taken() {
    let mut world = World::new();
    let taken = |world: &World| world.take("S1").expect("it is taken");
    taken(&world);
    world.host.reboot();
    let block = world.root.join(format!("sys/devices/pci0000:00/{ADDRESS}/nvme/nvme0/nvme0n1"));
    let hidden = world.root.join("hidden");
    fs::rename(&block, &hidden).expect("it is there");
    let error = world.take(ADDRESS).expect_err("its namespaces could be mounted");
    assert!(error.what.contains("no namespace that the kernel shows"), "{error}");
    world.start();
    let causes = world.not_taken();
    assert!(causes.len() == 1 && causes[0].contains("no namespace"), "{causes:?}");
    fs::rename(&hidden, &block).expect("it is there");
    world.control().tick().expect("it answers");
    world.is_taken(ADDRESS, "S1");
}

/// History: a controller without a namespace was reported as a drive that appeared. A controller has no namespace for a
/// moment whenever its drive is taken or released.
#[test]
fn a_controller_without_a_namespace_is_no_drive_that_appeared() {
    let world = World::new();
    world.control().tick().expect("it answers");
    let block = world.root.join(format!("sys/devices/pci0000:00/{ADDRESS}/nvme/nvme0/nvme0n1"));
    fs::remove_dir_all(block).expect("it is there");
    fs::remove_file(world.root.join("sys/block/nvme0n1")).expect("it is there");
    world.control().tick().expect("it answers");
    let events = world.control().events().list(&Default::default()).expect("the request is fine");
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert!(kinds.contains(&"drive_vanished"), "{kinds:?}");
    assert!(!kinds.contains(&"drive_appeared"), "{kinds:?}");
}

#[test]
fn a_drive_that_was_released_meanwhile_is_not_taken_again() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    let record = world.taken()[0].clone();
    world.release("S1").expect("it is released");
    let binder = world.control().with(|m| m.options.binder.clone()).expect("it answers");
    resume(world.control(), &binder, &record, Found::Driven(ADDRESS.to_owned()))
        .expect("nothing is to be done");
    world.is_free(ADDRESS);
}
