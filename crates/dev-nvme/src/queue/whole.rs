//! The usual case: a read or write of one buffer that is one command, and its completion.

use super::NvmeQueue;
use super::piece::{Ability, fua};
use super::rings::Seen;
use crate::limits::SLOT_BITS;
use strake_block::{CompletionBatch, Durability, Io, Op, Sg, SgMut, Token};
use strake_nvme_wire::nvm::opcode;
use strake_units::Lba;

/// What was found out about reads and writes of as many bytes as the last one: most have the same length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usual {
    bytes: usize,
    /// The last block at which they can begin.
    at_max: u64,
    /// Bits of dword 12.
    dword_12: u32,
}

impl Usual {
    /// Stands for no length: no buffer has as many bytes.
    pub(super) const NONE: Self = Self { bytes: usize::MAX, at_max: 0, dword_12: 0 };

    /// Returns what holds for reads and writes of `bytes` bytes; `None` if they cannot be one command.
    fn new(bytes: usize, ability: &Ability) -> Option<Self> {
        let is_whole = bytes & ability.block_mask as usize == 0;
        if bytes == 0 || bytes > ability.transfer_bytes as usize || !is_whole {
            return None;
        }
        let count = (bytes >> ability.block.shift()) as u32;
        let at_max = ability.blocks.checked_sub(count.into())?;
        Some(Self { bytes, at_max, dword_12: ability.protection | (count - 1) })
    }
}

/// A read or write of one buffer. The default, with no bytes, stands for any other request.
#[derive(Clone, Copy, Default)]
pub(super) struct One {
    at: u64,
    address: usize,
    bytes: usize,
    /// Bits of dword 12.
    flags: u32,
}

impl One {
    #[inline(always)]
    pub(super) fn read(at: Lba, data: &SgMut) -> Self {
        match data.parts() {
            [part] => Self { at: at.0, address: part.address(), bytes: part.len(), flags: 0 },
            _ => Self::default(),
        }
    }

    #[inline(always)]
    pub(super) fn write(at: Lba, data: &Sg, durability: Durability) -> Self {
        let flags = fua(durability);
        match data.parts() {
            [part] => Self { at: at.0, address: part.address(), bytes: part.len(), flags },
            _ => Self::default(),
        }
    }

    fn of(op: &Op) -> Self {
        match op {
            Op::Read { at, data } => Self::read(*at, data),
            Op::Write { at, data, durability } => Self::write(*at, data, *durability),
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => Self::default(),
        }
    }
}

impl NvmeQueue {
    /// Returns the PRPs and dword 12 of a read or write that can be sent immediately as one command.
    #[inline(always)]
    fn in_place<const OPCODE: u8>(&self, one: One) -> Option<((u64, u64), u32)> {
        let One { at, address, bytes, flags } = one;
        if !self.is_open || address & 3 != 0 {
            return None;
        }
        if bytes != self.usual.bytes || at > self.usual.at_max {
            return None;
        }
        if OPCODE == opcode::WRITE && self.ability.read_only {
            return None;
        }
        self.view.prps_nearby(address, bytes).map(|prps| (prps, self.usual.dword_12 | flags))
    }

    /// Takes a read or write. A request with a single buffer, the usual case, is sent immediately; others take the slow
    /// path. The operation is constructed in its slot, because moving it costs more than all checks.
    #[inline(always)]
    // `IoQueue::submit` must return the request.
    #[allow(clippy::result_large_err)]
    pub(super) fn take<const OPCODE: u8>(
        &mut self,
        token: Token,
        one: One,
        op: impl FnOnce() -> Op,
    ) -> Result<(), Io> {
        match self.in_place::<OPCODE>(one) {
            Some(found) => self.send_whole::<OPCODE>(token, (one.at, found), op),
            None => self.take_otherwise::<OPCODE>(Io { token, op: op() }),
        }
    }

    /// Sends a request as one command, as far as there is a slot.
    #[inline(always)]
    #[allow(clippy::result_large_err)]
    fn send_whole<const OPCODE: u8>(
        &mut self,
        token: Token,
        (at, (prps, dword_12)): (u64, ((u64, u64), u32)),
        op: impl FnOnce() -> Op,
    ) -> Result<(), Io> {
        let Some(slot) = self.slots.get_mut(usize::from(self.free)) else {
            return Err(Io { token, op: op() });
        };
        self.free = slot.next();
        let cid = slot.fill_whole(token, op);
        let arguments = [at, dword_12.into(), at & self.ability.reference_mask];
        self.push(OPCODE, cid, prps, arguments);
        Ok(())
    }

    /// Takes a read or write of another length than the last one, or one that takes the slow path.
    #[inline(never)]
    #[allow(clippy::result_large_err)]
    fn take_otherwise<const OPCODE: u8>(&mut self, io: Io) -> Result<(), Io> {
        let one = One::of(&io.op);
        if one.bytes != self.usual.bytes
            && let Some(usual) = Usual::new(one.bytes, &self.ability)
        {
            self.usual = usual;
            if let Some(found) = self.in_place::<OPCODE>(one) {
                let Io { token, op } = io;
                return self.send_whole::<OPCODE>(token, (one.at, found), || op);
            }
        }
        self.take_slowly(io)
    }

    /// Takes completions of whole requests that succeeded, the usual case. Returns why there is no further one.
    #[inline(always)]
    pub(super) fn collect_whole(&mut self, batch: &mut CompletionBatch) -> Seen {
        let Self { rings, slots, free, sent, .. } = self;
        // These are copies, which the compiler keeps in registers.
        let (mut cursor, mut first, mut count) = (rings.start(), *free, 0);
        let seen = loop {
            let Some(place) = batch.place() else { break Seen::Unread };
            let upper = cursor.look();
            let Some(cid) = upper.success() else { break upper.otherwise() };
            let index = cid & ((1 << SLOT_BITS) - 1);
            let Some(slot) = slots.get_mut(usize::from(index)) else { break Seen::Other };
            if !slot.is_answered_whole(cid) {
                break Seen::Other;
            }
            cursor.take();
            count += 1;
            slot.release(std::mem::replace(&mut first, index), place, Ok(()));
        };
        (*free, *sent) = (first, *sent - count);
        let position = cursor.position();
        rings.stop(position);
        seen
    }
}
