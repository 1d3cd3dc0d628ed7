//! The commands of a connection between their arrival and the departure of their completions.

use crate::admin::Page;
use crate::admit::Work;
use crate::connection::devices::DeviceIndex;
use crate::range_lock::Ticket;
use strake_block::SgMut;
use strake_nvme_wire::Status;
use strake_nvme_wire::command::Fuse;
use strake_nvme_wire::reservation::Action;
use strake_units::LbaRange;

/// Names a command of a connection while it lasts; to the host it is the tag of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotIndex(pub(crate) u16);

/// What is to be done for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Nothing but the answer.
    Answer,
    /// Something at a device.
    Device(Work, DeviceIndex),
    /// Fill in a page and send it.
    Page(Page),
    /// Receive keys, and have the reservations of a namespace changed.
    Reserve(Action, u32),
    /// Have them outlast a loss of power, or no more.
    Persist(bool, u32),
    /// Keep it until there is an event.
    Hold,
    /// Answer, then end the connection.
    Leave,
}

/// How far a command is.
///
/// ```text
/// Waiting -> Receiving -> Ready <-> AtDevice -> Replying      each may be left out
/// Held -> Replying                                            a request for events
/// Receiving -> Asked -> Replying                              a change of reservations
/// ```
#[derive(Debug)]
pub(crate) enum Stage {
    /// It needs buffers for as many bytes, which are not free yet.
    Waiting { bytes: u32 },
    /// Its data is on its way here; `got` bytes have arrived. What it is to be compared with goes to `spare`, which is
    /// empty for other commands.
    Receiving { data: SgMut, got: u32, spare: SgMut },
    /// All its data is here, and it waits: for a Copy before it, the other half of a pair, or a range lock. What it is
    /// to be compared with goes to `spare`, as before.
    Ready { data: SgMut, spare: SgMut, at: Progress },
    /// An I/O of it is at the device. Meanwhile the ranges of a deallocation or a Copy, and the memory of a read that
    /// waits for a flush, stay here.
    AtDevice { kept: Option<SgMut>, at: Progress },
    /// The reservation thread has it.
    Asked,
    /// Kept until there is an event.
    Held,
    /// Its completion waits to be sent.
    Replying,
}

/// How far a command is that takes several I/Os, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// I/Os or ranges that are over.
    pub(crate) steps: u32,
    /// Blocks of the range at hand that are over.
    pub(crate) blocks: u64,
    /// Blocks of all ranges that are over.
    pub(crate) done: u64,
}

impl Progress {
    /// What comes next of a command of `count` ranges: a part of one of them, of at most `most` blocks. `None` when all
    /// of them are over.
    pub(crate) fn next_part(
        &mut self,
        count: u32,
        most: u64,
        range: impl Fn(u32) -> Result<LbaRange, Status>,
    ) -> Result<Option<LbaRange>, Status> {
        while self.steps < count {
            let range = range(self.steps)?;
            let left = range.blocks - self.blocks;
            if left > 0 {
                let start = range.start.plus(self.blocks);
                return Ok(Some(LbaRange::new(start, left.min(most))));
            }
            *self = Self { steps: self.steps + 1, blocks: 0, ..*self };
        }
        Ok(None)
    }
}

/// One command.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) cid: u16,
    pub(crate) task: Task,
    pub(crate) stage: Stage,
    /// How it ends, as far as is known.
    pub(crate) status: Status,
    pub(crate) result: u64,
    /// Another host took over: nothing more of it is begun, and what is at a device is waited for.
    pub(crate) is_given_up: bool,
    /// Whether it is one half of a pair.
    pub(crate) fuse: Fuse,
    /// Blocks that its I/O at hand changes, or would if it were not held off; none if it changes none, or is of a pair.
    pub(crate) changes: LbaRange,
    /// The last range lock that it waits for, while it does.
    pub(crate) behind: Option<Ticket>,
}

impl Slot {
    /// One of which nothing is known yet but its name.
    pub(crate) fn new(cid: u16) -> Self {
        Self {
            cid,
            task: Task::Answer,
            stage: Stage::Held,
            status: Status::SUCCESS,
            result: 0,
            is_given_up: false,
            fuse: Fuse::Alone,
            changes: LbaRange::default(),
            behind: None,
        }
    }

    /// Takes the stage with what is in it, to put another one in its place.
    pub(crate) const fn take_stage(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Held)
    }

    /// Whether nothing of it was handed to a device yet, and it is not over.
    pub(crate) const fn is_before_device(&self) -> bool {
        match self.stage {
            Stage::Waiting { .. } | Stage::Receiving { .. } | Stage::Ready { .. } => true,
            Stage::AtDevice { .. } | Stage::Asked | Stage::Held | Stage::Replying => false,
        }
    }

    /// Has it end with this status when it would go on, unless it ends with another one.
    pub(crate) const fn fail(&mut self, status: Status) {
        if self.status.is_success() {
            self.status = status;
        }
    }

    /// Whether it writes to blocks of a range lock, or will before that stands.
    pub(crate) fn writes(&self, ticket: Ticket, range: LbaRange) -> bool {
        self.changes.overlaps(range)
            && match self.stage {
                Stage::AtDevice { .. } => true,
                Stage::Ready { .. } => self.behind.is_some_and(|last| last < ticket),
                Stage::Waiting { .. }
                | Stage::Receiving { .. }
                | Stage::Asked
                | Stage::Held
                | Stage::Replying => false,
            }
    }
}

/// A fixed number of slots.
pub(crate) struct Slots {
    slots: Box<[Option<Slot>]>,
    free: Vec<u16>,
}

impl Slots {
    pub(crate) fn new(count: u16) -> Self {
        Self { slots: (0..count).map(|_| None).collect(), free: (0..count).rev().collect() }
    }

    /// Begins a command; `None` when the host has sent more than the queue holds.
    pub(crate) fn begin(&mut self, slot: Slot) -> Option<SlotIndex> {
        let index = self.free.pop()?;
        self.slots[usize::from(index)] = Some(slot);
        Some(SlotIndex(index))
    }

    /// The command, which has begun and not ended.
    pub(crate) fn get(&mut self, index: SlotIndex) -> &mut Slot {
        self.find(index.0).expect("a slot in use holds a command")
    }

    /// The command that a host means by a tag, if there is one.
    pub(crate) fn find(&mut self, tag: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(tag))?.as_mut()
    }

    /// A request for events that is kept.
    pub(crate) fn held(&self) -> Option<SlotIndex> {
        let is_held = |slot: &Option<Slot>| {
            matches!(slot, Some(Slot { task: Task::Hold, stage: Stage::Held, .. }))
        };
        self.slots.iter().position(is_held).map(|index| SlotIndex(index as u16))
    }

    /// Ends a command, after its completion was sent or will never be.
    pub(crate) fn end(&mut self, index: SlotIndex) {
        let ended = self.slots[usize::from(index.0)].take();
        assert!(ended.is_some(), "a command ended twice");
        self.free.push(index.0);
    }

    /// Whether any of a device writes to blocks of a range lock, or will before that stands.
    pub(crate) fn any_writes(&self, place: DeviceIndex, ticket: Ticket, range: LbaRange) -> bool {
        let is_there = |slot: &Slot| matches!(slot.task, Task::Device(_, at) if at == place);
        self.slots.iter().flatten().any(|slot| is_there(slot) && slot.writes(ticket, range))
    }

    /// All commands.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut().flatten()
    }

    /// Ends every command that `over` says can, after it was looked at.
    pub(crate) fn end_if(&mut self, mut over: impl FnMut(&mut Slot) -> bool) {
        for (index, place) in self.slots.iter_mut().enumerate() {
            if place.as_mut().is_some_and(&mut over) {
                *place = None;
                self.free.push(index as u16);
            }
        }
    }
}
