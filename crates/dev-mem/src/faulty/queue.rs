//! The queue that forwards requests to the inner device with the selected faults.

use super::plan::{Cached, FaultPlan};
use super::random::Random;
use super::rule::{Effect, TearEnd, TearUnit};
use crate::queue::Limits;
use std::collections::VecDeque;
use strake_block::{
    BufMut, Completion, CompletionBatch, DeviceInfo, Durability, Io, IoError, IoErrorKind, IoQueue,
    Op, Readiness, Sg, SgMut, Token,
};
use strake_units::{Lba, LbaRange, Nanos};

type Outcome = Result<(), IoError>;

const GONE: IoError = IoError::new(IoErrorKind::Gone);

/// The additional work for a request besides that of the inner device.
#[derive(Debug, Default)]
struct Job {
    token: Token,
    /// The submitted request, if the inner device executes another request instead.
    home: Option<Op>,
    /// The original address of a misdirected request.
    restore: Option<Lba>,
    /// The seed that selects the bit to flip in the read data.
    flip: Option<u64>,
    /// The result to report after a success.
    end: Option<Outcome>,
    /// The earliest time of the completion.
    hold: Option<Nanos>,
    /// The serial number to report to the cache at the completion.
    serial: Option<u64>,
    /// Bytes to write after the read of their last block.
    torn: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Slot {
    job: Job,
    done: Option<(Op, Outcome)>,
}

/// The last known state of the plan.
#[derive(Clone, Copy, Debug)]
struct Known {
    version: u64,
    gone: bool,
    idle: bool,
    releases: u64,
}

pub(super) struct FaultyQueue {
    inner: Box<dyn IoQueue>,
    plan: FaultPlan,
    limits: Limits,
    blocks: u64,
    epoch: u64,
    known: Known,
    depth: usize,
    waiting: VecDeque<Io>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Hung requests with the number of releases when they hung.
    hung: VecDeque<(u32, u64, Op)>,
    held: VecDeque<(Nanos, u32)>,
    /// The completion time of the last operation with the effect `OneByOne`.
    row_ends: Nanos,
    ready: VecDeque<u32>,
    batch: CompletionBatch,
}

impl FaultyQueue {
    pub(super) fn new(
        inner: Box<dyn IoQueue>,
        info: &DeviceInfo,
        plan: FaultPlan,
        depth: u32,
    ) -> Self {
        let depth = depth.max(1);
        let capacity = depth as usize;
        let epoch = plan.lock().epoch();
        let limits = Limits::of(info);
        let known = Known { version: u64::MAX, gone: false, idle: false, releases: 0 };
        let mut queue = Self {
            inner,
            plan,
            blocks: limits.blocks,
            limits,
            epoch,
            known,
            depth: capacity,
            waiting: VecDeque::with_capacity(capacity),
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            hung: VecDeque::with_capacity(capacity),
            held: VecDeque::with_capacity(capacity),
            row_ends: Nanos(0),
            ready: VecDeque::with_capacity(capacity),
            batch: CompletionBatch::new(capacity),
        };
        queue.look();
        queue
    }

    /// Applies changes of the plan.
    fn look(&mut self) {
        let version = self.plan.version();
        if version == self.known.version {
            return;
        }
        let plan = self.plan.clone();
        let state = plan.lock();
        self.known = Known {
            version,
            gone: state.epoch() != self.epoch,
            idle: state.is_idle(),
            releases: state.releases(),
        };
        self.limits.blocks = state.blocks_max().map_or(self.blocks, |max| max.min(self.blocks));
    }

    fn start(&mut self, io: Io, now: Nanos) {
        let index = self.free.pop().expect("waiting requests have a slot each");
        self.slots[index as usize].job = Job { token: io.token, ..Job::default() };
        if self.known.gone {
            return self.conclude(index, io.op, Err(GONE));
        }
        if let Err(error) = self.limits.check(&io.op) {
            return self.conclude(index, io.op, Err(error));
        }
        if self.known.idle {
            return self.send(index, io.op);
        }
        let range = io.op.range(self.limits.size);
        let struck = self.plan.lock().strike(&io.op, range);
        match struck {
            None => self.forward(index, io.op),
            Some((effect, seed)) => self.apply(index, io.op, effect, seed, now),
        }
    }

    fn apply(&mut self, index: u32, op: Op, effect: Effect, seed: u64, now: Nanos) {
        match effect {
            Effect::Fail(kind) => self.conclude(index, op, Err(IoError::new(kind))),
            Effect::Delay(span) => {
                self.job(index).hold = Some(now.plus(span));
                self.forward(index, op);
            }
            Effect::OneByOne(span) => {
                self.row_ends = self.row_ends.max(now).plus(span);
                self.job(index).hold = Some(self.row_ends);
                self.forward(index, op);
            }
            Effect::Hang => self.hung.push_back((index, self.known.releases, op)),
            Effect::Tear { unit, end } => self.tear(index, op, unit, end, seed),
            Effect::Misdirect { to } => self.misdirect(index, op, to),
            Effect::Lose => self.conclude(index, op, Ok(())),
            Effect::Corrupt => self.corrupt(index, op, seed),
            Effect::Vanish => {
                self.plan.vanish();
                self.look();
                self.conclude(index, op, Err(GONE));
            }
        }
    }

    fn job(&mut self, index: u32) -> &mut Job {
        &mut self.slots[index as usize].job
    }

    /// Executes `op` without a fault, in the cache if the plan has one, and otherwise on the inner device.
    fn forward(&mut self, index: u32, op: Op) {
        let cached = self.plan.lock().cached(&op, self.limits.size);
        match cached {
            Cached::Below => self.send(index, op),
            Cached::Done(serial) => {
                self.job(index).serial = serial;
                self.conclude(index, op, Ok(()));
            }
        }
    }

    fn send(&mut self, index: u32, op: Op) {
        let refused = self.inner.submit(Io { token: Token(u64::from(index)), op });
        assert!(refused.is_ok(), "the inner queue takes as many requests as it was opened for");
    }

    fn misdirect(&mut self, index: u32, mut op: Op, to: Lba) {
        self.job(index).restore = place(&mut op).map(|at| std::mem::replace(at, to));
        match self.limits.check(&op) {
            Ok(()) => self.forward(index, op),
            Err(_) => self.conclude(index, op, Ok(())),
        }
    }

    fn corrupt(&mut self, index: u32, op: Op, seed: u64) {
        match &op {
            Op::Read { .. } => {
                self.job(index).flip = Some(seed);
                self.forward(index, op);
            }
            Op::Write { at, data, durability } => {
                let mut buf = BufMut::alone(data.len().max(1));
                buf.truncate(data.len());
                data.copy_to(buf.as_mut_slice());
                flip_bit(buf.as_mut_slice(), seed);
                let data = Sg::from(buf.freeze());
                let wrong = Op::Write { at: *at, data, durability: *durability };
                self.job(index).home = Some(op);
                self.forward(index, wrong);
            }
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => self.forward(index, op),
        }
    }

    fn tear(&mut self, index: u32, op: Op, unit: TearUnit, end: TearEnd, seed: u64) {
        let size = self.limits.size;
        let range = op.range(size);
        let (first, last) = (range.start.bytes(size), range.end().bytes(size));
        let cut = match op {
            Op::Write { .. } | Op::WriteZeroes { .. } if first < last => {
                unit.cut(first, last, &mut Random::new(seed))
            }
            Op::Write { .. }
            | Op::WriteZeroes { .. }
            | Op::Read { .. }
            | Op::Flush
            | Op::Deallocate { .. } => return self.forward(index, op),
        };
        let end = match end {
            TearEnd::Success => Ok(()),
            TearEnd::Error(kind) => Err(IoError::new(kind)),
        };
        self.job(index).end = Some(end);
        match &op {
            Op::Write { data, .. } if cut > first => {
                let mut bytes = vec![0; data.len()];
                data.copy_to(&mut bytes);
                bytes.truncate((cut - first) as usize);
                self.job(index).home = Some(op);
                self.write_part(index, range.start, bytes);
            }
            // Zeroes are written in whole blocks, so that the write tears between blocks.
            Op::WriteZeroes { durability, .. } if cut - first >= u64::from(size.bytes()) => {
                let range = LbaRange::new(range.start, (cut - first) >> size.shift());
                let part = Op::WriteZeroes { range, durability: *durability };
                self.job(index).home = Some(op);
                self.forward(index, part);
            }
            Op::Write { .. }
            | Op::WriteZeroes { .. }
            | Op::Read { .. }
            | Op::Flush
            | Op::Deallocate { .. } => self.conclude(index, op, Ok(())),
        }
    }

    /// Writes bytes that may end inside a block. The inner device accepts only whole blocks, so that the last block is
    /// read first and its rest is rewritten.
    fn write_part(&mut self, index: u32, at: Lba, bytes: Vec<u8>) {
        let size = self.limits.size;
        let cached = self.plan.lock().cached_part(at.bytes(size), &bytes);
        if let Cached::Done(serial) = cached {
            self.job(index).serial = serial;
            return self.conclude(index, Op::Flush, Ok(()));
        }
        match size.blocks_in(bytes.len() as u64) {
            Some(_) => self.send(index, write(at, bytes)),
            None => {
                let last = at.plus(bytes.len() as u64 >> size.shift());
                self.job(index).torn = Some(bytes);
                let block = BufMut::alone(size.bytes() as usize);
                self.send(index, Op::Read { at: last, data: SgMut::from(block) });
            }
        }
    }

    /// The inner device has finished something for this slot.
    fn inner_done(&mut self, index: u32, op: Op, result: Outcome) {
        let size = self.limits.size;
        if let Some(mut bytes) = self.job(index).torn.take() {
            return match (op, result) {
                (Op::Read { at, data }, Ok(())) => {
                    let whole = bytes.len() as u64 >> size.shift();
                    let inside = bytes.len() - (whole << size.shift()) as usize;
                    let rest: Vec<u8> =
                        data.parts().iter().flat_map(|part| part.as_slice()).copied().collect();
                    bytes.extend_from_slice(&rest[inside..]);
                    self.send(index, write(Lba(at.0 - whole), bytes));
                }
                (op, result) => self.conclude(index, op, result),
            };
        }
        let mut op = op;
        if let (Op::Read { at, data }, Ok(())) = (&mut op, result) {
            if !self.known.idle {
                self.overlay(*at, data);
            }
            if let Some(seed) = self.job(index).flip {
                flip_list(data, seed);
            }
        }
        self.conclude(index, op, result);
    }

    fn overlay(&self, at: Lba, data: &mut SgMut) {
        let state = self.plan.lock();
        let mut byte = at.bytes(self.limits.size);
        for part in data.parts_mut() {
            state.overlay(part.as_mut_slice(), byte);
            byte += part.len() as u64;
        }
    }

    /// Completes a request with its original operation.
    fn conclude(&mut self, index: u32, mut op: Op, result: Outcome) {
        let job = self.job(index);
        if let (Some(at), Some(place)) = (job.restore.take(), place(&mut op)) {
            *place = at;
        }
        let op = job.home.take().unwrap_or(op);
        let result = result.and(job.end.take().unwrap_or(Ok(())));
        let hold = job.hold.take();
        let slot = &mut self.slots[index as usize];
        slot.done = Some((op, result));
        match hold {
            Some(until) => self.held.push_back((until, index)),
            None => self.ready.push_back(index),
        }
    }

    /// Continues hung requests after a release, and completes them with an error after the removal of the device.
    fn unhang(&mut self) {
        for _ in 0..self.hung.len() {
            let Some((index, releases, op)) = self.hung.pop_front() else {
                return;
            };
            if self.known.gone {
                self.conclude(index, op, Err(GONE));
            } else if releases < self.known.releases {
                self.forward(index, op);
            } else {
                self.hung.push_back((index, releases, op));
            }
        }
    }

    fn unhold(&mut self, now: Nanos) {
        for _ in 0..self.held.len() {
            match self.held.pop_front() {
                Some((until, index)) if until <= now || self.known.gone => {
                    self.ready.push_back(index);
                }
                Some(held) => self.held.push_back(held),
                None => return,
            }
        }
    }

    fn emit(&mut self, batch: &mut CompletionBatch) {
        while batch.room() > 0
            && let Some(index) = self.ready.pop_front()
        {
            let slot = &mut self.slots[index as usize];
            let (op, result) = slot.done.take().expect("a ready request is done");
            let result = if self.known.gone { Err(GONE) } else { result };
            if let Some(serial) = slot.job.serial.take()
                && result.is_ok()
            {
                self.plan.lock().answered(serial);
            }
            self.free.push(index);
            batch.push(Completion { token: slot.job.token, op, result });
        }
    }

    fn outstanding(&self) -> usize {
        self.waiting.len() + self.slots.len() - self.free.len()
    }
}

impl IoQueue for FaultyQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.outstanding() == self.depth {
            return Err(io);
        }
        self.waiting.push_back(io);
        Ok(())
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.look();
        while let Some(io) = self.waiting.pop_front() {
            self.start(io, now);
        }
        self.inner.ring_doorbell(now);
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        self.look();
        self.unhang();
        let mut gathered = std::mem::replace(&mut self.batch, CompletionBatch::new(0));
        self.inner.poll(now, &mut gathered);
        for done in gathered.drain() {
            self.inner_done(done.token.0 as u32, done.op, done.result);
        }
        self.batch = gathered;
        // This doorbell is for released requests and for the second parts of torn writes.
        self.inner.ring_doorbell(now);
        self.unhold(now);
        self.emit(batch);
    }

    fn readiness(&self) -> Readiness {
        if self.outstanding() == 0 {
            return Readiness::Idle;
        }
        if !(self.ready.is_empty() && self.waiting.is_empty() && self.hung.is_empty()) {
            return Readiness::Poll;
        }
        let held = self.held.iter().map(|(until, _)| *until).min();
        match (self.inner.readiness(), held) {
            (inner, None) => inner,
            (Readiness::Idle, Some(until)) => Readiness::At(until),
            (Readiness::At(due), Some(until)) => Readiness::At(due.min(until)),
            (Readiness::Poll | Readiness::Fd(_), Some(_)) => Readiness::Poll,
        }
    }
}

/// Returns a reference to the address of an operation; a flush has no address.
fn place(op: &mut Op) -> Option<&mut Lba> {
    match op {
        Op::Read { at, .. } | Op::Write { at, .. } => Some(at),
        Op::Deallocate { range } | Op::WriteZeroes { range, .. } => Some(&mut range.start),
        Op::Flush => None,
    }
}

fn write(at: Lba, bytes: Vec<u8>) -> Op {
    let mut buf = BufMut::alone(bytes.len());
    buf.as_mut_slice().copy_from_slice(&bytes);
    Op::Write { at, data: Sg::from(buf.freeze()), durability: Durability::Normal }
}

fn flip_bit(bytes: &mut [u8], seed: u64) {
    if !bytes.is_empty() {
        let bit = Random::new(seed).below(bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

fn flip_list(data: &mut SgMut, seed: u64) {
    if data.is_empty() {
        return;
    }
    let mut bit = Random::new(seed).below(data.len() as u64 * 8);
    for part in data.parts_mut() {
        let bits = part.len() as u64 * 8;
        if bit < bits {
            part.as_mut_slice()[(bit / 8) as usize] ^= 1 << (bit % 8);
            return;
        }
        bit -= bits;
    }
}
