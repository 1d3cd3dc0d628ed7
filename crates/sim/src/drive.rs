//! A drive: bytes, a cache that a power cut empties, a latency, and the faults of a real one.
//!
//! | fault | what the array sees | what is left |
//! |---|---|---|
//! | medium | reads of a block fail until it is written | the bytes are gone |
//! | device | an I/O fails | a failed write may be done in part |
//! | delay | a late completion, within the time limit | done |
//! | hang | a completion after the time limit of the engine, or none | done, in part or not |
//! | vanish | all I/O fails with "gone" | I/O in flight may be done in part |
//! | kill | the queues end | completed writes stay; I/O in flight may be done in part |
//! | power cut | the queues end | flushed and FUA writes stay; any part of the rest, in order |
//! | lie about flush | nothing, until a power cut | the content at the start of the lie |
//! | slow, stall | late completions of this drive or of all | done |
//! | silence | no completions for a time, or permanently | done, in part or not |
//! | late | nothing: a remote drive whose daemon was killed | done at any time within its settle time |
//!
//! "In part" means some of the write's blocks of 512 B or 4 KiB. A block of the array is never cut, even where the
//! drive's are smaller: nothing promises that, and an array of 4 KiB blocks on drives that do cut theirs has no
//! better blocks than these.

mod away;
mod labels;
mod lie;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use strake_block::{
    BlockDevice, CompletionBatch, DeallocateReads, DeviceError, DeviceInfo, DeviceKind, Durability,
    Io, IoErrorKind, IoQueue, Op, Readiness, VolatileCache,
};
use strake_units::{BlockSize, CoreIndex, Nanos};

use crate::faults::Faults;
use crate::medium::{Medium, PageBytes};
use crate::rng::Rng;
use crate::trace::Trace;
pub use away::FOREVER;
pub use lie::{Lie, differing};
use state::{DriveState, Lane};

/// The properties of a drive.
#[derive(Clone, Copy, Debug)]
pub struct DriveSpec {
    /// Bytes, a multiple of 4 KiB.
    pub bytes: u64,
    /// Block size.
    pub block_size: BlockSize,
    /// Whether there is a volatile cache.
    pub cache: VolatileCache,
    /// The content of deallocated blocks.
    pub deallocate: DeallocateReads,
    /// Time for which its target may continue after the end of a daemon that used it; zero for a local drive.
    pub settle_time: Nanos,
}

/// The name in counts of writes that a target executed after the end of the daemon.
pub const LATE: &str = "late";

/// Time for which a remote drive holds requests, as in docs/decisions/0028.
const HOLD: Nanos = Nanos(24 * Nanos::SECOND.0);

/// The kind of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process ends, the drives continue.
    Kill,
    /// The power failed.
    Power,
}

/// A simulated drive. Clones are the same drive.
#[derive(Clone)]
pub struct SimDrive(Arc<Mutex<DriveState>>);

impl SimDrive {
    /// A new drive for member `slot`, filled with junk unless it guarantees zeroes.
    #[must_use]
    pub fn new(
        spec: DriveSpec,
        slot: u8,
        serial: u64,
        rng: &mut Rng,
        trace: &Trace,
        faults: &Faults,
    ) -> Self {
        let mut rng = rng.fork();
        let junk = (spec.deallocate != DeallocateReads::Zeroes).then(|| rng.bits());
        let medium = Medium::new(spec.bytes, junk);
        Self(Arc::new(Mutex::new(DriveState {
            spec,
            name: format!("sim:{serial}"),
            slot,
            rng,
            trace: trace.clone(),
            faults: faults.clone(),
            stable: medium.clone(),
            visible: medium,
            unflushed: Vec::new(),
            writes: 0,
            bad: BTreeSet::new(),
            doomed: false,
            hung: false,
            gone: false,
            slowness: 1,
            hanging: false,
            lying: false,
            reported: None,
            away: away::Away::default(),
            lanes: BTreeMap::new(),
            next_lane: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, DriveState> {
        let mut state = self.0.lock().expect("one thread runs the world");
        state.catch_up();
        state
    }

    /// Its name, which is also its identity.
    #[must_use]
    pub fn name(&self) -> String {
        self.state().name.clone()
    }

    /// True if it can no longer be a member in sync.
    #[must_use]
    pub fn is_doomed(&self) -> bool {
        let state = self.state();
        state.doomed || state.gone
    }

    /// True if one of its I/Os hangs by a fault, and not because the drive is silent.
    #[must_use]
    pub fn is_hung(&self) -> bool {
        self.state().hung
    }

    /// True if it was removed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.state().gone
    }

    /// True if some of its blocks are unreadable.
    #[must_use]
    pub fn has_bad_blocks(&self) -> bool {
        !self.state().bad.is_empty()
    }

    /// Makes every block readable, as a background scan of an idle drive may do.
    pub fn heal(&self) {
        self.state().bad.clear();
    }

    /// A copy of its content on another drive.
    #[must_use]
    pub fn duplicate(&self, serial: u64) -> Self {
        let mut state = self.state();
        let rng = state.rng.fork();
        let visible = state.visible.clone();
        Self(Arc::new(Mutex::new(DriveState {
            spec: state.spec,
            name: format!("sim:{serial}"),
            slot: state.slot,
            rng,
            trace: state.trace.clone(),
            faults: state.faults.clone(),
            stable: visible.clone(),
            visible,
            unflushed: Vec::new(),
            writes: 0,
            bad: state.bad.clone(),
            doomed: false,
            hung: false,
            gone: false,
            slowness: 1,
            hanging: false,
            lying: false,
            reported: None,
            away: away::Away::default(),
            lanes: BTreeMap::new(),
            next_lane: 0,
        })))
    }

    /// Changes its size, a multiple of 4 KiB: the content beyond the new end is lost, new space is zeroes.
    pub fn resize(&self, bytes: u64) {
        let mut state = self.state();
        state.spec.bytes = bytes;
        state.visible.resize(bytes);
        state.stable.resize(bytes);
    }

    /// Removes `bytes` at its end, a multiple of 4 KiB. No I/O may be in flight.
    pub fn shrink(&self, bytes: u64) {
        let mut state = self.state();
        let count = state.unflushed.len();
        state.destage(count);
        drop(state);
        self.resize(self.bytes() - bytes);
    }

    /// Changes its block size, as reformatting does.
    pub fn set_block_size(&self, block_size: BlockSize) {
        self.state().spec.block_size = block_size;
    }

    /// The current size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state().spec.bytes
    }

    /// Overwrites bytes without the knowledge of the array, on the medium and in the cache.
    pub fn overwrite(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.state();
        state.visible.write(offset, bytes);
        state.stable.write(offset, bytes);
    }

    /// Makes the block at byte `offset` unreadable until it is written.
    pub fn spoil(&self, offset: u64) {
        let mut state = self.state();
        let block = offset / u64::from(state.spec.block_size.bytes());
        state.bad.insert(block);
    }

    /// Multiplies the duration of every I/O by `factor` from now on.
    pub fn slow_down(&self, factor: u64) {
        self.state().slowness = factor;
    }

    /// Stops or resumes all answers; pending requests are answered when it resumes.
    pub fn hang(&self, hanging: bool) {
        self.state().hanging = hanging;
    }

    /// Keeps all writes in the cache from now on, regardless of flushes and FUA, until a power cut discards them.
    pub fn lie_about_flush(&self) {
        self.state().lying = true;
    }

    /// Exchanges the names of two drives.
    pub fn swap_names(&self, other: &Self) {
        let theirs = other.name();
        let ours = std::mem::replace(&mut self.state().name, theirs);
        other.state().name = ours;
    }

    /// True if a power cut may lose completed writes.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        self.state().spec.cache == VolatileCache::Present
    }

    /// Removes the drive.
    pub fn vanish(&self) {
        self.state().vanish();
    }

    /// Inserts the drive again.
    pub fn come_back(&self) {
        let mut state = self.state();
        state.gone = false;
        state.doomed = false;
        state.hung = false;
    }

    /// Inserts the drive again after the array has continued without it: a removed drive has lost power, and its cache.
    pub fn return_cold(&self) {
        self.state().return_cold();
    }

    /// Stops the host. Every queue ends; the surviving content depends on `crash` and chance.
    pub fn crash(&self, crash: Crash) {
        self.state().crash(crash);
    }

    /// True if no I/O is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state().lanes.values().all(|lane| lane.unrung.is_empty() && lane.pending.is_empty())
    }

    /// The 4 KiB at `offset` as a read would return them, regardless of I/O in flight; `None` if they are zeroes.
    #[must_use]
    pub fn page(&self, offset: u64) -> Option<PageBytes> {
        self.state().visible.page_bytes(offset)
    }

    /// Copies the bytes that a read from `offset` would return.
    pub fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        self.state().visible.read(offset, bytes);
    }
}

impl BlockDevice for SimDrive {
    fn hold(&self) -> Nanos {
        if self.is_remote() { HOLD } else { Nanos(0) }
    }

    fn kind(&self) -> DeviceKind {
        if self.is_remote() { DeviceKind::Remote } else { DeviceKind::Block }
    }

    fn settle_time(&self) -> Nanos {
        self.state().spec.settle_time
    }

    fn info(&self) -> DeviceInfo {
        let state = self.state();
        DeviceInfo {
            identity: state.name.clone(),
            blocks: state.spec.bytes >> state.spec.block_size.shift(),
            block_size: state.spec.block_size,
            io_bytes_max: 1 << 20,
            io_bytes_optimal: 0,
            cache: state.spec.cache,
            deallocate: state.spec.deallocate,
            fast_zeroes: true,
            read_only: false,
        }
    }

    fn open_queue(&self, _core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let mut state = self.state();
        if state.gone {
            let what = "the drive was pulled (by the simulation)";
            return Err(DeviceError::new(IoErrorKind::Gone, state.name.clone(), what));
        }
        if state.is_owing() {
            let what = "it owes answers to requests of an earlier use (by the simulation)";
            return Err(DeviceError::new(IoErrorKind::Timeout, state.name.clone(), what));
        }
        let lane = state.next_lane;
        state.next_lane += 1;
        state.lanes.insert(lane, Lane::default());
        Ok(Box::new(SimQueue { drive: self.clone(), lane, depth: depth as usize }))
    }
}

struct SimQueue {
    drive: SimDrive,
    lane: u64,
    depth: usize,
}

impl IoQueue for SimQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        let mut state = self.drive.state();
        // After a crash the lane does not exist, and the owner of the queue is about to be dropped.
        let Some(lane) = state.lanes.get_mut(&self.lane) else { return Err(io) };
        if lane.unrung.len() + lane.pending.len() >= self.depth {
            return Err(io);
        }
        lane.unrung.push(io);
        Ok(())
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.drive.state().ring(self.lane, now);
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        self.drive.state().poll(self.lane, now, batch);
    }

    fn readiness(&self) -> Readiness {
        let state = self.drive.state();
        let Some(lane) = state.lanes.get(&self.lane).filter(|_| !state.hanging) else {
            return Readiness::Idle;
        };
        match lane.pending.iter().map(|p| p.due).min() {
            Some(due) => Readiness::At(due),
            None => Readiness::Idle,
        }
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        let mut state = self.drive.state();
        if let Some(lane) = state.lanes.remove(&self.lane) {
            state.close(lane);
        }
    }
}

const fn kind(op: &Op) -> u64 {
    match op {
        Op::Read { .. } => 1,
        Op::Write { durability: Durability::Normal, .. } => 2,
        Op::Write { durability: Durability::Fua, .. } => 3,
        Op::Flush => 4,
        Op::Deallocate { .. } => 5,
        Op::WriteZeroes { .. } => 6,
    }
}

/// An operation as text.
#[must_use]
pub fn describe(op: &Op) -> String {
    match op {
        Op::Read { at, data } => format!("read {at}+{}B", data.len()),
        Op::Write { at, data, durability } => format!("write {at}+{}B {durability:?}", data.len()),
        Op::Flush => "flush".to_owned(),
        Op::Deallocate { range } => format!("deallocate {}+{}", range.start, range.blocks),
        Op::WriteZeroes { range, durability } => {
            format!("zero {}+{} {durability:?}", range.start, range.blocks)
        }
    }
}
