//! Recorded requests as messages.

use strake_api::v1 as api;
use strake_engine::{StageTime, Trace, TraceOp, TraceReason};
use strake_raid::Geometry;
use strake_units::{Nanos, Uuid};

/// The same moment on two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// Microseconds since 1970.
    pub(crate) wall_us: u64,
    /// The clock of the data cores.
    pub(crate) monotonic: Nanos,
}

impl Clocks {
    /// Converts a time of a data core to nanoseconds since 1970.
    fn wall_ns(&self, time: Nanos) -> u64 {
        let since = self.monotonic.since(time).0;
        self.wall_us.saturating_mul(1_000).saturating_sub(since)
    }
}

/// Returns the message of a recorded request of the array with this geometry and identity.
pub(crate) fn trace(trace: &Trace, geometry: &Geometry, array: Uuid, clocks: Clocks) -> api::Trace {
    let is_flush = trace.op == TraceOp::Flush;
    api::Trace {
        id: id(trace, array),
        core: trace.core.into(),
        number: trace.number,
        reason: match trace.reason {
            TraceReason::Sampled => "sample",
            TraceReason::Slowest => "slowest",
        }
        .to_owned(),
        operation: match trace.op {
            TraceOp::Read => "read",
            TraceOp::Write => "write",
            TraceOp::WriteZeroes => "write_zeroes",
            TraceOp::Deallocate => "deallocate",
            TraceOp::Flush => "flush",
        }
        .to_owned(),
        offset: if is_flush { 0 } else { trace.at.bytes(geometry.block_size()) },
        bytes: if is_flush { 0 } else { trace.bytes },
        accepted_ns: clocks.wall_ns(trace.accepted),
        took_ns: trace.took.0,
        error: trace.error.map(|kind| kind.text().to_owned()).unwrap_or_default(),
        stages: trace.stages.iter().map(|time| stage(time, geometry)).collect(),
    }
}

fn stage(time: &StageTime, geometry: &Geometry) -> api::TraceStage {
    // The index after the last member belongs to a replacement, which has no position yet.
    let member = time.member.filter(|member| member.at() < geometry.members());
    api::TraceStage {
        stage: time.stage.name().to_owned(),
        took_ns: time.took.0,
        member: member.map(|member| member.0.into()),
    }
}

/// Returns an identifier of the request: the array, the core and the record, and the time on the clock of the core.
fn id(trace: &Trace, array: Uuid) -> String {
    let slowest = u64::from(trace.reason == TraceReason::Slowest);
    let record = slowest << 63 | u64::from(trace.core) << 47 | trace.number;
    let array = u64::from_be_bytes(*array.0.first_chunk().expect("a UUID has 16 bytes"));
    format!("{:016x}{:016x}", array ^ record, trace.accepted.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_core_become_times_of_day() {
        let clocks = Clocks { wall_us: 1_700_000_000_000_000, monotonic: Nanos(5_000_000_000) };
        assert_eq!(clocks.wall_ns(Nanos(5_000_000_000)), 1_700_000_000_000_000_000);
        assert_eq!(clocks.wall_ns(Nanos(4_000_000_007)), 1_699_999_999_000_000_007);
        // A request that was accepted after the clocks were read.
        assert_eq!(clocks.wall_ns(Nanos(9_000_000_000)), 1_700_000_000_000_000_000);
    }
}
