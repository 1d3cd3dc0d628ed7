//! Changes without data: Write Zeroes and deallocations, within the budget of their host.
//!
//! ```text
//! (budget) -> (range lock) -> device -> budget is returned
//! ```
//! Such a command needs no buffers, so only the budget keeps one host from ordering work for minutes. A command that
//! waits for a range lock has returned its budget.

use super::Queue;
use crate::admit::Work;
use crate::connection::devices::{DeviceIndex, Way};
use crate::slots::{Progress, SlotIndex, Stage, Task};
use strake_block::{Op, SgMut};
use strake_units::LbaRange;

impl Queue {
    /// Submits a Write Zeroes within the budget, when no range lock overlaps it.
    pub(super) fn zero(&mut self, index: SlotIndex) {
        let Task::Device(Work::Zeroes(range, durability), place) = self.slots.get(index).task
        else {
            unreachable!("only Write Zeroes makes zeroes");
        };
        let waits = (SgMut::default(), Progress::default());
        if self.may_change(index, place, range, waits).is_some() {
            self.submit(index, None, Op::WriteZeroes { range, durability });
        }
    }

    /// Prepares a change of these blocks without data, and spends the budget for it. Otherwise the command waits with
    /// its data and progress, which are returned if it can be submitted.
    pub(super) fn may_change(
        &mut self,
        index: SlotIndex,
        place: DeviceIndex,
        range: LbaRange,
        (data, at): (SgMut, Progress),
    ) -> Option<(SgMut, Progress)> {
        let bytes = self.devices.bytes_of(place, range);
        if !self.devices.effects(place).spend(index, bytes) {
            self.wait_for_budget(index, place, data, at);
            return None;
        }
        match self.devices.begin_change(self.slots.get(index), place, range) {
            Way::Free => Some((data, at)),
            Way::Locked => {
                self.devices.effects(place).budget.give_back(bytes);
                self.hold_off(index, data, at);
                None
            }
        }
    }

    /// Keeps a command that waits for the budget, with its data and progress. Between the completion of a change and
    /// [`start_waiting_effects`](Self::start_waiting_effects), the other queues of the host have a turn. Therefore also
    /// the next part of a deallocation waits here.
    pub(super) fn wait_for_budget(
        &mut self,
        index: SlotIndex,
        place: DeviceIndex,
        data: SgMut,
        at: Progress,
    ) {
        let spare = SgMut::default();
        self.slots.get(index).stage = Stage::Ready { data, spare, at };
        self.devices.effects(place).line.push_back(index);
    }

    /// Continues with commands that waited for the budget, and completes those that have failed meanwhile; returns
    /// their number.
    #[inline]
    pub(in crate::connection) fn start_waiting_effects(&mut self) -> usize {
        let mut started = 0;
        for place in 0..self.devices.places() {
            while let Some((index, is_permitted)) = self.devices.waiting_effect(place) {
                if !is_permitted && self.slots.get(index).status.is_success() {
                    break;
                }
                self.resume(index);
                self.devices.pop_effect(place);
                started += 1;
            }
        }
        started
    }
}
