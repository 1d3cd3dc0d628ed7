//! Copy: blocks of a namespace are written to another place of it (NVM, section 3.2.2).
//!
//! A queue carries out one Copy of a device after another, piece by piece, through a buffer that is there for nothing
//! else. So however many a host asks for, what each holds while it waits is the small buffer with its ranges, of which
//! a queue has one for each of its places; and a device that does not answer holds up no Copy of another one.

use super::command::entry;
use super::range_locked::Way;
use super::{Connection, Role};
use crate::admit::{self, Work};
use crate::connection::DeviceIndex;
use crate::limits::{COPY_PIECE_BYTES, IO_ENTRIES};
use crate::slots::{Progress, SlotIndex, Stage, Task};
use std::collections::VecDeque;
use strake_block::{BufPool, Op, Sg, SgMut};
use strake_export_net::freeze;
use strake_nvme_wire::Status;
use strake_nvme_wire::nvm::SOURCE_BYTES;
use strake_units::{Lba, LbaRange};

/// The Copies of a queue at one device.
pub(super) struct Copies {
    buffer: BufPool,
    /// The first is carried out, the others wait for it.
    line: VecDeque<SlotIndex>,
}

/// Whether a Copy goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copying {
    GoesOn,
    Ended,
}

/// What is next in a Copy.
enum Piece {
    /// This I/O.
    Read(Op),
    /// A piece that has to wait for a range lock.
    Waits,
    /// Nothing.
    None,
}

impl Copies {
    /// None yet, and the buffer for all that come.
    pub(super) fn new() -> Self {
        let buffer = BufPool::untouched(1, COPY_PIECE_BYTES as usize);
        Self { buffer, line: VecDeque::with_capacity(IO_ENTRIES.into()) }
    }

    /// Forgets those that wait; one that is at the device ends by itself.
    pub(super) fn clear(&mut self) {
        self.line.clear();
    }

    /// The buffer for a piece of so many bytes. It lacks after a drive kept it for good and none came in its place.
    fn take(&mut self, bytes: usize) -> Option<SgMut> {
        Some(self.buffer.get(bytes)?.into())
    }

    /// Takes back what was read into. Where other memory came home, because a drive may still write to the own, new one
    /// stands for that.
    fn put(&mut self, data: SgMut) {
        let pool = &mut self.buffer;
        for buf in data.into_parts() {
            if pool.owns(&buf) { pool.put(buf) } else { pool.replace_lost() }
        }
    }

    /// Takes back what was written from.
    fn put_shared(&mut self, data: Sg) {
        data.into_parts().for_each(|buf| self.buffer.put_frozen(buf));
    }
}

impl Connection {
    /// The Copies of a device, which does not go while it has one.
    fn copies(&mut self, place: DeviceIndex) -> &mut Copies {
        let Role::Io(devices) = &mut self.role else {
            unreachable!("an admin queue copies nothing");
        };
        devices.copies(place)
    }

    /// Nothing is copied unless everything can be.
    pub(super) fn check_copy(
        &self,
        place: DeviceIndex,
        to: Lba,
        data: &SgMut,
        sources: u32,
    ) -> Result<(), Status> {
        let terms = self.terms(place).ok_or(Status::INTERNAL)?;
        let sources = (0..sources).map(|number| self.source_range(place, data, number));
        admit::copied(to, sources, terms)
    }

    fn source_range(
        &self,
        place: DeviceIndex,
        data: &SgMut,
        number: u32,
    ) -> Result<LbaRange, Status> {
        let terms = self.terms(place).ok_or(Status::INTERNAL)?;
        admit::source_range(entry::<SOURCE_BYTES>(data, number).ok_or(Status::INTERNAL)?, terms)
    }

    /// Begins a Copy of these sources when those before it are over.
    pub(super) fn line_up(&mut self, index: SlotIndex, place: DeviceIndex, sources: SgMut) {
        let (spare, at) = (SgMut::default(), Progress::default());
        self.slots.get(index).stage = Stage::Ready { data: sources, spare, at };
        let copies = self.copies(place);
        copies.line.push_back(index);
        if copies.line.len() == 1 {
            self.copy_next(place);
        }
    }

    fn copy_next(&mut self, place: DeviceIndex) {
        while let Some(&index) = self.copies(place).line.front() {
            let Stage::Ready { data, .. } = self.slots.get(index).take_stage() else {
                unreachable!("a Copy that waits for another one has its ranges");
            };
            if self.copy(index, data, Progress::default()) == Copying::GoesOn {
                return;
            }
        }
    }

    /// Reads the next piece, or ends the Copy.
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
        let shift = self.terms(place).ok_or(Status::INTERNAL)?.block.shift();
        let source = |number| self.source_range(place, sources, number);
        let Some(part) = at.next_part(count, COPY_PIECE_BYTES >> shift, source)? else {
            return Ok(Piece::None);
        };
        if !self.is_open_at(place) {
            return Err(Status::INACCESSIBLE);
        }
        // Asked before it is read, so that the piece is one step.
        let target = LbaRange::new(to.plus(at.done), part.blocks);
        if self.begin_change(index, place, target) == Way::Locked {
            return Ok(Piece::Waits);
        }
        let bytes = (part.blocks << shift) as usize;
        let data = self.copies(place).take(bytes).ok_or(Status::INTERRUPTED)?;
        Ok(Piece::Read(Op::Read { at: part.start, data }))
    }

    /// Goes on with a Copy whose I/O is over: writes what was read, or takes the next piece.
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
            Op::Read { data, .. } => self.copies(place).put(data),
            Op::Write { data, .. } => {
                let blocks = data.len() as u64 >> self.terms(place).map_or(0, |t| t.block.shift());
                self.copies(place).put_shared(data);
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

    /// Goes on with a Copy that is so far, or with the next one of its device.
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

    /// Ends a Copy. Of one that failed the host learns the first range that was not copied (NVM, section 3.2.2.1).
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
        self.copies(place).line.pop_front();
        self.conclude(index);
        Copying::Ended
    }
}
