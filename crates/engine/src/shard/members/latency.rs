//! Read latencies of one member on one shard.
//!
//! A histogram with four buckets per power of two of microseconds. A percentile is accurate to within a fifth. The
//! histogram has 420 bytes and needs one addition per read. Its counts are halved at every evaluation, about once a
//! second, so that old reads have little weight.

use strake_units::Nanos;

/// Longer times share the last bucket. 2^27 microseconds are more than two minutes.
const POWERS: usize = 27;
const BUCKETS: usize = 4 * POWERS;

/// Minimum number of reads for percentiles.
const ENOUGH: u32 = 32;

pub(crate) struct Latency {
    buckets: [u32; BUCKETS],
    count: u32,
}

/// Percentiles of the reads of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Percentiles {
    /// The median.
    pub(crate) p50: Nanos,
    /// The 99th percentile.
    pub(crate) p99: Nanos,
}

impl Latency {
    pub(crate) const fn new() -> Self {
        Self { buckets: [0; BUCKETS], count: 0 }
    }

    /// Records `count` reads with the latency `took`.
    pub(crate) fn record(&mut self, took: Nanos, count: u32) {
        self.buckets[bucket(took)] += count;
        self.count += count;
    }

    /// Clears the histogram.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Returns the percentiles of recent reads, and halves the weight of these reads. With too few reads, returns
    /// `None` and keeps the weights.
    pub(crate) fn look(&mut self) -> Option<Percentiles> {
        if self.count < ENOUGH {
            return None;
        }
        let percentiles = Percentiles {
            p50: self.percentile(self.count / 2),
            p99: self.percentile(self.count - 1 - self.count / 100),
        };
        self.count = 0;
        for bucket in &mut self.buckets {
            *bucket /= 2;
            self.count += *bucket;
        }
        Some(percentiles)
    }

    /// Returns an upper bound of the `rank`-th shortest read, from 0.
    fn percentile(&self, rank: u32) -> Nanos {
        let mut below = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            below += count;
            if below > rank {
                return bound(at);
            }
        }
        bound(BUCKETS - 1)
    }
}

/// Returns the bucket. Buckets 0 to 3 are one microsecond wide; above, each power of two has four buckets.
fn bucket(took: Nanos) -> usize {
    let micros = took.0 / 1000;
    if micros < 4 {
        return micros as usize;
    }
    let power = micros.ilog2() as usize;
    let quarter = (micros >> (power - 2)) & 3;
    ((power - 1) * 4 + quarter as usize).min(BUCKETS - 1)
}

/// Returns the upper bound of a bucket.
fn bound(at: usize) -> Nanos {
    if at < 4 {
        return Nanos((at as u64 + 1) * 1000);
    }
    let (power, quarter) = (at / 4 + 1, at as u64 % 4);
    Nanos(((4 + quarter + 1) << (power - 2)) * 1000)
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, ENOUGH, Latency, bound, bucket};
    use strake_units::Nanos;

    #[test]
    fn every_time_is_below_the_bound_of_its_bucket_and_not_far_below() {
        for micros in (0..2000).chain((11..26).map(|power| (1 << power) + 77)) {
            let took = Nanos(micros * 1000 + 999);
            let limit = bound(bucket(took));
            assert!(took < limit, "{took:?} in a bucket that ends at {limit:?}");
            assert!(limit.0 <= took.0.max(1000) * 5 / 4 + 1000, "{took:?} is told as {limit:?}");
        }
        assert_eq!(bucket(Nanos(u64::MAX)), BUCKETS - 1);
    }

    #[test]
    fn percentiles_follow_what_happens_now() {
        let mut latency = Latency::new();
        for _ in 0..ENOUGH - 1 {
            latency.record(Nanos(100_000), 1);
        }
        assert_eq!(latency.look(), None, "too few reads say nothing");
        latency.record(Nanos(100_000), 1);
        assert!(latency.look().is_some(), "but they are kept");
        for n in 0..1000 {
            let took = if n % 50 == 0 { Nanos(9_000_000) } else { Nanos(100_000) };
            latency.record(took, 1);
        }
        let seen = latency.look().expect("enough");
        assert!(seen.p50 < Nanos(130_000) && seen.p99 > Nanos(8_000_000), "{seen:?}");
        for _ in 0..12 {
            for _ in 0..100 {
                latency.record(Nanos(100_000), 1);
            }
            let _ = latency.look();
        }
        for _ in 0..100 {
            latency.record(Nanos(100_000), 1);
        }
        let later = latency.look().expect("enough");
        assert!(later.p99 < Nanos(130_000), "what was long ago is forgotten: {later:?}");
    }
}
