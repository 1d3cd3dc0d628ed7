//! How the daemon ends: what it records then, and what it does not.

use super::{Folder, array, raid6, stop};
use crate::ControlErrorKind;
use crate::control::Control;
use crate::drives::OpenDrive;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use strake_block::{BlockDevice, DeviceError, DeviceInfo, IoQueue};
use strake_dev_mem::RamDevice;
use strake_units::{BlockSize, CoreIndex};

/// Whether the daemon before the one on this state directory was stopped in order.
fn was_unclean(control: &Control) -> bool {
    control.run(|m| Ok(m.records.store.was_unclean())).expect("it answers")
}

#[test]
fn a_stop_in_the_middle_of_a_start_is_not_called_an_orderly_one() {
    let folder = Folder::new();
    let control = folder.control();
    control.create_array(&raid6(folder.drives(4))).expect("it is created");
    stop(&control);
    drop(control);
    let control = folder.control();
    assert!(!was_unclean(&control), "it was stopped in order");
    // A start had changed labels, and was refused when the array was to run.
    let cut_short = |m: &mut crate::Manager| {
        m.cut_short.push("other".to_owned());
        Ok(())
    };
    control.run(cut_short).expect("it answers");
    let errors = control.stop();
    assert!(errors.iter().any(|e| e.what.contains("other was being started")), "{errors:?}");
    drop(control);
    assert!(was_unclean(&folder.control()), "labels say that an array runs");
}

#[test]
fn nothing_is_written_once_the_directory_is_given_up() {
    let folder = Folder::new();
    let control = folder.control();
    stop(&control);
    let late = control.run(|m| m.records.check(&m.records));
    let late = late.expect_err("the directory may be another daemon's");
    assert_eq!(late.kind, ControlErrorKind::Stopped);
    // It is: what stays of the first process does not keep the next one out.
    let next = folder.control();
    assert!(
        control.run(|m| m.records.store.mark_clean()).is_err(),
        "it is for the next one to say"
    );
    stop(&next);
}

/// Usability defect 7, the half of it that is about an orderly stop.
#[test]
fn what_a_command_acknowledged_is_on_the_members_when_a_stop_ends() {
    let folder = Folder::new();
    let drives = folder.drives(4);
    let control = folder.control();
    control.create_array(&raid6(drives.clone())).expect("it is created");
    let listen = format!("unix:{}", folder.path("nbd.sock").display());
    let request = strake_api::v1::CreateExportRequest {
        array: "tank".into(),
        name: "gone".into(),
        listen,
        ..Default::default()
    };
    control.run(|m| m.create_export(&request)).expect("it is offered");
    control.tick().expect("it answers");
    let remove = strake_api::v1::RemoveExportRequest { name: "gone".into(), force: true };
    control.run(|m| m.remove_export(&remove)).expect("it is removed");
    // No round of upkeep in between.
    stop(&control);
    drop(control);
    std::fs::remove_dir_all(folder.path("state")).expect("it can be removed");
    let control = folder.control();
    let import = strake_api::v1::ImportArraysRequest { drives, ..Default::default() };
    control.import_arrays(&import).expect("its drives are here");
    assert!(array(&control, "tank").expect("it is there").exports.is_empty(), "it was removed");
    stop(&control);
}

/// A stop that came while an array was being unloaded, or stopped to grow, called itself orderly although that array
/// was not stopped yet.
#[test]
fn a_stop_waits_for_commands_and_is_not_in_order_without_them() {
    let folder = Folder::new();
    let work = |control: &Control| {
        let keys = vec!["array tank".to_owned()];
        control.reserve(|_| Ok(((), keys.clone()))).expect("nobody else works on it").1
    };
    let control = folder.control();
    let held = work(&control);
    let errors = control.stop_within(Duration::ZERO);
    let reported: Vec<&str> = errors.iter().map(|error| error.what.as_str()).collect();
    assert!(reported.iter().any(|what| what.contains("works on array tank")), "{reported:?}");
    drop((held, control));

    let control = folder.control();
    assert!(was_unclean(&control), "the stop before is not called orderly");
    let held = work(&control);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| control.stop());
        while !control.run(|m| Ok(m.stopping)).expect("it answers") {
            std::thread::yield_now();
        }
        drop(held);
        let errors = stopping.join().expect("no panic");
        assert!(errors.is_empty(), "{errors:?}");
    });
}

/// A device whose closing waits until it is let go.
struct Held {
    device: RamDevice,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl BlockDevice for Held {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        self.device.open_queue(core, depth)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.gate.lock().expect("no panic").recv();
    }
}

/// A start opened a drive that another start had just given back, and found it in use: it was free for others before it
/// was closed.
#[test]
fn a_drive_is_not_free_before_it_is_closed() {
    let folder = Folder::new();
    let control = folder.control();
    let (go, gate) = mpsc::channel();
    let device = RamDevice::new(256, BlockSize::B4096);
    let held = OpenDrive::of_device("/held", Arc::new(Held { device, gate: Mutex::new(gate) }));
    let opening = held.sighting().opening_key("/held");
    let is_reserved = || control.run(|m| Ok(m.reserved.contains(&opening))).expect("it answers");
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| {
            control.run(|m| {
                m.drives.add(held);
                m.drives.close_unless(|_| false);
                Ok(())
            })
        });
        while !is_reserved() {
            assert!(!closing.is_finished(), "it was closed, and could be opened meanwhile");
        }
        go.send(()).expect("it is being closed");
        closing.join().expect("no panic").expect("it answers");
    });
    assert!(!is_reserved(), "it is closed");
    stop(&control);
}
