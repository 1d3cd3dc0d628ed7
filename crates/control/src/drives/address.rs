//! What the specification of a drive says: local, in memory or remote, and whether it outlasts the daemon.

use strake_dev_fabrics::address::SCHEME;
use strake_dev_fabrics::{Address, Reason};
use strake_engine::Drive;

use crate::error::ControlError;

/// Whether `path` names a drive of another machine.
pub(crate) fn is_remote(path: &str) -> bool {
    path.starts_with(SCHEME)
}

/// Whether what is at `path` can be found there by another daemon later.
pub(crate) fn outlasts(path: &str) -> bool {
    path.starts_with('/') || is_remote(path)
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
