//! Latencies, counted: log-linear buckets as in HdrHistogram (G. Tene), so that no percentile is off by more than 3 %.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of every power of two, as a power of two: 32 of them are 3 % apart.
const STEPS_SHIFT: u32 = 5;
const STEPS: usize = 1 << STEPS_SHIFT;
/// The first power of two, in nanoseconds, that no longer has buckets of its own: 18 minutes.
const TOP_SHIFT: u32 = 40;
const BUCKETS: usize = ((TOP_SHIFT - STEPS_SHIFT + 1) as usize) << STEPS_SHIFT;

/// Counts that one thread adds to and any thread may read.
#[derive(Debug)]
pub struct Histogram {
    /// How many, and how many nanoseconds together.
    buckets: Box<[[AtomicU64; 2]]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| Default::default()).collect() }
    }
}

impl Histogram {
    /// Counts `count` requests that took `ns` nanoseconds each. By one thread only: a load and a store, since an
    /// atomic addition costs more than all the rest of a request.
    pub fn record(&self, ns: u64, count: u64) {
        let [counted, sum] = &self.buckets[bucket(ns)];
        counted.store(counted.load(Relaxed) + count, Relaxed);
        sum.store(sum.load(Relaxed) + ns * count, Relaxed);
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |[count, sum]: &[AtomicU64; 2]| [count.load(Relaxed), sum.load(Relaxed)];
        Counts(self.buckets.iter().map(read).collect())
    }
}

/// A picture of a histogram: of every bucket how many requests, and how many nanoseconds they took together. Taken
/// while requests are counted it may lack the last of them in one number and not in the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts(Vec<[u64; 2]>);

impl Default for Counts {
    fn default() -> Self {
        Self(vec![[0; 2]; BUCKETS])
    }
}

impl Counts {
    /// What was counted since `earlier`, a picture of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |(now, then): (&[u64; 2], &[u64; 2])| [now[0] - then[0], now[1] - then[1]];
        Self(self.0.iter().zip(&earlier.0).map(less).collect())
    }

    /// Adds another histogram's counts.
    pub fn add(&mut self, other: &Self) {
        for (bucket, more) in self.0.iter_mut().zip(&other.0) {
            bucket[0] += more[0];
            bucket[1] += more[1];
        }
    }

    /// How many requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|[count, _]| count).sum()
    }

    /// The time within which `per_mille` of 1000 requests came back, in nanoseconds; `None` when there were none.
    /// It is the upper end of a bucket, so the truth is at most 3 % less.
    #[must_use]
    pub fn percentile(&self, per_mille: f64) -> Option<u64> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        let wanted = ((total as f64 * per_mille / 1000.0).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        let at = self.0.iter().position(|[count, _]| {
            seen += count;
            seen >= wanted
        })?;
        Some(upper(at))
    }

    /// The mean of the fastest `per_mille` of 1000 requests, in nanoseconds; `None` when there were none. Unlike a
    /// percentile it is exact, except that of the last bucket those that are left out count as the others do.
    #[must_use]
    pub fn mean(&self, per_mille: f64) -> Option<f64> {
        let mut left = self.total() as f64 * per_mille / 1000.0;
        let (mut sum, mut taken) = (0.0, 0.0);
        for [count, ns] in self.0.iter().filter(|[count, _]| *count > 0) {
            let part = left.min(*count as f64);
            sum += *ns as f64 * part / *count as f64;
            taken += part;
            left -= part;
        }
        (taken > 0.0).then(|| sum / taken)
    }
}

/// Where `ns` is counted.
const fn bucket(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    if ns >> TOP_SHIFT != 0 {
        return BUCKETS - 1;
    }
    let shift = 63 - ns.leading_zeros() - STEPS_SHIFT;
    ((shift as usize + 1) << STEPS_SHIFT) + ((ns >> shift) as usize & (STEPS - 1))
}

/// The least that is counted in bucket `at`.
const fn lower(at: usize) -> u64 {
    if at < STEPS {
        return at as u64;
    }
    let shift = (at >> STEPS_SHIFT) as u32 - 1;
    ((STEPS + (at & (STEPS - 1))) as u64) << shift
}

/// The most that is counted in bucket `at`.
const fn upper(at: usize) -> u64 {
    lower(at + 1) - 1
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Histogram, bucket, lower, upper};

    #[test]
    fn every_time_is_in_its_bucket_and_buckets_are_narrow() {
        for at in 0..BUCKETS {
            let (low, high) = (lower(at), upper(at));
            assert_eq!((bucket(low), bucket(high)), (at, at));
            assert!((high - low) as f64 <= low as f64 / 31.0, "{low} to {high}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_what_was_counted() {
        let histogram = Histogram::default();
        assert_eq!(histogram.counts().percentile(500.0), None);
        assert_eq!(histogram.counts().mean(1000.0), None);
        for ns in 1..=1000 {
            histogram.record(ns * 100, 1);
        }
        let counts = histogram.counts();
        for (per_mille, expected) in [(500.0, 50_000.0), (990.0, 99_000.0), (999.0, 99_900.0)] {
            let found = counts.percentile(per_mille).expect("it counted") as f64;
            assert!(found >= expected && found <= expected * 1.04, "{per_mille}: {found}");
        }
        assert_eq!(counts.mean(1000.0), Some(50_050.0));
        let fastest = counts.mean(900.0).expect("it counted");
        assert!((fastest / 45_050.0 - 1.0).abs() < 0.005, "{fastest}");
    }

    #[test]
    fn counts_subtract_and_add() {
        let histogram = Histogram::default();
        histogram.record(10, 3);
        let before = histogram.counts();
        histogram.record(10, 2);
        histogram.record(5000, 1);
        let mut since = histogram.counts().since(&before);
        assert_eq!((since.total(), since.percentile(500.0)), (3, Some(10)));
        since.add(&before);
        assert_eq!(since, histogram.counts());
    }
}
