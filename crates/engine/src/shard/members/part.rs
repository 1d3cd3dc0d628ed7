//! Submission of parts of small writes and degraded reads. The entry of the write or read contains the state of its
//! parts.
//!
//! Like a direct read, a slow part is *promoted* to an ordinary I/O. A part is promoted immediately if its member has
//! no device, or cannot accept the part now.

use strake_block::{Durability, Io, IoQueue, Op, Sg, SgMut, Token};
use strake_units::{Lba, MemberIndex, Nanos};

use super::super::address::Target;
use super::token::Named;
use super::{Member, Members, PartIo, Unplaced, Waiter};
use crate::limits::MEMBER_DEPTH;

/// The result of sending a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The device has the part, and will answer with the part's own token.
    Direct,
    /// The part is an ordinary I/O.
    Ordinary,
}

/// A part of a small write or degraded read to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) io: PartIo,
    /// Generation of the entry of the write or read.
    pub(crate) generation: u32,
    pub(crate) member: MemberIndex,
    /// The first block in the member's data area; for a part of a record, a byte address on the member.
    pub(crate) at: Lba,
}

impl Member {
    /// True if the device can accept an I/O now.
    #[inline]
    fn takes(&self) -> bool {
        self.backlog.is_empty() && self.outstanding < MEMBER_DEPTH && !self.hung
    }
}

impl Members {
    /// True if the device of `member` can accept an I/O now.
    pub(crate) fn takes(&self, member: MemberIndex) -> bool {
        let member = &self.members[member.at()];
        member.queue.is_some() && member.takes()
    }

    /// Reads a part of a small write or degraded read.
    #[inline]
    pub(crate) fn read_part(&mut self, now: Nanos, part: Part, data: SgMut) -> Sent {
        let submit = |queue: &mut dyn IoQueue, token, at, data| queue.submit_read(token, at, data);
        let op = |data| Op::Read { at: part.at, data };
        self.send_part(now, (part, Target::Data), data, submit, op)
    }

    /// Writes a part of a small write.
    #[inline]
    pub(crate) fn write_part(
        &mut self,
        now: Nanos,
        part: Part,
        data: Sg,
        durability: Durability,
    ) -> Sent {
        let submit = |queue: &mut dyn IoQueue, token, at, data| {
            queue.submit_write(token, at, data, durability)
        };
        let op = |data| Op::Write { at: part.at, data, durability };
        self.send_part(now, (part, Target::Data), data, submit, op)
    }

    /// Writes the record of a part of a small write.
    pub(crate) fn log_part(&mut self, now: Nanos, part: Part, data: Sg) -> Sent {
        let submit = |queue: &mut dyn IoQueue, token, at, data| {
            queue.submit_write(token, at, data, Durability::Fua)
        };
        let op = |data| Op::Write { at: part.at, data, durability: Durability::Fua };
        self.send_part(now, (part, Target::Log), data, submit, op)
    }

    /// Submits `data` to the member's queue if the queue accepts I/Os now; otherwise makes the part an ordinary I/O.
    /// The data stay in registers if the queue accepts them.
    #[inline(always)]
    fn send_part<D>(
        &mut self,
        now: Nanos,
        (part, target): (Part, Target),
        data: D,
        submit: impl FnOnce(&mut dyn IoQueue, Token, Lba, D) -> Result<(), Io>,
        op: impl FnOnce(D) -> Op,
    ) -> Sent {
        let Part { io, generation, member, at } = part;
        let place = &mut self.members[member.at()];
        if place.takes()
            && let Some(queue) = &mut place.queue
        {
            let lba = place.area.lba_of(target, at, self.block_size);
            return match submit(&mut **queue, Named::Part { io, generation }.token(), lba, data) {
                Ok(()) => {
                    place.outstanding += 1;
                    self.unrung.insert(member);
                    self.parts += 1;
                    Sent::Direct
                }
                Err(back) => self.send_ordinary(now, io, (member, target), moved(back.op, at)),
            };
        }
        self.send_ordinary(now, io, (member, target), op(data))
    }

    fn send_ordinary(
        &mut self,
        now: Nanos,
        io: PartIo,
        (member, target): (MemberIndex, Target),
        op: Op,
    ) -> Sent {
        self.send(now, Waiter::Part(io), member, target, op);
        Sent::Ordinary
    }

    /// Promotes a part that a device has to an ordinary I/O. Returns the part's token, which its completion will have,
    /// and the ordinary I/O.
    pub(crate) fn promote_part(
        &mut self,
        now: Nanos,
        (io, generation): (PartIo, u32),
        what: Unplaced,
        read: bool,
    ) -> (Token, u32) {
        self.parts -= 1;
        let slot = self.promote(now, Waiter::Part(io), what, read);
        (Named::Part { io, generation }.token(), slot)
    }
}

/// Returns a read or write that a queue rejected, with another address.
fn moved(op: Op, at: Lba) -> Op {
    match op {
        Op::Read { data, .. } => Op::Read { at, data },
        Op::Write { data, durability, .. } => Op::Write { at, data, durability },
        Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {
            unreachable!("parts are read or written")
        }
    }
}
