//! The limits of this crate.

use strake_units::Nanos;

/// The time between two distributions of a limit's budget.
pub const TICK: Nanos = Nanos::MILLI;

/// Ticks after which an unspent grant returns to the home.
pub const LAPSE_TICKS: u64 = 2;

/// Ticks without use after which the home divides the budget among all cores and stops its ticks.
pub const IDLE_TICKS: u32 = 4;

/// The bytes of a request of a host that count as one I/O.
pub const IO_BYTES: u64 = 256 << 10;

/// The greatest rate, in I/Os or bytes per second.
pub const RATE_MAX: u64 = 1 << 50;

/// The shortest burst. A shorter one would lose budget whenever the home's tick is late.
pub const BURST_MS_MIN: u32 = 10;

/// The burst of a limit without its own.
pub const BURST_MS_DEFAULT: u32 = 100;

/// The longest burst.
pub const BURST_MS_MAX: u32 = 60_000;

/// The greatest number of data cores.
pub const CORES_MAX: usize = 64;

const _: () = assert!(BURST_MS_MIN as u64 * Nanos::MILLI.0 > (LAPSE_TICKS + 1) * TICK.0);
const _: () = assert!(IDLE_TICKS as u64 > LAPSE_TICKS);
