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
//!
//! "In part" means some of the write's blocks of 512 B or 4 KiB. A block of the array is never cut, even where the
//! drive's are smaller: nothing promises that, and an array of 4 KiB blocks on drives that do cut theirs has no
//! better blocks than these.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use strake_block::{
    BlockDevice, Completion, CompletionBatch, DeallocateReads, DeviceError, DeviceInfo, Durability,
    Io, IoError, IoErrorKind, IoQueue, Op, Readiness, VolatileCache,
};
use strake_units::{BlockSize, CoreIndex, LbaRange, Nanos};

use crate::faults::{Faults, Mutant};
use crate::medium::{Medium, PAGE};
use crate::rng::Rng;
use crate::trace::Trace;

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
}

/// How a machine stops without warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is gone, the drives go on.
    Kill,
    /// The power is gone.
    Power,
}

/// What becomes of an I/O in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    Fail,
    Lose,
}

struct Pending {
    io: Io,
    due: Nanos,
    /// Breaks ties between I/Os that are due at the same time.
    order: u64,
    fate: Fate,
    /// Completed writes before this number are made stable by this flush.
    flushes: u64,
}

#[derive(Default)]
struct Lane {
    unrung: Vec<Io>,
    pending: Vec<Pending>,
}

enum Change {
    Bytes(Vec<u8>),
    Zeroes(u64),
}

impl Change {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeroes(len) => *len,
        }
    }
}

/// A completed write that a power cut may undo.
struct Unflushed {
    number: u64,
    offset: u64,
    change: Change,
}

struct State {
    spec: DriveSpec,
    name: String,
    slot: u8,
    rng: Rng,
    trace: Trace,
    faults: Faults,
    visible: Medium,
    stable: Medium,
    unflushed: Vec<Unflushed>,
    writes: u64,
    bad: BTreeSet<u64>,
    doomed: bool,
    gone: bool,
    lanes: BTreeMap<u64, Lane>,
    next_lane: u64,
}

/// A simulated drive. Clones are the same drive.
#[derive(Clone)]
pub struct SimDrive(Arc<Mutex<State>>);

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
        Self(Arc::new(Mutex::new(State {
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
            gone: false,
            lanes: BTreeMap::new(),
            next_lane: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread runs the world")
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

    /// Pulls the drive.
    pub fn vanish(&self) {
        self.state().vanish();
    }

    /// Plugs it in again.
    pub fn come_back(&self) {
        let mut state = self.state();
        state.gone = false;
        state.doomed = false;
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
    pub fn page(&self, offset: u64) -> Option<Box<[u8; PAGE]>> {
        let state = self.state();
        if state.visible.is_zero_page(offset) {
            return None;
        }
        let mut page = Box::new([0; PAGE]);
        state.visible.read(offset, &mut page[..]);
        page.iter().any(|b| *b != 0).then_some(page)
    }
}

impl BlockDevice for SimDrive {
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
        // After a crash the lane is gone, and whoever still holds the queue is about to be dropped.
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
        let Some(lane) = state.lanes.get(&self.lane) else { return Readiness::Idle };
        match lane.pending.iter().map(|p| p.due).min() {
            Some(due) => Readiness::At(due),
            None => Readiness::Idle,
        }
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        self.drive.state().lanes.remove(&self.lane);
    }
}

impl State {
    fn range_bytes(&self, op: &Op) -> (u64, u64) {
        let LbaRange { start, blocks } = op.range(self.spec.block_size);
        (start.bytes(self.spec.block_size), blocks << self.spec.block_size.shift())
    }

    fn ring(&mut self, lane: u64, now: Nanos) {
        let Some(place) = self.lanes.get_mut(&lane) else { return };
        if place.unrung.is_empty() {
            return;
        }
        for io in std::mem::take(&mut place.unrung) {
            self.check(&io.op);
            let pending = self.schedule(io, now);
            self.lanes.get_mut(&lane).expect("rung just now").pending.push(pending);
        }
    }

    /// A request that no drive could do is a mistake of the engine.
    fn check(&self, op: &Op) {
        let block = u64::from(self.spec.block_size.bytes());
        let (offset, bytes) = self.range_bytes(op);
        assert!(
            offset + bytes <= self.spec.bytes,
            "{}: {} beyond the end",
            self.name,
            describe(op)
        );
        let length = match op {
            Op::Read { data, .. } => Some(data.len()),
            Op::Write { data, .. } => Some(data.len()),
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => None,
        };
        if let Some(length) = length {
            let fits = length > 0 && (length as u64).is_multiple_of(block) && length <= 1 << 20;
            assert!(fits, "{}: a transfer of {length} bytes", self.name);
        }
    }

    /// Decides when and how an I/O will end.
    fn schedule(&mut self, io: Io, now: Nanos) -> Pending {
        let rates = self.faults.rates();
        let latency = self.rng.between(1, 25) * 4_000;
        let mut due = now.plus(Nanos(latency));
        let mut fate = Fate::Done;
        if rates != crate::faults::Rates::default() && !self.gone {
            if self.rng.chance(rates.delay) {
                self.trace.fault("delay");
                due = due.plus(Nanos(self.rng.between(1, 5_000) * 1_000_000));
            }
            if self.rng.chance(rates.vanish) && self.faults.may_impair(self.slot) {
                self.trace.fault("vanish");
                self.vanish();
            } else if self.rng.chance(rates.device) && self.faults.may_impair(self.slot) {
                self.trace.fault("error");
                self.doomed = true;
                fate = Fate::Fail;
            } else if self.rng.chance(rates.hang) && self.faults.may_impair(self.slot) {
                self.trace.fault("hang");
                self.doomed = true;
                due = if self.rng.one_in(2) {
                    Nanos(u64::MAX)
                } else {
                    due.plus(Nanos(self.rng.between(31, 90) * 1_000_000_000))
                };
            } else if self.rng.chance(rates.medium) {
                self.spoil(&io.op);
            }
        }
        if self.mutates(&io.op) {
            fate = Fate::Lose;
        }
        Pending { io, due, order: self.rng.bits(), fate, flushes: self.writes }
    }

    fn mutates(&mut self, op: &Op) -> bool {
        match (self.faults.mutant(), op) {
            (Mutant::LostWrite, Op::Write { durability: Durability::Normal, .. }) => {
                self.rng.one_in(50)
            }
            (Mutant::WrongRead, Op::Read { at, .. }) => {
                at.bytes(self.spec.block_size) >= strake_ondisk::HEAD_BYTES && self.rng.one_in(50)
            }
            (
                Mutant::None
                | Mutant::LostWrite
                | Mutant::IdleFlush
                | Mutant::IdleFua
                | Mutant::WrongRead,
                _,
            ) => false,
        }
    }

    /// Makes a block of a data read unreadable.
    fn spoil(&mut self, op: &Op) {
        let (offset, bytes) = self.range_bytes(op);
        let data = matches!(op, Op::Read { .. }) && offset >= strake_ondisk::HEAD_BYTES;
        if data
            && offset + bytes <= self.spec.bytes - strake_ondisk::TAIL_BYTES
            && self.faults.may_impair(self.slot)
        {
            self.trace.fault("medium");
            let block = u64::from(self.spec.block_size.bytes());
            self.bad.insert((offset + self.rng.below(bytes / block) * block) / block);
        }
    }

    fn vanish(&mut self) {
        self.gone = true;
        self.doomed = true;
        self.trace.event(&[u64::from(self.slot), 90], || {
            format!("{} (member {}) is gone", self.name, self.slot)
        });
    }

    fn poll(&mut self, lane: u64, now: Nanos, batch: &mut CompletionBatch) {
        let gone = self.gone;
        let Some(place) = self.lanes.get_mut(&lane) else { return };
        let mut due: Vec<Pending> = Vec::new();
        let mut at = 0;
        while at < place.pending.len() {
            if place.pending[at].due <= now || gone {
                due.push(place.pending.swap_remove(at));
            } else {
                at += 1;
            }
        }
        due.sort_unstable_by_key(|p| (p.due, p.order));
        let late = due.split_off(due.len().min(batch.room()));
        self.lanes.get_mut(&lane).expect("polled just now").pending.extend(late);
        for pending in due {
            batch.push(self.finish(pending));
        }
    }

    fn finish(&mut self, pending: Pending) -> Completion {
        let Pending { io, fate, flushes, .. } = pending;
        let Io { token, mut op } = io;
        let result = if self.gone {
            self.perhaps(&op);
            Err(IoErrorKind::Gone)
        } else {
            match fate {
                Fate::Done => self.execute(&mut op, flushes),
                Fate::Lose => self.lie(&mut op),
                Fate::Fail => {
                    self.perhaps(&op);
                    Err(IoErrorKind::Device)
                }
            }
        };
        if let (Err(_), Op::Read { data, .. }) = (&result, &mut op) {
            for part in data.parts_mut() {
                part.as_mut_slice().fill(0xee);
            }
        }
        let (offset, bytes) = self.range_bytes(&op);
        let numbers = [
            u64::from(self.slot),
            kind(&op),
            offset,
            bytes,
            result.map_or_else(|e| e as u64 + 1, |()| 0),
        ];
        self.trace.event(&numbers, || {
            format!("{} member {}: {} {result:?}", self.name, self.slot, describe(&op))
        });
        Completion { token, op, result: result.map_err(IoError::new) }
    }

    fn execute(&mut self, op: &mut Op, flushes: u64) -> Result<(), IoErrorKind> {
        let (offset, bytes) = self.range_bytes(op);
        let block = u64::from(self.spec.block_size.bytes());
        match op {
            Op::Read { data, .. } => {
                if self.bad.range(offset / block..(offset + bytes) / block).next().is_some() {
                    return Err(IoErrorKind::Medium);
                }
                let mut at = offset;
                for part in data.parts_mut() {
                    self.visible.read(at, part.as_mut_slice());
                    at += part.len() as u64;
                }
            }
            Op::Write { data, durability, .. } => {
                let mut all = vec![0; data.len()];
                data.copy_to(&mut all);
                self.change(offset, Change::Bytes(all), *durability);
            }
            Op::Flush => {
                if self.faults.mutant() != Mutant::IdleFlush {
                    let count = self.unflushed.partition_point(|u| u.number < flushes);
                    self.destage(count);
                }
            }
            Op::WriteZeroes { durability, .. } => {
                self.change(offset, Change::Zeroes(bytes), *durability)
            }
            Op::Deallocate { .. } => self.deallocate(offset, bytes),
        }
        Ok(())
    }

    fn deallocate(&mut self, offset: u64, bytes: u64) {
        match self.spec.deallocate {
            DeallocateReads::Zeroes => {
                self.change(offset, Change::Zeroes(bytes), Durability::Normal)
            }
            DeallocateReads::Unspecified | DeallocateReads::Unsupported => {
                for at in (offset..offset + bytes).step_by(PAGE).filter(|at| at % PAGE as u64 == 0)
                {
                    let junk = self.rng.bits().to_le_bytes().repeat(PAGE / 8);
                    self.change(at, Change::Bytes(junk), Durability::Normal);
                }
            }
        }
    }

    /// Says it did what it was asked to, and did something else.
    fn lie(&mut self, op: &mut Op) -> Result<(), IoErrorKind> {
        self.trace.fault("mutant");
        let (offset, _) = self.range_bytes(op);
        if let Op::Read { data, .. } = op {
            let mut at = (offset + PAGE as u64) % (self.spec.bytes - (1 << 20));
            for part in data.parts_mut() {
                self.visible.read(at, part.as_mut_slice());
                at += part.len() as u64;
            }
        }
        Ok(())
    }

    fn change(&mut self, offset: u64, change: Change, durability: Durability) {
        let block = u64::from(self.spec.block_size.bytes());
        let range = offset / block..(offset + change.len()) / block;
        let mended: Vec<u64> = self.bad.range(range).copied().collect();
        for block in mended {
            self.bad.remove(&block);
        }
        apply(&mut self.visible, offset, &change);
        let number = self.writes;
        self.writes += 1;
        if self.spec.cache == VolatileCache::Absent {
            return;
        }
        let fua = durability == Durability::Fua && self.faults.mutant() != Mutant::IdleFua;
        if fua {
            // Older cached bytes of the same place must not come out of the cache after these.
            let overlaps = |u: &Unflushed| {
                u.offset < offset + change.len() && offset < u.offset + u.change.len()
            };
            let count = self.unflushed.iter().rposition(overlaps).map_or(0, |at| at + 1);
            self.destage(count);
            apply(&mut self.stable, offset, &change);
        } else {
            self.unflushed.push(Unflushed { number, offset, change });
            if self.rng.one_in(32) {
                let count = self.rng.below(self.unflushed.len() as u64 + 1) as usize;
                self.destage(count);
            }
        }
    }

    /// Moves the oldest `count` cached writes to the medium.
    fn destage(&mut self, count: usize) {
        for cached in self.unflushed.drain(..count) {
            apply(&mut self.stable, cached.offset, &cached.change);
        }
    }

    /// Does a write completely, in part or not at all.
    fn perhaps(&mut self, op: &Op) {
        let (offset, bytes) = self.range_bytes(op);
        let change = match op {
            Op::Read { .. } | Op::Flush => return,
            Op::Write { data, .. } => {
                let mut all = vec![0; data.len()];
                data.copy_to(&mut all);
                Change::Bytes(all)
            }
            Op::WriteZeroes { .. } => Change::Zeroes(bytes),
            Op::Deallocate { .. } if self.spec.deallocate == DeallocateReads::Zeroes => {
                Change::Zeroes(bytes)
            }
            Op::Deallocate { .. } => return,
        };
        match self.rng.below(4) {
            0 => {}
            1 | 2 => self.change(offset, change, Durability::Normal),
            _ => {
                for (at, part) in self.torn(offset, &change) {
                    self.change(at, part, Durability::Normal);
                }
            }
        }
    }

    /// Some of the blocks of a change.
    fn torn(&mut self, offset: u64, change: &Change) -> Vec<(u64, Change)> {
        self.trace.fault("torn");
        let unit = if self.rng.one_in(2) { PAGE as u64 } else { self.faults.atomic_bytes() };
        let units = change.len().div_ceil(unit);
        let cut = self.rng.below(units + 1);
        let mode = self.rng.below(3);
        let mut parts = Vec::new();
        for index in 0..units {
            let keep = match mode {
                0 => index < cut,
                1 => index >= cut,
                _ => self.rng.one_in(2),
            };
            if keep {
                let from = index * unit;
                let len = unit.min(change.len() - from);
                let part = match change {
                    Change::Bytes(bytes) => {
                        Change::Bytes(bytes[from as usize..(from + len) as usize].to_vec())
                    }
                    Change::Zeroes(_) => Change::Zeroes(len),
                };
                parts.push((offset + from, part));
            }
        }
        parts
    }

    fn crash(&mut self, crash: Crash) {
        self.doomed = self.gone;
        let lanes = std::mem::take(&mut self.lanes);
        if crash == Crash::Power && self.spec.cache == VolatileCache::Present {
            self.lose_cache();
        }
        // Nothing of what was not rung for ever reached the drive.
        let mut flying: Vec<Io> =
            lanes.into_values().flat_map(|lane| lane.pending).map(|p| p.io).collect();
        self.rng.shuffle(&mut flying);
        for io in flying {
            self.perhaps(&io.op);
        }
        if crash == Crash::Power {
            let count = self.unflushed.len();
            self.destage(count);
        }
    }

    /// Keeps some of the cached writes, in order.
    fn lose_cache(&mut self) {
        let keep = self.rng.pick(&[0, 500_000, 900_000, 1_000_000]);
        for cached in std::mem::take(&mut self.unflushed) {
            if self.rng.one_in(8) {
                for (at, part) in self.torn(cached.offset, &cached.change) {
                    apply(&mut self.stable, at, &part);
                }
            } else if self.rng.chance(keep) {
                apply(&mut self.stable, cached.offset, &cached.change);
            }
        }
        self.visible = self.stable.clone();
    }
}

fn apply(medium: &mut Medium, offset: u64, change: &Change) {
    match change {
        Change::Bytes(bytes) => medium.write(offset, bytes),
        Change::Zeroes(len) => medium.zero(offset, *len),
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
