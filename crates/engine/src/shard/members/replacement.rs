//! A member's replacement: the drive that is being filled to get the slot of the member, and that receives every write
//! of the member.
//!
//! Its index is the one after the last member. Nothing is read from the replacement until it is swapped in. Then the
//! two devices exchange their indices. The old device continues to receive every write until every shard has swapped,
//! because other shards may still read from it.

use std::mem;

use strake_block::{IoErrorKind, Op};
use strake_units::{MemberIndex, MemberSet, Nanos};

use super::super::address::Target;
use super::{Failure, Former, Group, IoSlot, Members, Waiter};
use crate::message::{Pairing, View};

/// A member with two devices: its own, and the replacement, whose index is the one after the last member.
pub(crate) struct Pair {
    place: MemberIndex,
    pairing: Pairing,
    /// [`Members::membership_epoch`] when the devices of a pair were last swapped, and the member.
    swapped: (u64, Option<MemberIndex>),
    failed: Option<(MemberIndex, Failure)>,
}

impl Pair {
    /// No pair, in an array of `members` members.
    pub(super) const fn none(members: usize) -> Self {
        let place = MemberIndex(members as u8);
        Self { place, pairing: Pairing::None, swapped: (0, None), failed: None }
    }

    /// The index of the replacement.
    pub(crate) const fn place(&self) -> MemberIndex {
        self.place
    }

    /// Returns the replacement while it is being filled.
    pub(crate) fn filled(&self) -> MemberSet {
        self.copied().map(|_| self.place).into_iter().collect()
    }

    /// Returns the time at which the devices of a pair were last swapped.
    pub(crate) const fn swapped_at(&self) -> u64 {
        self.swapped.0
    }

    /// True if the device of `member` was swapped in as a replacement after `since`.
    pub(crate) fn changed_hands(&self, member: MemberIndex, since: u64) -> bool {
        self.swapped.0 > since && self.swapped.1 == Some(member)
    }

    /// True if `member` is the index of an old device that still receives writes after a swap.
    pub(crate) fn is_retired(&self, member: MemberIndex) -> bool {
        matches!(self.pairing, Pairing::Swapped(_)) && member == self.place
    }

    /// The member whose replacement is being filled.
    pub(crate) const fn copied(&self) -> Option<MemberIndex> {
        match self.pairing {
            Pairing::Copying(member) => Some(member),
            Pairing::None | Pairing::Orphaned(_) | Pairing::Swapped(_) | Pairing::TakenOver(_) => {
                None
            }
        }
    }

    /// The member with two devices, regardless of their use.
    pub(super) const fn member(&self) -> Option<MemberIndex> {
        match self.pairing {
            Pairing::None => None,
            Pairing::Copying(member)
            | Pairing::Orphaned(member)
            | Pairing::Swapped(member)
            | Pairing::TakenOver(member) => Some(member),
        }
    }

    /// True if `member` has two devices that are written.
    pub(super) fn is_paired(&self, member: MemberIndex) -> bool {
        match self.pairing {
            Pairing::None | Pairing::Orphaned(_) | Pairing::TakenOver(_) => false,
            Pairing::Copying(paired) | Pairing::Swapped(paired) => paired == member,
        }
    }

    /// Removes and returns the failure of a device whose write also went to the other device of the same member, if
    /// any.
    pub(crate) fn take_failed(&mut self) -> Option<(MemberIndex, Failure)> {
        self.failed.take()
    }
}

impl Members {
    /// Applies the next pairing. The previous pairing is the last one that the leader published to this shard; the
    /// leader may have skipped stages, such as `Orphaned`.
    pub(crate) fn pair(&mut self, next: Pairing) {
        let place = self.count;
        match (self.paired.pairing, next) {
            (before, after) if before == after => return,
            (Pairing::Copying(_), Pairing::Swapped(member)) => self.swap(member, View::Rebuilding),
            (Pairing::Copying(_) | Pairing::Orphaned(_), Pairing::TakenOver(member)) => {
                self.swap(member, View::Absent);
            }
            (Pairing::TakenOver(_), Pairing::None) => self.bury(place),
            (Pairing::None, Pairing::Copying(_)) => {
                self.members[place].view = View::Rebuilding;
                self.members[place].joined = self.membership_epoch;
            }
            (Pairing::Copying(_), Pairing::Orphaned(_)) => self.put_out(place),
            (Pairing::Copying(_) | Pairing::Swapped(_) | Pairing::Orphaned(_), Pairing::None) => {
                self.put_out(place);
                self.bury(place);
            }
            (before, after) => unreachable!("the leader does not go from {before:?} to {after:?}"),
        }
        self.paired.pairing = next;
    }

    fn put_out(&mut self, at: usize) {
        let place = &mut self.members[at];
        (place.view, place.settled, place.left) = (View::Absent, false, self.membership_epoch);
        place.former_hung = false;
    }

    /// Closes a device that is no longer used, as soon as its requests in progress have completed.
    pub(super) fn bury(&mut self, at: usize) {
        let place = &mut self.members[at];
        Self::refuse_backlog(place, &mut self.refused, IoErrorKind::Gone);
        place.deallocating = 0;
        place.former_hung = place.hung || place.hung_for_some.is_set();
        let (identity, outstanding) =
            (mem::take(&mut place.identity), mem::take(&mut place.outstanding));
        if let Some(queue) = place.queue.take() {
            self.graveyard.push(Former { queue, identity, outstanding });
        }
    }

    /// Swaps the two devices, with their I/Os in progress.
    fn swap(&mut self, member: MemberIndex, retired_view: View) {
        let place = self.paired.place;
        self.paired.swapped = (self.membership_epoch, Some(member));
        let (view, settled, left) = {
            let old = &self.members[member.at()];
            (old.view, old.settled, old.left)
        };
        self.members.swap(member.at(), place.at());
        // A task that waits until the member goes out because its old device failed need not wait any longer: the
        // replacement has received the write.
        let (replacement, old) = (&mut self.members[member.at()], self.membership_epoch);
        (replacement.view, replacement.settled, replacement.left, replacement.joined) =
            (view, settled, left, old);
        let retired = &mut self.members[place.at()];
        (retired.view, retired.settled, retired.joined) = (retired_view, true, old);
        [member, place].iter().for_each(|device| self.times.forget_member(device.at()));
        for (_, entry) in self.inflight.iter_mut() {
            if entry.member == place {
                entry.member = member;
            } else if entry.member == member {
                entry.member = place;
            }
        }
    }

    /// Issues a write of a member's data, or of its redo log, to the other device of a pair too.
    pub(super) fn mirror(
        &mut self,
        now: Nanos,
        group: Group,
        (member, slot): (MemberIndex, IoSlot),
        target: Target,
        op: Op,
    ) {
        let replacement = self.send(now, Waiter::Group(group.0), self.paired.place, target, op);
        debug_assert!(self.paired.is_paired(member), "only a pair is written twice");
        self.inflight.get_mut(slot.0).expect("just issued").replacement = Some(IoSlot(replacement));
    }

    /// Returns the outcome of a write to both devices of a pair, which is the outcome of the device that has the slot
    /// now. A failure of the other device is kept for [`Pair::take_failed`]. So is a failure of a replacement that was
    /// just swapped in, because only the caller that knows the time of the swap can evaluate it.
    pub(super) fn take_pair(
        &mut self,
        slot: IoSlot,
        replacement: IoSlot,
    ) -> (Option<Op>, Result<(), Failure>) {
        let (op, result) = self.take_one(slot);
        let (other, mirrored) = self.take_one(replacement);
        // The buffers are shared with the write to the member. The last owner releases them.
        self.orphans.extend(other);
        let place = self.paired.place;
        let retired = result.err().filter(|failure| failure.place == place);
        let beside = mirrored.err().filter(|failure| !failure.former);
        let failed = beside.or(retired.filter(|failure| !failure.former));
        let failed = failed.map(|failure| (failure.place, failure));
        self.paired.failed = failed.or(self.paired.failed);
        match retired {
            None => (op, result),
            // The replacement is the member now, unless the member has gone out too.
            Some(_) => {
                (op, mirrored.or_else(|failure| if failure.former { Err(failure) } else { Ok(()) }))
            }
        }
    }
}
