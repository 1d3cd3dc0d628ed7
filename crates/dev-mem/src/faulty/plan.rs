//! The handle that decides what goes wrong.

use super::bytes::{Cache, Progress, Run};
use super::random::Random;
use super::rule::{Armed, Effect, Rule, RuleId, TearUnit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_block::{Durability, Op};
use strake_units::{BlockSize, LbaRange};

/// What a power cut does to one unflushed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It reached the medium.
    Keep,
    /// It did not.
    Drop,
    /// So many of its first bytes did.
    Tear(u64),
}

/// Whether the device tells the truth about stable writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// Flush and FUA make writes stable.
    #[default]
    Honest,
    /// They succeed and do nothing.
    Lying,
}

/// Decides the faults of one [`Faulty`](super::Faulty) device. Clones are handles to the same plan; any thread
/// may use one while the device is working, and what it changes holds for every operation whose doorbell is
/// rung afterwards.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Counts changes. Queues look at it first: while it is the number they know and the plan was idle then,
    /// they need not take the lock. Stored with release after the change, loaded with acquire before the look.
    version: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    seed: u64,
    rules: Vec<Armed>,
    next_rule: u64,
    gone: bool,
    /// Queues opened in an earlier epoch stay gone.
    epoch: u64,
    /// Hung operations of an earlier release go on.
    releases: u64,
    blocks_max: Option<u64>,
    cache: Option<Cache>,
    flush: Flush,
}

impl FaultPlan {
    /// A plan in which nothing goes wrong yet. Everything left to chance follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = Mutex::new(State { seed, ..State::default() });
        Self { shared: Arc::new(Shared { version: AtomicU64::new(0), state }) }
    }

    /// The same plan with a volatile write cache: writes stay in it until flushed or written with FUA, and
    /// reads see them. Turn it on before the device is used.
    #[must_use]
    pub fn with_cache(self) -> Self {
        self.change(|state| state.cache = Some(Cache::default()));
        self
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        self.shared.version.fetch_add(1, Ordering::Release);
        result
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked with the plan locked is failing already; the rest of it may still look.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    /// Adds a rule after those there are.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.change(|state| {
            state.next_rule += 1;
            let id = RuleId(state.next_rule);
            let seed = state.seed;
            state.rules.push(Armed::new(id, rule, seed));
            id
        })
    }

    /// Removes a rule; how often it had struck, or `None` when there is no such rule (or no longer).
    pub fn remove(&self, id: RuleId) -> Option<u64> {
        self.change(|state| {
            let index = state.rules.iter().position(|armed| armed.id == id)?;
            Some(state.rules.remove(index).struck)
        })
    }

    /// How often a rule has struck, or `None` when there is no such rule.
    #[must_use]
    pub fn struck(&self, id: RuleId) -> Option<u64> {
        self.lock().rules.iter().find(|armed| armed.id == id).map(|armed| armed.struck)
    }

    /// Takes all rules away. What hangs continues hanging.
    pub fn clear(&self) {
        self.change(|state| state.rules.clear());
    }

    /// Lets everything that hangs now go on. It is done and answered at the next polls.
    pub fn release(&self) {
        self.change(|state| state.releases += 1);
    }

    /// Pulls the device: everything outstanding and everything from now on answers
    /// [`Gone`](strake_block::IoErrorKind::Gone), and no queue opens.
    pub fn vanish(&self) {
        self.change(State::vanish);
    }

    /// Puts the device back with what is on it. New queues open; those from before it vanished stay gone, as a
    /// drive that is plugged in again is a new one to the operating system.
    pub fn return_device(&self) {
        self.change(|state| state.gone = false);
    }

    /// Shrinks the device to `blocks` blocks. What lies beyond is out of range from now on.
    pub fn shrink_to(&self, blocks: u64) {
        self.change(|state| state.blocks_max = Some(blocks));
    }

    /// Gives a shrunk device its size back.
    pub fn unshrink(&self) {
        self.change(|state| state.blocks_max = None);
    }

    /// Whether flush and FUA do what they say. Without a modelled cache there is nothing to lie about.
    pub fn lie_about_flush(&self, flush: Flush) {
        self.change(|state| state.flush = flush);
    }

    /// Writes that a power cut could take now.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.lock().cache.as_ref().map_or(0, Cache::unflushed)
    }

    /// Cuts the power: each unflushed write survives or not as `seed` decides, and with `tear` some survive in
    /// part. Queues opened before are gone; new ones open at once.
    pub fn power_cut(&self, seed: u64, tear: Option<TearUnit>) {
        let mut random = Random::new(seed);
        self.cut_power(|start, end| match (random.below(4), tear) {
            (0 | 1, _) => start,
            (2, Some(unit)) => unit.cut(start, end, &mut random),
            _ => end,
        });
    }

    /// Cuts the power with the fate of each unflushed write decided by `fate`, which is given its number,
    /// oldest first. This is how all subsets are tried.
    pub fn power_cut_with(&self, mut fate: impl FnMut(usize) -> Fate) {
        let mut number = 0;
        self.cut_power(|start, end| {
            let fate = fate(number);
            number += 1;
            match fate {
                Fate::Keep => end,
                Fate::Drop => start,
                Fate::Tear(bytes) => start.saturating_add(bytes),
            }
        });
    }

    fn cut_power(&self, keep: impl FnMut(u64, u64) -> u64) {
        self.change(|state| {
            state.epoch += 1;
            if let Some(cache) = &mut state.cache {
                cache.power_cut(keep);
            }
        });
    }

    pub(super) fn is_gone(&self) -> bool {
        self.lock().gone
    }

    pub(super) fn has_cache(&self) -> bool {
        self.lock().cache.is_some()
    }

    pub(super) fn blocks(&self, blocks: u64) -> u64 {
        self.lock().blocks_max.map_or(blocks, |max| blocks.min(max))
    }

    pub(super) fn take_cached(&self) -> Vec<(u64, Run)> {
        self.lock().cache.as_mut().map_or_else(Vec::new, |cache| cache.take().collect())
    }
}

/// What a cache makes of an operation.
pub(super) enum Cached {
    /// Not its business: the inner device does it.
    Below,
    /// Done. A write has a serial number, by which it is reported as answered.
    Done(Option<u64>),
}

impl State {
    pub(super) fn vanish(&mut self) {
        self.gone = true;
        self.epoch += 1;
    }

    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) const fn releases(&self) -> u64 {
        self.releases
    }

    pub(super) const fn blocks_max(&self) -> Option<u64> {
        self.blocks_max
    }

    /// True when every operation passes through untouched.
    pub(super) fn is_idle(&self) -> bool {
        self.rules.is_empty() && self.cache.is_none() && self.blocks_max.is_none()
    }

    /// What goes wrong with `op`, if anything.
    pub(super) fn strike(&mut self, op: &Op, range: LbaRange) -> Option<(Effect, u64)> {
        self.rules.iter_mut().find_map(|armed| armed.strike(op, range))
    }

    /// Does `op` in the cache, when there is one and it is its business.
    pub(super) fn cached(&mut self, op: &Op, size: BlockSize) -> Cached {
        let Some(cache) = &mut self.cache else {
            return Cached::Below;
        };
        let lying = self.flush == Flush::Lying;
        let progress = |durability: Durability| match durability {
            Durability::Fua if !lying => Progress::Stable,
            Durability::Fua | Durability::Normal => Progress::Arrived,
        };
        let start = op.range(size).start.bytes(size);
        let zeroes = |range: &LbaRange| Run::Zeroes(range.blocks << size.shift());
        let serial = match op {
            Op::Read { .. } => return Cached::Below,
            Op::Write { data, durability, .. } => {
                let mut bytes = vec![0; data.len()];
                data.copy_to(&mut bytes);
                cache.record(start, Run::Data(bytes), progress(*durability))
            }
            Op::WriteZeroes { range, durability } => {
                cache.record(start, zeroes(range), progress(*durability))
            }
            Op::Deallocate { range } => cache.record(start, zeroes(range), Progress::Arrived),
            Op::Flush => {
                if !lying {
                    cache.flush();
                }
                return Cached::Done(None);
            }
        };
        Cached::Done(Some(serial))
    }

    /// Records the beginning of a torn write, when there is a cache.
    pub(super) fn cached_part(&mut self, start: u64, data: &[u8]) -> Cached {
        match &mut self.cache {
            Some(cache) => {
                Cached::Done(Some(cache.record(start, Run::Data(data.to_vec()), Progress::Arrived)))
            }
            None => Cached::Below,
        }
    }

    /// Lays the cache over a read's bytes.
    pub(super) fn overlay(&self, target: &mut [u8], start: u64) {
        if let Some(cache) = &self.cache {
            cache.copy_into(target, start);
        }
    }

    /// A write was reported to its owner.
    pub(super) fn answered(&mut self, serial: u64) {
        if let Some(cache) = &mut self.cache {
            cache.answered(serial);
        }
    }
}
