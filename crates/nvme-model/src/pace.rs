//! When a controller does what.

use strake_testkit::Chance;

/// When fetched commands are executed and completed.
#[derive(Clone, Debug)]
pub enum Pace {
    /// In each step everything that is there, in order.
    Prompt,
    /// In each step some of it, in any order, block by block. Fetched commands may be executed in part, and until the
    /// controller is not ready, whatever the host does meanwhile.
    Random(Chance),
}

impl Pace {
    /// A random pace.
    #[must_use]
    pub const fn random(seed: u64) -> Self {
        Self::Random(Chance::new(seed))
    }

    /// How many of `most` commands are fetched now.
    pub(crate) fn fetches(&mut self, most: usize) -> usize {
        match self {
            Self::Prompt => most,
            Self::Random(chance) => chance.below(most + 1),
        }
    }

    /// Which of `count` things is next, if any is in this step.
    pub(crate) fn next_of(&mut self, count: usize) -> Option<usize> {
        match self {
            _ if count == 0 => None,
            Self::Prompt => Some(0),
            Self::Random(chance) => (!chance.one_in(3)).then(|| chance.below(count)),
        }
    }

    /// How many of `most` blocks, at least one, are transferred at once.
    pub(crate) fn blocks(&mut self, most: u32) -> u32 {
        match self {
            Self::Prompt => most,
            Self::Random(chance) => 1 + chance.below(most as usize) as u32,
        }
    }

    pub(crate) const fn is_random(&self) -> bool {
        matches!(self, Self::Random(_))
    }
}
