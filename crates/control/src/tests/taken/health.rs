//! The health reports of taken drives.

use std::sync::Arc;

use strake_api::v1::{GetDriveHealthRequest, ListEventsRequest, SetArrayRequest};

use super::world::World;
use super::{ADDRESS, OTHER};
use crate::drives::health::tests::{Pages, read_only, worn};
use crate::drives::pci::open_as_file;
use crate::error::ControlErrorKind;
use crate::tests::{check_refused, mirror};

/// Opens a taken drive with this health.
fn open_with(world: &World, address: &str, health: Pages) {
    let serial = world.host.get(address, "serial");
    let mut opened = open_as_file(address, &world.root.join("media").join(serial));
    opened.health = Some(Arc::new(health));
    world.control().with(|m| m.drives.add(opened)).expect("it answers");
}

/// The causes of the events about members that should be replaced.
fn causes(world: &World) -> Vec<String> {
    let request = ListEventsRequest { kind: "member_sick".into(), ..Default::default() };
    let events = world.control().events().list(&request).expect("the request is fine");
    events.into_iter().map(|event| event.cause).collect()
}

fn health(world: &World, path: &str) -> Result<strake_api::v1::DriveHealth, crate::ControlError> {
    world.control().drive_health(&GetDriveHealthRequest { path: path.to_owned() })
}

/// History: the daemon queried only the drives of the kernel, so the failure prediction of a taken drive was not
/// noticed.
#[test]
fn d22_a_taken_member_that_predicts_its_failure_is_reported() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    open_with(&world, ADDRESS, read_only());
    let drives = ["pci:0000:3b:00.0".to_owned(), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    world.control().tick().expect("it answers");
    let request = ListEventsRequest { kind: "member_sick".into(), ..Default::default() };
    let events = world.control().events().list(&request).expect("the request is fine");
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(event.member, Some(0));
    assert!(
        event.cause.contains("read-only"),
        "{event:?} {:?}",
        world.control().with(|m| m.list_spares())
    );
    let shown = world.control().drive("pci:0000:3b:00.0").expect("it is open");
    assert!(shown.note.contains("read-only") && shown.wear_percent == Some(0), "{shown:?}");
    let health = health(&world, "pci:0000:3b:00.0").expect("it answers");
    assert_eq!(health.warnings, ["read_only"]);
    assert_eq!((health.media_errors, health.errors.len()), (3, 1));
    assert_eq!((health.errors[0].status, health.errors[0].block), (0x20, 4));
}

#[test]
fn d22_a_worn_member_is_reported_at_the_limit_of_its_array() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    open_with(&world, ADDRESS, worn(90));
    let drives = ["pci:0000:3b:00.0".to_owned(), world.node("nvme1n1")];
    world.control().create_array(&mirror(&drives)).expect("it is created");
    world.control().tick().expect("it answers");
    assert!(causes(&world).is_empty(), "the limit is 95 %");
    let set = |percent| SetArrayRequest {
        name: "tank".into(),
        report_at_wear_percent: Some(percent),
        ..Default::default()
    };
    check_refused(world.control().set_array(&set(256)), ControlErrorKind::Usage, "256 %");
    let changed = world.control().set_array(&set(90)).expect("it can be set");
    assert_eq!(changed.plan, ["report at wear 90 % instead of 95 %"]);
    world.control().tick().expect("it answers");
    assert_eq!(causes(&world), ["90 % of the rated endurance of the drive is used"]);
}

#[test]
fn d22_a_drive_that_cannot_be_asked_is_refused_with_the_reason() {
    let world = World::new();
    world.take("S1").expect("it is taken");
    let closed = health(&world, "pci:0000:3b:00.0");
    check_refused(closed, ControlErrorKind::State, "strake drive release pci:0000:3b:00.0");
    // A file replaces the device node, and supports no ioctl.
    let silent = health(&world, OTHER);
    check_refused(silent, ControlErrorKind::Device, "does not report its health");
    let file = world.root.sparse("file", 64 << 20).display().to_string();
    check_refused(health(&world, &file), ControlErrorKind::State, "smartctl");
    check_refused(health(&world, "nothing"), ControlErrorKind::NotFound, "nothing");
}
