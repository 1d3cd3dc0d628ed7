//! A loss of an array, and when the array may be started again.

use std::time::{Duration, Instant};

/// Time between the second loss in a row of an array and its start. It doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(5);

/// The longest such time.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// An array that ran for so long is not the same trouble again.
const STEADY: Duration = Duration::from_secs(600);

/// A loss of an array while it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) at: Instant,
    /// How long it is not started: a drive that fails whenever it is written to would be lost again and again.
    pause: Duration,
}

impl Loss {
    /// A loss at `at`, after the one `before`.
    pub(crate) fn after(before: Option<Self>, at: Instant) -> Self {
        let again = before.filter(|before| at.duration_since(before.at) < before.pause + STEADY);
        let pause =
            again.map_or(Duration::ZERO, |before| (2 * before.pause).clamp(PAUSE_MIN, PAUSE_MAX));
        Self { at, pause }
    }

    /// Whether the array may be started again.
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
