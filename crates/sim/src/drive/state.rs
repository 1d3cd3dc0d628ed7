//! The internals of a drive: the time and outcome of an I/O, the content of the cache, and the effect of a crash.

use std::collections::{BTreeMap, BTreeSet};

use strake_block::{
    Completion, CompletionBatch, DeallocateReads, Durability, Io, IoError, IoErrorKind, Op, Sg,
    VolatileCache,
};
use strake_units::{LbaRange, Nanos};

use super::away::Away;
use super::lie::Reported;
use super::{Crash, DriveSpec, describe, kind, labels};
use crate::faults::{Faults, Kind, Mutant, Rates};
use crate::medium::{Medium, PAGE, PageBytes, share};
use crate::rng::Rng;
use crate::trace::Trace;

/// The outcome of an I/O in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    Fail,
    Lose,
}

pub(super) struct Pending {
    pub(super) io: Io,
    pub(super) due: Nanos,
    /// Orders I/Os that are due at the same time.
    pub(super) order: u64,
    pub(super) fate: Fate,
    /// Completed writes with lower numbers become stable with this flush.
    pub(super) flushes: u64,
}

#[derive(Default)]
pub(super) struct Lane {
    pub(super) unrung: Vec<Io>,
    pub(super) pending: Vec<Pending>,
}

#[derive(Clone)]
pub(super) enum Change {
    Bytes(Vec<u8>),
    /// Whole pages; non-zero pages are shared.
    Pages(Vec<Option<PageBytes>>),
    Zeroes(u64),
}

impl Change {
    /// The change of a write of `data` to byte `offset`.
    fn of(offset: u64, data: &Sg) -> Self {
        let aligned = |len: u64| len.is_multiple_of(PAGE as u64);
        let parts = || data.parts().iter().map(|part| part.as_slice());
        if !aligned(offset) || !parts().all(|part| aligned(part.len() as u64)) {
            let mut all = vec![0; data.len()];
            data.copy_to(&mut all);
            return Self::Bytes(all);
        }
        Self::Pages(parts().flat_map(|part| part.chunks_exact(PAGE)).map(share).collect())
    }

    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Pages(pages) => (pages.len() * PAGE) as u64,
            Self::Zeroes(len) => *len,
        }
    }

    /// The bytes `from .. from + len` of the change.
    fn part(&self, from: u64, len: u64) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(bytes[from as usize..(from + len) as usize].to_vec()),
            Self::Zeroes(_) => Self::Zeroes(len),
            Self::Pages(pages) => {
                let byte = |at: u64| {
                    let page = pages[at as usize / PAGE].as_ref();
                    page.map_or(0, |bytes| bytes[at as usize % PAGE])
                };
                Self::Bytes((from..from + len).map(byte).collect())
            }
        }
    }
}

/// A completed write that a power cut may undo.
pub(super) struct Unflushed {
    number: u64,
    offset: u64,
    change: Change,
}

pub(super) struct DriveState {
    pub(super) spec: DriveSpec,
    pub(super) name: String,
    pub(super) slot: u8,
    pub(super) rng: Rng,
    pub(super) trace: Trace,
    pub(super) faults: Faults,
    pub(super) visible: Medium,
    pub(super) stable: Medium,
    pub(super) unflushed: Vec<Unflushed>,
    pub(super) writes: u64,
    pub(super) bad: BTreeSet<u64>,
    pub(super) doomed: bool,
    /// Whether one of its I/Os hangs.
    pub(super) hung: bool,
    pub(super) gone: bool,
    /// The factor of the duration of every I/O.
    pub(super) slowness: u64,
    /// Whether all answers are stopped.
    pub(super) hanging: bool,
    /// Whether acknowledged stable writes stay in the cache.
    pub(super) lying: bool,
    /// The write fault in force.
    pub(super) reported: Option<Reported>,
    /// Silence, and late writes.
    pub(super) away: Away,
    pub(super) lanes: BTreeMap<u64, Lane>,
    pub(super) next_lane: u64,
}

impl DriveState {
    fn range_bytes(&self, op: &Op) -> (u64, u64) {
        let LbaRange { start, blocks } = op.range(self.spec.block_size);
        (start.bytes(self.spec.block_size), blocks << self.spec.block_size.shift())
    }

    pub(super) fn ring(&mut self, lane: u64, now: Nanos) {
        self.land(now);
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

    /// A request that no drive could execute is a bug of the engine.
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

    /// Determines the time and the outcome of an I/O.
    fn schedule(&mut self, io: Io, now: Nanos) -> Pending {
        self.count_down(now);
        let rates = self.faults.rates();
        let latency = self.rng.between(1, 25) * 4_000 * self.slowness;
        let mut due = now.max(self.faults.stalled_until()).plus(Nanos(latency));
        let mut fate = Fate::Done;
        if rates != Rates::default() && !self.gone {
            if self.rng.chance(rates.delay) && self.faults.has(Kind::Delay) {
                self.trace.fault(Kind::Delay.word());
                due = due.plus(Nanos(self.rng.between(1, 2_000) * 1_000_000));
            }
            if self.strikes(Kind::Vanish, rates.vanish) {
                self.trace.fault(Kind::Vanish.word());
                self.vanish();
            } else if self.strikes(Kind::Error, rates.device) {
                self.trace.fault(Kind::Error.word());
                self.doomed = true;
                fate = Fate::Fail;
            } else if self.strikes(Kind::Hang, rates.hang) {
                self.trace.fault(Kind::Hang.word());
                self.doomed = true;
                self.hung = true;
                due = if self.rng.one_in(2) {
                    Nanos(u64::MAX)
                } else {
                    due.plus(Nanos(self.rng.between(31, 90) * 1_000_000_000))
                };
            } else if self.rng.chance(rates.medium) && self.faults.has(Kind::Medium) {
                self.spoil(&io.op);
            }
        }
        if self.mutates(&io.op) {
            fate = Fate::Lose;
        }
        let due = due.max(self.away.silent_until);
        Pending { io, due, order: self.rng.bits(), fate, flushes: self.writes }
    }

    /// Draws whether a fault happens that costs the member.
    fn strikes(&mut self, kind: Kind, rate: u32) -> bool {
        self.rng.chance(rate) && self.faults.has(kind) && self.faults.may_impair(self.slot)
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
                | Mutant::WrongRead
                | Mutant::Hasty,
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
            self.trace.fault(Kind::Medium.word());
            let block = u64::from(self.spec.block_size.bytes());
            self.bad.insert((offset + self.rng.below(bytes / block) * block) / block);
        }
    }

    pub(super) fn vanish(&mut self) {
        self.gone = true;
        self.doomed = true;
        self.trace.event(&[u64::from(self.slot), 90], || {
            format!("{} (member {}) is gone", self.name, self.slot)
        });
    }

    pub(super) fn poll(&mut self, lane: u64, now: Nanos, batch: &mut CompletionBatch) {
        self.land(now);
        let gone = self.gone;
        if self.hanging && !gone {
            return;
        }
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
                let change = Change::of(offset, data);
                self.write(offset, change, *durability);
            }
            Op::Flush => {
                if self.faults.mutant() != Mutant::IdleFlush && !self.lying {
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

    /// Completes an operation successfully, but does something else.
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

    pub(super) fn change(&mut self, offset: u64, change: Change, durability: Durability) {
        if self.trace.keeps_labels() {
            labels::note(&self.trace, self.spec.bytes, offset, &change);
        }
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
        if self.lying {
            self.unflushed.push(Unflushed { number, offset, change });
            return;
        }
        let fua = durability == Durability::Fua && self.faults.mutant() != Mutant::IdleFua;
        if fua {
            // Older cached writes of the same place must not be destaged after this one.
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

    /// Destages the oldest `count` cached writes to the medium.
    pub(super) fn destage(&mut self, count: usize) {
        for cached in self.unflushed.drain(..count) {
            apply(&mut self.stable, cached.offset, &cached.change);
        }
    }

    /// The change of an operation and its offset, if it has a defined effect.
    pub(super) fn changed_by(&self, op: &Op) -> Option<(u64, Change)> {
        let (offset, bytes) = self.range_bytes(op);
        let change = match op {
            Op::Read { .. } | Op::Flush => return None,
            Op::Write { data, .. } => Change::of(offset, data),
            Op::WriteZeroes { .. } => Change::Zeroes(bytes),
            Op::Deallocate { .. } if self.spec.deallocate == DeallocateReads::Zeroes => {
                Change::Zeroes(bytes)
            }
            Op::Deallocate { .. } => return None,
        };
        Some((offset, change))
    }

    /// Executes a write completely, in part or not at all.
    pub(super) fn perhaps(&mut self, op: &Op) {
        let Some((offset, change)) = self.changed_by(op) else { return };
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

    /// A random part of the blocks of a change.
    fn torn(&mut self, offset: u64, change: &Change) -> Vec<(u64, Change)> {
        let unit = if self.rng.one_in(2) { PAGE as u64 } else { self.faults.atomic_bytes() };
        let kind = if unit == PAGE as u64 { Kind::Torn4K } else { Kind::Torn512 };
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
                parts.push((offset + from, change.part(from, len)));
            }
        }
        if !self.faults.has(kind) {
            return vec![(offset, change.clone())];
        }
        self.trace.fault(kind.word());
        parts
    }

    pub(super) fn crash(&mut self, crash: Crash) {
        self.doomed = self.gone;
        self.hung = false;
        let lanes = std::mem::take(&mut self.lanes);
        if crash == Crash::Power && self.spec.cache == VolatileCache::Present {
            self.lose_cache();
        }
        // I/O without a doorbell has not reached the drive.
        let mut flying: Vec<Io> =
            lanes.into_values().flat_map(|lane| lane.pending).map(|p| p.io).collect();
        self.rng.shuffle(&mut flying);
        for op in self.outlive(crash, flying) {
            self.perhaps(&op);
        }
        if crash == Crash::Power {
            let count = self.unflushed.len();
            self.destage(count);
        }
    }

    pub(super) fn return_cold(&mut self) {
        if self.gone && self.spec.cache == VolatileCache::Present {
            self.lose_cache();
        }
        self.gone = false;
        self.doomed = false;
        self.hung = false;
    }

    /// Keeps some of the cached writes, in order; none if the drive withheld them from its medium.
    fn lose_cache(&mut self) {
        if std::mem::take(&mut self.lying) {
            self.unflushed.clear();
        }
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

pub(super) fn apply(medium: &mut Medium, offset: u64, change: &Change) {
    match change {
        Change::Bytes(bytes) => medium.write(offset, bytes),
        Change::Pages(pages) => {
            for (at, page) in (offset..).step_by(PAGE).zip(pages) {
                medium.write_page(at, page.clone());
            }
        }
        Change::Zeroes(len) => medium.zero(offset, *len),
    }
}
