//! Bands, the unit of locking, planning and merging, and the division of an array range into bands.
//!
//! A band is the same window (at most [`BAND_BYTES_MAX`](crate::BAND_BYTES_MAX) tall) of every strip of one
//! stripe. Parity of a column depends on that column only, so bands of one stripe are independent.
//!
//! ```text
//!            strip 0   strip 1   strip 2    P
//!   band 0   [######]  [      ]  [      ]  [      ]    a range that begins in band 1 of strip 0
//!   band 1   [  ####]  [##    ]  [      ]  [      ]    and ends in band 1 of strip 1 touches every
//!                                                      band here: one piece per strip and band.
//! ```

use strake_units::{FixedList, Lba, LbaRange, StripeIndex};

use crate::TRANSFERS_MAX;
use crate::geometry::{Geometry, Place};

/// One band of one stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Band {
    /// The stripe.
    pub stripe: StripeIndex,
    /// Index of the band in the stripe, from the top.
    pub index: u16,
}

/// A run of array blocks inside one data strip of one band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The data strip, 0..k.
    pub strip: u8,
    /// First block, counted from the start of the strip (not of the band).
    pub offset: u32,
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// Array address of the first block.
    pub lba: Lba,
}

/// The segments of one band: at most one per data strip, in ascending strip order.
pub type SegmentList = FixedList<Segment, TRANSFERS_MAX>;

/// A run of an array range that stays in one strip of one band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The band.
    pub band: Band,
    /// The run.
    pub segment: Segment,
}

impl Geometry {
    /// Splits `range` into runs that stay inside one strip of one band, in ascending address order.
    #[must_use]
    pub const fn pieces(&self, range: LbaRange) -> Pieces {
        Pieces { geometry: *self, rest: range }
    }

    /// Returns every band that `range` touches, once, by stripe and then by index.
    #[must_use]
    pub fn bands(&self, range: LbaRange) -> Bands {
        if range.is_empty() {
            return Bands { geometry: *self, range, stripe: 0, stripe_last: 0, left: 0 };
        }
        let stripe = self.place(range.start).stripe.0;
        let stripe_last = self.place(Lba(range.end().0 - 1)).stripe.0;
        let left = self.bands_in_stripe(StripeIndex(stripe), range);
        Bands { geometry: *self, range, stripe, stripe_last, left }
    }

    /// Returns the parts of `range` in `band`: at most one per data strip, in ascending strip order.
    #[must_use]
    pub fn segments(&self, band: Band, range: LbaRange) -> SegmentList {
        let mut segments = SegmentList::new();
        self.segments_into(band, range, &mut segments);
        segments
    }

    /// Like [`Geometry::segments`], but uses an existing list, whose content is dropped. On the data path, clearing a
    /// list is much cheaper than creating and moving one.
    pub fn segments_into(&self, band: Band, range: LbaRange, segments: &mut SegmentList) {
        segments.clear();
        let Some((first, last)) = self.clip_to_stripe(band.stripe, range) else { return };
        let top = self.band_offset(band);
        let bottom = top + self.band_blocks();
        for strip in first.strip..=last.strip {
            let begin = if strip == first.strip { first.offset.max(top) } else { top };
            let end = if strip == last.strip { (last.offset + 1).min(bottom) } else { bottom };
            if begin < end {
                let lba = self.lba(Place { stripe: band.stripe, strip, offset: begin });
                segments.push(Segment { strip, offset: begin, blocks: end - begin, lba });
            }
        }
    }

    /// Returns the band that contains `place`.
    #[must_use]
    pub const fn band_of(&self, place: Place) -> Band {
        Band { stripe: place.stripe, index: (place.offset / self.band_blocks()) as u16 }
    }

    /// First block of `band` in each strip, counted from the start of the strip.
    #[must_use]
    pub const fn band_offset(&self, band: Band) -> u32 {
        band.index as u32 * self.band_blocks()
    }

    /// Returns the first and the last place of the part of `range` in `stripe`, or `None` without such a part.
    fn clip_to_stripe(&self, stripe: StripeIndex, range: LbaRange) -> Option<(Place, Place)> {
        let begin = self.lba(Place { stripe, strip: 0, offset: 0 }).0;
        let end = begin + self.stripe_data_blocks();
        let (first, end) = (range.start.0.max(begin), range.end().0.min(end));
        if first >= end {
            return None;
        }
        let within = |lba: u64| Place {
            stripe,
            strip: ((lba - begin) / u64::from(self.strip_blocks())) as u8,
            offset: ((lba - begin) % u64::from(self.strip_blocks())) as u32,
        };
        Some((within(first), within(end - 1)))
    }

    /// Returns the mask of the bands of `stripe` that `range` touches. A stripe has at most 8 bands.
    fn bands_in_stripe(&self, stripe: StripeIndex, range: LbaRange) -> u8 {
        let Some((first, last)) = self.clip_to_stripe(stripe, range) else { return 0 };
        let all = ((1u32 << self.bands_per_stripe()) - 1) as u8;
        let from_first = all & (u8::MAX << self.band_of(first).index);
        let to_last = all & (u8::MAX >> (7 - self.band_of(last).index));
        match last.strip - first.strip {
            0 => from_first & to_last,
            1 => from_first | to_last,
            _ => all,
        }
    }
}

/// Iterator of [`Geometry::pieces`].
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    geometry: Geometry,
    rest: LbaRange,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.rest.is_empty() {
            return None;
        }
        let lba = self.rest.start;
        let place = self.geometry.place(lba);
        let band_blocks = self.geometry.band_blocks();
        let room = band_blocks - (place.offset & (band_blocks - 1));
        let blocks = u64::from(room).min(self.rest.blocks);
        self.rest = LbaRange::new(lba.plus(blocks), self.rest.blocks - blocks);
        let (strip, offset, blocks) = (place.strip, place.offset, blocks as u32);
        let segment = Segment { strip, offset, blocks, lba };
        Some(Piece { band: self.geometry.band_of(place), segment })
    }
}

/// Iterator of [`Geometry::bands`].
#[derive(Clone, Copy, Debug)]
pub struct Bands {
    geometry: Geometry,
    range: LbaRange,
    stripe: u64,
    stripe_last: u64,
    /// Remaining bands of `stripe`, as a mask.
    left: u8,
}

impl Iterator for Bands {
    type Item = Band;

    fn next(&mut self) -> Option<Band> {
        if self.left == 0 {
            if self.stripe >= self.stripe_last {
                return None;
            }
            self.stripe += 1;
            self.left = self.geometry.bands_in_stripe(StripeIndex(self.stripe), self.range);
        }
        let index = self.left.trailing_zeros() as u16;
        self.left &= self.left - 1;
        Some(Band { stripe: StripeIndex(self.stripe), index })
    }
}
