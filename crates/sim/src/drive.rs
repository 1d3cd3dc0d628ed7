//! A drive: bytes, a cache that a power cut empties, a latency, and the faults of a real one.
//!
//! | fault | what the array sees | what is left |
//! |---|---|---|
//! | medium | reads of a block fail until it is written | the bytes are gone |
//! | device | an I/O fails | a failed write may be done in part |
//! | delay | an answer late, within the time allowed | done |
//! | hang | an answer after the engine gave up, or never | done, in part or not |
//! | vanish | everything answers "gone" | what was in flight may be done in part |
//! | kill | the queues end | completed writes stay; what was in flight may be done in part |
//! | power cut | the queues end | flushed and FUA writes stay; of the rest any part, in order |
//! | lie about flush | nothing, until the power goes | what was on it when the lie began |
//! | slow, stall | answers late, of this drive or of all | done |
//! | silence | no answers for a time, or permanently | done, in part or not |
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

/// What a drive is like.
#[derive(Clone, Copy, Debug)]
pub struct DriveSpec {
    /// Bytes, a multiple of 4 KiB.
    pub bytes: u64,
    /// Block size.
    pub block_size: BlockSize,
    /// Whether there is a cache that a power cut empties.
    pub cache: VolatileCache,
    /// What deallocated blocks read as.
    pub deallocate: DeallocateReads,
    /// How long its target may continue after the end of a daemon that used it; zero for a drive of this machine.
    pub settle_time: Nanos,
}

/// Name of writes that a target executed after the daemon was gone, in counts.
pub const LATE: &str = "late";

/// How long a remote drive holds requests by itself, as docs/decisions/0028 has it.
const HOLD: Nanos = Nanos(24 * Nanos::SECOND.0);

/// How a machine stops without warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is gone, the drives go on.
    Kill,
    /// The power failed.
    Power,
}

/// A simulated drive. Clones are the same drive.
#[derive(Clone)]
pub struct SimDrive(Arc<Mutex<DriveState>>);

impl SimDrive {
    /// A new drive for member `slot`, full of junk unless it promises zeroes.
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

    /// True when it can no longer be a member in good standing.
    #[must_use]
    pub fn is_doomed(&self) -> bool {
        let state = self.state();
        state.doomed || state.gone
    }

    /// True when one of its I/Os hangs by a fault of its own, and not because it is silent.
    #[must_use]
    pub fn is_hung(&self) -> bool {
        self.state().hung
    }

    /// True when it was pulled.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.state().gone
    }

    /// True when some of its blocks cannot be read.
    #[must_use]
    pub fn has_bad_blocks(&self) -> bool {
        !self.state().bad.is_empty()
    }

    /// Makes every block readable again, as an idle drive's own patrol may do.
    pub fn heal(&self) {
        self.state().bad.clear();
    }

    /// A copy of everything on it, on another drive.
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

    /// Gives it another end: what lay beyond is gone, what is new is zeroes. A multiple of 4 KiB.
    pub fn resize(&self, bytes: u64) {
        let mut state = self.state();
        state.spec.bytes = bytes;
        state.visible.resize(bytes);
        state.stable.resize(bytes);
    }

    /// Takes `bytes` away at its end, a multiple of 4 KiB. Nothing may be in flight.
    pub fn shrink(&self, bytes: u64) {
        let mut state = self.state();
        let count = state.unflushed.len();
        state.destage(count);
        drop(state);
        self.resize(self.bytes() - bytes);
    }

    /// Gives it another block size, as a reformatted drive has.
    pub fn set_block_size(&self, block_size: BlockSize) {
        self.state().spec.block_size = block_size;
    }

    /// Bytes as of now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state().spec.bytes
    }

    /// Overwrites bytes behind everybody's back, on the medium and in the cache.
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

    /// Every I/O takes `factor` times as long from now on.
    pub fn slow_down(&self, factor: u64) {
        self.state().slowness = factor;
    }

    /// From now on nothing is answered, or everything again; what was not is answered then.
    pub fn hang(&self, hanging: bool) {
        self.state().hanging = hanging;
    }

    /// From now on what is written stays in the cache, whatever is asked for and answered, until the power goes and
    /// takes it away.
    pub fn lie_about_flush(&self) {
        self.state().lying = true;
    }

    /// The drives are found under each other's names.
    pub fn swap_names(&self, other: &Self) {
        let theirs = other.name();
        let ours = std::mem::replace(&mut self.state().name, theirs);
        other.state().name = ours;
    }

    /// True when a power cut may take something away.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        self.state().spec.cache == VolatileCache::Present
    }

    /// Pulls the drive.
    pub fn vanish(&self) {
        self.state().vanish();
    }

    /// Plugs it in again.
    pub fn come_back(&self) {
        let mut state = self.state();
        state.gone = false;
        state.doomed = false;
        state.hung = false;
    }

    /// Plugs it in again after the array has gone on without it: a drive that was pulled lost power, and its cache.
    pub fn return_cold(&self) {
        self.state().return_cold();
    }

    /// The machine stops. Every queue ends; what survives depends on `crash` and chance.
    pub fn crash(&self, crash: Crash) {
        self.state().crash(crash);
    }

    /// True when nothing is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state().lanes.values().all(|lane| lane.unrung.is_empty() && lane.pending.is_empty())
    }

    /// The 4 KiB at `offset` as a reader would see them, whatever is in flight; `None` when they are zeroes.
    #[must_use]
    pub fn page(&self, offset: u64) -> Option<PageBytes> {
        self.state().visible.page_bytes(offset)
    }

    /// Copies out what a reader would see from `offset` on.
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
        // After a crash the lane is gone, and the owner of the queue is about to be dropped.
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

/// An operation in words.
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
