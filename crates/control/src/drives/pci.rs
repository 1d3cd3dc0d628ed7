//! NVMe drives that the daemon drives itself, by PCI address.

use std::sync::Arc;

use strake_api::v1::TakeDrivesRequest;
use strake_block::DeviceError;
use strake_dev_nvme::{Host, LogReader, NvmeDevice};
use strake_engine::Drive;
use strake_wording::say;

use crate::drives::address::pci_address;
use crate::drives::health::HealthSource;
use crate::drives::{DriveKind, Drives, Key, OpenDrive, PathKey};
use crate::error::ControlError;

/// Returns the key of a PCI address, which consists of its digits.
pub(super) fn key(address: &str) -> Key {
    let digits = address.chars().filter_map(|c| c.to_digit(16));
    Key::Pci(digits.fold(0, |all, digit| all << 4 | u64::from(digit)))
}

/// Returns the key that reserves the opening of the controller at a PCI address.
pub(crate) fn opening_key(address: &str) -> String {
    format!("opening {:?}", key(address))
}

impl Drives {
    /// Closes the unused controller at the path of a PCI address. It is dropped later without any lock.
    pub(crate) fn close_pci(&mut self, path: &str) {
        let is_it = |open: &mut OpenDrive| open.kind == DriveKind::Pci && open.drive.path == path;
        let closed = self.open.extract_if(.., is_it);
        self.closed.extend(closed);
    }
}

/// True if the device was pulled, or its driver abandoned it permanently. It never answers again, and a device at its
/// address is another device.
pub(crate) fn is_gone(drive: &Drive) -> bool {
    pci_address(&drive.path).is_some() && drive.device.info().blocks == 0
}

/// Returns a key that distinguishes the device at a PCI address from later devices; `None` without a usable device.
pub(crate) fn key_at(address: &str) -> Option<PathKey> {
    let host = Host::default();
    host.check(address).ok()?;
    Some((u64::MAX, 0, host.arrival(address)?))
}

/// Returns the error of a controller that cannot be opened, with the command that takes it from the kernel if
/// applicable.
fn not_opened(host: &Host, address: &str, error: &DeviceError) -> ControlError {
    let what = say(error.to_string());
    if !host.picture(address).is_some_and(|picture| picture.waits_to_be_bound()) {
        return ControlError::state(what);
    }
    let take = TakeDrivesRequest { drives: vec![address.to_owned()], dry_run: false };
    ControlError::state(what.say("; take it from the kernel: ").run(take))
}

/// Opens the controller at a PCI address. The kernel must not drive it.
pub(super) fn open(path: &str, address: &str) -> Result<OpenDrive, ControlError> {
    let host = Host::default();
    let device = host.open(address).map_err(|error| not_opened(&host, address, &error))?;
    let device = Arc::new(device);
    let drive = Drive { device: Arc::<NvmeDevice>::clone(&device), path: path.to_owned() };
    // The source does not contain the device, so that the device can be closed while a page is awaited.
    let reader = Arc::new(device.log_reader());
    let health: Arc<dyn HealthSource> = Arc::<LogReader>::clone(&reader);
    Ok(OpenDrive {
        key: key(address),
        medium: None,
        drive,
        kind: DriveKind::Pci,
        remote: None,
        local: None,
        pci: Some(device),
        health: Some(health),
        admin: Some(reader),
        notices: Vec::new(),
    })
}

/// Returns an open controller whose data are in a file.
#[cfg(test)]
pub(crate) fn open_as_file(address: &str, file: &std::path::Path) -> OpenDrive {
    let (device, _) =
        strake_dev_uring::UringDevice::open(file, Default::default()).expect("a file");
    let drive = Drive {
        device: Arc::new(device),
        path: format!("{}{address}", strake_dev_nvme::host::SCHEME),
    };
    let (key, kind, notices) = (key(address), DriveKind::Pci, Vec::new());
    let (remote, pci, health, admin) = (None, None, None, None);
    OpenDrive { key, medium: None, drive, kind, remote, local: None, pci, health, admin, notices }
}

#[cfg(test)]
mod tests {
    use super::{Host, not_opened};
    use crate::drives::pci::opening_key;
    use crate::drives::{Drives, Sighting, key_of, open_at};
    use strake_testkit::{Folder, PciHost};

    /// Two forms of an address must not open one controller twice.
    #[test]
    fn a_controller_has_one_name_and_one_key() {
        let path = |spec: &str| Drives::default().path_of(spec);
        for spec in ["pci:0000:3B:00.0", "pci:3b:00.0", "pci:0000:3b:00.0"] {
            assert_eq!(path(spec).ok().as_deref(), Some("pci:0000:3b:00.0"), "{spec}");
        }
        let wrong = path("pci:3b:00").expect_err("it has no function");
        assert!(wrong.what.contains("write the address as pci:0000:01:00.0"), "{}", wrong.what);
        let key = |path| key_of(path).map(|(key, _)| key);
        assert_eq!(key("pci:0000:3b:00.0"), key("pci:0000:3b:00.0"));
        assert_ne!(key("pci:0000:3b:00.0"), key("pci:0000:3b:00.1"));
        assert_ne!(key("pci:0000:3b:00.0"), key("pci:10000:3b:00.0"));
        // Commands that open the controller and commands that bind it exclude each other.
        let seen = Sighting { key: key_of("pci:0000:3b:00.0"), medium: None };
        assert_eq!(seen.opening_key("pci:0000:3b:00.0"), opening_key("0000:3b:00.0"));
    }

    #[test]
    fn a_controller_that_the_kernel_drives_can_be_taken() {
        let folder = Folder::new("strake-pci");
        PciHost::at(&folder).add_nvme("0000:3b:00.0", 0, "S1");
        let host = Host::at(&folder);
        let error = host.check("0000:3b:00.0").expect_err("the kernel drives it");
        let what = not_opened(&host, "0000:3b:00.0", &error).what;
        assert!(what.contains("is bound to the kernel driver nvme"), "{what}");
        assert!(what.ends_with(": strake drive take 0000:3b:00.0"), "{what}");
    }

    #[test]
    fn a_controller_that_is_not_there_is_refused() {
        let seen = Sighting { key: None, medium: None };
        let refused = open_at("pci:fffe:ff:1f.7", seen).map(drop).map_err(|error| error.what);
        let what = refused.expect_err("there is none");
        assert!(what.contains("no PCI device at this address"), "{what}");
    }
}
