//! How long things take.

use super::grid::{Column, Grid};
use super::{sentence, size};
use strake_api::v1::{ArrayStats, LatencyStats};

/// What an array has done, how long its requests took, and how long each of its drives.
#[must_use]
pub fn array(stats: &ArrayStats, width: usize) -> String {
    let counters = stats.counters.unwrap_or_default();
    let done = format!(
        "{}: {} read in {} requests, {} written in {}, {} reads degraded",
        stats.name,
        size(counters.read_bytes),
        counters.reads,
        size(counters.write_bytes),
        counters.writes,
        counters.degraded_reads
    );
    let mut grid = Grid::new(&[
        Column::Word("of"),
        Column::Word("operation"),
        Column::Number("count"),
        Column::Number("mean"),
        Column::Number("p50"),
        Column::Number("p90"),
        Column::Number("p99"),
        Column::Number("p99.9"),
        Column::Number("max"),
    ]);
    rows(&mut grid, "array", &stats.requests);
    for member in &stats.members {
        rows(&mut grid, &member.position.to_string(), &member.ios);
    }
    if grid.is_empty() {
        let nothing = format!("{done}. No latency was measured yet.");
        return sentence(&nothing, width);
    }
    let legend = "Values since the start of the array; for a member (by position), since its drive was added. \
        Latencies of requests are measured from their arrival at the array, latencies of I/Os from their arrival at \
        the drive.";
    format!("{}\n{}\n{}", sentence(&done, width), grid.render(width), sentence(legend, width))
}

fn rows(grid: &mut Grid, of: &str, latencies: &[LatencyStats]) {
    for l in latencies.iter().filter(|l| l.count > 0) {
        grid.row([
            of.to_owned(),
            l.operation.clone(),
            l.count.to_string(),
            time(l.mean_ns),
            time(l.p50_ns),
            time(l.p90_ns),
            time(l.p99_ns),
            time(l.p999_ns),
            time(l.max_ns),
        ]);
    }
}

/// Three digits and a unit.
pub(super) fn time(ns: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| ns >= *unit).unwrap_or((1, "ns"));
    let value = ns as f64 / unit as f64;
    let digits = if unit == 1 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_have_three_digits() {
        let check = |ns, want: &str| assert_eq!(time(ns), want);
        check(0, "0 ns");
        check(999, "999 ns");
        check(1234, "1.23 us");
        check(12_345, "12.3 us");
        check(123_456, "123 us");
        check(999_999, "1000 us");
        check(1_000_000, "1.00 ms");
        check(68_000_000_000, "68.0 s");
    }
}
