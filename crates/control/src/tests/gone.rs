//! A PCI device that was pulled is closed, because the kernel removes the device only after it is closed.

use super::{Testbed, hold, raid6, replace, tick_until};
use crate::drives::OpenDrive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strake_block::{BlockDevice, DeviceError, DeviceInfo, IoQueue};
use strake_dev_mem::{Intercept, RamDevice};
use strake_units::{BlockSize, CoreIndex};

const PATH: &str = "pci:0000:3b:00.0";

/// A drive in memory that can be pulled.
struct Pulled {
    inner: RamDevice,
    gone: Arc<AtomicBool>,
    /// A reference that the device and each of its queues hold.
    open: Arc<()>,
}

impl BlockDevice for Pulled {
    fn info(&self) -> DeviceInfo {
        let info = self.inner.info();
        if self.gone.load(Ordering::SeqCst) { DeviceInfo { blocks: 0, ..info } } else { info }
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let inner = self.inner.open_queue(core, depth)?;
        let open = Arc::clone(&self.open);
        Ok(Box::new(Intercept::new(inner, move |queue, io| {
            let _open = &open;
            queue.submit(io)
        })))
    }
}

/// Adds a drive at [`PATH`]. Returns the switch that pulls it, and the reference that is held while the drive is open.
fn plug_in(control: &Testbed) -> (Arc<AtomicBool>, Arc<()>) {
    let (gone, open) = (Arc::new(AtomicBool::new(false)), Arc::new(()));
    let device = Pulled {
        inner: RamDevice::new((128 << 20) / 512, BlockSize::B512),
        gone: Arc::clone(&gone),
        open: Arc::clone(&open),
    };
    let drive = OpenDrive::of_pci(PATH, Arc::new(device));
    control.with(|m| m.drives.add(drive)).expect("it answers");
    (gone, open)
}

/// Without I/O the engine does not notice that the device was removed. History: its queues were kept for as long as the
/// array was loaded, and the slot could not be used again until then.
#[test]
fn a_pulled_pci_device_is_missing_and_closed_while_its_array_serves() {
    let control = Testbed::new();
    let (gone, open) = plug_in(&control);
    let mut drives = control.drives(3);
    drives.push(PATH.to_owned());
    control.create_array(&raid6(drives)).expect("it is created");
    assert_eq!(control.tank().members[3].path, PATH);
    assert!(Arc::strong_count(&open) > 2, "the array has queues of it");
    gone.store(true, Ordering::SeqCst);
    tick_until(&control, "the member is missing", || control.tank().members[3].state == "missing");
    tick_until(&control, "the device is closed", || Arc::strong_count(&open) == 1);
    assert!(control.tank().states.contains(&"degraded".to_owned()));
}

/// A device that appears at the address later is another device, even if it has the same identity.
#[test]
fn a_pci_device_that_has_gone_is_not_taken_for_the_next_at_its_address() {
    let control = Testbed::new();
    let (gone, open) = plug_in(&control);
    control.with(|m| m.drives.look_up(PATH).map(drop)).expect("it answers").expect("it is there");
    gone.store(true, Ordering::SeqCst);
    let refused = control.with(|m| m.drives.named(PATH)).expect("it answers");
    assert!(refused.is_none(), "it is not used again");
    tick_until(&control, "the device is closed", || Arc::strong_count(&open) == 1);
}

/// Without writes the engine does not notice that the replacement was removed, and a paused copy writes no blocks.
#[test]
fn a_copy_to_a_pci_device_that_has_gone_is_cancelled() {
    let (control, _) = Testbed::raid6(4);
    let (gone, open) = plug_in(&control);
    hold(&control, true);
    control.replace_member(&replace(1, PATH)).expect("the copy begins");
    assert_eq!(control.tank().members[1].replacement, PATH);
    gone.store(true, Ordering::SeqCst);
    tick_until(&control, "the copy is cancelled", || {
        control.tank().members[1].replacement.is_empty()
    });
    tick_until(&control, "the device is closed", || Arc::strong_count(&open) == 1);
    assert!(control.tank().states.contains(&"online".to_owned()), "the member keeps its slot");
}
