//! Measurements of a span of time.

use strake_units::Nanos;

/// Measurements of clients and the rebuild in a span of simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// The length of the span.
    pub span: Nanos,
    /// Completed requests.
    pub requests: u64,
    /// The median of the latencies.
    pub p50: Nanos,
    /// The 99th percentile of the latencies.
    pub p99: Nanos,
    /// The 99.9th percentile of the latencies.
    pub p999: Nanos,
    /// Bytes of one member rebuilt.
    pub rebuilt_bytes: u64,
}

impl Sample {
    /// The sample of `latencies` (nanoseconds, in any order) and `rebuilt_bytes` over `span`.
    #[must_use]
    pub fn of(span: Nanos, mut latencies: Vec<u64>, rebuilt_bytes: u64) -> Self {
        latencies.sort_unstable();
        let quantile = |per_mille: usize| {
            let rank = (latencies.len() * per_mille).div_ceil(1000).max(1);
            Nanos(latencies.get(rank - 1).copied().unwrap_or(0))
        };
        Self {
            span,
            requests: latencies.len() as u64,
            p50: quantile(500),
            p99: quantile(990),
            p999: quantile(999),
            rebuilt_bytes,
        }
    }

    /// Requests per second.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        self.per_s(self.requests)
    }

    /// Rebuilt bytes of one member per second.
    #[must_use]
    pub fn rebuilt_per_s(&self) -> f64 {
        self.per_s(self.rebuilt_bytes)
    }

    fn per_s(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.span.0.max(1) as f64
    }
}
