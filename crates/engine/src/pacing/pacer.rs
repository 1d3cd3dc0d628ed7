//! How many bands may be out while clients are there: as many as their latency allows.

use strake_units::Nanos;

use super::Maintenance;
use super::latency::{ALL, CLASSES, Class, Latencies};

/// How often the window is adapted.
pub(crate) const CYCLE: Nanos = Nanos(100 * Nanos::MILLI.0);

/// How long maintenance rests in each cycle while clients are there.
pub(crate) const REST: Nanos = Nanos(5 * Nanos::MILLI.0);

/// A request that comes so shortly after a rest has begun, while other shards' bands may still be out, or before it
/// ends tells nothing about rests.
pub(super) const REST_MARGIN: Nanos = Nanos(Nanos::MILLI.0);

/// Fewer answers than this do not tell what the slowest one in a hundred takes.
const SAMPLES_MIN: u64 = 200;

/// Baselines fade when they hold more answers than this.
const BASELINE_MAX: u64 = 10_000;

/// The window that is tried first.
const WINDOW_FIRST: f64 = 2.0;

/// From this priority on one band is out at a time whatever clients feel; below it for a share of the time.
const FLOOR_WHOLE: f64 = 50.0;

/// The floor of priority 0: one band for a fiftieth of the time.
const FLOOR_MIN: f64 = 0.02;

/// How the priority translates into latency: the p99 with maintenance over the p99 without that is aimed at.
/// Linear in between. 50 aims well below the factor of 2 that it promises, because what is measured scatters.
const TARGETS: [(f64, f64); 5] = [(0.0, 1.0), (25.0, 1.25), (50.0, 1.6), (75.0, 2.5), (99.0, 5.0)];

/// The window at most grows and at least shrinks by these factors in a cycle.
const STEP: (f64, f64) = (0.5, 1.5);

/// What clients may feel (the ratio less 1) counts as at least this.
const ROOM_MIN: f64 = 0.02;

/// The ratio of latencies that `priority` aims at; infinite where clients do not count.
pub(super) fn target(priority: u8) -> f64 {
    if priority >= Maintenance::PRIORITY_MAX {
        return f64::INFINITY;
    }
    let at = f64::from(priority);
    let above = TARGETS.iter().position(|(p, _)| *p >= at).unwrap_or(TARGETS.len() - 1).max(1);
    let ((p0, t0), (p1, t1)) = (TARGETS[above - 1], TARGETS[above]);
    t0 + (t1 - t0) * (at - p0) / (p1 - p0)
}

/// The least window of `priority`.
pub(super) fn floor(priority: u8) -> f64 {
    (f64::from(priority) / FLOOR_WHOLE).clamp(FLOOR_MIN, 1.0)
}

/// True in the part of a cycle in which maintenance rests, if clients are there.
pub(crate) const fn is_rest(now: Nanos) -> bool {
    now.0 % CYCLE.0 < REST.0
}

/// When the rest or the work that is under way at `now` ends.
pub(crate) const fn next_change(now: Nanos) -> Nanos {
    let began = now.0 - now.0 % CYCLE.0;
    Nanos(if is_rest(now) { began + REST.0 } else { began + CYCLE.0 })
}

/// What was going on when a request came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Came {
    /// No maintenance.
    #[default]
    Alone,
    /// Maintenance at work.
    Beside,
    /// A change from one to the other: tells nothing.
    Between,
}

impl Came {
    /// `active`: there is maintenance to do somewhere in the array; `out`: bands of this shard that are out.
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

/// What one shard's clients allow.
pub(crate) struct Pacer {
    priority: u8,
    /// Bands that may be out; parts of one are a share of the time.
    window: f64,
    window_max: f64,
    /// The cycle that is under way, by number.
    cycle: u64,
    baseline: [Latencies; CLASSES],
    working: [Latencies; CLASSES],
}

impl Pacer {
    /// A pacer that never lets more than `window_max` bands out.
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

    /// `count` requests that came as `came` were answered after `took`.
    pub(crate) const fn answered(&mut self, came: Came, class: Class, took: Nanos, count: u32) {
        let latencies = match came {
            Came::Alone => &mut self.baseline,
            Came::Beside => &mut self.working,
            Came::Between => return,
        };
        latencies[class as usize].add(took, count);
        latencies[ALL].add(took, count);
    }

    /// Bands that may be out as far as this shard's clients are concerned.
    pub(crate) const fn window(&self) -> f64 {
        self.window
    }

    /// The priority has become `priority`. The window follows at once, by an estimate: what clients feel grows about as
    /// the window does.
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

    /// Adapts the window at the end of each cycle, when called in the next one. `in_force` is the window that all
    /// shards with clients agreed on. True when a cycle has ended.
    pub(crate) fn adapt(&mut self, now: Nanos, in_force: impl Fn() -> Option<f64>) -> bool {
        let cycle = now.0 / CYCLE.0;
        if cycle == self.cycle {
            return false;
        }
        self.cycle = cycle;
        self.baseline.iter_mut().for_each(|of| of.fade(BASELINE_MAX));
        if let Some(ratio) = self.ratio() {
            let room = (target(self.priority) - 1.0) / (ratio - 1.0).max(ROOM_MIN);
            // Half of the way, as a factor: what was measured scatters.
            self.window *= room.sqrt().clamp(STEP.0, STEP.1);
            // Another shard's clients may allow less: where that holds this one back, what it measures says nothing
            // about more.
            self.bound(in_force().map_or(f64::INFINITY, |window| STEP.1 * window));
            self.working.iter_mut().for_each(Latencies::clear);
        }
        true
    }

    /// How much longer the slowest answers take with maintenance, for the kind that suffers most, or all.
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
