//! Compare and Write as one atomic operation (Base, section 3.4.2; NVM, section 2.1.4).
//!
//! ```text
//! capsule of the first, capsule of the second -> data of both -> range lock requested -> granted -> compare -> write
//! ```
//! The two capsules are adjacent. A range lock is requested when all data has arrived, so that no other command waits
//! for a host. A queue has one range lock at a time at each device, so a device has at most as many range locks as
//! queues.

use super::devices::{DeviceIndex, Devices};
use crate::admit::{Need, Source};
use crate::range_lock::Raised;
use crate::slots::{SlotIndex, Slots, Stage, Task};
use strake_units::LbaRange;

/// The task of a command, its data, and the location of the data.
pub(super) type Placed = (Task, Need, Source);

/// Whether the last command was the first half of a fused pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Half {
    /// The last command was not fused.
    #[default]
    None,
    /// The last command was this first half.
    Waits(SlotIndex),
    /// The last command was a first half that failed.
    Failed,
}

/// The two commands of a fused operation.
pub(super) struct Pair {
    /// `None` after its completion.
    pub(super) first: Option<SlotIndex>,
    pub(super) second: SlotIndex,
    pub(super) place: DeviceIndex,
    pub(super) range: LbaRange,
    /// The range lock of the blocks, requested when all data has arrived.
    pub(super) range_lock: Option<Raised>,
}

/// The pairs of a queue.
pub(super) struct Pairs {
    pub(super) half: Half,
    pub(super) there: Vec<Pair>,
}

impl Pairs {
    /// Creates an empty list for a queue with this number of entries.
    pub(super) fn new(entries: u16) -> Self {
        Self { half: Half::None, there: Vec::with_capacity(usize::from(entries) / 2) }
    }

    /// Removes pairs whose write is not in flight.
    pub(super) fn abandon(&mut self, slots: &mut Slots) {
        self.half = Half::None;
        let writes = |pair: &Pair| matches!(slots.get(pair.second).stage, Stage::AtDevice { .. });
        self.there.retain(writes);
    }

    /// Requests range locks for pairs whose data has arrived; returns their number.
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

    /// The first half of a pair whose range lock is granted, and its range.
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
