//! The slots of drives in a host, named by their ports, with their LEDs.
//!
//! A slot belongs to the port, not to the drive: it stays the same when another drive is inserted, and with every
//! driver of the drive.

use std::fs;
use std::path::{Path, PathBuf};

use crate::light::Light;
use crate::machine::{KernelDrive, Machine, is_pci_address};
use crate::slot_names::SlotNames;
use crate::sysfs::{attribute, entries};

/// A slot for a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Its name: the operator's name, or enclosure and element. For a drive that is a PCI function itself, it is the
    /// number of the PCI slot, the number that the firmware assigns (`_SUN`), or the PCI address. Empty if unknown.
    pub name: String,
    /// Its LED, if there is one that can be switched.
    pub light: Option<Light>,
}

/// The position of a drive in the kernel's device tree.
struct Place {
    /// The enclosure element that contains it.
    enclosure: Option<PathBuf>,
    /// The PCI functions of the drive, each with the ports above it; several if it has several ports. Empty if it is
    /// behind a host bus adapter, whose slot is not the slot of the drive.
    functions: Vec<Function>,
}

struct Function {
    address: String,
    folder: Option<PathBuf>,
    /// The bridges above it, nearest first.
    ports: Vec<PathBuf>,
}

impl Machine {
    /// The slot of a drive of the kernel.
    #[must_use]
    pub fn slot_of(&self, drive: &KernelDrive) -> Slot {
        self.slot(&drive.folder, &drive.pci, &self.slot_names())
    }

    /// The slot of the PCI function at `address`, independent of its driver; `None` if there is no such function.
    #[must_use]
    pub fn slot_at(&self, address: &str) -> Option<Slot> {
        let folder = fs::canonicalize(self.pci_devices().join(address)).ok()?;
        Some(self.slot(&folder, &[address.to_owned()], &self.slot_names()))
    }

    /// The reason why the operator's file of slot names has no effect, if there is one.
    #[must_use]
    pub fn slot_names_trouble(&self) -> Option<String> {
        let file = self.slots_file();
        SlotNames::read(&file).err().map(|why| format!("{}: {why}", file.display()))
    }

    /// True if a process with this name runs (proc(5), `/proc/PID/comm`).
    #[must_use]
    pub fn runs(&self, program: &str) -> bool {
        let proc = self.proc();
        let is_process = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
        let mut processes = entries(proc).into_iter().filter(is_process);
        processes.any(|process| attribute(&proc.join(process), "comm").as_deref() == Some(program))
    }

    /// Reads the operator's names. An invalid file defines no names; see
    /// [`slot_names_trouble`](Self::slot_names_trouble).
    pub(crate) fn slot_names(&self) -> SlotNames {
        SlotNames::read(&self.slots_file()).unwrap_or_default()
    }

    fn slots_file(&self) -> PathBuf {
        self.etc().join("strake/slots.toml")
    }

    fn pci_devices(&self) -> PathBuf {
        self.sys().join("bus/pci/devices")
    }

    /// The slot of the device at `folder` with these PCI functions.
    pub(crate) fn slot(&self, folder: &Path, pci: &[String], names: &SlotNames) -> Slot {
        let is_drive = |address: &&String| self.is_drive(folder, address);
        let pci: Vec<String> = pci.iter().filter(is_drive).cloned().collect();
        let place = self.place(folder, &pci);
        let hotplug = self.hotplug_slot(&pci);
        let natural = place.natural_name(hotplug.as_deref());
        let ports = place.functions.iter().flat_map(Function::addresses);
        let own = names.name_of(ports.chain([natural.as_str()]));
        let name = own.unwrap_or(natural);
        let of_hotplug = || {
            let folder = hotplug.as_deref()?;
            Light::of_hotplug(folder, &attribute(folder, "address")?)
        };
        let light = place.enclosure.as_deref().and_then(Light::of_enclosure);
        let light = light.or_else(|| place.npem()).or_else(of_hotplug);
        Slot { name, light }
    }

    /// The folder of the PCI function at `address`, which is above the device at `folder`.
    fn function(&self, folder: &Path, address: &str) -> Option<PathBuf> {
        let known = fs::canonicalize(self.pci_devices().join(address)).ok();
        let above = || folder.ancestors().find(|step| step.ends_with(address));
        known.or_else(|| above().map(Path::to_owned))
    }

    /// True if the PCI function at `address` is a drive itself: an NVMe controller (class 0108h), or a virtio block
    /// device, transitional or not (Virtual I/O Device 1.2, section 4.1.2).
    fn is_drive(&self, folder: &Path, address: &str) -> bool {
        let Some(folder) = self.function(folder, address) else { return false };
        let text = |what: &str| attribute(&folder, what).unwrap_or_default();
        let is_virtio_block = || {
            text("vendor") == "0x1af4" && ["0x1001", "0x1042"].contains(&text("device").as_str())
        };
        text("class").starts_with("0x0108") || is_virtio_block()
    }

    fn place(&self, folder: &Path, pci: &[String]) -> Place {
        let device = folder.join("device");
        let enclosure = entries(&device).into_iter().find_map(|entry| {
            entry.strip_prefix("enclosure_device:")?;
            fs::canonicalize(device.join(&entry)).ok()
        });
        let function = |address: &String| {
            let folder = self.function(folder, address);
            let before = folder.iter().flat_map(|folder| folder.ancestors().skip(1));
            let ports = before.take_while(|step| pci_name(step).is_some()).map(Path::to_owned);
            Function { address: address.clone(), ports: ports.collect(), folder }
        };
        Place { enclosure, functions: pci.iter().map(function).collect() }
    }

    /// The hot-plug slot of a PCI address (Documentation/ABI/testing/sysfs-bus-pci: `address` has no function).
    fn hotplug_slot(&self, pci: &[String]) -> Option<PathBuf> {
        let slots = self.sys().join("bus/pci/slots");
        let devices: Vec<&str> =
            pci.iter().filter_map(|pci| Some(pci.rsplit_once('.')?.0)).collect();
        let address = |name: &String| attribute(&slots.join(name), "address");
        let is_mine =
            |name: &String| address(name).is_some_and(|own| devices.contains(&own.as_str()));
        entries(&slots).into_iter().find(is_mine).map(|name| slots.join(name))
    }
}

impl Place {
    /// The default name of the slot.
    fn natural_name(&self, hotplug: Option<&Path>) -> String {
        let text = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
        let element = || {
            let folder = self.enclosure.as_deref()?;
            Some(format!("enclosure {} {}", text(folder.parent()?)?, text(folder)?))
        };
        let numbered = || Some(format!("PCI slot {}", text(hotplug?)?));
        // Documentation/ABI/testing/sysfs-devices-sun: the slot number that ACPI defines for users.
        let sun = || {
            let steps = self.functions.iter().flat_map(|f| f.folder.iter().chain(f.ports.first()));
            let number = |step: &PathBuf| attribute(&step.join("firmware_node"), "sun");
            steps.into_iter().find_map(number).map(|number| format!("slot {number}"))
        };
        let address = || Some(self.functions.first()?.address.clone());
        element().or_else(numbered).or_else(sun).or_else(address).unwrap_or_default()
    }

    /// PCIe enclosure management of the drive or of the port above it. Bridges further up are shared with other slots.
    fn npem(&self) -> Option<Light> {
        let near =
            |f: &Function| f.folder.iter().chain(f.ports.first()).cloned().collect::<Vec<_>>();
        self.functions.iter().flat_map(near).find_map(|folder| Light::of_npem(&folder))
    }
}

impl Function {
    /// Its address and those of the bridges above it.
    fn addresses(&self) -> impl Iterator<Item = &str> {
        let ports = self.ports.iter().filter_map(|port| pci_name(port));
        std::iter::once(self.address.as_str()).chain(ports)
    }
}

/// The address of the PCI function at a folder.
fn pci_name(folder: &Path) -> Option<&str> {
    folder.file_name()?.to_str().filter(|name| is_pci_address(name))
}
