//! Names that people give to things, and identifiers that machines give to them.

use std::fmt;
use std::str::FromStr;

/// A 128-bit identifier in the usual `8-4-4-4-12` notation (RFC 9562). This type never generates one: the
/// caller passes random bytes in.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The all-zero identifier, used for "none".
    pub const NIL: Self = Self([0; 16]);

    /// A version 4 identifier from 16 random bytes (RFC 9562 section 5.4).
    #[must_use]
    pub const fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Self(bytes)
    }

    /// True for the all-zero identifier.
    #[must_use]
    pub fn is_nil(self) -> bool {
        self == Self::NIL
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Uuid {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut bytes = [0u8; 16];
        let mut nibbles = 0usize;
        if !text.is_ascii() || text.len() != 36 {
            return Err(NameError::NotAnIdentifier);
        }
        for (i, c) in text.bytes().enumerate() {
            if matches!(i, 8 | 13 | 18 | 23) {
                if c != b'-' {
                    return Err(NameError::NotAnIdentifier);
                }
                continue;
            }
            let digit = (c as char).to_digit(16).ok_or(NameError::NotAnIdentifier)?;
            bytes[nibbles / 2] = (bytes[nibbles / 2] << 4) | digit as u8;
            nibbles += 1;
        }
        Ok(Self(bytes))
    }
}

/// Longest name in bytes; it must fit the superblock's name field.
pub const NAME_BYTES_MAX: usize = 63;

/// A name of an array or export: 1 to 63 of `a-z A-Z 0-9 . _ -`, beginning with a letter or digit.
///
/// The set is what is safe in a path, a URL, a shell word and an NVMe qualified name alike.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        if let Some(bad) =
            text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')))
        {
            return Err(NameError::BadCharacter(bad));
        }
        if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(NameError::BadStart);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Why a text is not a name or identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The text is empty.
    Empty,
    /// The text is longer than [`NAME_BYTES_MAX`].
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The text holds a character that names may not hold.
    BadCharacter(char),
    /// The text does not begin with a letter or digit.
    BadStart,
    /// The text is not an identifier in `8-4-4-4-12` hexadecimal notation.
    NotAnIdentifier,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a name cannot be empty"),
            Self::TooLong { bytes } => {
                write!(f, "a name has at most {NAME_BYTES_MAX} characters, this one has {bytes}")
            }
            Self::BadCharacter(c) => write!(
                f,
                "a name is made of letters, digits, '.', '_' and '-'; {c:?} is none of them"
            ),
            Self::BadStart => f.write_str("a name begins with a letter or a digit"),
            Self::NotAnIdentifier => f.write_str(
                "not an identifier (expected 36 characters such as 01234567-89ab-cdef-0123-456789abcdef)",
            ),
        }
    }
}

impl std::error::Error for NameError {}
