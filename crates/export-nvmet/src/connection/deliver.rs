//! From completions of the device to data and completions for the host.

use super::{Connection, Life, Role, Voice};
use crate::admit::{Freshness, Work};
use crate::connection::DeviceIndex;
use crate::limits::OWED_BEHIND_MAX;
use crate::replies::Reply;
use crate::slots::{Progress, Slot, SlotIndex, Stage, Task};
use strake_block::{Completion, IoErrorKind, Op, SgMut};
use strake_export_net::count;
use strake_nvme_wire::command::Fuse;
use strake_nvme_wire::fabrics::FlowControl;
use strake_nvme_wire::log::Failure;
use strake_nvme_wire::pdu::{self, PduKind, Transfer, flag};
use strake_nvme_wire::{Cqe, Status};
use strake_units::Nanos;

/// What a host is told about a failure of the device.
pub(crate) const fn status_of(kind: IoErrorKind) -> Status {
    match kind {
        IoErrorKind::NoSpace => Status::CAPACITY_EXCEEDED,
        IoErrorKind::ReadOnly => Status::WRITE_PROTECTED,
        IoErrorKind::OutOfRange => Status::OUT_OF_RANGE,
        IoErrorKind::Misaligned => Status::INVALID_FIELD,
        IoErrorKind::Unsupported => Status::INVALID_OPCODE,
        IoErrorKind::Aborted => Status::ABORTED,
        IoErrorKind::Medium => Status::UNRECOVERED_READ,
        // Not these blocks but all of it, and it may come back.
        IoErrorKind::Lost => Status::INACCESSIBLE,
        IoErrorKind::Device | IoErrorKind::Gone | IoErrorKind::Timeout => Status::INTERNAL,
    }
}

impl Connection {
    /// Takes what devices have completed; says how much that was.
    pub(super) fn poll_devices(&mut self, now: Nanos) -> usize {
        let Role::Io(devices) = &self.role else { return 0 };
        (0..devices.places()).map(|place| self.poll_device(place, now)).sum()
    }

    fn poll_device(&mut self, place: usize, now: Nanos) -> usize {
        let Role::Io(devices) = &mut self.role else { return 0 };
        let Some(mut batch) = devices.poll(place, now) else { return 0 };
        let count = batch.len();
        for completion in batch.drain() {
            self.complete(completion);
        }
        if let Role::Io(devices) = &mut self.role {
            devices.give_back(place, batch);
        }
        count
    }

    pub(super) fn complete(&mut self, completion: Completion) {
        let index = SlotIndex(completion.token.0 as u16);
        let speaks = self.speaks();
        let slot = self.slots.get(index);
        let (Stage::AtDevice { kept, at }, Task::Device(work, place)) =
            (slot.take_stage(), slot.task)
        else {
            unreachable!("only a command at the device completes");
        };
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

    /// Whether the next step of a command may be begun; if not, that is how it ends.
    fn check_permission(&mut self, index: SlotIndex) -> bool {
        let Task::Device(work, at) = self.slots.get(index).task else { return true };
        match self.may_go_on(index, (work, at)) {
            Ok(()) => true,
            Err(status) => {
                self.slots.get(index).status = status;
                false
            }
        }
    }

    /// Goes on with what was read and is not for the host: compares it with what the host gave, if it gave something.
    /// What is to be on the medium is put there behind that, since it is known what it is.
    fn look(&mut self, index: SlotIndex, data: SgMut, kept: Option<SgMut>) {
        let speaks = self.speaks();
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

    /// Takes the next step of a command that kept something here while the device worked.
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

    /// True while completions are sent.
    fn speaks(&self) -> bool {
        match self.life {
            Life::Open | Life::Draining { voice: Voice::Speaks, .. } => true,
            Life::Draining { voice: Voice::Silent, .. } | Life::Broken => false,
        }
    }

    /// Sends the data of a command that succeeded, and its completion, unless success needs none (TCP, section
    /// 3.3.2.2, "SUCCESS flag").
    pub(super) fn deliver(&mut self, index: SlotIndex, data: SgMut) {
        let digests = self.link.digests;
        let (flags, needs_completion) = match self.link.flow_control {
            FlowControl::On => (flag::LAST, true),
            FlowControl::Off => (flag::LAST | flag::SUCCESS, false),
        };
        let length = data.len() as u32;
        self.stats.goes(length);
        self.count_end(index);
        let slot = self.slots.get(index);
        slot.stage = Stage::Replying;
        let transfer = Transfer { cid: slot.cid, tag: 0, offset: 0, length };
        let lead = self.link.data_offset;
        let header = transfer.data(PduKind::C2hData, digests, lead, flags);
        let reply = Reply::data(&header, digests, lead, data);
        if !needs_completion {
            return self.replies.push(reply.ending(index));
        }
        if self.owed_behind + length as usize > OWED_BEHIND_MAX {
            self.complete_owed();
        }
        self.replies.push(reply);
        self.owed.push_back(index);
        self.owed_behind += length as usize;
    }

    /// Puts the completions of commands whose data is on its way behind all that data. A host that gets them together
    /// sends its next commands together, which takes it and us fewer calls.
    pub(super) fn complete_owed(&mut self) {
        self.owed_behind = 0;
        while let Some(index) = self.owed.pop_front() {
            self.reply_with_completion(index);
        }
    }

    /// Answers Disconnect when nothing is at a device any more: it is the last that the host hears (Base, section 6.4),
    /// which may count on it then that no write of this queue comes behind those of others.
    pub(super) fn part(&mut self) {
        if self.speaks()
            && self.is_quiet()
            && let Some(index) = self.parting.take()
        {
            self.conclude(index);
        }
    }

    /// Answers a command of which nothing is outstanding any more and which has no data for the host.
    pub(super) fn conclude(&mut self, index: SlotIndex) {
        let slot = self.slots.get(index);
        let (fuse, status) = (slot.fuse, slot.status);
        if self.speaks() {
            self.answer(index);
        } else {
            self.slots.end(index);
        }
        if fuse != Fuse::Alone {
            self.settle(index, status);
        }
    }

    fn answer(&mut self, index: SlotIndex) {
        self.note_failure(index);
        self.count_end(index);
        self.slots.get(index).stage = Stage::Replying;
        self.reply_with_completion(index);
    }

    /// Puts a completion behind what is to be sent. Only now does its command count as taken from the queue: a host
    /// that goes by that alone (Base, section 3.3.2.6 of revision 2.1) would otherwise send more than fits.
    fn reply_with_completion(&mut self, index: SlotIndex) {
        self.head = (self.head + 1) % self.link.entries;
        let (head, digests) = (self.link.head_at(self.head), self.link.digests);
        let slot = self.slots.get(index);
        let cqe = Cqe { result: slot.result, head, cid: slot.cid, status: slot.status };
        let reply = Reply::bare(&pdu::capsule_resp(&cqe, digests), digests.header);
        self.replies.push(reply.ending(index));
    }

    /// Remembers a command that failed for whoever asks for the error log.
    fn note_failure(&mut self, index: SlotIndex) {
        let Slot { cid, status, task, .. } = *self.slots.get(index);
        if status.is_success() {
            return;
        }
        self.stats.failure();
        let (mut block, mut namespace) = (0, 0);
        if let (Task::Device(work, at), Role::Io(devices)) = (task, &self.role) {
            block = work.first_block().map_or(0, |lba| lba.0);
            namespace = devices.served(at).map_or(0, |served| served.namespace);
        }
        let queue = self.place.queue;
        let failure = Failure { number: 0, queue, cid, status, block, namespace };
        self.place.controller.failures().note(failure);
    }

    /// Counts an I/O command that ends.
    fn count_end(&mut self, index: SlotIndex) {
        let slot = self.slots.get(index);
        let (Task::Device(work, at), Role::Io(devices)) = (slot.task, &self.role) else { return };
        let Some(served) = devices.served(at) else { return };
        let counters = &served.counters[self.lane];
        let shift = served.facts.terms.block.shift();
        if !slot.status.is_success() {
            return count(&counters.errors, 1);
        }
        match work {
            Work::Read(range, _) => {
                count(&counters.reads, 1);
                count(&counters.read_bytes, range.blocks << shift);
            }
            Work::Write(range, _) => {
                count(&counters.writes, 1);
                count(&counters.written_bytes, range.blocks << shift);
            }
            Work::Zeroes(..) | Work::Deallocate(_) | Work::Copy(..) => {
                count(&counters.effects, 1);
            }
            Work::Flush => count(&counters.flushes, 1),
            Work::Advice(_) | Work::Compare(..) | Work::Verify(..) => {}
        }
    }
}

/// Whether two lists that are cut in the same places hold different bytes.
fn differ(one: &SgMut, other: &SgMut) -> bool {
    let mut pairs = one.parts().iter().zip(other.parts());
    pairs.any(|(one, other)| one.as_slice() != other.as_slice())
}

/// A failed write says so in a word of its own where the medium is to blame (NVM, section 1.4, "Write Fault").
const fn failure(op: &Op, kind: IoErrorKind) -> Status {
    match (op, kind) {
        (Op::Write { .. }, IoErrorKind::Medium) => Status::WRITE_FAULT,
        (_, kind) => status_of(kind),
    }
}
