//! The state of the map that a change of blocks finds.

use crate::blocks::{BlockSet, Blocks};
use crate::ids::{ClusterId, VolumeId};
use crate::state::MapState;
use crate::tables::{Volume, VolumeKind};

/// The state that a change finds in the map. It is determined again in the turn that appends the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Found {
    /// The volume is removed, or the blocks are beyond its end.
    Gone,
    /// The entry has no cluster.
    Unmapped,
    /// A cluster that only this volume refers to, in which the blocks are its own.
    Own(ClusterId),
    /// A partial cluster that only this volume refers to, in which a block is not its own.
    Partial(ClusterId),
    /// A whole cluster that others refer to.
    Shared(ClusterId),
    /// A partial cluster that others refer to.
    SharedPartial(ClusterId),
}

impl MapState {
    /// Returns the cluster of blocks that are written without a record and without a lock: the cluster is whole, and no
    /// operation changes it.
    pub(crate) fn in_place(&self, id: VolumeId, index: u32, blocks: Blocks) -> Option<ClusterId> {
        match self.find(id, index, blocks) {
            Found::Own(cluster)
                if self.tables.partial(cluster).is_none() && !self.is_locked(id, index) =>
            {
                Some(cluster)
            }
            _ => None,
        }
    }

    /// Returns the state that a change of blocks of a volume finds.
    pub(crate) fn find(&self, id: VolumeId, index: u32, blocks: Blocks) -> Found {
        let cluster_blocks = u64::from(self.tables.shape.cluster_blocks);
        let end = u64::from(index) * cluster_blocks + u64::from(blocks.end());
        let volume = self.tables.serving(id);
        let writable = |kind| kind == VolumeKind::Writable;
        let is_in = |volume: &Volume| end <= self.usable_blocks(volume, id);
        let Some(volume) = volume.filter(|volume| writable(volume.kind) && is_in(volume)) else {
            return Found::Gone;
        };
        let (slot, cluster) = self.tables.lookup(volume, index);
        let (Some(slot), Some(cluster)) = (slot, cluster) else {
            return Found::Unmapped;
        };
        let leaf = self.tables.leaf(slot);
        let is_leaf_shared = leaf.references + leaf.given_up > 1;
        let is_shared = is_leaf_shared || self.tables.clusters.count(cluster) > 1;
        match (self.tables.partial(cluster), is_shared) {
            (None, true) => Found::Shared(cluster),
            (Some(_), true) => Found::SharedPartial(cluster),
            (None, false) => Found::Own(cluster),
            (Some(partial), false) if partial.own.has_all(&BlockSet::of(blocks)) => {
                Found::Own(cluster)
            }
            (Some(_), false) => Found::Partial(cluster),
        }
    }
}
