//! A host with NVMe controllers in a folder, with a simulated kernel.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::folder::{link, put};

/// Size of the only namespace of each controller.
const NAMESPACE_BYTES: u64 = 64 << 20;

/// The folders /sys, /dev and /proc of a host, below a root. A write to a file for drivers has the same effect as in
/// the kernel.
#[derive(Clone, Debug)]
pub struct PciHost {
    root: PathBuf,
}

fn first(line: &str) -> &str {
    line.split('\n').next().unwrap_or_default()
}

impl PciHost {
    /// Returns a host without controllers, on which vfio-pci is loaded.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        for folder in ["dev", "proc", "media", "sys/block", "sys/bus/pci/drivers/vfio-pci"] {
            fs::create_dir_all(root.join(folder)).expect("a folder can be made");
        }
        Self { root: root.to_owned() }
    }

    fn device(&self, address: &str) -> PathBuf {
        self.root.join("sys/devices/pci0000:00").join(address)
    }

    /// Writes an attribute of the function at `address`.
    pub fn set(&self, address: &str, attribute: &str, text: &str) {
        put(&self.device(address).join(attribute), text);
    }

    /// Adds a function of a class to an IOMMU group, without a driver.
    pub fn add(&self, address: &str, class: &str, group: Option<u32>) {
        let device = self.device(address);
        self.set(address, "class", class);
        self.set(address, "driver_override", "(null)");
        self.set(address, "sriov_numvfs", "0");
        link(&device, &self.root.join("sys/bus/pci/devices").join(address));
        if let Some(group) = group {
            let group = self.root.join(format!("sys/kernel/iommu_groups/{group}"));
            link(&device, &group.join("devices").join(address));
            link(&group, &device.join("iommu_group"));
        }
    }

    /// Adds a controller with the number and the serial number, bound to the driver nvme. Its device node is
    /// `dev/nvmeNUMBERn1`.
    pub fn add_nvme(&self, address: &str, number: u32, serial: &str) {
        self.add(address, "0x010802", Some(number));
        self.set(address, "serial", serial);
        self.set(address, "number", &number.to_string());
        self.set(address, "model", "Example 9000");
        self.set(address, "wwid", &format!("eui.00{serial}"));
        let medium = fs::File::create(self.root.join("media").join(serial));
        medium.and_then(|file| file.set_len(NAMESPACE_BYTES)).expect("a file can be made");
        self.write("sys/bus/pci/drivers_probe", address).expect("the driver takes it");
    }

    /// Binds the function to a driver, as another program could.
    pub fn bind(&self, address: &str, driver: &str) {
        let target = self.root.join("sys/bus/pci/drivers").join(driver);
        link(&target, &self.device(address).join("driver"));
        if driver == "nvme" {
            self.show_drive(address);
        }
    }

    /// Returns the driver of the function at `address`.
    #[must_use]
    pub fn driver(&self, address: &str) -> Option<String> {
        let driver = fs::read_link(self.device(address).join("driver")).ok()?;
        Some(driver.file_name()?.to_str()?.to_owned())
    }

    /// Returns an attribute of the function at `address`.
    #[must_use]
    pub fn get(&self, address: &str, attribute: &str) -> String {
        let text = fs::read_to_string(self.device(address).join(attribute)).unwrap_or_default();
        first(&text).to_owned()
    }

    /// Reboots: state that the devices do not store is lost, and all devices are probed again without an override.
    pub fn reboot(&self) {
        let boot = self.root.join("proc/sys/kernel/random/boot_id");
        let last = fs::read_to_string(&boot).unwrap_or_default();
        put(&boot, &format!("{}+", last.trim()));
        let devices = fs::read_dir(self.root.join("sys/devices/pci0000:00")).into_iter().flatten();
        for address in devices.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
            if self.get(&address, "serial").is_empty() {
                continue;
            }
            self.unbind(&address);
            self.set(&address, "driver_override", "(null)");
            self.bind(&address, "nvme");
        }
    }

    /// Swaps the drives at two addresses; both are probed again.
    pub fn swap(&self, one: &str, other: &str) {
        self.unbind(one);
        self.unbind(other);
        for attribute in ["serial", "number", "model", "wwid"] {
            let (mine, theirs) = (self.get(one, attribute), self.get(other, attribute));
            self.set(one, attribute, &theirs);
            self.set(other, attribute, &mine);
        }
        self.reboot();
    }

    fn show_drive(&self, address: &str) {
        let (serial, number) = (self.get(address, "serial"), self.get(address, "number"));
        let controller = self.device(address).join(format!("nvme/nvme{number}"));
        let name = format!("nvme{number}n1");
        let block = controller.join(&name);
        put(&controller.join("serial"), &serial);
        put(&controller.join("model"), &self.get(address, "model"));
        put(&block.join("size"), &(NAMESPACE_BYTES / 512).to_string());
        put(&block.join("dev"), &format!("259:{number}"));
        put(&block.join("wwid"), &self.get(address, "wwid"));
        link(&controller, &block.join("device"));
        link(&block, &self.root.join("sys/block").join(&name));
        link(&controller, &self.root.join(format!("sys/class/nvme/nvme{number}")));
        let node = self.root.join("dev").join(&name);
        fs::hard_link(self.root.join("media").join(serial), node).expect("a node can be made");
    }

    fn unbind(&self, address: &str) {
        if self.driver(address).as_deref() == Some("nvme") {
            let number = self.get(address, "number");
            let paths = [
                format!("sys/block/nvme{number}n1"),
                format!("sys/class/nvme/nvme{number}"),
                format!("dev/nvme{number}n1"),
            ];
            for path in paths {
                fs::remove_file(self.root.join(path)).expect("it is there");
            }
            fs::remove_dir_all(self.device(address).join("nvme")).expect("it is there");
        }
        let _ = fs::remove_file(self.device(address).join("driver"));
    }

    /// Writes `text` to `file`, which is below the root, with the effects of the kernel.
    ///
    /// # Errors
    /// As in the kernel: there is no such file or device.
    pub fn write(&self, file: &str, text: &str) -> io::Result<()> {
        if file == "sys/bus/pci/drivers_probe" {
            if !self.device(text).exists() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            if self.driver(text).is_none() {
                let only = self.get(text, "driver_override");
                self.bind(text, if only == "(null)" { "nvme" } else { &only });
            }
            return Ok(());
        }
        let of_device =
            file.strip_prefix("sys/bus/pci/devices/").and_then(|rest| rest.split_once('/'));
        match of_device {
            Some((address, "driver/unbind")) if self.driver(address).is_some() => {
                self.unbind(address)
            }
            Some((address, "driver_override")) if self.device(address).exists() => {
                let only = if first(text).is_empty() { "(null)" } else { first(text) };
                self.set(address, "driver_override", only);
            }
            _ => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(())
    }
}
