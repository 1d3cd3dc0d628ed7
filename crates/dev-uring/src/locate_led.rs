//! The locate LED of a drive's slot, by which a person finds it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::sysfs::entries;

/// A locate LED that the kernel can switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocateLed {
    attribute: PathBuf,
    on: &'static str,
    off: &'static str,
}

impl LocateLed {
    /// The locate LED for the block device at `folder` of sysfs: an enclosure's (Documentation/ABI/testing/sysfs-class-
    /// enclosure: `locate`), one of PCIe enclosure management on the drive or a bridge before it (drivers/pci/npem.c,
    /// LED class), or the attention indicator of the hot-plug slot (drivers/pci/hotplug: 2 blinks).
    pub(crate) fn of(folder: &Path, slot: Option<&Path>) -> Option<Self> {
        let device = folder.join("device");
        let enclosure = entries(&device)
            .into_iter()
            .filter(|name| name.starts_with("enclosure_device:"))
            .map(|name| device.join(name).join("locate"));
        let npem = folder.ancestors().flat_map(|step| {
            let leds = step.join("leds");
            let names = entries(&leds).into_iter();
            let locate = names.filter(|name| name.ends_with(":enclosure:locate"));
            locate.map(move |name| leds.join(name).join("brightness")).collect::<Vec<_>>()
        });
        let attention = slot.into_iter().map(|slot| slot.join("attention"));
        let switches =
            enclosure.chain(npem).map(|path| (path, "1")).chain(attention.map(|path| (path, "2")));
        let mut present = switches.filter(|(path, _)| path.exists());
        present.next().map(|(attribute, on)| Self { attribute, on, off: "0" })
    }

    /// The attribute that is written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.attribute
    }

    /// Switches it.
    ///
    /// # Errors
    /// When the kernel refuses, as it does for everybody but root.
    pub fn switch(&self, on: bool) -> io::Result<()> {
        fs::write(&self.attribute, if on { self.on } else { self.off })
    }
}
