//! Splits requests into commands within the limits of the target.

use crate::identify::Facts;
use crate::limits::{COMMAND_BLOCKS_MAX, DEALLOCATE_BYTES_MAX};
use crate::link::Terms;
use crate::queue::outbox::Out;
use strake_block::{Buf, DeallocateReads, Durability, Op, Sg, VolatileCache};
use strake_nvme_wire::nvm::{Blocks, Dataset, RANGE_BYTES, Range, opcode};
use strake_nvme_wire::{Sgl, Sqe};
use strake_units::{BlockSize, Lba, LbaRange, Nanos};

/// The capabilities of the namespace and its controller.
pub(crate) struct Ability {
    nsid: u32,
    pub(crate) blocks: u64,
    pub(crate) block: BlockSize,
    pub(crate) deallocate: DeallocateReads,
    pub(crate) read_only: bool,
    transfer_blocks: u64,
    /// Blocks of one Write Zeroes; `None` if zeroes must be sent as data.
    zeroes_blocks: Option<u64>,
    /// Whether completed changes may be in a volatile cache.
    pub(crate) caches: bool,
    /// See [`Facts`].
    pub(crate) settle_time: Nanos,
    zeroes: Buf,
}

impl Ability {
    pub(crate) fn of(facts: &Facts, zeroes: Buf) -> Self {
        let shift = facts.block.shift();
        let in_blocks = |bytes: u64| (bytes >> shift).clamp(1, COMMAND_BLOCKS_MAX);
        Self {
            nsid: facts.nsid,
            blocks: facts.blocks,
            block: facts.block,
            deallocate: facts.deallocate,
            read_only: facts.read_only,
            transfer_blocks: in_blocks(facts.transfer_bytes.into()),
            zeroes_blocks: facts.zeroes_bytes.map(in_blocks),
            caches: facts.cache == VolatileCache::Present,
            settle_time: facts.settle_time,
            zeroes,
        }
    }

    /// Updates the capabilities after a new association.
    pub(crate) fn renew(&mut self, facts: &Facts) {
        *self = Self::of(facts, self.zeroes.clone());
    }
}

/// A part of a request that is one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first block.
    pub(crate) start: u64,
    /// The number of blocks; zero for a flush.
    pub(crate) blocks: u64,
    /// The offset of its data in the data of the request.
    pub(crate) offset: usize,
    /// The number of bytes.
    pub(crate) bytes: u32,
}

impl Piece {
    /// The piece that follows `done` blocks of `op`.
    pub(crate) fn next(op: &Op, done: u64, ability: &Ability) -> Self {
        let shift = ability.block.shift();
        let LbaRange { start: Lba(start), blocks } = op.range(ability.block);
        let left = blocks - done;
        let (blocks, has_data) = match op {
            Op::Flush => (0, false),
            Op::Read { .. } | Op::Write { .. } => (left.min(ability.transfer_blocks), true),
            Op::Deallocate { .. } => {
                (left.min(DEALLOCATE_BYTES_MAX >> shift).min(u32::MAX.into()), false)
            }
            Op::WriteZeroes { .. } => match ability.zeroes_blocks {
                Some(most) => (left.min(most), false),
                None => {
                    let most = ability.zeroes.len() as u64 >> shift;
                    (left.min(most).min(ability.transfer_blocks), true)
                }
            },
        };
        Self {
            start: start + done,
            blocks,
            offset: (done << shift) as usize,
            bytes: if has_data { (blocks << shift) as u32 } else { 0 },
        }
    }

    /// Composes the command into `out`. Returns the number of data bytes that are sent with the command.
    pub(crate) fn compose(
        self,
        op: &Op,
        (ability, terms): (&Ability, &Terms),
        cid: u16,
        out: &mut Out,
    ) -> u32 {
        let (nsid, length) = (ability.nsid, self.bytes);
        let fits = length <= terms.in_capsule_bytes;
        let outward =
            if fits { Sgl::InCapsule { offset: 0, length } } else { Sgl::Transport { length } };
        let along = if fits { length } else { 0 };
        match op {
            Op::Read { .. } => {
                let sgl = Sgl::Transport { length };
                out.command(&self.blocks_command(opcode::READ, nsid, sgl, false).named(cid), terms);
                0
            }
            Op::Flush => {
                let sgl = Sgl::Transport { length: 0 };
                out.command(&Sqe::new(opcode::FLUSH, nsid, sgl).named(cid), terms);
                0
            }
            Op::Deallocate { .. } => {
                let length = RANGE_BYTES as u32;
                let sgl = Sgl::InCapsule { offset: 0, length };
                let range = Range { start: self.start, count: self.blocks as u32 };
                let command = Dataset { ranges: 1, deallocate: true }.command(nsid, sgl);
                out.command_with_bytes(&command.named(cid), &range.bytes(), terms);
                0
            }
            Op::WriteZeroes { durability, .. } if self.bytes == 0 => {
                let sgl = Sgl::Transport { length: 0 };
                let force = *durability == Durability::Fua;
                let command = self.blocks_command(opcode::WRITE_ZEROES, nsid, sgl, force);
                out.command(&command.named(cid), terms);
                0
            }
            Op::Write { durability, .. } | Op::WriteZeroes { durability, .. } => {
                let force = *durability == Durability::Fua;
                let command = self.blocks_command(opcode::WRITE, nsid, outward, force).named(cid);
                if along > 0 {
                    out.command_with(&command, self.data(op, ability, (0, along)), terms);
                } else {
                    out.command(&command, terms);
                }
                along
            }
        }
    }

    fn blocks_command(self, opcode: u8, nsid: u32, sgl: Sgl, force: bool) -> Sqe {
        let blocks = Blocks {
            start: self.start,
            count: self.blocks as u32,
            force_unit_access: force,
            directive: false,
        };
        blocks.command(opcode, nsid, sgl)
    }

    /// Bytes `from..from + length` of the piece's data, with shared memory.
    pub(crate) fn data(self, op: &Op, ability: &Ability, (from, length): (u32, u32)) -> Sg {
        match op {
            Op::Write { data, .. } => data.slice(self.offset + from as usize, length as usize),
            Op::WriteZeroes { .. } => Sg::from(ability.zeroes.slice(0, length as usize)),
            Op::Read { .. } | Op::Flush | Op::Deallocate { .. } => {
                unreachable!("only a write has data for the target")
            }
        }
    }
}
