//! Messages between threads and the pool core: control requests, their answers, and new queues.

use std::sync::Arc;
use std::sync::mpsc;

use strake_block::{Completion, Io};
use strake_reactor::{CoreHandle, Receiver, Sender};
use strake_units::Name;
use strake_volume_map::{
    Error, PoolSpace, SpacePolicy, Span, Tail, VolumeId, VolumeKind, VolumeSpace,
};

use crate::grace::Section;
use crate::view::View;

/// A request of an operator.
#[derive(Clone, Debug)]
pub enum Request {
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
    /// Gives a volume the content of a snapshot of the same size and family.
    Rollback {
        /// The volume.
        volume: VolumeId,
        /// The snapshot.
        snapshot: VolumeId,
    },
    /// Deletes a volume or snapshot. The answer arrives before its space returns.
    Delete {
        /// The volume.
        volume: VolumeId,
    },
    /// Changes the size of a volume.
    Resize {
        /// The volume.
        volume: VolumeId,
        /// The new size in blocks.
        blocks: u64,
        /// Whether blocks may be discarded.
        tail: Tail,
    },
    /// Changes the space policy of a volume.
    SetPolicy {
        /// The volume.
        volume: VolumeId,
        /// The new policy.
        policy: SpacePolicy,
    },
    /// Gives a volume or snapshot another name.
    Rename {
        /// The volume.
        volume: VolumeId,
        /// The new name.
        name: Name,
    },
    /// Returns the space and all volumes of the pool.
    Status,
    /// Returns the space of a volume. One request walks a part of the map of the volume: [`SpacePart::next`] says where
    /// the next request begins.
    Space {
        /// The volume.
        volume: VolumeId,
        /// The first leaf of the map.
        first: usize,
    },
    /// Returns ranges of a volume that may differ from another volume of its family. One request searches a part of the
    /// volume: [`Found::next`] says where the next request begins.
    Differences {
        /// The other volume, usually an older snapshot.
        from: VolumeId,
        /// The volume.
        to: VolumeId,
        /// The first block to compare.
        first: u64,
    },
    /// Writes a root, so that the log of earlier changes is not needed.
    Checkpoint,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The request was executed.
    Done,
    /// The new volume, or the new snapshots in the order of the request.
    Created(Vec<VolumeId>),
    /// See [`Request::Status`].
    Status(PoolStatus),
    /// See [`Request::Space`].
    Space(SpacePart),
    /// See [`Request::Differences`].
    Differences(Found),
}

/// The space of a part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpacePart {
    /// The space of the whole volume, except that `exclusive` counts only this part, and `shared` nothing.
    pub space: VolumeSpace,
    /// The first leaf that was not counted. `None` at the end of the volume.
    pub next: Option<usize>,
}

/// Ranges of a volume that may differ from another volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The ranges, in order. Blocks between them are equal.
    pub spans: Vec<Span>,
    /// The first block that was not compared. `None` at the end of the volume.
    pub next: Option<u64>,
}

/// The state of a pool at one time.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// The clusters of the pool.
    pub space: PoolSpace,
    /// Bytes of a cluster.
    pub cluster_bytes: u32,
    /// Number of clusters.
    pub clusters: u32,
    /// Bytes of a block of each volume.
    pub block_bytes: u32,
    /// True if the log cannot be written: only reads are served until the next start.
    pub is_read_only: bool,
    /// Volumes, snapshots and clones that are being deleted. Their space returns later.
    pub deleting: usize,
    /// Blocks of the log that are in use, and all of them.
    pub log_blocks: (u64, u64),
    /// The volumes, in the order of their identifiers.
    pub volumes: Vec<VolumeRow>,
}

/// A volume, snapshot or clone.
#[derive(Clone, Debug)]
pub struct VolumeRow {
    /// The identifier, which is never used again.
    pub id: VolumeId,
    /// The name, which is unique in the pool.
    pub name: Name,
    /// The size in blocks.
    pub blocks: u64,
    /// Whether the content changes.
    pub kind: VolumeKind,
    /// The volume of a snapshot, or the snapshot of a clone. It may have been deleted since.
    pub origin: Option<VolumeId>,
    /// The space policy.
    pub policy: SpacePolicy,
    /// Clusters that the volume refers to.
    pub mapped: u32,
}

/// What a device of a volume needs from the pool core.
#[derive(Debug)]
pub struct Facts {
    pub(crate) view: Arc<View>,
    pub(crate) kind: VolumeKind,
}

/// A message of a control thread.
pub(crate) enum Control {
    /// A request, and the sender of its answer.
    Request { request: Request, reply: mpsc::Sender<Result<Answer, Error>> },
    /// Returns the facts of a volume. The sender is dropped without such a volume.
    Open { volume: VolumeId, reply: mpsc::Sender<Facts> },
    /// A new queue of a volume.
    Connect {
        volume: VolumeId,
        requests: Receiver<Io>,
        replies: Sender<Completion>,
        wake: Option<CoreHandle>,
        section: Arc<Section>,
    },
    /// Ends everything in progress, writes a root and answers. Later requests fail.
    Stop { reply: mpsc::Sender<()> },
    /// Ends without a root, and answers when no I/O is in progress.
    Quit { reply: mpsc::Sender<()> },
}
