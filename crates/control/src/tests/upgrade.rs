//! Arrays of format 1, which are converted to format 2.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use strake_api::v1::{
    AddSpareRequest, ArrayChange, CreateArrayRequest, GrowArrayRequest, ImportArraysRequest,
    UpgradeFormatRequest,
};
use strake_dev_uring::Machine;
use strake_ondisk::{AreaLayout, Copy, Format, newest};

use super::life::{read, write};
use super::{Testbed, array, check_refused, fail, impatient, mirror, raid6, replace, tick_until};
use crate::control::Control;
use crate::error::ControlErrorKind::{NotFound, Refused, State, Usage};
use crate::manager::Options;

fn request(name: &str) -> UpgradeFormatRequest {
    UpgradeFormatRequest { name: name.into(), ..Default::default() }
}

fn upgrade(control: &Control) -> Result<ArrayChange, crate::ControlError> {
    control.upgrade_format(&request("tank"))
}

fn format(control: &Control) -> u32 {
    array(control, "tank").expect("it is there").format
}

/// Converts the newest labels of a stopped array to format 1.
fn make_format_1(drives: &[String]) {
    for path in drives {
        let file = OpenOptions::new().read(true).write(true).open(path).expect("it is there");
        let bytes = file.metadata().expect("it is there").len();
        let layout = AreaLayout::of(bytes).expect("a member");
        for copy in [Copy::Head, Copy::Tail] {
            let (at, length) = layout.ring_range(copy);
            let mut ring = vec![0; length as usize];
            file.read_exact_at(&mut ring, at).expect("it is there");
            let mut label = newest(&ring, copy).newest.expect("a label");
            label.format = Format::One;
            let at = layout.slot_offset(copy, label.generation);
            file.write_all_at(&label.encode(copy, at), at).expect("there is room");
        }
    }
}

fn resize(path: &str, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("it is there");
    file.set_len(bytes).expect("there is room");
}

/// Creates an array of format 1 on files of `bytes`, and starts it again.
fn old_array(control: &mut Testbed, ask: &CreateArrayRequest, bytes: u64) {
    ask.drives.iter().for_each(|path| resize(path, bytes));
    control.create_array(ask).expect("it is created");
    write(control, "tank", 8);
    assert_eq!(format(control), 2, "new arrays have the newest format");
    control.shut_down();
    make_format_1(&ask.drives);
    control.start();
}

#[test]
fn an_array_of_format_1_is_converted_when_it_is_asked_for() {
    let mut control = Testbed::new();
    let ask = raid6(control.drives(4));
    old_array(&mut control, &ask, 64 << 20);
    assert_eq!(format(&control), 1, "a start converts nothing");
    let size = control.tank().size_bytes;
    let dry = UpgradeFormatRequest { dry_run: true, ..request("tank") };
    let planned = control.upgrade_format(&dry).expect("it may");
    assert_eq!((planned.result.as_str(), format(&control)), ("planned", 1));
    let says = |words: &str| planned.plan.iter().any(|step| step.contains(words));
    assert!(says("from format 1 to format 2"), "{:?}", planned.plan);
    assert!(says("the least size of a drive"), "{:?}", planned.plan);

    let changed = upgrade(&control).expect("there is room");
    assert_eq!(changed.result, "changed");
    let view = changed.array.expect("it is shown");
    assert_eq!((view.format, view.size_bytes), (2, size));
    assert_eq!(view.states, ["online"]);
    read(&control, "tank", 8);
    assert_eq!(control.reported("array_format_upgraded").len(), 1, "a plan is no event");
    let again = upgrade(&control).expect("it may");
    assert_eq!(again.result, "unchanged");
    assert!(again.warnings[0].contains("already has format 2"), "{:?}", again.warnings);
    control.restart();
    assert_eq!(format(&control), 2);
    read(&control, "tank", 8);
}

#[test]
fn an_array_that_cannot_be_converted_keeps_its_format() {
    let mut control = Testbed::new();
    let ask = mirror(&control.drives(2));
    old_array(&mut control, &ask, 1 << 30);
    // In format 1, the growth uses the space that the areas of format 2 would need.
    let grow = GrowArrayRequest { name: "tank".into(), ..Default::default() };
    for dry_run in [true, false] {
        let request = GrowArrayRequest { dry_run, ..grow.clone() };
        let change = control.grow_array(&request).expect("it grows");
        assert_eq!(change.result, if dry_run { "planned" } else { "changed" });
        let warned = change.warnings.iter().any(|one| one.contains("upgrade-format tank"));
        assert!(warned, "{:?}", change.warnings);
    }
    assert_eq!(format(&control), 1, "growing keeps the format");
    check_refused(upgrade(&control), State, "has 1073741824 bytes");
    check_refused(upgrade(&control), State, "give it a larger drive first");
    assert_eq!(format(&control), 1);

    control.fail_member(&fail("tank", 1)).expect("it may");
    check_refused(upgrade(&control), State, "member 1 is not in sync");
    assert_eq!(format(&control), 1);
    read(&control, "tank", 8);
}

/// A drive that becomes a member must have space for the areas as well as for the data.
#[test]
fn a_drive_without_room_for_the_areas_replaces_no_member() {
    let mut control = Testbed::new();
    let drives = control.drives(5);
    let (bytes, less) = (1_u64 << 30, (1_u64 << 30) - (512 << 10));
    [0, 1, 3, 4].into_iter().for_each(|at| resize(&drives[at], bytes));
    resize(&drives[2], less);
    control.create_array(&mirror(&drives[..2])).expect("it is created");
    assert_eq!(format(&control), 2);
    write(&control, "tank", 8);
    let refused = control.replace_member(&replace(1, &drives[2]));
    check_refused(refused, Usage, &format!("it has {less} bytes"));
    control.replace_member(&replace(1, &drives[3])).expect("it is as large as the others");
    tick_until(&control, "the new drive", || {
        array(&control, "tank").is_ok_and(|view| view.members[1].path == drives[3])
    });
    // The check applies also to a spare.
    for spare in [&drives[2], &drives[4]] {
        let drive = spare.clone();
        let request = AddSpareRequest { drive, overwrite: true, ..Default::default() };
        control.add_spare(&request).expect("it is one of the pool");
    }
    control.fail_member(&fail("tank", 0)).expect("it may");
    tick_until(&control, "a spare", || {
        array(&control, "tank").is_ok_and(|view| view.members[0].path == drives[4])
    });
    tick_until(&control, "both members", || {
        array(&control, "tank").is_ok_and(|view| view.redundancy_left == 1)
    });
    read(&control, "tank", 8);
    control.restart();
    assert_eq!(format(&control), 2);
    read(&control, "tank", 8);
}

/// Changes the band height in the newest label of a drive.
fn make_foreign(path: &str) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("it is there");
    let bytes = file.metadata().expect("it is there").len();
    let layout = AreaLayout::of(bytes).expect("a member");
    for copy in [Copy::Head, Copy::Tail] {
        let (at, length) = layout.ring_range(copy);
        let mut ring = vec![0; length as usize];
        file.read_exact_at(&mut ring, at).expect("it is there");
        let at = layout.slot_offset(copy, newest(&ring, copy).newest.expect("a label").generation);
        let mut label = vec![0; 4096];
        file.read_exact_at(&mut label, at).expect("it is there");
        label[784..788].copy_from_slice(&(64_u32 << 10).to_le_bytes());
        let digest = blake3::hash(&label[..4076]);
        label[4076..4092].copy_from_slice(&digest.as_bytes()[..16]);
        let crc = crc32c::crc32c(&label[..4092]);
        label[4092..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&label, at).expect("there is room");
    }
}

/// The record of another version may be newer than the other labels, so the array does not start automatically without
/// it.
#[test]
fn a_label_with_another_constant_is_named_and_not_gone_around() {
    const SAYS: &str = "has the value 65536 for \"band bytes\"; this version supports 131072";
    let (mut control, drives) = Testbed::mirror(2);
    write(&control, "tank", 8);
    control.shut_down();
    for made in 0..2 {
        make_foreign(&drives[made]);
        control.start_with(impatient());
        let view = control.tank();
        assert_eq!(view.states, ["offline"], "{view:?}");
        assert_eq!(view.reason.matches(SAYS).count(), made + 1, "{}", view.reason);
        // The advice does not name a command that would be refused.
        assert!(!view.reason.contains("start without it"), "{}", view.reason);
        assert!(!view.next_action.contains("--degraded"), "{}", view.next_action);
        let advice =
            ["use the version that wrote the refused label, or", "return its drives, then"];
        assert!(view.next_action.starts_with(advice[made]), "{}", view.next_action);
        let import = |name: &str, drives: &[String]| ImportArraysRequest {
            name: name.into(),
            drives: drives.to_vec(),
            ..Default::default()
        };
        check_refused(control.import_arrays(&import("", &drives)), Refused, SAYS);
        if made == 1 {
            let known = control.import_arrays(&import("tank", &[]));
            check_refused(known, Refused, SAYS);
        } else {
            let degraded = ImportArraysRequest { allow_degraded: true, ..import("tank", &[]) };
            let said = "not started degraded while this drive is present";
            check_refused(control.import_arrays(&degraded), Refused, said);
        }
        let misspelled = control.import_arrays(&import("tonk", &[]));
        check_refused(misspelled, NotFound, "array tonk");
        control.shut_down();
    }
}

/// Places drives at device nodes of a host in `root`, with the names that the kernel gave them in this boot.
fn machine_of(root: &Path, drives: &[(&String, &str)]) -> (Machine, Vec<String>) {
    fs::create_dir_all(root.join("dev")).expect("there is room");
    let place = |(drive, name): &(&String, &str)| {
        let block = root.join("sys/block").join(name);
        fs::create_dir_all(&block).expect("there is room");
        fs::write(block.join("wwid"), name).expect("there is room");
        fs::write(block.join("size"), "131072").expect("there is room");
        let node = root.join("dev").join(name);
        fs::rename(drive, &node).expect("it is there");
        node.display().to_string()
    };
    let nodes = drives.iter().map(place).collect();
    (Machine::at(root), nodes)
}

/// Starts "tank" from the remaining drives. Returns its states and the reason.
fn started(control: &mut Testbed, machine: &Machine) -> (Vec<String>, String) {
    control.start_with(Options { machine: machine.clone(), ..impatient() });
    let view = array(control, "tank").expect("it is known");
    control.shut_down();
    (view.states, view.reason)
}

/// The names of device nodes can change at each boot. The label of a member therefore counts at every node, and the
/// label of another array counts at none.
#[test]
fn a_refused_label_counts_at_every_node_for_its_own_array_only() {
    let mut control = Testbed::new();
    let files = control.drives(4);
    let names = ["sda", "sdb", "sdc", "sdd"];
    let pairs: Vec<_> = files.iter().zip(names).collect();
    let (machine, nodes) = machine_of(&control.path("machine"), &pairs);
    control.shut_down();
    control.start_with(Options { machine: machine.clone(), ..Options::default() });
    control.create_array(&mirror(&nodes[..2])).expect("it is created");
    let other = CreateArrayRequest { name: "pond".into(), ..mirror(&nodes[2..]) };
    control.create_array(&other).expect("it is created");
    control.shut_down();

    // The member that was sdb is now sdc, where the label of another array was.
    make_foreign(&nodes[1]);
    make_foreign(&nodes[2]);
    let away = control.path("away");
    fs::rename(&nodes[2], &away).expect("it is there");
    fs::rename(&nodes[1], &nodes[2]).expect("it is there");
    let (states, reason) = started(&mut control, &machine);
    assert_eq!(states, ["offline"]);
    assert!(reason.contains(&format!("{}: label", nodes[2])), "{reason}");

    // The member is absent, and the drive of the other array is at its node.
    fs::remove_file(&nodes[2]).expect("it is there");
    fs::rename(&away, &nodes[1]).expect("it is there");
    let (states, reason) = started(&mut control, &machine);
    assert!(states.contains(&"online".to_owned()), "{states:?}: {reason}");
}
