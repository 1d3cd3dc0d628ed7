//! Keys of reservations, and identifiers.

use strake_api::v1::RenameArrayRequest;
use strake_units::{Name, Uuid};
use strake_wording::command;

use crate::error::{ControlError, ControlErrorKind};

/// The key that reserves the medium with this identity.
pub(crate) fn drive_key(identity: &str) -> String {
    format!("drive {identity}")
}

/// The key that reserves the array with this name or identity.
pub(crate) fn array_key(array: &str) -> String {
    format!("array {array}")
}

/// The key that reserves the pool on the array with this identity, and its volumes.
pub(crate) fn pool_key(array: &str) -> String {
    format!("the pool of array {array}")
}

/// The key that reserves the name of a pool.
pub(crate) fn pool_name_key(name: &str) -> String {
    format!("pool {name}")
}

/// True if `asked` means the array with this name and UUID. A text in the form of a UUID is never a name, so the UUID
/// of one array cannot match the name of another.
pub(crate) fn is_called(asked: &str, name: &str, uuid: &str) -> bool {
    match asked.parse::<Uuid>() {
        Ok(asked) => uuid == asked.to_string(),
        Err(_) => name == asked,
    }
}

/// Refuses an array name in the form of a UUID.
pub(crate) fn check_array_name(name: &str) -> Result<(), ControlError> {
    match name.parse::<Uuid>() {
        Ok(_) => Err(ControlError::usage(format!(
            "array name: {name} has the form of a UUID; choose another name"
        ))),
        Err(_) => Ok(()),
    }
}

/// Returns the name of an array for commands, or its UUID if only the UUID is unambiguous.
pub(crate) fn callable<'a>(name: &'a str, uuid: &'a str) -> &'a str {
    if check_array_name(name).is_ok() { name } else { uuid }
}

/// Returns a warning about an array with such a name, which only its UUID can select.
pub(crate) fn name_warning(name: &str, uuid: &str) -> Option<String> {
    check_array_name(name).err()?;
    let rename = RenameArrayRequest { name: uuid.to_owned(), ..Default::default() };
    Some(format!(
        "the name {name} of an array has the form of a UUID. Commands find this array only by its own UUID. Rename \
            the array: {}",
        command(&rename)
    ))
}

/// Parses an array name.
pub(crate) fn array_name(text: &str) -> Result<Name, ControlError> {
    check_array_name(text)?;
    text.parse().map_err(|e| ControlError::usage(format!("array name: {e}")))
}

/// Returns a new random identifier.
pub(crate) fn fresh_uuid() -> Result<Uuid, ControlError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| {
        ControlError::new(
            ControlErrorKind::Device,
            format!("the kernel returned no random numbers: {e}"),
        )
    })?;
    Ok(Uuid::from_random(bytes))
}
