//! The drive of a maintenance command: it is found, opened if necessary, and reserved.

use std::sync::Arc;

use strake_dev_uring::KernelDrive;

use crate::commands::scan::drive_path;
use crate::control::{Control, Reserved};
use crate::drives::OpenDrive;
use crate::drives::address::{is_remote, pci_address};
use crate::drives::maintenance::{AdminSource, source_of_kernel};
use crate::error::ControlError;
use crate::manager::Manager;

/// The drive of a maintenance command.
pub(crate) struct Subject {
    /// Its path.
    pub(crate) path: String,
    /// It executes the commands.
    pub(crate) source: Arc<dyn AdminSource>,
    /// The drive, if the kernel drives it.
    pub(crate) kernel: Option<KernelDrive>,
    /// Prevents other maintenance commands of the controller until it is dropped.
    pub(crate) reserved: Reserved,
}

impl Subject {
    /// Returns the drive with the name `spec`. A taken drive that is not open is opened.
    ///
    /// # Errors
    /// If there is no such drive, or it is not an NVMe drive of this host.
    pub(crate) fn named(control: &Control, spec: &str) -> Result<Self, ControlError> {
        let (path, mut reserved) = control.reserve(|m| {
            m.check_open()?;
            let path = drive_path(m, spec)?;
            let keys = maintenance_keys(m, &path);
            Ok((path, keys))
        })?;
        reserved.for_maintenance();
        if pci_address(&path).is_some() && !control.with(|m| stays_open(m, &path))? {
            reserved.open(&path)?;
        }
        let found = control.with(|m| (admin_source(m, &path), kernel_drive(m, &path)))?;
        let (Some(source), kernel) = found else { return Err(no_source(&path)) };
        Ok(Self { path, source, kernel, reserved })
    }

    /// Refuses the drive if another drive than the one that was found executes its commands: the drives were exchanged.
    /// `serial` is the serial number in the Identify of the controller.
    pub(crate) fn check_same(&self, manager: &Manager, serial: &str) -> Result<(), ControlError> {
        let open = manager.drives.all().iter().find(|open| open.drive.path == self.path);
        let is_same = match (&self.kernel, open) {
            (Some(found), open) => {
                let is_medium = |open: &OpenDrive| {
                    let medium = open.medium.as_ref().map(|(identity, _)| identity);
                    medium.is_none_or(|medium| *medium == found.identity)
                };
                let now = kernel_drive(manager, &self.path);
                now.is_some_and(|now| now.identity == found.identity)
                    && (found.serial.is_empty() || found.serial == serial)
                    && open.is_none_or(is_medium)
            }
            (None, Some(open)) => {
                let admin = open.admin.as_ref();
                admin.is_some_and(|admin| Arc::ptr_eq(admin, &self.source))
            }
            (None, None) => true,
        };
        if is_same {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "another drive is at {} now, with the serial number {serial}; compare the drives, and try again",
            self.path
        )))
    }
}

/// Returns the keys that reserve the maintenance of the controllers of the drive at `path`.
pub(crate) fn maintenance_keys(manager: &Manager, path: &str) -> Vec<String> {
    let of_controller = |address: &str| format!("the maintenance of controller {address}");
    if let Some(address) = pci_address(path) {
        return vec![of_controller(address)];
    }
    match kernel_drive(manager, path) {
        Some(drive) if !drive.pci.is_empty() => {
            drive.pci.iter().map(|address| of_controller(address)).collect()
        }
        Some(_) | None => vec![format!("the maintenance of {path}")],
    }
}

/// Returns the drive of the kernel at `path`.
pub(crate) fn kernel_drive(manager: &Manager, path: &str) -> Option<KernelDrive> {
    let machine = manager.drives.machine();
    let named = || machine.drives().into_iter().find(|drive| drive.path == path);
    machine.at_node(path).or_else(named)
}

/// True if the drive at `path` is open and stays open without a reservation. A reservation of a member would delay
/// other commands of its array.
fn stays_open(manager: &Manager, path: &str) -> bool {
    let Some(drive) = manager.drives.named(path) else { return false };
    let identity = drive.device.identity();
    manager.place_of(&identity).is_some()
        || manager.records.spares.iter().any(|spare| spare.identity == identity)
}

/// Returns the source of maintenance commands for the drive at `path`, if this process drives it or the kernel drives
/// it as an NVMe drive.
fn admin_source(manager: &Manager, path: &str) -> Option<Arc<dyn AdminSource>> {
    let open = manager.drives.all().iter().find(|open| open.drive.path == path);
    if let Some(source) = open.and_then(|open| open.admin.clone()) {
        return Some(source);
    }
    let drive = kernel_drive(manager, path)?;
    let is_local = drive.name.starts_with("nvme") && !is_fabric(&drive.name);
    is_local.then(|| source_of_kernel(&drive.path))
}

/// True if a host driver reaches the controller of a kernel drive over a network: its own host maintains the drive.
fn is_fabric(name: &str) -> bool {
    let transport = std::fs::read_to_string(format!("/sys/class/block/{name}/device/transport"));
    transport.is_ok_and(|transport| transport.trim() != "pcie")
}

/// Returns the reason why a drive executes no maintenance commands.
fn no_source(path: &str) -> ControlError {
    if is_remote(path) {
        return ControlError::state(format!(
            "{path} is a remote drive; its own host maintains the drive"
        ));
    }
    ControlError::state(format!(
        "{path} is not an NVMe drive of this host, and only such drives have this command"
    ))
}
