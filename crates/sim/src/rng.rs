//! The only source of randomness in a run: SplitMix64, so that a seed gives the same run everywhere.

/// A generator. Every part of the world owns a [`fork`](Self::fork), so that the draws of one part do not affect
/// another part.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014).
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A separate generator, independent of the later draws of this one.
    pub const fn fork(&mut self) -> Self {
        Self { state: self.bits() }
    }

    /// A separate generator that does not advance this one.
    #[must_use]
    pub const fn beside(&self) -> Self {
        Self { state: mix(self.state.rotate_left(17)) }
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// A number in `low..=high`.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `per_million` times in a million.
    pub const fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < per_million as u64
    }

    /// True one time in `count`.
    pub const fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of `choices`, which is not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Shuffles `items` (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// Sixteen random bytes, for identifiers.
    pub fn bytes16(&mut self) -> [u8; 16] {
        let (a, b) = (self.bits().to_le_bytes(), self.bits().to_le_bytes());
        std::array::from_fn(|i| if i < 8 { a[i] } else { b[i - 8] })
    }
}

/// Mixes the bits of `value`: the finalizer of SplitMix64.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
