//! Parts of small writes and degraded reads on their way to members: what is known of them stands in the place of the
//! whole.
//!
//! Like a direct read, a part that takes long is *promoted* to an ordinary I/O. So is at once what a member cannot take
//! now, or has no device for.

use strake_block::{Durability, Io, IoQueue, Op, Sg, SgMut, Token};
use strake_units::{Lba, MemberIndex, Nanos};

use super::super::address::Target;
use super::token::Named;
use super::{Member, Members, PartIo, Unplaced, Waiter};
use crate::limits::MEMBER_DEPTH;

/// What sending a part came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The device has it, and will answer with the part's own token.
    Direct,
    /// It is an ordinary I/O, and comes back as one.
    Ordinary,
}

/// A part of a small write or degraded read that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) io: PartIo,
    /// Of the whole's place.
    pub(crate) generation: u32,
    pub(crate) member: MemberIndex,
    /// The first block in the member's data area.
    pub(crate) at: Lba,
}

impl Member {
    /// True when an I/O can go to the device now.
    #[inline]
    fn takes(&self) -> bool {
        self.backlog.is_empty() && self.outstanding < MEMBER_DEPTH && !self.hung
    }
}

impl Members {
    /// Reads a part of a small write or degraded read.
    #[inline]
    pub(crate) fn read_part(&mut self, now: Nanos, part: Part, data: SgMut) -> Sent {
        let submit = |queue: &mut dyn IoQueue, token, at, data| queue.submit_read(token, at, data);
        self.send_part(now, part, data, submit, |data| Op::Read { at: part.at, data })
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
        self.send_part(now, part, data, submit, op)
    }

    /// Submits `data` to the member's queue if it takes it now, and makes an ordinary I/O of it otherwise. The data
    /// stay in registers as long as the queue takes them.
    #[inline(always)]
    fn send_part<D>(
        &mut self,
        now: Nanos,
        part: Part,
        data: D,
        submit: impl FnOnce(&mut dyn IoQueue, Token, Lba, D) -> Result<(), Io>,
        op: impl FnOnce(D) -> Op,
    ) -> Sent {
        let Part { io, generation, member, at } = part;
        let place = &mut self.members[member.at()];
        if place.takes()
            && let Some(queue) = &mut place.queue
        {
            let lba = place.area.lba(at, self.block_size);
            return match submit(&mut **queue, Named::Part { io, generation }.token(), lba, data) {
                Ok(()) => self.part_sent(member),
                Err(back) => self.send_ordinary(now, io, member, moved(back.op, at)),
            };
        }
        self.send_ordinary(now, io, member, op(data))
    }

    #[inline]
    fn part_sent(&mut self, member: MemberIndex) -> Sent {
        self.members[member.at()].outstanding += 1;
        self.unrung.insert(member);
        self.parts += 1;
        Sent::Direct
    }

    fn send_ordinary(&mut self, now: Nanos, io: PartIo, member: MemberIndex, op: Op) -> Sent {
        self.send(now, Waiter::Part(io), member, Target::Data, op);
        Sent::Ordinary
    }

    /// Makes an ordinary I/O of a part that a device has. Returns the part's token, by which it will come back, and the
    /// I/O it is then.
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

/// A read or write that came back from a queue, at another address.
fn moved(op: Op, at: Lba) -> Op {
    match op {
        Op::Read { data, .. } => Op::Read { at, data },
        Op::Write { data, durability, .. } => Op::Write { at, data, durability },
        Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {
            unreachable!("parts are read or written")
        }
    }
}
