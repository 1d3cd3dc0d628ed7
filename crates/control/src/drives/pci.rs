//! NVMe drives that the daemon drives itself, by PCI address.

use std::sync::Arc;

use strake_dev_nvme::{Host, NvmeDevice};
use strake_engine::Drive;

use crate::drives::address::pci_address;
use crate::drives::{DriveKind, Key, OpenDrive, PathKey};
use crate::error::ControlError;

/// What tells a PCI address from others: its digits.
pub(super) fn key(address: &str) -> Key {
    let digits = address.chars().filter_map(|c| c.to_digit(16));
    Key::Pci(digits.fold(0, |all, digit| all << 4 | u64::from(digit)))
}

/// Whether the device was pulled, or its driver gave it up for good: it never answers again, and whatever has its
/// address now is another device.
pub(crate) fn is_gone(drive: &Drive) -> bool {
    pci_address(&drive.path).is_some() && drive.device.info().blocks == 0
}

/// What tells the device that can be opened at a PCI address from one that comes there later; `None` while there is
/// none that can.
pub(crate) fn key_at(address: &str) -> Option<PathKey> {
    let host = Host::default();
    host.check(address).ok()?;
    Some((u64::MAX, 0, host.arrival(address)?))
}

/// Opens the controller at a PCI address, which the kernel does not drive.
pub(super) fn open(path: &str, address: &str) -> Result<OpenDrive, ControlError> {
    let device = Host::default().open(address);
    let device = Arc::new(device.map_err(|error| ControlError::state(error.to_string()))?);
    let drive = Drive { device: Arc::<NvmeDevice>::clone(&device), path: path.to_owned() };
    let (key, kind, pci) = (key(address), DriveKind::Pci, Some(device));
    Ok(OpenDrive { key, medium: None, drive, kind, remote: None, pci, notices: Vec::new() })
}

#[cfg(test)]
mod tests {
    use crate::drives::{Drives, Sighting, key_of, open_at};

    /// Two ways to write an address must not open one controller twice.
    #[test]
    fn a_controller_has_one_name_and_one_key() {
        let path = |spec: &str| Drives::default().path_of(spec);
        for spec in ["pci:0000:3B:00.0", "pci:3b:00.0", "pci:0000:3b:00.0"] {
            assert_eq!(path(spec).ok().as_deref(), Some("pci:0000:3b:00.0"), "{spec}");
        }
        let wrong = path("pci:3b:00").expect_err("it has no function");
        assert!(wrong.what.contains("write it like pci:0000:01:00.0"), "{}", wrong.what);
        let key = |path| key_of(path).map(|(key, _)| key);
        assert_eq!(key("pci:0000:3b:00.0"), key("pci:0000:3b:00.0"));
        assert_ne!(key("pci:0000:3b:00.0"), key("pci:0000:3b:00.1"));
        assert_ne!(key("pci:0000:3b:00.0"), key("pci:10000:3b:00.0"));
    }

    #[test]
    fn a_controller_that_is_not_there_is_refused() {
        let seen = Sighting { key: None, medium: None };
        let refused = open_at("pci:fffe:ff:1f.7", seen).map(drop).map_err(|error| error.what);
        let what = refused.expect_err("there is none");
        assert!(what.contains("no PCI device at this address"), "{what}");
    }
}
