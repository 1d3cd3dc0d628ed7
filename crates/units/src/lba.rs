//! Logical block addresses and ranges of them.

use std::fmt;

/// The size of one logical block. NVMe drives and files are used with one of these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BlockSize {
    /// 512-byte blocks.
    B512 = 9,
    /// 4096-byte blocks ("4Kn").
    B4096 = 12,
}

impl BlockSize {
    /// The block size of `bytes`, or `None` when it is neither 512 nor 4096.
    #[must_use]
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            512 => Some(Self::B512),
            4096 => Some(Self::B4096),
            _ => None,
        }
    }

    /// Bytes in one block.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }

    /// log2 of the bytes in one block.
    #[inline]
    #[must_use]
    pub const fn shift(self) -> u32 {
        self as u32
    }

    /// Blocks in `bytes`, or `None` when `bytes` is not a whole number of blocks.
    #[inline]
    #[must_use]
    pub const fn blocks_in(self, bytes: u64) -> Option<u64> {
        if bytes & (self.bytes() as u64 - 1) == 0 { Some(bytes >> self.shift()) } else { None }
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

/// A logical block address on some device. Unit: that device's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

impl Lba {
    /// The address `blocks` further on. Callers stay inside a device, whose size fits in 63 bits.
    #[must_use]
    pub const fn plus(self, blocks: u64) -> Self {
        Self(self.0 + blocks)
    }

    /// The address in bytes on a device with blocks of `size`.
    #[must_use]
    pub const fn bytes(self, size: BlockSize) -> u64 {
        self.0 << size.shift()
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A half-open range of blocks: `start` is in it, `start + blocks` is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LbaRange {
    /// First block of the range.
    pub start: Lba,
    /// Number of blocks.
    pub blocks: u64,
}

impl LbaRange {
    /// The range of `blocks` blocks from `start`.
    #[must_use]
    pub const fn new(start: Lba, blocks: u64) -> Self {
        Self { start, blocks }
    }

    /// First block after the range. Saturates, so that a hostile range is "too far", never small.
    #[inline]
    #[must_use]
    pub const fn end(self) -> Lba {
        Lba(self.start.0.saturating_add(self.blocks))
    }

    /// True when the range holds no block.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.blocks == 0
    }

    /// True when the whole range lies below `capacity_blocks`.
    #[inline]
    #[must_use]
    pub const fn fits(self, capacity_blocks: u64) -> bool {
        match self.start.0.checked_add(self.blocks) {
            Some(end) => end <= capacity_blocks,
            None => false,
        }
    }

    /// True when the two ranges share a block.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.0 < other.end().0 && other.start.0 < self.end().0
    }
}
