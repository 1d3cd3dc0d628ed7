//! The time from the start of a killed daemon to the first completions of a client, on modelled drives.
//!
//! An array is loaded until its bitmap is busy and its log has wrapped around, and the daemon is killed. The result is
//! the simulated time from then on: finding the labels, reading bitmaps and log, replaying the log, writing labels, and
//! completing a read and a write. It does not include CPU time, or the time of the kernel for starting a process and
//! opening drives.
//!
//! One drive may hang during the start. Then the array must start without it, and no other member may be left out.

use strake_block::{BufMut, CompletionBatch, Durability, Io, IoQueue, Op, Sg, SgMut, Token};
use strake_dev_mem::{Effect, Ops, Profile, Rule, When};
use strake_engine::{Array, AssemblePolicy, Assembled, Consistency, Drive, Options, Outcome};
use strake_raid::MemberState;
use strake_reactor::{Poller, Turn};
use strake_units::{CoreIndex, Lba, MemberIndex, Nanos, Uuid};

use super::client::{Habit, Pace, Work};
use super::lab::{Lab, Spec};
use crate::rng::{Rng, mix};

/// Interval of polls of a drive that has not answered.
const LOOK: Nanos = Nanos(5 * Nanos::MICRO.0);

/// Interval of these polls after a start has taken more than a second.
const LOOK_LATE: Nanos = Nanos::MILLI;

/// Drives that take 10 ms for everything, independent of its size.
pub const SLOW: Profile = Profile {
    name: "10 ms",
    read_latency: Nanos(10 * Nanos::MILLI.0),
    read_latency_tail: Nanos(10 * Nanos::MILLI.0),
    write_latency: Nanos(10 * Nanos::MILLI.0),
    write_latency_tail: Nanos(10 * Nanos::MILLI.0),
    flush_latency: Nanos(10 * Nanos::MILLI.0),
    ..Profile::INSTANT
};

/// The number of requests of a start, counted on one drive, one of which hangs.
const HANGS: u64 = 80;

/// Simulated time after which a start counts as stuck.
const PATIENCE: Nanos = Nanos(600 * Nanos::SECOND.0);

/// The state of an array when its daemon is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stand {
    /// Its consistency mode.
    pub consistency: Consistency,
    /// Whether a member is out.
    pub degraded: bool,
    /// Simulated time under load before the kill; up to twice that at random.
    pub load: Nanos,
    /// The load.
    pub work: Work,
    /// The number of outstanding requests.
    pub depth: u32,
    /// Whether a drive of a member in sync does not answer some request of the start.
    pub hang: bool,
}

/// The result of a start after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The time from the start to the later of the first two completions.
    pub took: Nanos,
    /// Writes that were replayed from the log.
    pub redone: u64,
    /// Regions that are resynchronized afterwards.
    pub regions: u32,
    /// Whether a drive hung, and the array started without it.
    pub hung: bool,
}

/// Loads an array like `spec` in the state `stand`, kills the daemon and starts it again.
///
/// Returns an error if the array does not start automatically, or if a request fails.
pub fn restart(spec: &Spec, stand: Stand, seed: u64) -> Result<Restart, String> {
    let mut rng = Rng::new(mix(seed));
    let spec = Spec { consistency: stand.consistency, seed: rng.bits(), ..spec.clone() };
    let mut lab = Lab::new(&spec)?;
    let out = MemberIndex(rng.below(spec.drives.into()) as u8);
    if stand.degraded {
        lab.fail(out)?;
    }
    let pace = Pace::Closed { depth: stand.depth };
    lab.set_clients(Some(Habit { work: stand.work, pace }))?;
    lab.watch(stand.load.plus(Nanos(rng.below(stand.load.0))))?;
    let (drives, plans, began) = lab.kill();

    let victim = (out.at() + 1 + rng.below(u64::from(spec.drives) - 1) as usize) % drives.len();
    let rule = stand.hang.then(|| {
        let ops = if rng.below(2) == 0 { Ops::READ } else { Ops::WRITE };
        plans[victim].add(Rule::new(ops, Effect::Hang).when(When::Nth(1 + rng.below(HANGS))))
    });
    let mut now = began;
    let (assembled, unreadable) = assemble(&drives, stand, &mut rng, &mut now)?;
    let hung = rule.is_some_and(|rule| plans[victim].struck(rule) > Some(0));
    let out = stand.degraded.then_some(out.at());
    without(&assembled, &unreadable, &drives, (hung.then_some(victim), out))?;
    plans[victim].clear();
    let recovery = assembled.recovery();
    let (array, shards) = Array::start_here(assembled, spec.cores, Options::default())
        .map_err(|error| format!("start: {error}"))?;
    let mut up = Up { array, shards, turn: spec.turn, now };
    up.first_answers(&mut rng)?;
    let took = up.now.since(began);
    Ok(Restart { took, redone: recovery.redone, regions: recovery.resync_regions, hung })
}

fn assemble(
    drives: &[Drive],
    stand: Stand,
    rng: &mut Rng,
    now: &mut Nanos,
) -> Result<(Assembled, Vec<String>), String> {
    let began = *now;
    let mut wait = || {
        let late = now.since(began) > Nanos::SECOND;
        *now = now.plus(if late { LOOK_LATE } else { LOOK });
        (now.since(began) < PATIENCE).then_some(*now)
    };
    let mut epoch = || Uuid::from_random(rng.bytes16());
    let policy = AssemblePolicy { allow_degraded: stand.hang, ..AssemblePolicy::default() };
    let (mut outcomes, unreadable) =
        strake_engine::assemble(drives, policy, &|_, _| true, &mut epoch, &mut wait);
    let unreadable = unreadable.iter().map(ToString::to_string).collect();
    match outcomes.pop() {
        Some(Outcome::Ready(assembled)) => Ok((*assembled, unreadable)),
        Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. }) => {
            Err(format!("{what} ({unreadable:?})"))
        }
        None => Err(format!("there is no array any more: {unreadable:?}")),
    }
}

/// Checks that the member that hung is out and is the only unreadable one, and that no other member is out except the
/// one that was `out` before.
fn without(
    assembled: &Assembled,
    unreadable: &[String],
    drives: &[Drive],
    (hung, out): (Option<usize>, Option<usize>),
) -> Result<(), String> {
    let blamed = |what: &String| hung.is_some_and(|at| what.starts_with(&drives[at].path));
    if !unreadable.iter().all(blamed) || unreadable.is_empty() == hung.is_some() {
        return Err(format!("member {hung:?} hung, and these are blamed: {unreadable:?}"));
    }
    for (at, state) in assembled.states().iter().enumerate() {
        let absent = hung == Some(at) || out == Some(at);
        if absent == (*state == MemberState::InSync) {
            return Err(format!("member {hung:?} hung, {out:?} was out, and {at} is {state:?}"));
        }
    }
    Ok(())
}

/// An array that has just started.
struct Up {
    array: Array,
    shards: Vec<Box<dyn Poller>>,
    turn: Nanos,
    now: Nanos,
}

impl Up {
    /// Submits a read and a write at random addresses and waits for both.
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

/// The smallest of `sorted` such that at least `percent` percent are not larger; zero for an empty list.
#[must_use]
pub fn percentile(sorted: &[Nanos], percent: usize) -> Nanos {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(Nanos(0))
}

#[cfg(test)]
mod tests;
