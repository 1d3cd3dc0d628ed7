//! Byte sizes as people type and read them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Parses `4096`, `64KiB`, `64k`, `2TiB`, `500GB`; prints in IEC units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const KIB: u64 = 1 << 10;

/// Suffixes accepted after a number, with their factors. A letter without `B` is a power of 1024, as in qemu-img and
/// fio; only `KB` to `PB` are powers of 1000.
const SUFFIXES: [(&str, u64); 22] = [
    ("", 1),
    ("B", 1),
    ("K", KIB),
    ("Ki", KIB),
    ("KiB", KIB),
    ("M", KIB * KIB),
    ("Mi", KIB * KIB),
    ("MiB", KIB * KIB),
    ("G", KIB * KIB * KIB),
    ("Gi", KIB * KIB * KIB),
    ("GiB", KIB * KIB * KIB),
    ("T", KIB * KIB * KIB * KIB),
    ("Ti", KIB * KIB * KIB * KIB),
    ("TiB", KIB * KIB * KIB * KIB),
    ("P", KIB * KIB * KIB * KIB * KIB),
    ("Pi", KIB * KIB * KIB * KIB * KIB),
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
        if is_fraction(suffix) {
            return Err(SizeError::Fraction);
        }
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

/// Whether a point or comma with a digit stands where the unit is expected.
fn is_fraction(suffix: &str) -> bool {
    let digits = suffix.strip_prefix(['.', ',']);
    digits.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
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
    /// It does not begin with a digit (signs are not accepted).
    NotANumber,
    /// The number has a fraction.
    Fraction,
    /// The unit is not one of those listed.
    UnknownUnit,
    /// The size does not fit in 64 bits.
    TooLarge,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotANumber => "a size is a whole number with a unit, such as 64KiB",
            Self::Fraction => {
                "a size has no fraction: use a whole number of a smaller unit, such as 512KiB for 0.5MiB"
            }
            Self::UnknownUnit => {
                "unknown unit: use KiB, MiB, GiB, TiB (or K, M, G, T), KB, MB, GB, TB, or plain bytes"
            }
            Self::TooLarge => "the size is larger than 64 bits can count",
        })
    }
}

impl std::error::Error for SizeError {}
