//! Releases that are refused or fail, and drives with the serial number of another.

use std::fs;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use strake_api::v1::{LocateDriveRequest, TakeDrivesRequest};

use super::world::World;
use super::{ADDRESS, OTHER, only};
use crate::drives::pci::opening_key;
use crate::error::ControlErrorKind;
use crate::names::drive_key;
use crate::record::store::{Aim, SpareRecord, TakenRecord};
use crate::tests::mirror;

const PATH: &str = "pci:0000:3b:00.0";

fn record_spare(world: &World, path: &str) {
    let (path, identity) = (path.to_owned(), "wwid:eui.00S1".to_owned());
    let spare = SpareRecord { path, identity, bytes: 1, array: String::new() };
    let with = |m: &mut crate::Manager| m.records.change(|config| config.spares.push(spare));
    world.control().run(with).expect("it is recorded");
}

fn set_aim(world: &World, aim: Aim) {
    let record = TakenRecord { aim, ..world.taken()[0].clone() };
    let with = |m: &mut crate::Manager| m.records.change(|config| config.put_taken(record));
    world.control().run(with).expect("it is recorded");
}

#[test]
fn an_open_member_is_not_released() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    world.open(ADDRESS);
    let drives = [PATH.to_owned(), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    let error = world.release("S1").expect_err("it is a member");
    assert!(error.what.contains("member 0 of array"), "{error}");
    world.is_taken(ADDRESS, "S1");
}

#[test]
fn an_open_drive_is_closed_before_it_is_unbound() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    world.open(ADDRESS);
    world.release("S1").expect("nothing uses it");
    world.is_free(ADDRESS);
}

/// The drives of an array that is being created or started are reserved by their identities.
#[test]
fn a_drive_that_another_command_has_open_is_neither_taken_nor_released() {
    let world = World::new();
    let reserve = |identity: &str| {
        let reserved = world.control().try_reserve(vec![drive_key(identity)]);
        reserved.expect("it answers").expect("it is free")
    };
    let held = reserve("wwid:eui.00S1");
    let error = world.take("S1").expect_err("it is in use");
    assert!(error.what.contains("in use by another command"), "{error}");
    drop(held);
    world.take("S1").expect("it is taken");
    world.open(ADDRESS);
    let open = |m: &mut crate::Manager| m.drives.named(PATH).map(|open| open.device.identity());
    let identity = world.control().with(open).expect("it answers").expect("it is open");
    let held = reserve(&identity);
    let error = world.release("S1").expect_err("it is in use");
    assert!(error.what.contains("in use by another command"), "{error}");
    let is_open = world.control().with(|m| m.drives.named(PATH).is_some()).expect("it answers");
    assert!(is_open, "it stays open");
    world.is_taken(ADDRESS, "S1");
    drop(held);
    world.release("S1").expect("it is free");
    world.is_free(ADDRESS);
}

#[test]
fn a_drive_that_cannot_be_closed_stays_taken() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    world.open(ADDRESS);
    let open = |m: &mut crate::Manager| m.drives.named(PATH).map(|open| Arc::clone(&open.device));
    let used = world.control().with(open).expect("it answers");
    let error = world.release("S1").expect_err("it is used");
    assert!(error.what.contains("not closed yet"), "{error}");
    world.is_taken(ADDRESS, "S1");
    drop(used);
    world.release("S1").expect("it is closed");
    world.is_free(ADDRESS);
}

#[test]
fn a_probe_that_fails_or_binds_nothing_is_an_error_and_is_repeated() {
    for (fails, words) in [(true, "refuses a write"), (false, "modprobe nvme")] {
        let mut world = World::new();
        world.take("S1").expect("it is taken");
        *world.fake.probe.lock().expect("no test has failed") = Some(fails);
        let error = world.release("S1").expect_err("no driver has it");
        assert!(error.what.contains(words), "{error}");
        assert_eq!(world.taken()[0].aim, Aim::Release);
        *world.fake.probe.lock().expect("no test has failed") = None;
        world.start();
        world.is_free(ADDRESS);

        let world = World::new();
        *world.fake.probe.lock().expect("no test has failed") = Some(fails);
        let error = world.take("S1").expect_err("no driver has it");
        assert!(error.what.contains("could not be given back"), "{error}");
        *world.fake.probe.lock().expect("no test has failed") = None;
        world.release(ADDRESS).expect("it is completed");
        world.is_free(ADDRESS);
    }
}

#[test]
fn a_start_does_not_complete_the_release_of_a_drive_that_is_needed() {
    for unbound in [false, true] {
        let mut world = World::new();
        world.take("S1").expect("it is taken");
        record_spare(&world, PATH);
        set_aim(&world, Aim::Release);
        if unbound {
            world
                .host
                .write(&format!("sys/bus/pci/devices/{ADDRESS}/driver/unbind"), ADDRESS)
                .expect("it is bound");
        }
        world.start();
        world.is_taken(ADDRESS, "S1");
        let events = world.control().events().list(&Default::default()).expect("it answers");
        assert_eq!(events.iter().filter(|event| event.kind == "drive_kept").count(), 1);
    }
}

/// A drive with the serial number of the taken drive is another drive, with any name in the release request.
#[test]
fn a_drive_with_its_serial_number_is_not_released_for_the_taken_one() {
    let pair = |wwid: &str| {
        let world = World::new();
        world.take("S1").expect("it is taken");
        world.rename(OTHER, "S1");
        world.host.set(OTHER, "nvme/nvme1/nvme1n1/wwid", wwid);
        world
    };
    for wwid in ["eui.00S1", "eui.00S2"] {
        check_pair(&pair(wwid));
    }
    // The check for members applies to the taken drive.
    let world = pair("eui.00S1");
    record_spare(&world, PATH);
    let error = world.release("S1").expect_err("it is a spare");
    assert!(error.what.contains("is a spare"), "{error}");
    world.is_taken(ADDRESS, "S1");
    assert!(
        fs::exists(world.node("nvme1n1")).expect("a folder"),
        "the kernel drives the other one"
    );
}

/// Releases the other drive by each of its names, then the taken one.
fn check_pair(world: &World) {
    for name in [OTHER.to_owned(), world.node("nvme1n1")] {
        assert_eq!(only(&world.release(&name).expect("it is free")).0, "unchanged");
        world.is_taken(ADDRESS, "S1");
        assert_eq!(world.host.driver(OTHER).as_deref(), Some("nvme"));
    }
    assert_eq!(only(&world.release("S1").expect("it is released")).0, "changed");
    world.is_free(ADDRESS);
}

/// An unresponsive drive remains reserved, so no other command uses it, and the started operation is completed.
#[test]
fn a_take_that_outlives_its_command_stays_reserved_and_is_completed() {
    let world = World::new();
    let (answer, gate) = mpsc::channel();
    *world.fake.gate.lock().expect("no test has failed") = Some(gate);
    world.control().with(|m| m.options.bind_limit = Duration::ZERO).expect("it answers");
    let error = world.take("S1").expect_err("it does not answer");
    assert_eq!(error.kind, ControlErrorKind::Silent, "{error}");
    let key = opening_key(ADDRESS);
    let reserved = world.control().try_reserve(vec![key.clone()]).expect("it answers");
    assert!(reserved.is_none(), "it is in use");
    drop(answer);
    let is_free = |m: &crate::Manager| !m.reserved.contains(&key);
    assert!(world.control().wait_until(Duration::MAX, is_free).expect("it answers"));
    world.is_taken(ADDRESS, "S1");
}

/// Only the first namespace is used.
#[test]
fn a_dry_run_says_that_other_namespaces_are_not_used() {
    let world = World::new();
    world.host.set(ADDRESS, "nvme/nvme0/nvme0n2/size", "8");
    let request = TakeDrivesRequest { drives: vec!["S1".to_owned()], dry_run: true };
    let planned = world.control().take_drives(&request).expect("it is planned");
    let last = planned.drives[0].plan.last().map(String::as_str);
    assert_eq!(last, Some("use only the first of its 2 namespaces"));
}

/// The LEDs of slots do not depend on the driver of the drive. After the release of a drive, its LEDs are off.
#[test]
fn d29_a_taken_drive_has_the_light_of_its_slot_until_it_is_released() {
    let world = World::new();
    let led = "leds/0000:3b:00.0:enclosure:locate/brightness";
    world.host.set(ADDRESS, led, "0");
    let locate = |path: &str| {
        let request = LocateDriveRequest { path: path.to_owned(), off: false };
        world.control().locate_drive(&request)
    };
    locate("S1").expect("the kernel drives it");
    assert_eq!(world.host.get(ADDRESS, led), "1");
    world.take("S1").expect("it is taken");
    world.control().tick().expect("it answers");
    assert_eq!(world.host.get(ADDRESS, led), "1");
    let drive = world.control().drive(PATH).expect("it is listed");
    assert_eq!(drive.light.map(|light| light.pattern).as_deref(), Some("locate"));
    locate(PATH).expect("the slot is the same");
    world.release("S1").expect("nothing uses it");
    world.control().tick().expect("it answers");
    assert_eq!(world.host.get(ADDRESS, led), "0");
    world.is_free(ADDRESS);
}
