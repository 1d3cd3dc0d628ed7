//! Places that are not equally popular (Zipf's law): the place of rank k is asked for in proportion to 1 / k^theta.

/// Parts into which chance is cut; each stands for the same share of requests.
const PARTS: usize = 1 << 16;
/// Ranks whose weights are added one by one; those after them are integrated.
const EXACT: u64 = 1000;

/// Draws ranks by a table of quantiles: which rank ends which share of all requests. Within a part every rank is
/// equally likely, so popularity is exact at 65,536 points and a straight line in between; a draw costs no power and
/// no logarithm.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// The first rank of each part, and the number of ranks at the end.
    quantiles: Vec<u64>,
    ranks: u64,
    /// Multiplied with a rank, so that popular places are not neighbours.
    step: u64,
}

impl Zipf {
    /// Over `ranks` places, with `theta` above 0; 0.99 is what YCSB uses.
    #[must_use]
    pub fn new(ranks: u64, theta: f64) -> Self {
        let ranks = ranks.max(1);
        let sums = Sums::new(ranks, theta);
        let part = sums.total() / PARTS as f64;
        let mut quantiles: Vec<u64> =
            (0..PARTS).map(|at| sums.rank(part * at as f64).min(ranks - 1)).collect();
        quantiles.push(ranks);
        // About the golden section of the range, so that steps spread evenly.
        let golden = (ranks as f64 * 0.618_033_988_749_894_9) as u64;
        let step = (golden.max(1)..).find(|step| gcd(*step, ranks) == 1).unwrap_or(1);
        Self { quantiles, ranks, step }
    }

    /// The rank, the most popular first, that `random` stands for.
    #[must_use]
    pub fn rank(&self, random: u64) -> u64 {
        let at = (random >> 48) as usize;
        let (first, end) = (self.quantiles[at], self.quantiles[at + 1].max(self.quantiles[at] + 1));
        let within = random & 0xffff_ffff_ffff;
        first + ((u128::from(end - first) * u128::from(within)) >> 48) as u64
    }

    /// The place that `random` stands for: popular ones lie far from each other.
    #[must_use]
    pub fn place(&self, random: u64) -> u64 {
        (u128::from(self.rank(random)) * u128::from(self.step) % u128::from(self.ranks)) as u64
    }
}

/// Sums of weights from the most popular rank on.
struct Sums {
    /// The sum before each of the first ranks, and after the last of them.
    exact: Vec<f64>,
    theta: f64,
    ranks: u64,
}

impl Sums {
    fn new(ranks: u64, theta: f64) -> Self {
        let mut sum = 0.0;
        let mut exact = vec![0.0];
        for rank in 1..=ranks.min(EXACT) {
            sum += (rank as f64).powf(-theta);
            exact.push(sum);
        }
        Self { exact, theta, ranks }
    }

    fn last_exact(&self) -> f64 {
        self.exact[self.exact.len() - 1]
    }

    /// The integral of the weights from the end of the exact ranks to `rank`; ranks are at the middle of a step.
    fn tail(&self, rank: f64) -> f64 {
        let from = EXACT as f64 + 0.5;
        let power = 1.0 - self.theta;
        if power.abs() < 1e-9 {
            return (rank / from).ln();
        }
        (rank.powf(power) - from.powf(power)) / power
    }

    fn total(&self) -> f64 {
        let tail = if self.ranks > EXACT { self.tail(self.ranks as f64 + 0.5) } else { 0.0 };
        self.last_exact() + tail
    }

    /// The rank, from 0, in whose weight `sum` falls.
    fn rank(&self, sum: f64) -> u64 {
        if sum < self.last_exact() {
            return (self.exact.partition_point(|before| *before <= sum) - 1) as u64;
        }
        let from = EXACT as f64 + 0.5;
        let power = 1.0 - self.theta;
        let rest = sum - self.last_exact();
        let rank = if power.abs() < 1e-9 {
            from * rest.exp()
        } else {
            (rest * power + from.powf(power)).powf(power.recip())
        };
        (rank - 0.5) as u64
    }
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::Zipf;
    use crate::choice::Random;

    fn check(ranks: u64, theta: f64) {
        let zipf = Zipf::new(ranks, theta);
        let mut random = Random::new(7);
        let draws = 400_000;
        let mut seen = [0_u32; 4];
        for _ in 0..draws {
            let rank = zipf.rank(random.next());
            assert!(rank < ranks && zipf.place(random.next()) < ranks);
            if let Some(count) = seen.get_mut(rank as usize) {
                *count += 1;
            }
        }
        let total: f64 = (1..=ranks).map(|rank| (rank as f64).powf(-theta)).sum();
        for (rank, count) in (1..=ranks.min(4)).zip(seen) {
            let expected = f64::from(draws) * (rank as f64).powf(-theta) / total;
            let off = (f64::from(count) - expected).abs();
            // Five standard deviations, and what a table of 65,536 parts rounds.
            let allowed = 5.0 * expected.sqrt() + f64::from(draws) / 32_768.0;
            assert!(
                off < allowed,
                "{ranks} ranks, theta {theta}: rank {rank} came {count} times, not {expected:.0}"
            );
        }
    }

    #[test]
    fn popular_ranks_come_as_often_as_the_law_says() {
        for theta in [0.5, 0.99, 1.0, 1.2] {
            for ranks in [1, 2, 10, 1000, 1001, 1_000_000] {
                check(ranks, theta);
            }
        }
    }

    #[test]
    fn every_rank_has_a_place_of_its_own() {
        let zipf = Zipf::new(1000, 0.9);
        let places: std::collections::BTreeSet<u64> =
            (0..1000).map(|rank| rank * zipf.step % zipf.ranks).collect();
        assert_eq!(places.len(), 1000);
    }

    #[test]
    fn the_whole_range_is_reached() {
        let zipf = Zipf::new(1 << 24, 0.99);
        assert_eq!(zipf.rank(0), 0);
        assert_eq!(zipf.rank(u64::MAX), (1 << 24) - 1);
    }
}
