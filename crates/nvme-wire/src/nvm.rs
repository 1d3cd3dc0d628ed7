//! Commands of the NVM command set (NVM, section 3.2).

use crate::bytes::{u32_at, u64_at};
use crate::command::Sqe;

/// Opcodes (NVM, Figure 18).
pub mod opcode {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// The namespace that stands for all of them.
pub const ALL_NAMESPACES: u32 = 0xffff_ffff;

/// What Read, Write and Write Zeroes have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// First block.
    pub start: u64,
    /// How many, at least one.
    pub count: u32,
    /// Whether it must reach, or come from, the medium.
    pub force_unit_access: bool,
    /// Whether a directive is named.
    pub directive: bool,
}

impl Blocks {
    /// Reads dwords 10 to 12.
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

/// Bytes of one range of Dataset Management.
pub const RANGE_BYTES: usize = 16;
/// Most ranges of one command.
pub const RANGES_MAX: usize = 256;

/// Dataset Management (NVM, section 3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// Ranges in the data.
    pub ranges: u32,
    /// Whether their content is no longer needed. All else is a hint about use.
    pub deallocate: bool,
}

impl Dataset {
    /// Reads dwords 10 and 11.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        Self { ranges: (sqe.dword(10) & 0xff) + 1, deallocate: sqe.dword(11) & 1 << 2 != 0 }
    }
}

/// A range of Dataset Management (NVM, Figure 41).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First block.
    pub start: u64,
    /// How many; may be none.
    pub count: u32,
}

impl Range {
    /// Reads a range.
    #[must_use]
    pub fn parse(bytes: &[u8; RANGE_BYTES]) -> Self {
        Self { start: u64_at(bytes, 8), count: u32_at(bytes, 4) }
    }
}
