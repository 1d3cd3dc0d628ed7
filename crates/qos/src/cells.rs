//! What the cores and the home of a limit publish to each other.
//!
//! Every field has one writer, which stores without reading what others wrote. The fields of one writer and one core
//! share a cache line, so that a core that spends within its lease touches only lines of its own. A reader that sees an
//! older value is safe: it grants or spends less. The one exception is a core that spends while the home takes back its
//! lease. Then `used` is above `granted`, and the home charges the difference to the budget.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The cells of one limit, by core.
#[derive(Debug)]
pub struct Cells(Box<[Pair]>);

#[derive(Debug, Default)]
struct Pair {
    core: CoreCell,
    home: HomeCell,
}

/// Written by the core.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CoreCell {
    /// All that the core has ever spent.
    used: AtomicU64,
    /// The cost of the request that waits the longest on the core; 0 if none waits.
    need: AtomicU64,
    /// When this request began to wait, in nanoseconds.
    since: AtomicU64,
    /// Requests that have waited, and for how long in total.
    throttled: AtomicU64,
    throttled_ns: AtomicU64,
}

/// Written by the home.
#[derive(Debug, Default)]
#[repr(align(128))]
struct HomeCell {
    /// The amount up to which the core may spend, compared with `used`.
    granted: AtomicU64,
    /// True while the home distributes in every tick.
    is_awake: AtomicBool,
}

/// Requests that waited for a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// The number of requests that had to wait.
    pub requests: u64,
    /// The sum of the times that they waited, in nanoseconds.
    pub wait_ns: u64,
    /// The amount that was spent, in the measure of the limit.
    pub used: u64,
}

/// What a core published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreView {
    pub(crate) used: u64,
    pub(crate) need: u64,
    pub(crate) since: u64,
}

impl Cells {
    /// Creates the cells for this number of cores.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| Pair::default()).collect())
    }

    /// The number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.0.len()
    }

    /// The requests that waited on any core, and what all cores have spent.
    #[must_use]
    pub fn throttled(&self) -> Throttled {
        let mut sum = Throttled::default();
        for Pair { core, .. } in &self.0 {
            sum.requests += core.throttled.load(Ordering::Relaxed);
            sum.wait_ns += core.throttled_ns.load(Ordering::Relaxed);
            sum.used += core.used.load(Ordering::Relaxed);
        }
        sum
    }

    pub(crate) fn view(&self, core: usize) -> CoreView {
        let cell = &self.0[core].core;
        // Pairs with the release in `publish_need`: the time belongs to this need or to a newer one.
        let need = cell.need.load(Ordering::Acquire);
        let since = cell.since.load(Ordering::Relaxed);
        CoreView { used: cell.used.load(Ordering::Relaxed), need, since }
    }

    pub(crate) fn publish_used(&self, core: usize, used: u64) {
        self.0[core].core.used.store(used, Ordering::Relaxed);
    }

    pub(crate) fn publish_need(&self, core: usize, need: u64, since: u64) {
        let cell = &self.0[core].core;
        cell.since.store(since, Ordering::Relaxed);
        // Pairs with the acquire in `view`.
        cell.need.store(need, Ordering::Release);
    }

    /// Counts a request that has waited.
    pub(crate) fn count_wait(&self, core: usize, wait_ns: u64) {
        let cell = &self.0[core].core;
        let requests = cell.throttled.load(Ordering::Relaxed);
        cell.throttled.store(requests + 1, Ordering::Relaxed);
        let sum = cell.throttled_ns.load(Ordering::Relaxed);
        cell.throttled_ns.store(sum.saturating_add(wait_ns), Ordering::Relaxed);
    }

    pub(crate) fn granted(&self, core: usize) -> u64 {
        self.0[core].home.granted.load(Ordering::Relaxed)
    }

    pub(crate) fn grant(&self, core: usize, granted: u64) {
        self.0[core].home.granted.store(granted, Ordering::Relaxed);
    }

    pub(crate) fn is_awake(&self, core: usize) -> bool {
        self.0[core].home.is_awake.load(Ordering::Relaxed)
    }

    pub(crate) fn set_awake(&self, is_awake: bool) {
        for Pair { home, .. } in &self.0 {
            home.is_awake.store(is_awake, Ordering::Relaxed);
        }
    }
}

/// The calls of cores for one home. Each core has its own counter, so a home finds calls without a shared counter.
#[derive(Debug)]
pub struct Board(Box<[Calls]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Calls(AtomicU64);

impl Board {
    /// Creates the board for this number of cores.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| Calls::default()).collect())
    }

    /// Counts a call of `core`. Only this core calls it.
    pub fn call(&self, core: usize) {
        let calls = &self.0[core].0;
        // Release: pairs with the acquire in `calls`, so that the home then sees the need of the core.
        calls.store(calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// The number of all calls, which changes with each call.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let count = |calls: &Calls| calls.0.load(Ordering::Acquire);
        self.0.iter().map(count).fold(0, u64::wrapping_add)
    }
}
