//! Time limits of the control plane before a device counts as unresponsive.
//!
//! Only the silence of the device itself counts: time in which the device owes an answer and gives none. Time in which
//! this process did not run does not count, nor time in which the device answered other requests.

use strake_units::Nanos;

/// Time limit of one request of the control plane without any answer of its device.
pub const IO_LIMIT: Nanos = Nanos(10 * Nanos::SECOND.0);

/// Time limit of the total silence of a device during one operation.
pub const DEVICE_LIMIT: Nanos = Nanos(30 * Nanos::SECOND.0);

/// Silence before an answer that does not count, because drives may be slow.
const GRACE: Nanos = Nanos::SECOND;

/// Maximum time that counts between two checks. A longer time means that this process was suspended or busy.
const LOOK_MAX: Nanos = Nanos::SECOND;

/// The limits of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Limit of one request.
    pub io: Nanos,
    /// Limit of the total silence, and of one request whose duration depends on the size of the device, such as
    /// zeroing.
    pub device: Nanos,
}

impl Patience {
    /// Returns the limits of a device that holds requests for up to `hold`
    /// ([`BlockDevice::hold`](crate::BlockDevice::hold)).
    #[must_use]
    pub const fn of(hold: Nanos) -> Self {
        Self { io: IO_LIMIT.plus(hold), device: DEVICE_LIMIT.plus(hold) }
    }
}

/// A clock of the time in which this process checked its devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attention {
    last: Option<Nanos>,
    passed: Nanos,
}

impl Attention {
    /// Returns the time of this clock at the monotonic time `now`.
    pub fn at(&mut self, now: Nanos) -> Nanos {
        let step = now.since(self.last.unwrap_or(now));
        self.passed = self.passed.plus(step.min(LOOK_MAX));
        self.last = Some(now);
        self.passed
    }
}

/// The silence of one device. All times are from an [`Attention`] clock.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    patience: Patience,
    /// Start of the present silence.
    since: Option<Nanos>,
    spent: Nanos,
}

impl Silence {
    /// Creates the state of a device without outstanding requests.
    #[must_use]
    pub const fn new(patience: Patience) -> Self {
        Self { patience, since: None, spent: Nanos(0) }
    }

    /// Records that the device owes an answer.
    pub fn owed(&mut self, at: Nanos) {
        self.since.get_or_insert(at);
    }

    /// Records an answer. `more` is true if the device owes further answers. `long` is true for a request with the
    /// limit of a whole device.
    pub fn answered(&mut self, at: Nanos, more: bool, long: bool) {
        if let Some(since) = self.since.filter(|_| !long) {
            self.spent = self.spent.plus(at.since(since).since(GRACE));
        }
        self.since = more.then_some(at);
    }

    /// True if the device counts as unresponsive. `long` has the same meaning as for [`answered`](Self::answered).
    #[must_use]
    pub fn is_over(&self, at: Nanos, long: bool) -> bool {
        let Some(since) = self.since else { return false };
        let silent = at.since(since);
        let limit = if long { self.patience.device } else { self.patience.io };
        silent > limit || (!long && self.spent.plus(silent.since(GRACE)) > self.patience.device)
    }
}

#[cfg(test)]
mod tests {
    use super::{Attention, DEVICE_LIMIT, IO_LIMIT, Patience, Silence};
    use strake_units::Nanos;

    const SECOND: Nanos = Nanos::SECOND;

    fn local() -> Silence {
        Silence::new(Patience::of(Nanos(0)))
    }

    #[test]
    fn one_request_has_its_limit() {
        let mut silence = local();
        assert!(!silence.is_over(SECOND.times(1000), false), "it owes nothing");
        silence.owed(SECOND.times(1000));
        let end = SECOND.times(1000).plus(IO_LIMIT);
        assert!(!silence.is_over(end, false));
        assert!(silence.is_over(end.plus(Nanos(1)), false));
        assert!(!silence.is_over(SECOND.times(1000).plus(DEVICE_LIMIT), true));
        assert!(silence.is_over(SECOND.times(1001).plus(DEVICE_LIMIT), true));
    }

    #[test]
    fn a_device_that_answers_something_is_alive() {
        let mut silence = local();
        silence.owed(Nanos(0));
        for second in 1..1000 {
            assert!(!silence.is_over(SECOND.times(second), false), "second {second}");
            silence.answered(SECOND.times(second), true, false);
        }
    }

    #[test]
    fn silence_adds_up_to_the_limit_of_the_device() {
        let mut silence = local();
        let mut at = Nanos(0);
        for _ in 0..3 {
            silence.owed(at);
            at = at.plus(IO_LIMIT);
            assert!(!silence.is_over(at, false));
            silence.answered(at, false, false);
        }
        // Three times 9 of 30 seconds are spent. One second of grace and three seconds remain.
        silence.owed(at);
        assert!(!silence.is_over(at.plus(SECOND.times(4)), false));
        assert!(silence.is_over(at.plus(SECOND.times(4)).plus(Nanos(1)), false));
    }

    #[test]
    fn a_long_request_leaves_the_rest_its_time() {
        let mut silence = local();
        silence.owed(Nanos(0));
        silence.answered(SECOND.times(29), false, true);
        silence.owed(SECOND.times(29));
        assert!(!silence.is_over(SECOND.times(38), false));
    }

    #[test]
    fn a_device_that_holds_requests_has_that_time_in_addition() {
        let hold = SECOND.times(24);
        let mut silence = Silence::new(Patience::of(hold));
        silence.owed(Nanos(0));
        assert!(!silence.is_over(hold.plus(SECOND.times(9)), false));
        assert!(silence.is_over(hold.plus(SECOND.times(11)), false));
    }

    #[test]
    fn time_without_a_look_is_not_counted() {
        let mut attention = Attention::default();
        assert_eq!(attention.at(SECOND.times(50)), Nanos(0));
        assert_eq!(attention.at(SECOND.times(50).plus(Nanos(7))), Nanos(7));
        let stopped = attention.at(SECOND.times(5000));
        assert_eq!(stopped, SECOND.plus(Nanos(7)), "the process was stopped");
        assert_eq!(attention.at(SECOND.times(4000)), stopped, "a clock never goes back");
    }
}
