//! Byte sizes as people type and read them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Parses `4096`, `64KiB`, `2TiB`, `500GB`; prints in IEC units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const KIB: u64 = 1 << 10;

/// Suffixes accepted after a number, with their factors. A bare letter (`64K`) is refused: people disagree
/// about what it means, and a size is no place for a guess.
const SUFFIXES: [(&str, u64); 12] = [
    ("", 1),
    ("B", 1),
    ("KiB", KIB),
    ("MiB", KIB * KIB),
    ("GiB", KIB * KIB * KIB),
    ("TiB", KIB * KIB * KIB * KIB),
    ("PiB", KIB * KIB * KIB * KIB * KIB),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, suffix) = text.split_at(digits);
        if number.is_empty() {
            return Err(SizeError::NotANumber);
        }
        let number: u64 = number.parse().map_err(|_| SizeError::TooLarge)?;
        let factor = SUFFIXES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(suffix.trim()))
            .map(|(_, factor)| *factor)
            .ok_or(SizeError::UnknownUnit)?;
        number.checked_mul(factor).map(Self).ok_or(SizeError::TooLarge)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let text = if (value - value.round()).abs() < 0.005 {
            format!("{value:.0} {}", UNITS[unit])
        } else if value < 10.0 {
            format!("{value:.2} {}", UNITS[unit])
        } else {
            format!("{value:.1} {}", UNITS[unit])
        };
        f.pad(&text)
    }
}

/// Why a text is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// It does not begin with a digit (fractions and signs are not accepted).
    NotANumber,
    /// The unit is not one of those listed.
    UnknownUnit,
    /// The size does not fit in 64 bits.
    TooLarge,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotANumber => "a size is a whole number with a unit, such as 64KiB",
            Self::UnknownUnit => {
                "unknown unit: use KiB, MiB, GiB, TiB, KB, MB, GB, TB, or plain bytes"
            }
            Self::TooLarge => "the size is larger than 64 bits can count",
        })
    }
}

impl std::error::Error for SizeError {}
