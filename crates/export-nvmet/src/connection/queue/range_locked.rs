//! Commands that wait for a range lock, and the reports of a queue to the owners of range locks, see
//! [`range_lock`](crate::range_lock).

use super::Queue;
use crate::admit::Work;
use crate::connection::devices::Way;
use crate::slots::{Progress, SlotIndex, Stage, Task};
use strake_block::{Op, SgMut};
use strake_export_net::freeze;

impl Queue {
    /// Keeps a command that waits for a range lock, with its data and progress.
    pub(super) fn hold_off(&mut self, index: SlotIndex, data: SgMut, at: Progress) {
        let spare = SgMut::default();
        self.slots.get(index).stage = Stage::Ready { data, spare, at };
        self.held_off.push_back(index);
    }

    /// Checks the range locks, and continues with commands that waited for them; returns the number of steps.
    #[inline]
    pub(in crate::connection) fn look_at_range_locks(&mut self) -> usize {
        self.give_up_pairs();
        let mut work = self.pairs.raise_range_locks(&mut self.slots, &self.devices);
        let slots = &self.slots;
        for number in 0..self.devices.places() {
            work += self
                .devices
                .look(number, |place, ticket, range| slots.any_writes(place, ticket, range));
        }
        work + self.release() + self.compare_next()
    }

    /// Continues with commands whose range lock was released.
    #[inline]
    fn release(&mut self) -> usize {
        let mut released = 0;
        for _ in 0..self.held_off.len() {
            let Some(index) = self.held_off.pop_front() else { break };
            let slot = self.slots.get(index);
            let (Task::Device(_, place), Some(last)) = (slot.task, slot.behind) else {
                unreachable!("only what changes blocks of a device waits for a guard");
            };
            let is_past = self.devices.outlook(place).is_none_or(|w| w.is_past(slot.changes, last));
            // A command fails if its device is removed or a reservation excludes its host.
            if is_past || !slot.status.is_success() {
                self.resume(index);
                released += 1;
            } else {
                self.held_off.push_back(index);
            }
        }
        released
    }

    /// Continues with a command that waited with its data and progress, or completes it if it has failed.
    pub(super) fn resume(&mut self, index: SlotIndex) {
        let slot = self.slots.get(index);
        let (Stage::Ready { data, at, .. }, Task::Device(work, place)) =
            (slot.take_stage(), slot.task)
        else {
            unreachable!("a command that waits is ready");
        };
        if !slot.status.is_success() && !matches!(work, Work::Copy(..)) {
            self.pools.put(data);
            return self.conclude(index);
        }
        match work {
            Work::Write(..) => self.write(index, data),
            Work::Zeroes(..) => self.zero(index),
            Work::Deallocate(ranges) => self.deallocate(index, (ranges, place), data, at),
            Work::Copy(..) => self.copy_on(index, place, data, at),
            Work::Read(..)
            | Work::Advice(_)
            | Work::Compare(..)
            | Work::Verify(..)
            | Work::Flush => unreachable!("only what changes blocks waits here"),
        }
    }

    /// Submits a write whose data has arrived, when no range lock overlaps it.
    pub(super) fn write(&mut self, index: SlotIndex, data: SgMut) {
        let slot = self.slots.get(index);
        let Task::Device(Work::Write(range, durability), place) = slot.task else {
            unreachable!("only a Write writes");
        };
        if self.devices.begin_change(slot, place, range) == Way::Locked {
            return self.hold_off(index, data, Progress::default());
        }
        let data = freeze(data);
        self.submit(index, None, Op::Write { at: range.start, data, durability });
    }
}
