//! A small drive that records its commands, and the order of their execution.

use std::sync::{Arc, Mutex, MutexGuard};

use strake_block::{
    BlockDevice, Completion, CompletionBatch, DeallocateReads, DeviceError, DeviceInfo, Durability,
    Io, IoQueue, Op, Readiness, VolatileCache,
};
use strake_engine::Drive;
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, Nanos};

use super::image::{Change, Image};
use super::promise::Promise;
use crate::medium::PageBytes;
use crate::oracle::Content;
use crate::rng::Rng;

/// Longest time of a recorded I/O.
const LATENCY_MAX: u64 = 8_000;

/// Longest time of a slow I/O: an update of all labels takes less.
const SLOW_MAX: u64 = 400_000;

/// One of this many I/Os is slow on drives with an uneven pace.
const SLOW: u64 = 8;

/// A recorded event. Its number is its position in the list.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A drive received a write.
    Issue { drive: usize, offset: u64, change: Change, fua: bool },
    /// The write with that number completed.
    Done { of: usize },
    /// A drive received a flush.
    FlushIssue,
    /// The flush with that number completed.
    FlushDone { drive: usize, of: usize },
    /// A client's write started.
    Begin { id: u64, range: LbaRange, content: Content },
    /// The client's write completed.
    Ack { id: u64, fua: bool },
    /// A client's flush started.
    FlushBegin { id: u64 },
    /// The client's flush completed.
    FlushAck { id: u64 },
    /// The promise of the labels from here on.
    Promise {
        promise: Promise,
        /// The event at the start of the turn in which the promise changed.
        from: usize,
    },
}

/// A list of events that several drives and clients append to.
pub(super) type Tape = Arc<Mutex<Vec<Event>>>;

pub(super) fn note(tape: &Tape, event: Event) -> usize {
    let mut tape = tape.lock().expect("one thread runs a case");
    tape.push(event);
    tape.len() - 1
}

/// False reports of drives, which the checks must detect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    /// No false report.
    #[default]
    None,
    /// A flush has no effect.
    Flush,
    /// A write with FUA stays in the cache.
    Fua,
}

/// The durations of recorded I/Os.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pace {
    /// Similar durations for all.
    #[default]
    Even,
    /// Some take many times as long as others: a later I/O may complete earlier.
    Uneven,
}

impl Pace {
    fn latency(self, rng: &mut Rng) -> Nanos {
        let slow = self == Self::Uneven && rng.one_in(SLOW);
        Nanos(rng.below(if slow { SLOW_MAX } else { LATENCY_MAX }))
    }
}

/// The properties of all drives of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskSpec {
    pub(super) bytes: u64,
    pub(super) block_size: BlockSize,
    pub(super) cache: VolatileCache,
    pub(super) lie: Lie,
    pub(super) pace: Pace,
}

struct State {
    image: Image,
    tape: Option<(Tape, Rng)>,
    outstanding: usize,
}

/// The drive. Clones are the same drive.
#[derive(Clone)]
pub(super) struct Disk {
    spec: DiskSpec,
    number: usize,
    state: Arc<Mutex<State>>,
}

impl Disk {
    pub(super) fn new(spec: DiskSpec, number: usize, image: Image) -> Self {
        let state = State { image, tape: None, outstanding: 0 };
        Self { spec, number, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("one thread runs a case")
    }

    /// Starts the recording of events, with durations drawn from `seed`.
    pub(super) fn record(&self, tape: &Tape, seed: u64) {
        self.state().tape = Some((Arc::clone(tape), Rng::new(seed)));
    }

    /// Ends the recording; later commands complete at once.
    pub(super) fn forget(&self) {
        self.state().tape = None;
    }

    /// The content of the drive: only completed writes.
    pub(super) fn image(&self) -> Image {
        self.state().image.clone()
    }

    /// The 4 KiB at `offset`; `None` if they are zeroes.
    pub(super) fn page(&self, offset: u64) -> Option<PageBytes> {
        self.state().image.page(offset)
    }

    /// True if no I/O is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.state().outstanding == 0
    }

    pub(super) fn drive(&self) -> Drive {
        Drive { device: Arc::new(self.clone()), path: self.name() }
    }

    fn name(&self) -> String {
        format!("disk{}", self.number)
    }
}

impl BlockDevice for Disk {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            identity: self.name(),
            blocks: self.spec.bytes >> self.spec.block_size.shift(),
            block_size: self.spec.block_size,
            io_bytes_max: 1 << 20,
            io_bytes_optimal: 0,
            cache: self.spec.cache,
            deallocate: DeallocateReads::Zeroes,
            fast_zeroes: true,
            read_only: false,
        }
    }

    fn open_queue(&self, _core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        Ok(Box::new(Queue { disk: self.clone(), depth, unrung: Vec::new(), flying: Vec::new() }))
    }

    fn data_within(&self, range: LbaRange) -> Option<LbaRange> {
        let shift = self.spec.block_size.shift();
        let (from, to) = (range.start.0 << shift, (range.start.0 + range.blocks) << shift);
        let (from, to) = self.state().image.data_within(from, to)?;
        Some(LbaRange::new(Lba(from >> shift), (to - from) >> shift))
    }
}

struct Flying {
    io: Io,
    due: Nanos,
    /// The event of the submission to the drive.
    event: usize,
}

struct Queue {
    disk: Disk,
    depth: u32,
    unrung: Vec<Io>,
    flying: Vec<Flying>,
}

impl Queue {
    fn range_bytes(&self, op: &Op) -> (u64, u64) {
        let size = self.disk.spec.block_size;
        let range = op.range(size);
        (range.start.bytes(size), range.blocks << size.shift())
    }

    /// The change that an operation makes, and whether it is stable on completion.
    fn change(&self, op: &Op) -> Option<(Change, bool)> {
        let (_, bytes) = self.range_bytes(op);
        match op {
            Op::Read { .. } | Op::Flush => None,
            Op::Write { data, durability, .. } => {
                let mut all = vec![0; data.len()];
                data.copy_to(&mut all);
                Some((Change::Bytes(all.into()), *durability == Durability::Fua))
            }
            Op::WriteZeroes { durability, .. } => {
                Some((Change::Zeroes(bytes), *durability == Durability::Fua))
            }
            Op::Deallocate { .. } => Some((Change::Zeroes(bytes), false)),
        }
    }

    /// Records the submission of an operation; returns its completion time and its event.
    fn begin(&self, state: &mut State, op: &Op, now: Nanos) -> (Nanos, usize) {
        let Some((tape, rng)) = &mut state.tape else { return (now, 0) };
        let pace = self.disk.spec.pace;
        let (offset, _) = self.range_bytes(op);
        let event = match op {
            Op::Read { .. } => return (now.plus(pace.latency(rng)), 0),
            Op::Flush => Event::FlushIssue,
            Op::Write { .. } | Op::WriteZeroes { .. } | Op::Deallocate { .. } => {
                let (change, fua) = self.change(op).expect("it changes something");
                Event::Issue { drive: self.disk.number, offset, change, fua }
            }
        };
        (now.plus(pace.latency(rng)), note(tape, event))
    }

    fn finish(&self, state: &mut State, flying: Flying) -> Completion {
        let Flying { io: Io { token, mut op }, event, .. } = flying;
        let (offset, bytes) = self.range_bytes(&op);
        assert!(offset + bytes <= self.disk.spec.bytes, "an I/O beyond the end of the drive");
        if let Op::Read { data, .. } = &mut op {
            let mut at = offset;
            for part in data.parts_mut() {
                state.image.read(at, part.as_mut_slice());
                at += part.len() as u64;
            }
        } else if let Op::Write { data, .. } = &op
            && data.parts().len() == 1
        {
            // Nearly every write, without an additional copy.
            state.image.write(offset, data.parts()[0].as_slice());
        } else if let Some((change, _)) = self.change(&op) {
            state.image.apply(offset, &change);
        }
        if let Some((tape, _)) = &state.tape {
            match op {
                Op::Read { .. } => {}
                Op::Flush => {
                    note(tape, Event::FlushDone { drive: self.disk.number, of: event });
                }
                Op::Write { .. } | Op::WriteZeroes { .. } | Op::Deallocate { .. } => {
                    note(tape, Event::Done { of: event });
                }
            }
        }
        Completion { token, op, result: Ok(()) }
    }
}

impl IoQueue for Queue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.unrung.len() + self.flying.len() >= self.depth as usize {
            return Err(io);
        }
        self.unrung.push(io);
        Ok(())
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        if self.unrung.is_empty() {
            return;
        }
        let disk = self.disk.clone();
        let mut state = disk.state();
        for io in std::mem::take(&mut self.unrung) {
            let (due, event) = self.begin(&mut state, &io.op, now);
            state.outstanding += 1;
            self.flying.push(Flying { io, due, event });
        }
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        if self.flying.is_empty() {
            return;
        }
        let disk = self.disk.clone();
        let mut state = disk.state();
        let mut at = 0;
        while at < self.flying.len() && batch.room() > 0 {
            if self.flying[at].due <= now {
                let flying = self.flying.remove(at);
                state.outstanding -= 1;
                batch.push(self.finish(&mut state, flying));
            } else {
                at += 1;
            }
        }
    }

    fn readiness(&self) -> Readiness {
        match self.flying.iter().map(|flying| flying.due).min() {
            Some(due) => Readiness::At(due),
            None => Readiness::Idle,
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.disk.state().outstanding -= self.flying.len();
    }
}
