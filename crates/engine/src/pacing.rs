//! How fast maintenance goes: how many bands a shard resynchronizes or rebuilds at a time.
//!
//! Pure, so that a change of the pace can be tried on paper: what it follows from comes in, a number comes out.

use crate::limits::{MAINTENANCE_WINDOW_BUSY, MAINTENANCE_WINDOW_IDLE};

/// What somebody wants of resync and rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// From 0, clients first, to 100, done as soon as possible.
    pub priority: u8,
    /// Begin nothing.
    pub paused: bool,
}

impl Maintenance {
    /// The priority of arrays for which nobody asked for another.
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

/// What a shard knows when it asks how many bands may be out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) maintenance: Maintenance,
    /// Requests of clients that are not answered yet.
    pub(crate) requests: usize,
}

/// Bands that may be out at a time; 0 while nothing is to be begun.
pub(crate) const fn window(load: &Load) -> usize {
    if load.maintenance.paused {
        0
    } else if load.requests > 0 {
        MAINTENANCE_WINDOW_BUSY
    } else {
        MAINTENANCE_WINDOW_IDLE
    }
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

    #[test]
    fn the_window_follows_the_load() {
        let check = |paused, requests, want| {
            let maintenance = Maintenance { paused, ..Maintenance::default() };
            assert_eq!(window(&Load { maintenance, requests }), want);
        };
        check(false, 0, MAINTENANCE_WINDOW_IDLE);
        check(false, 1, MAINTENANCE_WINDOW_BUSY);
        check(true, 0, 0);
        check(true, 1, 0);
    }
}
