//! A forecast of the end of a background job, from a smoothed recent rate.

use strake_units::Nanos;

/// The rate of a job and its remaining time, computed from its progress at various times.
///
/// The rate is an average over about the last half of the job's working time, but at most over [`Forecast::MEMORY`]. A
/// young job is judged by its whole progress. An old job follows changes of the client load with this delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Time of the last sample, unless the job has paused since. `done` contains the bytes of the last sample.
    last: Option<Nanos>,
    done: u64,
    /// Observed working time of the job.
    worked: Nanos,
    rate: f64,
}

impl Forecast {
    /// Time in which the rate follows a lasting change.
    pub const MEMORY: Nanos = Nanos(60 * Nanos::SECOND.0);

    /// Records that `done_bytes` are done at `now`. A smaller value than before means that the job restarted.
    pub fn note(&mut self, now: Nanos, done_bytes: u64) {
        if done_bytes < self.done {
            *self = Self::default();
        }
        let before = std::mem::replace(&mut self.done, done_bytes);
        let Some(then) = self.last.replace(now) else { return };
        let span = now.since(then);
        if span == Nanos(0) {
            return;
        }
        let fresh = (done_bytes - before) as f64 / span.0 as f64 * Nanos::SECOND.0 as f64;
        // There is no earlier measurement.
        let first = self.worked == Nanos(0);
        self.worked = self.worked.plus(span);
        let memory = (self.worked.0 as f64 / 2.0).min(Self::MEMORY.0 as f64);
        let weight = if first { 1.0 } else { 1.0 - (-(span.0 as f64) / memory).exp() };
        self.rate += (fresh - self.rate) * weight;
    }

    /// Records that the job is paused. The time and the progress until the next sample do not count.
    pub fn rest(&mut self) {
        self.last = None;
    }

    /// Returns the rate in bytes per second; 0 while unknown.
    #[must_use]
    pub fn rate_bytes_per_s(&self) -> u64 {
        self.rate as u64
    }

    /// Returns the time for `left_bytes`; `None` without progress.
    #[must_use]
    pub fn left(&self, left_bytes: u64) -> Option<Nanos> {
        let seconds = left_bytes as f64 / self.rate;
        seconds.is_finite().then_some(Nanos((seconds * Nanos::SECOND.0 as f64) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u64 = 1_000_000_000;

    /// Runs a job of [`TOTAL`] bytes at `rate` (a function of seconds), with two samples per second. For every sample
    /// between the fractions `from` and `to` of the job, returns the forecast and the actual remaining time in seconds.
    fn run(rate: impl Fn(f64) -> f64, from: f64, to: f64) -> Vec<(f64, f64)> {
        let mut forecast = Forecast::default();
        let (mut done, mut seconds, mut looks) = (0.0, 0.0, Vec::new());
        while done < TOTAL as f64 {
            // Progress is shown in whole regions.
            let shown = done as u64 / 4_000_000 * 4_000_000;
            forecast.note(Nanos((seconds * 1e9) as u64), shown);
            let part = done / TOTAL as f64;
            if (from..to).contains(&part) {
                let left = forecast.left(TOTAL - shown).map_or(f64::INFINITY, |l| l.0 as f64 / 1e9);
                looks.push((seconds, left));
            }
            done += rate(seconds) * 0.5;
            seconds += 0.5;
        }
        looks.into_iter().map(|(at, left)| (left, seconds - at)).collect()
    }

    fn check(rate: impl Fn(f64) -> f64, from: f64, to: f64, error: f64) {
        for (forecast, real) in run(rate, from, to) {
            let off = (forecast - real).abs() / real;
            assert!(
                off <= error,
                "{forecast} s forecast, {real} s came: off by {:.0} %",
                off * 100.0
            );
        }
    }

    #[test]
    fn a_steady_job_is_forecast_after_its_first_tenth() {
        for rate in [2e6, 1e7, 5e7] {
            check(|_| rate, 0.1, 0.9, 0.2);
        }
        // The progress is unsteady between samples.
        check(|s| if (s as u64).is_multiple_of(2) { 2e6 } else { 6e6 }, 0.1, 0.9, 0.2);
    }

    #[test]
    fn a_lasting_change_is_followed_within_the_memory() {
        // From 100 s on, when half is done, the rate is a third. Two minutes later, the forecast is correct again.
        check(|s| if s < 100.0 { 5e6 } else { 1.5e6 }, 0.72, 0.9, 0.2);
        check(|s| if s < 100.0 { 5e6 } else { 1.5e6 }, 0.1, 0.4, 2.5);
    }

    #[test]
    fn what_begins_again_is_forgotten() {
        let mut forecast = Forecast::default();
        forecast.note(Nanos(0), 0);
        assert_eq!((forecast.rate_bytes_per_s(), forecast.left(1)), (0, None));
        forecast.note(Nanos::SECOND, 1000);
        assert_eq!(forecast.rate_bytes_per_s(), 1000);
        assert_eq!(forecast.left(5000), Some(Nanos::SECOND.times(5)));
        // A pause does not reduce the rate.
        forecast.rest();
        forecast.note(Nanos::SECOND.times(100), 1000);
        forecast.note(Nanos::SECOND.times(101), 2000);
        assert_eq!(forecast.rate_bytes_per_s(), 1000);
        forecast.note(Nanos::SECOND.times(102), 500);
        assert_eq!((forecast.rate_bytes_per_s(), forecast.left(1)), (0, None));
    }
}
