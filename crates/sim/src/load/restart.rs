//! How long it takes from the start of a daemon that was killed to the first answers to a client, on modelled drives.
//!
//! An array is loaded until its bitmap is busy and its log has gone around, and the daemon is killed. What counts is
//! the simulated time from then on: finding the labels, reading bitmaps and log, carrying the log out, writing labels,
//! and answering a read and a write. Not in it is what a CPU takes, or the kernel, to start a process and open drives.

use strake_block::{BufMut, CompletionBatch, Durability, Io, IoQueue, Op, Sg, SgMut, Token};
use strake_engine::{Array, AssemblePolicy, Assembled, Consistency, Drive, Options, Outcome};
use strake_reactor::{Poller, Turn};
use strake_units::{CoreIndex, Lba, MemberIndex, Nanos, Uuid};

use super::client::{Habit, Pace, Work};
use super::lab::{Lab, Spec};
use crate::rng::{Rng, mix};

/// Requests under way at a time.
const DEPTH: u32 = 128;

/// Simulated time between two looks at a drive that has not answered.
const LOOK: Nanos = Nanos(5 * Nanos::MICRO.0);

/// Simulated time after which a start counts as stuck.
const PATIENCE: Nanos = Nanos(600 * Nanos::SECOND.0);

/// How an array stands when its daemon is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stand {
    /// What it promises after a crash.
    pub consistency: Consistency,
    /// A member is out.
    pub degraded: bool,
    /// Simulated time under load before the kill; by chance up to twice that.
    pub load: Nanos,
}

/// A start after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// From the start to the later one of the first two answers.
    pub took: Nanos,
    /// Writes that were done again from the log.
    pub redone: u64,
    /// Regions that are resynchronized afterwards.
    pub regions: u32,
}

/// Loads an array like `spec` that stands like `stand`, kills the daemon and starts it again.
///
/// # Errors
/// When the array does not come up by itself, or a request fails.
pub fn restart(spec: &Spec, stand: Stand, seed: u64) -> Result<Restart, String> {
    let mut rng = Rng::new(mix(seed));
    let spec = Spec { consistency: stand.consistency, seed: rng.bits(), ..spec.clone() };
    let mut lab = Lab::new(&spec)?;
    if stand.degraded {
        lab.fail(MemberIndex(rng.below(spec.drives.into()) as u8))?;
    }
    let habit = Habit { work: Work::Mixed, pace: Pace::Closed { depth: DEPTH } };
    lab.set_clients(Some(habit))?;
    lab.watch(stand.load.plus(Nanos(rng.below(stand.load.0))))?;
    let (drives, began) = lab.kill();

    let mut now = began;
    let assembled = assemble(&drives, &mut rng, &mut now)?;
    let recovery = assembled.recovery();
    let (array, shards) = Array::start_here(assembled, spec.cores, Options::default())
        .map_err(|error| format!("start: {error}"))?;
    let mut up = Up { array, shards, turn: spec.turn, now };
    up.first_answers(&mut rng)?;
    let took = up.now.since(began);
    Ok(Restart { took, redone: recovery.redone, regions: recovery.resync_regions })
}

fn assemble(drives: &[Drive], rng: &mut Rng, now: &mut Nanos) -> Result<Assembled, String> {
    let mut wait = || {
        *now = now.plus(LOOK);
        Some(*now)
    };
    let mut epoch = || Uuid::from_random(rng.bytes16());
    let (mut outcomes, unreadable) = strake_engine::assemble(
        drives,
        AssemblePolicy::default(),
        &|_, _| true,
        &mut epoch,
        &mut wait,
    );
    match (unreadable.first(), outcomes.pop()) {
        (None, Some(Outcome::Ready(assembled))) => Ok(*assembled),
        (None, Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. })) => Err(what),
        (Some(error), _) => Err(error.to_string()),
        (None, None) => Err("there is no array any more".to_owned()),
    }
}

/// An array that has just come up.
struct Up {
    array: Array,
    shards: Vec<Box<dyn Poller>>,
    turn: Nanos,
    now: Nanos,
}

impl Up {
    /// Makes a read and a write anywhere and waits for both.
    fn first_answers(&mut self, rng: &mut Rng) -> Result<(), String> {
        let device = self.array.device();
        let blocks = device.info().blocks;
        let mut queue = device.open_queue(CoreIndex(0), 2).map_err(|error| error.to_string())?;
        let memory = || BufMut::alone(device.info().block_size.bytes() as usize);
        let mut anywhere = || Lba(rng.below(blocks));
        let data = Sg::from(memory().freeze());
        let ops = [
            Op::Read { at: anywhere(), data: SgMut::from(memory()) },
            Op::Write { at: anywhere(), data, durability: Durability::Normal },
        ];
        for (token, op) in (0..).map(Token).zip(ops) {
            queue.submit(Io { token, op }).map_err(|_| "a new queue is full".to_owned())?;
        }
        queue.ring_doorbell(self.now);
        self.answers(&mut *queue, 2)
    }

    fn answers(&mut self, queue: &mut dyn IoQueue, mut open: usize) -> Result<(), String> {
        let mut batch = CompletionBatch::new(open);
        let deadline = self.now.plus(PATIENCE);
        while open > 0 {
            let busy = self.shards.iter_mut().any(|shard| shard.turn(self.now) != Turn::Idle);
            queue.poll(self.now, &mut batch);
            for answer in batch.drain() {
                answer.result.map_err(|error| format!("the first request failed: {error}"))?;
                open -= 1;
            }
            self.now = self.now.plus(if busy { self.turn } else { LOOK });
            if self.now > deadline {
                return Err(format!("no answer: {:?}", self.array.status()));
            }
        }
        Ok(())
    }
}

/// The smallest of `sorted` that so many percent are not above; zero of none.
#[must_use]
pub fn percentile(sorted: &[Nanos], percent: usize) -> Nanos {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(Nanos(0))
}

#[cfg(test)]
mod tests;
