//! Why a record is not what its place should hold.

use std::fmt;

use crate::bitmap::Plane;
use crate::layout::Copy;

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
    /// Written for another place.
    Misdirected {
        /// The byte offset it was written for.
        meant_for: u64,
    },
    /// Sound as bytes, but the named field makes no sense.
    Malformed(&'static str),
}

impl LabelErrorKind {
    /// True for a sound label that this program does not understand.
    #[must_use]
    pub const fn is_unknown(self) -> bool {
        matches!(self, Self::Version(_) | Self::Incompatible { .. })
    }

    /// How new a label that is not understood is: the generation where the format tells, the greatest number
    /// where the version does not even say where generations are. `None` for every other kind.
    #[must_use]
    pub const fn generation(self) -> Option<u64> {
        match self {
            Self::Incompatible { generation, .. } => Some(generation),
            Self::Version(_) => Some(u64::MAX),
            Self::Truncated { .. }
            | Self::Blank
            | Self::NotALabel
            | Self::Checksum
            | Self::Digest
            | Self::Misdirected { .. }
            | Self::Malformed(_) => None,
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
            LabelErrorKind::Version(version) => {
                write!(
                    f,
                    "has format {version}, which is not known here; use the version that wrote it"
                )
            }
            LabelErrorKind::Incompatible { unknown, .. } => {
                write!(
                    f,
                    "uses features {unknown:#x}, which are not known here; use the version that wrote it"
                )
            }
            LabelErrorKind::Misdirected { meant_for } => {
                write!(f, "was meant for byte {meant_for}")
            }
            LabelErrorKind::Malformed(field) => write!(f, "has an impossible {field}"),
        }
    }
}

impl std::error::Error for LabelError {}

/// What kind of trouble a bitmap page has, to decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageErrorKind {
    /// Not the length of a page.
    Truncated {
        /// The length.
        bytes: usize,
    },
    /// The magic is missing.
    NotAPage,
    /// The CRC does not match: torn or damaged.
    Checksum,
    /// A page of another array.
    OtherArray,
    /// A page of another place.
    Misdirected,
}

/// A record that is not the bitmap page it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageError {
    /// What to decide on.
    pub kind: PageErrorKind,
    /// The plane looked for.
    pub plane: Plane,
    /// The page looked for.
    pub page: u32,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of the {} bitmap ", self.page, self.plane)?;
        match self.kind {
            PageErrorKind::Truncated { bytes } => {
                write!(f, "has {bytes} bytes instead of a whole page")
            }
            PageErrorKind::NotAPage => f.write_str("was never written"),
            PageErrorKind::Checksum => f.write_str("is torn or damaged (its CRC does not match)"),
            PageErrorKind::OtherArray => f.write_str("belongs to another array"),
            PageErrorKind::Misdirected => f.write_str("belongs to another place"),
        }
    }
}

impl std::error::Error for PageError {}
