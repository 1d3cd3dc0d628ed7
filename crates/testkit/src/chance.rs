//! A source of decisions: SplitMix64, so that a seed gives the same sequence on every platform.

/// A generator of pseudorandom numbers.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Returns a generator with seed `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014).
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Returns a number in `0..bound`; 0 if `bound` is 0.
    pub const fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.bits() % bound as u64) as usize }
    }

    /// Returns true with a probability of one in `count`.
    pub const fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Returns one of `choices`.
    ///
    /// # Panics
    /// `choices` is empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }
}
