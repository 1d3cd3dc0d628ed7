//! LEDs of slots: the patterns for arrays and spares, and LEDs that cannot be set.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use strake_api::v1::{
    CleanDriveRequest, DriveChange, LocateDriveRequest, ReplaceMemberRequest, SlotLight,
};
use strake_dev_nvme::Host;
use strake_dev_uring::Machine;
use strake_testkit::{Folder, PciHost};

use super::testbed::{control_in, folder, impatient};
use super::{array, check_refused, fail, hold, mirror, spare, stop, tick_until};
use crate::control::Control;
use crate::error::{ControlError, ControlErrorKind};
use crate::manager::Options;
use crate::upkeep::lights::{Taken, look_at_lights, survey};
use strake_api::v1::ListEventsRequest;

const INDICATIONS: [&str; 8] = ["ok", "locate", "fail", "rebuild", "pfa", "hotspare", "ica", "ifa"];

/// A host with NVMe drives whose slots have enclosure management, and a control plane.
struct Bed {
    control: Control,
    drives: Vec<String>,
    root: Folder,
}

fn address(drive: usize) -> String {
    format!("0000:{:02x}:00.0", 0x3b + drive)
}

impl Bed {
    fn new(drives: usize) -> Self {
        let root = folder();
        let host = PciHost::at(&root);
        for drive in 0..drives {
            host.add_nvme(&address(drive), drive as u32, &format!("S{drive}"));
            for word in INDICATIONS {
                host.set(&address(drive), &led(drive, word), "0");
            }
        }
        let nodes = (0..drives).map(|drive| root.join(format!("dev/nvme{drive}n1")));
        let drives = nodes.map(|node| node.display().to_string()).collect();
        let control = start(&root);
        Self { control, drives, root }
    }

    /// Stops the daemon cleanly and starts it again.
    fn restart(&mut self) {
        stop(&self.control);
        // The old daemon releases the state directory before the new daemon locks it.
        self.control = start(&self.root.join("meanwhile"));
        self.control = start(&self.root);
    }

    fn attribute(&self, drive: usize, word: &str) -> std::path::PathBuf {
        self.root.join("sys/devices/pci0000:00").join(address(drive)).join(led(drive, word))
    }

    /// Returns the indications that are on, for each drive.
    fn seen(&self) -> Vec<String> {
        (0..self.drives.len()).map(|drive| self.seen_at(drive)).collect()
    }

    fn seen_at(&self, drive: usize) -> String {
        let is_on = |word: &&str| {
            let text = fs::read_to_string(self.attribute(drive, word));
            text.is_ok_and(|text| text.trim() == "1")
        };
        INDICATIONS.into_iter().filter(is_on).collect::<Vec<_>>().join("+")
    }

    fn check(&self, want: &[&str]) {
        self.control.tick().expect("it answers");
        assert_eq!(self.seen(), want);
    }

    fn locate(&self, drive: usize, off: bool) -> Result<DriveChange, ControlError> {
        self.control.locate_drive(&LocateDriveRequest { path: self.drives[drive].clone(), off })
    }

    fn light(&self, drive: usize) -> SlotLight {
        let shown = self.control.drive(&self.drives[drive]).expect("it is there");
        shown.light.expect("its slot has a light")
    }

    fn failures(&self) -> usize {
        let request = ListEventsRequest { kind: "light_failed".into(), ..Default::default() };
        self.control.events().list(&request).expect("the request is fine").len()
    }

    fn is_rebuilt(&self) -> bool {
        array(&self.control, "tank").is_ok_and(|tank| tank.redundancy_left == 1)
    }
}

fn start(root: &std::path::Path) -> Control {
    control_in(root, Options { machine: Machine::at(root), ..impatient() })
}

fn led(drive: usize, word: &str) -> String {
    format!("leds/{}:enclosure:{word}/brightness", address(drive))
}

#[test]
fn d29_lights_follow_members_spares_and_failures() {
    let bed = Bed::new(4);
    bed.check(&["", "", "", ""]);
    bed.control.create_array(&mirror(&bed.drives[..2])).expect("it is created");
    bed.check(&["ok", "ok", "", ""]);
    hold(&bed.control, true);
    bed.control.fail_member(&fail("tank", 0)).expect("it fails");
    bed.check(&["fail", "ica", "", ""]);
    let change = ReplaceMemberRequest {
        name: "tank".into(),
        member: 0,
        drive: bed.drives[2].clone(),
        ..Default::default()
    };
    bed.control.replace_member(&change).expect("it takes its place");
    bed.check(&["fail", "ica", "rebuild", ""]);
    hold(&bed.control, false);
    tick_until(&bed.control, "the rebuild", || bed.is_rebuilt());
    bed.control.add_spare(&spare(&bed.drives[3])).expect("it is a spare");
    bed.check(&["fail", "ok", "ok", "hotspare"]);
    assert_eq!(bed.light(3).pattern, "hotspare");
    let sick = array(&bed.control, "tank").expect("it runs").members[1].uuid.parse();
    let sick = sick.expect("it has an identity");
    bed.control
        .with(|m| {
            m.sick.slow.insert(sick, "for 3 hours, its reads took long".to_owned());
        })
        .expect("it answers");
    bed.check(&["fail", "pfa", "ok", "hotspare"]);
    let clean =
        CleanDriveRequest { path: bed.drives[0].clone(), accept_loss: true, dry_run: false };
    bed.control.clean_drive(&clean).expect("it is needed by none");
    bed.check(&["", "pfa", "ok", "hotspare"]);
    bed.locate(0, false).expect("it blinks");
    bed.check(&["locate", "pfa", "ok", "hotspare"]);
    let change = bed.control.clean_drive(&clean).expect("it holds nothing");
    assert_eq!(change.result, "unchanged");
    bed.check(&["", "pfa", "ok", "hotspare"]);
    stop(&bed.control);
    assert_eq!(bed.seen(), ["", "pfa", "ok", "hotspare"], "they are kept at the end");
}

#[test]
fn d29_a_light_that_holds_what_it_should_is_not_written() {
    let bed = Bed::new(2);
    let raw = |word| fs::read_to_string(bed.attribute(0, word)).expect("it is there");
    let put = |word, text| fs::write(bed.attribute(0, word), text).expect("it can be written");
    bed.control.create_array(&mirror(&bed.drives)).expect("it is created");
    bed.check(&["ok", "ok"]);
    // The kernel ends a line with a newline when it is read. The daemon does not write this newline.
    put("ok", "1\n");
    put("fail", "0\n");
    put("pfa", "1\n");
    look_at_lights(&bed.control, Duration::ZERO).expect("it answers");
    assert_eq!((raw("ok"), raw("fail"), raw("pfa")), ("1\n".into(), "0\n".into(), "0".into()));
    bed.control.fail_member(&fail("tank", 1)).expect("it fails");
    bed.check(&["ica", "fail"]);
    // An LED may be changing: its current value is ignored if another pattern must be shown.
    assert_eq!((raw("ok"), raw("ica"), raw("fail")), ("0".into(), "1".into(), "0".into()));
}

/// History: a spare on which another program created a file system was shown as failed, so that an operator would pull
/// it.
#[test]
fn d29_a_spare_that_another_program_uses_does_not_show_a_failure() {
    let bed = Bed::new(3);
    bed.control.create_array(&mirror(&bed.drives[..2])).expect("it is created");
    bed.control.add_spare(&spare(&bed.drives[2])).expect("it is a spare");
    bed.check(&["ok", "ok", "hotspare"]);
    let medium = fs::File::options().write(true).open(bed.root.join("media/S2"));
    // The magic number of ext4, in its superblock.
    let medium = medium.expect("it is there");
    medium.write_all_at(&[0x53, 0xef], 1024 + 56).expect("it can be written");
    bed.control.fail_member(&fail("tank", 0)).expect("it fails");
    let state = || bed.control.with(|m| m.list_spares()).expect("it answers").spares[0].clone();
    tick_until(&bed.control, "the spare", || state().state == "failed");
    assert!(state().note.contains("file system"), "{:?}", state());
    bed.check(&["fail", "ica", ""]);
}

/// The drive at the address of a taken drive that is not open may be another drive.
#[test]
fn d29_another_drive_at_the_address_of_a_taken_one_is_not_mistaken_for_it() {
    let bed = Bed::new(1);
    let survey = |serial: &str, is_open| {
        let path = format!("pci:{}", address(0));
        let taken = vec![Taken { path: path.clone(), serial: serial.to_owned(), is_open }];
        let seen = survey(&Machine::at(&bed.root), &Host::at(&bed.root), taken);
        seen[&path].drive.clone()
    };
    assert_eq!(survey("S9", false), "S0", "the kernel drives it");
    assert_eq!(survey("S9", true), "S9");
}

#[test]
fn d29_a_drive_is_located_until_that_is_called_off() {
    let mut bed = Bed::new(3);
    bed.control.create_array(&mirror(&bed.drives[..2])).expect("it is created");
    let change = bed.locate(0, false).expect("it blinks");
    assert!(change.plan[0].contains("slot 0000:3b:00.0"), "{change:?}");
    bed.locate(2, false).expect("it need not be ours");
    bed.check(&["locate", "ok", "locate"]);
    let light = SlotLight {
        pattern: "locate".into(),
        seen: "locate".into(),
        backend: "npem".into(),
        note: String::new(),
    };
    assert_eq!(bed.light(0), light);
    bed.control.fail_member(&fail("tank", 0)).expect("it fails");
    bed.check(&["locate", "ica", "locate"]);
    bed.locate(0, true).expect("it stops");
    bed.locate(2, true).expect("it stops");
    assert_eq!(bed.seen(), ["fail", "ica", ""]);
    bed.locate(2, true).expect("nothing is to be stopped");
    // An LED that another program switched on is also switched off.
    fs::write(bed.attribute(2, "locate"), "1").expect("it can be written");
    bed.restart();
    bed.locate(2, true).expect("it stops");
    assert_eq!(bed.seen(), ["fail", "ica", ""]);
}

#[test]
fn d29_a_light_that_cannot_be_switched_is_reported_once_and_keeps_nothing_else() {
    let bed = Bed::new(3);
    for word in ["ok", "locate"] {
        // A write to a directory always fails.
        fs::remove_file(bed.attribute(0, word)).expect("it was there");
        fs::create_dir(bed.attribute(0, word)).expect("a folder can be made");
    }
    bed.control.create_array(&mirror(&bed.drives[..2])).expect("it is created");
    bed.check(&["", "ok", ""]);
    bed.check(&["", "ok", ""]);
    assert_eq!(bed.failures(), 1);
    assert!(bed.light(0).note.contains("directory"), "{:?}", bed.light(0));
    let words = ["cannot be switched", "0000:3b:00.0"];
    check_refused(bed.locate(0, false), ControlErrorKind::Device, words[0]);
    assert_eq!(bed.failures(), 1);
    for word in ["ok", "locate"] {
        fs::remove_dir(bed.attribute(0, word)).expect("it was there");
        fs::write(bed.attribute(0, word), "0\n").expect("it can be written");
    }
    bed.control.fail_member(&fail("tank", 1)).expect("it fails");
    bed.check(&["ica", "fail", ""]);
    assert_eq!(bed.light(0).note, "");
}

/// A write to sysfs waits for unresponsive firmware.
#[test]
fn d29_firmware_that_hangs_holds_up_neither_upkeep_nor_other_lights() {
    let bed = Bed::new(2);
    let stuck = bed.attribute(0, "ok");
    fs::remove_file(&stuck).expect("it was there");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &stuck, fifo, mode, 0).expect("a pipe can be made");
    bed.control.create_array(&mirror(&bed.drives)).expect("it is created");
    bed.control.round().expect("it waits for no light");
    assert_eq!(bed.failures(), 0, "it has not waited");
    tick_until(&bed.control, "the report", || bed.failures() == 1);
    assert_eq!(bed.seen_at(1), "ok");
    assert!(bed.light(0).note.contains("has not answered"), "{:?}", bed.light(0));
    bed.control.fail_member(&fail("tank", 1)).expect("it fails");
    bed.control.tick().expect("it waits no longer");
    assert_eq!((bed.seen_at(1).as_str(), bed.failures()), ("fail", 1));
    // The abandoned thread can finish its write now.
    assert_eq!(fs::read(&stuck).expect("it is written"), b"1");
}
