//! Processing from the command to I/Os at the device, or to a completion.

use super::Queue;
use crate::admin::{self, Content, Decision, Page};
use crate::admit::{self, Freshness, Need, Source, Work};
use crate::connection::devices::DeviceIndex;
use crate::connection::{ranges, reserving};
use crate::limits::EFFECT_BYTES_MAX;
use crate::reservation_thread::Wish;
use crate::slots::{Progress, Slot, SlotIndex, Stage, Task};
use strake_block::{Op, SgMut};
use strake_nvme_tcp::pdu::{FatalStatus, Frame, PduError};
use strake_nvme_wire::command::{FABRICS, Fuse};
use strake_nvme_wire::identify::ControllerKind;
use strake_nvme_wire::{Sqe, Status};
use strake_units::Nanos;

/// The decision about a command: its task and data, or its status.
type Decided = Result<(Task, Need), Status>;

impl Queue {
    /// Starts a command. Returns the destination of the data in its capsule, if that data is wanted.
    ///
    /// # Errors
    /// Returns an error if the host sends more commands than the queue has entries.
    pub(in crate::connection) fn command(
        &mut self,
        sqe: &Sqe,
        frame: &Frame,
        now: Nanos,
    ) -> Result<Option<(SlotIndex, u32)>, PduError> {
        let slot = Slot::new(sqe.cid());
        let index = self.slots.begin(slot).ok_or(PduError::new(FatalStatus::Sequence, 0))?;
        self.accounting.stats.command(sqe);
        let decided = self.decide(index, sqe, now);
        let placed = decided.and_then(|(task, need)| {
            admit::source(sqe, need, frame.data).map(|source| (task, need, source))
        });
        match self.pair_up(index, self.fuse_of(sqe), placed) {
            Err(status) => {
                self.slots.get(index).status = status;
                self.conclude(index);
            }
            Ok((task, need, source)) => {
                self.slots.get(index).task = task;
                return Ok(self.begin(index, need, source));
            }
        }
        Ok(None)
    }

    /// The part of a command in a fused operation. Only commands of the NVM command set can be fused, and no command of
    /// an admin queue.
    const fn fuse_of(&self, sqe: &Sqe) -> Fuse {
        match &self.admin {
            None if sqe.opcode() != FABRICS => sqe.fuse(),
            None | Some(_) => Fuse::Alone,
        }
    }

    fn begin(&mut self, index: SlotIndex, need: Need, source: Source) -> Option<(SlotIndex, u32)> {
        match (need, source) {
            (_, Source::Capsule(bytes)) => return self.expect_capsule(index, bytes),
            (Need::Nothing, _) => self.start(index),
            (Need::Send(bytes), _) | (Need::Receive { .. }, Source::Host(bytes)) => {
                self.slots.get(index).stage = Stage::Waiting { bytes };
                self.waiting.push_back(index);
                self.serve_waiting();
            }
            (Need::Receive { .. }, Source::Nothing) => {
                unreachable!("what is to be received comes from somewhere")
            }
        }
        None
    }

    /// Prepares for the data in the capsule.
    fn expect_capsule(&mut self, index: SlotIndex, bytes: u32) -> Option<(SlotIndex, u32)> {
        let Some((data, spare)) = self.take_buffers(index, bytes) else {
            // There is one buffer for each command, but no second one for each Compare. A buffer may also be missing
            // after a drive kept memory permanently and no replacement could be allocated.
            self.slots.get(index).status = Status::INTERRUPTED;
            self.conclude(index);
            return None;
        };
        self.slots.get(index).stage = Stage::Receiving { data, got: 0, spare };
        Some((index, 0))
    }

    /// Takes buffers for `bytes` bytes of a command, and the same number for the comparison data of a Compare. The
    /// command takes all at once, because a waiting command must not hold buffers that others wait for.
    fn take_buffers(&mut self, index: SlotIndex, bytes: u32) -> Option<(SgMut, SgMut)> {
        let data = self.pools.take(bytes as usize)?;
        let Task::Device(Work::Compare(..), _) = self.slots.get(index).task else {
            return Some((data, SgMut::default()));
        };
        match self.pools.take(bytes as usize) {
            Some(spare) => Some((data, spare)),
            None => {
                self.pools.put(data);
                None
            }
        }
    }

    fn decide(&mut self, index: SlotIndex, sqe: &Sqe, now: Nanos) -> Decided {
        if !sqe.has_sgl() {
            return Err(Status::INVALID_FIELD);
        }
        let controller = &self.place.controller;
        if let (Some(admin), ControllerKind::Discovery) = (&mut self.admin, controller.kind()) {
            // Every command of a host to a discovery controller counts as a keep-alive.
            admin.heard = now;
        }
        let decision = match &mut self.admin {
            _ if sqe.opcode() == FABRICS => {
                admin::decide_fabrics(sqe, controller, self.place.queue)?
            }
            Some(admin) => admin.decide(sqe, controller, &self.registry)?,
            None => {
                let (at, facts) = self.devices.of(sqe.nsid())?;
                if let Some(decided) = reserving::decide(sqe) {
                    return decided;
                }
                let work = admit::admit(sqe, &facts.terms)?;
                admit::permit(&work, self.devices.rights(at))?;
                return Ok((Task::Device(work, at), work.need(facts.terms.block)));
            }
        };
        self.carry_out(index, decision, now)
    }

    /// Executes an admin or fabrics command.
    fn carry_out(&mut self, index: SlotIndex, decision: Decision, now: Nanos) -> Decided {
        let mut task = Task::Answer;
        match (decision, &mut self.admin) {
            (Decision::Page(page), _) => return Ok((Task::Page(page), page.need())),
            (Decision::Result(result), _) => self.slots.get(index).result = result,
            (Decision::Hold, Some(admin)) => {
                admin.hold()?;
                task = Task::Hold;
            }
            (Decision::Alive | Decision::KeepAlive(_), Some(admin)) => admin.heard = now,
            (Decision::Disconnect, _) => task = Task::Leave,
            (Decision::Persist(persists, namespace), _) => {
                task = Task::Persist(persists, namespace);
            }
            (Decision::Hold | Decision::Alive | Decision::KeepAlive(_), None) => {
                return Err(Status::INVALID_OPCODE);
            }
        }
        Ok((task, Need::Nothing))
    }

    /// Assigns buffers to waiting commands in order; returns their number.
    #[inline]
    pub(in crate::connection) fn serve_waiting(&mut self) -> usize {
        let mut served = 0;
        while let Some(&index) = self.waiting.front() {
            let Stage::Waiting { bytes } = self.slots.get(index).stage else {
                unreachable!("only a command that needs buffers waits for them");
            };
            let Some((data, spare)) = self.take_buffers(index, bytes) else { break };
            self.waiting.pop_front();
            self.equip(index, data, spare);
            served += 1;
        }
        served
    }

    /// Continues with a command that has its buffers.
    fn equip(&mut self, index: SlotIndex, data: SgMut, spare: SgMut) {
        if !self.slots.get(index).status.is_success() {
            self.pools.put(data);
            self.pools.put(spare);
            return self.conclude(index);
        }
        match self.slots.get(index).task {
            Task::Page(page) => self.send_page(index, page, data),
            Task::Device(Work::Read(range, freshness), _) => match freshness {
                Freshness::Any => self.submit(index, None, Op::Read { at: range.start, data }),
                Freshness::Stable => self.submit(index, Some(data), Op::Flush),
            },
            Task::Reserve(..)
            | Task::Device(
                Work::Write(..)
                | Work::Compare(..)
                | Work::Deallocate(_)
                | Work::Copy(..)
                | Work::Advice(_),
                _,
            ) => {
                let slot = self.slots.get(index);
                let length = data.len() as u32;
                slot.stage = Stage::Receiving { data, got: 0, spare };
                self.sending.ask_for_data(index, slot.cid, length);
            }
            Task::Device(Work::Verify(range, _), _) => {
                self.submit(index, None, Op::Read { at: range.start, data });
            }
            Task::Device(Work::Zeroes(..) | Work::Flush, _)
            | Task::Persist(..)
            | Task::Answer
            | Task::Hold
            | Task::Leave => self.pools.put(data),
        }
    }

    /// Sends a page. The host counts as having read the page only now: a refused command reads nothing.
    fn send_page(&mut self, index: SlotIndex, page: Page, mut data: SgMut) {
        let (controller, registry, address) =
            (&self.place.controller, &*self.registry, self.address);
        let read = self.admin.as_mut().map(|admin| admin.read(&page, controller, registry));
        let (since, notice) = read.unwrap_or_default();
        let content = Content { controller, registry, address, since, notice };
        match content.fill(page, &mut data) {
            Ok(()) => self.deliver(index, data),
            Err(status) => self.fail_with(index, data, status),
        }
    }

    /// Continues with a command that has no data.
    fn start(&mut self, index: SlotIndex) {
        match self.slots.get(index).task {
            Task::Device(Work::Flush, _) => self.submit(index, None, Op::Flush),
            Task::Device(Work::Zeroes(..), _) => self.zero(index),
            Task::Device(Work::Verify(range, _), place) => {
                let shift = self.devices.terms(place).map_or(0, |terms| terms.block.shift());
                let bytes = (range.blocks << shift) as u32;
                self.slots.get(index).stage = Stage::Waiting { bytes };
                self.waiting.push_back(index);
                self.serve_waiting();
            }
            Task::Hold => self.slots.get(index).stage = Stage::Held,
            Task::Persist(persists, namespace) => {
                self.ask(index, namespace, Wish::Persist(persists));
            }
            Task::Leave => {
                self.slots.get(index).stage = Stage::Replying;
                self.parting = Some(index);
            }
            Task::Answer
            | Task::Page(_)
            | Task::Reserve(..)
            | Task::Device(
                Work::Read(..)
                | Work::Write(..)
                | Work::Compare(..)
                | Work::Deallocate(_)
                | Work::Copy(..)
                | Work::Advice(_),
                _,
            ) => self.conclude(index),
        }
    }

    /// Continues with a command all of whose data has arrived.
    pub(in crate::connection) fn received(&mut self, index: SlotIndex) {
        let slot = self.slots.get(index);
        let Stage::Receiving { data, spare, .. } = slot.take_stage() else {
            unreachable!("data arrives only for a command that expects it");
        };
        self.accounting.stats.counts.came(data.len() as u32);
        match slot.task {
            Task::Device(..) if slot.fuse != Fuse::Alone && slot.status.is_success() => {
                slot.stage = Stage::Ready { data, spare, at: Progress::default() };
            }
            Task::Device(Work::Compare(range, _), _) if slot.status.is_success() => {
                self.submit(index, Some(data), Op::Read { at: range.start, data: spare });
            }
            Task::Device(Work::Write(..), _) if slot.status.is_success() => {
                self.write(index, data);
            }
            Task::Device(Work::Deallocate(count), at) if slot.status.is_success() => {
                match ranges::check(&self.devices, at, &data, count) {
                    Ok(()) => self.deallocate(index, (count, at), data, Progress::default()),
                    Err(status) => self.fail_with(index, data, status),
                }
            }
            Task::Device(Work::Copy(to, sources, _), place) if slot.status.is_success() => {
                match ranges::check_copy(&self.devices, place, to, &data, sources) {
                    Ok(()) => self.line_up(index, place, data),
                    Err(status) => self.fail_with(index, data, status),
                }
            }
            Task::Reserve(action, namespace) if slot.status.is_success() => {
                self.reserve(index, (action, namespace), &data);
                self.pools.put(data);
            }
            Task::Device(..)
            | Task::Reserve(..)
            | Task::Persist(..)
            | Task::Answer
            | Task::Page(_)
            | Task::Hold
            | Task::Leave => {
                self.pools.put(data);
                self.pools.put(spare);
                self.conclude(index);
            }
        }
    }

    /// Submits the next part of a deallocation of `count` ranges on the device at `place`, or completes the command. A
    /// deallocation can have many parts, so a removal or a shutdown, which waits for I/O in flight, does not wait for
    /// all of them.
    pub(super) fn deallocate(
        &mut self,
        index: SlotIndex,
        (count, place): (u32, DeviceIndex),
        data: SgMut,
        mut at: Progress,
    ) {
        let shift = self.devices.terms(place).map_or(0, |terms| terms.block.shift());
        let range = |number| ranges::range(&self.devices, place, &data, number);
        let part = match at.next_part(count, EFFECT_BYTES_MAX >> shift, range) {
            Ok(Some(part)) if self.is_open_at(place) => part,
            Ok(Some(_)) => return self.fail_with(index, data, Status::INACCESSIBLE),
            Ok(None) => {
                self.pools.put(data);
                return self.conclude(index);
            }
            Err(status) => return self.fail_with(index, data, status),
        };
        let Some((data, mut at)) = self.may_change(index, place, part, (data, at)) else { return };
        at.blocks += part.blocks;
        self.submit_step(index, Some(data), at, Op::Deallocate { range: part });
    }
}
