//! Requests and completions of a queue. Both own their buffers.

use crate::buf::{Sg, SgMut};
use crate::error::IoError;
use strake_units::{BlockSize, Lba, LbaRange};

/// Identifies an I/O for its submitter. A device returns the token unchanged and does not interpret it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// The durability of a completed write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// The device has the data. A power loss may still lose the data from a volatile cache.
    #[default]
    Normal,
    /// The data are on stable media before the write completes (FUA).
    Fua,
}

/// One operation. The operation owns its data, and the completion returns the data.
#[derive(Debug)]
pub enum Op {
    /// Fill `data` from the blocks starting at `at`.
    Read {
        /// First block.
        at: Lba,
        /// Memory for the data. Its length determines the number of blocks.
        data: SgMut,
    },
    /// Write `data` to the blocks starting at `at`.
    Write {
        /// First block.
        at: Lba,
        /// The data. Their length determines the number of blocks.
        data: Sg,
        /// The durability of the completed write.
        durability: Durability,
    },
    /// Make every write stable that completed before the submission of this flush.
    Flush,
    /// The content of the range is no longer needed. The content afterwards depends on the device's
    /// [`DeallocateReads`](crate::device::DeallocateReads).
    Deallocate {
        /// The blocks.
        range: LbaRange,
    },
    /// Make the range read as zeroes.
    WriteZeroes {
        /// The blocks.
        range: LbaRange,
        /// The durability of the completed operation.
        durability: Durability,
    },
}

impl Op {
    /// Returns the blocks of the operation on a device with blocks of `size`. A flush has no blocks. A data length that
    /// is not a multiple of the block size is rounded down; devices check lengths themselves.
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
    /// The token, which the completion returns.
    pub token: Token,
    /// The operation.
    pub op: Op,
}

/// The completion of an [`Io`], which returns the operation and its buffers.
///
/// The buffers of a failed read have undefined content. After [`IoErrorKind::Timeout`](crate::IoErrorKind::Timeout), a
/// read may return fewer buffers than were submitted, because memory to which a drive may still write is not reused. A
/// write that failed because the array has failed does not return its data while a drive may still read them.
#[derive(Debug)]
pub struct Completion {
    /// The submitted token.
    pub token: Token,
    /// The submitted operation.
    pub op: Op,
    /// The result.
    pub result: Result<(), IoError>,
}
