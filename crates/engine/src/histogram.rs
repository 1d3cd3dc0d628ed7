//! Latency histograms. A core records a value with a few instructions, and the histograms of all cores are merged only
//! on request.
//!
//! The buckets are spaced like the buckets of Gil Tene's HdrHistogram: 32 buckets for every doubling of time. A
//! percentile is therefore accurate to within 3 %, from a nanosecond to more than a minute, in 8 KiB.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use strake_units::Nanos;

/// The number of buckets for each doubling of time is 2 to this power.
const STEPS_SHIFT: u32 = 5;
const STEPS: usize = 1 << STEPS_SHIFT;

/// Longer times share the last bucket. 2^36 ns are 68 seconds, more than twice the time limit of an I/O.
const BITS: u32 = 36;
const PLACES: usize = ((BITS - STEPS_SHIFT + 1) as usize) << STEPS_SHIFT;

/// Kinds of timed operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    Read,
    /// Also zeroes and deallocations.
    Write,
    Flush,
}

/// Number of kinds.
const KINDS: usize = 3;

/// A histogram that one core writes and other cores may read.
struct Histogram {
    places: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { places, sum: AtomicU64::new(0), max: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Records `count` operations with the latency `took`. Only the core that owns the histogram may call this
    /// function.
    #[inline]
    fn record(&self, took: Nanos, count: u32) {
        let count = u64::from(count);
        add(&self.places[place(took.0)], count);
        add(&self.sum, took.0.saturating_mul(count));
        if took.0 > self.max.load(Relaxed) {
            self.max.store(took.0, Relaxed);
        }
    }

    fn clear(&self) {
        let all = self.places.iter().chain([&self.sum, &self.max]);
        all.for_each(|counter| counter.store(0, Relaxed));
    }

    fn add_to(&self, times: &mut LatencyCounts) {
        for (total, own) in times.places.iter_mut().zip(&self.places) {
            *total += own.load(Relaxed);
        }
        times.sum = times.sum.saturating_add(self.sum.load(Relaxed));
        times.max = times.max.max(Nanos(self.max.load(Relaxed)));
    }
}

/// Adds to a counter. One core writes the counter, so no atomic addition is needed.
#[inline]
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}

#[inline]
const fn place(nanos: u64) -> usize {
    let most = (1 << BITS) - 1;
    let nanos = if nanos < most { nanos } else { most };
    let shift = (nanos | (STEPS as u64 - 1)).ilog2() - (STEPS_SHIFT - 1);
    let below = shift.saturating_sub(1);
    ((shift as usize) << STEPS_SHIFT) + ((nanos >> below) as usize & (STEPS - 1))
}

/// The upper bound of bucket `at`.
const fn bound(at: usize) -> u64 {
    let (shift, step) = (at >> STEPS_SHIFT, at as u64 & (STEPS as u64 - 1));
    if shift == 0 {
        return step;
    }
    ((STEPS as u64 + step + 1) << (shift - 1)) - 1
}

impl Default for CoreTimes {
    fn default() -> Self {
        Self::new(0)
    }
}

/// Latencies of one core: of the requests that it accepted, and of its member I/Os.
pub(crate) struct CoreTimes {
    requests: [Histogram; KINDS],
    /// Histograms by index of the member.
    members: Vec<[Histogram; KINDS]>,
}

impl CoreTimes {
    pub(crate) fn new(members: usize) -> Self {
        let members = (0..members).map(|_| Default::default()).collect();
        Self { requests: Default::default(), members }
    }

    /// Records `count` requests with the latency `took`.
    #[inline]
    pub(crate) fn request(&self, what: Timed, took: Nanos, count: u32) {
        self.requests[what as usize].record(took, count);
    }

    /// Records `count` I/Os of the member with index `at` and the latency `took`.
    #[inline]
    pub(crate) fn member(&self, at: usize, what: Timed, took: Nanos, count: u32) {
        if let Some(member) = self.members.get(at) {
            member[what as usize].record(took, count);
        }
    }

    /// Clears the histograms of index `at`, because the device was exchanged.
    pub(crate) fn forget_member(&self, at: usize) {
        self.members.get(at).into_iter().flatten().for_each(Histogram::clear);
    }
}

/// Merges the histograms of the cores: of requests, and of the first `members` members.
pub(crate) fn put_together<'a>(
    cores: impl Iterator<Item = &'a CoreTimes> + Clone,
    members: usize,
) -> ArrayLatencies {
    let sum = |of: &dyn Fn(&'a CoreTimes) -> &'a [Histogram; KINDS]| {
        let mut times = Latencies::default();
        for core in cores.clone() {
            let [read, write, flush] = of(core);
            read.add_to(&mut times.read);
            write.add_to(&mut times.write);
            flush.add_to(&mut times.flush);
        }
        times
    };
    ArrayLatencies {
        requests: sum(&|core| &core.requests),
        members: (0..members).map(|at| sum(&|core| &core.members[at])).collect(),
    }
}

/// Latencies of the requests of an array and of its member I/Os since the start of the array.
#[derive(Clone, Debug, Default)]
pub struct ArrayLatencies {
    /// Latencies from the acceptance of a request to its completion.
    pub requests: Latencies,
    /// Latencies by slot, from the submission of an I/O to the drive until the engine collects its completion. The
    /// counts of a drive are cleared when the drive is replaced.
    pub members: Vec<Latencies>,
}

/// Latencies by kind of operation.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Reads.
    pub read: LatencyCounts,
    /// Writes, zeroes and deallocations.
    pub write: LatencyCounts,
    /// Flushes.
    pub flush: LatencyCounts,
}

/// Counts of latencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyCounts {
    places: Vec<u64>,
    sum: u64,
    max: Nanos,
}

impl Default for LatencyCounts {
    fn default() -> Self {
        Self { places: vec![0; PLACES], sum: 0, max: Nanos(0) }
    }
}

impl LatencyCounts {
    /// Adds `count` operations with the latency `took`.
    pub fn add(&mut self, took: Nanos, count: u64) {
        self.places[place(took.0)] += count;
        self.sum += took.0.saturating_mul(count);
        self.max = self.max.max(took);
    }

    /// Returns the number of operations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.places.iter().sum()
    }

    /// Returns the mean; `None` without operations.
    #[must_use]
    pub fn mean(&self) -> Option<Nanos> {
        self.sum.checked_div(self.count()).map(Nanos)
    }

    /// Returns the sum of all latencies.
    #[must_use]
    pub const fn sum(&self) -> Nanos {
        Nanos(self.sum)
    }

    /// Returns the number of operations that took at most `limit`. Operations that took up to 3 % less than the limit
    /// may be missing.
    #[must_use]
    pub fn at_most(&self, limit: Nanos) -> u64 {
        let within = self.places.iter().enumerate().take_while(|(at, _)| bound(*at) <= limit.0);
        within.map(|(_, count)| count).sum()
    }

    /// Returns the maximum; 0 without operations.
    #[must_use]
    pub const fn max(&self) -> Nanos {
        self.max
    }

    /// Returns the latency that `per_mille` of 1000 operations did not exceed, at most 3 % too large; `None` without
    /// operations.
    #[must_use]
    pub fn percentile(&self, per_mille: u32) -> Option<Nanos> {
        let count = self.count();
        let rank = (u128::from(count) * u128::from(per_mille)).div_ceil(1000).max(1) as u64;
        let mut seen = 0;
        let at = self.places.iter().position(|here| {
            seen += here;
            seen >= rank
        });
        at.filter(|_| count > 0).map(|at| Nanos(bound(at)).min(self.max))
    }
}

#[cfg(test)]
mod tests;
