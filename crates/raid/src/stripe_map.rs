//! The positions of the strips of one stripe, which the data path needs repeatedly.

use strake_units::{Lba, MemberIndex, MemberSet, PositionSet, StripSet};

/// The positions of the strips of one stripe, computed once for callers that need several of them. The map is only for
/// parity schemes, in which each strip has exactly one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeMap {
    pub(crate) width: u8,
    pub(crate) parity_strips: u8,
    pub(crate) data_strips: u8,
    pub(crate) first_parity: u8,
    /// The member at position 0.
    pub(crate) first_member: u8,
    /// The first block of each strip of the stripe, in the data area of a member.
    pub(crate) start: Lba,
}

impl StripeMap {
    /// As [`Geometry::position_of_strip`](crate::Geometry::position_of_strip).
    #[inline]
    #[must_use]
    pub const fn position_of_strip(&self, strip: u8) -> u8 {
        if strip < self.data_strips {
            self.position_of_data(strip)
        } else {
            self.position_of_parity(strip - self.data_strips)
        }
    }

    /// Returns the position of data strip `strip`.
    #[inline]
    #[must_use]
    pub(crate) const fn position_of_data(&self, strip: u8) -> u8 {
        self.after_first_parity(self.parity_strips + strip)
    }

    /// Returns the position of parity `index`.
    #[inline]
    #[must_use]
    pub(crate) const fn position_of_parity(&self, index: u8) -> u8 {
        self.after_first_parity(index)
    }

    /// Returns the positions of all parities.
    #[inline(always)]
    #[must_use]
    pub(crate) const fn parity_positions(&self) -> PositionSet {
        let parities = low_bits(self.parity_strips);
        let wrapped = parities >> (self.width - self.first_parity - 1) >> 1;
        PositionSet::from_bits((parities << self.first_parity | wrapped) & low_bits(self.width))
    }

    /// As [`Geometry::member`](crate::Geometry::member).
    #[inline]
    #[must_use]
    pub const fn member(&self, position: u8) -> MemberIndex {
        MemberIndex(self.first_member + position)
    }

    /// As [`Geometry::member_lba`](crate::Geometry::member_lba).
    #[inline]
    #[must_use]
    pub const fn member_lba(&self, offset: u32) -> Lba {
        Lba(self.start.0 + offset as u64)
    }

    /// As [`Geometry::positions_of_members`](crate::Geometry::positions_of_members).
    #[inline]
    #[must_use]
    pub const fn positions_of_members(&self, members: MemberSet) -> PositionSet {
        group_of(members, self.first_member as u32, self.width)
    }

    /// As [`Geometry::strips_of_positions`](crate::Geometry::strips_of_positions).
    #[inline]
    #[must_use]
    pub const fn strips_of_positions(&self, positions: PositionSet) -> StripSet {
        let first = self.first_parity as u32;
        let positions = positions.bits() & low_bits(self.width);
        // Rotate the group so that parity 0 is bit 0, then move the parities above the data.
        let wrapped = positions & low_bits(first as u8);
        let turned = (positions >> first) | (wrapped << (self.width as u32 - first - 1) << 1);
        StripSet::from_bits(
            (turned >> self.parity_strips)
                | ((turned & low_bits(self.parity_strips)) << self.data_strips),
        )
    }

    /// Returns the position that is `count` positions after parity 0, with wraparound at the end of the group.
    #[inline]
    const fn after_first_parity(&self, count: u8) -> u8 {
        let position = self.first_parity + count;
        if position >= self.width { position - self.width } else { position }
    }
}

/// Returns the `width` members of `members` from number `first`, as positions.
pub(crate) const fn group_of(members: MemberSet, first: u32, width: u8) -> PositionSet {
    PositionSet::from_bits((members.bits() >> first) & low_bits(width))
}

/// Returns a word with the lowest `count` bits set, for `count` in 0..=64.
pub(crate) const fn low_bits(count: u8) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}
