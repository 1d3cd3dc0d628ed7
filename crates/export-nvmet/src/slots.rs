//! The commands of a connection, from their arrival until their completion was sent.

use crate::admin::Page;
use crate::admit::Work;
use crate::connection::devices::DeviceIndex;
use crate::range_lock::Ticket;
use strake_block::SgMut;
use strake_nvme_wire::Status;
use strake_nvme_wire::command::Fuse;
use strake_nvme_wire::reservation::Action;
use strake_units::LbaRange;

/// The index of a command of a connection; it is also the transfer tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotIndex(pub(crate) u16);

/// The task of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Complete the command without further work.
    Answer,
    /// Execute an operation on a device.
    Device(Work, DeviceIndex),
    /// Send a page.
    Page(Page),
    /// Receive keys, and change the reservations of a namespace.
    Reserve(Action, u32),
    /// Make reservations persist through a power loss, or stop this.
    Persist(bool, u32),
    /// Keep the command outstanding until there is an event.
    Hold,
    /// Complete the command, then close the connection.
    Leave,
}

/// The progress of a command.
///
/// ```text
/// Waiting -> Receiving -> Ready <-> AtDevice -> Replying      each may be skipped
/// Held -> Replying                                            an event request
/// Receiving -> Asked -> Replying                              a change of reservations
/// ```
#[derive(Debug)]
pub(crate) enum Stage {
    /// The command needs buffers for this number of bytes, which are not free yet.
    Waiting { bytes: u32 },
    /// The data of the command is being received; `got` bytes have arrived. `spare` is the buffer for the comparison
    /// data of a Compare, and empty for other commands.
    Receiving { data: SgMut, got: u32, spare: SgMut },
    /// All data has arrived, and the command waits: for an earlier Copy, the other half of a pair, or a range lock.
    /// `spare` is as above.
    Ready { data: SgMut, spare: SgMut, at: Progress },
    /// An I/O of the command is in flight. Meanwhile `kept` holds the ranges of a deallocation or a Copy, or the memory
    /// of a read that waits for a flush.
    AtDevice { kept: Option<SgMut>, at: Progress },
    /// The reservation thread executes the command.
    Asked,
    /// The command is outstanding until there is an event.
    Held,
    /// The completion waits to be sent.
    Replying,
}

/// The progress of a command that takes several I/Os, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Completed I/Os or ranges.
    pub(crate) steps: u32,
    /// Completed blocks of the current range.
    pub(crate) blocks: u64,
    /// Completed blocks of all ranges.
    pub(crate) done: u64,
}

impl Progress {
    /// The next part of a command of `count` ranges: a part of one range, of at most `most` blocks. `None` if all
    /// ranges are complete.
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
    /// The status of the completion, as far as it is known.
    pub(crate) status: Status,
    pub(crate) result: u64,
    /// Another host preempted the reservation: the command is aborted, and its I/O in flight still has to complete.
    pub(crate) is_given_up: bool,
    /// Whether the command is one half of a fused pair.
    pub(crate) fuse: Fuse,
    /// Blocks that the current I/O changes, or will change after a wait for a range lock; empty if it changes none, or
    /// if the command is part of a pair.
    pub(crate) changes: LbaRange,
    /// The last range lock that the command waits for.
    pub(crate) behind: Option<Ticket>,
}

impl Slot {
    /// Creates the entry of a command of which only the identifier is known.
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

    /// Takes the stage, which the caller then replaces.
    pub(crate) const fn take_stage(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Held)
    }

    /// True if no I/O of the command was submitted, and the command has not completed.
    pub(crate) const fn is_before_device(&self) -> bool {
        match self.stage {
            Stage::Waiting { .. } | Stage::Receiving { .. } | Stage::Ready { .. } => true,
            Stage::AtDevice { .. } | Stage::Asked | Stage::Held | Stage::Replying => false,
        }
    }

    /// Sets the status of the completion, unless the command has already failed.
    pub(crate) const fn fail(&mut self, status: Status) {
        if self.status.is_success() {
            self.status = status;
        }
    }

    /// True if the command writes to blocks of a range lock, or will before the range lock is granted.
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

    /// Adds a command; `None` if the host has sent more commands than the queue holds.
    pub(crate) fn begin(&mut self, slot: Slot) -> Option<SlotIndex> {
        let index = self.free.pop()?;
        self.slots[usize::from(index)] = Some(slot);
        Some(SlotIndex(index))
    }

    /// The command at an index in use.
    pub(crate) fn get(&mut self, index: SlotIndex) -> &mut Slot {
        self.find(index.0).expect("a slot in use holds a command")
    }

    /// The command of a transfer tag, if there is one.
    pub(crate) fn find(&mut self, tag: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(tag))?.as_mut()
    }

    /// An outstanding Asynchronous Event Request.
    pub(crate) fn held(&self) -> Option<SlotIndex> {
        let is_held = |slot: &Option<Slot>| {
            matches!(slot, Some(Slot { task: Task::Hold, stage: Stage::Held, .. }))
        };
        self.slots.iter().position(is_held).map(|index| SlotIndex(index as u16))
    }

    /// Removes a command, after its completion was sent or discarded.
    pub(crate) fn end(&mut self, index: SlotIndex) {
        let ended = self.slots[usize::from(index.0)].take();
        assert!(ended.is_some(), "a command ended twice");
        self.free.push(index.0);
    }

    /// True if any command for a device writes to blocks of a range lock, or will before the range lock is granted.
    pub(crate) fn any_writes(&self, place: DeviceIndex, ticket: Ticket, range: LbaRange) -> bool {
        let is_there = |slot: &Slot| matches!(slot.task, Task::Device(_, at) if at == place);
        self.slots.iter().flatten().any(|slot| is_there(slot) && slot.writes(ticket, range))
    }

    /// All commands.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut().flatten()
    }

    /// Calls `over` for every command, and removes the commands for which it returns true.
    pub(crate) fn end_if(&mut self, mut over: impl FnMut(&mut Slot) -> bool) {
        for (index, place) in self.slots.iter_mut().enumerate() {
            if place.as_mut().is_some_and(&mut over) {
                *place = None;
                self.free.push(index as u16);
            }
        }
    }
}
