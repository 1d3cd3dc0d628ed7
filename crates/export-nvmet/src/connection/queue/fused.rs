//! Fused commands of a queue, see [`pairs`](crate::connection::pairs).

use super::Queue;
use crate::admit::Work;
use crate::connection::devices::DeviceIndex;
use crate::connection::pairs::{Half, Pair, Placed};
use crate::slots::{SlotIndex, Stage, Task};
use strake_block::Op;
use strake_export_net::freeze;
use strake_nvme_wire::Status;
use strake_nvme_wire::command::Fuse;

impl Queue {
    /// Classifies a `placed` command: alone, first half, or second half of the command before it.
    ///
    /// # Errors
    /// Returns the status of the completion: of this command, or of a half without the other.
    pub(super) fn pair_up(
        &mut self,
        index: SlotIndex,
        fuse: Fuse,
        placed: Result<Placed, Status>,
    ) -> Result<Placed, Status> {
        let before = std::mem::take(&mut self.pairs.half);
        match (fuse, before) {
            (Fuse::Second, Half::None) => return Err(Status::MISSING_FUSED),
            (Fuse::Second, Half::Failed) => return Err(Status::FAILED_FUSED),
            (Fuse::Second, Half::Waits(first)) => return self.join(first, index, placed),
            (_, Half::Waits(first)) => self.fail(first, Status::MISSING_FUSED),
            (_, Half::None | Half::Failed) => {}
        }
        if fuse == Fuse::First {
            self.slots.get(index).fuse = fuse;
            self.pairs.half = if placed.is_ok() { Half::Waits(index) } else { Half::Failed };
        }
        placed
    }

    /// Joins two commands that address the same block to a pair.
    fn join(
        &mut self,
        first: SlotIndex,
        second: SlotIndex,
        placed: Result<Placed, Status>,
    ) -> Result<Placed, Status> {
        let one = self.slots.get(first).task;
        let found = match (one, placed) {
            (
                Task::Device(Work::Compare(range, _), place),
                Ok((Task::Device(Work::Write(same, _), there), ..)),
            ) if (range, place) == (same, there) => Ok((range, place)),
            (_, Ok(_)) => Err(Status::INVALID_FIELD),
            (_, Err(status)) => Err(status),
        };
        match found {
            Ok((range, place)) => {
                self.slots.get(second).fuse = Fuse::Second;
                let first = Some(first);
                self.pairs.there.push(Pair { first, second, place, range, range_lock: None });
                placed
            }
            Err(status) => {
                let of_both = placed.is_ok();
                self.fail(first, if of_both { status } else { Status::FAILED_FUSED });
                Err(status)
            }
        }
    }

    /// Submits the read of a Compare whose range lock is granted.
    #[inline]
    pub(super) fn compare_next(&mut self) -> usize {
        let next = self.pairs.next(&mut self.slots, &self.devices);
        let Some((first, place, range)) = next else { return 0 };
        if !self.is_open_at(place) {
            self.fail(first, Status::INACCESSIBLE);
            return 1;
        }
        let Stage::Ready { data, spare, .. } = self.slots.get(first).take_stage() else {
            unreachable!("what is next has all its data");
        };
        self.submit(first, Some(data), Op::Read { at: range.start, data: spare });
        1
    }

    /// Continues with a pair after one of its halves completed with this status.
    pub(super) fn settle(&mut self, index: SlotIndex, status: Status) {
        if self.pairs.half == Half::Waits(index) {
            self.pairs.half = Half::Failed;
        } else if let Some(pair) = self.pairs.there.iter_mut().find(|p| p.first == Some(index)) {
            pair.first = None;
            let (second, place) = (pair.second, pair.place);
            match status.is_success() {
                true => self.write_second(second, place),
                false => self.fail(second, Status::FAILED_FUSED),
            }
        } else if let Some(at) = self.pairs.there.iter().position(|p| p.second == index) {
            let pair = self.pairs.there.remove(at);
            if let Some(first) = pair.first {
                self.fail(first, Status::FAILED_FUSED);
            }
        }
    }

    /// Submits the write after the Compare succeeded.
    fn write_second(&mut self, second: SlotIndex, place: DeviceIndex) {
        if !self.is_open_at(place) {
            return self.fail(second, Status::INACCESSIBLE);
        }
        let slot = self.slots.get(second);
        let status = slot.status;
        if !status.is_success() {
            return self.fail(second, status);
        }
        let (Stage::Ready { data, .. }, Task::Device(Work::Write(range, durability), _)) =
            (slot.take_stage(), slot.task)
        else {
            unreachable!("the second half is a Write that waits for the first");
        };
        let op = Op::Write { at: range.start, data: freeze(data), durability };
        self.submit(second, None, op);
    }

    /// Fails a half: at once if it only waits, otherwise when its I/O completes.
    fn fail(&mut self, index: SlotIndex, status: Status) {
        let slot = self.slots.get(index);
        slot.fail(status);
        let stage = slot.take_stage();
        let Stage::Ready { data, spare, .. } = stage else {
            slot.stage = stage;
            return;
        };
        self.pools.put(data);
        self.pools.put(spare);
        self.conclude(index);
    }

    /// Completes waiting halves that have failed meanwhile, because their device was removed or a reservation excluded
    /// the host.
    #[inline]
    pub(super) fn give_up_pairs(&mut self) {
        if let Half::Waits(first) = self.pairs.half {
            self.give_up(first);
        }
        let mut at = 0;
        while let Some(pair) = self.pairs.there.get(at) {
            let (first, second) = (pair.first, pair.second);
            // A pair is removed from the list when its second half completes.
            at += 1;
            if first.is_some_and(|first| self.give_up(first)) || self.give_up(second) {
                at = 0;
            }
        }
    }

    /// Completes a half that only waits, if it has failed.
    fn give_up(&mut self, index: SlotIndex) -> bool {
        let slot = self.slots.get(index);
        let status = slot.status;
        let waits = !status.is_success() && matches!(slot.stage, Stage::Ready { .. });
        if waits {
            self.fail(index, status);
        }
        waits
    }
}
