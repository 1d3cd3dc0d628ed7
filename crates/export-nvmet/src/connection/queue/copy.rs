//! Copy: blocks of a namespace are written to other blocks of the same namespace (NVM, section 3.2.2).
//!
//! A queue executes the Copies of a device one after another, in pieces, through a dedicated buffer. A waiting Copy
//! holds only the small buffer with its ranges, and a queue has one such buffer for each entry. A device that does not
//! answer delays no Copy of another device.

use super::Queue;
use crate::admit::Work;
use crate::connection::devices::{DeviceIndex, Way};
use crate::connection::ranges;
use crate::limits::COPY_PIECE_BYTES;
use crate::slots::{Progress, SlotIndex, Stage, Task};
use strake_block::{Op, SgMut};
use strake_export_net::freeze;
use strake_nvme_wire::Status;
use strake_units::{Lba, LbaRange};

/// Whether a Copy continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copying {
    GoesOn,
    Ended,
}

/// The next step of a Copy.
enum Piece {
    /// Submit this I/O.
    Read(Op),
    /// Wait for a range lock.
    Waits,
    /// The Copy has finished.
    None,
}

impl Queue {
    /// Queues a Copy of these sources behind earlier ones.
    pub(super) fn line_up(&mut self, index: SlotIndex, place: DeviceIndex, sources: SgMut) {
        let (spare, at) = (SgMut::default(), Progress::default());
        self.slots.get(index).stage = Stage::Ready { data: sources, spare, at };
        let copies = self.devices.copies(place);
        copies.line.push_back(index);
        if copies.line.len() == 1 {
            self.copy_next(place);
        }
    }

    fn copy_next(&mut self, place: DeviceIndex) {
        while let Some(&index) = self.devices.copies(place).line.front() {
            let Stage::Ready { data, .. } = self.slots.get(index).take_stage() else {
                unreachable!("a Copy that waits for another one has its ranges");
            };
            if self.copy(index, data, Progress::default()) == Copying::GoesOn {
                return;
            }
        }
    }

    /// Reads the next piece, or completes the Copy.
    fn copy(&mut self, index: SlotIndex, sources: SgMut, mut at: Progress) -> Copying {
        let Task::Device(Work::Copy(to, count, _), place) = self.slots.get(index).task else {
            unreachable!("only a Copy copies");
        };
        match self.next_piece(index, (to, count, place), &sources, &mut at) {
            Ok(Piece::Read(op)) => {
                self.submit_step(index, Some(sources), at, op);
                Copying::GoesOn
            }
            Ok(Piece::Waits) => {
                self.hold_off(index, sources, at);
                Copying::GoesOn
            }
            Ok(Piece::None) => self.end_copy(index, place, sources, at),
            Err(status) => {
                self.slots.get(index).status = status;
                self.end_copy(index, place, sources, at)
            }
        }
    }

    fn next_piece(
        &mut self,
        index: SlotIndex,
        (to, count, place): (Lba, u32, DeviceIndex),
        sources: &SgMut,
        at: &mut Progress,
    ) -> Result<Piece, Status> {
        let status = self.slots.get(index).status;
        if !status.is_success() {
            return Err(status);
        }
        let shift = self.devices.terms(place)?.block.shift();
        let source = |number| ranges::source(&self.devices, place, sources, number);
        let Some(part) = at.next_part(count, COPY_PIECE_BYTES >> shift, source)? else {
            return Ok(Piece::None);
        };
        if !self.is_open_at(place) {
            return Err(Status::INACCESSIBLE);
        }
        // The check precedes the read, so that the piece is one atomic step.
        let target = LbaRange::new(to.plus(at.done), part.blocks);
        if self.devices.begin_change(self.slots.get(index), place, target) == Way::Locked {
            return Ok(Piece::Waits);
        }
        let bytes = (part.blocks << shift) as usize;
        let data = self.devices.copies(place).take(bytes).ok_or(Status::INTERRUPTED)?;
        Ok(Piece::Read(Op::Read { at: part.start, data }))
    }

    /// Continues with a Copy whose I/O has completed: writes the data that was read, or starts the next piece.
    pub(super) fn copied(&mut self, index: SlotIndex, sources: SgMut, mut at: Progress, op: Op) {
        let slot = self.slots.get(index);
        let (task, is_well) = (slot.task, slot.status.is_success());
        let Task::Device(Work::Copy(to, _, durability), place) = task else {
            unreachable!("only a Copy copies");
        };
        match op {
            Op::Read { data, .. } if is_well && self.is_open_at(place) => {
                let op = Op::Write { at: to.plus(at.done), data: freeze(data), durability };
                return self.submit_step(index, Some(sources), at, op);
            }
            Op::Read { data, .. } => self.devices.copies(place).put(data),
            Op::Write { data, .. } => {
                let blocks =
                    data.len() as u64 >> self.devices.terms(place).map_or(0, |t| t.block.shift());
                self.devices.copies(place).put_shared(data);
                if is_well {
                    (at.blocks, at.done) = (at.blocks + blocks, at.done + blocks);
                }
            }
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {
                unreachable!("a Copy reads and writes")
            }
        }
        self.copy_on(index, place, sources, at);
    }

    /// Continues with a Copy at this progress, or with the next Copy of its device.
    pub(super) fn copy_on(
        &mut self,
        index: SlotIndex,
        place: DeviceIndex,
        sources: SgMut,
        at: Progress,
    ) {
        if self.copy(index, sources, at) == Copying::Ended {
            self.copy_next(place);
        }
    }

    /// Completes a Copy. If it failed, the result is the first range that was not copied (NVM, section 3.2.2.1).
    fn end_copy(
        &mut self,
        index: SlotIndex,
        place: DeviceIndex,
        sources: SgMut,
        at: Progress,
    ) -> Copying {
        let slot = self.slots.get(index);
        if !slot.status.is_success() {
            slot.result = at.steps.into();
        }
        self.pools.put(sources);
        self.devices.copies(place).line.pop_front();
        self.conclude(index);
        Copying::Ended
    }
}
