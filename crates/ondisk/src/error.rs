//! Errors of records.

use std::fmt;

use strake_units::Uuid;

use crate::areas::AreaKind;
use crate::features::{Features, INCOMPAT_KNOWN, known_bits};
use crate::layout::Copy;
use crate::limits::VERSION;

/// The remedy for a label that this program does not support.
const USE_ANOTHER: &str = "; use the version that wrote it";

/// The kind of a label error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelErrorKind {
    /// The record has a wrong length.
    Truncated {
        /// The length.
        bytes: usize,
    },
    /// The record is all zeroes, so it was never written.
    Blank,
    /// The magic is missing, so this is no label.
    NotALabel,
    /// The CRC does not match, so the record is torn or damaged.
    Checksum,
    /// The digest does not match although the CRC does.
    Digest,
    /// The format version is not supported.
    Version(u16),
    /// The array uses unsupported features, so it must not be accessed.
    Incompatible {
        /// The unsupported bits.
        unknown: u64,
        /// The label's generation.
        generation: u64,
    },
    /// The label is valid, but a field, or a constant on which recovery depends, has a value that this program does not
    /// support.
    Field {
        /// The field or constant.
        name: &'static str,
        /// The area of the field; `None` for a field of the label.
        area: Option<AreaKind>,
        /// The value in the label.
        recorded: u64,
        /// The supported values.
        wanted: Wanted,
        /// The label's generation.
        generation: u64,
    },
    /// The record was written for another offset.
    Misdirected {
        /// The byte offset for which it was written.
        meant_for: u64,
    },
}

/// A field of a label with an unsupported value: its name, the value, and the supported values.
pub(crate) type Unusable = (&'static str, u64, Wanted);

/// The supported values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This value.
    Exactly(u64),
    /// This value and greater values.
    AtLeast(u64),
    /// This value and smaller values.
    AtMost(u64),
    /// These values, as text.
    Known(&'static str),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(value) => write!(f, "{value}"),
            Self::AtLeast(value) => write!(f, "{value} or more"),
            Self::AtMost(value) => write!(f, "{value} or less"),
            Self::Known(values) => f.write_str(values),
        }
    }
}

impl LabelErrorKind {
    /// True for a valid but unsupported label: another program wrote it, and no older label may be used instead.
    #[must_use]
    pub const fn is_unknown(self) -> bool {
        matches!(self, Self::Version(_) | Self::Incompatible { .. } | Self::Field { .. })
    }

    /// Returns the generation of an unsupported label, if the format version defines its location, otherwise the
    /// greatest number. Returns `None` for every other kind.
    #[must_use]
    pub const fn generation(self) -> Option<u64> {
        match self {
            Self::Incompatible { generation, .. } | Self::Field { generation, .. } => {
                Some(generation)
            }
            Self::Version(_) => Some(u64::MAX),
            Self::Truncated { .. }
            | Self::Blank
            | Self::NotALabel
            | Self::Checksum
            | Self::Digest
            | Self::Misdirected { .. } => None,
        }
    }
}

/// The error of a record that is not a label of its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelError {
    /// The kind of the error.
    pub kind: LabelErrorKind,
    /// The ring of the record.
    pub copy: Copy,
    /// The slot of that ring.
    pub ring_slot: u8,
    /// The array in the record, which has the same offset in all versions; `None` if the digest does not match.
    pub array: Option<Uuid>,
}

impl fmt::Display for LabelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = match self.copy {
            Copy::Head => "head",
            Copy::Tail => "tail",
        };
        write!(f, "label slot {} of the {ring} ring ", self.ring_slot)?;
        match self.kind {
            LabelErrorKind::Truncated { bytes } => {
                write!(f, "has {bytes} bytes instead of a whole record")
            }
            LabelErrorKind::Blank => f.write_str("was never written"),
            LabelErrorKind::NotALabel => f.write_str("holds something else"),
            LabelErrorKind::Checksum => f.write_str("is torn or damaged (its CRC does not match)"),
            LabelErrorKind::Digest => f.write_str("is damaged (its digest does not match)"),
            LabelErrorKind::Version(version) => write!(
                f,
                "has format {version}; this version supports formats 1 to {VERSION}{USE_ANOTHER}"
            ),
            LabelErrorKind::Incompatible { unknown, .. } => {
                let (bits, known) = (Features::incompat(unknown), known_bits(INCOMPAT_KNOWN));
                write!(f, "uses incompat {bits}; this version supports {known}{USE_ANOTHER}")
            }
            LabelErrorKind::Field { name, area, recorded, wanted, .. } => {
                write!(f, "has the value {recorded} for \"{name}\"")?;
                if let Some(area) = area {
                    write!(f, " of the {}", area.name())?;
                }
                write!(f, "; this version supports {wanted}{USE_ANOTHER}")
            }
            LabelErrorKind::Misdirected { meant_for } => {
                write!(f, "was written for byte offset {meant_for}")
            }
        }
    }
}

impl std::error::Error for LabelError {}
