//! NVMe Qualified Names (Base, section 4.5).

use std::str;

/// Maximum length in bytes.
pub const NQN_BYTES_MAX: usize = 223;
/// Bytes of a field with a name and its terminator.
pub const FIELD_BYTES: usize = 256;
/// The NQN of every discovery subsystem (Base, section 3.1.2.3).
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// The prefix of NQNs that are built from a UUID.
pub const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// The reason why a text is not an NQN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NqnError {
    /// The field has no terminator, or the name is longer than 223 bytes.
    TooLong,
    /// The bytes are not UTF-8, or contain spaces or control characters.
    NotText,
    /// The prefix `nqn.` is missing.
    NoPrefix,
}

impl std::fmt::Display for NqnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooLong => "an NQN has at most 223 bytes",
            Self::NotText => "an NQN has neither spaces nor control characters",
            Self::NoPrefix => "an NQN starts with \"nqn.\" and continues",
        })
    }
}

impl std::error::Error for NqnError {}

/// Checks that `text` is a valid NQN.
///
/// # Errors
/// Returns an error if it is not.
pub fn check(text: &str) -> Result<(), NqnError> {
    if text.len() > NQN_BYTES_MAX {
        return Err(NqnError::TooLong);
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(NqnError::NotText);
    }
    if text.strip_prefix("nqn.").is_none_or(str::is_empty) {
        return Err(NqnError::NoPrefix);
    }
    Ok(())
}

/// The name in a field. A name that fills the field without a terminator is rejected (CVE-2023-6121).
///
/// # Errors
/// Returns an error if there is no valid name.
pub fn parse(field: &[u8; FIELD_BYTES]) -> Result<&str, NqnError> {
    let end = field.iter().position(|&byte| byte == 0).ok_or(NqnError::TooLong)?;
    let text = str::from_utf8(&field[..end]).map_err(|_| NqnError::NotText)?;
    check(text)?;
    Ok(text)
}

/// A name as a field.
///
/// # Errors
/// Returns an error if it is not a valid name.
pub fn field(text: &str) -> Result<[u8; FIELD_BYTES], NqnError> {
    check(text)?;
    let mut out = [0; FIELD_BYTES];
    out[..text.len()].copy_from_slice(text.as_bytes());
    Ok(out)
}
