//! Where the next request goes, and whether it writes.

use strake_units::Lba;

use super::zipf::Zipf;
use crate::{Pattern, Stride};

/// Which places come after each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Anywhere, at a multiple of the request's size.
    Random,
    /// After the one before, from the beginning again at the end.
    Sequential,
    /// Anywhere, some more often than others: Zipf's law with this exponent.
    Zipf(f64),
}

/// Chooses places and kinds.
pub(super) struct Choice {
    random: Random,
    order: Chosen,
    blocks: u64,
    first: u64,
    places: u64,
    stride: Option<Stride>,
    next: u64,
    /// Writes among 2^32 requests.
    writes: u64,
}

enum Chosen {
    Random,
    Sequential,
    Zipf(Zipf),
}

impl Choice {
    pub(super) fn new(pattern: &Pattern) -> Self {
        Self {
            random: Random::new(pattern.seed),
            order: match pattern.order {
                Order::Random => Chosen::Random,
                Order::Sequential => Chosen::Sequential,
                Order::Zipf(theta) => Chosen::Zipf(Zipf::new(pattern.places, theta)),
            },
            blocks: u64::from(pattern.blocks),
            first: pattern.first,
            places: pattern.places,
            stride: pattern.stride,
            next: 0,
            writes: (u64::from(pattern.write_percent) << 32) / 100,
        }
    }

    /// A place, and whether to write to it.
    pub(super) fn next(&mut self) -> (u64, bool) {
        let random = self.random.next();
        let place = match &self.order {
            // The upper half of a product maps a random number onto a range without a division.
            Chosen::Random => ((u128::from(random) * u128::from(self.places)) >> 64) as u64,
            Chosen::Sequential => {
                let place = self.next;
                self.next = self.after(place);
                place
            }
            Chosen::Zipf(zipf) => zipf.place(random),
        };
        (place, random & 0xffff_ffff < self.writes)
    }

    /// The place behind `place`, the first behind the last.
    pub(super) fn after(&self, place: u64) -> u64 {
        if place + 1 == self.places { 0 } else { place + 1 }
    }

    /// The address of `place`.
    pub(super) fn address(&self, place: u64) -> Lba {
        let place = self.stride.map_or(place, |stride| stride.place(place));
        Lba(self.first + place * self.blocks)
    }
}

/// Xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        // Zero is the one state it never leaves.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::{Choice, Order, Stride};
    use crate::Pattern;

    fn check(order: Order, write_percent: u8) -> (Vec<u64>, usize) {
        let pattern = Pattern {
            order,
            write_percent,
            blocks: 4,
            first: 100,
            places: 10,
            ..Pattern::default()
        };
        let mut choice = Choice::new(&pattern);
        let chosen: Vec<(u64, bool)> = (0..10_000).map(|_| choice.next()).collect();
        let places: Vec<u64> = chosen.iter().map(|(place, _)| *place).collect();
        assert!(places.iter().all(|place| *place < 10));
        assert_eq!(choice.address(places[1]).0, 100 + 4 * places[1]);
        (places, chosen.iter().filter(|(_, write)| *write).count())
    }

    #[test]
    fn sequential_places_follow_each_other_and_begin_again() {
        let (places, writes) = check(Order::Sequential, 0);
        assert!(places.iter().zip(0..).all(|(place, at)| *place == at % 10));
        assert_eq!(writes, 0);
    }

    #[test]
    fn runs_of_places_have_gaps_between_them() {
        let stride = Some(Stride { run: 3, every: 8 });
        let pattern = Pattern { blocks: 4, first: 100, places: 10, stride, ..Pattern::default() };
        let choice = Choice::new(&pattern);
        let at = |place| (choice.address(place).0 - 100) / 4;
        assert_eq!([0, 1, 2, 3, 5, 6].map(at), [0, 1, 2, 8, 10, 16]);
    }

    #[test]
    fn random_places_come_equally_often() {
        let (places, writes) = check(Order::Random, 30);
        for wanted in 0..10 {
            let count = places.iter().filter(|place| **place == wanted).count();
            assert!((850..1150).contains(&count), "{wanted}: {count}");
        }
        assert!((2750..3250).contains(&writes), "{writes}");
    }

    #[test]
    fn popular_places_come_more_often() {
        let (places, writes) = check(Order::Zipf(1.0), 100);
        let mut counts = [0; 10];
        places.iter().for_each(|place| counts[*place as usize] += 1);
        counts.sort_unstable();
        assert!(counts[9] > 8 * counts[0], "{counts:?}");
        assert_eq!(writes, 10_000);
    }
}
