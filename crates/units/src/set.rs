//! Sets of members, positions, strips and cores. Each kind is its own type, so that a mask of positions cannot be used
//! as a mask of members.
//!
//! A set holds indices below 64 in one word. An index of 64 or more is a mistake of the caller: it panics in a debug
//! build and selects an unspecified index in a release build.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Sub, SubAssign};

use crate::{CoreIndex, MemberIndex};

/// Members of an array, by slot.
pub type MemberSet = Set<MemberIndex>;

/// Positions of one stripe, which are the members of its group, counted from the first of them.
pub type PositionSet = Set<Position>;

/// Strips of one stripe: data from 0, parity after the data.
pub type StripSet = Set<Strip>;

/// Cores, and so the shards of an array. An array has at most 64.
pub type CoreSet = Set<CoreIndex>;

/// A set of indices below 64, all of kind `K`.
///
/// `a | b`, `a & b` and `a - b` are union, intersection and difference.
#[derive(PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Set<K> {
    bits: u64,
    kind: PhantomData<K>,
}

/// What a [`Set`] is a set of.
pub trait Kind: Copy {
    /// What iterating over the set yields.
    type Index: IndexOf<Self> + fmt::Display;

    /// The index with number `bit`.
    fn index(bit: u8) -> Self::Index;
}

/// A value that names an element of a set of kind `K`.
pub trait IndexOf<K> {
    /// Its number, below 64.
    fn bit(self) -> u32;
}

/// The kind of a [`PositionSet`]. It has no values: a position is a `u8`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {}

/// The kind of a [`StripSet`]. It has no values: a strip is a `u8`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strip {}

impl Kind for MemberIndex {
    type Index = Self;

    #[inline]
    fn index(bit: u8) -> Self {
        Self(bit)
    }
}

impl IndexOf<Self> for MemberIndex {
    #[inline]
    fn bit(self) -> u32 {
        self.0.into()
    }
}

impl Kind for CoreIndex {
    type Index = Self;

    #[inline]
    fn index(bit: u8) -> Self {
        Self(bit.into())
    }
}

impl IndexOf<Self> for CoreIndex {
    #[inline]
    fn bit(self) -> u32 {
        self.0.into()
    }
}

/// A slot, as tables of members are indexed by it.
impl IndexOf<MemberIndex> for usize {
    #[inline]
    fn bit(self) -> u32 {
        self as u32
    }
}

impl<K, I: IndexOf<K> + Copy> IndexOf<K> for &I {
    #[inline]
    fn bit(self) -> u32 {
        (*self).bit()
    }
}

macro_rules! kind {
    ($name:ident) => {
        impl Kind for $name {
            type Index = u8;

            #[inline]
            fn index(bit: u8) -> u8 {
                bit
            }
        }

        impl IndexOf<$name> for u8 {
            #[inline]
            fn bit(self) -> u32 {
                self.into()
            }
        }
    };
}

kind!(Position);
kind!(Strip);

impl<K> Set<K> {
    /// The set without any index.
    pub const EMPTY: Self = Self::from_bits(0);

    /// The set of every index below 64.
    pub const ALL: Self = Self::from_bits(u64::MAX);

    /// The set of the bits of a word, as formats and atomics hold it.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { bits, kind: PhantomData }
    }

    /// The set as a bit mask, for formats and atomics.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// The set of the `count` lowest indices.
    #[inline]
    #[must_use]
    pub const fn first_n(count: usize) -> Self {
        Self::from_bits(if count >= 64 { u64::MAX } else { (1 << count) - 1 })
    }

    /// True when no index is in the set.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// How many indices are in the set.
    #[inline]
    #[must_use]
    pub const fn len(self) -> usize {
        self.bits.count_ones() as usize
    }

    /// True when the sets have an index in common.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.bits & other.bits != 0
    }

    /// True when every index of this set is in `other`.
    #[inline]
    #[must_use]
    pub const fn is_subset(self, other: Self) -> bool {
        self.bits & !other.bits == 0
    }

    /// The set of `index` alone.
    #[inline]
    #[must_use]
    pub fn of(index: impl IndexOf<K>) -> Self {
        Self::from_bits(1 << index.bit())
    }

    /// True when `index` is in the set.
    #[inline]
    #[must_use]
    pub fn contains(self, index: impl IndexOf<K>) -> bool {
        self.bits & (1 << index.bit()) != 0
    }

    /// The set with `index` in it as well.
    #[inline]
    #[must_use]
    pub fn with(self, index: impl IndexOf<K>) -> Self {
        self | Self::of(index)
    }

    /// The set without `index`.
    #[inline]
    #[must_use]
    pub fn without(self, index: impl IndexOf<K>) -> Self {
        self - Self::of(index)
    }

    /// Adds `index`.
    #[inline]
    pub fn insert(&mut self, index: impl IndexOf<K>) {
        *self = self.with(index);
    }

    /// Removes `index`, if it is there.
    #[inline]
    pub fn remove(&mut self, index: impl IndexOf<K>) {
        *self = self.without(index);
    }
}

impl<K: Kind> Set<K> {
    /// The lowest index.
    #[inline]
    #[must_use]
    pub fn first(self) -> Option<K::Index> {
        (self.bits != 0).then(|| K::index(self.bits.trailing_zeros() as u8))
    }

    /// The indices, ascending.
    #[inline]
    #[must_use]
    pub fn iter(self) -> Iter<K> {
        Iter { left: self }
    }
}

/// Iterator of [`Set::iter`].
#[derive(Clone, Copy)]
pub struct Iter<K> {
    left: Set<K>,
}

impl<K: Kind> Iterator for Iter<K> {
    type Item = K::Index;

    #[inline]
    fn next(&mut self) -> Option<K::Index> {
        let next = self.left.first()?;
        self.left.bits &= self.left.bits - 1;
        Some(next)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.len(), Some(self.left.len()))
    }
}

impl<K: Kind> ExactSizeIterator for Iter<K> {}

impl<K: Kind> IntoIterator for Set<K> {
    type Item = K::Index;
    type IntoIter = Iter<K>;

    #[inline]
    fn into_iter(self) -> Iter<K> {
        self.iter()
    }
}

impl<K, I: IndexOf<K>> FromIterator<I> for Set<K> {
    #[inline]
    fn from_iter<T: IntoIterator<Item = I>>(indices: T) -> Self {
        indices.into_iter().fold(Self::EMPTY, Self::with)
    }
}

// Not derived, which would ask the same of `K`.
impl<K> Copy for Set<K> {}

impl<K> Clone for Set<K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Default for Set<K> {
    #[inline]
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<K> BitOr for Set<K> {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self::from_bits(self.bits | other.bits)
    }
}

impl<K> BitAnd for Set<K> {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self::from_bits(self.bits & other.bits)
    }
}

impl<K> Sub for Set<K> {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self::from_bits(self.bits & !other.bits)
    }
}

impl<K> BitOrAssign for Set<K> {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.bits |= other.bits;
    }
}

impl<K> BitAndAssign for Set<K> {
    #[inline]
    fn bitand_assign(&mut self, other: Self) {
        self.bits &= other.bits;
    }
}

impl<K> SubAssign for Set<K> {
    #[inline]
    fn sub_assign(&mut self, other: Self) {
        self.bits &= !other.bits;
    }
}

/// Prints as `{0 3 5}`.
impl<K: Kind> fmt::Debug for Set<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (nth, index) in self.iter().enumerate() {
            let gap = if nth == 0 { "" } else { " " };
            write!(f, "{gap}{index}")?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests;
