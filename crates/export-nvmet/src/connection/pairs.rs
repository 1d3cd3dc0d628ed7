//! Compare and Write as one step (Base, section 3.4.2; NVM, section 2.1.4).
//!
//! ```text
//! capsule of the first, capsule of the second -> data of both -> range lock raised -> it stands -> compare -> write
//! ```
//! The capsules come one right behind the other. A range lock is raised when everything is here, so that no other
//! command waits for a host, and a queue has one at a time at each device, so that a device has no more of them than
//! queues.

use super::devices::{DeviceIndex, Devices};
use crate::admit::{Need, Source};
use crate::range_lock::Raised;
use crate::slots::{SlotIndex, Slots, Stage, Task};
use strake_units::LbaRange;

/// What to do for a command, with what data, and where that is.
pub(super) type Placed = (Task, Need, Source);

/// Whether the last command was the first half of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Half {
    /// It was not.
    #[default]
    None,
    /// It was, and this is the one.
    Waits(SlotIndex),
    /// It was, and has failed.
    Failed,
}

/// Two commands that are one.
pub(super) struct Pair {
    /// `None` once it is over.
    pub(super) first: Option<SlotIndex>,
    pub(super) second: SlotIndex,
    pub(super) place: DeviceIndex,
    pub(super) range: LbaRange,
    /// The range lock around its blocks, from when everything is here.
    pub(super) range_lock: Option<Raised>,
}

/// The pairs of a queue.
pub(super) struct Pairs {
    pub(super) half: Half,
    pub(super) there: Vec<Pair>,
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

    /// Raises range locks for pairs that are all here; says how many.
    #[inline]
    pub(super) fn raise_range_locks(&mut self, slots: &mut Slots, devices: &Devices) -> usize {
        let pairs = &mut self.there;
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

    /// The first half of a pair whose range lock stands, and the range.
    #[inline]
    pub(super) fn next(
        &self,
        slots: &mut Slots,
        devices: &Devices,
    ) -> Option<(SlotIndex, DeviceIndex, LbaRange)> {
        let mut is_next = |pair: &&Pair| {
            let lock = pair.range_lock.as_ref().zip(devices.outlook(pair.place));
            lock.is_some_and(|(range_lock, outlook)| outlook.stands(range_lock.ticket))
                && pair.first.is_some_and(|f| matches!(slots.get(f).stage, Stage::Ready { .. }))
        };
        let pair = self.there.iter().find(|pair| is_next(pair))?;
        Some((pair.first?, pair.place, pair.range))
    }
}
