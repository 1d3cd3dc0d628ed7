//! Binding a controller to vfio-pci, and giving it back to the kernel driver.
//!
//! A [`Picture`] is the state of a function in sysfs. It determines the remaining writes, so that the same request
//! completes an operation that a crash interrupted. A [`Binder`] makes these writes through a [`Kernel`], an interface
//! that tests implement in place of the kernel.
//!
//! Attributes are those of Documentation/ABI/testing/sysfs-bus-pci in the kernel's source.

use super::{CLASS_BRIDGE, CLASS_NVME, DRIVER, Host, SCHEME, address_of};
use crate::transport::vfio;
use rustix::fs::{Mode, OFlags, open};
use std::any::Any;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strake_block::{DeviceError, IoErrorKind};

/// Writing to this file makes the kernel offer a device to its drivers again.
const PROBE: &str = "sys/bus/pci/drivers_probe";

/// The remedy if a released device has no driver.
const NO_DRIVER: &str = "has no driver after all writes; load the driver of the kernel (modprobe nvme), and try \
                         again; the kernel log (dmesg) may say why";

/// The state of a PCI function in sysfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// Its address, such as `0000:3b:00.0`.
    pub address: String,
    /// Its class, such as `0x010802`.
    pub class: String,
    /// The driver that it is bound to.
    pub driver: Option<String>,
    /// The only driver that may be bound to it (`driver_override`).
    pub only_driver: Option<String>,
    /// Virtual functions that are enabled.
    pub virtual_functions: u32,
    /// Its IOMMU group; `None` without an IOMMU.
    pub group: Option<Vec<Neighbour>>,
    /// Whether the driver vfio-pci is loaded.
    pub has_vfio: bool,
    /// The identity of the drive, while the kernel drives it.
    pub identity: Option<Identity>,
    /// Names of its namespaces, after the kernel has found them.
    pub namespaces: Vec<String>,
}

/// The identity of a drive: a serial number is unique only among the drives of one vendor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Serial number.
    pub serial: String,
    /// Model; empty if unknown.
    pub model: String,
    /// Worldwide name of the first namespace; empty if unknown.
    pub wwid: String,
}

impl Identity {
    /// Whether all properties that both have are equal.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        let agree = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
        self.serial == other.serial
            && agree(&self.model, &other.model)
            && agree(&self.wwid, &other.wwid)
    }
}

/// A device of an IOMMU group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address.
    pub address: String,
    /// Its class.
    pub class: String,
    /// The driver that it is bound to.
    pub driver: Option<String>,
}

/// A write to a file of sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The file, below the root of the host.
    pub file: String,
    /// The written text.
    pub text: String,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.text == "\n" { "an empty line" } else { &self.text };
        write!(f, "write {text} to /{}", self.file)
    }
}

impl Picture {
    /// Whether the device is bound to vfio-pci.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.driver.as_deref() == Some(DRIVER)
    }

    /// Whether the device can be driven from user space once it is bound to vfio-pci.
    #[must_use]
    pub fn waits_to_be_bound(&self) -> bool {
        self.unfit().is_none() && !self.is_bound()
    }

    /// The serial number of the controller, while the kernel drives it.
    #[must_use]
    pub fn serial(&self) -> Option<&str> {
        self.identity.as_ref().map(|identity| identity.serial.as_str())
    }

    /// Whether the drive, its namespaces and its driver are the same as in `other`.
    fn is_as(&self, other: &Self) -> bool {
        let of = |picture: &Self| Self { group: None, has_vfio: false, ..picture.clone() };
        of(self) == of(other)
    }

    /// Whether a binding to vfio-pci was started and not finished.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.driver.is_none() && self.only_driver.as_deref() == Some(DRIVER)
    }

    /// Why the device can never be driven from user space on this host in its present state, and the remedy.
    pub(super) fn unfit(&self) -> Option<String> {
        if self.class != CLASS_NVME {
            return Some(format!(
                "is no NVMe controller: its class is {}, not {CLASS_NVME}",
                self.class
            ));
        }
        let what = "has no IOMMU, so that a wrong address would destroy memory; enable VT-d or AMD-Vi in the \
                    firmware, add intel_iommu=on to the kernel command line on Intel processors, or use the \
                    drive by its kernel driver (/dev/nvme...)";
        self.group.is_none().then(|| what.to_owned())
    }

    /// The other device that makes the group unusable, and the remedy.
    pub(super) fn shared(&self) -> Option<String> {
        let blocks = |other: &&Neighbour| {
            other.address != self.address
                && !other.class.starts_with(CLASS_BRIDGE)
                && other.driver.as_ref().is_some_and(|driver| driver != DRIVER)
        };
        let other = self.group.iter().flatten().find(blocks)?;
        let driver = other.driver.as_deref().unwrap_or_default();
        Some(format!(
            "shares its IOMMU group with {}, which is bound to the kernel driver {driver}; bind that to {DRIVER} \
             too, move one of them to another slot, or use the drive by its kernel driver",
            other.address
        ))
    }

    /// Why the device cannot be bound to vfio-pci, and the remedy; `None` if it can.
    #[must_use]
    pub fn obstacle(&self) -> Option<String> {
        let functions = || {
            (self.virtual_functions > 0).then(|| {
                format!(
                    "has {} virtual functions, which would vanish; disable them: echo 0 > \
                     /sys/bus/pci/devices/{}/sriov_numvfs",
                    self.virtual_functions, self.address
                )
            })
        };
        let vfio = || {
            (!self.has_vfio).then(|| {
                format!("cannot be bound to {DRIVER}, which is not loaded: modprobe {DRIVER}")
            })
        };
        self.unfit().or_else(functions).or_else(|| self.shared()).or_else(vfio)
    }

    fn own(&self, file: &str) -> String {
        format!("sys/bus/pci/devices/{}/{file}", self.address)
    }

    fn to(file: String, text: &str) -> Write {
        Write { file, text: text.to_owned() }
    }

    fn unbind(&self) -> Write {
        Self::to(self.own("driver/unbind"), &self.address)
    }

    fn probe(&self) -> Write {
        Self::to(PROBE.to_owned(), &self.address)
    }

    /// The writes that bind the device to vfio-pci; none if it is bound, and no other driver may be bound to it.
    #[must_use]
    pub fn to_take(&self) -> Vec<Write> {
        let mut writes = Vec::new();
        if self.only_driver.as_deref() != Some(DRIVER) {
            writes.push(Self::to(self.own("driver_override"), DRIVER));
        }
        if !self.is_bound() {
            writes.extend(self.driver.is_some().then(|| self.unbind()));
            writes.push(self.probe());
        }
        writes
    }

    /// The writes that give the device back to the kernel driver; none if the kernel driver has it.
    #[must_use]
    pub fn to_release(&self) -> Vec<Write> {
        let mut writes = Vec::new();
        // No driver binds the device in between: an unbound device is bound again only by a probe.
        writes.extend(self.is_bound().then(|| self.unbind()));
        if self.only_driver.is_some() {
            writes.push(Self::to(self.own("driver_override"), "\n"));
        }
        writes.extend((self.is_bound() || self.driver.is_none()).then(|| self.probe()));
        writes
    }
}

fn text(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn entries(folder: &Path) -> Vec<String> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        found.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns the identity of the controller in the folder of a PCI function, and the names of its namespaces.
fn controller(folder: &Path) -> (Option<Identity>, Vec<String>) {
    let is_it = |folder: &PathBuf| folder.join("serial").exists();
    let Some(folder) = entries(folder).iter().map(|name| folder.join(name)).find(is_it) else {
        return (None, Vec::new());
    };
    let mut namespaces = entries(&folder);
    namespaces.retain(|name| folder.join(name).join("size").exists());
    let of = |name: &str| text(&folder.join(name)).unwrap_or_default();
    let wwid = namespaces.first().map(|name| of(&format!("{name}/wwid"))).unwrap_or_default();
    (Some(Identity { serial: of("serial"), model: of("model"), wwid }), namespaces)
}

impl Host {
    /// The identifier of the present boot of this host; empty if the kernel does not report it.
    #[must_use]
    pub fn boot(&self) -> String {
        text(&self.root.join("proc/sys/kernel/random/boot_id")).unwrap_or_default()
    }

    /// The state of the function at `address` in sysfs; `None` if there is no function.
    #[must_use]
    pub fn picture(&self, address: &str) -> Option<Picture> {
        let folder = self.folder(address);
        if !folder.exists() {
            return None;
        }
        let neighbour = |address: String| {
            let (class, driver) = (self.class(&address), self.driver(&address));
            Neighbour { address, class, driver }
        };
        let group = self.group(address);
        let (identity, namespaces) = controller(&folder.join("nvme"));
        // The kernel writes "(null)" if there is no override.
        let only_driver = text(&folder.join("driver_override")).filter(|only| only != "(null)");
        let functions = text(&folder.join("sriov_numvfs")).and_then(|count| count.parse().ok());
        Some(Picture {
            address: address.to_owned(),
            class: self.class(address),
            driver: self.driver(address),
            only_driver,
            virtual_functions: functions.unwrap_or(0),
            group: group.map(|names| names.into_iter().map(neighbour).collect()),
            has_vfio: self.root.join("sys/bus/pci/drivers").join(DRIVER).exists(),
            identity,
            namespaces,
        })
    }

    /// Addresses of controllers with this serial number that the kernel drives.
    #[must_use]
    pub fn addresses_of(&self, serial: &str) -> Vec<String> {
        let class = self.root.join("sys/class/nvme");
        let address = |name: &String| {
            let folder = fs::canonicalize(class.join(name)).ok()?;
            let is_it = text(&folder.join("serial")).as_deref() == Some(serial);
            let mut names = folder.iter().rev().filter_map(|name| name.to_str());
            is_it.then(|| names.find_map(address_of)).flatten()
        };
        entries(&class).iter().filter_map(address).collect()
    }
}

/// The interface to the kernel and to devices.
pub trait Kernel: fmt::Debug + Send + Sync {
    /// Writes to a file of sysfs.
    ///
    /// # Errors
    /// The errors of the kernel.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;

    /// Opens a device node for exclusive use, until the result is dropped.
    ///
    /// # Errors
    /// Another program has the node open for exclusive use, or the kernel fails.
    fn claim(&self, node: &Path) -> io::Result<Box<dyn Any + Send>>;

    /// Opens the controller at `address`, which is bound to vfio-pci, reads its identity, and closes it.
    ///
    /// # Errors
    /// The controller cannot be opened or does not become ready.
    fn identify(&self, host: &Host, address: &str) -> Result<Identity, DeviceError>;

    /// Waits until this process has closed the controller at `address`. Returns false after a time limit.
    fn await_closed(&self, address: &str) -> bool;
}

/// The remedy for a write to sysfs that failed with `error`.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        // Sysfs may be read-only for a service.
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; straked may not write to sysfs: see PRIVILEGES in straked(8)"
        }
        _ => "",
    }
}

/// The kernel of this host.
#[derive(Clone, Copy, Debug, Default)]
struct Real;

impl Kernel for Real {
    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        fs::OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
    }

    fn claim(&self, node: &Path) -> io::Result<Box<dyn Any + Send>> {
        // For a block device, without O_CREAT: the open fails with EBUSY if it is in use (open(2)).
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(Box::new(open(node, flags, Mode::empty())?))
    }

    fn identify(&self, host: &Host, address: &str) -> Result<Identity, DeviceError> {
        let facts = host.open(address)?.facts();
        let (serial, model) = facts
            .map(|facts| (facts.controller.serial, facts.controller.model))
            .unwrap_or_default();
        let (serial, model) = (serial.trim().to_owned(), model.trim().to_owned());
        Ok(Identity { serial, model, wwid: String::new() })
    }

    fn await_closed(&self, address: &str) -> bool {
        super::container()
            .is_none_or(|container: Arc<vfio::Container>| container.await_closed(address))
    }
}

/// Binds controllers to vfio-pci and gives them back.
#[derive(Clone, Debug)]
pub struct Binder {
    host: Host,
    kernel: Arc<dyn Kernel>,
}

impl Default for Binder {
    fn default() -> Self {
        Self { host: Host::default(), kernel: Arc::new(Real) }
    }
}

/// The reason why a controller was not taken.
#[derive(Debug)]
pub enum Untaken {
    /// The device changed after it was checked. Nothing was written.
    Changed(DeviceError),
    /// A step failed. Earlier writes remain.
    Failed(DeviceError),
}

impl fmt::Display for Untaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(error) | Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Device nodes that are open for exclusive use.
#[derive(Default)]
pub struct Claims {
    _held: Vec<Box<dyn Any + Send>>,
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").finish_non_exhaustive()
    }
}

fn failed(address: &str, what: impl Into<String>) -> DeviceError {
    DeviceError::new(IoErrorKind::Device, format!("{SCHEME}{address}"), what.into())
}

impl Binder {
    /// Returns a binder of the devices of `host`, whose files belong to `kernel`.
    #[must_use]
    pub fn new(host: Host, kernel: Arc<dyn Kernel>) -> Self {
        Self { host, kernel }
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Opens device nodes for exclusive use, so that they cannot be mounted until the result is dropped.
    ///
    /// # Errors
    /// A node is in use. The error names the node and the remedy.
    pub fn claim(&self, nodes: &[PathBuf]) -> Result<Claims, DeviceError> {
        let mut held = Vec::new();
        for node in nodes {
            held.push(self.kernel.claim(node).map_err(|error| {
                let what = match error.kind() {
                    io::ErrorKind::ResourceBusy => {
                        "is open in another program, a file system, swap space or another device; stop what uses \
                         it (fuser, lsblk) and try again"
                    }
                    _ => "cannot be opened for exclusive use; check the drive",
                };
                DeviceError::new(IoErrorKind::Device, node.display().to_string(), what)
                    .with_source(error)
            })?);
        }
        Ok(Claims { _held: held })
    }

    /// Reads the identity of the controller at `address`, which is bound to vfio-pci.
    ///
    /// # Errors
    /// The controller cannot be opened or does not become ready.
    pub fn identify(&self, address: &str) -> Result<Identity, DeviceError> {
        self.kernel.identify(&self.host, address)
    }

    fn compare(&self, address: &str, wanted: &Identity) -> Result<(), DeviceError> {
        let found = self.identify(address)?;
        if wanted.matches(&found) {
            return Ok(());
        }
        let what = format!(
            "has the serial number {} (model {}), not {} ({}); another drive is at this address now",
            found.serial, found.model, wanted.serial, wanted.model
        );
        Err(DeviceError { kind: IoErrorKind::Gone, ..failed(address, what) })
    }

    /// Whether the state of the device is the same as in `seen`.
    #[must_use]
    pub fn is_as(&self, seen: &Picture) -> bool {
        self.host.picture(&seen.address).is_some_and(|now| now.is_as(seen))
    }

    fn carry_out(&self, address: &str, writes: &[Write]) -> Result<(), DeviceError> {
        for write in writes {
            let done = self.kernel.write(&self.host.root.join(&write.file), &write.text);
            done.map_err(|error| {
                let what = format!("the kernel refuses a write ({write}){}", advice(&error));
                failed(address, what).with_source(error)
            })?;
        }
        Ok(())
    }

    fn picture(&self, address: &str) -> Result<Picture, DeviceError> {
        let none = || failed(address, "there is no PCI device at this address");
        self.host.picture(address).ok_or_else(none)
    }

    /// Binds the controller of `seen` to vfio-pci, and compares its identity with `wanted`. `claims` are held until the
    /// controller is bound. A controller that is already bound is compared before any write.
    ///
    /// # Errors
    /// The device differs from `seen` ([`Changed`](Untaken::Changed)); nothing was written in this case. The kernel
    /// refuses a write, the controller cannot be opened, or it is another drive; earlier writes remain: see
    /// [`release`](Self::release).
    pub fn take(&self, seen: &Picture, wanted: &Identity, claims: Claims) -> Result<(), Untaken> {
        let address = seen.address.as_str();
        if !self.is_as(seen) {
            let what = "changed after it was checked, and was not taken; try again";
            return Err(Untaken::Changed(failed(address, what)));
        }
        self.bind(seen, wanted, claims).map_err(Untaken::Failed)
    }

    fn bind(&self, seen: &Picture, wanted: &Identity, claims: Claims) -> Result<(), DeviceError> {
        let address = seen.address.as_str();
        if seen.is_bound() {
            self.compare(address, wanted)?;
        }
        let writes = seen.to_take();
        self.carry_out(address, &writes)?;
        drop(claims);
        let picture = self.picture(address)?;
        if !picture.is_bound() {
            let driver = picture.driver.as_deref().unwrap_or("no driver");
            let what = format!(
                "is bound to {driver}, not to {DRIVER}, after all writes; the kernel log (dmesg) says why"
            );
            return Err(failed(address, what));
        }
        if seen.is_bound() { Ok(()) } else { self.compare(address, wanted) }
    }

    /// Gives the controller at `address` back to the kernel driver, after any part of [`take`](Self::take). For a
    /// device that is gone there is nothing to do.
    ///
    /// # Errors
    /// This process still has the controller open, the kernel refuses a write, or no kernel driver has it afterwards.
    pub fn release(&self, address: &str) -> Result<(), DeviceError> {
        // Until the controller is closed, the kernel holds the lock of the device, and a write to its files would wait.
        if !self.kernel.await_closed(address) {
            return Err(failed(address, "is not closed yet; try again when it is no longer used"));
        }
        let Some(picture) = self.host.picture(address) else { return Ok(()) };
        self.carry_out(address, &picture.to_release())?;
        // A probe also succeeds if no driver binds the device.
        let what = match self.host.picture(address) {
            Some(picture) if picture.is_bound() => {
                format!(
                    "is still bound to {DRIVER} after all writes; the kernel log (dmesg) says why"
                )
            }
            Some(picture) if picture.driver.is_none() => NO_DRIVER.to_owned(),
            Some(_) | None => return Ok(()),
        };
        Err(failed(address, what))
    }
}

#[cfg(test)]
mod tests;
