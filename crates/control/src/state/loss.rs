//! Failures of a running array, and the time of its next start.

use std::time::{Duration, Instant};

/// Time between the second consecutive failure of an array and its start. It doubles with each further failure.
const PAUSE_MIN: Duration = Duration::from_secs(5);

/// Maximum of this time.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// After this running time, a failure counts as a new problem.
const STEADY: Duration = Duration::from_secs(600);

/// A failure of a running array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) at: Instant,
    /// Time without a start. Otherwise, an array with a drive that fails at every write would fail repeatedly.
    pause: Duration,
}

impl Loss {
    /// Returns a failure at `at`, after the failure `before`.
    pub(crate) fn after(before: Option<Self>, at: Instant) -> Self {
        let again = before.filter(|before| at.duration_since(before.at) < before.pause + STEADY);
        let pause =
            again.map_or(Duration::ZERO, |before| (2 * before.pause).clamp(PAUSE_MIN, PAUSE_MAX));
        Self { at, pause }
    }

    /// True if the array may be started again.
    pub(crate) fn allows_start(&self) -> bool {
        self.at.elapsed() >= self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::{Loss, PAUSE_MAX, PAUSE_MIN, STEADY};
    use std::time::{Duration, Instant};

    #[test]
    fn an_array_that_is_lost_again_and_again_is_started_less_and_less_often() {
        let mut now = Instant::now();
        let mut loss = Loss::after(None, now);
        assert_eq!(loss.pause, Duration::ZERO);
        for pause in [PAUSE_MIN, 2 * PAUSE_MIN, 4 * PAUSE_MIN] {
            now += loss.pause + Duration::from_secs(1);
            loss = Loss::after(Some(loss), now);
            assert_eq!(loss.pause, pause);
        }
        for _ in 0..10 {
            now += loss.pause + STEADY / 2;
            loss = Loss::after(Some(loss), now);
        }
        assert_eq!(loss.pause, PAUSE_MAX);
        now += loss.pause + STEADY;
        assert_eq!(Loss::after(Some(loss), now).pause, Duration::ZERO);
    }
}
