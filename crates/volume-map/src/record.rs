//! Records of the log: each is one change of the map.

use strake_units::Name;

use crate::blocks::{Blocks, Partial};
use crate::ids::{ClusterId, Number, Ring, Start, VolumeId};

/// For each ring, the record number below which its records were applied before a record of the leader.
pub type Cut = Vec<Number>;

/// One change of the map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// An entry refers to a different cluster.
    Map {
        /// The volume, which does not share the leaf.
        volume: VolumeId,
        /// The entry, counted from the start of the volume.
        index: u32,
        /// The new cluster.
        cluster: ClusterId,
        /// The state of the blocks; `None` if all blocks are own.
        partial: Option<Box<Partial>>,
    },
    /// An entry refers to no cluster: its blocks are zero.
    Unmap {
        /// The volume, which does not share the leaf.
        volume: VolumeId,
        /// The entry, counted from the start of the volume.
        index: u32,
    },
    /// Blocks of a partial cluster were written to it.
    Own {
        /// The cluster.
        cluster: ClusterId,
        /// The blocks.
        blocks: Blocks,
    },
    /// Blocks of a cluster were discarded.
    Zero {
        /// The cluster.
        cluster: ClusterId,
        /// The blocks.
        blocks: Blocks,
    },
    /// All blocks of a partial cluster were copied to it.
    Filled {
        /// The cluster.
        cluster: ClusterId,
    },
    /// A volume gets a separate leaf, named after this record: a copy of a shared one, or an empty one.
    CopyLeaf {
        /// The volume.
        volume: VolumeId,
        /// The index of the leaf in the volume.
        at: u32,
    },
    /// A volume gives up a leaf.
    DropLeaf {
        /// The volume.
        volume: VolumeId,
        /// The index of the leaf in the volume.
        at: u32,
    },
    /// A change of whole volumes, by the leader.
    Volumes(VolumesChange, Cut),
}

/// A change of whole volumes. It is in the ring of the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VolumesChange {
    /// A new volume.
    Create {
        /// Its identifier.
        volume: VolumeId,
        /// Its name.
        name: Name,
        /// Its size in blocks.
        blocks: u64,
        /// The space policy of the volume.
        policy: SpacePolicy,
    },
    /// Snapshots at the same time: the source, the identifier and the name of each.
    Snapshot(Vec<(VolumeId, VolumeId, Name)>),
    /// A writable copy of a snapshot.
    Clone {
        /// The snapshot.
        snapshot: VolumeId,
        /// The identifier of the copy.
        volume: VolumeId,
        /// The name of the copy.
        name: Name,
    },
    /// A volume is being deleted: I/O no longer reaches it.
    Delete(VolumeId),
    /// A deleted volume has no more leaves.
    Gone(VolumeId),
    /// A volume has the content of a snapshot. Its previous content belongs to a volume that is being deleted.
    Rollback {
        /// The volume.
        volume: VolumeId,
        /// The snapshot.
        snapshot: VolumeId,
        /// The volume that is being deleted.
        old: VolumeId,
    },
    /// A volume has a new size.
    Size {
        /// The volume.
        volume: VolumeId,
        /// Its size in blocks.
        blocks: u64,
    },
    /// A volume has a new space policy.
    Policy {
        /// The volume.
        volume: VolumeId,
        /// The new space policy.
        policy: SpacePolicy,
    },
    /// A volume has a new name.
    Rename {
        /// The volume.
        volume: VolumeId,
        /// The new name.
        name: Name,
    },
}

/// The limits and the reservation of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SpacePolicy {
    /// True if every write finds a free cluster: the volume is thick.
    pub reserved: bool,
    /// Maximum number of clusters that the volume refers to.
    pub quota: Option<u32>,
}

/// A record: its position in the log and the change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The ring.
    pub ring: Ring,
    /// The number in the ring.
    pub number: Number,
    /// The start of the pool that wrote the record. Records of a ring never follow records of a later start.
    pub start: Start,
    /// The change.
    pub change: Change,
}
