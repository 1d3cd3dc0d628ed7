//! Messages between shards, and from the control plane to shards.
//!
//! Messages between two shards keep their order. A message of a shard to itself takes the same path, so all events have
//! one order, and there is no re-entrancy.

use std::sync::Arc;
use std::sync::mpsc;

use strake_block::{Completion, Durability, Io, IoError, IoErrorKind, Sg, SgMut};
use strake_ondisk::{BadEvent, BadList, Bits, Consistency, Superblock};
use strake_raid::{Band, MemberEvent};
use strake_reactor::{Receiver, Sender};
use strake_units::{LbaRange, MemberIndex, Name, PositionSet, RegionIndex, Uuid};

use crate::error::ArrayError;
use crate::roll::Roll;
use crate::scrub::ScrubOrder;
use crate::shared_device::SharedDevice;
use crate::trace::Stages;

/// The recipient of the answer to a span: a host request of some shard, or the maintenance of this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Request `request` accepted by shard `shard`.
    Host { shard: u16, request: u32 },
    /// The maintenance task of the shard that holds the item.
    Maintenance,
}

/// The operation of a span on a band.
#[derive(Debug)]
pub(crate) enum Work {
    /// Read the range, which lies in one strip, into the buffer. Positions in `unreadable` could not be read. Positions
    /// in `avoid` are slow, and are read only if nothing else suffices.
    Read { range: LbaRange, data: SgMut, unreadable: PositionSet, avoid: PositionSet },
    /// Write the parts of the range in the band. `fill` contains the data of the whole request.
    Write { range: LbaRange, fill: Fill, durability: Durability },
    /// Make parity or copies consistent with the data.
    Resync,
    /// Fill the strips of the members being rebuilt.
    Rebuild,
    /// Compare parity or copies with the data.
    Scrub { order: ScrubOrder },
}

impl Work {
    /// Returns the range of a write of data, and `None` for other operations.
    pub(crate) const fn written_data(&self) -> Option<LbaRange> {
        match self {
            Self::Write { range, fill: Fill::Data(_), .. } => Some(*range),
            Self::Write { .. }
            | Self::Read { .. }
            | Self::Resync
            | Self::Rebuild
            | Self::Scrub { .. } => None,
        }
    }
}

/// The content that a write writes.
#[derive(Clone, Debug)]
pub(crate) enum Fill {
    /// These bytes.
    Data(Sg),
    /// Zeroes.
    Zeroes,
    /// Zeroes by deallocation of whole bands. Partial bands are not changed.
    Deallocate,
}

/// The part of a request in one band, sent to the owner of the band.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) band: Band,
    pub(crate) work: Work,
    pub(crate) origin: Origin,
}

/// The answer to a span.
#[derive(Debug)]
pub(crate) struct SpanDone {
    pub(crate) request: u32,
    pub(crate) result: Result<(), IoError>,
    /// The buffer of a read.
    pub(crate) data: Option<SgMut>,
    /// The stages of the span at its owner.
    pub(crate) stages: Stages,
}

/// Permitted use of a member by a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// The member is read and written everywhere.
    InSync,
    /// The member is written everywhere, and read only in regions that it does not lack.
    Rebuilding,
    /// The member is not used.
    Absent,
}

/// The devices of a member that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// Only its own device.
    None,
    /// The replacement of this member is written too.
    Copying(MemberIndex),
    /// The member has failed, and its replacement is about to get the slot.
    Orphaned(MemberIndex),
    /// The replacement has the slot of this member, and the old device is written too.
    Swapped(MemberIndex),
    /// The replacement has the slot of this failed member. The old device is not used.
    TakenOver(MemberIndex),
}

/// A change to the list of bad blocks of a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BadNote {
    pub(crate) member: MemberIndex,
    /// Range of blocks, from the start of the member's data area.
    pub(crate) range: LbaRange,
    pub(crate) event: BadEvent,
}

/// Messages between shards.
#[derive(Debug)]
pub(crate) enum Peer {
    /// Work for a band that the receiver owns.
    Span(Span),
    /// A write of data in one strip of one band, which may start immediately.
    Small(Span),
    /// The answer to a span.
    Done(SpanDone),

    /// A message to the leader.
    Lead(ToLeader),

    /// From the leader: the intent to write `region` is recorded, so writes may start. With an error, the array has
    /// stopped.
    Intended { region: RegionIndex, result: Result<(), IoErrorKind> },
    /// From the leader: use members according to `views`, and do not trust the blocks in `bad`.
    Views { version: u64, views: Arc<[View]>, pairing: Pairing, bad: Arc<BadList>, roll: Arc<Roll> },
    /// From the leader: the list of bad blocks is changed on every live member and for every shard. With an error, the
    /// list is full or the array has stopped.
    BadNoted { ticket: u64, result: Result<(), IoErrorKind> },
    /// From the leader, after every shard writes the member: `bitmap` contains all regions that the member lacks.
    Lacks { member: MemberIndex, bitmap: Arc<Bits> },
    /// From the leader: every shard has applied the last views.
    Settled,
    /// From the leader: report regions without writes since the last sweep. An urgent sweep does not wait for the sweep
    /// interval.
    Sweep { urgent: bool },
    /// From the leader: resume halted maintenance.
    Resume,
    /// From the leader: the first resync has finished, so any copy may be read.
    CopiesAgree,
    /// From the leader: too many members are absent; stop.
    Lost,
}

/// Messages from a shard to the leader.
#[derive(Debug)]
pub(crate) enum ToLeader {
    /// Record the intent to write `region`.
    Intend { from: u16, region: RegionIndex },
    /// Members without which the array fails have been stalled for too long.
    Hopeless,
    /// Change the labels.
    Change(Change),
    /// Shard `from` has applied the views of `version`.
    Applied { from: u16, version: u64 },
    /// Shard `from` has no write in progress that is older than its views of `version`, and no untrusted region.
    Drained { from: u16, version: u64 },
    /// From every shard: regions without writes since the previous sweep.
    Swept { urgent: bool, idle: Vec<RegionIndex> },
    /// From the owner of the region: `region` is complete on `member`, but may not be stable yet.
    Rebuilt { member: MemberIndex, region: RegionIndex },
    /// Maintenance halted, see [`CoreCounters::halted`](crate::shared_status::CoreCounters).
    Halted { what: u64 },
    /// From every shard that had untrusted regions: all of them are resynchronized.
    Resynced,
}

/// Messages from the control plane to a shard. These messages are rare, so they may allocate.
pub(crate) enum Control {
    /// A new array queue on this core.
    Connect { requests: Receiver<Io>, replies: Sender<Completion> },
    /// Open the device of a member.
    Install { member: MemberIndex, device: SharedDevice, reply: Reply },
    /// Close the device that was opened for a member, because the device will not get the slot.
    Release { member: MemberIndex },
    /// To the leader: change the labels.
    Change { change: Change, reply: Reply },
    /// To the leader: resume halted maintenance.
    Resume { reply: Reply },
    /// The settings of maintenance have changed.
    Pace,
    /// The settings of the scrub have changed.
    Scrub,
    /// Start no more maintenance, accept no more writes, and answer when nothing is in progress.
    Quiesce { reply: mpsc::Sender<()> },
    /// Like `Quiesce`, but answer only when the members have completed all I/Os, including abandoned I/Os.
    Drain { reply: mpsc::Sender<()> },
}

/// An answer to the control plane.
pub(crate) type Answer = Result<(), ArrayError>;

/// The channel for the answer to the control plane.
pub(crate) type Reply = mpsc::Sender<Answer>;

/// A change of the labels, for the label task of the leader.
#[derive(Debug)]
pub(crate) enum Change {
    /// A member, or the replacement of one, goes out of use.
    Fail { member: MemberIndex, reason: FailReason },
    /// The assignment of drives to slots changes.
    Reconfigure(Reconfigure),
    /// The name of the array changes.
    Rename { name: Name },
    /// The consistency mode changes.
    Consistency { mode: Consistency },
    /// No shard has a write in progress that is older than the views of this version.
    Drained { version: u64 },
    /// The list of bad blocks changes. The answer to shard `from` contains the ticket.
    Bad { from: u16, ticket: u64, notes: Vec<BadNote> },
    /// The progress of a rebuild is recorded.
    Checkpoint,
    /// The rebuild of the member is complete.
    Rebuilt { member: MemberIndex },
    /// Every shard is quiescent: record a clean shutdown.
    Stop,
}

/// The reason why a member goes out of use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FailReason {
    /// The member failed an I/O. `copied`: a replacement was being filled when the I/O failed, so the replacement was
    /// not yet in the slot of the member.
    Io { cause: IoErrorKind, copied: bool },
    /// The control plane requested the change.
    Request(MemberEvent),
}

/// A change of the drive in a slot.
#[derive(Debug)]
pub(crate) enum Reconfigure {
    /// The installed drive gets the slot of the member and is rebuilt.
    Replace(IncomingDrive),
    /// The installed drive, which has the label `label`, is re-added as its former member.
    Readd { drive: IncomingDrive, label: Box<Superblock> },
    /// The drive installed after the last member is filled, and then gets the slot of the member.
    BeginReplacement(IncomingDrive),
    /// The replacement is cancelled, and the member keeps its slot.
    CancelReplacement { member: MemberIndex },
    /// The replacement has all data.
    Filled,
    /// The member with the replacement has failed. The incomplete replacement gets its slot.
    TakeOver,
}

/// A drive that gets the slot of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IncomingDrive {
    pub(crate) member: MemberIndex,
    pub(crate) uuid: Uuid,
    pub(crate) bytes: u64,
    pub(crate) path: String,
}
