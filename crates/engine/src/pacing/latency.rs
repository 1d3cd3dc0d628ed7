//! A histogram of request latencies. Additions are cheap, and old values fade.

use strake_units::Nanos;

use crate::histogram::Timed;

/// Kinds of requests whose latencies are not compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    SmallRead,
    LargeRead,
    SmallWrite,
    LargeWrite,
}

/// Number of kinds, plus one for all kinds together. The slowest of all requests can differ from the slowest requests
/// of each kind.
pub(crate) const CLASSES: usize = 5;

/// Index of all kinds together.
pub(crate) const ALL: usize = CLASSES - 1;

impl Class {
    /// Maximum size of a small request. The latency of the drive dominates such a request, not its bandwidth.
    const SMALL_BYTES: u64 = 32 << 10;

    pub(crate) const fn read(bytes: u64) -> Self {
        if bytes <= Self::SMALL_BYTES { Self::SmallRead } else { Self::LargeRead }
    }

    pub(crate) const fn write(bytes: u64) -> Self {
        if bytes <= Self::SMALL_BYTES { Self::SmallWrite } else { Self::LargeWrite }
    }

    /// The kind of these requests in statistics that do not distinguish sizes.
    pub(crate) const fn timed(self) -> Timed {
        match self {
            Self::SmallRead | Self::LargeRead => Timed::Read,
            Self::SmallWrite | Self::LargeWrite => Timed::Write,
        }
    }
}

/// Buckets per doubling of time. The bounds of adjacent buckets differ by at most an eighth.
const STEPS_SHIFT: u32 = 3;
const STEPS: usize = 1 << STEPS_SHIFT;

/// Times below 2^10 ns share the first bucket. Times from 2^34 ns (17 s) share the last bucket.
const OCTAVE_MIN: u32 = 10;
const OCTAVES: usize = 24;
const PLACES: usize = OCTAVES * STEPS;

/// A logarithmic histogram of latencies with eight buckets for each doubling of time.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    places: [u32; PLACES],
    count: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { places: [0; PLACES], count: 0 }
    }
}

impl Latencies {
    /// Adds `count` requests with the latency `took`.
    pub(crate) const fn add(&mut self, took: Nanos, count: u32) {
        let place = &mut self.places[place(took.0)];
        *place = place.saturating_add(count);
        self.count += count as u64;
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Halves all counts until their sum is at most `max`.
    pub(crate) fn fade(&mut self, max: u64) {
        while self.count > max {
            self.places.iter_mut().for_each(|place| *place /= 2);
            self.count = self.places.iter().map(|place| u64::from(*place)).sum();
        }
    }

    /// The 99th percentile in nanoseconds, interpolated within a bucket; 0 without requests.
    pub(crate) fn p99(&self) -> f64 {
        let beyond = self.count as f64 / 100.0;
        let mut above = 0.0;
        for at in (0..PLACES).rev() {
            let here = f64::from(self.places[at]);
            if here > 0.0 && above + here >= beyond {
                let share = (above + here - beyond) / here;
                return start_of(at) + share * (start_of(at + 1) - start_of(at));
            }
            above += here;
        }
        0.0
    }
}

const fn place(nanos: u64) -> usize {
    if nanos < 1 << OCTAVE_MIN {
        return 0;
    }
    let octave = nanos.ilog2();
    let step = nanos >> (octave - STEPS_SHIFT) & (STEPS as u64 - 1);
    let at = ((octave - OCTAVE_MIN) as usize) << STEPS_SHIFT | step as usize;
    if at < PLACES { at } else { PLACES - 1 }
}

/// The lower bound of bucket `at`.
fn start_of(at: usize) -> f64 {
    let octave = 1u64 << (OCTAVE_MIN + (at >> STEPS_SHIFT) as u32);
    octave as f64 * (1.0 + (at % STEPS) as f64 / STEPS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_holds_what_it_says() {
        for at in 1..PLACES {
            let start = start_of(at) as u64;
            assert_eq!(place(start), at);
            assert_eq!(place(start - 1), at - 1);
        }
        assert_eq!(place(0), 0);
        assert_eq!(place(u64::MAX), PLACES - 1);
    }

    #[test]
    fn the_slowest_in_a_hundred_is_found_within_an_eighth() {
        let check = |values: &mut dyn Iterator<Item = u64>, want: f64| {
            let mut latencies = Latencies::default();
            values.for_each(|value| latencies.add(Nanos(value), 1));
            let found = latencies.p99();
            assert!((want * 0.88..=want * 1.13).contains(&found), "{found}, not {want}");
        };
        check(&mut (1..=10_000).map(|i| i * 100), 990_000.0);
        check(&mut std::iter::repeat_n(70_000, 500), 70_000.0);
        let mixed = std::iter::repeat_n(70_000, 980).chain(std::iter::repeat_n(300_000, 20));
        check(&mut { mixed }, 300_000.0);
        check(&mut [5_000_000].into_iter(), 5_000_000.0);
        assert_eq!(Latencies::default().p99(), 0.0);
    }

    #[test]
    fn what_fades_keeps_its_shape() {
        let mut latencies = Latencies::default();
        (0..8000).for_each(|i| latencies.add(Nanos(50_000 + i % 2000 * 100), 1));
        let before = latencies.p99();
        latencies.fade(4000);
        assert!(latencies.count() <= 4000 && latencies.count() > 1000);
        assert!((before * 0.85..=before * 1.15).contains(&latencies.p99()));
    }
}
