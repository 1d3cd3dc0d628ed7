//! Arrays of format 1, which are converted to format 2.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use strake_api::v1::{
    ArrayChange, CreateArrayRequest, GrowArrayRequest, ListEventsRequest, UpgradeFormatRequest,
};
use strake_ondisk::{AreaLayout, Copy, Format, newest};

use super::life::{read, write};
use super::{Folder, array, check_refused, fail, raid6, stop};
use crate::ControlErrorKind;
use crate::control::Control;

fn request(name: &str) -> UpgradeFormatRequest {
    UpgradeFormatRequest { name: name.into(), ..Default::default() }
}

fn upgrade(control: &Control) -> Result<ArrayChange, crate::ControlError> {
    control.upgrade_format(&request("tank"))
}

fn format(control: &Control) -> u32 {
    array(control, "tank").expect("it is there").format
}

/// Makes the newest labels of an array that does not run those of format 1.
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

/// An array on files of `bytes` that has format 1, started again.
fn old_array(folder: &Folder, ask: &CreateArrayRequest, bytes: u64) -> Control {
    for path in &ask.drives {
        let file = OpenOptions::new().write(true).open(path).expect("it is there");
        file.set_len(bytes).expect("there is room");
    }
    let control = folder.control();
    control.create_array(ask).expect("it is created");
    write(&control, "tank", 8);
    assert_eq!(format(&control), 2, "new arrays have the newest format");
    stop(&control);
    drop(control);
    make_format_1(&ask.drives);
    folder.control()
}

#[test]
fn an_array_of_format_1_is_converted_when_it_is_asked_for() {
    let folder = Folder::new();
    let control = old_array(&folder, &raid6(folder.drives(4)), 64 << 20);
    assert_eq!(format(&control), 1, "a start converts nothing");
    let size = array(&control, "tank").expect("it is there").size_bytes;
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
    let told = control.events().list(&ListEventsRequest::default()).expect("the request is fine");
    let events = told.iter().filter(|event| event.kind == "array_format_upgraded").count();
    assert_eq!(events, 1, "a plan is no event");
    let again = upgrade(&control).expect("it may");
    assert_eq!(again.result, "unchanged");
    assert!(again.warnings[0].contains("format 2 already"), "{:?}", again.warnings);
    stop(&control);
    drop(control);

    let control = folder.control();
    assert_eq!(format(&control), 2);
    read(&control, "tank", 8);
    stop(&control);
}

#[test]
fn an_array_that_cannot_be_converted_keeps_its_format() {
    let folder = Folder::new();
    let ask = CreateArrayRequest {
        name: "tank".into(),
        level: "1".into(),
        drives: folder.drives(2),
        ..Default::default()
    };
    let control = old_array(&folder, &ask, 1 << 30);
    // In format 1 it takes what areas would need.
    let grow = GrowArrayRequest { name: "tank".into(), ..Default::default() };
    assert_eq!(control.grow_array(&grow).expect("it grows").result, "changed");
    assert_eq!(format(&control), 1, "growing keeps the format");
    check_refused(upgrade(&control), ControlErrorKind::State, "has 1073741824 bytes");
    check_refused(upgrade(&control), ControlErrorKind::State, "give it a larger drive first");
    assert_eq!(format(&control), 1);

    control.fail_member(&fail("tank", 1)).expect("it may");
    check_refused(upgrade(&control), ControlErrorKind::State, "member 1 is not in sync");
    assert_eq!(format(&control), 1);
    read(&control, "tank", 8);
    stop(&control);
}
