//! The operations that a change wakes.
//!
//! The wait of an operation names the condition that ends it, so that a change finds the operations to wake. One change
//! of a cluster wakes one operation: the next is woken when this one has continued without a lock.

use std::collections::BTreeSet;

use crate::epoch::Epoch;
use crate::ids::{Number, OperationId, Ring, VolumeId};
use crate::operation::Wait;

/// The changes of one call of the driver. It is empty between calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Changes {
    /// Clusters of volumes that no operation changes any longer.
    pub(crate) unlocked: Vec<(VolumeId, u32)>,
    /// A cluster is free, or another ring may use it.
    pub(crate) has_space: bool,
    /// Cores continue new writes.
    pub(crate) is_hold_over: bool,
    /// An operation on whole volumes or a checkpoint ended.
    pub(crate) is_leader_free: bool,
    /// All I/Os of an epoch have completed.
    pub(crate) are_older_back: bool,
    /// What a driver must no longer use from earlier answers of [`direct`](crate::VolumeMap::direct).
    pub(crate) revoked: Vec<Revoked>,
}

/// A part of volumes whose clusters may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Revoked {
    /// A part of a volume.
    Part(VolumeId, u32),
    /// A whole volume.
    Volume(VolumeId),
}

/// Waiting operations, and operations that a change woke.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    waits: BTreeSet<(Wait, OperationId)>,
    woken: BTreeSet<OperationId>,
}

const FIRST: OperationId = OperationId(0);
const LAST: OperationId = OperationId(u64::MAX);

impl Waiting {
    /// Returns the oldest woken operation.
    pub(crate) fn next(&self) -> Option<OperationId> {
        self.woken.first().copied()
    }

    #[cfg(test)]
    pub(crate) fn is_woken(&self, id: OperationId) -> bool {
        self.woken.contains(&id)
    }

    pub(crate) fn wake(&mut self, id: OperationId) {
        self.woken.insert(id);
    }

    /// Removes the wait of an operation that the driver advances.
    pub(crate) fn forget(&mut self, id: OperationId, wait: Option<Wait>) {
        self.woken.remove(&id);
        if let Some(wait) = wait {
            self.waits.remove(&(wait, id));
        }
    }

    pub(crate) fn insert(&mut self, id: OperationId, wait: Wait) {
        self.waits.insert((wait, id));
    }

    /// Wakes the first operation that waits for a cluster.
    pub(crate) fn wake_one(&mut self, volume: VolumeId, index: u32) {
        let wait = Wait::Cluster { volume, index };
        let first = self.waits.range((wait, FIRST)..=(wait, LAST)).next();
        self.woken.extend(first.map(|(_, id)| *id));
    }

    fn wake_all(&mut self, wait: Wait) {
        let all = self.waits.range((wait, FIRST)..=(wait, LAST));
        self.woken.extend(all.map(|(_, id)| *id));
    }

    /// Wakes the operations that wait for records of a ring below `unstable`.
    pub(crate) fn wake_stable(&mut self, ring: Ring, unstable: Number) {
        let from = (Wait::Records { ring, number: Number(0) }, FIRST);
        let stable = self.waits.range(from..(Wait::Records { ring, number: unstable }, FIRST));
        self.woken.extend(stable.map(|(_, id)| *id));
    }

    /// Wakes the operations whose wait a change may have ended. `oldest` is the first epoch that has not ended.
    pub(crate) fn wake_changed(&mut self, changes: &Changes, oldest: Epoch) {
        for (volume, index) in &changes.unlocked {
            self.wake_one(*volume, *index);
        }
        if changes.is_hold_over {
            self.wake_all(Wait::Hold);
        }
        if changes.is_leader_free {
            self.wake_all(Wait::Leader);
        }
        if changes.has_space {
            self.wake_all(Wait::Space);
            self.wake_all(Wait::Checkpoint);
        }
        if changes.are_older_back {
            let from = (Wait::OlderIo { epoch: Epoch(0) }, FIRST);
            let back = self.waits.range(from..(Wait::OlderIo { epoch: oldest }, FIRST));
            self.woken.extend(back.map(|(_, id)| *id));
        }
    }
}
