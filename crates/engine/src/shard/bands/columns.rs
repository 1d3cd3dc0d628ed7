//! The columns of a band as a set, for the lock of small writes.

use super::Holder;

/// Columns of a band: bit `i` stands for the blocks at one offset in all strips, or for several adjacent offsets if the
/// band has more than 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnSet(u64);

impl ColumnSet {
    /// All columns of the band.
    pub(crate) const ALL: Self = Self(u64::MAX);
    /// No column.
    pub(super) const NONE: Self = Self(0);

    /// Returns the columns of `blocks` blocks at `offset` of a strip, which lie in one band. A band has `band_blocks`
    /// blocks of each strip, a power of two.
    #[inline(always)]
    pub(crate) const fn of(offset: u32, blocks: u32, band_blocks: u32) -> Self {
        let offset = offset & (band_blocks - 1);
        let shift = band_blocks.trailing_zeros().saturating_sub(u64::BITS.trailing_zeros());
        let (first, last) = (offset >> shift, (offset + blocks - 1) >> shift);
        Self(u64::MAX >> (u64::BITS - 1 - (last - first)) << first)
    }

    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the holder of these columns.
    pub(super) fn holder(self) -> Holder {
        if self == Self::NONE { Holder::None } else { Holder::Columns(self) }
    }
}

impl Holder {
    /// Returns the holder of the columns of this holder and of `columns`, if these are free. `of` returns the columns
    /// of a small write.
    pub(super) fn beside(
        self,
        columns: ColumnSet,
        of: impl FnOnce(u32) -> ColumnSet,
    ) -> Option<Self> {
        let held = match self {
            Self::None => ColumnSet::NONE,
            Self::Whole => ColumnSet::ALL,
            Self::Small(number) => of(number),
            Self::Columns(held) => held,
        };
        (!held.overlaps(columns)).then(|| Self::Columns(held.with(columns)))
    }
}
