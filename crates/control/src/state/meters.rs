//! How fast the jobs of an array proceed.

use std::time::Instant;

use strake_engine::Forecast;
use strake_units::Nanos;

/// Remembers how far a job was, to tell its rate.
#[derive(Default)]
pub(crate) struct Meters {
    pub(crate) rebuild: Meter,
    pub(crate) replace: Meter,
    pub(crate) resync: Meter,
    pub(crate) scrub: Meter,
    pub(crate) grow: Meter,
}

/// Computes a job's rate from its progress at each look.
#[derive(Default)]
pub(crate) struct Meter {
    since: Option<Instant>,
    forecast: Forecast,
}

impl Meter {
    /// Takes note of `done` bytes.
    pub(crate) fn note(&mut self, now: Instant, done: u64) -> Forecast {
        let span = now.duration_since(*self.since.get_or_insert(now));
        self.forecast.note(Nanos(span.as_nanos() as u64), done);
        self.forecast
    }

    /// Time that passes does not count while nothing is done.
    pub(crate) fn rest(&mut self) {
        self.forecast.rest();
    }
}
