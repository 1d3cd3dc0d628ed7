//! Why a record is not what its place should hold.

use std::fmt;

use strake_units::Uuid;

use crate::areas::AreaKind;
use crate::features::{Features, INCOMPAT_KNOWN, known_bits};
use crate::layout::Copy;
use crate::limits::VERSION;

/// What to do about a label that is not understood.
const USE_ANOTHER: &str = "; use the version that wrote it";

/// What kind of trouble a label has, to decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelErrorKind {
    /// Not the length of a record.
    Truncated {
        /// The length.
        bytes: usize,
    },
    /// All zeroes: never written.
    Blank,
    /// The magic is missing: something else.
    NotALabel,
    /// The CRC does not match: torn or damaged.
    Checksum,
    /// The digest does not match although the CRC does.
    Digest,
    /// A format version this program does not know.
    Version(u16),
    /// Features without which the array must not be touched.
    Incompatible {
        /// The flags that are not known.
        unknown: u64,
        /// The label's generation.
        generation: u64,
    },
    /// Sound as bytes, and a field of it, or a constant that recovery depends on, has a value that this program cannot
    /// use.
    Field {
        /// The field or constant.
        name: &'static str,
        /// The area that it is a field of; `None` for a field of the label.
        area: Option<AreaKind>,
        /// The value in the label.
        recorded: u64,
        /// What this program can use.
        wanted: Wanted,
        /// The label's generation.
        generation: u64,
    },
    /// Written for another place.
    Misdirected {
        /// The byte offset it was written for.
        meant_for: u64,
    },
}

/// A field of a label with a value that this program cannot use: its name, the value, and what it can use.
pub(crate) type Unusable = (&'static str, u64, Wanted);

/// The values of a field that a program can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This one.
    Exactly(u64),
    /// This one and greater ones.
    AtLeast(u64),
    /// This one and lesser ones.
    AtMost(u64),
    /// These, in words.
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
    /// True for a sound label that this program does not understand: another program wrote it, and no older label may
    /// be used in its place.
    #[must_use]
    pub const fn is_unknown(self) -> bool {
        matches!(self, Self::Version(_) | Self::Incompatible { .. } | Self::Field { .. })
    }

    /// How new a label that is not understood is: the generation where the format tells, the greatest number
    /// where the version does not even say where generations are. `None` for every other kind.
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

/// A record that is not a label of the place it was found at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelError {
    /// What to decide on.
    pub kind: LabelErrorKind,
    /// The ring it was found in.
    pub copy: Copy,
    /// The slot of that ring.
    pub ring_slot: u8,
    /// The array that it names, which has one offset in all versions; `None` when the digest does not match.
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
