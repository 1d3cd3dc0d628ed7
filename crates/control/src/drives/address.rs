//! What the specification of a drive says: local, in memory or remote, and whether it outlasts the daemon.

use strake_dev_fabrics::address::SCHEME;
use strake_dev_fabrics::{Address, Reason};
use strake_dev_nvme::host::{self as pci, SCHEME as PCI};
use strake_engine::Drive;

use crate::error::ControlError;

/// Whether `path` names a drive of another machine.
pub(crate) fn is_remote(path: &str) -> bool {
    path.starts_with(SCHEME)
}

/// Whether what is at `path` can be found there by another daemon later.
pub(crate) fn outlasts(path: &str) -> bool {
    path.starts_with('/') || is_remote(path) || pci_address(path).is_some()
}

/// The address of a controller on the PCI bus that this process drives, if `path` names one.
pub(crate) fn pci_address(path: &str) -> Option<&str> {
    path.strip_prefix(PCI)
}

/// The path of such a controller in its usual form.
pub(crate) fn pci_path(text: &str) -> Result<String, ControlError> {
    match pci::address_of(text) {
        Some(address) => Ok(format!("{PCI}{address}")),
        None => Err(ControlError::usage(format!(
            "{PCI}{text} names no PCI device; write it like {PCI}0000:01:00.0"
        ))),
    }
}

/// The address in its usual form.
pub(crate) fn address_of(text: &str) -> Result<Address, ControlError> {
    text.parse().map_err(|error| ControlError::usage(format!("{error}")))
}

/// What is said about a drive whose connection is lost.
pub(crate) fn lost_note(reason: Reason) -> String {
    if reason == Reason::TakenOver {
        return reason.to_string();
    }
    format!("its connection is lost and is being restored: {reason}")
}

/// Paths worth looking at after a restart: drives in memory are gone then.
pub(crate) fn remembered(drives: &[Drive]) -> Vec<String> {
    drives.iter().map(|d| d.path.clone()).filter(|path| outlasts(path)).collect()
}
