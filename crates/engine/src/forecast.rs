//! When a background job will be through: a rate that is smooth enough to read, and young enough to be true.

use strake_units::Nanos;

/// The rate of a job and what is left of it, from how far it was at various times.
///
/// The rate is an average over about the last half of the time the job has taken, at most over [`Forecast::MEMORY`]: a
/// young job is judged by all it has done, an old one follows when clients come or go, with that delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// When the last sample was taken, unless the job has rested since, and the bytes that were done.
    last: Option<Nanos>,
    done: u64,
    /// Time that the job has been seen at work.
    worked: Nanos,
    rate: f64,
}

impl Forecast {
    /// The rate follows a lasting change within about so long.
    pub const MEMORY: Nanos = Nanos(60 * Nanos::SECOND.0);

    /// Notes that `done_bytes` are done at `now`. Less than before means that the job began again.
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
        // The first span is all that is known.
        let first = self.worked == Nanos(0);
        self.worked = self.worked.plus(span);
        let memory = (self.worked.0 as f64 / 2.0).min(Self::MEMORY.0 as f64);
        let weight = if first { 1.0 } else { 1.0 - (-(span.0 as f64) / memory).exp() };
        self.rate += (fresh - self.rate) * weight;
    }

    /// The job does not work: the time until the next note does not count, nor what is done in it.
    pub fn rest(&mut self) {
        self.last = None;
    }

    /// Bytes a second, 0 while unknown.
    #[must_use]
    pub fn rate_bytes_per_s(&self) -> u64 {
        self.rate as u64
    }

    /// How long `left_bytes` will take; `None` while nothing moves.
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

    /// Lets a job of [`TOTAL`] bytes run at `rate` (a function of seconds), looked at twice a second, and returns what
    /// was forecast and what came, in seconds, for every look in between `from` and `to` (parts of the job).
    fn run(rate: impl Fn(f64) -> f64, from: f64, to: f64) -> Vec<(f64, f64)> {
        let mut forecast = Forecast::default();
        let (mut done, mut seconds, mut looks) = (0.0, 0.0, Vec::new());
        while done < TOTAL as f64 {
            // Progress comes in regions.
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
        // Unsteady from look to look: every other half second nothing moves.
        check(|s| if (s as u64).is_multiple_of(2) { 2e6 } else { 6e6 }, 0.1, 0.9, 0.2);
    }

    #[test]
    fn a_lasting_change_is_followed_within_the_memory() {
        // A third of the rate from 100 s on, where half is done: two minutes later the forecast is right again.
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
        // A rest is not held against it.
        forecast.rest();
        forecast.note(Nanos::SECOND.times(100), 1000);
        forecast.note(Nanos::SECOND.times(101), 2000);
        assert_eq!(forecast.rate_bytes_per_s(), 1000);
        forecast.note(Nanos::SECOND.times(102), 500);
        assert_eq!((forecast.rate_bytes_per_s(), forecast.left(1)), (0, None));
    }
}
