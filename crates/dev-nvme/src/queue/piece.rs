//! Division of requests into commands that the controller accepts.

use crate::facts::{Facts, Protection};
use crate::limits::{BOUNCE_BYTES, COMMAND_BLOCKS_MAX, DEALLOCATE_BYTES_MAX, PAGE};
use strake_block::{DeallocateReads, DeviceInfo, Durability, IoErrorKind, Op, VolatileCache};
use strake_nvme_wire::nvm::opcode;
use strake_units::{BlockSize, Lba, LbaRange};

use crate::wire::dword_12;

/// The properties of the namespace and its controller that the data path needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ability {
    /// The namespace identifier, in its position in the first word of a command.
    pub(crate) nsid_bits: u64,
    pub(crate) blocks: u64,
    pub(crate) block: BlockSize,
    /// One less than the bytes of a block.
    pub(crate) block_mask: u32,
    pub(crate) transfer_bytes: u32,
    pub(crate) read_only: bool,
    pub(crate) caches: bool,
    deallocate: DeallocateReads,
    /// Blocks of one Write Zeroes; `None` if the driver must send zeroes as data.
    pub(crate) zeroes_blocks: Option<u64>,
    /// Bits of dword 12 of every read and write, and a mask of the lower half of the address for dword 14.
    pub(crate) protection: u32,
    pub(crate) reference_mask: u64,
}

impl Ability {
    pub(crate) fn of(facts: &Facts) -> Self {
        let namespace = &facts.namespace;
        let (protection, reference_mask) = match namespace.protection {
            Protection::None => (0, 0),
            Protection::Type1 => (dword_12::PROTECTED, u32::MAX.into()),
        };
        Self {
            nsid_bits: u64::from(namespace.nsid) << 32,
            blocks: namespace.blocks,
            block: namespace.block,
            block_mask: namespace.block.bytes() - 1,
            transfer_bytes: transfer_bytes(facts),
            read_only: namespace.read_only,
            caches: facts.controller.cache == VolatileCache::Present,
            deallocate: namespace.deallocate,
            zeroes_blocks: facts.zeroes_blocks(),
            protection,
            reference_mask,
        }
    }

    /// Whether the device supports `op`; `Ok(false)` means that there is nothing to do.
    pub(crate) fn check(&self, op: &Op) -> Result<bool, IoErrorKind> {
        let bytes = match op {
            Op::Flush => return Ok(self.caches),
            Op::Read { data, .. } => data.len(),
            Op::Write { data, .. } => data.len(),
            Op::Deallocate { .. } if self.deallocate == DeallocateReads::Unsupported => {
                return Err(IoErrorKind::Unsupported);
            }
            Op::Deallocate { .. } | Op::WriteZeroes { .. } => 0,
        };
        if !matches!(op, Op::Read { .. }) && self.read_only {
            return Err(IoErrorKind::ReadOnly);
        }
        if self.block.blocks_in(bytes as u64).is_none() || bytes > self.transfer_bytes as usize {
            return Err(IoErrorKind::Misaligned);
        }
        let range = op.range(self.block);
        if !range.fits(self.blocks) {
            return Err(IoErrorKind::OutOfRange);
        }
        Ok(!LbaRange::is_empty(range))
    }
}

/// Bytes of the largest request: whole pages, if the controller accepts a page.
fn transfer_bytes(facts: &Facts) -> u32 {
    let most = facts.controller.transfer_bytes;
    if most >= PAGE as u32 { most & !(PAGE as u32 - 1) } else { facts.namespace.block.bytes() }
}

/// Returns the description of a device with these properties.
pub(crate) fn device_info(facts: &Facts) -> DeviceInfo {
    let namespace = &facts.namespace;
    DeviceInfo {
        identity: facts.identity(),
        blocks: namespace.blocks,
        block_size: namespace.block,
        io_bytes_max: transfer_bytes(facts),
        io_bytes_optimal: u32::from(namespace.optimal_blocks) << namespace.block.shift(),
        cache: facts.controller.cache,
        deallocate: namespace.deallocate,
        fast_zeroes: facts.controller.zeroes_bytes.is_some(),
        read_only: namespace.read_only,
    }
}

/// The location of the data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// The command has no data.
    None,
    /// The ranges of a deallocation.
    Ranges,
    /// Zeroes of the device.
    Zeroes,
    /// At `offset` in the data of the request.
    Request { offset: usize },
}

/// A part of a request that forms one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) opcode: u8,
    pub(crate) start: u64,
    /// Zero for a flush.
    pub(crate) blocks: u32,
    /// Bits of dword 12.
    pub(crate) flags: u32,
    pub(crate) data: Data,
}

impl Piece {
    /// Returns the next piece after `done` blocks of `op`.
    pub(crate) fn next(op: &Op, done: u64, ability: &Ability) -> Self {
        let shift = ability.block.shift();
        let LbaRange { start: Lba(start), blocks } = op.range(ability.block);
        let (start, left) = (start + done, blocks - done);
        let data = Data::Request { offset: (done << shift) as usize };
        let piece = |opcode, most: u64, flags, data| Self {
            opcode,
            start,
            blocks: left.min(most).min(u32::MAX.into()) as u32,
            flags,
            data,
        };
        match op {
            Op::Flush => piece(opcode::FLUSH, 0, 0, Data::None),
            Op::Read { .. } => piece(opcode::READ, COMMAND_BLOCKS_MAX, ability.protection, data),
            Op::Write { durability, .. } => {
                let flags = ability.protection | fua(*durability);
                piece(opcode::WRITE, COMMAND_BLOCKS_MAX, flags, data)
            }
            Op::Deallocate { .. } => {
                let most = DEALLOCATE_BYTES_MAX >> shift;
                piece(opcode::DATASET_MANAGEMENT, most, 0, Data::Ranges)
            }
            Op::WriteZeroes { durability, .. } => match ability.zeroes_blocks {
                Some(most) => {
                    // Without this, the protection information of the blocks would be zero, and every read of them
                    // would fail (as Linux, `nvme_setup_write_zeroes` in drivers/nvme/host/core.c).
                    let flags = ability.protection & dword_12::ACTION | fua(*durability);
                    piece(opcode::WRITE_ZEROES, most, flags, Data::None)
                }
                None => {
                    let most = (ability.transfer_bytes as u64).min(BOUNCE_BYTES as u64) >> shift;
                    let flags = ability.protection | fua(*durability);
                    piece(opcode::WRITE, most, flags, Data::Zeroes)
                }
            },
        }
    }

    /// Returns dwords 10 to 15 as words.
    pub(crate) fn arguments(&self, ability: &Ability) -> [u64; 3] {
        match self.opcode {
            opcode::FLUSH => [0; 3],
            // One range, with the attribute Deallocate.
            opcode::DATASET_MANAGEMENT => [1 << 34, 0, 0],
            _ => {
                let reference = self.start & ability.reference_mask;
                [self.start, u64::from(self.flags | (self.blocks - 1)), reference]
            }
        }
    }
}

pub(crate) const fn fua(durability: Durability) -> u32 {
    match durability {
        Durability::Normal => 0,
        Durability::Fua => dword_12::FUA,
    }
}
