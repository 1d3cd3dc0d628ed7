//! Computes from the latency of client requests how many maintenance bands may be in progress while clients are active.

use strake_units::Nanos;

use super::Maintenance;
use super::latency::{ALL, CLASSES, Class, Latencies};

/// Time between two adaptations of the window.
pub(crate) const CYCLE: Nanos = Nanos(100 * Nanos::MILLI.0);

/// Time in each cycle in which maintenance rests while clients are active.
pub(crate) const REST: Nanos = Nanos(5 * Nanos::MILLI.0);

/// The measurements ignore requests that arrive less than this time after the start of a rest, because bands of other
/// shards may still be in progress, or less than this time before its end.
pub(super) const REST_MARGIN: Nanos = Nanos(Nanos::MILLI.0);

/// Minimum number of requests for a 99th percentile.
const SAMPLES_MIN: u64 = 200;

/// Maximum number of requests in a baseline. A larger baseline fades.
const BASELINE_MAX: u64 = 10_000;

/// The initial window.
const WINDOW_FIRST: f64 = 2.0;

/// From this priority on, one band is always allowed, regardless of client latency. Below this priority, one band is
/// allowed for a part of the time.
const FLOOR_WHOLE: f64 = 50.0;

/// The floor of priority 0: one band for a fiftieth of the time.
const FLOOR_MIN: f64 = 0.02;

/// For each priority, the target of the ratio of p99 latencies with and without maintenance. Values in between are
/// interpolated linearly. The target of priority 50 is well below the promised factor of 2, because measured values
/// scatter.
const TARGETS: [(f64, f64); 5] = [(0.0, 1.0), (25.0, 1.25), (50.0, 1.6), (75.0, 2.5), (99.0, 5.0)];

/// The smallest and the largest factor by which the window changes in one cycle.
const STEP: (f64, f64) = (0.5, 1.5);

/// Lower bound of the measured slowdown of clients (the ratio minus 1).
const ROOM_MIN: f64 = 0.02;

/// The target ratio of latencies for `priority`; infinite if client latency is ignored.
pub(super) fn target(priority: u8) -> f64 {
    if priority >= Maintenance::PRIORITY_MAX {
        return f64::INFINITY;
    }
    let at = f64::from(priority);
    let above = TARGETS.iter().position(|(p, _)| *p >= at).unwrap_or(TARGETS.len() - 1).max(1);
    let ((p0, t0), (p1, t1)) = (TARGETS[above - 1], TARGETS[above]);
    t0 + (t1 - t0) * (at - p0) / (p1 - p0)
}

/// The minimum window of `priority`.
pub(super) fn floor(priority: u8) -> f64 {
    (f64::from(priority) / FLOOR_WHOLE).clamp(FLOOR_MIN, 1.0)
}

/// True during the part of a cycle in which maintenance rests if clients are active.
pub(crate) const fn is_rest(now: Nanos) -> bool {
    now.0 % CYCLE.0 < REST.0
}

/// The end of the current rest or work phase at `now`.
pub(crate) const fn next_change(now: Nanos) -> Nanos {
    let began = now.0 - now.0 % CYCLE.0;
    Nanos(if is_rest(now) { began + REST.0 } else { began + CYCLE.0 })
}

/// The state of maintenance when a request arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Came {
    /// No maintenance was in progress.
    #[default]
    Alone,
    /// Maintenance was in progress.
    Beside,
    /// Maintenance was starting or stopping. The request is not measured.
    Between,
}

impl Came {
    /// `active`: the array has maintenance work. `out`: maintenance bands of this shard that are in progress.
    pub(crate) const fn at(now: Nanos, active: bool, out: usize) -> Self {
        if !active {
            return Self::Alone;
        }
        if !is_rest(now) {
            return Self::Beside;
        }
        let into = now.0 % CYCLE.0;
        let edge = into < REST_MARGIN.0 || into + REST_MARGIN.0 >= REST.0;
        if out > 0 || edge { Self::Between } else { Self::Alone }
    }
}

/// Computes the maintenance window that the clients of one shard allow.
pub(crate) struct Pacer {
    priority: u8,
    /// Maximum number of bands in progress. A fraction is a share of the time.
    window: f64,
    window_max: f64,
    /// The number of the current cycle.
    cycle: u64,
    baseline: [Latencies; CLASSES],
    working: [Latencies; CLASSES],
}

impl Pacer {
    /// Creates a pacer with a maximum window of `window_max` bands.
    pub(crate) fn new(window_max: usize) -> Self {
        Self {
            priority: Maintenance::PRIORITY_DEFAULT,
            window: WINDOW_FIRST,
            window_max: window_max as f64,
            cycle: 0,
            baseline: Default::default(),
            working: Default::default(),
        }
    }

    /// Records `count` requests that arrived in the state `came` and completed after `took`.
    pub(crate) const fn answered(&mut self, came: Came, class: Class, took: Nanos, count: u32) {
        let latencies = match came {
            Came::Alone => &mut self.baseline,
            Came::Beside => &mut self.working,
            Came::Between => return,
        };
        latencies[class as usize].add(took, count);
        latencies[ALL].add(took, count);
    }

    /// The number of bands that may be in progress according to the clients of this shard.
    pub(crate) const fn window(&self) -> f64 {
        self.window
    }

    /// Sets the priority. The window changes immediately, by an estimate: the slowdown of clients is roughly
    /// proportional to the window.
    pub(crate) fn set_priority(&mut self, priority: u8) {
        if priority == self.priority {
            return;
        }
        let room = |priority| (target(priority) - 1.0).clamp(ROOM_MIN, target(99) - 1.0);
        self.window *= room(priority) / room(self.priority);
        self.priority = priority;
        self.bound(f64::INFINITY);
        self.working.iter_mut().for_each(Latencies::clear);
    }

    /// Adapts the window once per cycle, at the first call in the next cycle. `in_force` returns the minimum of the
    /// windows of all shards with clients. Returns true if a cycle ended.
    pub(crate) fn adapt(&mut self, now: Nanos, in_force: impl Fn() -> Option<f64>) -> bool {
        let cycle = now.0 / CYCLE.0;
        if cycle == self.cycle {
            return false;
        }
        self.cycle = cycle;
        self.baseline.iter_mut().for_each(|of| of.fade(BASELINE_MAX));
        if let Some(ratio) = self.ratio() {
            let room = (target(self.priority) - 1.0) / (ratio - 1.0).max(ROOM_MIN);
            // The square root damps the change, because measured values scatter.
            self.window *= room.sqrt().clamp(STEP.0, STEP.1);
            // Clients of other shards may allow a smaller window. A measurement under this smaller window does not
            // justify a much larger one.
            self.bound(in_force().map_or(f64::INFINITY, |window| STEP.1 * window));
            self.working.iter_mut().for_each(Latencies::clear);
        }
        true
    }

    /// The ratio of latencies with and without maintenance: the maximum over all kinds, and over all requests together.
    fn ratio(&self) -> Option<f64> {
        let pairs = self.working.iter().zip(&self.baseline);
        let known = pairs.filter(|(w, b)| w.count() >= SAMPLES_MIN && b.count() >= SAMPLES_MIN);
        known.map(|(w, b)| w.p99() / b.p99().max(1.0)).max_by(f64::total_cmp)
    }

    fn bound(&mut self, max: f64) {
        let floor = floor(self.priority);
        self.window = self.window.min(max).clamp(floor, self.window_max);
    }
}
