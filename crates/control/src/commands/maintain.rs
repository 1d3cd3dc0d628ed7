//! The drive of a maintenance command: it is found, opened if necessary, and reserved.

use std::sync::Arc;

use strake_dev_uring::KernelDrive;

use crate::commands::scan::drive_path;
use crate::control::{Control, Reserved};
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
    /// Prevents another maintenance command of the drive until it is dropped.
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
            let key = maintenance_key(&path);
            Ok((path, vec![key]))
        })?;
        if pci_address(&path).is_some() && !control.with(|m| stays_open(m, &path))? {
            reserved.open(&path)?;
        }
        let source = control.with(|m| admin_source(m, &path))?;
        let source = source.ok_or_else(|| no_source(&path))?;
        Ok(Self { path, source, reserved })
    }
}

/// Returns the key that reserves the maintenance of the drive at `path`.
fn maintenance_key(path: &str) -> String {
    format!("the maintenance of {path}")
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
    let machine = manager.drives.machine();
    let named = || machine.drives().into_iter().find(|drive| drive.path == path);
    let drive: KernelDrive = machine.at_node(path).or_else(named)?;
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
