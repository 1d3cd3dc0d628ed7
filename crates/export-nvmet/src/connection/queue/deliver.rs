//! Processing from completions of the device to data and completions for the host.

use super::Queue;
use crate::admit::{self, Freshness, Work};
use crate::connection::devices::DeviceIndex;
use crate::slots::{Progress, SlotIndex, Stage, Task};
use strake_block::{Completion, IoErrorKind, Op, SgMut};
use strake_nvme_wire::Status;
use strake_units::Nanos;

/// The status for a failure of the device.
pub(crate) const fn status_of(kind: IoErrorKind) -> Status {
    match kind {
        IoErrorKind::NoSpace => Status::CAPACITY_EXCEEDED,
        IoErrorKind::ReadOnly => Status::WRITE_PROTECTED,
        IoErrorKind::OutOfRange => Status::OUT_OF_RANGE,
        IoErrorKind::Misaligned => Status::INVALID_FIELD,
        IoErrorKind::Unsupported => Status::INVALID_OPCODE,
        IoErrorKind::Aborted => Status::ABORTED,
        IoErrorKind::Medium => Status::UNRECOVERED_READ,
        // The whole device is inaccessible, perhaps temporarily.
        IoErrorKind::Lost => Status::INACCESSIBLE,
        IoErrorKind::Device | IoErrorKind::Gone | IoErrorKind::Timeout => Status::INTERNAL,
    }
}

impl Queue {
    /// Takes the completions of devices; returns their number.
    #[inline]
    pub(in crate::connection) fn poll_devices(&mut self, now: Nanos) -> usize {
        let mut count = 0;
        for place in 0..self.devices.places() {
            let Some(mut batch) = self.devices.poll(place, now) else { continue };
            count += batch.len();
            batch.drain().for_each(|completion| self.complete(completion));
            self.devices.give_back(place, batch);
        }
        count
    }

    pub(super) fn complete(&mut self, completion: Completion) {
        let index = SlotIndex(completion.token.0 as u16);
        let speaks = self.life.speaks();
        let slot = self.slots.get(index);
        let (Stage::AtDevice { kept, at }, Task::Device(work, place)) =
            (slot.take_stage(), slot.task)
        else {
            unreachable!("only a command at the device completes");
        };
        self.devices.note_changed(place, &completion.op);
        if let Err(error) = completion.result {
            slot.status = failure(&completion.op, error.kind);
        }
        let goes_on = completion.result.is_ok() && speaks;
        if matches!(work, Work::Copy(..)) {
            if slot.status.is_success() {
                self.check_permission(index);
            }
            return self.copied(index, kept.unwrap_or_default(), at, completion.op);
        }
        let is_wanted = matches!(work, Work::Read(..));
        match completion.op {
            Op::Read { data, .. } if goes_on && is_wanted => return self.deliver(index, data),
            Op::Read { data, .. } => return self.look(index, data, kept),
            Op::Write { data, .. } => self.pools.put_shared(data),
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
        }
        match kept {
            Some(kept) if goes_on && self.check_permission(index) => {
                self.go_on(index, (work, place), kept, at);
            }
            Some(kept) => {
                self.pools.put(kept);
                self.conclude(index);
            }
            None => self.conclude(index),
        }
    }

    /// Returns whether the next step of a command may start; otherwise the command fails with the status of the check.
    fn check_permission(&mut self, index: SlotIndex) -> bool {
        let slot = self.slots.get(index);
        let Task::Device(work, at) = slot.task else { return true };
        let permission = match slot.is_given_up {
            true => Err(Status::PREEMPTED),
            false => admit::permit(&work, self.devices.rights(at)),
        };
        permission.map_err(|status| slot.status = status).is_ok()
    }

    /// Continues with data that was read and is not sent to the host: a Compare compares it with the host's data. With
    /// FUA, the data is then written to non-volatile media, because its content is known.
    fn look(&mut self, index: SlotIndex, data: SgMut, kept: Option<SgMut>) {
        let speaks = self.life.speaks();
        let slot = self.slots.get(index);
        if let Some(kept) = kept {
            if slot.status.is_success() && differ(&kept, &data) {
                slot.status = Status::COMPARE_FAILURE;
            }
            self.pools.put(kept);
        }
        self.pools.put(data);
        let slot = self.slots.get(index);
        let is_stable = matches!(
            slot.task,
            Task::Device(
                Work::Compare(_, Freshness::Stable) | Work::Verify(_, Freshness::Stable),
                _
            )
        );
        if is_stable && slot.status.is_success() && speaks && self.check_permission(index) {
            return self.submit(index, None, Op::Flush);
        }
        self.conclude(index);
    }

    /// Starts the next step of a command that kept data here during its I/O.
    fn go_on(
        &mut self,
        index: SlotIndex,
        (work, place): (Work, DeviceIndex),
        kept: SgMut,
        at: Progress,
    ) {
        match work {
            Work::Read(range, _) => {
                self.submit(index, None, Op::Read { at: range.start, data: kept });
            }
            Work::Deallocate(_) if self.is_open_at(place) => {
                self.wait_for_budget(index, place, kept, at);
            }
            Work::Deallocate(ranges) => self.deallocate(index, (ranges, place), kept, at),
            Work::Write(..)
            | Work::Zeroes(..)
            | Work::Advice(_)
            | Work::Compare(..)
            | Work::Copy(..)
            | Work::Verify(..)
            | Work::Flush => {
                unreachable!(
                    "only a read that flushes first and a deallocation keep what they continue with"
                )
            }
        }
    }

    /// Sends the data of a command that succeeded.
    pub(super) fn deliver(&mut self, index: SlotIndex, data: SgMut) {
        self.accounting.stats.counts.goes(data.len() as u32);
        self.accounting.end(self.slots.get(index), &self.devices);
        self.sending.data(&mut self.slots, index, data);
    }

    /// Completes Disconnect when no I/O is in flight. This is the last completion for the host (Base, section 6.4), and
    /// it guarantees that no write of this queue reaches a device after writes of other queues.
    #[inline]
    pub(in crate::connection) fn part(&mut self) {
        if self.life.speaks()
            && self.devices.is_quiet()
            && let Some(index) = self.parting.take()
        {
            self.conclude(index);
        }
    }
}

/// Returns whether two lists with the same part sizes differ.
fn differ(one: &SgMut, other: &SgMut) -> bool {
    let mut pairs = one.parts().iter().zip(other.parts());
    pairs.any(|(one, other)| one.as_slice() != other.as_slice())
}

/// A failed write has a status of its own if the medium is the cause (NVM, section 1.4, "Write Fault").
const fn failure(op: &Op, kind: IoErrorKind) -> Status {
    match (op, kind) {
        (Op::Write { .. }, IoErrorKind::Medium) => Status::WRITE_FAULT,
        (_, kind) => status_of(kind),
    }
}
