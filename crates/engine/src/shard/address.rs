//! From the array's addresses to a member device's.

use strake_block::Op;
use strake_units::{BlockSize, Lba, LbaRange};

/// How array blocks in the data area map to the member device's blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataArea {
    pub(super) start_bytes: u64,
    pub(super) device_shift: u32,
}

impl DataArea {
    /// The device's block for `at`, a block of the array's size in the data area.
    #[inline]
    pub(super) fn lba(self, at: Lba, block_size: BlockSize) -> Lba {
        Lba((self.start_bytes + at.bytes(block_size)) >> self.device_shift)
    }
}

/// Where an operation addresses a member.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Blocks of the array's size, counted from the start of the data area.
    Data,
    /// Bytes from the start of the device, a multiple of 4 KiB: labels and bitmaps.
    Raw,
    /// The same, of the redo log: a replacement gets it too, as it gets data.
    Log,
}

/// Rewrites the addresses of `op` from the array's terms into the device's.
pub(super) fn translate(op: Op, target: Target, area: DataArea, block_size: BlockSize) -> Op {
    let to_bytes = |at: Lba| match target {
        Target::Data => area.start_bytes + at.bytes(block_size),
        Target::Raw | Target::Log => at.0,
    };
    let lba = |at: Lba| Lba(to_bytes(at) >> area.device_shift);
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
