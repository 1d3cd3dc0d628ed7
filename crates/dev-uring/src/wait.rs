//! Waiting, for the control plane only.

use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{ClockId, Timespec, clock_gettime};
use strake_units::Nanos;

/// Calls that only yield before calls begin to sleep: a fast drive answers within them.
const YIELDS: u32 = 64;

/// The monotonic clock (`CLOCK_MONOTONIC`, clock_gettime(2)).
pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The waiting half of the control plane's I/O. It never gives up: each device has its own limits
/// ([`Patience`](strake_block::Patience)), so that the silence of one is not held against another.
pub fn control_wait() -> impl FnMut() -> Option<Nanos> {
    control_wait_for(Nanos(u64::MAX))
}

/// As [`control_wait`], giving up `limit` after it was made.
pub fn control_wait_for(limit: Nanos) -> impl FnMut() -> Option<Nanos> {
    let start = now();
    let mut calls = 0u32;
    move || {
        calls = calls.saturating_add(1);
        if calls <= YIELDS {
            std::thread::yield_now();
        } else {
            // Waking early is as good as waking late: the caller looks either way.
            let (NanosleepRelativeResult::Ok
            | NanosleepRelativeResult::Interrupted(_)
            | NanosleepRelativeResult::Err(_)) =
                nanosleep(&Timespec { tv_sec: 0, tv_nsec: 50_000 });
        }
        let time = now();
        (time.since(start) <= limit).then_some(time)
    }
}
