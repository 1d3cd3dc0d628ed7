//! Rates of arrays, from two samples of their counters.

use serde::Serialize;
use strake_api::v1::{ArrayStats, Counters, LatencyStats};

/// A report: the rates of arrays in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Length of the interval in seconds.
    pub seconds: f64,
    /// The arrays that ran during the interval.
    pub arrays: Vec<ArrayRates>,
}

/// The rates of an array.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ArrayRates {
    /// Its name.
    pub name: String,
    /// Reads per second.
    pub reads_per_s: f64,
    /// Writes per second, also zeroes and deallocations.
    pub writes_per_s: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
    /// Mean latency of reads in milliseconds; `None` without reads.
    pub read_ms: Option<f64>,
    /// Mean latency of writes in milliseconds; `None` without writes.
    pub write_ms: Option<f64>,
    /// The members, by position.
    pub members: Vec<MemberRates>,
}

/// The rates of a member's drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemberRates {
    /// Its position, from 0.
    pub position: u32,
    /// Path of its drive; empty if the drive is missing.
    pub path: String,
    /// Reads per second.
    pub reads_per_s: f64,
    /// Writes per second.
    pub writes_per_s: f64,
    /// Mean latency of reads in milliseconds; `None` without reads.
    pub read_ms: Option<f64>,
    /// Mean latency of writes in milliseconds; `None` without writes.
    pub write_ms: Option<f64>,
}

/// What happened between two samples of one kind of operation.
#[derive(Clone, Copy, Default)]
struct Done {
    count: u64,
    ns: u64,
}

impl Done {
    /// The operations `name` between two samples. After a restart of the counters, `before` does not count.
    fn between(before: &[LatencyStats], after: &[LatencyStats], name: &str) -> Self {
        let of = |all: &[LatencyStats]| {
            let found = all.iter().find(|stats| stats.operation == name);
            found.map_or((0, 0), |stats| (stats.count, stats.sum_ns))
        };
        let (before, after) = (of(before), of(after));
        let before = if before.0 > after.0 || before.1 > after.1 { (0, 0) } else { before };
        Self { count: after.0 - before.0, ns: after.1 - before.1 }
    }

    fn mean_ms(self) -> Option<f64> {
        (self.count > 0).then(|| self.ns as f64 / self.count as f64 / 1e6)
    }
}

/// The rates between two samples that are `seconds` apart. Arrays that are only in one of the samples have none.
#[must_use]
pub fn between(before: &[ArrayStats], after: &[ArrayStats], seconds: f64) -> Report {
    let of = |after: &ArrayStats| {
        let before = before.iter().find(|before| before.uuid == after.uuid)?;
        Some(of_array(before, after, seconds))
    };
    Report { seconds, arrays: after.iter().filter_map(of).collect() }
}

fn of_array(before: &ArrayStats, after: &ArrayStats, seconds: f64) -> ArrayRates {
    let now = after.counters.unwrap_or_default();
    let then = before.counters.unwrap_or_default();
    let is_restarted = now.reads < then.reads || now.writes < then.writes;
    let then = if is_restarted { Counters::default() } else { then };
    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
    let done = |name| Done::between(&before.requests, &after.requests, name).mean_ms();
    let members = after.members.iter().map(|member| {
        let is_same = |other: &&strake_api::v1::MemberStats| {
            (other.position, &other.path) == (member.position, &member.path)
        };
        // A drive that has filled the slot since then begins with nothing.
        let then = before.members.iter().find(is_same).map_or(&[][..], |then| &then.ios);
        let [reads, writes] = ["read", "write"].map(|name| Done::between(then, &member.ios, name));
        MemberRates {
            position: member.position,
            path: member.path.clone(),
            reads_per_s: reads.count as f64 / seconds,
            writes_per_s: writes.count as f64 / seconds,
            read_ms: reads.mean_ms(),
            write_ms: writes.mean_ms(),
        }
    });
    ArrayRates {
        name: after.name.clone(),
        reads_per_s: rate(now.reads, then.reads),
        writes_per_s: rate(now.writes, then.writes),
        read_bytes_per_s: rate(now.read_bytes, then.read_bytes),
        write_bytes_per_s: rate(now.write_bytes, then.write_bytes),
        read_ms: done("read"),
        write_ms: done("write"),
        members: members.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::between;
    use strake_api::v1::{ArrayStats, Counters, LatencyStats, MemberStats};

    fn latency(operation: &str, count: u64, mean_ns: u64) -> LatencyStats {
        let sum_ns = count * mean_ns;
        LatencyStats { operation: operation.into(), count, sum_ns, ..LatencyStats::default() }
    }

    /// An array after `reads` reads of 4 KiB that took `mean_ns`.
    fn sample(reads: u64, mean_ns: u64, path: &str) -> ArrayStats {
        let counters = Counters { reads, read_bytes: reads * 4096, ..Counters::default() };
        let ios = vec![latency("read", reads, mean_ns)];
        ArrayStats {
            name: "tank".into(),
            uuid: "u".into(),
            counters: Some(counters),
            requests: ios.clone(),
            members: vec![MemberStats { position: 0, path: path.into(), ios }],
        }
    }

    #[test]
    fn rates_are_differences_by_time() {
        // 100 reads of 1 ms, then 300 of 3 ms.
        let report = between(&[sample(100, 1_000_000, "/d")], &[sample(400, 2_500_000, "/d")], 2.0);
        let [array] = &report.arrays[..] else { panic!("{report:?}") };
        assert_eq!((array.reads_per_s, array.read_bytes_per_s), (150.0, 150.0 * 4096.0));
        assert_eq!((array.writes_per_s, array.write_ms), (0.0, None));
        assert_eq!(array.read_ms, Some(3.0));
        assert_eq!((array.members[0].reads_per_s, array.members[0].read_ms), (150.0, Some(3.0)));
    }

    #[test]
    fn counters_that_restarted_count_from_nothing() {
        let report = between(&[sample(100, 1_000_000, "/d")], &[sample(50, 2_000_000, "/d")], 1.0);
        assert_eq!((report.arrays[0].reads_per_s, report.arrays[0].read_ms), (50.0, Some(2.0)));
        // Another drive fills the slot.
        let report = between(&[sample(100, 1_000_000, "/d")], &[sample(120, 1_000_000, "/e")], 1.0);
        assert_eq!(report.arrays[0].members[0].reads_per_s, 120.0);
    }

    #[test]
    fn an_array_in_one_sample_only_has_no_rates() {
        assert_eq!(between(&[], &[sample(1, 1, "/d")], 1.0).arrays, []);
        assert_eq!(between(&[sample(1, 1, "/d")], &[], 1.0).arrays, []);
    }
}
