//! Blocks of a cluster: ranges, sets, and the states of the blocks of a partial cluster.

use crate::ids::ClusterId;
use crate::limits::CLUSTER_BLOCKS_MAX;

const WORDS: usize = CLUSTER_BLOCKS_MAX as usize / 64;

/// Consecutive blocks of one cluster, in logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// The first block, counted from the start of the cluster.
    pub first: u16,
    /// The number of blocks.
    pub count: u16,
}

impl Blocks {
    /// The block after the last one.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.first as u32 + self.count as u32
    }

    /// Each block.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        (u32::from(self.first)..self.end()).map(|block| block as u16)
    }
}

/// A set of blocks of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSet(pub(crate) [u64; WORDS]);

impl BlockSet {
    /// No block.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Returns the blocks of a range.
    #[must_use]
    pub fn of(blocks: Blocks) -> Self {
        let mut set = Self::EMPTY;
        blocks.iter().for_each(|block| set.0[usize::from(block) / 64] |= 1 << (block % 64));
        set
    }

    /// True if the set has the block.
    #[must_use]
    pub const fn has(&self, block: u16) -> bool {
        self.0[block as usize / 64] >> (block % 64) & 1 == 1
    }

    /// True if every block of `other` is in this set.
    #[must_use]
    pub fn has_all(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(mine, theirs)| theirs & !mine == 0)
    }

    /// Returns the blocks of both sets.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// Returns the blocks of this set that `other` does not have.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// True if the set has no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }
}

/// The state of each block of a cluster in which not all blocks are its own: *own* if in `own`, *zero* if in `zero`,
/// otherwise *base*: the block at the same offset of the base cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partial {
    /// Blocks that were written to this cluster.
    pub own: BlockSet,
    /// Blocks that are read as zeroes.
    pub zero: BlockSet,
    /// The whole cluster that has the other blocks. It is a reference that the counts include.
    pub base: Option<ClusterId>,
}

impl Partial {
    /// Returns the state of a cluster of `cluster_blocks` zero blocks.
    #[must_use]
    pub fn zeroes(cluster_blocks: u16) -> Self {
        let all = BlockSet::of(Blocks { first: 0, count: cluster_blocks });
        Self { own: BlockSet::EMPTY, zero: all, base: None }
    }

    /// Returns the state in which every block is that of `base`, or zero if there is no base.
    #[must_use]
    pub fn over(base: Option<ClusterId>, cluster_blocks: u16) -> Self {
        let zeroes = Self::zeroes(cluster_blocks);
        base.map_or(zeroes, |_| Self { own: BlockSet::EMPTY, zero: BlockSet::EMPTY, base })
    }

    /// Returns the state after a write of the blocks.
    #[must_use]
    pub fn owning(&self, blocks: Blocks) -> Self {
        let blocks = BlockSet::of(blocks);
        Self { own: self.own.with(&blocks), zero: self.zero.without(&blocks), base: self.base }
    }

    /// Returns the state after a discard of the blocks.
    #[must_use]
    pub fn zeroing(&self, blocks: Blocks) -> Self {
        let blocks = BlockSet::of(blocks);
        Self { own: self.own.without(&blocks), zero: self.zero.with(&blocks), base: self.base }
    }

    /// True if every block of a cluster of `cluster_blocks` is its own.
    #[must_use]
    pub fn is_whole(&self, cluster_blocks: u16) -> bool {
        self.own.len() == u32::from(cluster_blocks)
    }
}
