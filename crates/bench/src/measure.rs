//! Times of several ways to do the same, taken in turns.

use std::time::Instant;

use crate::pool::Stripe;

/// One way to do the work on one stripe.
pub type Way<'a> = Box<dyn FnMut(&mut Stripe<'_>) + 'a>;

/// How long and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Samples of each way.
    pub repeats: usize,
    /// Nanoseconds that one sample should take at least.
    pub sample_ns: u64,
}

/// What a measurement found each time, smallest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Orders them.
    ///
    /// # Panics
    /// When there is none: a measurement without samples is a mistake of this crate.
    #[must_use]
    pub fn new(mut found: Vec<f64>) -> Samples {
        assert!(!found.is_empty(), "a measurement has samples");
        found.sort_by(f64::total_cmp);
        Samples(found)
    }

    /// The middle one.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// The least.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.0[0]
    }

    /// The greatest.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// What `change` makes of each.
    #[must_use]
    pub fn map(&self, change: impl Fn(f64) -> f64) -> Samples {
        Samples::new(self.0.iter().map(|found| change(*found)).collect())
    }
}

/// Times every way. They take turns, a sample each, and another one begins each round, so that whatever
/// else the machine does meets all of them alike. Each sample walks on to stripes that were used longest ago.
///
/// # Panics
/// When there are no stripes.
#[must_use]
pub fn in_turns(ways: &mut [Way<'_>], stripes: &mut [Stripe<'_>], effort: Effort) -> Vec<Samples> {
    let mut walk = Walk::new(stripes.len());
    let batch = batch(ways, stripes, &mut walk, effort);
    let mut times = vec![Vec::with_capacity(effort.repeats); ways.len()];
    for round in 0..effort.repeats {
        for turn in 0..ways.len() {
            let way = (round + turn) % ways.len();
            times[way].push(sample(&mut ways[way], stripes, &mut walk, batch));
        }
    }
    times.into_iter().map(Samples::new).collect()
}

/// Stripes per sample, from the fastest of a few tries of the first way.
fn batch(
    ways: &mut [Way<'_>],
    stripes: &mut [Stripe<'_>],
    walk: &mut Walk,
    effort: Effort,
) -> usize {
    let tries = (0..5).map(|_| sample(&mut ways[0], stripes, walk, 4));
    let fastest = tries.fold(f64::INFINITY, f64::min).max(1e-9);
    (effort.sample_ns as f64 * 1e-9 / fastest).ceil() as usize
}

fn sample(way: &mut Way<'_>, stripes: &mut [Stripe<'_>], walk: &mut Walk, batch: usize) -> f64 {
    let started = Instant::now();
    for _ in 0..batch {
        way(&mut stripes[walk.next()]);
    }
    started.elapsed().as_secs_f64() / batch as f64
}

/// An order in which every stripe comes once before any comes again, and neighbours do not follow each
/// other: the stripes of an array are not neighbours in memory either.
struct Walk {
    at: usize,
    step: usize,
    count: usize,
}

impl Walk {
    fn new(count: usize) -> Walk {
        assert!(count > 0, "a measurement needs memory");
        let coprime = |step: &usize| gcd(*step, count) == 1;
        // About the golden section, so that steps spread evenly.
        let step = (count * 618 / 1000 + 1..).find(coprime).unwrap_or(1);
        Walk { at: 0, step, count }
    }

    fn next(&mut self) -> usize {
        self.at = (self.at + self.step) % self.count;
        self.at
    }
}

const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::{Samples, Walk};

    #[test]
    fn a_walk_visits_all_before_any_again() {
        for count in 1..100 {
            let mut walk = Walk::new(count);
            let mut seen: Vec<usize> = (0..count).map(|_| walk.next()).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn samples_are_ordered() {
        let samples = Samples::new(vec![3.0, 1.0, 2.0]);
        assert_eq!((samples.min(), samples.median(), samples.max()), (1.0, 2.0, 3.0));
    }
}
