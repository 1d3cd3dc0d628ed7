//! A load on a data core: a fixed number of requests, each of which is sent again as soon as it completes.
//!
//! **What it is.** [`Load`] is a poller like any shard of an array. Its cost is only the instructions that it executes,
//! and those are measured: the same load on a null drive shows the share of the load and the reactor. [`Pattern`] says
//! which requests it sends, [`Progress`] what came of them.
//!
//! **What it must never do.** Allocate after its start, or read the clock more than once per turn; the resolution of a
//! latency is therefore the duration of a turn. Know which device it loads.
//!
//! **Where to start.** [`Load::new`], and the example `instructions`, which `cargo xtask instructions` runs. The
//! example is in this crate, and not in `bench`, so that its build needs no more than the engine.

#![forbid(unsafe_code)]

mod choice;
pub mod histogram;
#[cfg(test)]
mod tests;
mod verify;
pub mod zipf;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;

use strake_block::{
    BufMut, BufPool, Completion, CompletionBatch, Durability, Io, IoQueue, Op, Readiness, Sg,
    SgMut, Token,
};
use strake_reactor::{Poller, Sleep, Turn};
use strake_units::{Lba, Nanos};

use choice::{Choice, Random};
use histogram::Histogram;
use verify::Verify;

pub use choice::Order;

/// Where written data come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Every request has a buffer of its own, which is sent again and again.
    Own,
    /// All requests send one buffer, so it is in the cache nearest to the core that holds it.
    Shared,
    /// Requests send buffers that were used longest ago, out of so many bytes of them.
    Cold(usize),
}

/// Runs of places with gaps between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// Places of a run.
    pub run: u64,
    /// Requests from the start of a run to the start of the next.
    pub every: u64,
}

impl Stride {
    /// Where the `nth` place is, in requests.
    #[must_use]
    pub const fn place(self, nth: u64) -> u64 {
        nth / self.run * self.every + nth % self.run
    }
}

/// What is asked of a device, by one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pattern {
    /// Writes among 100 requests.
    pub write_percent: u8,
    /// Blocks of a request.
    pub blocks: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Where requests go.
    pub order: Order,
    /// Requests that are out at a time.
    pub depth: u32,
    /// First block of the part of the device that is used.
    pub first: u64,
    /// Requests that fit into that part.
    pub places: u64,
    /// How places lie, when they do not follow each other.
    pub stride: Option<Stride>,
    /// Where written data come from.
    pub source: Source,
    /// Whether data that come back are compared with what was written. Not for [`Source::Shared`].
    pub verify: bool,
    /// What decides at random.
    pub seed: u64,
}

impl Default for Pattern {
    fn default() -> Self {
        Self {
            write_percent: 0,
            blocks: 1,
            block_bytes: 4096,
            order: Order::Random,
            depth: 128,
            first: 0,
            places: 1,
            stride: None,
            source: Source::Own,
            verify: false,
            seed: 1,
        }
    }
}

impl Pattern {
    /// Bytes of a request.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.blocks as usize * self.block_bytes as usize
    }

    /// Buffers of data to read into.
    const fn read_buffers(&self) -> usize {
        if self.write_percent == 100 { 0 } else { self.depth as usize }
    }

    /// Buffers of data to write.
    const fn write_buffers(&self) -> usize {
        let depth = self.depth as usize;
        if self.write_percent == 0 {
            return 0;
        }
        match self.source {
            Source::Own => depth,
            Source::Shared => 1,
            Source::Cold(bytes) => {
                let count = bytes / self.bytes();
                if count < depth { depth } else { count }
            }
        }
    }

    /// Bytes of memory that the load takes for its buffers.
    #[must_use]
    pub const fn memory(&self) -> usize {
        (self.read_buffers() + self.write_buffers()) * self.bytes()
    }
}

/// What the load has done so far, as others may read it at any time.
#[derive(Debug, Default)]
pub struct Progress {
    /// Reads that came back.
    pub reads: AtomicU64,
    /// Writes that came back.
    pub writes: AtomicU64,
    /// Requests that failed.
    pub failed: AtomicU64,
    /// Reads that found something else than was written.
    pub wrong: AtomicU64,
    /// The time of the core when the counts were last brought up to date, in nanoseconds.
    pub at: AtomicU64,
    /// How long reads took.
    pub read_latency: Histogram,
    /// How long writes took.
    pub write_latency: Histogram,
    /// No more requests are to be sent.
    pub stop: AtomicBool,
}

/// Adds to a counter that one thread writes. Relaxed: a counter orders nothing.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed) + more, Relaxed);
}

/// A queue to a device and the requests that keep it busy: a poller of a data core.
pub struct Load {
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
    flow: Flow,
}

impl Load {
    /// Gets everything ready; the first turn sends the first requests. `stopped` is notified once, when the load was
    /// asked to stop and no request is out; it needs room for that.
    #[must_use]
    pub fn new(
        queue: Box<dyn IoQueue>,
        pattern: &Pattern,
        progress: Arc<Progress>,
        stopped: SyncSender<()>,
    ) -> Self {
        let batch = CompletionBatch::new((pattern.depth as usize).max(1));
        Self { queue, batch, flow: Flow::new(pattern, progress, stopped) }
    }
}

impl Poller for Load {
    fn turn(&mut self, now: Nanos) -> Turn {
        self.queue.poll(now, &mut self.batch);
        let count = self.batch.len();
        for completion in self.batch.drain() {
            self.flow.came(completion, now);
        }
        if count > 0 {
            self.flow.tell(now);
        }
        self.flow.start(now);
        self.queue.submit_batch(&mut self.flow.sending);
        self.queue.ring_doorbell(now);
        Turn::from_count(count)
    }

    fn sleep(&self, sleep: &mut Sleep) {
        match self.queue.readiness() {
            Readiness::Idle => {}
            Readiness::Poll => sleep.never(),
            Readiness::Fd(fd) => sleep.fd(fd),
            Readiness::At(time) => sleep.until(time),
        }
    }
}

/// A request that may be out.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    sent: Nanos,
    place: u64,
    at: Lba,
}

/// Requests of one kind with one latency, one after the other: counted at once.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    ns: u64,
    count: u64,
}

impl Run {
    fn count(&mut self, ns: u64, histogram: &Histogram) {
        if self.ns != ns {
            self.flush(histogram);
            self.ns = ns;
        }
        self.count += 1;
    }

    fn flush(&mut self, histogram: &Histogram) {
        if self.count > 0 {
            histogram.record(self.ns, self.count);
            self.count = 0;
        }
    }
}

/// The requests of a load and what becomes of them.
struct Flow {
    choice: Choice,
    verify: Option<Verify>,
    slots: Vec<Slot>,
    /// Requests with buffers that are not out, the one used longest ago first.
    reads: VecDeque<Op>,
    writes: VecDeque<Op>,
    /// Requests to submit with this turn, or with the next that finds room.
    sending: VecDeque<Io>,
    /// Slots that were never used, the last of all slots first.
    unused: u32,
    out: u32,
    reads_done: u64,
    writes_done: u64,
    failed: u64,
    wrong: u64,
    read_run: Run,
    write_run: Run,
    progress: Arc<Progress>,
    /// Notified of the end, then `None`.
    stopped: Option<SyncSender<()>>,
}

impl Flow {
    fn new(pattern: &Pattern, progress: Arc<Progress>, stopped: SyncSender<()>) -> Self {
        let depth = pattern.depth as usize;
        Self {
            choice: Choice::new(pattern),
            verify: pattern.verify.then(|| Verify::new(pattern.places, pattern.seed)),
            slots: vec![Slot::default(); depth],
            reads: reads(pattern),
            writes: writes(pattern),
            sending: VecDeque::with_capacity(depth),
            unused: pattern.depth,
            out: 0,
            reads_done: 0,
            writes_done: 0,
            failed: 0,
            wrong: 0,
            read_run: Run::default(),
            write_run: Run::default(),
            progress,
            stopped: Some(stopped),
        }
    }

    /// Sends the requests that were never sent; after a stop, reports once that none is out.
    fn start(&mut self, now: Nanos) {
        if self.progress.stop.load(Relaxed) {
            if let Some(stopped) = self.stopped.take_if(|_| self.out == 0) {
                // The receiver is gone when this fails.
                let _ = stopped.try_send(());
            }
            return;
        }
        while self.unused > 0 {
            self.unused -= 1;
            let slot = self.unused;
            let (place, write) = self.next();
            let list = if write { &mut self.writes } else { &mut self.reads };
            let op = list.pop_front().expect("there are as many as may be out");
            self.out += 1;
            self.send(slot, place, op, now);
        }
    }

    /// A request has completed: counts it, and sends another one in its stead.
    fn came(&mut self, completion: Completion, now: Nanos) {
        let Completion { token, op, result } = completion;
        let slot = token.0 as usize;
        let Slot { sent, place, at } = self.slots[slot];
        let ns = now.since(sent).0;
        let read = match &op {
            Op::Read { data, .. } => {
                self.reads_done += 1;
                self.read_run.count(ns, &self.progress.read_latency);
                Some(data)
            }
            Op::Write { .. } | Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {
                self.writes_done += 1;
                self.write_run.count(ns, &self.progress.write_latency);
                None
            }
        };
        self.failed += u64::from(result.is_err());
        if let Some(verify) = &mut self.verify {
            self.wrong += u64::from(!verify.end(place, at, read.filter(|_| result.is_ok())));
        }
        let was_read = read.is_some();
        if self.progress.stop.load(Relaxed) {
            self.out -= 1;
            return;
        }
        let (place, write) = self.next();
        let op = self.exchange(op, was_read, write);
        self.send(slot as u32, place, op, now);
    }

    /// A request of the kind that is wanted for one that has completed; the one used longest ago where there are more.
    fn exchange(&mut self, op: Op, was_read: bool, write: bool) -> Op {
        let (own, wanted) = (was_read, !write);
        let spares = if wanted { &mut self.reads } else { &mut self.writes };
        if own == wanted {
            if spares.is_empty() {
                return op;
            }
            spares.push_back(op);
            return spares.pop_front().expect("one was just put there");
        }
        let other = spares.pop_front().expect("of either kind there are as many as may be out");
        if own {
            self.reads.push_back(op)
        } else {
            self.writes.push_back(op)
        }
        other
    }

    /// The next place and what to do there; with verification one for which nothing is out.
    fn next(&mut self) -> (u64, bool) {
        let (mut place, write) = self.choice.next();
        if let Some(verify) = &mut self.verify {
            while !verify.begin(place, write) {
                place = self.choice.after(place);
            }
        }
        (place, write)
    }

    fn send(&mut self, slot: u32, place: u64, mut op: Op, now: Nanos) {
        let to = self.choice.address(place);
        self.slots[slot as usize] = Slot { sent: now, place, at: to };
        if let Some(verify) = &self.verify {
            op = fill(verify, place, to, op);
        }
        match &mut op {
            Op::Read { at, .. } | Op::Write { at, .. } => *at = to,
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
        }
        self.sending.push_back(Io { token: Token(u64::from(slot)), op });
    }

    /// Brings what others read up to date.
    fn tell(&mut self, now: Nanos) {
        let progress = &self.progress;
        self.read_run.flush(&progress.read_latency);
        self.write_run.flush(&progress.write_latency);
        for (counter, more) in [
            (&progress.reads, &mut self.reads_done),
            (&progress.writes, &mut self.writes_done),
            (&progress.failed, &mut self.failed),
            (&progress.wrong, &mut self.wrong),
        ] {
            if *more > 0 {
                add(counter, std::mem::take(more));
            }
        }
        progress.at.store(now.0, Relaxed);
    }
}

/// Requests to read.
fn reads(pattern: &Pattern) -> VecDeque<Op> {
    let read = |buf: BufMut| Op::Read { at: Lba(0), data: SgMut::from(buf) };
    buffers(pattern.read_buffers(), pattern.bytes()).into_iter().map(read).collect()
}

/// Requests to write bytes that look random: nothing below may profit from zeros.
fn writes(pattern: &Pattern) -> VecDeque<Op> {
    let mut random = Random::new(pattern.seed);
    let mut filled = |mut buf: BufMut| {
        for word in buf.as_mut_slice().chunks_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]);
        }
        Sg::from(buf.freeze())
    };
    let buffers = buffers(pattern.write_buffers(), pattern.bytes());
    let mut sources = buffers.into_iter().map(&mut filled);
    let write = |data: Sg| Op::Write { at: Lba(0), data, durability: Durability::Normal };
    match pattern.source {
        Source::Own | Source::Cold(_) => sources.map(write).collect(),
        Source::Shared => {
            let shared = sources.next();
            let again = |shared: &Sg| write(shared.slice(0, shared.len()));
            shared.iter().flat_map(|sg| (0..pattern.depth).map(move |_| again(sg))).collect()
        }
    }
}

/// Buffers that lie next to each other.
fn buffers(count: usize, bytes: usize) -> Vec<BufMut> {
    if count == 0 {
        return Vec::new();
    }
    let mut pool = BufPool::new(count, bytes);
    (0..count).map_while(|_| pool.get(bytes)).collect()
}

/// The same request with what is to be at its place from now on.
fn fill(verify: &Verify, place: u64, at: Lba, op: Op) -> Op {
    match op {
        Op::Write { data, durability, .. } => {
            let data =
                verify.fill(place, at, data).expect("buffers of completed requests are ours alone");
            Op::Write { at, data, durability }
        }
        Op::Read { .. } | Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => op,
    }
}
