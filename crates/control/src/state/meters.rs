//! Rates of the jobs of an array.

use std::time::Instant;

use strake_engine::Forecast;
use strake_units::Nanos;

/// Meters of the jobs of an array.
#[derive(Default)]
pub(crate) struct Meters {
    pub(crate) rebuild: Meter,
    pub(crate) replace: Meter,
    pub(crate) resync: Meter,
    pub(crate) scrub: Meter,
    pub(crate) grow: Meter,
}

/// Computes the rate of a job from its progress at each check.
#[derive(Default)]
pub(crate) struct Meter {
    since: Option<Instant>,
    forecast: Forecast,
}

impl Meter {
    /// Records `done` bytes.
    pub(crate) fn note(&mut self, now: Instant, done: u64) -> Forecast {
        let span = now.duration_since(*self.since.get_or_insert(now));
        self.forecast.note(Nanos(span.as_nanos() as u64), done);
        self.forecast
    }

    /// Pauses the meter. The time of the pause does not count.
    pub(crate) fn rest(&mut self) {
        self.forecast.rest();
    }
}
