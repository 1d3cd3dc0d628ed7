//! Submission of I/Os to the devices of members.

use strake_block::{Io, IoErrorKind, IoQueue, Op, SgMut, Token};
use strake_units::{Lba, LbaRange, MemberIndex, Nanos};

use super::super::address::{Target, translate};
use super::token::{self, Named};
use super::{Failure, Group, Inflight, IoSlot, Member, Members, Waiter};
use crate::limits::{DEALLOCATE_DEPTH, MEMBER_DEPTH};
use crate::slab::Slab;

impl Members {
    /// Issues `op` to `member` as part of `group`. The function always accepts the I/O. If the member has no queue or
    /// is unresponsive, the I/O fails at the next poll.
    pub(crate) fn issue(
        &mut self,
        now: Nanos,
        group: Group,
        member: MemberIndex,
        target: Target,
        op: Op,
    ) -> IoSlot {
        let again = match (&op, target) {
            (Op::Write { at, data, durability }, Target::Data | Target::Log)
                if self.paired.is_paired(member) =>
            {
                Some(Op::Write { at: *at, data: data.clone(), durability: *durability })
            }
            (Op::Deallocate { range }, Target::Data) if self.paired.is_paired(member) => {
                Some(Op::Deallocate { range: *range })
            }
            (Op::WriteZeroes { range, durability }, Target::Data)
                if self.paired.is_paired(member) =>
            {
                Some(Op::WriteZeroes { range: *range, durability: *durability })
            }
            (Op::Read { .. } | Op::Write { .. } | Op::Flush, _)
            | (Op::Deallocate { .. } | Op::WriteZeroes { .. }, _) => None,
        };
        let slot = IoSlot(self.send(now, Waiter::Group(group.0), member, target, op));
        if let Some(again) = again {
            self.mirror(now, group, (member, slot), target, again);
        }
        slot
    }

    /// Marks a read without which the group can continue if the read is slow. The outcome is then [`Failure::slow`].
    pub(crate) fn hurry(&mut self, slot: IoSlot) {
        let entry = self.inflight.get_mut(slot.0).expect("an I/O just issued");
        entry.hasty = entry.read;
    }

    /// Issues a normal read for a host request.
    pub(crate) fn issue_host_read(
        &mut self,
        now: Nanos,
        member: MemberIndex,
        at: Lba,
        data: SgMut,
        (request, range): (u32, LbaRange),
    ) {
        self.send(
            now,
            Waiter::Host { request, range },
            member,
            Target::Data,
            Op::Read { at, data },
        );
    }

    // Inlined into the callers, so that the fields of an I/O are written only once.
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        now: Nanos,
        waiter: Waiter,
        member: MemberIndex,
        target: Target,
        op: Op,
    ) -> u32 {
        self.generation = token::next(self.generation);
        let place = &mut self.members[member.at()];
        let op = translate(op, target, place.area, self.block_size);
        if let Waiter::Group(group) = waiter {
            self.groups.add_one(group);
        }
        let issued = self.membership_epoch;
        let hasty = waiter.is_hasty();
        let slot = self.inflight.insert(Inflight {
            waiter,
            member,
            asked: member,
            generation: self.generation,
            started: None,
            read: matches!(op, Op::Read { .. }),
            hasty,
            passed: false,
            issued,
            replacement: None,
            done: None,
        });
        let token = Named::Inflight { place: slot, generation: self.generation }.token();
        if let Op::Deallocate { range } = op {
            place.deallocations.push_back((token, range));
            self.start_waiting(member, now);
            return slot;
        }
        if let Some(queue) = place.queue.as_mut()
            && place.backlog.is_empty()
            && place.outstanding < MEMBER_DEPTH
            && !place.hung
        {
            match submit(&mut **queue, token, op) {
                Ok(()) => {
                    self.inflight.get_mut(slot).expect("inserted just now").started = Some(now);
                    place.outstanding += 1;
                }
                Err(io) => place.backlog.push_back(io),
            }
            return slot;
        }
        place.backlog.push_back(Io { token, op });
        self.start_waiting(member, now);
        slot
    }

    /// Submits waiting I/Os to the device, as far as it has room. I/Os that wait for a closed or unresponsive device
    /// fail.
    fn start_waiting(&mut self, member: MemberIndex, now: Nanos) {
        let place = &mut self.members[member.at()];
        if place.queue.is_none() {
            Self::refuse_backlog(place, &mut self.refused, IoErrorKind::Gone);
        } else if place.hung {
            Self::refuse_backlog(place, &mut self.refused, IoErrorKind::Timeout);
        } else {
            Self::feed(place, &mut self.inflight, now);
        }
    }

    pub(super) fn feed(member: &mut Member, inflight: &mut Slab<Inflight>, now: Nanos) {
        let Some(queue) = member.queue.as_mut() else { return };
        while member.outstanding < MEMBER_DEPTH {
            let may_deallocate = member.deallocating < DEALLOCATE_DEPTH;
            let next = if may_deallocate { member.deallocations.pop_front() } else { None };
            let Some(io) = next.map(deallocation).or_else(|| member.backlog.pop_front()) else {
                return;
            };
            let Named::Inflight { place: slot, .. } = Named::of(io.token) else {
                unreachable!("only I/Os with a place wait")
            };
            if let Err(back) = queue.submit(io) {
                match next {
                    Some(waiting) => member.deallocations.push_front(waiting),
                    None => member.backlog.push_front(back),
                }
                return;
            }
            inflight.get_mut(slot).expect("a backlogged I/O has its place").started = Some(now);
            member.outstanding += 1;
            member.deallocating += u32::from(next.is_some());
        }
    }

    /// Takes the outcome of a finished I/O.
    pub(crate) fn take(&mut self, slot: IoSlot) -> (Option<Op>, Result<(), Failure>) {
        let entry = self.inflight.get_mut(slot.0).expect("an I/O is taken once");
        match entry.replacement.take() {
            None => self.take_one(slot),
            Some(replacement) => self.take_pair(slot, replacement),
        }
    }

    pub(super) fn take_one(&mut self, slot: IoSlot) -> (Option<Op>, Result<(), Failure>) {
        let entry = self.inflight.get_mut(slot.0).expect("an I/O is taken once");
        let place = entry.member;
        // The failure of a read from a device that was replaced meanwhile does not concern the replacement.
        let retired = entry.read && place != entry.asked;
        let former = retired || self.members[place.at()].changed_since(entry.issued);
        let slow = entry.passed;
        let failure = |kind| Failure { kind, slow, former, place };
        if let Some((op, result)) = entry.done.take() {
            self.inflight.remove(slot.0);
            return (Some(op), result.map_err(|error| failure(error.kind)));
        }
        // The I/O timed out. The entry stays occupied until the device releases the buffers.
        entry.waiter = Waiter::Abandoned;
        (None, Err(failure(IoErrorKind::Timeout)))
    }
}

/// Returns the I/O of a waiting deallocation.
pub(super) fn deallocation((token, range): (Token, LbaRange)) -> Io {
    Io { token, op: Op::Deallocate { range } }
}

/// Submits an operation. Reads and writes are passed to the queue as separate arguments.
#[allow(clippy::result_large_err)]
fn submit(queue: &mut dyn IoQueue, token: Token, op: Op) -> Result<(), Io> {
    match op {
        Op::Read { at, data } => queue.submit_read(token, at, data),
        Op::Write { at, data, durability } => queue.submit_write(token, at, data, durability),
        op @ (Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. }) => {
            queue.submit(Io { token, op })
        }
    }
}
