//! Division by a small constant of an array, by multiplication. Every read divides several times, and a 64-bit division
//! takes longer than all other work of locating a block.

/// A divisor from 1 to 255.
///
/// The quotient is the upper half of a product with `ceil(2^64 / d)` (Granlund and Montgomery, "Division by invariant
/// integers using multiplication", PLDI 1994). The factor is too large by less than `d / 2^64` in proportion, so the
/// quotient is exact for every dividend below `2^64 / d`, and thus up to 2^56.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    divisor: u64,
    factor: u64,
    /// All ones for the divisor 1, whose factor does not fit into 64 bits; otherwise 0.
    whole: u64,
}

impl Divisor {
    /// The largest dividend that the tests go to. Stripes and strips are far fewer: no array has more than 2^63 bytes.
    #[cfg(test)]
    pub(crate) const DIVIDEND_MAX: u64 = 1 << 56;

    /// Prepares the division by the nonzero `divisor`.
    pub(crate) const fn new(divisor: u8) -> Self {
        let divisor = divisor as u64;
        if divisor == 1 {
            return Self { divisor, factor: 0, whole: u64::MAX };
        }
        Self { divisor, factor: u64::MAX / divisor + 1, whole: 0 }
    }

    /// Returns quotient and remainder.
    #[inline]
    pub(crate) const fn divide(self, dividend: u64) -> (u64, u64) {
        let high = ((dividend as u128 * self.factor as u128) >> 64) as u64;
        let quotient = high + (dividend & self.whole);
        // Above the largest dividend, the result is wrong, but there is no overflow panic.
        (quotient, dividend.wrapping_sub(quotient.wrapping_mul(self.divisor)))
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    fn check(dividend: u64, divisor: u8) {
        let expected = (dividend / u64::from(divisor), dividend % u64::from(divisor));
        assert_eq!(Divisor::new(divisor).divide(dividend), expected, "{dividend} / {divisor}");
    }

    #[test]
    fn every_divisor_at_every_edge() {
        for divisor in 1..=u8::MAX {
            let last = Divisor::DIVIDEND_MAX - Divisor::DIVIDEND_MAX % u64::from(divisor);
            for around in [u64::from(divisor), 1 << 32, last] {
                (around.saturating_sub(2)..around.min(Divisor::DIVIDEND_MAX - 2) + 2)
                    .for_each(|dividend| check(dividend, divisor));
            }
            check(0, divisor);
            check(Divisor::DIVIDEND_MAX, divisor);
        }
    }

    /// Dividends all over the range, by a step that is prime and near its golden section.
    #[test]
    fn every_divisor_all_over_the_range() {
        for divisor in 1..=u8::MAX {
            let mut dividend = u64::from(divisor);
            for _ in 0..1000 {
                dividend = (dividend + 44_535_188_905_927_817) % Divisor::DIVIDEND_MAX;
                check(dividend, divisor);
            }
        }
    }
}
