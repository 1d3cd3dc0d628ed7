//! The stop of the daemon: the records that it writes, and those that it must not write.

use super::{Testbed, control_in, folder, stop};
use crate::ControlErrorKind;
use crate::control::Control;
use crate::drives::OpenDrive;
use crate::manager::Options;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use strake_block::{BlockDevice, DeviceError, DeviceInfo, IoQueue};
use strake_dev_mem::RamDevice;
use strake_units::{BlockSize, CoreIndex};

/// Returns true if the previous daemon on this state directory did not stop cleanly.
fn was_unclean(control: &Control) -> bool {
    control.with(|m| m.records.store.was_unclean()).expect("it answers")
}

#[test]
fn a_stop_in_the_middle_of_a_start_is_not_called_an_orderly_one() {
    let (mut control, _) = Testbed::raid6(4);
    control.restart();
    assert!(!was_unclean(&control), "it was stopped in order");
    // A start changed labels, and was refused before the array ran.
    control.with(|m| m.cut_short.push("other".to_owned())).expect("it answers");
    let errors = control.stop();
    assert!(errors.iter().any(|e| e.what.contains("other was being started")), "{errors:?}");
    control.restart();
    assert!(was_unclean(&control), "labels say that an array runs");
}

#[test]
fn nothing_is_written_once_the_directory_is_given_up() {
    let folder = folder();
    let control = control_in(&folder, Options::default());
    stop(&control);
    let late = control.run(|m| m.records.check(&m.records));
    let late = late.expect_err("the directory may be another daemon's");
    assert_eq!(late.kind, ControlErrorKind::Stopped);
    // The remaining part of the first process does not prevent the start of the next one.
    let next = control_in(&folder, Options::default());
    assert!(
        control.run(|m| m.records.store.mark_clean()).is_err(),
        "it is for the next one to say"
    );
    stop(&next);
}

/// Usability defect 7, the part about a clean stop.
#[test]
fn what_a_command_acknowledged_is_on_the_members_when_a_stop_ends() {
    let (mut control, drives) = Testbed::raid6(4);
    control.export_nbd();
    control.tick().expect("it answers");
    control.remove_export("tank");
    // No round of upkeep runs in between.
    control.lose_state();
    control.start();
    let import =
        strake_api::v1::ImportArraysRequest { drives, exports: true, ..Default::default() };
    let imported = control.import_arrays(&import).expect("its drives are here");
    assert!(control.tank().exports.is_empty(), "it was removed: {:?}", imported.warnings);
}

/// History: a stop while an array was being unloaded, or was stopped to grow, was recorded as clean although the array
/// was not stopped yet.
#[test]
fn a_stop_waits_for_commands_and_is_not_in_order_without_them() {
    let folder = folder();
    let work = |control: &Control| {
        let keys = vec!["array tank".to_owned()];
        control.reserve(|_| Ok(((), keys.clone()))).expect("nobody else works on it").1
    };
    let control = control_in(&folder, Options::default());
    let held = work(&control);
    let errors = control.stop_within(Duration::ZERO);
    let reported: Vec<&str> = errors.iter().map(|error| error.what.as_str()).collect();
    assert!(
        reported.iter().any(|what| what.contains("command on array tank has not ended")),
        "{reported:?}"
    );
    drop((held, control));

    let control = control_in(&folder, Options::default());
    assert!(was_unclean(&control), "the stop before is not called orderly");
    let held = work(&control);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| control.stop());
        while !control.with(|m| m.stopping).expect("it answers") {
            std::thread::yield_now();
        }
        drop(held);
        let errors = stopping.join().expect("no panic");
        assert!(errors.is_empty(), "{errors:?}");
    });
}

/// A device that blocks its close until the test permits it.
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

/// History: a start opened a drive that another start had just released, and found it in use: its reservation was
/// released before the drive was closed.
#[test]
fn a_drive_is_not_free_before_it_is_closed() {
    let control = Testbed::new();
    let (go, gate) = mpsc::channel();
    let device = RamDevice::new(256, BlockSize::B4096);
    let held = OpenDrive::of_device("/held", Arc::new(Held { device, gate: Mutex::new(gate) }));
    let opening = held.sighting().opening_key("/held");
    let is_reserved = || control.with(|m| m.reserved.contains(&opening)).expect("it answers");
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| {
            control.with(|m| {
                m.drives.add(held);
                m.drives.close_unless(|_| false);
            })
        });
        while !is_reserved() {
            assert!(!closing.is_finished(), "it was closed, and could be opened meanwhile");
        }
        go.send(()).expect("it is being closed");
        closing.join().expect("no panic").expect("it answers");
    });
    assert!(!is_reserved(), "it is closed");
}
