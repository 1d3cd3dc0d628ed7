//! What shards say to each other, and what the control plane says to them.
//!
//! Messages between two shards keep their order. A shard's message to itself takes the same path, so there is
//! one order of events and no re-entrancy.

use std::sync::Arc;
use std::sync::mpsc;

use strake_block::{Completion, Durability, Io, IoError, IoErrorKind, Sg, SgMut};
use strake_ondisk::{BadEvent, BadList, Bits, Consistency, Superblock};
use strake_raid::{Band, MemberEvent};
use strake_reactor::{Receiver, Sender};
use strake_units::{LbaRange, MemberIndex, Name, PositionSet, RegionIndex, Uuid};

use crate::error::ArrayError;
use crate::scrub::ScrubOrder;
use crate::shard::{Pairing, Roll, SharedDevice};

/// Where the answer to a span goes: a host request of some shard, or that shard's own maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Request `request` accepted by shard `shard`.
    Host { shard: u16, request: u32 },
    /// The maintenance task of the shard that holds the item.
    Maintenance,
}

/// The operation of a span on its part of a band.
#[derive(Debug)]
pub(crate) enum Work {
    /// Read the range, which lies in one strip, into the buffer. Positions in `unreadable` could not be read, those in
    /// `avoid` are to be read only if there is no other way: they take long.
    Read { range: LbaRange, data: SgMut, unreadable: PositionSet, avoid: PositionSet },
    /// Change the parts of the range that lie in the band. The data is the whole request's.
    Write { range: LbaRange, fill: Fill, durability: Durability },
    /// Make parity (or copies) agree with the data.
    Resync,
    /// Fill the strips of the members being rebuilt.
    Rebuild,
    /// See whether parity (or copies) agree with the data.
    Scrub { order: ScrubOrder },
}

/// What a write writes.
#[derive(Clone, Debug)]
pub(crate) enum Fill {
    /// These bytes.
    Data(Sg),
    /// Zeroes.
    Zeroes,
    /// Zeroes by deallocation, only where a whole band goes; partial bands are left alone.
    Deallocate,
}

/// One request's part in one band, on its way to the band's owner.
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
    /// A read's buffer.
    pub(crate) data: Option<SgMut>,
}

/// How a shard may use a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Read and written everywhere.
    InSync,
    /// Written everywhere; read only in regions that it does not lack.
    Rebuilding,
    /// Not used.
    Absent,
}

/// Something that happened to blocks of a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BadNote {
    pub(crate) member: MemberIndex,
    /// From the start of the member's data area.
    pub(crate) range: LbaRange,
    pub(crate) event: BadEvent,
}

/// Shard to shard.
#[derive(Debug)]
pub(crate) enum Peer {
    /// Work for a band that the receiver owns.
    Span(Span),
    /// A write of data in one strip of one band, which may begin at once.
    Small(Span),
    /// The answer.
    Done(SpanDone),

    /// To the leader.
    Lead(ToLeader),

    /// From the leader: writes to `region` are recorded, go ahead (or not: the array has stopped).
    Intended { region: RegionIndex, result: Result<(), IoErrorKind> },
    /// From the leader: use members like this from now on, and believe none of these blocks.
    Views { version: u64, views: Arc<[View]>, pairing: Pairing, bad: Arc<BadList>, roll: Arc<Roll> },
    /// From the leader: the list is changed, on every live member and for every shard (or not: it is full, or the array
    /// has stopped).
    BadNoted { ticket: u64, result: Result<(), IoErrorKind> },
    /// From the leader, to every shard that writes the member by now: this is all that it lacks.
    Lacks { member: MemberIndex, bitmap: Arc<Bits> },
    /// From the leader: every shard has the last views.
    Settled,
    /// From the leader: report regions without writes since the last sweep. An urgent one is not waited for by the
    /// clock.
    Sweep { urgent: bool },
    /// From the leader: try again what maintenance had to stop.
    Resume,
    /// From the leader: the first resync is through, any copy may be read.
    CopiesAgree,
    /// From the leader: the array has lost too many members, stop.
    Lost,
}

/// Shard to the leader.
#[derive(Debug)]
pub(crate) enum ToLeader {
    /// Record that `region` may be written.
    Intend { from: u16, region: RegionIndex },
    /// Members that the array cannot do without have been stalled for too long.
    Hopeless,
    /// Change the labels.
    Change(Change),
    /// The views of `version` are in force at `from`.
    Applied { from: u16, version: u64 },
    /// No write is under way at `from` that began before the views of `version` were in force there, and no region is
    /// untrusted.
    Drained { from: u16, version: u64 },
    /// From every shard: regions without writes since the sweep before.
    Swept { urgent: bool, idle: Vec<RegionIndex> },
    /// From the region's owner: `region` is complete on `member`, if not yet stable.
    Rebuilt { member: MemberIndex, region: RegionIndex },
    /// Maintenance had to stop, see [`CoreCounters::halted`](crate::shared_status::CoreCounters).
    Halted { what: u64 },
    /// From every shard that had any: its regions are all resynchronized.
    Resynced,
}

/// Control plane to a shard. These may allocate: they are rare.
pub(crate) enum Control {
    /// A new array queue on this core.
    Connect { requests: Receiver<Io>, replies: Sender<Completion> },
    /// Open the device behind a member (again).
    Install { member: MemberIndex, device: SharedDevice, reply: Reply },
    /// Close the device that was opened behind a member: it will not take the place.
    Release { member: MemberIndex },
    /// To the leader: change the labels.
    Change { change: Change, reply: Reply },
    /// To the leader: try again what maintenance had to stop.
    Resume { reply: Reply },
    /// What is asked of maintenance has changed.
    Pace,
    /// What is asked of the scrub has changed.
    Scrub,
    /// Begin no more maintenance and take no more writes; answer when nothing is in flight.
    Quiesce { reply: mpsc::Sender<()> },
    /// The same, and answer when members owe nothing, not even answers that no task waits for.
    Drain { reply: mpsc::Sender<()> },
}

/// What the control plane is answered.
pub(crate) type Answer = Result<(), ArrayError>;

/// Where the control plane gets its answer.
pub(crate) type Reply = mpsc::Sender<Answer>;

/// Something that changes the labels, for the leader's label task.
#[derive(Debug)]
pub(crate) enum Change {
    /// A member, or the replacement of one, goes out of use.
    Fail { member: MemberIndex, reason: FailReason },
    /// The drives in members' places change.
    Reconfigure(Reconfigure),
    /// The array gets another name.
    Rename { name: Name },
    /// Writes are made safe against crashes in another way.
    Consistency { mode: Consistency },
    /// No shard has a write under way that is older than the views of this version.
    Drained { version: u64 },
    /// The list of bad blocks changes, and shard `from` is answered under the number of the ticket.
    Bad { from: u16, ticket: u64, notes: Vec<BadNote> },
    /// What was rebuilt is to be recorded.
    Checkpoint,
    /// Nothing is left to rebuild on the member.
    Rebuilt { member: MemberIndex },
    /// Every shard is quiet: record a clean stop.
    Stop,
}

/// Why a member is to go out of use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FailReason {
    /// It failed an I/O that it may not fail. `copied`: a replacement was being filled where it failed, so the
    /// replacement had its own place.
    Io { cause: IoErrorKind, copied: bool },
    /// The control plane requests it.
    Request(MemberEvent),
}

/// Something that changes which drive has a member's place.
#[derive(Debug)]
pub(crate) enum Reconfigure {
    /// The installed drive takes the member's place and is to be rebuilt.
    Replace(IncomingDrive),
    /// The installed drive, which holds `label`, is taken back as the member it was.
    Readd { drive: IncomingDrive, label: Box<Superblock> },
    /// The drive installed behind the last member is to be filled and then to take the member's place.
    BeginReplacement(IncomingDrive),
    /// The member keeps its place.
    CancelReplacement { member: MemberIndex },
    /// The replacement holds everything.
    Filled,
    /// The member that had a replacement has failed: the replacement takes its place as it is.
    TakeOver,
}

/// A drive that comes into a member's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IncomingDrive {
    pub(crate) member: MemberIndex,
    pub(crate) uuid: Uuid,
    pub(crate) bytes: u64,
    pub(crate) path: String,
}
