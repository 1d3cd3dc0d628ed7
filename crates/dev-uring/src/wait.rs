//! Blocking waits, for the control plane only.

use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{ClockId, Timespec, clock_gettime};
use strake_units::Nanos;

/// Calls that only yield, before later calls sleep: a fast drive answers within them.
const YIELDS: u32 = 64;

/// Bounds of one sleep. A drive that answers late must not occupy a CPU that other arrays need.
const SLEEP: (Nanos, Nanos) = (Nanos(50 * Nanos::MICRO.0), Nanos(5 * Nanos::MILLI.0));

/// The sleep after a wait of `waited`: a small part of the wait, so that the answer of the drive is not noticed much
/// later.
const fn sleep_after(waited: Nanos) -> Nanos {
    let (min, max) = SLEEP;
    match waited.0 / 16 {
        part if part < min.0 => min,
        part if part > max.0 => max,
        part => Nanos(part),
    }
}

/// The monotonic clock (`CLOCK_MONOTONIC`, clock_gettime(2)).
pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The wait function of the control plane's I/O. It has no limit: each device has its own limits
/// ([`Patience`](strake_block::Patience)), so that an unresponsive device does not affect another.
pub fn control_wait() -> impl FnMut() -> Option<Nanos> {
    control_wait_for(Nanos(u64::MAX))
}

/// As [`control_wait`], with a limit after its creation.
pub fn control_wait_for(limit: Nanos) -> impl FnMut() -> Option<Nanos> {
    let start = now();
    let mut calls = 0u32;
    move || {
        calls = calls.saturating_add(1);
        if calls <= YIELDS {
            std::thread::yield_now();
        } else {
            // An early return does no harm: the caller checks in any case.
            let (NanosleepRelativeResult::Ok
            | NanosleepRelativeResult::Interrupted(_)
            | NanosleepRelativeResult::Err(_)) = nanosleep(&Timespec {
                tv_sec: 0,
                tv_nsec: sleep_after(now().since(start)).0 as i64,
            });
        }
        let time = now();
        (time.since(start) <= limit).then_some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::{SLEEP, sleep_after};
    use strake_units::Nanos;

    /// History: the creation of an array beside a drive that hung for 10 s cost 71,500 wake-ups.
    #[test]
    fn a_long_wait_has_few_wake_ups_and_notices_an_answer_soon() {
        let (mut waited, mut wake_ups) = (Nanos(0), 0);
        while waited < Nanos(10 * Nanos::SECOND.0) {
            let sleep = sleep_after(waited);
            assert!(sleep <= SLEEP.0.max(Nanos(waited.0 / 16)), "after {waited:?}");
            waited = Nanos(waited.0 + sleep.0);
            wake_ups += 1;
        }
        assert!(wake_ups < 2500, "{wake_ups} wake-ups");
    }
}
