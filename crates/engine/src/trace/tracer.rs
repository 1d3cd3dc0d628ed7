//! Selection of the requests to record.

use std::sync::Arc;

use strake_block::IoErrorKind;
use strake_units::{Lba, Nanos};

use super::ring::Head;
use super::{SAMPLED_OF, Stages, TraceOp, TraceReason, TraceRing};

/// The slowest request of this period is recorded.
const PERIOD: Nanos = Nanos(1_000_000_000);

/// A completed request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) op: TraceOp,
    pub(crate) at: Lba,
    pub(crate) bytes: u64,
    pub(crate) accepted: Nanos,
    pub(crate) error: Option<IoErrorKind>,
}

/// Selects and records requests of one core.
pub(crate) struct Tracer {
    ring: Arc<TraceRing>,
    /// Requests until the next sample.
    countdown: i64,
    /// A request that was accepted before this time is slower than all others of the period.
    slow_before: Nanos,
    /// The time of the slowest request of the period.
    slowest: Nanos,
    period_ends: Nanos,
    /// Number of samples.
    samples: u64,
    /// Number of periods with requests.
    periods: u64,
}

impl Tracer {
    pub(crate) fn new(ring: Arc<TraceRing>) -> Self {
        Self {
            ring,
            // The first request is a sample, so that a trace of a new array is not empty.
            countdown: 1,
            slow_before: Nanos(0),
            slowest: Nanos(0),
            period_ends: Nanos(0),
            samples: 0,
            periods: 0,
        }
    }

    /// Starts a turn at `now`.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Nanos) {
        if now >= self.period_ends {
            (self.slowest, self.period_ends) = (Nanos(0), now.plus(PERIOD));
        }
        self.slow_before = Nanos(now.0.saturating_sub(self.slowest.0));
    }

    /// Counts `count` requests that were accepted at `since` and are answered now. True if one of them must be
    /// recorded.
    #[inline]
    pub(crate) fn picks(&mut self, since: Nanos, count: u32) -> bool {
        self.countdown -= i64::from(count);
        self.countdown <= 0 || since < self.slow_before
    }

    /// Records a request that [`picks`](Self::picks) selected and that is answered at `now`.
    #[cold]
    #[inline(never)]
    pub(crate) fn record(&mut self, now: Nanos, about: &About, mut stages: Stages) {
        let took = now.since(about.accepted);
        stages.fill(took);
        let mut head = Head {
            number: 0,
            reason: TraceReason::Sampled,
            op: about.op,
            at: about.at,
            bytes: about.bytes,
            accepted: about.accepted,
            took,
            error: about.error,
        };
        if self.countdown <= 0 {
            self.countdown += i64::from(SAMPLED_OF);
            self.samples += 1;
            head.number = self.samples;
            self.ring.store(&head, &stages);
        }
        if took > self.slowest {
            if self.slowest == Nanos(0) {
                self.periods += 1;
            }
            (self.slowest, self.slow_before) = (took, about.accepted);
            (head.number, head.reason) = (self.periods, TraceReason::Slowest);
            self.ring.store(&head, &stages);
        }
    }
}
