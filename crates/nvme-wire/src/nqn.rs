//! NVMe Qualified Names (Base, section 4.5).

use std::str;

/// Longest name in bytes.
pub const NQN_BYTES_MAX: usize = 223;
/// Bytes of the field that holds a name and its end.
pub const FIELD_BYTES: usize = 256;
/// The name of every discovery subsystem (Base, section 3.1.2.3).
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// What names made of a UUID begin with.
pub const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Why something is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NqnError {
    /// The field has no end in it, or the name is longer than 223 bytes.
    TooLong,
    /// It is not text, or has spaces or control characters in it.
    NotText,
    /// It does not begin with `nqn.`.
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

/// Whether `text` can be a name.
///
/// # Errors
/// When it cannot.
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

/// The name in a field. One that fills the field without an end is refused (CVE-2023-6121).
///
/// # Errors
/// When there is none.
pub fn parse(field: &[u8; FIELD_BYTES]) -> Result<&str, NqnError> {
    let end = field.iter().position(|&byte| byte == 0).ok_or(NqnError::TooLong)?;
    let text = str::from_utf8(&field[..end]).map_err(|_| NqnError::NotText)?;
    check(text)?;
    Ok(text)
}

/// A name in its field.
///
/// # Errors
/// When it is none.
pub fn field(text: &str) -> Result<[u8; FIELD_BYTES], NqnError> {
    check(text)?;
    let mut out = [0; FIELD_BYTES];
    out[..text.len()].copy_from_slice(text.as_bytes());
    Ok(out)
}
