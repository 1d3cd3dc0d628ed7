//! The direct path of a write that covers one stripe and nothing else. It reads nothing: the parities are computed from
//! the new data alone.

use strake_units::{Lba, LbaRange, MemberIndex, MemberSet, StripeIndex};

use crate::band::Band;
use crate::geometry::{Geometry, Place};
use crate::level::Scheme;
use crate::single::{PARTS_MAX, Sets};
use crate::stripe_map::{StripeMap, low_bits};

/// A stripe that is written as a whole. Its parts are its strips: the data strips, and then the parities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeStripe {
    stripe: StripeIndex,
    map: StripeMap,
}

impl WholeStripe {
    /// The only band of the stripe.
    #[must_use]
    pub const fn band(&self) -> Band {
        Band { stripe: self.stripe, index: 0 }
    }

    /// The place of its first block.
    #[must_use]
    pub const fn place(&self) -> Place {
        Place { stripe: self.stripe, strip: 0, offset: 0 }
    }

    /// Number of data strips.
    #[inline]
    #[must_use]
    pub const fn data_strips(&self) -> u8 {
        self.map.data_strips
    }

    /// Number of parts.
    #[inline]
    #[must_use]
    pub const fn parts(&self) -> u8 {
        self.map.data_strips + self.map.parity_strips
    }

    /// Returns the member of part `part`.
    #[inline]
    #[must_use]
    pub const fn member(&self, part: u8) -> MemberIndex {
        self.map.member(self.map.position_of_strip(part))
    }

    /// Returns the address of the parts in the data areas of their members.
    #[must_use]
    pub const fn member_lba(&self) -> Lba {
        self.map.member_lba(0)
    }

    /// Returns the members of all parts.
    const fn members(&self) -> MemberSet {
        MemberSet::from_bits(low_bits(self.map.width) << self.map.first_member)
    }
}

/// Returns the stripe of a write of `range` that needs no task. The range must be a stripe with one band and at most
/// four parities. Every member of the stripe must be in sync, without a replacement, and not logged, and writes must
/// not need partial-write records. The result agrees with [`plan()`](crate::plan()) for the same request.
#[must_use]
pub fn whole_stripe(geometry: &Geometry, range: LbaRange, sets: &Sets) -> Option<WholeStripe> {
    let is_one_band = geometry.band_blocks() == geometry.strip_blocks();
    let has_parity = match geometry.scheme() {
        Scheme::Parity(parities) => parities > 0 && usize::from(parities) < PARTS_MAX,
        Scheme::Copies(_) => false,
    };
    let is_long = range.blocks == geometry.stripe_data_blocks();
    if !(is_one_band && has_parity && is_long && range.fits(geometry.capacity_blocks())) {
        return None;
    }
    let place = geometry.place(range.start);
    let whole = WholeStripe { stripe: place.stripe, map: geometry.stripe_map(place.stripe) };
    let is_whole = place == whole.place();
    (is_whole && whole.members().is_subset(sets.whole())).then_some(whole)
}
