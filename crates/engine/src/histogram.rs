//! How long things take: histograms that a core writes for a few instructions each, and that are assembled only on
//! request.
//!
//! Places are spaced like those of Gil Tene's HdrHistogram: every doubling of time is cut into 32, so a percentile is
//! exact to within 3 %, from a nanosecond to more than a minute, in 8 KiB.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use strake_units::Nanos;

/// Each doubling of time is cut into two to the power of this many places.
const STEPS_SHIFT: u32 = 5;
const STEPS: usize = 1 << STEPS_SHIFT;

/// Longer times are not distinguished: 2^36 ns are 68 seconds, more than twice the time limit of an I/O.
const BITS: u32 = 36;
const PLACES: usize = ((BITS - STEPS_SHIFT + 1) as usize) << STEPS_SHIFT;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    Read,
    /// Also zeroes and deallocations.
    Write,
    Flush,
}

/// How many kinds there are.
const KINDS: usize = 3;

/// Times that one core writes and others may look at.
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
    /// `count` of them took this long. Only the core that writes this may call it.
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

/// There is one writer, so that nothing has to be locked.
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

/// The longest time that belongs to place `at`.
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

/// One core's times: of the requests that came in on it, and of what members answered to it.
pub(crate) struct CoreTimes {
    requests: [Histogram; KINDS],
    /// By place of the member.
    members: Vec<[Histogram; KINDS]>,
}

impl CoreTimes {
    pub(crate) fn new(members: usize) -> Self {
        let members = (0..members).map(|_| Default::default()).collect();
        Self { requests: Default::default(), members }
    }

    /// `count` requests took this long.
    #[inline]
    pub(crate) fn request(&self, what: Timed, took: Nanos, count: u32) {
        self.requests[what as usize].record(took, count);
    }

    /// `count` I/Os of the member in place `at` took this long.
    #[inline]
    pub(crate) fn member(&self, at: usize, what: Timed, took: Nanos, count: u32) {
        if let Some(member) = self.members.get(at) {
            member[what as usize].record(took, count);
        }
    }

    /// Another device is in place `at` from now on.
    pub(crate) fn forget_member(&self, at: usize) {
        self.members.get(at).into_iter().flatten().for_each(Histogram::clear);
    }
}

/// Puts together what the cores have counted: of requests, and of the first `members` members.
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

/// How long an array's requests took, and its members' I/Os, since it was started.
#[derive(Clone, Debug, Default)]
pub struct ArrayLatencies {
    /// From when a request was taken in until it was answered.
    pub requests: Latencies,
    /// By slot: from when the drive got an I/O until its answer was seen. What was counted of a drive before it was
    /// replaced is gone.
    pub members: Vec<Latencies>,
}

/// Times by what was done.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Reads.
    pub read: LatencyCounts,
    /// Writes, zeroes and deallocations.
    pub write: LatencyCounts,
    /// Flushes.
    pub flush: LatencyCounts,
}

/// Times that were counted.
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
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.places.iter().sum()
    }

    /// The mean; `None` when there were none.
    #[must_use]
    pub fn mean(&self) -> Option<Nanos> {
        self.sum.checked_div(self.count()).map(Nanos)
    }

    /// The longest; 0 when there were none.
    #[must_use]
    pub const fn max(&self) -> Nanos {
        self.max
    }

    /// What `per_mille` of 1000 did not exceed, to within 3 % above; `None` when there were none.
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
