//! An array that runs on one thread, and its client.

use std::sync::mpsc::Receiver;

use strake_block::{
    BufMut, Completion, CompletionBatch, Durability, Io, IoQueue, Op, Sg, SgMut, Token,
};
use strake_engine::{Array, Assembled, Options, Pending};
use strake_reactor::Poller;
use strake_units::{BlockSize, CoreIndex, LbaRange, Nanos};

use super::case::Case;
use super::promise::Watch;
use crate::content;

/// Rounds after which a wait counts as stuck.
pub(super) const PATIENCE: u64 = 100_000;

/// Memory of a shard: enough for a few stripes of the sizes in use.
const SCRATCH_BYTES: usize = 256 << 10;

/// Bands that a shard processes at a time: as many as there are requests.
const TASKS: usize = 24;

/// Requests in flight at a time.
const DEPTH: u32 = 16;

pub(super) struct Host {
    pub(super) array: Array,
    pollers: Vec<Box<dyn Poller>>,
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
    pub(super) now: Nanos,
    /// Records the promises of the labels, if this is requested.
    pub(super) watch: Option<Watch>,
}

impl Host {
    pub(super) fn start(assembled: Assembled, case: &Case, now: Nanos) -> Result<Self, String> {
        let options = Options { scratch_bytes: SCRATCH_BYTES, tasks: TASKS, ..Options::default() };
        let (array, pollers) = Array::start_here(assembled, case.cores, options)
            .map_err(|error| format!("start: {error}"))?;
        let core = CoreIndex(case.cores - 1);
        let queue = array.device().open_queue(core, DEPTH).map_err(|error| error.to_string())?;
        let batch = CompletionBatch::new(DEPTH as usize);
        Ok(Self { array, pollers, queue, batch, now, watch: None })
    }

    /// Runs one turn of every shard, `step` later. Returns the completions.
    pub(super) fn round(&mut self, step: Nanos) -> Vec<Completion> {
        self.now = self.now.plus(step);
        let before = self.watch.as_ref().map_or(0, Watch::events);
        for poller in &mut self.pollers {
            poller.turn(self.now);
        }
        if let Some(watch) = &mut self.watch {
            watch.note(&self.array.newest_label(), before);
        }
        self.queue.poll(self.now, &mut self.batch);
        self.batch.drain().collect()
    }

    pub(super) fn submit(&mut self, id: u64, op: Op) -> Result<(), String> {
        self.queue.submit(Io { token: Token(id), op }).map_err(|_| "a queue is full".to_owned())?;
        self.queue.ring_doorbell(self.now);
        Ok(())
    }

    /// Runs rounds until `done`.
    pub(super) fn until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        for _ in 0..PATIENCE {
            if done(self)? {
                return Ok(());
            }
        }
        Err(format!("{what} does not happen: {:?}", self.array.status()))
    }

    /// Submits one request and waits for its completion.
    pub(super) fn run(&mut self, op: Op) -> Result<Op, String> {
        self.submit(0, op)?;
        let mut answer = None;
        self.until("an answer", |host| {
            answer = answer.take().or_else(|| host.round(Nanos(1_000)).pop());
            Ok(answer.is_some())
        })?;
        let Completion { op, result, .. } = answer.expect("waited for it");
        result.map(|()| op).map_err(|error| format!("a request failed: {error}"))
    }

    /// Reads the bytes of `range`.
    pub(super) fn read(&mut self, range: LbaRange, size: BlockSize) -> Result<Vec<u8>, String> {
        let data = BufMut::alone((range.blocks << size.shift()) as usize);
        let Op::Read { data, .. } =
            self.run(Op::Read { at: range.start, data: SgMut::from(data) })?
        else {
            return Err("a read came home as something else".to_owned());
        };
        Ok(data.parts().iter().flat_map(|part| part.as_slice()).copied().collect())
    }
}

/// A clean shutdown in progress. The caller runs a round of the array before each poll.
pub(super) enum Stopping {
    /// Shards complete their requests and maintenance.
    Quiescing(Vec<Receiver<()>>),
    /// The labels are being written.
    Recording(Pending),
}

impl Stopping {
    pub(super) fn start(array: &Array) -> Self {
        Self::Quiescing(array.begin_quiesce())
    }

    /// True if the array has stopped.
    pub(super) fn is_finished(&mut self, array: &Array) -> Result<bool, String> {
        match self {
            Self::Quiescing(quiet) => {
                quiet.retain(|answer| answer.try_recv().is_err());
                if quiet.is_empty() {
                    *self = Self::Recording(array.begin_stop());
                }
                Ok(false)
            }
            Self::Recording(pending) => match pending.poll() {
                Some(Err(error)) => Err(format!("stop: {error}")),
                answer => Ok(answer.is_some()),
            },
        }
    }
}

/// A write with the content of write `id`.
pub(super) fn write_op(id: u64, range: LbaRange, size: BlockSize, fua: bool) -> Op {
    let mut data = BufMut::alone((range.blocks << size.shift()) as usize);
    let blocks = data.as_mut_slice().chunks_exact_mut(size.bytes() as usize);
    for (lba, block) in (range.start.0..).zip(blocks) {
        content::fill(id, lba, block);
    }
    Op::Write { at: range.start, data: Sg::from(data.freeze()), durability: durability(fua) }
}

pub(super) const fn durability(fua: bool) -> Durability {
    if fua { Durability::Fua } else { Durability::Normal }
}
