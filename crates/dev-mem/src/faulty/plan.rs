//! The handle that selects the faults.

use super::bytes::{Cache, Progress, Run};
use super::random::Random;
use super::rule::{Armed, Effect, Rule, RuleId, TearUnit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_block::{Durability, Op};
use strake_units::{BlockSize, LbaRange};

/// The effect of a power cut on one unflushed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The write reached the medium.
    Keep,
    /// The write did not reach the medium.
    Drop,
    /// This number of its first bytes reached the medium.
    Tear(u64),
}

/// The behaviour of the device for flush and FUA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// Flush and FUA make writes stable.
    #[default]
    Honest,
    /// Flush and FUA succeed without an effect.
    Lying,
}

/// Selects the faults of one [`Faulty`](super::Faulty) device. Clones are handles to the same plan. Any thread may use
/// a handle while the device works; a change applies to all operations whose doorbell follows the change.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The number of changes, which queues read first. A queue need not take the lock if this is the number that it
    /// knows and the plan was idle then. A change stores the number with release after the change; a queue loads it
    /// with acquire before it reads the plan.
    version: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    seed: u64,
    rules: Vec<Armed>,
    next_rule: u64,
    gone: bool,
    /// Queues of an earlier epoch remain gone.
    epoch: u64,
    /// Hung operations from before a release continue.
    releases: u64,
    blocks_max: Option<u64>,
    cache: Option<Cache>,
    flush: Flush,
}

impl FaultPlan {
    /// Returns a plan without faults. All random decisions depend on `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = Mutex::new(State { seed, ..State::default() });
        Self { shared: Arc::new(Shared { version: AtomicU64::new(0), state }) }
    }

    /// Returns the plan with a volatile write cache: writes remain in the cache until they are flushed, or bypass it
    /// with FUA, and reads see the cache. Call this function before the device is used.
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
        // A test that panicked with the plan locked has already failed. Its other parts may still use the plan.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    /// Adds a rule after the existing ones.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.change(|state| {
            state.next_rule += 1;
            let id = RuleId(state.next_rule);
            let seed = state.seed;
            state.rules.push(Armed::new(id, rule, seed));
            id
        })
    }

    /// Removes a rule and returns the number of its strikes, or `None` if the rule does not exist.
    pub fn remove(&self, id: RuleId) -> Option<u64> {
        self.change(|state| {
            let index = state.rules.iter().position(|armed| armed.id == id)?;
            Some(state.rules.remove(index).struck)
        })
    }

    /// Returns the number of strikes of a rule, or `None` if the rule does not exist.
    #[must_use]
    pub fn struck(&self, id: RuleId) -> Option<u64> {
        self.lock().rules.iter().find(|armed| armed.id == id).map(|armed| armed.struck)
    }

    /// Removes all rules. Hung operations remain hung.
    pub fn clear(&self) {
        self.change(|state| state.rules.clear());
    }

    /// Continues all operations that hang now. The next polls execute and complete them.
    pub fn release(&self) {
        self.change(|state| state.releases += 1);
    }

    /// Removes the device: all outstanding and later operations fail with [`Gone`](strake_block::IoErrorKind::Gone),
    /// and no queue can be opened.
    pub fn vanish(&self) {
        self.change(State::vanish);
    }

    /// Returns the device with its content. New queues can be opened. Queues from before the removal remain gone,
    /// because for the operating system a reinserted drive is a new drive.
    pub fn return_device(&self) {
        self.change(|state| state.gone = false);
    }

    /// Shrinks the device to `blocks` blocks. Blocks beyond this size are then out of range.
    pub fn shrink_to(&self, blocks: u64) {
        self.change(|state| state.blocks_max = Some(blocks));
    }

    /// Restores the size of a shrunk device.
    pub fn unshrink(&self) {
        self.change(|state| state.blocks_max = None);
    }

    /// Selects whether flush and FUA have an effect. Without a modelled cache, the selection has no effect.
    pub fn lie_about_flush(&self, flush: Flush) {
        self.change(|state| state.flush = flush);
    }

    /// Returns the number of writes that a power cut could lose now.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.lock().cache.as_ref().map_or(0, Cache::unflushed)
    }

    /// Cuts the power. `seed` determines which unflushed writes survive; with `tear`, some survive in part. Earlier
    /// queues are gone, and new queues can be opened immediately.
    pub fn power_cut(&self, seed: u64, tear: Option<TearUnit>) {
        let mut random = Random::new(seed);
        self.cut_power(|start, end| match (random.below(4), tear) {
            (0 | 1, _) => start,
            (2, Some(unit)) => unit.cut(start, end, &mut random),
            _ => end,
        });
    }

    /// Cuts the power. `fate` returns the fate of each unflushed write from its number, in ascending order. Tests use
    /// it to try all subsets.
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

/// The result of an operation in the cache.
pub(super) enum Cached {
    /// The cache does not apply, and the inner device executes the operation.
    Below,
    /// The cache executed the operation. A write has a serial number, which is reported at its completion.
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

    /// Returns true if no operation is changed.
    pub(super) fn is_idle(&self) -> bool {
        self.rules.is_empty() && self.cache.is_none() && self.blocks_max.is_none()
    }

    /// Returns the fault of `op`, if it has one.
    pub(super) fn strike(&mut self, op: &Op, range: LbaRange) -> Option<(Effect, u64)> {
        self.rules.iter_mut().find_map(|armed| armed.strike(op, range))
    }

    /// Executes `op` in the cache if the plan has a cache that applies to `op`.
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

    /// Records the first part of a torn write if the plan has a cache.
    pub(super) fn cached_part(&mut self, start: u64, data: &[u8]) -> Cached {
        match &mut self.cache {
            Some(cache) => {
                Cached::Done(Some(cache.record(start, Run::Data(data.to_vec()), Progress::Arrived)))
            }
            None => Cached::Below,
        }
    }

    /// Copies the content of the cache over the bytes of a read.
    pub(super) fn overlay(&self, target: &mut [u8], start: u64) {
        if let Some(cache) = &self.cache {
            cache.copy_into(target, start);
        }
    }

    /// Records that the completion of a write was reported to the caller.
    pub(super) fn answered(&mut self, serial: u64) {
        if let Some(cache) = &mut self.cache {
            cache.answered(serial);
        }
    }
}
