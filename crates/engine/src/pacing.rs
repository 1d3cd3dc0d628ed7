//! The speed of maintenance: how many bands a shard resynchronizes or rebuilds at a time.
//!
//! The effect of maintenance on clients depends on the drives, the level and the changing load of the clients, so it
//! cannot be computed in advance. Therefore the engine measures the effect. While clients are active, maintenance rests
//! for a short part of every cycle. The latency of requests during the rests is the baseline. The engine compares it
//! with the latency during maintenance, and adapts the window to the ratio:
//!
//! ```text
//!   | rest |           work           | rest |           work           | rest |
//!     baseline  latency beside work     the window changes with each cycle
//! ```
//!
//! Cycles begin at multiples of their length, so the shards of an array rest at the same time without communication.
//! All functions in this module are pure: they compute a window from times and latencies, so tests need no drives.
//! docs/decisions/0011-pace-of-maintenance.md contains the measurements.

mod latency;
mod pacer;
#[cfg(test)]
mod tests_pacer;

use strake_units::Nanos;

use crate::limits::MAINTENANCE_WINDOW;

pub(crate) use latency::Class;
pub(crate) use pacer::{Came, Pacer};

/// Clients without a request for this time count as inactive.
pub(crate) const CLIENTS_HOLD: Nanos = Nanos(100 * Nanos::MILLI.0);

/// The longest pause between two bands.
const PAUSE_MAX: Nanos = Nanos::SECOND;

/// The fractional part of the golden ratio: its multiples modulo 1 are distributed evenly.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Upper bound of the factors of the golden ratio, which keeps the products exact enough.
const PHASES: u64 = 1 << 20;

/// The operator's settings for resync and rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// Priority from 0 (clients first) to 100 (maintenance as fast as possible).
    pub priority: u8,
    /// Start no maintenance.
    pub paused: bool,
}

impl Maintenance {
    /// The highest priority.
    pub const PRIORITY_MAX: u8 = 100;

    /// The default priority of an array.
    pub const PRIORITY_DEFAULT: u8 = 50;

    pub(crate) const fn to_bits(self) -> u64 {
        self.priority as u64 | (self.paused as u64) << 8
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self { priority: bits as u8, paused: bits & 1 << 8 != 0 }
    }
}

impl Default for Maintenance {
    fn default() -> Self {
        Self { priority: Self::PRIORITY_DEFAULT, paused: false }
    }
}

/// The state of a shard from which [`allowed`] computes the number of bands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) now: Nanos,
    pub(crate) maintenance: Maintenance,
    /// True if clients are active on any shard.
    pub(crate) clients: bool,
    /// The minimum of the windows of all shards with clients.
    pub(crate) window: f64,
    /// Bands that this shard started since its own start.
    pub(crate) handed_out: u64,
    /// When the last band completed, and the duration of this band.
    pub(crate) back: Nanos,
    pub(crate) took: Nanos,
}

/// The number of bands that may be in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// This number of bands, at least one.
    Bands(usize),
    /// No band before this time.
    NotBefore(Nanos),
    /// No band until the setting changes.
    Paused,
}

/// Computes the number of bands that may be in progress.
pub(crate) fn allowed(load: &Load) -> Allowed {
    let Maintenance { priority, paused } = load.maintenance;
    if paused {
        return Allowed::Paused;
    }
    if priority >= Maintenance::PRIORITY_MAX || !load.clients {
        return Allowed::Bands(MAINTENANCE_WINDOW);
    }
    if pacer::is_rest(load.now) {
        return Allowed::NotBefore(pacer::next_change(load.now));
    }
    let window = load.window.clamp(pacer::floor(priority), MAINTENANCE_WINDOW as f64);
    if window >= 1.0 {
        // For the fractional part, some bands get one more slot; the golden ratio distributes these bands evenly.
        let phase = (load.handed_out % PHASES) as f64 * GOLDEN % 1.0;
        return Allowed::Bands((window + phase) as usize);
    }
    let pause = Nanos((load.took.0 as f64 * (1.0 / window - 1.0)) as u64).min(PAUSE_MAX);
    let next = load.back.plus(pause);
    if load.now >= next { Allowed::Bands(1) } else { Allowed::NotBefore(next) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_survives_packing() {
        for maintenance in [
            Maintenance::default(),
            Maintenance { priority: 0, paused: true },
            Maintenance { priority: 100, paused: false },
        ] {
            assert_eq!(Maintenance::from_bits(maintenance.to_bits()), maintenance);
        }
    }

    fn load(now: u64) -> Load {
        Load {
            now: Nanos(now),
            maintenance: Maintenance::default(),
            clients: true,
            window: 4.0,
            handed_out: 0,
            back: Nanos(0),
            took: Nanos(0),
        }
    }

    /// A time in a work phase, far from rests.
    const WORK: u64 = 50_000_000;

    #[test]
    fn the_window_follows_the_load() {
        let check = |load: Load, want| assert_eq!(allowed(&load), want, "{load:?}");
        let all = Allowed::Bands(MAINTENANCE_WINDOW);
        let at = |priority, paused| Maintenance { priority, paused };
        check(load(WORK), Allowed::Bands(4));
        check(Load { clients: false, ..load(WORK) }, all);
        check(Load { clients: false, ..load(0) }, all);
        check(Load { maintenance: at(0, false), clients: false, ..load(WORK) }, all);
        check(Load { maintenance: at(100, false), ..load(0) }, all);
        check(Load { maintenance: at(100, true), clients: false, ..load(WORK) }, Allowed::Paused);
        check(load(0), Allowed::NotBefore(pacer::REST));
        check(Load { window: 1e9, ..load(WORK) }, all);
    }

    #[test]
    fn parts_of_a_band_are_parts_of_the_time() {
        let of = |window: f64, handed_out| match allowed(&Load { window, handed_out, ..load(WORK) })
        {
            Allowed::Bands(bands) => bands as f64,
            other => panic!("{other:?} although a band is due"),
        };
        for window in [1.0, 1.25, 2.5, 7.9] {
            let mean = (0..1000).map(|n| of(window, n)).sum::<f64>() / 1000.0;
            assert!((mean - window).abs() < 0.02, "{mean} on average, not {window}");
        }
        // For half a band, the pause is as long as the last band.
        let maintenance = Maintenance { priority: 25, paused: false };
        let (back, took) = (Nanos(WORK), Nanos(300_000));
        let half = |now| Load { window: 0.1, maintenance, back, took, ..load(now) };
        assert_eq!(allowed(&half(WORK + 299_999)), Allowed::NotBefore(Nanos(WORK + 300_000)));
        assert_eq!(allowed(&half(WORK + 300_000)), Allowed::Bands(1));
    }
}
