//! Properties of the specification of a drive: local, in memory or remote, and valid after a restart.

use strake_dev_fabrics::address::SCHEME;
use strake_dev_fabrics::{Address, Reason};
use strake_dev_nvme::host::{self as pci, SCHEME as PCI};
use strake_engine::Drive;

use crate::error::ControlError;

/// True if `path` names a remote drive.
pub(crate) fn is_remote(path: &str) -> bool {
    path.starts_with(SCHEME)
}

/// True if a later daemon can find the drive at `path`.
pub(crate) fn outlasts(path: &str) -> bool {
    path.starts_with('/') || is_remote(path) || pci_address(path).is_some()
}

/// Returns the PCI address of a controller that this process drives, if `path` names one.
pub(crate) fn pci_address(path: &str) -> Option<&str> {
    path.strip_prefix(PCI)
}

/// Returns the path of such a controller in canonical form.
pub(crate) fn pci_path(text: &str) -> Result<String, ControlError> {
    match pci::address_of(text) {
        Some(address) => Ok(format!("{PCI}{address}")),
        None => Err(ControlError::usage(format!(
            "{PCI}{text} names no PCI device; write the address as {PCI}0000:01:00.0"
        ))),
    }
}

/// Parses an address.
pub(crate) fn address_of(text: &str) -> Result<Address, ControlError> {
    text.parse().map_err(|error| ControlError::usage(format!("{error}")))
}

/// Returns the note about a drive with a lost connection.
pub(crate) fn lost_note(reason: Reason) -> String {
    if reason == Reason::TakenOver {
        return reason.to_string();
    }
    format!("its connection is lost and is being restored: {reason}")
}

/// Returns the paths that are valid after a restart. Drives in memory no longer exist then.
pub(crate) fn remembered(drives: &[Drive]) -> Vec<String> {
    drives.iter().map(|d| d.path.clone()).filter(|path| outlasts(path)).collect()
}
