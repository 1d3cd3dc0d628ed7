//! Parts of small writes on their way to members: what is known of them stands in the small write's own place.
//!
//! Like a direct read, a part that takes long is *promoted* to an ordinary I/O. So is at once what a member cannot take
//! now, or has no device for.

use strake_block::{Durability, Io, Op, Sg, SgMut, Token};
use strake_units::{Lba, MemberIndex, Nanos};

use super::super::address::Target;
use super::token::Named;
use super::{Member, Members, SmallIo, Unplaced, Waiter};
use crate::limits::MEMBER_DEPTH;

/// What sending a part came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The device has it, and will answer with the part's own token.
    Direct,
    /// It is an ordinary I/O, and comes back as one.
    Ordinary,
}

impl Member {
    /// True when an I/O can go to the device now.
    #[inline]
    fn takes(&self) -> bool {
        self.backlog.is_empty() && self.outstanding < MEMBER_DEPTH && !self.hung
    }
}

impl Members {
    /// Reads a part of a small write from `at` in the data area of `member`.
    #[inline]
    pub(crate) fn read_part(
        &mut self,
        now: Nanos,
        (io, turn): (SmallIo, u32),
        member: MemberIndex,
        at: Lba,
        data: SgMut,
    ) -> Sent {
        let place = &mut self.members[member.at()];
        let mut back = data;
        if place.takes()
            && let Some(queue) = &mut place.queue
        {
            let lba = place.area.lba(at, self.block_size);
            match queue.submit_read(Named::Part { io, turn }.token(), lba, back) {
                Ok(()) => return self.part_sent(member),
                Err(Io { op, .. }) => {
                    let Op::Read { data, .. } = op else {
                        unreachable!("a read comes back as one")
                    };
                    back = data;
                }
            }
        }
        self.send_ordinary(now, io, member, Op::Read { at, data: back })
    }

    /// Writes a part of a small write at `at` in the data area of `member`.
    #[inline]
    pub(crate) fn write_part(
        &mut self,
        now: Nanos,
        (io, turn): (SmallIo, u32),
        member: MemberIndex,
        at: Lba,
        (data, durability): (Sg, Durability),
    ) -> Sent {
        let place = &mut self.members[member.at()];
        let mut back = data;
        if place.takes()
            && let Some(queue) = &mut place.queue
        {
            let lba = place.area.lba(at, self.block_size);
            match queue.submit_write(Named::Part { io, turn }.token(), lba, back, durability) {
                Ok(()) => return self.part_sent(member),
                Err(Io { op, .. }) => {
                    let Op::Write { data, .. } = op else {
                        unreachable!("a write comes back as one")
                    };
                    back = data;
                }
            }
        }
        self.send_ordinary(now, io, member, Op::Write { at, data: back, durability })
    }

    #[inline]
    fn part_sent(&mut self, member: MemberIndex) -> Sent {
        self.members[member.at()].outstanding += 1;
        self.unrung |= 1 << member.0;
        self.parts += 1;
        Sent::Direct
    }

    fn send_ordinary(&mut self, now: Nanos, io: SmallIo, member: MemberIndex, op: Op) -> Sent {
        self.send(now, Waiter::Small(io), member, Target::Data, op);
        Sent::Ordinary
    }

    /// Makes an ordinary I/O of a part that a device has. Returns the part's token, by which it will come back, and the
    /// I/O it is then.
    pub(crate) fn promote_part(
        &mut self,
        now: Nanos,
        (io, turn): (SmallIo, u32),
        what: Unplaced,
        read: bool,
    ) -> (Token, u32) {
        self.parts -= 1;
        let slot = self.promote(now, Waiter::Small(io), what, read);
        (Named::Part { io, turn }.token(), slot)
    }
}
