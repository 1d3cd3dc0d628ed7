//! Checks of a controller with sysfs before it is opened, and the opening.
//!
//! Every possible refusal is based on sysfs and names the remedy, before VFIO accesses the device.

use crate::transport::vfio::{Container, VfioFunction};
use crate::{NvmeDevice, Window};
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use strake_block::{DeviceError, IoErrorKind};

pub mod bind;

/// The prefix of the specification of a drive of this driver: `pci:0000:01:00.0`.
pub const SCHEME: &str = "pci:";
/// Mass storage, non-volatile memory, NVM Express (PCI Code and ID Assignment, 1.9).
const CLASS_NVME: &str = "0x010802";
/// The driver of a bridge does not affect a group.
const CLASS_BRIDGE: &str = "0x06";
/// The kernel driver that passes devices to user space.
const DRIVER: &str = "vfio-pci";

/// Returns a PCI address in its usual form, such as `0000:01:00.0`. The domain 0 may be omitted.
#[must_use]
pub fn address_of(text: &str) -> Option<String> {
    let (head, function) = text.rsplit_once('.')?;
    let parts: Vec<&str> = head.split(':').collect();
    let (domain, bus, device) = match parts[..] {
        [domain, bus, device] => (domain, bus, device),
        [bus, device] => ("0000", bus, device),
        _ => return None,
    };
    let is_hex = |(part, digits): (&str, RangeInclusive<usize>)| {
        digits.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_right =
        [(domain, 4..=5), (bus, 2..=2), (device, 2..=2), (function, 1..=1)].into_iter().all(is_hex);
    is_right.then(|| format!("{domain}:{bus}:{device}.{function}").to_lowercase())
}

/// The devices of the host, below a root directory; `/` except in tests.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self::at(Path::new("/"))
    }
}

impl Host {
    /// Returns a host whose /sys is in `root`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn folder(&self, address: &str) -> PathBuf {
        self.root.join("sys/bus/pci/devices").join(address)
    }

    fn class(&self, address: &str) -> String {
        let class = fs::read_to_string(self.folder(address).join("class")).unwrap_or_default();
        class.trim().to_owned()
    }

    fn driver(&self, address: &str) -> Option<String> {
        let driver = fs::read_link(self.folder(address).join("driver")).ok()?;
        Some(driver.file_name()?.to_str()?.to_owned())
    }

    /// The addresses of the devices in the IOMMU group of a device; `None` without a group.
    fn group(&self, address: &str) -> Option<Vec<String>> {
        let devices = fs::read_dir(self.folder(address).join("iommu_group/devices")).ok()?;
        let names = devices.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        Some(names)
    }

    /// Distinguishes a device from a later one at the same address: the inode number of its folder in sysfs, which each
    /// arrival creates again. `None` if there is no device.
    #[must_use]
    pub fn arrival(&self, address: &str) -> Option<u64> {
        fs::metadata(self.folder(address)).ok().map(|folder| folder.ino())
    }

    /// Refuses a device that cannot be driven from user space in its present state.
    ///
    /// # Errors
    /// There is no device at `address`, it is no NVMe controller, it has no IOMMU, its group is not free, or it is not
    /// bound to vfio-pci. The error names the remedy.
    pub fn check(&self, address: &str) -> Result<(), DeviceError> {
        let fail =
            |kind, what: String| Err(DeviceError::new(kind, format!("{SCHEME}{address}"), what));
        let Some(picture) = self.picture(address) else {
            return fail(IoErrorKind::Gone, "there is no PCI device at this address".to_owned());
        };
        if let Some(what) = picture.unfit() {
            return fail(IoErrorKind::Unsupported, what);
        }
        if !picture.is_bound() {
            let bound = picture.driver.as_ref().map_or_else(
                || "has no driver".to_owned(),
                |driver| format!("is bound to the kernel driver {driver}"),
            );
            let what = format!("{bound}, not to {DRIVER}, which has to have it");
            return fail(IoErrorKind::Unsupported, what);
        }
        picture.shared().map_or(Ok(()), |what| fail(IoErrorKind::Unsupported, what))
    }

    /// Opens the controller at `address`. It shares the address space of all other open controllers, in which the pools
    /// of the process are mapped.
    ///
    /// # Errors
    /// As [`check`](Self::check); also, another process uses the controller, or it does not become ready.
    pub fn open(&self, address: &str) -> Result<NvmeDevice, DeviceError> {
        self.check(address)?;
        let (function, window) = opened(address)?;
        NvmeDevice::open(&format!("{SCHEME}{address}"), Box::new(function), &window)
    }
}

/// The address space of the open drives.
struct Last {
    container: Weak<Container>,
    window: Weak<Window>,
}

static LAST: Mutex<Last> = Mutex::new(Last { container: Weak::new(), window: Weak::new() });

fn last() -> MutexGuard<'static, Last> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The container of the open drives, if a drive is open.
fn container() -> Option<Arc<Container>> {
    last().container.upgrade()
}

/// Opens the function at `address`, in the address space of the open drives, or in a new one.
fn opened(address: &str) -> Result<(VfioFunction, Arc<Window>), DeviceError> {
    let mut last = last();
    let container = match last.container.upgrade() {
        Some(container) => container,
        None => Container::new()?,
    };
    let function = VfioFunction::open(address, &container)?;
    // Only now the container has an IOMMU, which reports its address ranges.
    let window = last.window.upgrade().unwrap_or_else(|| {
        let window = Window::new(Arc::<Container>::clone(&container));
        window.follow_pools();
        window
    });
    *last = Last { container: Arc::downgrade(&container), window: Arc::downgrade(&window) };
    Ok((function, window))
}

#[cfg(test)]
mod tests;
