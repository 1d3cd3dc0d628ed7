//! Counters and latencies as messages.

use strake_api::v1 as api;
use strake_engine::{ArrayStatus, Latencies, LatencyCounts};

/// The counters of operations, without their durations.
pub(crate) fn counters(status: &ArrayStatus) -> api::Counters {
    let counters = &status.counters;
    api::Counters {
        reads: counters.reads,
        read_bytes: counters.read_bytes,
        writes: counters.writes,
        write_bytes: counters.write_bytes,
        degraded_reads: counters.degraded_reads,
        medium_errors: counters.medium_errors,
        repairs: counters.repairs,
    }
}

pub(crate) fn by_operation(latencies: &Latencies) -> Vec<api::LatencyStats> {
    let Latencies { read, write, flush } = latencies;
    vec![stats("read", read), stats("write", write), stats("flush", flush)]
}

fn stats(operation: &str, counts: &LatencyCounts) -> api::LatencyStats {
    let percentile = |per_mille| counts.percentile(per_mille).unwrap_or_default().0;
    api::LatencyStats {
        operation: operation.to_owned(),
        count: counts.count(),
        mean_ns: counts.mean().unwrap_or_default().0,
        p50_ns: percentile(500),
        p90_ns: percentile(900),
        p99_ns: percentile(990),
        p999_ns: percentile(999),
        max_ns: counts.max().0,
        sum_ns: counts.sum().0,
    }
}
