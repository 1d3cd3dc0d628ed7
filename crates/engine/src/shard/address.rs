//! Translation of array addresses into addresses of member devices.

use strake_block::Op;
use strake_units::{BlockSize, Lba, LbaRange};

/// The mapping of array blocks in the data area to blocks of the member device.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataArea {
    pub(super) start_bytes: u64,
    pub(super) device_shift: u32,
}

impl DataArea {
    /// Returns the device block of `at`, a block of the array in the data area.
    #[inline]
    pub(super) fn lba(self, at: Lba, block_size: BlockSize) -> Lba {
        Lba((self.start_bytes + at.bytes(block_size)) >> self.device_shift)
    }

    /// Returns the device block of `at`, an address in the address space of `target`.
    #[inline(always)]
    pub(super) fn lba_of(self, target: Target, at: Lba, block_size: BlockSize) -> Lba {
        match target {
            Target::Data => self.lba(at, block_size),
            Target::Raw | Target::Log => Lba(at.0 >> self.device_shift),
        }
    }
}

/// The address space of an operation on a member.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Logical blocks of the array, counted from the start of the data area.
    Data,
    /// Bytes from the start of the device, a multiple of 4 KiB: labels and bitmaps.
    Raw,
    /// Byte addresses like `Raw`, in the redo log. Writes also go to a replacement, like writes of data.
    Log,
}

/// Translates the addresses of `op` into addresses of the device.
pub(super) fn translate(op: Op, target: Target, area: DataArea, block_size: BlockSize) -> Op {
    let lba = |at: Lba| area.lba_of(target, at, block_size);
    let range = |range: LbaRange| {
        let bytes = match target {
            Target::Data => range.blocks << block_size.shift(),
            Target::Raw | Target::Log => range.blocks,
        };
        LbaRange::new(lba(range.start), bytes >> area.device_shift)
    };
    match op {
        Op::Read { at, data } => Op::Read { at: lba(at), data },
        Op::Write { at, data, durability } => Op::Write { at: lba(at), data, durability },
        Op::Flush => Op::Flush,
        Op::Deallocate { range: r } => Op::Deallocate { range: range(r) },
        Op::WriteZeroes { range: r, durability } => Op::WriteZeroes { range: range(r), durability },
    }
}
