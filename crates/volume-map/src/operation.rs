//! Operations as values: the steps for a driver, the waits, and the end of an operation.

use strake_units::Name;

use crate::blocks::Blocks;
use crate::epoch::Epoch;
use crate::error::Error;
use crate::ids::{ClusterId, Number, Ring, VolumeId};
use crate::record::SpacePolicy;
use crate::state::MapState;
use crate::step_kind::StepKind;
use crate::tables::Part;

pub(crate) mod checkpoint;
pub(crate) mod fill;
pub(crate) mod io;
pub(crate) mod leader;
pub(crate) mod read;
pub(crate) mod resize;
pub(crate) mod snapshot;
pub(crate) mod sweep;

/// Whether the data of a write must be stable when the step has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stability {
    /// The data may be in volatile caches.
    Cached,
    /// The data survive a power loss: FUA if a drive has a volatile cache.
    Stable,
}

/// Whether a resize may discard blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tail {
    /// A smaller size is refused.
    Keep,
    /// A smaller size discards the blocks beyond it.
    Discard,
}

/// A request of a host, an operator or the driver. The blocks are in one cluster: see
/// [`Shape::parts`](crate::Shape::parts).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Reads blocks.
    Read {
        /// The volume.
        volume: VolumeId,
        /// The cluster in the volume.
        index: u32,
        /// The blocks of the cluster.
        blocks: Blocks,
    },
    /// Writes blocks.
    Write {
        /// The volume.
        volume: VolumeId,
        /// The cluster in the volume.
        index: u32,
        /// The blocks of the cluster.
        blocks: Blocks,
        /// Whether the host requested FUA.
        stability: Stability,
        /// The core that received the request.
        core: Ring,
    },
    /// Discards blocks: they are zero afterwards. A whole cluster is given up.
    Discard {
        /// The volume.
        volume: VolumeId,
        /// The cluster in the volume.
        index: u32,
        /// The blocks of the cluster.
        blocks: Blocks,
        /// The core that received the request.
        core: Ring,
    },
    /// Allocates an unmapped cluster of a volume, so that later first writes find it. All blocks remain zero.
    Allocate {
        /// The volume.
        volume: VolumeId,
        /// The cluster in the volume.
        index: u32,
    },
    /// Copies the missing blocks of a partial cluster.
    Fill {
        /// The volume.
        volume: VolumeId,
        /// The cluster in the volume.
        index: u32,
    },
    /// Creates a volume.
    Create {
        /// The name of the volume.
        name: Name,
        /// The size of the volume in blocks.
        blocks: u64,
        /// The space policy of the volume.
        policy: SpacePolicy,
    },
    /// Takes snapshots of volumes at the same time.
    Snapshot {
        /// Each volume, and the name of its snapshot.
        volumes: Vec<(VolumeId, Name)>,
    },
    /// Makes a writable copy of a snapshot.
    Clone {
        /// The snapshot.
        snapshot: VolumeId,
        /// The name of the copy.
        name: Name,
    },
    /// Gives a volume the content of a snapshot.
    Rollback {
        /// The volume.
        volume: VolumeId,
        /// The snapshot, of the same size.
        snapshot: VolumeId,
    },
    /// Deletes a volume or snapshot. Its space returns by [`Request::Sweep`].
    Delete {
        /// The volume.
        volume: VolumeId,
    },
    /// Gives up the leaves of a deleted volume, one step at a time.
    Sweep {
        /// The volume; see [`VolumeMap::dying`](crate::VolumeMap::dying).
        volume: VolumeId,
    },
    /// Changes the size of a volume.
    Resize {
        /// The volume.
        volume: VolumeId,
        /// The new size of the volume in blocks.
        blocks: u64,
        /// Whether blocks may be discarded.
        tail: Tail,
    },
    /// Changes the space policy of a volume.
    SetPolicy {
        /// The volume.
        volume: VolumeId,
        /// The new space policy.
        policy: SpacePolicy,
    },
    /// Gives a volume or snapshot another name.
    Rename {
        /// The volume.
        volume: VolumeId,
        /// The new name.
        name: Name,
    },
    /// Writes a root, so that the log can be trimmed.
    Checkpoint,
}

/// A step that the driver must execute before the operation continues. A step is released only after all required
/// earlier steps have completed, and are stable where this is necessary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Write the host's data to blocks of a cluster.
    Write {
        /// The cluster.
        cluster: ClusterId,
        /// The blocks.
        blocks: Blocks,
        /// Whether the data must be stable.
        stability: Stability,
    },
    /// Read blocks, in parts.
    Read {
        /// The parts, in order.
        parts: Vec<Part>,
    },
    /// Read all parts, then write them to a cluster at the same offsets. The data must be stable.
    Copy {
        /// The parts, in order.
        parts: Vec<Part>,
        /// The cluster.
        to: ClusterId,
        /// Blocks that receive the host's data instead.
        data: Option<Blocks>,
    },
    /// Stop new writes on a core. I/Os in progress continue.
    Hold {
        /// The core.
        core: Ring,
    },
    /// Flush the volatile caches of all drives.
    Flush,
    /// Wait as the pace of background work requires.
    Pace,
    /// Write a root; the write must be stable. [`VolumeMap::root_piece`](crate::VolumeMap::root_piece) returns its
    /// bytes.
    WriteRoot {
        /// The slot of the root, one of two.
        place: u8,
        /// The sequence of the root.
        sequence: u64,
        /// The first record number of each ring that the root lacks. All earlier records are stable.
        floors: Vec<Number>,
    },
}

impl Step {
    /// The kind of the step.
    #[must_use]
    pub const fn kind(&self) -> StepKind {
        match self {
            Self::Write { .. } => StepKind::Write,
            Self::Read { .. } => StepKind::Read,
            Self::Copy { .. } => StepKind::Copy,
            Self::Hold { .. } => StepKind::Hold,
            Self::Flush => StepKind::Flush,
            Self::Pace => StepKind::Pace,
            Self::WriteRoot { .. } => StepKind::WriteRoot,
        }
    }
}

/// The condition that an operation waits for. [`VolumeMap::woken`](crate::VolumeMap::woken) returns the operations
/// whose wait may have ended. Such an operation may change the map and wait for the same condition again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wait {
    /// The released step.
    Step,
    /// A snapshot, rollback or resize holds new writes.
    Hold,
    /// Another change of the same cluster.
    Cluster {
        /// The volume.
        volume: VolumeId,
        /// The cluster in the volume.
        index: u32,
    },
    /// I/Os that started before a cut.
    OlderIo {
        /// The last epoch before the cut.
        epoch: Epoch,
    },
    /// A record that is not stable yet.
    Records {
        /// Its ring.
        ring: Ring,
        /// Its number.
        number: Number,
    },
    /// Another operation on whole volumes, or another checkpoint.
    Leader,
    /// A free cluster. [`VolumeMap::cancel`](crate::VolumeMap::cancel) ends the wait.
    Space,
    /// A checkpoint, after which a free cluster of another ring is usable. `cancel` ends this wait too.
    Checkpoint,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Done {
    /// The request was executed.
    Done,
    /// A new volume, or new snapshots in the order of the request.
    Made(Vec<VolumeId>),
    /// A deletion or rollback was recorded. The space of this volume returns by [`Request::Sweep`].
    Dying(VolumeId),
}

/// The progress of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The driver executes this step, then calls [`VolumeMap::completed`](crate::VolumeMap::completed) or
    /// [`VolumeMap::failed`](crate::VolumeMap::failed).
    Do(Step),
    /// The operation waits.
    Wait(Wait),
    /// The operation has ended, and the request may be answered.
    Finished(Result<Done, Error>),
}

/// The epoch of an operation, if the operation has entered one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Entered(Option<Epoch>);

impl Entered {
    pub(crate) fn enter(&mut self, map: &mut MapState) {
        if self.0.is_none() {
            self.0 = Some(map.epochs.enter());
        }
    }

    pub(crate) fn leave(&mut self, map: &mut MapState) {
        if let Some(epoch) = self.0.take()
            && map.epochs.leave(epoch)
        {
            map.changes.are_older_back = true;
            map.settle();
        }
    }
}
