//! Compare and Write as one step (Base, section 3.4.2; NVM, section 2.1.4).
//!
//! ```text
//! capsule of the first, capsule of the second -> data of both -> range lock raised -> it stands -> compare -> write
//! ```
//! The capsules come one right behind the other. A range lock is raised when everything is here, so that nobody waits
//! for a host, and a queue has one at a time at each device, so that a device has no more of them than queues.

use super::command::Placed;
use super::{Connection, Role};
use crate::admit::Work;
use crate::connection::DeviceIndex;
use crate::range_lock::Raised;
use crate::slots::{SlotIndex, Slots, Stage, Task};
use strake_block::Op;
use strake_export_net::freeze;
use strake_nvme_wire::Status;
use strake_nvme_wire::command::Fuse;
use strake_units::LbaRange;

/// Whether the last command was the first half of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Half {
    /// It was not.
    #[default]
    None,
    /// It was, and this is the one.
    Waits(SlotIndex),
    /// It was, and has failed.
    Failed,
}

/// Two commands that are one.
struct Pair {
    /// `None` once it is over.
    first: Option<SlotIndex>,
    second: SlotIndex,
    place: DeviceIndex,
    range: LbaRange,
    /// The range lock around its blocks, from when everything is here.
    range_lock: Option<Raised>,
}

/// The pairs of a queue.
pub(super) struct Pairs {
    half: Half,
    there: Vec<Pair>,
}

impl Pairs {
    /// None yet, of a queue with so many entries.
    pub(super) fn new(entries: u16) -> Self {
        Self { half: Half::None, there: Vec::with_capacity(usize::from(entries) / 2) }
    }

    /// Forgets what is not at the device yet.
    pub(super) fn abandon(&mut self, slots: &mut Slots) {
        self.half = Half::None;
        let writes = |pair: &Pair| matches!(slots.get(pair.second).stage, Stage::AtDevice { .. });
        self.there.retain(writes);
    }
}

impl Connection {
    /// Finds out what a command that was `placed` is to the one before it, and to the next.
    ///
    /// # Errors
    /// With the status to answer: its own, or that of a half without the other.
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

    /// Makes two commands a pair that are about the same block.
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

    /// Raises range locks for pairs that are all here; says how many.
    pub(super) fn raise_range_locks(&mut self) -> usize {
        let Role::Io(devices) = &self.role else { return 0 };
        let slots = &mut self.slots;
        let pairs = &mut self.pairs.there;
        let mut raised = 0;
        for at in 0..pairs.len() {
            let Pair { first: Some(first), second, place, range, range_lock: None } = pairs[at]
            else {
                continue;
            };
            let mut is_here = |index| matches!(slots.get(index).stage, Stage::Ready { .. });
            let is_whole = is_here(first) && is_here(second);
            if is_whole
                && !pairs.iter().any(|pair| pair.place == place && pair.range_lock.is_some())
            {
                pairs[at].range_lock = devices.raise(place, range);
                raised += 1;
            }
        }
        raised
    }

    /// Compares for a pair whose range lock stands.
    pub(super) fn compare_next(&mut self) -> usize {
        let Role::Io(devices) = &self.role else { return 0 };
        let slots = &mut self.slots;
        let is_next = |pair: &&Pair| {
            let range_lock = pair.range_lock.as_ref();
            let outlook = devices.outlook(pair.place);
            range_lock
                .zip(outlook)
                .is_some_and(|(range_lock, outlook)| outlook.stands(range_lock.ticket))
                && pair.first.is_some_and(|f| matches!(slots.get(f).stage, Stage::Ready { .. }))
        };
        let Some(pair) = self.pairs.there.iter().find(is_next) else { return 0 };
        let (Some(first), place, range) = (pair.first, pair.place, pair.range) else { return 0 };
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

    /// Goes on with a pair one of whose halves has ended so.
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

    /// Writes what is there as it was to be.
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

    /// Has a half fail: at once if it only waits, and otherwise when what is under way for it is over.
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

    /// Ends halves that only wait, and need not any more: their device goes, or their host was shut out.
    pub(super) fn give_up_pairs(&mut self) {
        if let Half::Waits(first) = self.pairs.half {
            self.give_up(first);
        }
        let mut at = 0;
        while let Some(pair) = self.pairs.there.get(at) {
            let (first, second) = (pair.first, pair.second);
            // The pair is taken out when its second half ends.
            at += 1;
            if first.is_some_and(|first| self.give_up(first)) || self.give_up(second) {
                at = 0;
            }
        }
    }

    /// Ends a half that only waits if it has failed.
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
