//! Builds a shard from its specification.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, mpsc};

use strake_block::{BufMut, BufPool};
use strake_ondisk::{BadList, Consistency, REDO_HEADER_BYTES};
use strake_parity::{Code, Recoveries};
use strake_raid::{Geometry, PARTS_MAX, Regions, Sets};
use strake_reactor::{Receiver, Scheduler, Sender};
use strake_units::{CoreIndex, MemberIndex, MemberSet, Nanos, RegionIndex};

use super::Shard;
use super::agreed::AgreedStrips;
use super::bad::BadTable;
use super::bands::Bands;
use super::degraded_reads::DegradedReads;
use super::leader::{Leader, LeaderState};
use super::members::{Capacity, Members};
use super::partial_writes::PartialWrites;
use super::peers::SitOuts;
use super::rebuild::{RebuildTable, Window};
use super::redo::{Redo, logging};
use super::regions::RegionTable;
use super::requests::Requests;
use super::scratch::{Buffers, Scratch};
use super::scrub::ScrubTable;
use super::small::{ParityCache, Records, Smalls};
use super::wait::WaitQueue;
use super::workers::Workers;
use crate::array::{Options, Waker};
use crate::error::{ArrayError, ArrayErrorKind};
use crate::limits::{
    DEGRADED_READS_MAX, IO_BYTES_MAX, ITEMS_MAX, JOIN_MAX, MAILBOX_DEPTH, MERGE_MAX,
    RECOVERIES_MAX, REQUESTS_MAX, SMALL_WRITES_MAX, TASKS_MAX, TASKS_RESERVED, WHOLE_STRIPES_MAX,
};
use crate::message::{Control, Peer, View};
use crate::roll::Roll;
use crate::shared_device::SharedDevice;
use crate::shared_status::SharedStatus;
use crate::trace::Tracer;

/// The mailboxes to and from another shard.
pub(crate) struct Link {
    pub(crate) send: Sender<Peer>,
    pub(crate) receive: Receiver<Peer>,
    pub(crate) wake: Waker,
}

/// The specification of a shard, which is sent to the core that drives the shard.
pub(crate) struct ShardSpec {
    pub(crate) core: u16,
    pub(crate) cores: u16,
    pub(crate) geometry: Geometry,
    pub(crate) regions: Regions,
    pub(crate) options: Options,
    pub(crate) shared: Arc<SharedStatus>,
    pub(crate) control: mpsc::Receiver<Control>,
    /// Links by shard; `None` for the shard itself.
    pub(crate) links: Vec<Option<Link>>,
    pub(crate) views: Vec<View>,
    /// For every region, the rebuilding members that lack the region.
    pub(crate) lacking: Arc<[MemberSet]>,
    pub(crate) devices: Vec<Option<SharedDevice>>,
    /// Regions of the whole array to be resynchronized.
    pub(crate) untrusted: Vec<RegionIndex>,
    pub(crate) leader: Option<LeaderState>,
    pub(crate) bad: Arc<BadList>,
    pub(crate) roll: Arc<Roll>,
    /// Members whose stripes had every write of the last activation in its redo log.
    pub(crate) replayed: MemberSet,
}

/// Capacities of a shard.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) tasks: usize,
    pub(super) requests: usize,
    small_writes: usize,
    whole_stripes: usize,
    degraded_reads: usize,
    items: usize,
}

impl Room {
    /// Scales all capacities with the number of tasks, relative to [`TASKS_MAX`].
    pub(super) fn of(options: &Options) -> Self {
        let tasks = options.tasks.clamp(2 * TASKS_RESERVED, TASKS_MAX);
        let share = |most: usize| (most * tasks / TASKS_MAX).max(1);
        Self {
            tasks,
            requests: share(REQUESTS_MAX),
            small_writes: share(SMALL_WRITES_MAX),
            whole_stripes: share(WHOLE_STRIPES_MAX),
            degraded_reads: share(DEGRADED_READS_MAX),
            items: share(ITEMS_MAX),
        }
    }

    /// Entries of the band table: for spans that the shard hands out itself, and for spans that every other shard may
    /// send.
    fn items(&self, cores: u16) -> usize {
        self.items + usize::from(cores) * MAILBOX_DEPTH + self.requests
    }

    /// Number of I/Os that tasks may have in progress, plus the I/Os to which parts of small writes, whole stripes and
    /// degraded reads may be promoted. Each task needs at most the I/Os of a band (every strip of a stripe, and more
    /// with merging), of joint reads, or of a flush of all members. The label task writes labels while it flushes.
    fn ios(&self, geometry: &Geometry) -> usize {
        let band = (usize::from(geometry.width()) + 2 * MERGE_MAX).max(JOIN_MAX);
        self.tasks * band.max(geometry.members() + 1)
            + geometry.members()
            + 1
            + self.small_writes * PARTS_MAX
            + self.whole_stripes * usize::from(geometry.width())
            + self.degraded_reads * usize::from(geometry.data_strips())
    }

    /// Number of operations that may hold a band without a task.
    fn held(&self) -> usize {
        self.small_writes + self.degraded_reads + self.requests
    }
}

/// The memory of a shard that its core does not allocate, see [`Buffers`].
pub(crate) struct ShardBuffers {
    scratch: Buffers,
    /// Buffers for headers of the redo log, in arrays with parity.
    pages: Option<BufPool>,
    records: Records,
}

/// Allocates the buffers of a shard.
pub(crate) fn buffers_of(geometry: &Geometry, options: &Options) -> ShardBuffers {
    // Each cached column has its parities and data.
    let kept = if caches_parity(geometry, options) {
        1 + usize::from(geometry.parity_strips())
    } else {
        0
    };
    let (room, width) = (Room::of(options), usize::from(geometry.width()));
    let has_parity = geometry.parity_strips() > 0;
    ShardBuffers {
        scratch: Buffers::new(room.tasks, options.scratch_bytes, band_bytes(geometry), width, kept),
        pages: has_parity.then(|| BufPool::new(room.tasks, REDO_HEADER_BYTES)),
        records: Records::new(if has_parity { room.small_writes } else { 0 }),
    }
}

fn band_bytes(geometry: &Geometry) -> usize {
    (geometry.band_blocks() << geometry.block_size().shift()) as usize
}

fn caches_parity(geometry: &Geometry, options: &Options) -> bool {
    options.cache && geometry.parity_strips() > 0 && geometry.has_small_writes()
}

/// Builds the shard of `spec` with its memory. Moves the state of the leader out of `spec`.
///
/// # Errors
/// If the queue of a member cannot be opened.
pub(super) fn build(
    spec: &mut ShardSpec,
    ShardBuffers { scratch, pages, records }: ShardBuffers,
    scheduler: &Scheduler,
) -> Result<Shard, ArrayError> {
    let geometry = spec.geometry;
    let room = Room::of(&spec.options);
    let block_size = geometry.block_size();
    let band_bytes = band_bytes(&geometry);
    let own = own_untrusted(spec);
    let mut region_table = RegionTable::new(scheduler, spec.regions.count());
    own.iter().for_each(|region| region_table.distrust(*region));
    let differ = geometry.copies() > 1 && !own.is_empty();
    let agreed = if differ { AgreedStrips::new() } else { AgreedStrips::none() };
    let mut redo = Redo::new(
        scheduler,
        Arc::clone(&spec.roll),
        (spec.core, spec.cores),
        band_bytes,
        room.tasks,
        pages,
    );
    let impaired = impaired(&spec.views);
    redo.begin(logging(&geometry, spec.roll.consistency, impaired));
    region_table.be_careless(spec.roll.consistency == Consistency::None);
    let leader = spec.leader.take().map(|state| RefCell::new(Leader::new(state, scheduler)));
    let counters = &spec.shared.cores[usize::from(spec.core)];
    let tracer = Tracer::new(Arc::clone(&counters.traces));
    let statistics = (Arc::clone(&counters.times), tracer);
    let requests = Requests::new(
        room.requests,
        block_size,
        geometry.capacity_blocks(),
        IO_BYTES_MAX,
        statistics,
    );
    let outbox = (0..spec.cores).map(|_| VecDeque::with_capacity(room.requests)).collect();
    let code = code_of(&geometry)?;
    let keeps = caches_parity(&geometry, &spec.options);
    let recoveries = code.as_ref().map(|code| RefCell::new(Recoveries::new(code, RECOVERIES_MAX)));
    Ok(Shard {
        core: spec.core,
        cores: spec.cores,
        geometry,
        regions: spec.regions,
        code,
        recoveries,
        merge: spec.options.merge,
        steer: spec.options.steer,
        zeroes: BufMut::alone(band_bytes).freeze(),
        now: Cell::new(Nanos(0)),
        hint: Cell::new(0),
        scheduler: scheduler.clone(),
        workers: RefCell::new(Workers::new(scheduler)),
        members: RefCell::new(open_members(spec, room)?),
        sets: Cell::new(Sets::default()),
        sits: RefCell::new(SitOuts::new()),
        smalls: RefCell::new(Smalls::new(room.small_writes, room.whole_stripes)),
        records: RefCell::new(records),
        partial_writes: RefCell::new(PartialWrites::new()),
        recorders: Cell::new(0),
        degraded_reads: RefCell::new(DegradedReads::new(
            geometry.data_strips(),
            room.degraded_reads,
            room.requests,
        )),
        parity_cache: RefCell::new(ParityCache::new(keeps)),
        bands: RefCell::new(Bands::new(room.items(spec.cores), room.held(), room.tasks)),
        requests: RefCell::new(requests),
        region_table: RefCell::new(region_table),
        redo: RefCell::new(redo),
        replayed: spec.replayed,
        rebuild: RefCell::new(RebuildTable::new(spec.core, spec.cores, &spec.lacking)),
        scrub: RefCell::new(ScrubTable::default()),
        window: RefCell::new(Window::new(scheduler)),
        untrusted: RefCell::new(own),
        scratch: RefCell::new(Scratch::new(scheduler, room.tasks, scratch)),
        bad: RefCell::new(BadTable::new(Arc::clone(&spec.bad), geometry.band_blocks(), scheduler)),
        views_waiting: RefCell::new(WaitQueue::new(scheduler)),
        copies_may_differ: Cell::new(!spec.untrusted.is_empty()),
        agreed: RefCell::new(agreed),
        remote_spans: RefCell::new(vec![0; usize::from(spec.cores)]),
        task_ios: room.ios(&geometry),
        maintaining: Cell::new(false),
        maintained: Cell::new(false),
        clients_shown: Cell::new(false),
        stopping: Cell::new(false),
        urgent: RefCell::new(VecDeque::with_capacity(TASKS_RESERVED)),
        concluding: RefCell::new(VecDeque::with_capacity(SMALL_WRITES_MAX)),
        jobs: RefCell::new(VecDeque::with_capacity(room.requests + TASKS_RESERVED)),
        retries: RefCell::new(VecDeque::new()),
        outbox: RefCell::new(outbox),
        leader,
        shared: Arc::clone(&spec.shared),
    })
}

/// Returns the members that are not in sync.
pub(super) fn impaired(views: &[View]) -> MemberSet {
    let out = views.iter().enumerate().filter(|(_, view)| **view != View::InSync);
    out.map(|(at, _)| at).collect()
}

fn own_untrusted(spec: &ShardSpec) -> VecDeque<RegionIndex> {
    let ours = |r: &RegionIndex| spec.regions.owner(*r, spec.cores) == CoreIndex(spec.core);
    spec.untrusted.iter().copied().filter(ours).collect()
}

fn open_members(spec: &ShardSpec, room: Room) -> Result<Members, ArrayError> {
    let geometry = &spec.geometry;
    let inflight = room.ios(geometry) + 2 * room.requests;
    let core = CoreIndex(spec.core);
    let times = Arc::clone(&spec.shared.cores[usize::from(spec.core)].times);
    let limits = spec.options.io_limits;
    let capacity = Capacity { inflight, tasks: room.tasks, requests: room.requests, limits };
    let mut members =
        Members::new(core, geometry.block_size(), geometry.members(), capacity, times);
    for (at, device) in spec.devices.iter().enumerate() {
        if let Some(device) = device {
            members.install(MemberIndex(at as u8), device, strake_ondisk::HEAD_BYTES)?;
        }
    }
    members.set_views(&spec.views);
    members.settle_views();
    Ok(members)
}

fn code_of(geometry: &Geometry) -> Result<Option<Code>, ArrayError> {
    if geometry.parity_strips() == 0 {
        return Ok(None);
    }
    let (data, parity) =
        (usize::from(geometry.data_strips()), usize::from(geometry.parity_strips()));
    let code = Code::new(data, parity);
    code.map(Some).map_err(|e| ArrayError::new(ArrayErrorKind::Usage, e.to_string()))
}
