//! Commands of the NVM command set (NVM, section 3.2).

use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::command::{Sgl, Sqe};

/// Opcodes (NVM, Figure 18).
pub mod opcode {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Compare.
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Verify.
    pub const VERIFY: u8 = 0x0c;
    /// Copy.
    pub const COPY: u8 = 0x19;
}

/// The namespace ID that selects all namespaces.
pub const ALL_NAMESPACES: u32 = 0xffff_ffff;

/// The common fields of Read, Write and Write Zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// First block.
    pub start: u64,
    /// The number of blocks, at least one.
    pub count: u32,
    /// Force Unit Access.
    pub force_unit_access: bool,
    /// Whether the command has a directive.
    pub directive: bool,
}

impl Blocks {
    /// Parses dwords 10 to 12.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let dword = sqe.dword(12);
        Self {
            start: sqe.qword(10),
            count: (dword & 0xffff) + 1,
            force_unit_access: dword & 1 << 30 != 0,
            directive: dword >> 20 & 0xf != 0,
        }
    }
}

impl Blocks {
    /// The command `opcode` for namespace `nsid`, with 1 to 65536 blocks and without a directive.
    #[must_use]
    pub fn command(&self, opcode: u8, nsid: u32, sgl: Sgl) -> Sqe {
        debug_assert!((1..=1 << 16).contains(&self.count), "a command has 1 to 65536 blocks");
        let force = if self.force_unit_access { 1 << 30 } else { 0 };
        Sqe::new(opcode, nsid, sgl)
            .with(10, self.start as u32)
            .with(11, (self.start >> 32) as u32)
            .with(12, (self.count - 1) & 0xffff | force)
    }
}

/// Bytes of one range of Dataset Management.
pub const RANGE_BYTES: usize = 16;
/// Maximum number of ranges of one command.
pub const RANGES_MAX: usize = 256;

/// Dataset Management (NVM, section 3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// The number of ranges in the data.
    pub ranges: u32,
    /// Whether the ranges are deallocated. All other attributes are hints about use.
    pub deallocate: bool,
}

impl Dataset {
    /// Parses dwords 10 and 11.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        Self { ranges: (sqe.dword(10) & 0xff) + 1, deallocate: sqe.dword(11) & 1 << 2 != 0 }
    }

    /// The command, with 1 to 256 ranges.
    #[must_use]
    pub fn command(&self, nsid: u32, sgl: Sgl) -> Sqe {
        debug_assert!((1..=RANGES_MAX as u32).contains(&self.ranges), "1 to 256 ranges");
        Sqe::new(opcode::DATASET_MANAGEMENT, nsid, sgl)
            .with(10, self.ranges - 1)
            .with(11, u32::from(self.deallocate) << 2)
    }
}

/// A range of Dataset Management (NVM, Figure 41).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First block.
    pub start: u64,
    /// The number of blocks; may be zero.
    pub count: u32,
}

impl Range {
    /// Parses a range.
    #[must_use]
    pub fn parse(bytes: &[u8; RANGE_BYTES]) -> Self {
        Self { start: u64_at(bytes, 8), count: u32_at(bytes, 4) }
    }

    /// The bytes of a range.
    #[must_use]
    pub fn bytes(&self) -> [u8; RANGE_BYTES] {
        let mut out = [0; RANGE_BYTES];
        put(&mut out, 4, &self.count.to_le_bytes());
        put(&mut out, 8, &self.start.to_le_bytes());
        out
    }
}

/// Bytes of one source range of Copy.
pub const SOURCE_BYTES: usize = 32;

/// Copy (NVM, section 3.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The first block of the destination.
    pub to: u64,
    /// The number of source ranges in the data.
    pub sources: u32,
    /// The format of the ranges; only format 0 is supported here.
    pub format: u8,
    /// Force Unit Access of the writes.
    pub force_unit_access: bool,
    /// Whether the command has a directive.
    pub directive: bool,
}

impl Copy {
    /// Parses dwords 10 to 12.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let dword = sqe.dword(12);
        Self {
            to: sqe.qword(10),
            sources: (dword & 0xff) + 1,
            format: (dword >> 8 & 0xf) as u8,
            force_unit_access: dword & 1 << 30 != 0,
            directive: dword >> 20 & 0xf != 0,
        }
    }

    /// The command for namespace `nsid`, with 1 to 256 sources and without a directive.
    #[must_use]
    pub fn command(&self, nsid: u32, sgl: Sgl) -> Sqe {
        debug_assert!((1..=RANGES_MAX as u32).contains(&self.sources), "1 to 256 source ranges");
        let force = if self.force_unit_access { 1 << 30 } else { 0 };
        let (count, format) = (self.sources - 1, u32::from(self.format & 0xf) << 8);
        Sqe::new(opcode::COPY, nsid, sgl)
            .with(10, self.to as u32)
            .with(11, (self.to >> 32) as u32)
            .with(12, count | format | force)
    }
}

/// A source range of Copy in format 0 (NVM, Figure 34).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRange {
    /// First block.
    pub start: u64,
    /// The number of blocks, 1 to 65536.
    pub count: u32,
}

impl SourceRange {
    /// Parses a range.
    #[must_use]
    pub fn parse(bytes: &[u8; SOURCE_BYTES]) -> Self {
        Self { start: u64_at(bytes, 8), count: u32::from(u16_at(bytes, 16)) + 1 }
    }

    /// The bytes of a range.
    #[must_use]
    pub fn bytes(&self) -> [u8; SOURCE_BYTES] {
        debug_assert!((1..=1 << 16).contains(&self.count), "a source range has 1 to 65536 blocks");
        let mut out = [0; SOURCE_BYTES];
        put(&mut out, 8, &self.start.to_le_bytes());
        put(&mut out, 16, &((self.count - 1) as u16).to_le_bytes());
        out
    }
}
