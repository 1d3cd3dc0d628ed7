//! Names of what is reserved, and identifiers.

use strake_units::Uuid;

use crate::error::{ControlError, ControlErrorKind};

/// The key that reserves the medium with this identity.
pub(crate) fn drive_key(identity: &str) -> String {
    format!("drive {identity}")
}

/// The key that reserves the array with this name or identity.
pub(crate) fn array_key(array: &str) -> String {
    format!("array {array}")
}

/// A fresh random identifier.
pub(crate) fn fresh_uuid() -> Result<Uuid, ControlError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| {
        ControlError::new(
            ControlErrorKind::Device,
            format!("the kernel gives no random numbers: {e}"),
        )
    })?;
    Ok(Uuid::from_random(bytes))
}
