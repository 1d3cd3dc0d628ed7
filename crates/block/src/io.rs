//! What travels through a queue: requests one way, completions and their buffers the other.

use crate::buf::{Sg, SgMut};
use crate::error::IoError;
use strake_units::{BlockSize, Lba, LbaRange};

/// Names an I/O to its submitter. A device returns it unchanged and never looks inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// When a write counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// The device has it; a power cut may still lose it from a volatile cache.
    #[default]
    Normal,
    /// It is on stable media before it completes (FUA).
    Fua,
}

/// One operation. Data is owned: it goes down with the request and returns with the completion.
#[derive(Debug)]
pub enum Op {
    /// Fill `data` from the blocks starting at `at`.
    Read {
        /// First block.
        at: Lba,
        /// Where to put them; its length says how many.
        data: SgMut,
    },
    /// Write `data` to the blocks starting at `at`.
    Write {
        /// First block.
        at: Lba,
        /// What to write; its length says how many.
        data: Sg,
        /// When it counts as done.
        durability: Durability,
    },
    /// Make every write that completed before this was submitted stable.
    Flush,
    /// The content of the range is no longer needed. What it reads as afterwards is the device's
    /// [`DeallocateReads`](crate::device::DeallocateReads).
    Deallocate {
        /// The blocks.
        range: LbaRange,
    },
    /// Make the range read as zeroes.
    WriteZeroes {
        /// The blocks.
        range: LbaRange,
        /// When it counts as done.
        durability: Durability,
    },
}

impl Op {
    /// The blocks this touches on a device with blocks of `size`; a flush touches none. A data length that is
    /// no whole number of blocks rounds down here; devices check lengths themselves.
    #[inline]
    #[must_use]
    pub fn range(&self, size: BlockSize) -> LbaRange {
        match self {
            Self::Read { at, data } => LbaRange::new(*at, data.len() as u64 >> size.shift()),
            Self::Write { at, data, .. } => LbaRange::new(*at, data.len() as u64 >> size.shift()),
            Self::Flush => LbaRange::default(),
            Self::Deallocate { range } | Self::WriteZeroes { range, .. } => *range,
        }
    }
}

/// A request.
#[derive(Debug)]
pub struct Io {
    /// Returned in the completion.
    pub token: Token,
    /// What to do.
    pub op: Op,
}

/// The answer to an [`Io`], with its operation (and so its buffers) handed back.
///
/// A failed read's buffers hold unspecified bytes. After [`IoErrorKind::Timeout`](crate::IoErrorKind::Timeout)
/// a read may return with fewer buffers than it left with: memory a drive may still write to is not reused. Nor
/// does a write that failed because everything is lost bring its data home while a drive may still read it.
#[derive(Debug)]
pub struct Completion {
    /// As submitted.
    pub token: Token,
    /// As submitted.
    pub op: Op,
    /// Whether it worked.
    pub result: Result<(), IoError>,
}
