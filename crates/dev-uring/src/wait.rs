//! Blocking waits, for the control plane only.

use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{ClockId, Timespec, clock_gettime};
use strake_units::Nanos;

/// Calls that only yield, before later calls sleep: a fast drive answers within them.
const YIELDS: u32 = 64;

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
            | NanosleepRelativeResult::Err(_)) =
                nanosleep(&Timespec { tv_sec: 0, tv_nsec: 50_000 });
        }
        let time = now();
        (time.since(start) <= limit).then_some(time)
    }
}
